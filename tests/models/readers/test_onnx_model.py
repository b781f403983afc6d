"""Decoders described from ONNX graphs: what is multiplied, looked up, cached; nothing is read."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import onnx
import pytest
from onnx import TensorProto, helper

from edgeprof.catalog import find_kv_type
from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.readers.onnx_graph import read_onnx_graph
from edgeprof.models.readers.onnx_model import describe_genai_folder, describe_onnx
from edgeprof.models.spec import AttentionKind, ModelSpec

F16 = find_kv_type("f16")
HIDDEN, VOCAB, HEADS, KV_HEADS, HEAD_DIM = 64, 100, 4, 2, 16


def constant(name: str, *dims: int, kind: int = TensorProto.FLOAT) -> onnx.TensorProto:
    width = helper.tensor_dtype_to_np_dtype(kind).itemsize
    return helper.make_tensor(name, kind, dims, bytes(math.prod(dims) * width), raw=True)


class Decoder:
    """A graph of one layer that is put together piece by piece; it need not run."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [self.value("input_ids", TensorProto.INT64, [1, "tokens"])]

    @staticmethod
    def value(name: str, kind: int, shape: list[Any]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    def node(
        self, kind: str, inputs: list[str], output: str, name: str = "", **numbers: Any
    ) -> str:
        node = helper.make_node(kind, inputs, [output], name=name or output, **numbers)
        self.nodes.append(node)
        return output

    def cache(self, *names: str, kind: int = TensorProto.FLOAT16) -> None:
        for name in names:
            self.inputs.append(self.value(name, kind, [1, KV_HEADS, "past", HEAD_DIM]))

    def matrix(self, name: str, rows: int, columns: int, x: str = "x") -> None:
        self.constants.append(constant(name, columns, rows))
        self.node("MatMul", [x, name], name + ".out")

    def packed(self, name: str, rows: int, columns: int, *, zeros: bool) -> None:
        """MatMulNBits, 4 bits, block 32, scales in f16."""
        blocks = columns // 32
        self.constants += [
            constant(name + ".q", rows, blocks, 16, kind=TensorProto.UINT8),
            constant(name + ".s", rows * blocks, kind=TensorProto.FLOAT16),
        ]
        inputs = ["x", name + ".q", name + ".s"]
        if zeros:
            length = rows * -(-blocks // 2)
            self.constants.append(constant(name + ".z", length, kind=TensorProto.UINT8))
            inputs.append(name + ".z")
        self.node("MatMulNBits", inputs, name, bits=4, block_size=32, N=rows, K=columns)

    def attention(self, **numbers: Any) -> None:
        self.node("GroupQueryAttention", ["qkv", "", "", "past_key_values.0.key",
                  "past_key_values.0.value"], "attended", num_heads=HEADS,
                  kv_num_heads=KV_HEADS, **numbers)  # fmt: skip

    def write(self, path: Path, **options: Any) -> Path:
        logits = [self.value("logits", TensorProto.FLOAT, [1, "tokens", VOCAB])]
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, logits, self.constants)
        onnx.save(helper.make_model(graph), path, **options)
        return path


@pytest.fixture
def decoder() -> Decoder:
    made = Decoder()
    made.cache("past_key_values.0.key", "past_key_values.0.value")
    made.attention()
    return made


def group_of(spec: ModelSpec, role: str) -> Any:
    (group,) = [group for group in spec.groups if group.role == role]
    return group


def test_packed_weights_count_with_scales_and_zero_points(decoder: Decoder, tmp_path: Path) -> None:
    decoder.packed("model.layers.0.mlp.up_proj", 96, HIDDEN, zeros=True)
    decoder.packed("model.layers.0.mlp.down_proj", HIDDEN, 96, zeros=False)
    spec = describe_onnx(decoder.write(tmp_path / "m.onnx"))
    up = group_of(spec, "ffn_up")
    assert (up.rows, up.columns) == (96, HIDDEN)
    # 4 bits each, two f16 scales and two 4-bit zero points a row
    assert up.bytes == 96 * (HIDDEN // 2 + 2 * 2 + 1)
    assert group_of(spec, "ffn_down").bytes == HIDDEN * (96 // 2 + 3 * 2)
    assert spec.used_parameters == 2 * 96 * HIDDEN


def test_caches_give_the_geometry(decoder: Decoder, tmp_path: Path) -> None:
    decoder.matrix("q_proj", HEADS * HEAD_DIM, HIDDEN)
    spec = describe_onnx(decoder.write(tmp_path / "m.onnx"))
    assert spec.attention.kinds == (
        AttentionKind(layers=1, heads=HEADS, kv_heads=KV_HEADS, key_dim=HEAD_DIM,
                      value_dim=HEAD_DIM),
    )  # fmt: skip
    assert spec.kv_bytes_per_token(F16) == 2 * KV_HEADS * HEAD_DIM * 2
    assert spec.vocab == VOCAB


def test_a_window_of_the_node(tmp_path: Path) -> None:
    made = Decoder()
    made.cache("past_key_values.0.key", "past_key_values.0.value")
    made.attention(local_window_size=128)
    spec = describe_onnx(made.write(tmp_path / "m.onnx"))
    assert [kind.window_tokens for kind in spec.attention.kinds] == [128]


@pytest.mark.parametrize("tied", [True, False])
def test_a_table_that_is_looked_up_and_multiplied_is_tied(
    decoder: Decoder, tmp_path: Path, tied: bool
) -> None:
    decoder.constants.append(constant("embed_tokens", VOCAB, HIDDEN))
    decoder.node("Gather", ["embed_tokens", "input_ids"], "x")
    if tied:
        decoder.node("Gemm", ["x", "embed_tokens"], "logits", transB=1)
    else:
        decoder.matrix("lm_head", VOCAB, HIDDEN)
    spec = describe_onnx(decoder.write(tmp_path / "m.onnx"))
    size = VOCAB * HIDDEN * 4
    assert spec.streamed_weight_bytes == size
    assert spec.resident_weight_bytes == (size if tied else 2 * size)
    assert spec.embedding_row_bytes == (0 if tied else HIDDEN * 4)
    assert group_of(spec, "lm_head").rows == VOCAB


def test_a_quantised_table_is_looked_up_by_the_row(decoder: Decoder, tmp_path: Path) -> None:
    decoder.constants += [
        constant("table.q", VOCAB, HIDDEN // 2, kind=TensorProto.UINT8),
        constant("table.s", VOCAB, 2, kind=TensorProto.FLOAT16),
    ]
    decoder.node("GatherBlockQuantized", ["table.q", "input_ids", "table.s"], "x",
                 bits=4, block_size=32)  # fmt: skip
    spec = describe_onnx(decoder.write(tmp_path / "m.onnx"))
    table = group_of(spec, "embedding")
    assert (table.rows, table.columns, table.row_bytes) == (VOCAB, HIDDEN, HIDDEN // 2 + 4)


def test_dequantised_weights_are_read_as_they_are_stored(decoder: Decoder, tmp_path: Path) -> None:
    decoder.constants += [
        constant("up_proj.q", HIDDEN, 96, kind=TensorProto.UINT8), constant("up_proj.s", 96)
    ]  # fmt: skip
    decoder.node("DequantizeLinear", ["up_proj.q", "up_proj.s"], "up_proj.w")
    decoder.node("MatMul", ["x", "up_proj.w"], "up")
    spec = describe_onnx(decoder.write(tmp_path / "m.onnx"))
    assert group_of(spec, "ffn_up").bytes == HIDDEN * 96 + 96 * 4


def test_experts_of_one_node(decoder: Decoder, tmp_path: Path) -> None:
    decoder.constants += [
        constant("fc1", 8, HIDDEN, 48, kind=TensorProto.FLOAT16),
        constant("fc2", 8, 48, HIDDEN, kind=TensorProto.FLOAT16),
    ]
    decoder.node("MoE", ["x", "router_logits", "fc1", "", "fc2"], "moe", k=2)
    spec = describe_onnx(decoder.write(tmp_path / "m.onnx"))
    assert spec.resident_weight_bytes == 2 * 8 * HIDDEN * 48 * 2
    assert spec.streamed_weight_bytes == 2 * 2 * HIDDEN * 48 * 2


def test_shapes_and_unused_constants_are_not_read(decoder: Decoder, tmp_path: Path) -> None:
    decoder.constants += [constant("axes", 2, kind=TensorProto.INT64), constant("left_over", 50)]
    decoder.node("Unsqueeze", ["x", "axes"], "y")
    spec = describe_onnx(decoder.write(tmp_path / "m.onnx"))
    assert spec.streamed_weight_bytes == 0
    assert spec.resident_weight_bytes == 2 * 8 + 50 * 4


@pytest.mark.parametrize("weights", ["as-is", "fp32"])
def test_decoders_that_edgeprof_converts(
    tiny_gguf: Callable[..., Path], tmp_path: Path, weights: Literal["as-is", "fp32"]
) -> None:
    """The converter counted the bytes while it wrote them: two independent sums."""
    from edgeprof.convert.folder import convert
    from edgeprof.models.decoder_folder import read_decoder_folder

    source = tiny_gguf(tmp_path / "tiny.gguf", matrices="Q4_1")
    convert(source, tmp_path / "onnx", weights=weights)
    manifest = read_decoder_folder(tmp_path / "onnx").manifest
    spec = describe_genai_folder(tmp_path / "onnx")
    assert manifest is not None
    dummy_row = (4 + 2 * 2) * 16 * 4  # the row that attention sees in every pass
    assert spec.streamed_weight_bytes == manifest.streamed_weight_bytes + dummy_row
    assert spec.kv_bytes_per_token(find_kv_type("f32")) == manifest.kv_bytes_per_token
    assert (spec.context_tokens, spec.cache_storage) == (manifest.context_tokens, "f32")
    assert spec.attention.kinds[0].heads == manifest.heads


# Names and types


@pytest.mark.parametrize(
    "names",
    [
        ("past_key_values.0.key", "past_key_values.0.value"),
        ("past_key_values_0.0", "past_key_values_0.1"),
        ("past_key_0", "past_value_0"),
        ("key_cache.0", "value_cache.0"),
    ],
)
def test_m25_caches_are_found_by_pattern_and_order(names: tuple[str, str], tmp_path: Path) -> None:
    made = Decoder()
    made.cache(*names)
    made.matrix("q_proj", HEADS * HEAD_DIM, HIDDEN)
    spec = describe_onnx(made.write(tmp_path / "m.onnx"))
    assert spec.attention.kinds[0].heads == HEADS
    assert spec.kv_bytes_per_token(F16) == 2 * KV_HEADS * HEAD_DIM * 2


def test_m25_keys_and_values_in_one_tensor_are_refused(tmp_path: Path) -> None:
    made = Decoder()
    made.inputs.append(made.value("past_0", TensorProto.FLOAT, [2, 1, KV_HEADS, "past", HEAD_DIM]))
    made.node("Identity", ["past_0"], "y")
    with pytest.raises(FileFault, match="'past_0' holds keys and values in one tensor"):
        describe_onnx(made.write(tmp_path / "m.onnx"))


def test_m24_a_cache_branch_is_a_known_input(decoder: Decoder, tmp_path: Path) -> None:
    decoder.inputs.append(decoder.value("use_cache_branch", TensorProto.BOOL, [1]))
    assert describe_onnx(decoder.write(tmp_path / "m.onnx")).warnings == ()


def test_m26_and_m27_types_are_read_from_the_graph(tmp_path: Path) -> None:
    made = Decoder()
    made.inputs = [made.value("input_ids", TensorProto.INT32, [1, "tokens"])]
    made.cache("past_key_values.0.key", "past_key_values.0.value")
    made.attention()
    spec = describe_onnx(made.write(tmp_path / "m.onnx"))
    assert spec.cache_storage == "f16"
    assert "input_ids i32, cache f16" in spec.source


def test_m30_what_the_exporter_left_behind_is_named(decoder: Decoder, tmp_path: Path) -> None:
    decoder.inputs.append(decoder.value("onnx::Neg_50", TensorProto.FLOAT, [1]))
    spec = describe_onnx(decoder.write(tmp_path / "m.onnx"))
    assert "does not know: 'onnx::Neg_50'" in spec.warnings[0]
    assert "export the model again" in spec.warnings[0]


def test_a_graph_without_a_cache_is_refused(tmp_path: Path) -> None:
    made = Decoder()
    made.matrix("q_proj", 64, HIDDEN)
    with pytest.raises(FileFault, match=r"no cache among its inputs \('input_ids'\)"):
        describe_onnx(made.write(tmp_path / "m.onnx"))


# External data


@pytest.fixture
def external(decoder: Decoder, tmp_path: Path) -> Path:
    decoder.matrix("up_proj", 96, HIDDEN)
    decoder.constants[-1].raw_data = bytes(96 * HIDDEN * 4)
    return decoder.write(
        tmp_path / "m.onnx", save_as_external_data=True, location="m.onnx_data", size_threshold=0
    )


def test_external_data_is_described_unread(external: Path) -> None:
    data = external.with_name("m.onnx_data")
    data.write_bytes(b"")
    with data.open("r+b") as file:
        file.truncate(96 * HIDDEN * 4)  # a hole
    assert group_of(describe_onnx(external), "ffn_up").bytes == 96 * HIDDEN * 4


def test_m28_missing_external_data_is_listed_with_its_size(external: Path) -> None:
    external.with_name("m.onnx_data").unlink()
    with pytest.raises(FileFault, match=r"m\.onnx_data is missing \(24576 bytes\)"):
        describe_onnx(external)
    assert read_onnx_graph(external).problems == ["m.onnx_data is missing (24576 bytes)"]


def test_m28_truncated_external_data_is_told(external: Path) -> None:
    with external.with_name("m.onnx_data").open("r+b") as file:
        file.truncate(24_000)
    with pytest.raises(FileFault, match=r"truncated: 576 of 24576 bytes are missing"):
        describe_onnx(external)


@pytest.mark.parametrize("location", ["/etc/passwd", "../m.onnx_data", "a\\b", ""])
def test_external_data_stays_in_its_folder(external: Path, location: str) -> None:
    model = onnx.load(external, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    external.write_bytes(model.SerializeToString())
    with pytest.raises(FileFault, match="outside the model's folder"):
        describe_onnx(external)


# What is no model


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x08\x07", "it has no graph"),
        (b"\x3a\x00", "its graph has no nodes"),
        (b"\x3a\xff\xff\xff\xff\x0f", "claims 4294967295 bytes, 0 are there"),
        (b"\xff" * 40, "truncated inside a number"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_other_files_are_told(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(FileFault, match=message):
        describe_onnx(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="no such file"):
        describe_onnx(tmp_path / "m.onnx")


def test_a_packed_product_that_lies_about_its_size(decoder: Decoder, tmp_path: Path) -> None:
    decoder.packed("up_proj", 96, HIDDEN, zeros=False)
    decoder.nodes[-1].attribute[2].i = 1 << 40
    with pytest.raises(FileFault, match="MatMulNBits 'up_proj' claims"):
        describe_onnx(decoder.write(tmp_path / "m.onnx"))


def test_a_tensor_that_is_nowhere_is_told(decoder: Decoder, tmp_path: Path) -> None:
    decoder.constants.append(onnx.TensorProto(name="up_proj", data_type=1, dims=[1 << 40, 64]))
    with pytest.raises(FileFault, match="tensor 'up_proj' of 281474976710656 bytes has none"):
        describe_onnx(decoder.write(tmp_path / "m.onnx"))
