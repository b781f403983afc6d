"""Reads how a Hugging Face configuration says that weights are stored: a type, or a quantisation.

Figures follow the formats' definitions: so many bits a weight, a scale and perhaps a zero point a
group. Where safetensors are at hand they are read instead.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from edgeprof.errors import FileFault
from edgeprof.models.quantisation import Format, Raised, Role, StorageType

_DTYPES = {
    "float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
}  # fmt: skip
_LAYER_MATRICES: list[Role] = [
    "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"
]  # fmt: skip
_SIZES = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 1}


class Stored(Struct, frozen=True, kw_only=True):
    """The name of a format, the format, and the types that it takes. ``bits`` is the width of a
    packed weight where weights are packed."""

    name: str
    form: Format
    types: dict[str, StorageType]
    bits: int | None = None


def read_storage(config: Mapping[str, Any], text: Mapping[str, Any], path: Path) -> Stored:
    """What ``quantization_config`` says, or ``dtype`` where there is none."""
    plain = _plain_type(config, text, path)
    found = None
    for place in (text, config):
        for key in ("quantization_config", "compression_config"):
            found = found or place.get(key)
    types = {name: StorageType(block_weights=1, block_bytes=size) for name, size in _SIZES.items()}
    if not found:
        return Stored(name=plain, form=_format(plain.upper(), plain, plain, path), types=types)
    if not isinstance(found, dict):
        raise FileFault(f"{path}: quantization_config is not an object")
    return _Quantised(found, path, plain, types).read()


def _plain_type(config: Mapping[str, Any], text: Mapping[str, Any], path: Path) -> str:
    for place in (text, config):
        for key in ("dtype", "torch_dtype"):
            value = place.get(key)
            if isinstance(value, str) and value != "auto":
                name = value.removeprefix("torch.")
                if name not in _DTYPES:
                    raise FileFault(f"{path}: {key} {value[:40]!r} is not known")
                return _DTYPES[name]
    return "f16"


def _format(title: str, base: str, rest: str, path: Path, *, head: str | None = None) -> Format:
    return Format(
        title=title, base=base, head=head or rest, embedding=rest, vectors=rest, source=str(path)
    )


class _Quantised:
    """One quantization_config."""

    def __init__(
        self, found: Mapping[str, Any], path: Path, plain: str, types: dict[str, StorageType]
    ) -> None:
        self._found = found
        self._path = path
        self._plain = plain
        self._types = types

    def read(self) -> Stored:
        method = self._found.get("quant_method")
        readers = {
            "awq": self._awq_or_gptq,
            "gptq": self._awq_or_gptq,
            "compressed-tensors": self._compressed,
            "fp8": self._fp8,
            "fbgemm_fp8": self._fp8,
            "bitsandbytes": self._bitsandbytes,
            "mxfp4": self._mxfp4,
        }
        if not isinstance(method, str) or method not in readers:
            self._fail(
                f"quant_method is {str(method)[:40]!r}; known: {', '.join(readers)}. Give the "
                "folder with its safetensors, which tell the bytes themselves"
            )
        return readers[method]()

    def _fail(self, what: str) -> NoReturn:
        raise FileFault(f"{self._path}: quantization_config: {what}")

    def _number(self, values: Mapping[str, Any], *names: str, least: int, most: int) -> int | None:
        for name in names:
            value = values.get(name)
            if value is not None:
                if type(value) is not int or not least <= value <= most:
                    self._fail(f"{name} is {str(value)[:40]}, not a number from {least} to {most}")
                return value
        return None

    def _stored(self, kind: str, bits: int, group: int | None, zeros: bool, head: bool) -> Stored:
        """``bits`` a weight, a 16-bit scale a group (a row where there is no group) and a zero
        point of the weights' own width."""
        name = f"{kind}-int{bits}" + (f"-g{group}" if group else "") + ("" if zeros else "-sym")
        # Eight weights of any width fill whole bytes, and so do eight zero points.
        if group:
            self._types[name] = StorageType(
                block_weights=8 * group,
                block_bytes=bits * group + 16 + (bits if zeros else 0),
            )
        else:
            row_bytes = 2 + (-(-bits // 8) if zeros else 0)
            self._types[name] = StorageType(block_weights=8, block_bytes=bits, row_bytes=row_bytes)
        title = f"{kind.upper()} int{bits}" + (f" g{group}" if group else "")
        form = _format(title, name, self._plain, self._path, head=name if head else None)
        return Stored(name=name, form=form, types=self._types, bits=bits)

    def _awq_or_gptq(self) -> Stored:
        found = self._found
        bits = self._number(found, "bits", "w_bit", least=1, most=8)
        group = self._number(found, "group_size", "q_group_size", least=-1, most=1 << 16)
        if bits is None or group is None:
            self._fail("bits or group_size is missing")
        # Both store a zero point a group, GPTQ even where it is symmetric.
        kind = str(found["quant_method"])
        return self._stored(
            kind, bits, group if group > 0 else None, True, bool(found.get("lm_head"))
        )

    def _compressed(self) -> Stored:
        groups = self._found.get("config_groups")
        group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            self._fail("config_groups names no weights")
        bits = self._number(weights, "num_bits", least=1, most=8)
        if bits is None:
            self._fail("num_bits is missing")
        size = self._number(weights, "group_size", least=-1, most=1 << 16)
        ignored = self._found.get("ignore")
        head = not (isinstance(ignored, list) and any("lm_head" in str(one) for one in ignored))
        if weights.get("type") == "float" and bits == 8:
            return self._fp8()
        if weights.get("type") == "float":
            self._types["nvfp4"] = StorageType(block_weights=16, block_bytes=9)
            form = _format(
                "NVFP4", "nvfp4", self._plain, self._path, head="nvfp4" if head else None
            )
            return Stored(name="nvfp4", form=form, types=self._types, bits=bits)
        zeros = weights.get("symmetric") is False
        return self._stored("w", bits, size if size and size > 0 else None, zeros, head)

    def _fp8(self) -> Stored:
        return Stored(
            name="fp8", form=_format("FP8", "fp8", self._plain, self._path), types=self._types
        )

    def _bitsandbytes(self) -> Stored:
        if not self._found.get("load_in_4bit"):
            return self._stored("bnb", 8, None, False, False)
        # 4 bits and an fp32 scale a block of 64; or those scales in 8 bits, themselves scaled in
        # blocks of 256.
        double = bool(self._found.get("bnb_4bit_use_double_quant"))
        self._types["nf4"] = (
            StorageType(block_weights=64 * 256, block_bytes=64 * 256 // 2 + 256 + 4)
            if double
            else StorageType(block_weights=64, block_bytes=36)
        )
        form = _format("bitsandbytes NF4", "nf4", self._plain, self._path)
        return Stored(name="bnb-nf4", form=form, types=self._types, bits=4)

    def _mxfp4(self) -> Stored:
        self._types["mxfp4"] = StorageType(block_weights=32, block_bytes=17)
        form = Format(
            title="MXFP4",
            base=self._plain,
            head=self._plain,
            embedding=self._plain,
            experts="mxfp4",
            vectors=self._plain,
            raised=[Raised(roles=_LAYER_MATRICES, layers="dense", storage="mxfp4")],
            source=str(self._path),
        )
        return Stored(name="mxfp4", form=form, types=self._types, bits=4)
