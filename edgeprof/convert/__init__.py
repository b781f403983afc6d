"""GGUF files to ONNX decoders that hold the file's own weights."""
