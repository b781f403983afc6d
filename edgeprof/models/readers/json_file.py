"""Reads JSON from a file of bounded size: any object, or one of a kind that is known beforehand."""

import json
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault

_Kind = TypeVar("_Kind")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json_as(path: Path, kind: type[_Kind], *, what: str, most_bytes: int) -> _Kind:
    """The file's content, checked against ``kind``; FileFault, which calls it ``what``, for all
    that keeps it from being one."""
    try:
        if path.stat().st_size > most_bytes:
            raise FileFault(f"{path}: larger than {most_bytes >> 20} MiB, which no {what} is")
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # a byte-order mark
        return msgspec.json.decode(content, type=kind)
    except OSError as error:
        raise FileFault(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFault(f"{path}: not a {what}: {error}") from error


def read_json_object(path: Path, most_bytes: int) -> dict[str, Any]:
    """The object in the file; what is wrong with it is named with line and column. A byte-order
    mark, as Windows editors write it, is accepted."""
    try:
        if not path.is_file():  # opening a pipe would wait for its writer
            raise UsageFault(f"{path}: no such file")
        if path.stat().st_size > most_bytes:
            raise FileFault(f"{path}: larger than {most_bytes >> 20} MiB, which no such file is")
        raw = path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error
    return parse_json_object(raw, path)


def parse_json_object(raw: bytes, path: Path) -> dict[str, Any]:
    """The object that ``raw``, read from ``path``, spells."""
    try:
        content = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FileFault(f"{path}: not a text file in UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise FileFault(
            f"{path}: not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise FileFault(f"{path}: not valid JSON: nested too deeply") from error
    except ValueError as error:  # a number of more digits than Python converts
        raise FileFault(f"{path}: not valid JSON: {error}") from error
    if _ESCAPED_SURROGATE.search(raw) and _holds_half_a_pair(content):
        raise FileFault(f"{path}: holds half a surrogate pair, which is no character")
    if not isinstance(content, dict):
        raise FileFault(f"{path}: holds no JSON object but a {type(content).__name__}")
    return content


def _holds_half_a_pair(content: Any) -> bool:
    """Python reads such a text and cannot write it anywhere."""
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return True
    return False
