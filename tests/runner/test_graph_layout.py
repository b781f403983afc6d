"""What is read from a graph, and what is refused with its name."""

from pathlib import Path

import msgspec
import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper
from tiny_decoder import Decoder, build, write_folder

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.models.readers.onnx_graph import read_onnx_graph
from edgeprof.runner.graph_layout import (
    Layout,
    foreign_operators,
    pass_shapes,
    read_layout,
    shape_range,
)


def layout_of(folder: DecoderFolder) -> Layout:
    return read_layout(read_onnx_graph(folder.onnx_path), folder)


def changed(folder: DecoderFolder, **values: onnx.ValueInfoProto | None) -> DecoderFolder:
    """The folder with inputs or outputs of its graph declared otherwise, or left out."""
    model = onnx.load(folder.onnx_path)
    for declared in (model.graph.input, model.graph.output):
        kept = [values.get(value.name, value) for value in declared]
        del declared[:]
        declared.extend(value for value in kept if value is not None)
    onnx.save(model, folder.onnx_path)
    return folder


def value(name: str, kind: int, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def test_a_shared_buffer_is_seen_by_its_operator(tmp_path: Path) -> None:
    gqa = Decoder(attention="gqa", positions=False)
    assert layout_of(write_folder(gqa, tmp_path / "gqa")).shared
    # The same names, another operator: past and new are joined.
    assert not layout_of(write_folder(Decoder(), tmp_path / "standard")).shared


def test_r38_an_operator_behind_a_cast_does_not_get_the_buffer_itself(tmp_path: Path) -> None:
    """Its past is not the input: a buffer at full length would be taken for that many tokens."""
    folder = write_folder(Decoder(attention="gqa", positions=False), tmp_path)
    model = onnx.load(folder.onnx_path)
    node = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")
    cast = helper.make_node("Identity", [node.input[3]], ["handed.on"])
    node.input[3] = "handed.on"
    model.graph.node.insert(0, cast)
    onnx.save(model, folder.onnx_path)
    assert not layout_of(folder).shared


def test_r38_a_buffer_whose_length_others_look_at_is_not_shared(tmp_path: Path) -> None:
    """Bound at full length its shape would be taken for the number of cached tokens."""
    spec = Decoder(attention="gqa", positions=False, mask=False, counts="past")
    assert not layout_of(write_folder(spec, tmp_path)).shared


@pytest.mark.parametrize("spec", [Decoder(), Decoder(attention="gqa", positions=False)])
def test_m25_what_carries_on_a_cache_is_read_from_the_graph(tmp_path: Path, spec: Decoder) -> None:
    """Names that say nothing, or the wrong thing, and an order of its own."""
    swapped = replace(spec, past="past.%d.%s", present="x.%d.%s", backwards=True)
    layout = layout_of(write_folder(swapped, tmp_path / "a"))
    pairs = {cache.past: cache.present for cache in layout.caches}
    assert pairs == {
        f"past.{n}.{kind}": f"x.{n}.{kind}" for n in (0, 1) for kind in ("key", "value")
    }
    folder = write_folder(replace(spec, layers=1), tmp_path / "b")
    model = onnx.load(folder.onnx_path)
    names = {"present.0.key": "present.0.value", "present.0.value": "present.0.key"}
    for named in (*model.graph.output, *model.graph.node):
        if isinstance(named, onnx.NodeProto):
            for outer in (named.input, named.output):
                outer[:] = [names.get(name, name) for name in outer]
        else:
            named.name = names.get(named.name, named.name)
    onnx.save(model, folder.onnx_path)
    pairs = {cache.past: cache.present for cache in layout_of(folder).caches}
    assert pairs["past_key_values.0.key"] == "present.0.value"


def test_a_size_that_the_graph_leaves_open_is_the_configurations(tmp_path: Path) -> None:
    """onnxruntime-genai's builder (0.18) calls the head size kv_cache_dim in and out, and tells it
    in its configuration, as it does the number of heads."""
    spec = Decoder(attention="gqa", positions=False, layers=1)
    folder = write_folder(spec, tmp_path)
    open_sizes = [
        value(f"{name}.0.{part}", TensorProto.FLOAT, ["batch", 2, length, "kv_cache_dim"])
        for part in ("key", "value")
        for name, length in (("past_key_values", "past"), ("present", "all"))
    ]
    changed(folder, **{one.name: one for one in open_sizes})
    decoder = {"filename": "model.onnx", "num_hidden_layers": 1, "head_size": 16}
    genai = {"model": {"decoder": decoder, "vocab_size": 40, "context_length": 64}}
    (tmp_path / "genai_config.json").write_bytes(msgspec.json.encode(genai))
    layout = layout_of(read_decoder_folder(tmp_path))
    assert layout.shared and [cache.dims(5) for cache in layout.caches] == [[1, 2, 5, 16]] * 2
    del decoder["head_size"]
    (tmp_path / "genai_config.json").write_bytes(msgspec.json.encode(genai))
    with pytest.raises(FileFault, match="leaves heads or head size open"):
        layout_of(read_decoder_folder(tmp_path))


def test_a_shape_of_what_comes_out_may_be_left_unsaid(tmp_path: Path) -> None:
    folder = write_folder(Decoder(), tmp_path)
    model = onnx.load(folder.onnx_path)
    for output in model.graph.output[1:]:
        output.type.tensor_type.ClearField("shape")
    onnx.save(model, folder.onnx_path)
    assert len(layout_of(folder).caches) == 4


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("input_ids", ["b", 1], "fixes how many tokens a pass takes"),
        ("input_ids", [2, "s"], "is for 2 sequences at once"),
        ("attention_mask", ["b", 64], "fixes how many tokens a pass takes"),
        ("position_ids", ["b", 1], "fixes how many tokens a pass takes"),
        ("logits", ["b", 1, 40], "fixes for how many tokens of a pass there are logits"),
    ],
)
def test_sizes_that_cannot_serve_are_named_before_anything_is_loaded(
    tmp_path: Path, name: str, shape: list[int | str], says: str
) -> None:
    kind = TensorProto.FLOAT if name == "logits" else TensorProto.INT64
    folder = changed(write_folder(Decoder(), tmp_path), **{name: value(name, kind, shape)})
    with pytest.raises(FileFault, match=rf"'{name}' of shape .* {says}"):
        layout_of(folder)


