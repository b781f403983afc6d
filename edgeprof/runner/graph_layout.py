"""How a decoder's graph takes tokens and keeps its cache: read from the graph itself.

Operators, ranks, types and open dimensions decide; names tell apart only what these leave alike.
Knows nothing of onnxruntime, weights or memory.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.readers.onnx_graph import OnnxGraph, OnnxValue
from edgeprof.naming import listed
from edgeprof.runner.cache_pairs import CACHE_RANK, pair_caches

Role = Literal[
    "tokens", "positions", "mask", "branch", "past", "last", "total", "rows", "first_row"
]

# What exporters call the inputs beside the cache. "last" is the last position after the pass,
# "rows" how many rows of logits are wanted, "first_row" the first row that is.
_NAMES: dict[str, Role] = {
    "input_ids": "tokens",
    "position_ids": "positions",
    "attention_mask": "mask",
    "use_cache_branch": "branch",
    "past_sequence_length": "past",
    "past_seq_len": "past",
    "seqlens_k": "last",
    "total_sequence_length": "total",
    "total_seq_len": "total",
    "total_seq": "total",
    "num_logits_to_keep": "rows",
    "keep_from": "first_row",
}
ROW_CHOICES: Sequence[Role] = ("rows", "first_row")
_INTEGERS = ("i64", "i32")
_TYPES: Mapping[Role, Sequence[str]] = {"mask": (*_INTEGERS, "bool", "f32"), "branch": ("bool",)}
_RANKS: Mapping[Role, Sequence[int]] = {"tokens": (2,), "positions": (2,), "mask": (2,)}
_COUNT_RANKS = (0, 1, 2)
_LARGEST_SIZE = 1 << 20  # of heads and head sizes
_MOST_COLUMNS = 1 << 24
_STATES = ("conv", "ssm", "recurrent", "rwkv", "state")
# The attention that is told, by inputs of its own, the last position and how many there are.
_COUNTED = ("com.microsoft", "GroupQueryAttention")
_COUNTS: Sequence[tuple[int, Role]] = ((5, "last"), (6, "total"))


class Element(NamedTuple):
    """A type of elements: its number in ONNX, and the numpy type that holds its bits."""

    code: int
    numpy: str
    size: int


# numpy has no bfloat16: its bits travel as whole numbers.
ELEMENTS: Mapping[str, Element] = {
    "f32": Element(1, "float32", 4),
    "f16": Element(10, "float16", 2),
    "bf16": Element(16, "uint16", 2),
    "i32": Element(6, "int32", 4),
    "i64": Element(7, "int64", 8),
    "bool": Element(9, "bool", 1),
}
FLOATS = ("f32", "f16", "bf16")


class SmallInput(Struct, frozen=True, kw_only=True):
    """An input that is written anew for every pass."""

    name: str
    role: Role
    storage: str
    rank: int


class CacheTensor(Struct, frozen=True, kw_only=True):
    """Keys or values of one layer, as they go in and come out.

    ``shape`` is that of one token; the cache grows along ``axis``.
    """

    past: str
    present: str
    storage: str
    shape: tuple[int, ...]
    axis: int

    def dims(self, tokens: int) -> list[int]:
        """The shape with so many tokens in it."""
        return [*self.shape[: self.axis], tokens, *self.shape[self.axis + 1 :]]

    @property
    def bytes_per_token(self) -> int:
        return math.prod(self.shape) * ELEMENTS[self.storage].size

    @property
    def starts_with_its_past(self) -> bool:
        """Whether the first tokens are the first bytes, so that a shorter cache is a view."""
        return math.prod(self.shape[: self.axis]) == 1


class Layout(Struct, frozen=True, kw_only=True):
    """What a pass is given and gives. With ``shared`` a cache tensor is one buffer, past and
    present alike; else what comes out is the past and what is new, one after the other."""

    inputs: tuple[SmallInput, ...]
    caches: tuple[CacheTensor, ...]
    shared: bool
    logits: str
    logits_storage: str
    columns: int | None

    @property
    def chooses_rows(self) -> bool:
        """Whether a pass can be told to compute the logits of its last rows only."""
        return any(value.role in ROW_CHOICES for value in self.inputs)

    @property
    def cache_bytes_per_token(self) -> int:
        """Of the buffers: where past and present are two, both count."""
        once = sum(tensor.bytes_per_token for tensor in self.caches)
        return once if self.shared else 2 * once


def read_layout(graph: OnnxGraph, folder: DecoderFolder) -> Layout:
    """How the folder's graph is to be fed; FileFault, with names, where it cannot be.

    The folder's configuration may call inputs and outputs by names of its own.
    """
    roles = _NAMES | {
        name: role
        for name, role in (
            (folder.inputs.input_ids, _NAMES["input_ids"]),
            (folder.inputs.position_ids, _NAMES["position_ids"]),
            (folder.inputs.attention_mask, _NAMES["attention_mask"]),
        )
        if name is not None
    }
    roles |= _counts(graph)
    found = {value.name: roles[value.name] for value in graph.inputs if value.name in roles}
    if "tokens" not in found.values():
        found[_token_input(graph, found)] = "tokens"
    pasts = _pasts(graph, found)
    taken = [value for value in graph.inputs if value.name in found]
    taken += [value for value in graph.defaulted if roles.get(value.name) in ROW_CHOICES]
    pairs, shared = pair_caches(graph, pasts, folder)
    logits = _logits(graph, folder, {present.name for _, present in pairs})
    return Layout(
        inputs=tuple(
            _small_input(graph, value, found.get(value.name) or roles[value.name])
            for value in taken
        ),
        caches=tuple(
            _cache_tensor(graph, _with_sizes(past, folder) if shared else past, present, shared)
            for past, present in pairs
        ),
        shared=shared,
        logits=logits.name,
        logits_storage=logits.storage,
        columns=logits.shape[-1],
    )


def pass_shapes(layout: Layout, past: int, count: int, total: int) -> dict[str, list[int]]:
    """The shape of every input in a pass of ``count`` tokens after ``past`` cached ones."""
    small = {
        "tokens": [1, count],
        "positions": [1, count],
        "mask": [1, total],
    }
    shapes = {value.name: small.get(value.role, [1] * value.rank) for value in layout.inputs}
    return shapes | {tensor.past: tensor.dims(past) for tensor in layout.caches}


def shape_range(
    layout: Layout, slots: int, longest_pass: int | None = None
) -> tuple[str, str, str]:
    """The shapes of the least, the usual and the largest pass, as TensorRT is told of them: it
    builds for what lies between. A pass takes ``longest_pass`` tokens at most (None: any number
    that the cache holds)."""
    half, longest = max(1, slots // 2), min(longest_pass or slots, slots)
    least, usual, largest = (
        ",".join(
            f"{name}:{'x'.join(map(str, dims))}"
            for name, dims in pass_shapes(layout, past, count, total).items()
            if dims
        )
        for past, count, total in ((0, 1, 1), (half, 1, half + 1), (slots, longest, slots))
    )
    return least, usual, largest


def foreign_operators(graph: OnnxGraph) -> dict[str, int]:
    """Operators that are not of the ONNX standard, with how often each is there."""
    return dict(Counter(f"{node.domain}.{node.kind}" for node in graph.nodes if node.domain))


def _counts(graph: OnnxGraph) -> dict[str, Role]:
    """What attention takes as counts is just that, whatever it is called."""
    given = {value.name for value in graph.inputs}
    return {
        node.inputs[place]: role
        for node in graph.nodes
        if (node.domain, node.kind) == _COUNTED
        for place, role in _COUNTS
        if place < len(node.inputs) and node.inputs[place] in given
    }


def _token_input(graph: OnnxGraph, found: Mapping[str, Role]) -> str:
    """The only input that can hold tokens, where none has the usual name."""
    candidates = [
        value.name
        for value in graph.inputs
        if value.name not in found and value.storage in _INTEGERS and len(value.shape) == 2
    ]
    if len(candidates) != 1:
        raise FileFault(
            f"{graph.path}: no input 'input_ids' and {len(candidates)} others that could hold "
            f"tokens ({listed(candidates) or 'none'}); export it as a decoder of token ids"
        )
    return candidates[0]


def _small_input(graph: OnnxGraph, value: OnnxValue, role: Role) -> SmallInput:
    types, ranks = _TYPES.get(role, _INTEGERS), _RANKS.get(role, _COUNT_RANKS)
    rank = len(value.shape)
    if value.storage not in types or rank not in ranks:
        raise FileFault(
            f"{graph.path}: input {value.name!r} is {value.storage} of {rank} dimensions; "
            f"edgeprof serves {' or '.join(types)} of {' or '.join(map(str, ranks))}"
        )
    if value.shape[:1] not in ((), (1,), (None,)):
        raise FileFault(
            f"{graph.path}: input {value.name!r} of shape {_shown(value)} is for "
            f"{value.shape[0]} sequences at once; edgeprof runs one"
        )
    if role in _RANKS and value.shape[1] is not None:
        raise FileFault(
            f"{graph.path}: input {value.name!r} of shape {_shown(value)} fixes how many tokens a "
            "pass takes; export it with a dynamic length"
        )
    return SmallInput(name=value.name, role=role, storage=value.storage, rank=rank)


def _pasts(graph: OnnxGraph, found: Mapping[str, Role]) -> list[OnnxValue]:
    """The inputs that hold the cache: all that the pass is not told by a small input."""
    others = [value for value in graph.inputs if value.name not in found]
    for value in others:
        if len(value.shape) == CACHE_RANK + 1:
            raise FileFault(
                f"{graph.path}: input {value.name!r} holds keys and values in one tensor; "
                "edgeprof needs them apart: export the model with one input for each"
            )
        if len(value.shape) > 1 and any(part in value.name.lower() for part in _STATES):
            raise FileFault(
                f"{graph.path}: input {value.name!r} is a running state, which cannot be rolled "
                "back by length; edgeprof runs models that attend to a cache"
            )
    unknown = [value for value in others if len(value.shape) != CACHE_RANK]
    if unknown:
        raise FileFault(
            f"{graph.path}: needs {listed([value.name for value in unknown])}, which edgeprof has "
            "no value for; where the exporter left them behind (names like onnx::Neg_50), export "
            "the model again"
        )
    if not others:
        raise FileFault(
            f"{graph.path}: no cache among its inputs ({listed(list(found))}); export it as a "
            "decoder with past"
        )
    return others


def _with_sizes(past: OnnxValue, folder: DecoderFolder) -> OnnxValue:
    """A cache of GroupQueryAttention, whose dimensions have their places, with the sizes of the
    configuration where the graph gives a name instead: the model builder of onnxruntime-genai
    leaves the head's open, as a quantised cache has another."""
    told = (past.shape[0], folder.kv_heads, None, folder.head_size)
    sizes = zip(past.shape, told, strict=True)
    return replace(past, shape=tuple(known if size is None else size for size, known in sizes))


