"""Random little decoders in every layout that exporters give, and what they must compute.

The graphs are built node by node with ``onnx.helper``; the reference is float64 numpy over the
whole text at once, without a cache. Both know a llama-like model: RMS norm, rotary positions,
grouped queries, SiLU.
"""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from msgspec import Struct
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder

Floats = NDArray[Any]
KINDS = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
INTEGERS = {"i32": TensorProto.INT32, "i64": TensorProto.INT64}
ROPE_BASE = 10_000.0
EPSILON = 1e-5


class Decoder(Struct, frozen=True, kw_only=True):
    """What to build. ``columns`` are those of the logits, of which ``vocab`` stand for tokens."""

    layers: int = 2
    hidden: int = 16
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 24
    vocab: int = 40
    columns: int = 40
    open_columns: bool = False
    context: int = 64
    seed: int = 0
    attention: Literal["standard", "gqa"] = "standard"
    axis: int = 2
    cache: str = "f32"
    logits: str = "f32"
    ids: str = "i64"
    mask: bool = True
    positions: bool = True
    merged: bool = False
    rows: bool = False
    last_row_only: bool = False  # of the logits, whatever the pass
    past: str = "past_key_values.%d.%s"
    present: str = "present.%d.%s"
    head: str = "logits"
    tokens: str = "input_ids"
    debris: str | None = None
    # where GroupQueryAttention has its counts from: the mask, inputs of these names, or the past
    counts: tuple[str, str] | Literal["mask", "past"] = "mask"
    backwards: bool = False  # the outputs of the cache, last layer first


def weights(spec: Decoder) -> dict[str, Floats]:
    """All matrices, in float32."""
    rng = np.random.default_rng(spec.seed)
    width, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim

    def matrix(rows: int, columns: int) -> Floats:
        return np.asarray(rng.standard_normal((rows, columns)) / rows**0.5, np.float32)

    made = {"embedding": rng.standard_normal((spec.vocab, spec.hidden)).astype(np.float32)}
    for layer in range(spec.layers):
        made |= {
            f"{layer}.q": matrix(spec.hidden, width),
            f"{layer}.k": matrix(spec.hidden, kv),
            f"{layer}.v": matrix(spec.hidden, kv),
            f"{layer}.o": matrix(width, spec.hidden),
            f"{layer}.gate": matrix(spec.hidden, spec.ffn),
            f"{layer}.up": matrix(spec.hidden, spec.ffn),
            f"{layer}.down": matrix(spec.ffn, spec.hidden),
        }
    made["head"] = matrix(spec.hidden, spec.columns)
    made["head"][:, spec.vocab :] *= 100  # padding that would be chosen, if it were looked at
    return made