def test_sizes_follow_from_the_shapes(tmp_path: Path) -> None:
    """2 layers of keys and values, 2 heads of 16 in float16: 256 bytes a token."""
    gqa = Decoder(attention="gqa", positions=False, cache="f16")
    assert layout_of(write_folder(gqa, tmp_path / "gqa")).cache_bytes_per_token == 256
    growing = layout_of(write_folder(Decoder(cache="f16"), tmp_path / "optimum"))
    assert growing.cache_bytes_per_token == 512  # past and present at once
    assert pass_shapes(growing, past=10, count=3, total=13) == {
        "input_ids": [1, 3],
        "attention_mask": [1, 13],
        "position_ids": [1, 3],
        **{f"past_key_values.{n}.{k}": [1, 2, 10, 16] for n in (0, 1) for k in ("key", "value")},
    }


def test_r10_tensorrt_is_told_of_every_pass_there_can_be(tmp_path: Path) -> None:
    """A token into an empty cache, one into half of 32, and as many as there is room for."""
    spec = Decoder(layers=1, positions=False, rows=True)
    least, usual, largest = shape_range(layout_of(write_folder(spec, tmp_path)), 32)
    cache = "past_key_values.0.key:1x2x{0}x16,past_key_values.0.value:1x2x{0}x16"
    assert least == f"input_ids:1x1,attention_mask:1x1,{cache.format(0)}"
    assert usual == f"input_ids:1x1,attention_mask:1x17,{cache.format(16)}"
    assert largest == f"input_ids:1x32,attention_mask:1x32,{cache.format(32)}"
    layout = layout_of(write_folder(spec, tmp_path))
    assert shape_range(layout, 32, 8)[2] == largest.replace("input_ids:1x32", "input_ids:1x8")
    assert shape_range(layout, 32, 64)[2] == largest


def test_operators_that_are_not_of_the_standard_are_counted(tmp_path: Path) -> None:
    gqa = write_folder(Decoder(attention="gqa", positions=False), tmp_path / "gqa")
    assert foreign_operators(read_onnx_graph(gqa.onnx_path)) == {
        "com.microsoft.GroupQueryAttention": 2
    }
    merged = write_folder(Decoder(merged=True), tmp_path / "merged")
    assert foreign_operators(read_onnx_graph(merged.onnx_path)) == {}


@pytest.mark.parametrize("debris", ["onnx::Neg_50", "image_sizes", "\x1b[2J"])
def test_m30_debris_of_the_exporter_is_named(tmp_path: Path, debris: str) -> None:
    folder = write_folder(Decoder(debris=debris), tmp_path)
    with pytest.raises(FileFault, match="export the model again") as told:
        layout_of(folder)
    assert repr(debris) in str(told.value) and str(told.value).isprintable()


