"""Reads what an ONNX file says of itself: nodes, inputs, outputs and the sizes of its tensors.

The weights are skipped, in the file as well as in external data. Field numbers: onnx/onnx.proto.
"""

import math
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from edgeprof.errors import FileFault
from edgeprof.models.readers.model_file import mapped_model
from edgeprof.models.readers.protobuf import Message, Span

MAX_DEPTH = 8  # of graphs inside nodes

# Element type -> (name, bits).
ELEMENTS = {
    1: ("f32", 32), 2: ("u8", 8), 3: ("i8", 8), 4: ("u16", 16), 5: ("i16", 16), 6: ("i32", 32),
    7: ("i64", 64), 9: ("bool", 8), 10: ("f16", 16), 11: ("f64", 64), 12: ("u32", 32),
    13: ("u64", 64), 16: ("bf16", 16), 17: ("fp8", 8), 18: ("fp8", 8), 19: ("fp8", 8),
    20: ("fp8", 8), 21: ("u4", 4), 22: ("i4", 4), 23: ("fp4", 4), 24: ("e8m0", 8), 25: ("u2", 2),
    26: ("i2", 2),
}  # fmt: skip


class OnnxTensor(Struct, frozen=True, kw_only=True):
    """A constant of the graph; ``file`` is where its bytes are when not in the model file."""

    name: str
    dims: tuple[int, ...]
    storage: str
    bits: int
    byte_length: int
    file: str | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.dims)


class OnnxNode(Struct, frozen=True, kw_only=True):
    """One operation. ``numbers`` holds its whole-number attributes; the standard's own operators
    have no ``domain``."""

    name: str
    kind: str
    domain: str = ""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: Mapping[str, int]


class OnnxValue(Struct, frozen=True, kw_only=True):
    """An input or output: its element type and shape; a size that varies is None."""

    name: str
    storage: str
    shape: tuple[int | None, ...]


class OnnxGraph(Struct, frozen=True, kw_only=True):
    """The graph, those inside its nodes included. ``defaulted`` are inputs that need not be given.
    ``external`` maps files to the bytes that the tensors need of them, ``problems`` says which are
    missing or too short."""

    path: Path
    nodes: Sequence[OnnxNode]
    tensors: Mapping[str, OnnxTensor]
    inputs: Sequence[OnnxValue]
    defaulted: Sequence[OnnxValue]
    outputs: Sequence[OnnxValue]
    external: Mapping[str, int]
    problems: Sequence[str]


def read_onnx_graph(path: Path) -> OnnxGraph:
    """The graph of the file; FileFault for what is no ONNX model."""
    with mapped_model(path) as data:
        return _Reader(path, data).read()


def require_external_data(graph: OnnxGraph) -> None:
    """FileFault where weights that the graph keeps in other files are missing or cut short."""
    if graph.problems:
        raise FileFault(
            f"{graph.path}: its weights lie in other files that are not whole: "
            f"{'; '.join(graph.problems)}: copy them beside it"
        )


