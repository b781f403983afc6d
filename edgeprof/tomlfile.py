"""Reads a TOML file into a Struct; what is wrong is named with its file, place and a way out."""

import re
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgeprof.errors import FileFault, UsageFault
from edgeprof.naming import nearest_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST_FILE_BYTES = 1 << 20

T = TypeVar("T")


def load_toml(path: Path, kind: type[T]) -> T:
    """The file's content as ``kind``; every error is one line that names file and field."""
    return convert(read_toml(path), kind, path)


def read_toml(path: Path) -> dict[str, Any]:
    """The file's content as plain dictionaries."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > LARGEST_FILE_BYTES:
        raise FileFault(f"{path}: larger than 1 MiB, which no file of this kind is")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise FileFault(f"{path}: not a text file in UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        raise FileFault(f"{path}: not valid TOML: {error}") from error


def convert(content: dict[str, Any], kind: type[T], path: Path) -> T:
    """Checked conversion of what ``path`` held."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise FileFault(f"{path}: {_explain(str(error), kind)}") from error


def _explain(message: str, kind: Any) -> str:
    """msgspec's message, with the nearest known key where a key is unknown."""
    unknown = re.match(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?$", message)
    if unknown is None:
        return message.replace(" - at `$.", " at `").replace(" - at `$", " at `")
    key, place = unknown[1], unknown[2] or ""
    known = _keys_at(kind, place)
    near = nearest_names(key, known, count=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
    return f"unknown key '{key}'{f' in {place}' if place else ''}; {hint}"


def _keys_at(kind: Any, place: str) -> list[str]:
    """The keys that the Struct at a path such as ``mode[2].gpu`` accepts."""
    node: Any = msgspec.inspect.type_info(kind)
    for step in re.findall(r"\w+|\[", place):
        if step == "[":
            node = node.value_type if hasattr(node, "value_type") else node.item_type
        elif step.isdigit():
            continue
        else:
            node = next(field.type for field in node.fields if field.encode_name == step)
        if isinstance(node, msgspec.inspect.UnionType):
            node = next(t for t in node.types if not isinstance(t, msgspec.inspect.NoneType))
    return [field.encode_name for field in node.fields]
