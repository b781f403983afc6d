"""Joins the layers of a draft with the embedding and tokenizer of its target into one GGUF.

A draft that shares its target's embedding is shipped without it. Everything is copied byte for
byte, so nothing is lost and the result is always the same file.
"""

import struct
from pathlib import Path
from typing import BinaryIO

from edgeprof.errors import FileFault
from edgeprof.models.checksum import CHUNK_BYTES, sha256_of
from edgeprof.models.readers.gguf import (
    MAGIC,
    STORAGE_TYPES,
    GgufHeader,
    GgufTensor,
    read_header,
)

EMBEDDING = "token_embd.weight"
TOKENIZER_PREFIX = "tokenizer."
BASE_HASH_KEY = "general.base_model.0.sha256"
VERSION = 3


def assemble_draft(layers_path: Path, base_path: Path, draft_path: Path) -> None:
    """Writes ``draft_path``: names and sizes from the layers file, then the base's tokenizer; the
    base's embedding, then the layers' tensors."""
    layers, base = read_header(layers_path), read_header(base_path)
    _check_base(layers, base)
    spans = [
        *((layers, span) for span in layers.pair_spans.values()),
        *((base, span) for span in _tokenizer_spans(layers, base)),
    ]
    tensors = [(base, _embedding(base)), *((layers, tensor) for tensor in layers.tensors)]
    alignment = layers.alignment
    with layers_path.open("rb") as layers_file, base_path.open("rb") as base_file:
        files = {layers_path: layers_file, base_path: base_file}
        with draft_path.open("wb") as out:
            out.write(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(spans)))
            for header, (start, end) in spans:
                _copy(files[header.path], start, end - start, out)
            out.write(_tensor_table([tensor for _, tensor in tensors], alignment))
            _pad(out, alignment)
            for header, tensor in tensors:
                _copy(files[header.path], tensor.offset, tensor.byte_length, out)
                _pad(out, alignment)


def _check_base(layers: GgufHeader, base: GgufHeader) -> None:
    wanted = layers.metadata.get(BASE_HASH_KEY)
    if not isinstance(wanted, str):
        raise FileFault(f"{layers.path}: {BASE_HASH_KEY} is missing: not the layers of a draft")
    found = sha256_of(base.path)
    if found != wanted:
        raise FileFault(
            f"{base.path}: SHA-256 is {found}, but the draft layers in {layers.path} "
            f"belong to the file with {wanted}"
        )
    if layers.alignment != base.alignment:
        raise FileFault(
            f"{layers.path}: aligned to {layers.alignment} bytes, its base to {base.alignment}"
        )


def _tokenizer_spans(layers: GgufHeader, base: GgufHeader) -> list[tuple[int, int]]:
    return [
        span
        for key, span in base.pair_spans.items()
        if key.startswith(TOKENIZER_PREFIX) and key not in layers.pair_spans
    ]


def _embedding(base: GgufHeader) -> GgufTensor:
    for tensor in base.tensors:
        if tensor.name == EMBEDDING:
            return tensor
    raise FileFault(f"{base.path}: tensor {EMBEDDING} is missing")


def _tensor_table(tensors: list[GgufTensor], alignment: int) -> bytes:
    type_ids = {name: type_id for type_id, (name, _, _) in STORAGE_TYPES.items()}
    table = bytearray()
    offset = 0
    for tensor in tensors:
        name = tensor.name.encode()
        rank = len(tensor.dims)
        table += struct.pack("<Q", len(name)) + name
        table += struct.pack(f"<I{rank}Q", rank, *tensor.dims)
        table += struct.pack("<IQ", type_ids[tensor.storage], offset)
        offset += -(-tensor.byte_length // alignment) * alignment
    return bytes(table)


def _copy(source: BinaryIO, start: int, length: int, out: BinaryIO) -> None:
    source.seek(start)
    while length:
        chunk = source.read(min(length, CHUNK_BYTES))
        if not chunk:
            raise FileFault(f"{source.name}: the file became shorter while it was read")
        out.write(chunk)
        length -= len(chunk)


def _pad(out: BinaryIO, alignment: int) -> None:
    out.write(bytes(-out.tell() % alignment))
