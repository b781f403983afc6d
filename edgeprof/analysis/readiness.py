"""Whether a job can be done with what was found, what keeps it from being done, and what to do
next, in which order. Looks at nothing itself.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from edgeprof.diagnosis import (
    JOBS,
    Blocker,
    Findings,
    Job,
    JobFinding,
    Package,
    Runtime,
    RuntimeCopy,
    Step,
)
from edgeprof.hardware.jetpack import Stack

_LEAST_DISK_BYTES = 64 << 20
_LITTLE_MEMORY_BYTES = 512 << 20
# The packages without which a job cannot be done; matplotlib only draws.
_WATCHING = ("click", "msgspec", "psutil", "platformdirs")
_RUNNING = (*_WATCHING, "numpy")
_DECODING = ("onnx", "tokenizers")
_CPU_ONLY = "onnxruntime"
_EMC = "dram_bandwidth_bytes_per_s"
_SENSOR = "edgeprof sensor"  # how a remedy that is the sensor begins


class Means(Struct, frozen=True, kw_only=True):
    """The commands of this machine: its pip and Python, and the line that starts the sensor, None
    for root, who needs none. ``stack`` is what is known of the board's JetPack."""

    pip: str
    python: str
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
    blocking = {
        "watch": [*_core(findings, _WATCHING), *_no_signal(findings)],
        "run": [*_core(findings, _RUNNING), *_runner(findings, means), *_disk(findings)],
    }
    blocking["contend"] = [*blocking["run"], *_no_rival(means)]
    measuring = list(_measuring_limits(findings))
    running = [*measuring, *_running_limits(findings, means)]
    return [
        JobFinding(
            job=job,
            possible=not blocking[job],
            blocking=blocking[job],
            limits=measuring if job == "watch" else running,
        )
        for job in JOBS
    ]


def next_steps(
    findings: Findings, jobs: Sequence[JobFinding], asked: Job, means: Means
) -> list[Step]:
    """What is in the way of the job first, then what the figures lack, then the job itself."""
    found = next(job for job in jobs if job.job == asked)
    steps = [Step(command=one.fix, why=one.reason) for one in found.blocking if one.fix]
    if asked != "watch":
        steps += _cleaner_runtime(findings, means)
    steps += _numpy(findings, means)
    steps += _board_steps(findings, means)
    if found.possible:
        steps.append(_go(findings, asked))
    run = next(job for job in jobs if job.job == "run")
    if asked == "watch":
        steps += [
            Step(command=one.fix, why=f"to run models too: {one.reason}")
            for one in run.blocking
            if one.fix
        ]
    firsts = {step.command: step for step in reversed(steps)}
    return [firsts[command] for command in dict.fromkeys(step.command for step in steps)]


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
    yield from _core(findings, _DECODING)


def _runtime_fix(runtime: Runtime, means: Means) -> str | None:
    """What mends one that fails; of several in one place, one has to be chosen first."""
    if runtime.needs_numpy:
        return f"{means.pip} install 'numpy{runtime.needs_numpy}'"
    if _are_several(runtime):
        return None
    return f"{means.pip} install --force-reinstall --no-deps {runtime.package or _CPU_ONLY}"


def _are_several(runtime: Runtime) -> bool:
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


def _no_rival(means: Means) -> Iterator[Blocker]:
    if means.cores < 2:
        reason = "contention needs a second core for the antagonist, and this process may use one"
        yield Blocker(reason=reason, fix=None)


def _measuring_limits(findings: Findings) -> Iterator[str]:
    """What the figures of any job will lack."""
    board = findings.board
    for signal in findings.signals:
        if signal.name in (_EMC, "power_w") and signal.state != "ok":
            what = "no measured memory bandwidth" if signal.name == _EMC else "no energy"
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
    if findings.board.kind == "board" and stack is not None and not _gpu_works(findings):
        about = f"{stack.source}; {stack.checked}"
        yield f"the GPU on JetPack {stack.jetpack}: {stack.advice} ({about})"
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


