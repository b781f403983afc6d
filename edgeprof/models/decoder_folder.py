"""A folder with an ONNX decoder: its graph, tokenizer, names of inputs and its size in bytes.

The folder is laid out as onnxruntime-genai lays its own out (``genai_config.json`` names the graph
and its inputs), or as optimum and transformers.js do (``config.json`` beside ``model.onnx``, or
beside a folder ``onnx``). Folders that edgeprof converted hold ``edgeprof.json`` too: where the
weights came from and how many bytes a pass reads. Knows nothing of onnxruntime.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.quantisation import Requantised
from edgeprof.models.readers.hf_config import read_text_config
from edgeprof.models.readers.json_file import read_json_as, read_json_object

MANIFEST_NAME = "edgeprof.json"
GENAI_NAME = "genai_config.json"
TOKENIZER_NAME = "tokenizer.json"
HEAD_ROWS_NAME = "head_rows.npy"
CONFIG_NAME = "config.json"
GENERATION_NAME = "generation_config.json"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
# Graphs of whole decoders, the likelier first; the others of a folder are variants or parts.
_USUAL_NAMES = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx")
_MAX_JSON_BYTES = 1 << 20
_MAX_CONFIG_BYTES = 4 << 20
_MAX_TOKENIZER_BYTES = 1 << 27
_MOST_END_TOKENS = 1 << 10

# Limits far above any real decoder; sums and products of such numbers stay harmless.
_Size = Annotated[int, Meta(ge=1, le=1 << 50)]
_Layers = Annotated[int, Meta(ge=1, le=1 << 12)]
_Tokens = Annotated[int, Meta(ge=1, le=1 << 30)]
_Rows = Annotated[int, Meta(ge=0, le=1 << 8)]


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``edgeprof convert`` knows of the decoder it wrote.

    ``streamed_weight_bytes`` counts the weights, scales and corrections that one pass reads as they
    are stored in the ONNX file; ``flop_per_token`` is 2 x matrix parameters, attention apart.
    ``attention_pad`` is the number of dummy rows that attention sees in every pass; each needs one
    slot of the cache beyond the tokens. ``head_rows`` is the number of tokens that the output head
    still knows, where it was cut; ``requantised`` is None where every weight is the file's own.
    """

    schema: Literal["edgeprof.decoder/1"] = "edgeprof.decoder/1"
    architecture: str
    source_name: str
    source_sha256: str
    weights: str
    kernel: str
    attention_pad: _Rows
    layers: _Layers
    hidden: _Size
    heads: _Size
    kv_heads: _Size
    head_dim: _Size
    vocab_size: _Tokens
    context_tokens: _Tokens
    parameters: _Size
    streamed_weight_bytes: _Size
    resident_weight_bytes: _Size
    kv_bytes_per_token: _Size
    flop_per_token: _Size
    end_token_ids: list[int]
    head_rows: _Tokens | None = None
    requantised: Requantised | None = None
    onnx_sha256: str


class _GenaiInputs(Struct):
    input_ids: str = "input_ids"
    attention_mask: str | None = None
    position_ids: str | None = None
    past_key_names: str = "past_key_values.%d.key"
    past_value_names: str = "past_key_values.%d.value"


class _GenaiOutputs(Struct):
    logits: str = "logits"
    present_key_names: str = "present.%d.key"
    present_value_names: str = "present.%d.value"


class _GenaiDecoder(Struct):
    filename: Annotated[str, Meta(max_length=63)]  # 252 bytes at most, a name that any disk takes
    num_hidden_layers: _Layers
    num_key_value_heads: _Size | None = None
    head_size: _Size | None = None
    inputs: _GenaiInputs = field(default_factory=_GenaiInputs)
    outputs: _GenaiOutputs = field(default_factory=_GenaiOutputs)


class _GenaiModel(Struct):
    decoder: _GenaiDecoder
    vocab_size: _Tokens
    context_length: _Tokens
    eos_token_id: int | list[int] | None = None


class _GenaiConfig(Struct):
    model: _GenaiModel


class DecoderFolder(Struct, frozen=True, kw_only=True):
    """What the runner needs to know of a decoder before it opens the graph.

    ``kv_heads`` and ``head_size`` are those of the configuration, where it tells them.
    """

    path: Path
    onnx_path: Path
    tokenizer_path: Path | None
    manifest: Manifest | None
    layers: int
    vocab_size: int
    context_tokens: int
    end_token_ids: frozenset[int]
    kv_heads: int | None = None
    head_size: int | None = None
    inputs: _GenaiInputs = field(default_factory=_GenaiInputs)
    outputs: _GenaiOutputs = field(default_factory=_GenaiOutputs)

    @property
    def location(self) -> Path:
        """The path that leads to this very graph again: optimum's folders may hold several."""
        return self.path if (self.path / GENAI_NAME).is_file() else self.onnx_path

    @property
    def head_rows_path(self) -> Path | None:
        """The list of tokens the head knows, where the head was cut."""
        path = self.path / HEAD_ROWS_NAME
        return path if path.is_file() else None


