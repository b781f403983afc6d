"""Converts a GGUF file to a decoder folder: graph, tokenizer, configuration and manifest.

A folder appears under its final name whole or not at all. Converted models are kept by the content
they were made from.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from edgeprof.convert.head_rows import read_head_rows
from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.models.cache import KEY_DIGITS, remove_left_overs
from edgeprof.models.checksum import sha256_of
from edgeprof.models.decoder_folder import (
    GENAI_NAME,
    HEAD_ROWS_NAME,
    MANIFEST_NAME,
    TOKENIZER_NAME,
    DecoderFolder,
    Manifest,
    read_decoder_folder,
)
from edgeprof.models.readers.gguf import GgufHeader, read_header

if TYPE_CHECKING:
    from edgeprof.convert.decoder import DecoderBuilder
    from edgeprof.convert.head_rows import HeadRows
    from edgeprof.convert.tokenizer import SpecialTokens
    from edgeprof.convert.weights import DecoderShape, DecoderWeights

# Part of a cached conversion's name: raise it when the same GGUF gives another folder.
CONVERTER_VERSION = 3
ONNX_NAME = "model.onnx"
ONNX_DATA_NAME = "model.onnx.data"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
# Weights beyond this go into a file beside the graph, one after the other as they are made. Inside
# they would all be held in memory, twice while the graph is written, and end at the 2 GiB of a
# protobuf message.
MAX_WEIGHT_BYTES_INSIDE = 1 << 28
FLOAT32_BYTES = 4

WeightForm = Literal["as-is", "fp32"]
Talk = Callable[[str], None]


class _Choices(Struct, frozen=True, kw_only=True):
    """How to convert."""

    weights: WeightForm
    head_rows: Path | None
    attention_pad: int
    requantise: bool


def _silent(line: str) -> None:
    pass


def convert(
    gguf: Path,
    out: Path,
    *,
    weights: WeightForm = "as-is",
    head_rows: Path | None = None,
    attention_pad: int = 1,
    requantise: bool = False,
    force: bool = False,
    talk: Talk = _silent,
) -> DecoderFolder:
    """Write the decoder of ``gguf`` to the new folder ``out``.

    ``as-is`` keeps the file's quantised blocks, ``fp32`` widens them; both compute with the very
    same weights. ``head_rows`` names an .npy file with the tokens whose logits are kept.
    ``attention_pad`` dummy rows make passes of one token and of many agree bit for bit.
    ``requantise`` rounds to 8 bits what no container of ``as-is`` holds, and has the error in the
    manifest. ``force`` replaces a decoder folder that edgeprof wrote before.
    """
    _check_free(out, force)
    choices = _Choices(
        weights=weights, head_rows=head_rows, attention_pad=attention_pad, requantise=requantise
    )
    header = read_header(gguf)
    with _appearing(out, replace=force) as folder:
        _write(header, sha256_of(gguf), choices, folder, talk)
    return read_decoder_folder(out)


def cached_conversion(
    gguf: Path,
    sha256: str,
    *,
    cache: Path,
    weights: WeightForm = "as-is",
    head_rows: Path | None = None,
    attention_pad: int = 1,
    requantise: bool = False,
    talk: Talk = _silent,
) -> DecoderFolder:
    """The conversion of the file with that hash, made now unless ``cache`` holds it whole."""
    choices = _Choices(
        weights=weights, head_rows=head_rows, attention_pad=attention_pad, requantise=requantise
    )
    folder = cache / _cache_key(sha256, choices)
    if folder.is_dir():
        try:
            return _whole(read_decoder_folder(folder))
        except FileFault as fault:
            talk(f"{fault}; converting again")
    remove_left_overs(cache, ".*")
    header = read_header(gguf)
    # Another process may have made the same folder in the meantime.
    with _appearing(folder, replace=True) as unfinished:
        _write(header, sha256, choices, unfinished, talk)
    return read_decoder_folder(folder)


def _whole(folder: DecoderFolder) -> DecoderFolder:
    """The folder, if its files are large enough for the weights that the manifest counts."""
    files = (folder.onnx_path, folder.path / ONNX_DATA_NAME)
    stored_bytes = sum(file.stat().st_size for file in files if file.is_file())
    if folder.manifest is None or stored_bytes < folder.manifest.resident_weight_bytes:
        raise FileFault(f"{folder.path}: {ONNX_NAME} or {ONNX_DATA_NAME} is missing or cut short")
    return folder


def _cache_key(sha256: str, choices: _Choices) -> str:
    parts = [sha256[:KEY_DIGITS], choices.weights, f"pad{choices.attention_pad}"]
    if choices.head_rows is not None:
        rows = read_head_rows(choices.head_rows)
        parts.append("head" + hashlib.sha256(rows.astype("<u4").tobytes()).hexdigest()[:KEY_DIGITS])
    if choices.requantise:
        parts.append("requantised")
    return "-".join([*parts, f"v{CONVERTER_VERSION}"])


def _check_free(out: Path, force: bool) -> None:
    """Only a folder that edgeprof wrote is ever replaced."""
    if not out.exists() and not out.is_symlink():
        return
    ours = out.is_dir() and (out / MANIFEST_NAME).is_file() and (out / GENAI_NAME).is_file()
    if not ours:
        raise UsageFault(f"{out} exists and is no decoder folder of edgeprof; choose another name")
    if not force:
        raise UsageFault(f"{out} exists; choose another name, or replace it with --force")


@contextmanager
def _appearing(out: Path, *, replace: bool) -> Iterator[Path]:
    """A new folder beside ``out`` that takes its name and place once the work is done."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise EnvironmentFault(f"{out.parent} cannot be written: {error.strerror}") from error
    try:
        unfinished = work / "new"
        unfinished.mkdir()
        yield unfinished
        if replace and out.exists():
            out.rename(work / "old")
        unfinished.rename(out)
    except OSError as error:
        raise EnvironmentFault(f"{out} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write(
    header: GgufHeader, source_sha256: str, choices: _Choices, folder: Path, talk: Talk
) -> None:
    """All files of a decoder folder."""
    _require_packages()
    from edgeprof.convert.requantise import Requantiser
    from edgeprof.convert.weights import DecoderWeights

    requantiser = Requantiser() if choices.requantise else None
    weights = DecoderWeights(header, float32=choices.weights == "fp32", requantiser=requantiser)
    vocab_size = weights.shape.vocab_size
    rows = None if choices.head_rows is None else read_head_rows(choices.head_rows, vocab_size)
    specials = _write_tokenizer(header, weights.shape, folder)
    talk(f"converting {header.path.name}: {weights.shape.layers} layers, {choices.weights}")
    builder = _write_graph(weights, choices, rows, folder)
    talk(f"converted {header.path.name}: {builder.graph.weight_bytes / 1e6:.0f} MB of weights")
    if rows is not None:
        np.save(folder / HEAD_ROWS_NAME, rows, allow_pickle=False)
    requantised = None if requantiser is None else requantiser.account
    if requantised is not None:
        talk(str(requantised))
    manifest = Manifest(
        source_name=header.path.name,
        source_sha256=source_sha256,
        weights=choices.weights,
        attention_pad=choices.attention_pad,
        end_token_ids=list(specials.ends),
        head_rows=None if rows is None else len(rows),
        requantised=requantised,
        onnx_sha256=sha256_of(folder / ONNX_NAME),
        **graph_sizes(builder),
    )
    _save_json(folder / MANIFEST_NAME, msgspec.to_builtins(manifest))