class _Reader:
    """Collects what the graphs of one file hold."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._message = Message(path, data)
        self._nodes: list[OnnxNode] = []
        self._tensors: dict[str, OnnxTensor] = {}
        self._external: dict[str, int] = {}

    def read(self) -> OnnxGraph:
        message = self._message
        graph = None
        for field in message.fields(message.whole):
            if field.number == 7:  # ModelProto.graph
                graph = message.span(field.value)
        if graph is None:
            raise FileFault(f"{self._path}: not an ONNX model: it has no graph")
        inputs, outputs = self._graph(graph, MAX_DEPTH)
        if not self._nodes:
            raise FileFault(f"{self._path}: not an ONNX model: its graph has no nodes")
        return OnnxGraph(
            path=self._path,
            nodes=self._nodes,
            tensors=self._tensors,
            inputs=[value for value in inputs if value.name not in self._tensors],
            defaulted=[value for value in inputs if value.name in self._tensors],
            outputs=outputs,
            external=self._external,
            problems=[
                problem
                for name, needed in self._external.items()
                if (problem := self._problem(name, needed))
            ],
        )

    def _graph(self, span: Span, depth: int) -> tuple[list[OnnxValue], list[OnnxValue]]:
        if depth == 0:
            self._message.fail(f"graphs lie more than {MAX_DEPTH} deep")
        inputs, outputs = [], []
        for field in self._message.fields(span):
            if field.number == 1:
                self._node(self._message.span(field.value), depth)
            elif field.number == 5:
                self._add(self._tensor(self._message.span(field.value)))
            elif field.number == 11:
                inputs.append(self._value(self._message.span(field.value)))
            elif field.number == 12:
                outputs.append(self._value(self._message.span(field.value)))
        return inputs, outputs

    def _add(self, tensor: OnnxTensor) -> None:
        self._tensors[tensor.name] = tensor

    def _node(self, span: Span, depth: int) -> None:
        message = self._message
        inputs, outputs, numbers = [], [], {}
        name = kind = domain = ""
        constants = []
        for field in message.fields(span):
            if field.number == 1:
                inputs.append(message.text(field.value))
            elif field.number == 2:
                outputs.append(message.text(field.value))
            elif field.number == 3:
                name = message.text(field.value)
            elif field.number == 4:
                kind = message.text(field.value)
            elif field.number == 7:
                domain = message.text(field.value)
            elif field.number == 5:
                key, number, constant = self._attribute(message.span(field.value), depth)
                if number is not None:
                    numbers[key] = number
                if constant is not None:
                    constants.append(constant)
        if kind == "Constant" and outputs and constants:
            self._add(replace(constants[0], name=outputs[0]))
            return
        self._nodes.append(
            OnnxNode(
                name=name,
                kind=kind,
                domain="" if domain == "ai.onnx" else domain,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                numbers=numbers,
            )
        )

    def _attribute(self, span: Span, depth: int) -> tuple[str, int | None, OnnxTensor | None]:
        message = self._message
        name, number, tensor = "", None, None
        for field in message.fields(span):
            if field.number == 1:
                name = message.text(field.value)
            elif field.number == 3:
                number = message.number(field.value)
            elif field.number == 5:
                tensor = self._tensor(message.span(field.value))
            elif field.number in (6, 11):  # a graph, graphs
                self._graph(message.span(field.value), depth - 1)
        return name, number, tensor

    def _tensor(self, span: Span) -> OnnxTensor:
        message = self._message
        dims: list[int] = []
        kind, name, inside, outside = 0, "", 0, False
        location: dict[str, str] = {}
        for field in message.fields(span):
            if field.number == 1:
                dims += message.numbers(field.value)
            elif field.number == 2:
                kind = message.number(field.value)
            elif field.number == 8:
                name = message.text(field.value)
            elif field.number == 9:
                inside = message.span(field.value).length
            elif field.number == 13:
                key, value = self._pair(message.span(field.value))
                location[key] = value
            elif field.number == 14:
                outside = field.value == 1
        if kind == 8:  # strings weigh nothing in a pass
            return OnnxTensor(name=name, dims=(0,), storage="string", bits=8, byte_length=0)
        if kind not in ELEMENTS:
            message.fail(f"tensor {name!r} has the unknown element type {kind}")
        if len(dims) > 16 or any(not 0 <= size < 1 << 50 for size in dims):
            message.fail(f"tensor {name!r} has the shape {str(dims)[:60]}")
        storage, bits = ELEMENTS[kind]
        length = -(-math.prod(dims) * bits // 8)
        if inside and inside != length:
            message.fail(f"tensor {name!r} of {length} bytes has {inside} in the file")
        # Elements that are written out as numbers take a byte each at least, or half of one.
        if not outside and math.prod(dims) > 2 * message.whole.length:
            message.fail(f"tensor {name!r} of {length} bytes has none in the file")
        return OnnxTensor(
            name=name,
            dims=tuple(dims),
            storage=storage,
            bits=bits,
            byte_length=length,
            file=self._outside(name, location, length) if outside else None,
        )

    def _pair(self, span: Span) -> tuple[str, str]:
        key = value = ""
        for field in self._message.fields(span):
            if field.number == 1:
                key = self._message.text(field.value)
            elif field.number == 2:
                value = self._message.text(field.value)
        return key, value

    def _outside(self, name: str, location: Mapping[str, str], length: int) -> str:
        """Notes how far into which file the tensor reaches."""
        file = location.get("location", "")
        plain = PurePosixPath(file)
        if not file or plain.is_absolute() or ".." in plain.parts or "\\" in file or "\0" in file:
            self._message.fail(f"tensor {name!r} lies in {file!r}, outside the model's folder")
        sizes = []
        for key, default in (("offset", 0), ("length", length)):
            text = location.get(key, str(default))
            if not text.isascii() or not text.isdigit() or len(text) > 18:
                self._message.fail(f"tensor {name!r} has the {key} {text[:40]!r}")
            sizes.append(int(text))
        if sizes[1] != length:
            self._message.fail(f"tensor {name!r} of {length} bytes has {sizes[1]} in {file}")
        self._external[file] = max(self._external.get(file, 0), sum(sizes))
        return file

    def _problem(self, name: str, needed: int) -> str | None:
        path = self._path.parent / name
        try:
            there = path.stat().st_size if path.is_file() else None
        except OSError:
            there = None
        if there is None:
            return f"{name} is missing ({needed} bytes)"
        if there < needed:
            return f"{name} is truncated: {needed - there} of {needed} bytes are missing"
        return None

    def _value(self, span: Span) -> OnnxValue:
        message = self._message
        name, storage = "", "unknown"
        shape: list[int | None] = []
        for field in message.fields(span):
            if field.number == 1:
                name = message.text(field.value)
            elif field.number == 2:
                for kind in message.fields(message.span(field.value)):
                    if kind.number == 1:  # TypeProto.tensor_type
                        storage, shape = self._tensor_type(message.span(kind.value))
        return OnnxValue(name=name, storage=storage, shape=tuple(shape))

    def _tensor_type(self, span: Span) -> tuple[str, list[int | None]]:
        message = self._message
        storage, shape = "unknown", []
        for field in message.fields(span):
            if field.number == 1:
                storage = ELEMENTS.get(message.number(field.value), ("unknown", 0))[0]
            elif field.number == 2:
                for entry in message.fields(message.span(field.value)):
                    if entry.number == 1:
                        shape.append(self._size(message.span(entry.value)))
        return storage, shape

    def _size(self, span: Span) -> int | None:
        for field in self._message.fields(span):
            if field.number == 1:
                return self._message.number(field.value)
        return None