def _cleaner_runtime(findings: Findings, means: Means) -> Iterator[Step]:
    """One ONNX Runtime, and on a board one with kernels for its GPU, as far as there is one."""
    runtime, board, stack = findings.onnxruntime, findings.board, means.stack
    lacks_gpu = board.kind == "board" and runtime.copies and not _gpu_works(findings)
    if lacks_gpu and stack is not None and stack.commands and _python_fits(findings, stack):
        for command in stack.commands:
            why = f"the GPU: {stack.advice} ({stack.source}; {stack.checked})"
            yield Step(command=command.replace("{pip}", means.pip), why=why)
    elif _are_several(runtime):
        names = sorted({copy.package for copy in runtime.copies})
        keep = _to_keep(runtime.copies)
        why = "they are one module, and the files of one lie over those of the other"
        yield Step(command=f"{means.pip} uninstall -y {' '.join(names)}", why=why)
        instead = "; `onnxruntime` instead for the CPU alone" if keep.package != _CPU_ONLY else ""
        yield Step(
            command=f"{means.pip} install {keep.package}=={keep.version}",
            why=f"only {keep.package}, whose files are whole then{instead}",
        )


def _to_keep(copies: Sequence[RuntimeCopy]) -> RuntimeCopy:
    """One for a GPU, unless it is known to have no code for the one that is here."""
    with_gpu = [one for one in copies if one.package != _CPU_ONLY and not one.lacks_gpu]
    on_cpu = [one for one in copies if one.package == _CPU_ONLY]
    return [*with_gpu, *on_cpu, *copies][0]


def _gpu_works(findings: Findings) -> bool:
    return any(one.name == "cuda" and one.usable for one in findings.onnxruntime.providers)


def _python_fits(findings: Findings, stack: Stack) -> bool:
    return findings.machine_is_root and findings.python.version.startswith(f"{stack.python}.")


def _numpy(findings: Findings, means: Means) -> Iterator[Step]:
    limit = findings.onnxruntime.needs_numpy
    if limit is not None:
        why = f"{findings.onnxruntime.package} was built against it"
        yield Step(command=f"{means.pip} install 'numpy{limit}'", why=why)


def _board_steps(findings: Findings, means: Means) -> Iterator[Step]:
    """What the figures would gain from."""
    jtop = findings.jtop
    mounts = [] if findings.container is None else findings.container.missing
    if mounts:
        options = " ".join(mount.options for mount in mounts)
        brings = "; ".join(mount.brings for mount in mounts)
        yield Step(command=f"docker run {options} IMAGE", why=f"on the host, for {brings}")
    for signal in findings.signals:
        # Of a machine that is no board nothing mends it, and in a container only its options do.
        if signal.name == _EMC and signal.fix and findings.board.kind == "board" and not mounts:
            # A sensor lends the files of its own machine.
            sensor = means.sensor if findings.machine_is_root else None
            is_sensor = signal.fix.startswith(_SENSOR) and sensor is not None
            command = sensor if is_sensor and sensor else signal.fix
            yield Step(command=command, why=f"memory bandwidth: {signal.reason}")
    free = [clock.part for clock in findings.board.clocks if not clock.pinned]
    if findings.board.kind == "board" and free:
        why = f"pins {', '.join(free)} until the next start; edgeprof never does it by itself"
        yield Step(command="sudo jetson_clocks", why=why)
    if jtop.fix is not None and jtop.reason is not None and not mounts:
        yield Step(command=jtop.fix, why=f"jtop, which is not needed: {jtop.reason}")


def _go(findings: Findings, job: Job) -> Step:
    python = findings.python
    name = "edgeprof" if python.script_on_path else "python -m edgeprof"
    if job == "watch":
        return Step(command=f"{name} watch", why="the board, live")
    if job == "contend":
        return Step(
            command=f"{name} contend smollm2-135m", why="what draft and target do to each other"
        )
    return Step(command=f"{name} run smollm2-135m", why="a first session, of a small model")