def _write_tokenizer(header: GgufHeader, shape: "DecoderShape", folder: Path) -> "SpecialTokens":
    """The tokenizer and the configurations that name its special tokens."""
    from edgeprof.convert.configuration import genai_config, read_chat_template, tokenizer_config
    from edgeprof.convert.tokenizer import read_special_tokens, read_tokenizer

    tokenizer = read_tokenizer(header)
    _check_vocabulary(header, tokenizer.get_vocab_size(), shape.vocab_size)
    specials = read_special_tokens(header, shape.vocab_size)
    tokenizer.save(str(folder / TOKENIZER_NAME))
    config = tokenizer_config(tokenizer, specials, read_chat_template(header))
    _save_json(folder / TOKENIZER_CONFIG_NAME, config)
    _save_json(folder / GENAI_NAME, genai_config(shape, specials, ONNX_NAME))
    return specials


def _write_graph(
    weights: "DecoderWeights", choices: _Choices, rows: "HeadRows | None", folder: Path
) -> "DecoderBuilder":
    """One file where the weights are few, else a second one beside it that takes them."""
    import onnx

    from edgeprof.convert.decoder import DecoderBuilder
    from edgeprof.convert.graph import DataFile

    outside = weights.most_stored_bytes > MAX_WEIGHT_BYTES_INSIDE
    with (folder / ONNX_DATA_NAME).open("wb") if outside else nullcontext() as file:
        builder = DecoderBuilder(
            weights,
            head_rows=None if rows is None else rows.astype(np.int64),
            attention_pad=choices.attention_pad,
            data=None if file is None else DataFile(file, ONNX_DATA_NAME),
        )
        onnx.save(builder.build().model, folder / ONNX_NAME)
    return builder


def graph_sizes(builder: "DecoderBuilder") -> dict[str, Any]:
    """The part of the manifest that the finished graph tells."""
    shape, graph = builder.shape, builder.graph
    return {
        "architecture": shape.architecture,
        "kernel": builder.multiplied.most_common(1)[0][0],
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "context_tokens": shape.context_tokens,
        "parameters": builder.parameters,
        "streamed_weight_bytes": graph.streamed_bytes,
        "resident_weight_bytes": graph.weight_bytes,
        "kv_bytes_per_token": 2 * shape.layers * shape.kv_heads * shape.head_dim * FLOAT32_BYTES,
        "flop_per_token": 2 * sum(builder.multiplied.values()),
    }


def _require_packages() -> None:
    for package in ("onnx", "tokenizers"):
        if find_spec(package) is None:
            raise EnvironmentFault(
                f"converting needs the package {package}: pip install 'edgeprof[cpu]'"
            )


def _check_vocabulary(header: GgufHeader, tokens: int, rows: int) -> None:
    if tokens > rows:
        raise FileFault(
            f"{header.path}: the tokenizer has {tokens} tokens, the embedding only {rows} rows"
        )


def _save_json(path: Path, content: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
