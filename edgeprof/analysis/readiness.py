"""Whether a job can be done with what was found, and what keeps it from being done. Looks at
nothing itself.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from edgeprof.diagnosis import (
    JOBS,
    Blocker,
    Findings,
    Job,
    JobFinding,
    Package,
    Runtime,
)
from edgeprof.hardware.jetpack import Stack

_LEAST_DISK_BYTES = 64 << 20
_LITTLE_MEMORY_BYTES = 512 << 20
# The packages without which a job cannot be done; matplotlib only draws.
_WATCHING = ("click", "msgspec", "psutil", "platformdirs")
_RUNNING = (*_WATCHING, "numpy")
_DECODING = ("onnx", "tokenizers")
CPU_ONLY = "onnxruntime"
EMC = "dram_bandwidth_bytes_per_s"


class Means(Struct, frozen=True, kw_only=True):
    """The commands of this machine: its pip, edgeprof, and the line that starts the sensor, None
    for root, who needs none. ``stack`` is what is known of the board's JetPack."""

    pip: str
    edgeprof: str
    sensor: str | None
    stack: Stack | None
    cores: int


def default_job(findings: Findings) -> Job:
    """What this machine is set up for: to run models where an ONNX Runtime is installed. A core
    package that is broken is asked about by the job that needs them all."""
    damaged = any(p.needed_for == "core" and p.state != "ok" for p in findings.packages)
    return "run" if findings.onnxruntime.copies or damaged else "watch"


def job_findings(findings: Findings, means: Means) -> list[JobFinding]:
    """Every job, with what keeps it from being done."""
    to_watch = [*_core(findings, _WATCHING), *_no_signal(findings)]
    to_run = [*_core(findings, _RUNNING), *_runner(findings, means), *_disk(findings)]
    blocking = {"watch": to_watch, "run": to_run, "contend": to_run}
    measuring = list(_measuring_limits(findings))
    running = [*measuring, *_running_limits(findings, means)]
    limits = {"watch": measuring, "run": running, "contend": [*running, *_one_core(means)]}
    return [
        JobFinding(
            job=job,
            possible=not blocking[job],
            blocking=blocking[job],
            limits=limits[job],
        )
        for job in JOBS
    ]


def _core(findings: Findings, needed: Sequence[str]) -> Iterator[Blocker]:
    for package in findings.packages:
        if package.name in needed:
            yield from _unusable(package)


def _unusable(package: Package) -> Iterator[Blocker]:
    if package.state != "ok":
        what = "cannot be imported" if package.state == "broken" else "is not there"
        detail = f": {package.reason}" if package.state == "broken" else ""
        yield Blocker(reason=f"{package.name} {what}{detail}", fix=package.fix)


def _runner(findings: Findings, means: Means) -> Iterator[Blocker]:
    runtime = findings.onnxruntime
    if not runtime.providers:
        yield Blocker(
            reason="no onnxruntime is installed" if not runtime.copies
            else "onnxruntime is listed as installed, and its files are not there",
            fix=f"{means.pip} install 'edgeprof[cpu]'" if not runtime.copies
            else f"{means.pip} install --force-reinstall {runtime.copies[0].package}",
        )  # fmt: skip
    broken = any(p.name in _RUNNING and p.state != "ok" for p in findings.packages)
    for provider in runtime.providers:
        if provider.name == "cpu" and not provider.usable and not broken:
            yield Blocker(
                reason=f"an operator on the CPU fails: {provider.reason}",
                fix=_runtime_fix(runtime, means),
            )
    for package in findings.packages:
        if package.name in _DECODING:
            # What brings a runtime brings it too; one that is there must not get another on top.
            is_brought = package.state == "missing" and not runtime.copies
            fix = f"{means.pip} install 'edgeprof[cpu]'" if is_brought else package.fix
            yield from _unusable(structs.replace(package, fix=fix))


def _runtime_fix(runtime: Runtime, means: Means) -> str | None:
    """What mends one that fails; of several in one place, one has to be chosen first, and one for
    a GPU that a JetPack has an index of its own for is had from there."""
    if runtime.needs_numpy:
        return f"{means.pip} install 'numpy{runtime.needs_numpy}'"
    has_own_index = means.stack is not None and bool(means.stack.commands)
    if are_several(runtime) or (runtime.package != CPU_ONLY and has_own_index):
        return None
    return f"{means.pip} install --force-reinstall --no-deps {runtime.package or CPU_ONLY}"