def _cache_tensor(
    graph: OnnxGraph, past: OnnxValue, present: OnnxValue, shared: bool
) -> CacheTensor:
    where = f"{graph.path}: cache {past.name!r} of shape {_shown(past)}"
    if past.storage not in FLOATS or present.storage != past.storage:
        raise FileFault(
            f"{where} is {past.storage} and comes out as {present.storage}; edgeprof serves "
            f"{', '.join(FLOATS)} that stay what they are"
        )
    if past.shape[0] not in (None, 1):
        raise FileFault(f"{where} is for {past.shape[0]} sequences at once; edgeprof runs one")
    open_axes = [axis for axis in range(1, CACHE_RANK) if past.shape[axis] is None]
    if not open_axes:
        raise FileFault(f"{where} fixes the number of tokens; export it with a dynamic length")
    if len(open_axes) > 1:
        raise FileFault(f"{where} leaves heads or head size open; export it with both fixed")
    (axis,) = open_axes
    shape = tuple(1 if size is None else size for size in past.shape)
    if not all(0 < size <= _LARGEST_SIZE for size in shape):
        raise FileFault(f"{where} has a size that no cache has")
    if shared and axis != 2:
        raise FileFault(f"{where} does not grow along its third dimension")
    sizes = [size for index, size in enumerate(present.shape) if index != axis]
    expected = [size for index, size in enumerate(shape) if index != axis]
    # A graph need not say the shape of what comes out.
    if present.shape and (
        len(present.shape) != CACHE_RANK
        or any(size not in (None, known) for size, known in zip(sizes, expected, strict=True))
    ):
        raise FileFault(f"{where} comes out as {present.name!r} of shape {_shown(present)}")
    return CacheTensor(
        past=past.name, present=present.name, storage=past.storage, shape=shape, axis=axis
    )


def _logits(graph: OnnxGraph, folder: DecoderFolder, presents: set[str]) -> OnnxValue:
    """The output of that name, or the only one that can be it."""
    others = [
        value
        for value in graph.outputs
        if value.name not in presents and len(value.shape) == 3 and value.storage in FLOATS
    ]
    named = [value for value in others if value.name == folder.outputs.logits] or others
    if len(named) != 1:
        raise FileFault(
            f"{graph.path}: no output {folder.outputs.logits!r} of three dimensions and of type "
            f"{', '.join(FLOATS)}; outputs that could be it: {listed([v.name for v in others])}"
        )
    if named[0].shape[1] is not None:
        raise FileFault(
            f"{graph.path}: output {named[0].name!r} of shape {_shown(named[0])} fixes for how "
            "many tokens of a pass there are logits; verification needs those of every token: "
            "export the model without cutting its head to the last one"
        )
    columns = named[0].shape[-1]
    if columns is not None and not 0 < columns <= _MOST_COLUMNS:
        raise FileFault(f"{graph.path}: output {named[0].name!r} has {columns} columns")
    return named[0]


def _shown(value: OnnxValue) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in value.shape) + "]"
