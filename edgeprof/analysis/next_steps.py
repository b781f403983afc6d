"""What to do next with what was found, in which order, one command each. Looks at nothing."""

import shlex
from collections.abc import Iterator, Sequence

from edgeprof.analysis.readiness import (
    CPU_ONLY,
    EMC,
    Means,
    are_several,
    gpu_works,
    missing_libraries,
)
from edgeprof.diagnosis import Findings, Job, JobFinding, RuntimeCopy, SignalFinding, Step
from edgeprof.hardware.jetpack import Stack

_SENSOR = "edgeprof sensor"
_COUNTERS = {EMC: "memory bandwidth", "emc_clock_hz": "memory clock"}
# Remedies that are more than a command have one of these in them.
_WITHIN_WORDS = (_SENSOR, "edgeprof devices")


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
        steps.append(_go(findings, asked, means))
    run = next(job for job in jobs if job.job == "run")
    if asked == "watch":
        steps += [
            Step(command=one.fix, why=f"to run models too: {one.reason}")
            for one in run.blocking
            if one.fix
        ]
    firsts = {step.command: step for step in reversed(steps)}
    return [firsts[command] for command in dict.fromkeys(step.command for step in steps)]


def _cleaner_runtime(findings: Findings, means: Means) -> Iterator[Step]:
    """One ONNX Runtime, and on a board one with kernels for its GPU, as far as there is one."""
    runtime, board, stack = findings.onnxruntime, findings.board, means.stack
    lacks_gpu = board.kind == "board" and runtime.copies and not gpu_works(findings)
    if lacks_gpu and stack is not None and stack.commands and _python_fits(findings, stack):
        if missing := missing_libraries(findings, stack):
            why = f"brings what the GPU needs and is not installed: {', '.join(missing)}"
            yield Step(command="sudo apt-get install nvidia-jetpack", why=why)
        for command in stack.commands:
            why = f"the GPU: {stack.advice} ({stack.source}; {stack.checked})"
            yield Step(command=command.replace("{pip}", means.pip), why=why)
    elif are_several(runtime):
        names = sorted({copy.package for copy in runtime.copies})
        keep = _to_keep(runtime.copies)
        why = "they are one module, and the files of one lie over those of the other"
        yield Step(command=f"{means.pip} uninstall -y {' '.join(names)}", why=why)
        instead = "; `onnxruntime` instead for the CPU alone" if keep.package != CPU_ONLY else ""
        yield Step(
            command=f"{means.pip} install {keep.package}=={keep.version}",
            why=f"only {keep.package}, whose files are whole then{instead}",
        )


def _to_keep(copies: Sequence[RuntimeCopy]) -> RuntimeCopy:
    """One for a GPU, unless it is known to have no code for the one that is here."""
    with_gpu = [one for one in copies if one.package != CPU_ONLY and not one.lacks_gpu]
    on_cpu = [one for one in copies if one.package == CPU_ONLY]
    return [*with_gpu, *on_cpu, *copies][0]


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
        if (
            signal.name in _COUNTERS
            and signal.fix
            and findings.board.kind == "board"
            and not mounts
        ):
            yield _memory_counters(signal, signal.fix, findings, means)
    free = [clock.part for clock in findings.board.clocks if not clock.pinned]
    if findings.board.kind == "board" and free:
        why = f"pins {', '.join(free)} until the next start; edgeprof never does it by itself"
        yield Step(command="sudo jetson_clocks", why=why)
    for command in jtop.commands if findings.board.kind == "board" and not mounts else ():
        yield Step(command=command, why=f"jtop, which is not needed: {jtop.reason}")


def _memory_counters(signal: SignalFinding, fix: str, findings: Findings, means: Means) -> Step:
    why = f"{_COUNTERS[signal.name]}: {signal.reason}"
    command = next((name for name in _WITHIN_WORDS if name in fix), fix)
    # A sensor lends the files of its own machine.
    if command == _SENSOR and findings.machine_is_root and means.sensor is not None:
        return Step(command=means.sensor, why=why)
    words = "" if command == fix else f"; {fix}"
    return Step(command=_called(command, means), why=f"{why}{words}")


def _called(command: str, means: Means) -> str:
    """A command of edgeprof as it can be typed here."""
    name, _, arguments = command.partition(" ")
    return f"{means.edgeprof} {arguments}" if name == "edgeprof" else command


def _go(findings: Findings, job: Job, means: Means) -> Step:
    name = means.edgeprof
    if job == "watch":
        root = "" if findings.machine_is_root else f" --root {shlex.quote(findings.root)}"
        return Step(command=f"{name} watch{root}", why="the board, live")
    if job == "contend":
        return Step(
            command=f"{name} contend smollm2-135m", why="what draft and target do to each other"
        )
    return Step(command=f"{name} run smollm2-135m", why="a first session, of a small model")
