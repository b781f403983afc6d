"""Looks at board, signals and software of this machine, and changes nothing. Needs no root, and no
package but those of the core; what may hang or crash is tried in processes of its own.
"""

import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from msgspec import structs

from edgeprof import __version__
from edgeprof.analysis.next_steps import next_steps
from edgeprof.analysis.readiness import Means, default_job, job_findings
from edgeprof.catalog import find_device, identify_board
from edgeprof.diagnosis import (
    SCHEMA,
    Board,
    Diagnosis,
    Disk,
    Findings,
    Job,
    Jtop,
    JtopCopy,
    Memory,
)
from edgeprof.hardware.board_files import BoardFiles
from edgeprof.hardware.clock_ends import read_clock_ends
from edgeprof.hardware.container import Container, read_container
from edgeprof.hardware.identify import Identity
from edgeprof.hardware.installed import Installed, read_installed
from edgeprof.hardware.jetpack import jetpack_of, known, stack_of
from edgeprof.hardware.machine import usable_cores
from edgeprof.hardware.memory_state import read_memory_state, read_swap_state
from edgeprof.models.cache import cache_dir
from edgeprof.profiling.board import board_figures
from edgeprof.profiling.doctor_packages import called_by, describe_python, pip, read_packages
from edgeprof.profiling.doctor_runtime import read_runtime
from edgeprof.profiling.doctor_signals import permission, read_signals
from edgeprof.telemetry.sensor import command_line, socket_path
from edgeprof.telemetry.sources import jtop_faults
from edgeprof.telemetry.sources.jtop_copies import find_installs
from edgeprof.telemetry.sources.tegrastats import find_tegrastats

_FAMILY = "/sys/devices/soc0/family"


def examine(
    root: Path, job: Job | None, device: str | None, talk: Callable[[str], None]
) -> Diagnosis:
    """Everything below ``root``, and this Python; None asks for the job that the machine is set up
    for. Raises UsageFault for a device that is not known."""
    board_figures(root, device)  # a name that is wrong is said before anything takes its time
    talk("looking at board and packages; this takes a few seconds")
    findings = _findings(root, device)
    means = _means(findings)
    jobs = job_findings(findings, means)
    asked = job or default_job(findings)
    return Diagnosis(
        schema=SCHEMA,
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        edgeprof_version=__version__,
        job=asked,
        jobs=jobs,
        next_steps=next_steps(findings, jobs, asked, means),
        findings=findings,
    )


def _findings(root: Path, device: str | None) -> Findings:
    files = BoardFiles(root)
    identity = identify_board(root)
    libraries = read_installed(files)
    board = _board(identity, files, libraries, device)
    here = root.absolute() == Path("/")
    packages = read_packages()
    numpy = next((one.version for one in packages if one.name == "numpy"), None)
    runtime = read_runtime(
        platform.machine(), board.gpu_architecture, numpy_version=numpy, probe_gpu=here
    )
    container = _container(files, here)
    return Findings(
        root=str(root.absolute()),
        machine_is_root=here,
        board=board,
        signals=read_signals(board_figures(root, device)),
        python=describe_python(),
        packages=packages,
        onnxruntime=runtime,
        libraries=libraries,
        jtop=_jtop(files, here, container is not None),
        memory=_memory(root, identity),
        disks=list(_disks()),
        container=container,
    )


