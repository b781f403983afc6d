import os
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.readers.gguf import (
    MAX_ARRAY_VALUES,
    STORAGE_TYPES,
    GgufHeader,
    GgufStrings,
    read_header,
    tensor_bytes,
)

U32, U64, STRING, ARRAY, INT32, F32_VALUE = 4, 10, 8, 9, 5, 6
F32, Q4_0 = 0, 2


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def array(kind: int, count: int, payload: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + payload


def row(name: bytes, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    layout = f"<I{len(dims)}QIQ"
    return text(name) + struct.pack(layout, len(dims), *dims, kind, offset)


def gguf_bytes(
    pairs: list[bytes],
    rows: list[bytes],
    data: bytes = b"",
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A file put together by hand, after the specification."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(rows), len(pairs))
    header += b"".join(pairs) + b"".join(rows)
    return header + bytes(-len(header) % alignment) + data


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return path

    return write


Written = Callable[[bytes], Path]


def fault(path: Path) -> str:
    with pytest.raises(FileFault) as caught:
        read_header(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


# What a sound file says


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_made_by_hand(written: Written, version: int) -> None:
    pairs = [
        pair(b"general.architecture", STRING, text(b"llama")),
        pair(b"u8", 0, b"\xff"),
        pair(b"i8", 1, b"\xff"),
        pair(b"u16", 2, b"\x01\x02"),
        pair(b"i16", 3, b"\xfe\xff"),
        pair(b"u32", U32, struct.pack("<I", 7)),
        pair(b"i32", INT32, struct.pack("<i", -7)),
        pair(b"f32", F32_VALUE, struct.pack("<f", 0.5)),
        pair(b"bool", 7, b"\x01"),
        pair(b"u64", U64, struct.pack("<Q", 1 << 40)),
        pair(b"i64", 11, struct.pack("<q", -(1 << 40))),
        pair(b"f64", 12, struct.pack("<d", 0.1)),
        pair(b"nested", ARRAY, array(ARRAY, 2, array(0, 2, b"\x01\x02") + array(0, 0, b""))),
    ]
    rows = [row(b"a", (32, 2), Q4_0, 0), row(b"b", (3,), F32, 64)]
    # a: 2 rows of one 18-byte block = 36 bytes, padded to 64; b: 3 x 4 = 12 bytes
    path = written(gguf_bytes(pairs, rows, bytes(64 + 12), version=version))
    header = read_header(path)
    assert header.version == version
    assert dict(header.metadata) == {
        "general.architecture": "llama",
        "u8": 255,
        "i8": -1,
        "u16": 0x0201,
        "i16": -2,
        "u32": 7,
        "i32": -7,
        "f32": 0.5,
        "bool": True,
        "u64": 1 << 40,
        "i64": -(1 << 40),
        "f64": 0.1,
        "nested": ((1, 2), ()),
    }
    size = path.stat().st_size
    assert header.byte_length == size
    assert header.missing_bytes == 0
    assert [(t.name, t.dims, t.storage, t.offset, t.byte_length) for t in header.tensors] == [
        ("a", (32, 2), "Q4_0", size - 76, 36),
        ("b", (3,), "F32", size - 12, 12),
    ]


@pytest.mark.parametrize("matrices", ["F32", "F16", "Q4_0", "Q4_1", "Q8_0"])
def test_agrees_with_the_gguf_package(
    tmp_path: Path, tiny_gguf: Callable[..., Path], matrices: str
) -> None:
    import gguf

    path = tiny_gguf(tmp_path / "tiny.gguf", matrices=matrices, tied=False)
    header = read_header(path)
    reference = gguf.GGUFReader(path)
    assert [(t.name, list(t.dims), t.storage, t.offset, t.byte_length) for t in header.tensors] == [
        (t.name, t.shape.tolist(), t.tensor_type.name, t.data_offset, t.n_bytes)
        for t in reference.tensors
    ]
    for tensor, expected in zip(header.tensors, reference.tensors, strict=True):
        assert tensor_bytes(header, tensor).tobytes() == expected.data.tobytes()
    expected_metadata = {
        key: field.contents()
        for key, field in reference.fields.items()
        if not key.startswith("GGUF.")
    }
    assert {key: plain(value) for key, value in header.metadata.items()} == expected_metadata


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, GgufStrings)) else value


def test_storage_types_are_those_of_the_format() -> None:
    import gguf

    # The package's older versions know fewer types, newer ones may know more.
    both = [kind for kind in gguf.GGMLQuantizationType if kind.value in STORAGE_TYPES]
    assert len(both) >= 30
    for kind in both:
        assert STORAGE_TYPES[kind.value] == (kind.name, *gguf.GGML_QUANT_SIZES[kind])


def test_storage_types_agree_with_the_table_of_formats() -> None:
    text = resources.files("edgeprof.models").joinpath("formats.toml").read_text("utf-8")
    table = msgspec.toml.decode(text)["storage"]
    both = [entry for entry in STORAGE_TYPES.values() if entry[0].lower() in table]
    assert {"Q4_0", "Q4_K", "MXFP4"} <= {name for name, _, _ in both}
    for name, weights, size in both:
        listed = table[name.lower()]
        assert size * listed["block_weights"] == listed["block_bytes"] * weights, name


def test_the_demo_model(smollm2_gguf: Path) -> None:
    header = read_header(smollm2_gguf)
    assert sum(tensor.byte_length for tensor in header.tensors) == 96_576_768
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, GgufStrings)
    assert (len(tokens), tokens[:3]) == (49152, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    assert header.metadata["llama.block_count"] == 30


def test_m14_long_arrays_are_read_whole(written: Written) -> None:
    values = tuple(range(88))
    pairs = [pair(b"llama.kv", ARRAY, array(INT32, 88, struct.pack("<88i", *values)))]
    assert read_header(written(gguf_bytes(pairs, []))).metadata["llama.kv"] == values


def test_m17_expert_tensors_are_ordinary(written: Written) -> None:
    pairs = [pair(b"llama.expert_count", U32, struct.pack("<I", 8))]
    rows = [row(b"blk.0.ffn_gate_exps.weight", (32, 4, 8), Q4_0, 0)]
    # 4 x 8 rows of one 18-byte block
    header = read_header(written(gguf_bytes(pairs, rows, bytes(576))))
    assert header.tensors[0].byte_length == 576
    assert header.metadata["llama.expert_count"] == 8


@pytest.mark.parametrize("trailing", [0, 60, 1000])
def test_m21_trailing_bytes_are_no_fault(written: Written, trailing: int) -> None:
    pairs = [pair(b"general.alignment", U32, struct.pack("<I", 64))]
    rows = [row(b"a", (1,), F32, 0)]
    content = gguf_bytes(pairs, rows, bytes(4 + trailing), alignment=64)
    header = read_header(written(content))
    assert (header.alignment, header.missing_bytes) == (64, 0)
    assert header.tensors[0].offset == len(content) - 4 - trailing


def test_strings_of_any_bytes_survive(written: Written) -> None:
    raw = [b"", b"ab", b"\xff\xfe", "\u00e9".encode(), b"last"]
    payload = b"".join(text(token) for token in raw)
    pairs = [pair(b"tokens", ARRAY, array(STRING, len(raw), payload))]
    tokens = read_header(written(gguf_bytes(pairs, []))).metadata["tokens"]
    assert isinstance(tokens, GgufStrings)
    assert [token.encode("utf-8", "surrogateescape") for token in tokens] == raw
    assert (tokens[-1], tokens[1:2], len(tokens)) == ("last", ["ab"], 5)
    with pytest.raises(IndexError):
        tokens[5]


def test_pair_spans_cut_out_each_pair(written: Written) -> None:
    pairs = [pair(b"one", U32, bytes(4)), pair(b"two", STRING, text(b"words"))]
    content = gguf_bytes(pairs, [])
    header = read_header(written(content))
    assert [content[start:end] for start, end in header.pair_spans.values()] == pairs


# What a faulty file is called


@pytest.mark.parametrize(
    "content",
    [
        b"<!doctype html><html>",
        b"<!DOCTYPE html>\n<html lang=en>",
        b"\xef\xbb\xbf\r\n <html><head>",
        b"<?xml version='1.0'?><Error/>",
    ],
)
def test_m18_a_web_page_is_called_one(written: Written, content: bytes) -> None:
    message = fault(written(content))
    assert message == "this is an HTML page, not a model: the download failed; check the link"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"GG", "truncated: the file has only 2 bytes"),
        (b"PK\x03\x04rest of it", "not a GGUF file: it starts with b'PK\\x03\\x04rest'"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "this is a Git LFS pointer"),
        (b"tjgg\x03\0\0\0", "the GGML format that came before GGUF"),
        (b"GGUF\x00\x00\x00\x03" + bytes(16), "this is a big-endian GGUF (version 3)"),
        (b"GGUF\x01\x00\x00\x00" + bytes(16), "this is GGUF version 1; edgeprof reads 2 and 3"),
        (b"GGUF\x04\x00\x00\x00" + bytes(16), "this is GGUF version 4; edgeprof reads 2 and 3"),
    ],
)
def test_what_the_file_is_instead(written: Written, content: bytes, said: str) -> None:
    assert said in fault(written(content))


