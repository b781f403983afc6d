"""Builds the ONNX decoder of a GGUF file.

The graph computes what the architectures llama, qwen2 and qwen3 prescribe (RMS norms, rotary
grouped-query attention over a key-value cache, SwiGLU) with the operators that ONNX Runtime keeps
for it. Its inputs and outputs have the names that onnxruntime-genai uses, so that both runtimes
load it.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from edgeprof.convert.blocks import (
    Blocks,
    Dense,
    Floats,
    Matrix,
    Rows,
    half_split_rows,
    select_rows,
)
from edgeprof.convert.graph import MICROSOFT, DataFile, Graph
from edgeprof.convert.weights import Weights

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
POSITIONS = ("last_position", "total_positions")
ROTARY_TABLES = ("rotary_cos", "rotary_sin")


class DecoderBuilder:
    """Adds one decoder to a graph, part by part in the order of the data.

    ``parameters`` are those of the file; ``multiplied`` counts, by kernel, those that every token
    is multiplied with.

    ``graph`` is what to build in, where that is not a new one of the ordinary kind.

    ``attention_pad`` dummy rows go through attention behind the real ones and are cut off again.
    Attention takes a path of its own for a single row, whose last bits differ; with one dummy row
    a pass of one token gives the very logits that a pass of many gives. The dummy's slot in the
    cache is overwritten by the next pass.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        head_rows: Rows | None,
        attention_pad: int,
        data: DataFile | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.graph = graph or Graph(data)
        self.shape = weights.shape
        self.parameters = weights.parameters
        self.multiplied: Counter[str] = Counter()
        self._weights = weights
        self._head_rows = head_rows
        self._pad = attention_pad

    def build(self) -> Graph:
        """The whole graph."""
        graph, shape = self.graph, self.shape
        graph.input("input_ids", TensorProto.INT64, [1, "tokens"])
        graph.input("attention_mask", TensorProto.INT64, [1, "positions"])
        self._count_positions()
        self._rotary_tables()
        embedding = self._weights.matrix(EMBEDDING)
        residual = self._embed(embedding)
        normed = self._normalise(residual, "blk.0.attn_norm.weight", "first_norm")
        for layer in range(shape.layers):
            attended = self._attention(normed, layer)
            block = f"blk.{layer}."
            normed, residual = self._add_and_norm(residual, attended, block + "ffn_norm.weight")
            fed = self._feed_forward(normed, layer)
            last = layer + 1 == shape.layers
            norm = "output_norm.weight" if last else f"blk.{layer + 1}.attn_norm.weight"
            normed, residual = self._add_and_norm(residual, fed, norm)
        self._head(normed, embedding)
        return graph

    def _norm(self, name: str) -> str:
        return self.graph.weight(name, self._weights.vector(name))

    def _count_positions(self) -> None:
        """Positions in the cache after this pass: the ones of the mask, and the dummies."""
        graph = self.graph
        graph.node("ReduceSum", ["attention_mask"], ["positions"], keepdims=0)
        graph.constant("pad_positions", np.array(self._pad, dtype=np.int64))
        graph.node("Add", ["positions", "pad_positions"], ["padded_positions"])
        graph.node("Cast", ["padded_positions"], ["total_positions"], to=TensorProto.INT32)
        graph.node("Sub", ["padded_positions", graph.integers(1)], ["last_position_64"])
        graph.node("Cast", ["last_position_64"], ["last_position"], to=TensorProto.INT32)

    def _rotary_tables(self) -> None:
        shape = self.shape
        exponent = np.arange(0, shape.head_dim, 2) / shape.head_dim
        period = shape.rope_base**exponent
        factors = self._weights.rope_factors()
        if factors is not None:
            period = period * factors
        position = np.arange(shape.context_tokens + self._pad)
        angle = position[:, None] / period[None, :]
        self.graph.constant("rotary_cos", np.cos(angle).astype(np.float32))
        self.graph.constant("rotary_sin", np.sin(angle).astype(np.float32))

    def _embed(self, table: Matrix) -> str:
        """The rows of the input tokens. A tied head reads the same constants."""
        graph = self.graph
        ids = graph.node("Reshape", ["input_ids", graph.integers(-1)], ["token_ids"])
        if isinstance(table, Dense):
            values = graph.weight(EMBEDDING, table.values, streamed=False)
            return graph.node("Gather", [values, ids], ["embedded"], axis=0)
        blocks = table.columns // table.block
        quantised = graph.weight(EMBEDDING + ".quantised", table.packed, streamed=False)
        scale = graph.weight(EMBEDDING + ".scale", table.scale, streamed=False)
        scale = graph.node("Reshape", [scale, graph.integers(-1, blocks, 1)], ["embedding_scale"])
        rows = graph.node(
            "GatherBlockQuantized",
            [quantised, ids, scale],
            ["embedded_blocks"],
            MICROSOFT,
            bits=table.bits,
            block_size=table.block,
            gather_axis=0,
            quantize_axis=2,
        )
        if table.correction is not None:
            rows = self._correct_embedding(rows, ids, table.correction)
        return graph.node("Reshape", [rows, graph.integers(-1, table.columns)], ["embedded"])

    def _correct_embedding(self, rows: str, ids: str, correction: Floats) -> str:
        graph = self.graph
        columns = graph.weight(EMBEDDING + ".correction", correction.T, streamed=False)
        picked = graph.node("Gather", [columns, ids], ["embedding_columns"], axis=1)
        turned = graph.node("Transpose", [picked], ["embedding_correction"], perm=[1, 0])
        spread = graph.node("Unsqueeze", [turned, graph.integers(-1)], ["embedding_offset"])
        return graph.node("Add", [rows, spread], ["embedded_corrected"])

    def _attention(self, x: str, layer: int) -> str:
        graph, shape = self.graph, self.shape
        block = f"blk.{layer}."
        attended = graph.node(
            "GroupQueryAttention",
            [*self._queries_keys_values(x, block), *self._cache(layer), *POSITIONS, *ROTARY_TABLES],
            [block + "heads", f"present.{layer}.key", f"present.{layer}.value"],
            MICROSOFT,
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            scale=shape.head_dim**-0.5,
            do_rotary=1,
            rotary_interleaved=0,
        )
        width = shape.heads * shape.head_dim
        attended = graph.node(
            "Reshape", [attended, graph.integers(-1, width)], [block + "all_attended"]
        )
        if self._pad:
            rows = [graph.integers(0), graph.integers(-self._pad), graph.integers(0)]
            attended = graph.node("Slice", [attended, *rows], [block + "attended"])
        output = self._weights.matrix(block + "attn_output.weight")
        return self._project(attended, [output], block + "attn_output.weight")

    def _queries_keys_values(self, x: str, block: str) -> list[str]:
        """What attention takes, with the dummy rows: all heads side by side in one
        [1, positions, width], or queries, keys and values apart where heads are normalised."""
        graph, widths = self.graph, self.shape.qkv_widths
        parts = []
        bias = np.zeros(0, dtype=np.float32)
        for part, width in zip("qkv", widths, strict=True):
            rows = self._rows_in_file(part, width)
            parts.append(self._weights.rows(f"{block}attn_{part}.weight", rows))
            bias = np.append(bias, self._bias(f"{block}attn_{part}.bias", width)[rows])
        biased = any(self._weights.has(f"{block}attn_{part}.bias") for part in "qkv")
        qkv = self._project(x, parts, block + "attn_qkv.weight", bias if biased else None)
        width = sum(widths)
        if self._pad:
            dummy = graph.constant("dummy_rows", np.zeros((self._pad, width), dtype=np.float32))
            qkv = graph.node("Concat", [qkv, dummy], [block + "qkv_padded"], axis=0)
        if self.shape.family.head_norms:
            return self._normalised_heads(qkv, block)
        return [graph.node("Reshape", [qkv, graph.integers(1, -1, width)], [block + "qkv"]), "", ""]

    def _rows_in_file(self, part: str, width: int) -> Rows:
        """Where the rows of queries, keys or values lie."""
        shape = self.shape
        if part == "v" or not shape.family.adjacent_pairs:
            return np.arange(width)
        return half_split_rows(shape.heads if part == "q" else shape.kv_heads, shape.head_dim)

    def _bias(self, name: str, width: int) -> Floats:
        if self._weights.has(name):
            return self._weights.vector(name)
        return np.zeros(width, dtype=np.float32)

    def _normalised_heads(self, qkv: str, block: str) -> list[str]:
        graph, shape = self.graph, self.shape
        apart = [block + part for part in ("queries", "keys", "values")]
        sizes = graph.integers(*shape.qkv_widths)
        graph.node("Split", [qkv, sizes], apart, axis=-1)
        taken = []
        for name, part, width in zip(apart, "qkv", shape.qkv_widths, strict=True):
            heads = name
            if part != "v":
                rows = graph.node(
                    "Reshape", [name, graph.integers(-1, shape.head_dim)], [name + "_by_head"]
                )
                heads = self._normalise(rows, f"{block}attn_{part}_norm.weight", name + "_normed")
            shaped = graph.integers(1, -1, width)
            taken.append(graph.node("Reshape", [heads, shaped], [name + "_taken"]))
        return taken

    def _normalise(self, x: str, norm: str, name: str) -> str:
        """Rows scaled to a root mean square of 1, then by the weights of ``norm``."""
        return self.graph.node(
            "SimplifiedLayerNormalization",
            [x, self._norm(norm)],
            [name],
            axis=-1,
            epsilon=self.shape.rms_epsilon,
        )

    def _cache(self, layer: int) -> list[str]:
        """Declares the layer's cache; returns the names of what comes in."""
        shape, names = self.shape, []
        for part in ("key", "value"):
            past, present = (
                [1, shape.kv_heads, length, shape.head_dim]
                for length in ("past_positions", "present_positions")
            )
            name = f"past_key_values.{layer}.{part}"
            names.append(self.graph.input(name, TensorProto.FLOAT, past))
            self.graph.output(f"present.{layer}.{part}", TensorProto.FLOAT, present)
        return names

    def _add_and_norm(self, residual: str, x: str, norm: str) -> tuple[str, str]:
        """(normalised sum, sum) of the residual stream and what a sublayer adds to it."""
        self.graph.node(
            "SkipSimplifiedLayerNormalization",
            [residual, x, self._norm(norm)],
            [norm + ".out", "", "", norm + ".residual"],
            MICROSOFT,
            epsilon=self.shape.rms_epsilon,
        )
        return norm + ".out", norm + ".residual"

    def _feed_forward(self, x: str, layer: int) -> str:
        graph, block = self.graph, f"blk.{layer}."
        parts = [self._weights.matrix(block + f"ffn_{part}.weight") for part in ("gate", "up")]
        both = self._project(x, parts, block + "ffn_gate_up.weight")
        gate, up = block + "gate", block + "up"
        graph.node("Split", [both], [gate, up], axis=-1, num_outputs=2)
        graph.node("Sigmoid", [gate], [block + "sigmoid"])
        graph.node("Mul", [gate, block + "sigmoid"], [block + "swish"])
        graph.node("Mul", [block + "swish", up], [block + "gated"])
        down = self._weights.matrix(block + "ffn_down.weight")
        return self._project(block + "gated", [down], block + "ffn_down.weight")

    def _head(self, x: str, embedding: Matrix) -> None:
        """Logits of the rows from ``keep_from`` on; without that input, of all rows."""
        graph = self.graph
        graph.input("keep_from", TensorProto.INT64, [1])
        graph.constant("keep_from", np.zeros(1, dtype=np.int64))
        end, axis = graph.integers(np.iinfo(np.int64).max), graph.integers(0)
        x = graph.node("Slice", [x, "keep_from", end, axis], ["kept"])
        name = HEAD if self._weights.has(HEAD) else EMBEDDING
        head = self._weights.matrix(HEAD) if name == HEAD else embedding
        if self._head_rows is not None:
            head, name = select_rows(head, self._head_rows), name + ".kept"
        self._count(head)
        logits = graph.multiply(x, head, name)
        graph.node("Reshape", [logits, graph.integers(1, -1, head.rows)], ["logits"])
        graph.output("logits", TensorProto.FLOAT, [1, "kept_tokens", head.rows])

    def _project(
        self, x: str, parts: Sequence[Matrix], name: str, bias: Floats | None = None
    ) -> str:
        for part in parts:
            self._count(part)
        return self.graph.project(x, parts, name, bias)

    def _count(self, matrix: Matrix) -> None:
        kernel = f"int{matrix.bits} MatMulNBits" if isinstance(matrix, Blocks) else "fp32 MatMul"
        self.multiplied[kernel] += matrix.rows * matrix.columns