def test_m25_keys_and_values_in_one_tensor_are_refused(tmp_path: Path) -> None:
    combined = value("past_0", TensorProto.FLOAT, [2, "batch", 2, "past", 16])
    folder = changed(write_folder(Decoder(), tmp_path), **{"past_key_values.0.key": combined})
    with pytest.raises(FileFault, match="'past_0' holds keys and values in one tensor"):
        layout_of(folder)


@pytest.mark.parametrize(
    ("kind", "shape", "says"),
    [
        (TensorProto.FLOAT, ["b", 2, 64, 16], "fixes the number of tokens"),
        (TensorProto.FLOAT, ["b", "h", "p", 16], "leaves heads or head size open"),
        (TensorProto.FLOAT, [4, 2, "p", 16], "is for 4 sequences at once"),
        (TensorProto.FLOAT, ["b", 2, "p", 0], "has a size that no cache has"),
        (TensorProto.FLOAT, ["b", 2, "p", 1 << 40], "has a size that no cache has"),
        (TensorProto.FLOAT, ["b", 2, "p", 32], "comes out as 'present.0.key'"),
        (TensorProto.FLOAT16, ["b", 2, "p", 16], "is f16 and comes out as f32"),
        (TensorProto.INT8, ["b", 2, "p", 16], "is i8 and comes out as f32"),
    ],
)
def test_m26_a_cache_that_is_not_served_is_named(
    tmp_path: Path, kind: int, shape: list[int | str], says: str
) -> None:
    name = "past_key_values.0.key"
    folder = changed(write_folder(Decoder(), tmp_path), **{name: value(name, kind, shape)})
    with pytest.raises(FileFault, match=says) as told:
        layout_of(folder)
    assert name in str(told.value) and "model.onnx" in str(told.value)


@pytest.mark.parametrize(
    ("name", "kind", "shape", "says"),
    [
        ("input_ids", TensorProto.FLOAT, ["b", "s"], "'input_ids' is f32 of 2 dimensions"),
        ("position_ids", TensorProto.INT64, [3, "b", "s"], "'position_ids' is i64 of 3"),
        ("attention_mask", TensorProto.FLOAT, ["b", 1, "s", "t"], "'attention_mask' is f32 of 4"),
    ],
)
def test_m27_inputs_of_another_type_or_rank_are_named(
    tmp_path: Path, name: str, kind: int, shape: list[int | str], says: str
) -> None:
    folder = changed(write_folder(Decoder(), tmp_path), **{name: value(name, kind, shape)})
    with pytest.raises(FileFault, match=says):
        layout_of(folder)


def test_a_running_state_is_refused(tmp_path: Path) -> None:
    state = value("past_conv.0", TensorProto.FLOAT, ["batch", 16, 4])
    folder = changed(write_folder(Decoder(), tmp_path), **{"past_key_values.0.key": state})
    with pytest.raises(FileFault, match=r"'past_conv.0' is a running state"):
        layout_of(folder)


def test_outputs_that_are_not_there_are_named(tmp_path: Path) -> None:
    lost = changed(write_folder(Decoder(), tmp_path / "a"), **{"present.1.value": None})
    with pytest.raises(FileFault, match=r"no outputs that carry on 'past_key_values.1.value'"):
        layout_of(lost)
    columns = value("logits", TensorProto.FLOAT, ["b", "s", 1 << 40])
    with pytest.raises(FileFault, match="output 'logits' has 1099511627776 columns"):
        layout_of(changed(write_folder(Decoder(), tmp_path / "c"), logits=columns))
    mute = changed(write_folder(Decoder(), tmp_path / "b"), logits=None)
    with pytest.raises(FileFault, match="no output 'logits'"):
        layout_of(mute)


def test_a_graph_without_a_cache_or_without_tokens_is_refused(tmp_path: Path) -> None:
    names = [f"past_key_values.{n}.{k}" for n in (0, 1) for k in ("key", "value")]
    without: dict[str, onnx.ValueInfoProto | None] = dict.fromkeys(names)
    with pytest.raises(FileFault, match="no cache among its inputs"):
        layout_of(changed(write_folder(Decoder(), tmp_path / "a"), **without))
    embedded = value("inputs_embeds", TensorProto.FLOAT, ["b", "s", 16])
    folder = changed(write_folder(Decoder(), tmp_path / "b"), input_ids=embedded)
    with pytest.raises(FileFault, match="no input 'input_ids' and 0 others"):
        layout_of(folder)


def test_the_graph_of_a_merged_decoder_is_one_node() -> None:
    """That the layout of merged decoders is really tested with one."""
    assert [node.op_type for node in build(Decoder(merged=True)).graph.node] == ["If"]