def read_decoder_folder(path: Path) -> DecoderFolder:
    """Read the small files of a decoder folder and check that what they name is there.

    ``path`` may also be one of the graphs in such a folder. Raises UsageFault where there is no
    such folder, or where several graphs in it leave a choice, FileFault where it is not a
    decoder's.
    """
    graph = path if path.suffix == ".onnx" and path.is_file() else None
    if graph is not None:
        path = graph.parent.parent if graph.parent.name == "onnx" else graph.parent
    if not path.is_dir():
        raise UsageFault(f"{path}: no such folder")
    if (path / GENAI_NAME).is_file():
        return _read_genai_folder(path, graph)
    if (path / CONFIG_NAME).is_file():
        return _read_optimum_folder(path, graph or _choose_graph(path))
    raise FileFault(
        f"{path}: no {GENAI_NAME} or {CONFIG_NAME} in it; expected a folder written by `edgeprof "
        "convert`, by the model builder of onnxruntime-genai or by optimum"
    )


def _read_genai_folder(path: Path, graph: Path | None) -> DecoderFolder:
    model = read_json_as(
        path / GENAI_NAME, _GenaiConfig, what="genai configuration", most_bytes=_MAX_JSON_BYTES
    ).model
    onnx_path = graph or path / model.decoder.filename
    if onnx_path.parent != path or not onnx_path.is_file():
        raise FileFault(
            f"{path / GENAI_NAME}: model.decoder.filename {model.decoder.filename!r} is not a file "
            "of this folder"
        )
    manifest = _read_manifest(path / MANIFEST_NAME)
    ends = {*_end_tokens(model.eos_token_id), *(manifest.end_token_ids if manifest else ())}
    return DecoderFolder(
        path=path,
        onnx_path=onnx_path,
        tokenizer_path=_tokenizer_path(path),
        manifest=manifest,
        layers=model.decoder.num_hidden_layers,
        vocab_size=model.vocab_size,
        context_tokens=model.context_length,
        # What edgeprof converted has all its end tokens in the manifest.
        end_token_ids=frozenset(ends if manifest else ends | set(_end_tokens_beside(path))),
        kv_heads=model.decoder.num_key_value_heads,
        head_size=model.decoder.head_size,
        inputs=model.decoder.inputs,
        outputs=model.decoder.outputs,
    )


def _read_optimum_folder(path: Path, graph: Path) -> DecoderFolder:
    config = read_json_object(path / CONFIG_NAME, _MAX_CONFIG_BYTES)
    shape = read_text_config(config, path / CONFIG_NAME, path.name).shape
    for what, size in (
        ("vocab_size", shape.vocab),
        ("max_position_embeddings", shape.context_tokens),
    ):
        if size is None:
            raise FileFault(f"{path / CONFIG_NAME}: no {what}, which running the decoder needs")
    assert shape.vocab is not None and shape.context_tokens is not None
    nested = config.get("text_config")
    sources = [config, nested] if isinstance(nested, dict) else [config]
    ends = {token for source in sources for token in _end_tokens(source.get("eos_token_id"))}
    return DecoderFolder(
        path=path,
        onnx_path=graph,
        tokenizer_path=_tokenizer_path(path),
        manifest=None,
        layers=shape.layers,
        vocab_size=shape.vocab,
        context_tokens=shape.context_tokens,
        end_token_ids=frozenset(ends | set(_end_tokens_beside(path))),
        kv_heads=shape.kv_heads,
        head_size=shape.head_dim,
    )


def _choose_graph(path: Path) -> Path:
    """The decoder of an optimum folder: the one with a usual name, or the only one there."""
    found = [*sorted(path.glob("*.onnx")), *sorted((path / "onnx").glob("*.onnx"))]
    found = [graph for graph in found if graph.is_file()]
    if not found:
        raise FileFault(f"{path}: no ONNX graph in it, nor in its folder 'onnx'")
    for name in _USUAL_NAMES:
        usual = [graph for graph in found if graph.name == name]
        if usual:
            return usual[0]
    if len(found) > 1:
        names = ", ".join(str(graph.relative_to(path)) for graph in found[:8])
        raise UsageFault(f"{path}: several graphs in it ({names}); give the path of one")
    return found[0]


def _tokenizer_path(path: Path) -> Path | None:
    tokenizer = path / TOKENIZER_NAME
    return tokenizer if tokenizer.is_file() else None


def _end_tokens(value: Any) -> Iterator[int]:
    """The ids that a configuration gives: one, several or none."""
    values = value if isinstance(value, list) else [value]
    for token in values[:_MOST_END_TOKENS]:
        if type(token) is int and 0 <= token < 1 << 30:
            yield token


class _AddedToken(Struct):
    id: int
    content: str


class _TokenizerFile(Struct):
    added_tokens: list[_AddedToken] = field(default_factory=list)


def _end_tokens_beside(path: Path) -> Iterator[int]:
    """End tokens that only the generation's or the tokenizer's configuration knows."""
    if (path / GENERATION_NAME).is_file():
        generation = read_json_object(path / GENERATION_NAME, _MAX_JSON_BYTES)
        yield from _end_tokens(generation.get("eos_token_id"))
    tokenizer = _tokenizer_path(path)
    if tokenizer is None or not (path / TOKENIZER_CONFIG_NAME).is_file():
        return
    end = read_json_object(path / TOKENIZER_CONFIG_NAME, _MAX_CONFIG_BYTES).get("eos_token")
    text = end.get("content") if isinstance(end, dict) else end
    added = read_json_as(
        tokenizer, _TokenizerFile, what="tokenizer", most_bytes=_MAX_TOKENIZER_BYTES
    ).added_tokens
    yield from (token.id for token in added if token.content == text)


def _read_manifest(path: Path) -> Manifest | None:
    if not path.is_file():
        return None
    return read_json_as(path, Manifest, what="manifest of edgeprof", most_bytes=_MAX_JSON_BYTES)