def _board(
    identity: Identity, files: BoardFiles, libraries: Sequence[Installed], device: str | None
) -> Board:
    facts = identity.facts
    # A container lacks the release's file, an image of its own may have the package.
    packaged = (one.version.partition("-")[0] for one in libraries if one.name == "L4T")
    l4t = facts.l4t or next(packaged, None)
    soc = facts.soc
    named = None if device is None else find_device(device)
    profile = identity.profile if named is None else named.profile
    architecture = known().gpus.sm.get(soc or "")
    if architecture is None and profile is not None and profile.gpu is not None:
        architecture = int(profile.gpu.compute_capability.replace(".", ""))
    peak = identity.peak_bandwidth_bytes_per_s
    if named is not None:
        peak = named.profile.peak_bandwidth_bytes_per_s(named.mode)
    is_board = profile is not None or bool(identity.candidates) or l4t is not None
    is_board |= files.read_line(_FAMILY) == "Tegra"  # told in a container too
    return Board(
        kind="board" if is_board else "host",
        device=None if profile is None else profile.name,
        model=facts.model,
        confidence="named" if named is not None else identity.confidence,
        candidates=identity.candidates,
        soc=soc,
        gpu_architecture=architecture,
        l4t=l4t,
        jetpack=None if l4t is None else jetpack_of(l4t),
        power_mode=identity.mode_name if named is None else named.mode.name,
        power_mode_is_set=identity.mode_is_set,
        peak_bandwidth_bytes_per_s=peak,
        memory_bytes=facts.memory_bytes,
        clocks=read_clock_ends(files, facts.emc),
        warnings=identity.warnings if is_board else (),
    )


def _jtop(files: BoardFiles, here: bool, in_container: bool) -> Jtop:
    """What of jetson-stats is installed, and whether client and service fit; nothing is started."""
    installs = find_installs(files, os.environ.get("HOME"), [sys.prefix] if here else [])
    service = installs.service
    socket = str(jtop_faults.SOCKET)
    open_to = permission(files, socket)
    fault = jtop_faults.installation_fault(
        installs, socket_is_there=open_to is not None, in_container=in_container, pip=pip()
    )
    if fault is None and here and open_to is not None:
        fault = jtop_faults.unreachable()
    return Jtop(
        copies=[
            JtopCopy(version=one.version, folder=one.folder, script=one.script)
            for one in installs.copies
        ],
        service_unit=None if service is None else service.unit,
        service_command=None if service is None else service.command,
        service_version=None if service is None else service.version,
        socket=socket if open_to is not None else None,
        socket_permission=open_to,
        reason=None if fault is None else fault.reason,
        fix=None if fault is None else fault.fix,
        commands=[] if fault is None else list(fault.commands),
    )


def _memory(root: Path, identity: Identity) -> Memory:
    state, swap = read_memory_state(root), read_swap_state(root)
    return Memory(
        total_bytes=identity.facts.memory_bytes,
        available_bytes=state.available_bytes,
        largest_free_block_bytes=state.largest_block_bytes,
        largest_free_blocks=state.largest_blocks,
        swap_total_bytes=swap.total_bytes,
        swap_used_bytes=swap.used_bytes,
        zram_bytes=swap.zram_bytes,
    )


def _disks() -> Iterator[Disk]:
    """Where sessions and models go; a folder that is not there yet is made in the nearest that
    is."""
    for purpose, place in (("sessions", _here()), ("models", _cache())):
        if place is None:
            yield Disk(purpose=purpose, path="", free_bytes=None, writable=False)
            continue
        there = next((path for path in (place, *place.parents) if path.is_dir()), Path("/"))
        try:
            free = shutil.disk_usage(there).free
        except OSError:
            free = None
        writable = os.access(there, os.W_OK | os.X_OK)
        yield Disk(purpose=purpose, path=str(place), free_bytes=free, writable=writable)


def _here() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # the folder was removed
        return None


def _cache() -> Path | None:
    try:
        return cache_dir()
    except (OSError, RuntimeError):  # nobody's home
        return None


def _container(files: BoardFiles, here: bool) -> Container | None:
    there = find_tegrastats() is not None if here else "tegrastats" in files.names("/usr/bin")
    found = read_container(files, tegrastats=there)
    # No host with another processor has a board to give.
    if found is not None and here and platform.machine() != "aarch64":
        return structs.replace(found, missing=[])
    return found


def _means(findings: Findings) -> Means:
    """The commands that steps are made of, as this machine takes them."""
    uid, gid = os.getuid(), os.getgid()
    sensor = command_line(sys.executable, socket_path(uid), uid, gid)
    return Means(
        pip=pip(),
        edgeprof=called_by(findings.python),
        sensor=None if uid == 0 else f"sudo {shlex.join(sensor)}",
        stack=stack_of(findings.board.l4t),
        cores=usable_cores(),
    )