def test_m19_missing_weights_are_counted(tmp_path: Path, tiny_gguf: Callable[..., Path]) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf")
    whole = path.stat().st_size
    os.truncate(path, whole - 5000)
    assert f"truncated: 5000 of {whole} bytes are missing" in fault(path)
    header = read_header(path, allow_missing_data=True)
    assert header.missing_bytes == 5000
    with pytest.raises(FileFault, match=r"output_norm\.weight"):
        tensor_bytes(header, header.tensors[-1])


def test_m19_a_cut_header_says_so(written: Written) -> None:
    pairs = [pair(b"general.name", STRING, text(b"ten bytes!"))]
    header_bytes = 4 + 4 + 8 + 8 + len(pairs[0])
    path = written(gguf_bytes(pairs, [])[: header_bytes - 4])
    assert "the file ends inside its header, at least 4 bytes are missing" in fault(path)


def nested(depth: int) -> bytes:
    inner = array(0, 0, b"")
    for _ in range(depth - 1):
        inner = array(ARRAY, 1, inner)
    return inner


@pytest.mark.parametrize(
    ("pairs", "rows", "said"),
    [
        ([pair(b"k", U32, bytes(4))] * 2, [], "metadata key 'k' appears twice"),
        ([], [row(b"t", (0,), F32, 0)] * 2, "tensor 't' appears twice"),
        ([pair(b"k\xff", U32, bytes(4))], [], r"a metadata key is not UTF-8: b'k\xff'"),
        ([], [row(b"\xff", (1,), F32, 0)], "a tensor's name is not UTF-8"),
        ([pair(b"k", 77, bytes(8))], [], "the value of 'k' has the unknown type 77"),
        ([pair(b"k", ARRAY, nested(5))], [], "the arrays of 'k' lie more than 4 deep"),
        ([pair(b"k", STRING, struct.pack("<Q", 1 << 62))], [], "it is larger than 256 MiB"),
        ([pair(b"k", ARRAY, array(0, 1 << 60, b""))], [], f"more than {MAX_ARRAY_VALUES}"),
        ([pair(b"general.alignment", U32, bytes(4))], [], "general.alignment is 0"),
        ([pair(b"general.alignment", U32, b"\x18\0\0\0")], [], "general.alignment is 24"),
        ([pair(b"general.alignment", STRING, text(b"64"))], [], "general.alignment is '64'"),
        ([], [row(b"t", (32,), 99, 0)], "tensor 't' has storage type 99"),
        ([], [row(b"t", (33,), Q4_0, 0)], "hold 33 weights, no multiple of the 32 in a Q4_0"),
        ([], [row(b"t", (1,) * 5, F32, 0)], "tensor 't' has 5 dimensions, more than 4"),
        ([], [row(b"t", (1,), F32, 8)], "tensor 't' starts at 8, off the 32-byte grid"),
        ([], [row(b"t", (1 << 60, 1 << 60), F32, 0)], "tensor 't' claims"),
        ([], [row(b"t", (16,), F32, 0), row(b"u", (1,), F32, 32)], "tensors 't' and 'u' overlap"),
    ],
)
def test_damage_is_named(
    written: Written, pairs: list[bytes], rows: list[bytes], said: str
) -> None:
    assert said in fault(written(gguf_bytes(pairs, rows, bytes(256))))


