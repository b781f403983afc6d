"""A folder with an ONNX decoder: its graph, tokenizer, names of inputs and its size in bytes.

The folder is laid out as onnxruntime-genai lays its own out (``genai_config.json`` names the graph
and its inputs). Folders that edgeprof converted hold ``edgeprof.json`` too: where the weights came
from and how many bytes a pass reads. Knows nothing of onnxruntime.
"""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.readers.json_file import read_json_as

MANIFEST_NAME = "edgeprof.json"
GENAI_NAME = "genai_config.json"
TOKENIZER_NAME = "tokenizer.json"
HEAD_ROWS_NAME = "head_rows.npy"
_MAX_JSON_BYTES = 1 << 20

# Limits far above any real decoder; sums and products of such numbers stay harmless.
_Size = Annotated[int, Meta(ge=1, le=1 << 50)]
_Layers = Annotated[int, Meta(ge=1, le=1 << 12)]
_Tokens = Annotated[int, Meta(ge=1, le=1 << 30)]
_Fraction = Annotated[float, Meta(ge=0, le=1)]
_Rows = Annotated[int, Meta(ge=0, le=1 << 8)]


class Requantised(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was rounded to 8 bits because no container holds it exactly.

    ``relative_rms_error`` is the root mean square of the errors over that of these weights;
    ``largest_error_of_block`` the largest error over the largest weight of its block of 32.
    """

    storages: list[str]
    weights: _Size
    relative_rms_error: _Fraction
    largest_error_of_block: _Fraction


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
    """What the runner needs to know of a decoder before it opens the graph."""

    path: Path
    onnx_path: Path
    tokenizer_path: Path | None
    manifest: Manifest | None
    layers: int
    vocab_size: int
    context_tokens: int
    end_token_ids: frozenset[int]
    inputs: _GenaiInputs
    outputs: _GenaiOutputs

    @property
    def head_rows_path(self) -> Path | None:
        """The list of tokens the head knows, where the head was cut."""
        path = self.path / HEAD_ROWS_NAME
        return path if path.is_file() else None


def read_decoder_folder(path: Path) -> DecoderFolder:
    """Read the two JSON files of a decoder folder and check that what they name is there.

    Raises UsageFault where there is no such folder, FileFault where it is not a decoder's.
    """
    if not path.is_dir():
        raise UsageFault(f"{path}: no such folder")
    if not (path / GENAI_NAME).is_file():
        raise FileFault(
            f"{path}: no {GENAI_NAME} in it; expected a folder written by `edgeprof convert` or by "
            "the model builder of onnxruntime-genai"
        )
    model = read_json_as(
        path / GENAI_NAME, _GenaiConfig, what="genai configuration", most_bytes=_MAX_JSON_BYTES
    ).model
    onnx_path = path / model.decoder.filename
    if onnx_path.parent != path or not onnx_path.is_file():
        raise FileFault(
            f"{path / GENAI_NAME}: model.decoder.filename {model.decoder.filename!r} is not a file "
            "of this folder"
        )
    manifest = _read_manifest(path / MANIFEST_NAME)
    eos = model.eos_token_id
    ends = [] if eos is None else [eos] if isinstance(eos, int) else eos
    tokenizer_path = path / TOKENIZER_NAME
    return DecoderFolder(
        path=path,
        onnx_path=onnx_path,
        tokenizer_path=tokenizer_path if tokenizer_path.is_file() else None,
        manifest=manifest,
        layers=model.decoder.num_hidden_layers,
        vocab_size=model.vocab_size,
        context_tokens=model.context_length,
        end_token_ids=frozenset(ends) | frozenset(manifest.end_token_ids if manifest else ()),
        inputs=model.decoder.inputs,
        outputs=model.decoder.outputs,
    )


def _read_manifest(path: Path) -> Manifest | None:
    if not path.is_file():
        return None
    return read_json_as(path, Manifest, what="manifest of edgeprof", most_bytes=_MAX_JSON_BYTES)
