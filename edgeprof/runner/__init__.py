"""Decoding, plain and speculative, over ONNX Runtime."""