@pytest.mark.parametrize("counts", [(1 << 63, 0), (0, 1 << 63), (1000, 0), (0, 1000)])
def test_counts_beyond_the_file_are_refused(written: Written, counts: tuple[int, int]) -> None:
    fault(written(b"GGUF" + struct.pack("<IQQ", 3, *counts) + bytes(64)))


def test_paths_that_hold_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="no such file"):
        read_header(tmp_path / "absent.gguf")
    with pytest.raises(UsageFault, match="is not a file"):
        read_header(tmp_path)
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with pytest.raises(UsageFault, match="is not a file"):
        read_header(pipe)


# Whatever the bytes are


@pytest.fixture(scope="module")
def sound_bytes(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Callable[..., Path]) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tiny_gguf(path, layers=1, hidden=32, heads=2, kv_heads=1, ffn=32, vocab=259, matrices="Q4_0")
    return path.read_bytes()


def describe(path: Path, content: bytes) -> GgufHeader | None:
    """The header, or None where a FileFault says why not; little memory either way."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        return read_header(path)
    except FileFault:
        return None
    finally:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # Some 50 bytes of objects for each byte of the file is what one-byte values can cost.
        assert peak_bytes < 100_000 + 50 * len(content)


same_folder = settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@same_folder
@given(share=st.floats(0, 1, exclude_max=True))
def test_any_truncation_is_a_file_fault(tmp_path: Path, sound_bytes: bytes, share: float) -> None:
    end = read_end(tmp_path, sound_bytes)
    assert describe(tmp_path / "cut.gguf", sound_bytes[: int(end * share)]) is None


def read_end(tmp_path: Path, content: bytes) -> int:
    header = describe(tmp_path / "whole.gguf", content)
    assert header is not None
    return max(tensor.offset + tensor.byte_length for tensor in header.tensors)


@same_folder
@given(
    flips=st.lists(st.tuples(st.integers(0, 12_000), st.integers(0, 255)), min_size=1, max_size=8)
)
def test_any_flipped_bytes_are_read_or_a_file_fault(
    tmp_path: Path, sound_bytes: bytes, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(sound_bytes)
    for position, value in flips:
        content[position % len(content)] = value
    header = describe(tmp_path / "flipped.gguf", bytes(content))
    if header is not None:
        for tensor in header.tensors:
            assert tensor.offset + tensor.byte_length <= len(content)


@same_folder
@given(tail=st.binary(max_size=200))
def test_any_bytes_behind_the_magic(tmp_path: Path, tail: bytes) -> None:
    describe(tmp_path / "made_up.gguf", b"GGUF\x03\0\0\0" + tail)


def test_a_header_is_read_without_numpy(tmp_path: Path, tiny_gguf: Callable[..., Path]) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf")
    code = (
        "import sys; from pathlib import Path;"
        "from edgeprof.models.readers.gguf import read_header;"
        "read_header(Path(sys.argv[1])); print(sorted({'numpy', 'gguf'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