def rotary_tables(spec: Decoder) -> tuple[Floats, Floats]:
    exponents = np.arange(0, spec.head_dim, 2) / spec.head_dim
    angles = np.arange(spec.context)[:, None] / ROPE_BASE ** exponents[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rounded(values: Floats, storage: str) -> Floats:
    """As a cache of this type gives them back."""
    if storage == "f16":
        return np.asarray(values.astype(np.float16), np.float64)
    if storage == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        even = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, ties to even
        return np.asarray((even & np.uint32(0xFFFF0000)).view(np.float32), np.float64)
    return values


def reference_logits(spec: Decoder, tokens: list[int]) -> Floats:
    """[tokens, vocab]: all at once, in float64."""
    w = {name: value.astype(np.float64) for name, value in weights(spec).items()}
    cos, sin = (table.astype(np.float64)[: len(tokens)] for table in rotary_tables(spec))
    x = w["embedding"][tokens]
    causal = np.tril(np.ones((len(tokens), len(tokens)), bool))

    def heads(values: Floats, count: int) -> Floats:
        return np.asarray(values.reshape(len(tokens), count, spec.head_dim).swapaxes(0, 1))

    def rotated(values: Floats) -> Floats:
        low, high = np.split(values, 2, axis=-1)
        turned = [low * cos - high * sin, high * cos + low * sin]
        return np.asarray(np.concatenate(turned, axis=-1))

    for layer in range(spec.layers):
        normed = _rms(x)
        q = rotated(heads(normed @ w[f"{layer}.q"], spec.heads))
        k = rounded(rotated(heads(normed @ w[f"{layer}.k"], spec.kv_heads)), spec.cache)
        v = rounded(heads(normed @ w[f"{layer}.v"], spec.kv_heads), spec.cache)
        group = spec.heads // spec.kv_heads
        scores = q @ k.repeat(group, axis=0).swapaxes(1, 2) / spec.head_dim**0.5
        scores = np.where(causal, scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        attended = (shares @ v.repeat(group, axis=0)).swapaxes(0, 1).reshape(len(tokens), -1)
        x = x + attended @ w[f"{layer}.o"]
        normed = _rms(x)
        gate = normed @ w[f"{layer}.gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (normed @ w[f"{layer}.up"])) @ w[f"{layer}.down"]
    logits = _rms(x) @ w["head"]
    return np.asarray(logits[:, : spec.vocab])


def _rms(x: Floats) -> Floats:
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON))


def write_folder(spec: Decoder, path: Path, *, external: bool = False) -> DecoderFolder:
    """The decoder as optimum lays out a folder. ``external`` keeps the weights beside the graph."""
    path.mkdir(parents=True, exist_ok=True)
    model = build(spec)
    onnx.checker.check_model(model, full_check=spec.attention == "standard")
    if external:
        onnx.save(model, path / "model.onnx", save_as_external_data=True, size_threshold=256,
                  location="model.onnx_data")  # fmt: skip
    else:
        onnx.save(model, path / "model.onnx")
    config = {
        "model_type": "llama",
        "hidden_size": spec.hidden,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "num_hidden_layers": spec.layers,
        "intermediate_size": spec.ffn,
        "vocab_size": spec.vocab,
        "max_position_embeddings": spec.context,
        "head_dim": spec.head_dim,
        "eos_token_id": 2,
    }
    (path / "config.json").write_text(json.dumps(config))
    return read_decoder_folder(path)


def build(spec: Decoder) -> onnx.ModelProto:
    """The graph of the decoder."""
    graph = _Graph(spec)
    nodes = [graph.branches()] if spec.merged else graph.body("", past=True)
    inputs, outputs = graph.inputs(), graph.outputs()
    tensors = [numpy_helper.from_array(value, name) for name, value in graph.constants.items()]
    made = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    if spec.attention == "standard":
        del opsets[1]
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


class _Graph:
    """The parts of one model."""

    def __init__(self, spec: Decoder) -> None:
        self.spec = spec
        self.constants: dict[str, Floats] = dict(weights(spec))
        cos, sin = rotary_tables(spec)
        self.constants |= {"cos": cos, "sin": sin}
        self._nodes: list[Any] = []
        self._prefix = ""

    def inputs(self) -> list[Any]:
        spec, integer = self.spec, INTEGERS[self.spec.ids]
        made = [_value(spec.tokens, integer, ["batch", "tokens"])]
        if spec.mask:
            made.append(_value("attention_mask", integer, ["batch", "total"]))
        if spec.positions:
            made.append(_value("position_ids", integer, ["batch", "tokens"]))
        if not isinstance(spec.counts, str):
            made.append(_value(spec.counts[0], TensorProto.INT32, [1]))
            made.append(_value(spec.counts[1], TensorProto.INT32, []))
        if spec.rows:
            made.append(_value("num_logits_to_keep", TensorProto.INT64, []))
        if spec.merged:
            made.append(_value("use_cache_branch", TensorProto.BOOL, [1]))
        if spec.debris is not None:
            made.append(_value(spec.debris, TensorProto.INT64, [1]))
        made += [self._cache(spec.past, layer, kind, "past") for layer, kind in self._kinds()]
        return made

    def outputs(self) -> list[Any]:
        spec = self.spec
        columns: int | str = "columns" if spec.open_columns else spec.columns
        shape = ["batch", "rows", columns]
        made = [self._cache(spec.present, layer, kind, "all") for layer, kind in self._kinds()]
        made = made[::-1] if spec.backwards else made
        return [_value(spec.head, KINDS[spec.logits], shape), *made]

    def branches(self) -> Any:
        """One ``If`` over the whole decoder, as optimum merges its two exports."""
        names = [value.name for value in self.outputs()]
        branches = {}
        for branch, past in (("then_branch", True), ("else_branch", False)):
            nodes = self.body(branch + ".", past=past)
            outputs = self.outputs()
            for value in outputs:
                value.name = f"{branch}.{value.name}"
            branches[branch] = helper.make_graph(nodes, branch, [], outputs)
        return helper.make_node("If", ["use_cache_branch"], names, name="merged", **branches)

    def body(self, prefix: str, *, past: bool) -> list[Any]:
        """All nodes from the tokens to the logits; without ``past`` what was cached is ignored."""
        self._nodes, self._prefix = [], prefix
        spec = self.spec
        x = self._op("Gather", ["embedding", spec.tokens])
        if spec.merged and past:
            x = self._op("Add", [x, self._nothing_of_a_past()])
        positions = self._positions(past)
        if spec.attention == "gqa":
            counts = self._gqa_counts()
            bias = ""
        else:
            counts = ("", "")
            bias = self._bias(positions, past)
        for layer in range(spec.layers):
            normed = self._rms(x)
            if spec.attention == "gqa":
                attended = self._gqa(normed, layer, counts)
            else:
                attended = self._attention(normed, layer, positions, bias, past)
            x = self._op("Add", [x, self._op("MatMul", [attended, f"{layer}.o"])])
            normed = self._rms(x)
            gate = self._op("MatMul", [normed, f"{layer}.gate"])
            gate = self._op("Mul", [gate, self._op("Sigmoid", [gate])])
            both = self._op("Mul", [gate, self._op("MatMul", [normed, f"{layer}.up"])])
            x = self._op("Add", [x, self._op("MatMul", [both, f"{layer}.down"])])
        self._head(self._rms(x))
        return self._nodes

    def _nothing_of_a_past(self) -> str:
        """0, which only a cache with something in it can give: the largest of none is an error."""
        whole = self._op("Cast", [self.spec.past % (0, "key")], to=TensorProto.FLOAT)
        largest = self._op("ReduceMax", [whole], keepdims=0)
        return self._op("Mul", [largest, self._number(0.0)])

    def _head(self, x: str) -> None:
        spec = self.spec
        if spec.rows:
            start = self._op("Neg", [self._op("Reshape", ["num_logits_to_keep", self._ints(-1)])])
            ends = self._ints(np.iinfo(np.int64).max)
            x = self._op("Slice", [x, start, ends, self._ints(1)])
        if spec.last_row_only:
            x = self._op("Slice", [x, *map(self._ints, (-1, np.iinfo(np.int64).max, 1))])
        logits = self._op("MatMul", [x, "head"])
        self._op("Cast", [logits], to=KINDS[spec.logits], output=self._prefix + spec.head)

    def _positions(self, past: bool) -> str:
        """[batch, tokens] in int64."""
        spec = self.spec
        if spec.positions:
            return self._op("Cast", ["position_ids"], to=TensorProto.INT64)
        start = self._size(spec.past % (0, "key"), spec.axis) if past else self._scalar(0)
        end = self._op("Add", [start, self._size(spec.tokens, 1)])
        steps = self._op("Range", [start, end, self._scalar(1)])
        return self._op("Unsqueeze", [steps, self._ints(0)])

    def _bias(self, positions: str, past: bool) -> str:
        """[1, 1, tokens, total]: minus infinity where a position may not look."""
        spec = self.spec
        cached = self._size(spec.past % (0, "key"), spec.axis) if past else self._scalar(0)
        total = self._op("Add", [cached, self._size(spec.tokens, 1)])
        seen = self._op("Range", [self._scalar(0), total, self._scalar(1)])
        asked = self._op("Unsqueeze", [positions, self._ints(1, 3)])
        allowed = self._op("LessOrEqual", [seen, asked])
        if spec.mask:
            mask = self._op("Cast", ["attention_mask"], to=TensorProto.BOOL)
            allowed = self._op("And", [allowed, self._op("Unsqueeze", [mask, self._ints(1, 2)])])
        zero, low = self._number(0.0), self._number(-np.inf)
        return self._op("Where", [allowed, zero, low])

    def _attention(self, x: str, layer: int, positions: str, bias: str, past: bool) -> str:
        spec = self.spec
        q = self._rotated(self._heads(x, f"{layer}.q", spec.heads), positions)
        k = self._rotated(self._heads(x, f"{layer}.k", spec.kv_heads), positions)
        v = self._heads(x, f"{layer}.v", spec.kv_heads)
        k, v = (self._grown(new, layer, kind, past) for new, kind in ((k, "key"), (v, "value")))
        scores = self._op("MatMul", [q, self._op("Transpose", [k], perm=[0, 1, 3, 2])])
        scores = self._op("Mul", [scores, self._number(spec.head_dim**-0.5)])
        shares = self._op("Softmax", [self._op("Add", [scores, bias])], axis=-1)
        return self._merged_heads(self._op("MatMul", [shares, v]))

    def _grown(self, new: str, layer: int, kind: str, past: bool) -> str:
        """Past and new in one, given out as present; returned in float32, a head for each query."""
        spec = self.spec
        turn = {2: [0, 1, 2, 3], 1: [0, 2, 1, 3], 3: [0, 1, 3, 2]}[spec.axis]  # own inverses
        new = self._op("Cast", [self._op("Transpose", [new], perm=turn)], to=KINDS[spec.cache])
        parts = [spec.past % (layer, kind), new] if past else [new]
        present = self._prefix + spec.present % (layer, kind)
        self._op("Concat", parts, axis=spec.axis, output=present)
        whole = self._op("Cast", [present], to=TensorProto.FLOAT)
        whole = self._op("Transpose", [whole], perm=turn)
        group = spec.heads // spec.kv_heads
        wide = self._op("Unsqueeze", [whole, self._ints(2)])
        repeated = self._op("Concat", [wide] * group, axis=2)
        return self._op("Reshape", [repeated, self._ints(1, spec.heads, -1, spec.head_dim)])

    def _gqa(self, x: str, layer: int, counts: tuple[str, str]) -> str:
        spec = self.spec
        q, k, v = (
            self._cast_to_cache(self._op("MatMul", [x, f"{layer}.{part}"])) for part in "qkv"
        )
        pasts = [spec.past % (layer, kind) for kind in ("key", "value")]
        presents = [spec.present % (layer, kind) for kind in ("key", "value")]
        tables = [self._cast_to_cache(name) for name in ("cos", "sin")]
        attended = f"{layer}.attended"
        self._nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [q, k, v, *pasts, *counts, *tables],
                [attended, *presents],
                name=attended,
                domain="com.microsoft",
                num_heads=spec.heads,
                kv_num_heads=spec.kv_heads,
                do_rotary=1,
            )
        )
        return self._op("Cast", [attended], to=TensorProto.FLOAT)

    def _cast_to_cache(self, x: str) -> str:
        return self._op("Cast", [x], to=KINDS[self.spec.cache])

    def _gqa_counts(self) -> tuple[str, str]:
        """The last position and the number of them. onnxruntime-genai's builder takes both from the
        mask: one from its sum, one from its shape."""
        if not isinstance(self.spec.counts, str):
            return self.spec.counts
        if self.spec.counts == "past":
            cached = self._size(self.spec.past % (0, "key"), 2)
            length = self._op("Add", [cached, self._size(self.spec.tokens, 1)])
            last = self._op("Sub", [length, self._scalar(1)])
            last = self._op("Reshape", [last, self._ints(1)])
            return (
                self._op("Cast", [last], to=TensorProto.INT32),
                self._op("Cast", [length], to=TensorProto.INT32),
            )
        whole = self._op("Cast", ["attention_mask"], to=TensorProto.INT64)
        total = self._op("ReduceSum", [whole, self._ints(1)], keepdims=0)
        last = self._op("Sub", [total, self._ints(1)])
        length = self._size("attention_mask", 1)
        return (
            self._op("Cast", [last], to=TensorProto.INT32),
            self._op("Cast", [length], to=TensorProto.INT32),
        )

    def _heads(self, x: str, matrix: str, count: int) -> str:
        """[batch, heads, tokens, head_dim]."""
        wide = self._op("MatMul", [x, matrix])
        split = self._op("Reshape", [wide, self._ints(1, -1, count, self.spec.head_dim)])
        return self._op("Transpose", [split], perm=[0, 2, 1, 3])

    def _merged_heads(self, x: str) -> str:
        turned = self._op("Transpose", [x], perm=[0, 2, 1, 3])
        return self._op(
            "Reshape", [turned, self._ints(1, -1, self.spec.heads * self.spec.head_dim)]
        )

    def _rotated(self, x: str, positions: str) -> str:
        half = self.spec.head_dim // 2
        cos, sin = (
            self._op("Unsqueeze", [self._op("Gather", [table, positions]), self._ints(1)])
            for table in ("cos", "sin")
        )
        axis = self._ints(3)
        low = self._op("Slice", [x, self._ints(0), self._ints(half), axis])
        high = self._op("Slice", [x, self._ints(half), self._ints(2 * half), axis])
        first = self._op("Sub", [self._op("Mul", [low, cos]), self._op("Mul", [high, sin])])
        second = self._op("Add", [self._op("Mul", [high, cos]), self._op("Mul", [low, sin])])
        return self._op("Concat", [first, second], axis=3)

    def _rms(self, x: str) -> str:
        square = self._op("Mul", [x, x])
        mean = self._op("ReduceMean", [square], axes=[-1], keepdims=1)
        root = self._op("Sqrt", [self._op("Add", [mean, self._number(EPSILON)])])
        return self._op("Div", [x, root])

    def _size(self, name: str, axis: int) -> str:
        shape = self._op("Shape", [name])
        return self._op("Gather", [shape, self._scalar(axis)])

    def _op(
        self, kind: str, inputs: list[str], output: str | None = None, **attributes: Any
    ) -> str:
        output = output or f"{self._prefix}{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def _constant(self, name: str, value: Floats) -> str:
        self.constants[name] = value
        return name

    def _ints(self, *values: int) -> str:
        return self._constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def _scalar(self, value: int) -> str:
        return self._constant(f"scalar_{value}", np.array(value, np.int64))

    def _number(self, value: float) -> str:
        return self._constant(f"number_{value}", np.array(value, np.float32))

    def _kinds(self) -> list[tuple[int, str]]:
        return [(layer, kind) for layer in range(self.spec.layers) for kind in ("key", "value")]

    def _cache(self, pattern: str, layer: int, kind: str, length: str) -> Any:
        spec = self.spec
        sizes: list[Any] = {
            2: ["batch", spec.kv_heads, length, spec.head_dim],
            1: ["batch", length, spec.kv_heads, spec.head_dim],
            3: ["batch", spec.kv_heads, spec.head_dim, length],
        }[spec.axis]
        return _value(pattern % (layer, kind), KINDS[spec.cache], sizes)


def _value(name: str, kind: int, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)