def are_several(runtime: Runtime) -> bool:
    return len({copy.package for copy in runtime.copies}) > 1


def _disk(findings: Findings) -> Iterator[Blocker]:
    for disk in findings.disks:
        if disk.free_bytes is not None and disk.free_bytes < _LEAST_DISK_BYTES:
            reason = (
                f"{disk.path}: {disk.free_bytes >> 20} MiB are free, too little for {disk.purpose}"
            )
            yield Blocker(reason=reason, fix=None)


def _no_signal(findings: Findings) -> Iterator[Blocker]:
    if not any(signal.state == "ok" for signal in findings.signals):
        yield Blocker(reason="no source gives a signal that can be believed", fix=None)


def _one_core(means: Means) -> Iterator[str]:
    if means.cores < 2:
        yield (
            "this process may use one core, on which target and antagonist take turns: most of what"
            " they cost each other is that core, not the memory bus"
        )


def _measuring_limits(findings: Findings) -> Iterator[str]:
    """What the figures of any job will lack."""
    board = findings.board
    for signal in findings.signals:
        if signal.name in (EMC, "power_w") and signal.state != "ok":
            what = "no measured memory bandwidth" if signal.name == EMC else "no energy"
            yield f"{what}: {signal.reason}"
    free = [clock.part for clock in board.clocks if not clock.pinned]
    if board.kind == "board" and free:
        yield f"clocks move ({', '.join(free)}): figures of two runs may differ by them"
    elif board.kind == "board" and not board.clocks:
        yield "whether clocks are pinned cannot be read"
    yield from board.warnings
    for disk in findings.disks:
        if not disk.path:
            yield f"no folder for {disk.purpose} is known: {disk.purpose} need a path"
        elif not disk.writable:
            yield f"{disk.path} is not writable: choose another for {disk.purpose}"


def _running_limits(findings: Findings, means: Means) -> Iterator[str]:
    """What running models will lack."""
    runtime, memory, stack = findings.onnxruntime, findings.memory, means.stack
    if findings.board.kind == "board" and stack is not None and not gpu_works(findings):
        about = f"{stack.source}; {stack.checked}"
        yield f"the GPU on JetPack {stack.jetpack}: {stack.advice} ({about})"
    if missing := missing_libraries(findings, stack):
        yield f"not installed, of what comes with JetPack: {', '.join(missing)}"
    yield from _other_cuda(findings, stack)
    yield from runtime.warnings
    if runtime.gpu is not None and runtime.gpu.reason is not None:
        yield f"no decoding on the GPU: {runtime.gpu.reason}"
    for provider in runtime.providers:
        if provider.name != "cpu" and not provider.usable:
            yield f"provider {provider.name} is not usable: {provider.reason}"
    if runtime.needs_numpy:
        yield f"the wheel of onnxruntime needs numpy{runtime.needs_numpy}"
    if memory.available_bytes is not None and memory.available_bytes < _LITTLE_MEMORY_BYTES:
        yield f"{memory.available_bytes >> 20} MiB of memory are available"
    if memory.zram_bytes:
        yield "swap lies in memory (zram): a run that swaps takes memory and processors from itself"


def missing_libraries(findings: Findings, stack: Stack | None) -> list[str]:
    """Of those that the board's JetPack brings, where it can be told: an image may come without."""
    if findings.board.kind != "board" or findings.container is not None or stack is None:
        return []
    there = {one.name for one in findings.libraries}
    return [f"{name} {one}" for name, one in stack.libraries.items() if name not in there]


def _other_cuda(findings: Findings, stack: Stack | None) -> Iterator[str]:
    """A wheel looks for the libraries of the CUDA that it was built for, by its first number."""
    built = findings.onnxruntime.built_for_cuda
    brought = None if stack is None else stack.cuda
    here = next((one.version for one in findings.libraries if one.name == "CUDA"), brought)
    if built and here and built.partition(".")[0] != here.partition(".")[0]:
        yield f"onnxruntime was built for CUDA {built}, and this machine has CUDA {here}"


def gpu_works(findings: Findings) -> bool:
    return any(one.name == "cuda" and one.usable for one in findings.onnxruntime.providers)
