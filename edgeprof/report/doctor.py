"""Shows a diagnosis: one page for a terminal, a block to paste, or the document for a program."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from edgeprof.diagnosis import (
    Board,
    Diagnosis,
    Findings,
    Jtop,
    Memory,
    Package,
    Python,
    Runtime,
    SignalFinding,
)
from edgeprof.report.printable import printable
from edgeprof.report.sections import Section, as_markdown, as_text
from edgeprof.report.signal_words import shown
from edgeprof.report.table import Table, fold, key_values
from edgeprof.units import show, show_gib

_NONE = "-"
_NOT_KNOWN = "not known"
_FAMILIES = ("temp_c", "cooling_state", "throttle_events")
_WINDOWS = {"boxcar": "mean", "exponential": "running avg", "instantaneous": "now"}


def doctor_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """SI units in the keys, unknown is null; what was asked about stands first."""
    asked = diagnosis.asked
    return {
        "schema": diagnosis.schema,
        "created_utc": diagnosis.created_utc,
        "edgeprof_version": diagnosis.edgeprof_version,
        "job": diagnosis.job,
        "possible": asked.possible,
        "blocking": asked.blocking,
        "limits": asked.limits,
        "next_steps": diagnosis.next_steps,
        "jobs": diagnosis.jobs,
        **structs.asdict(diagnosis.findings),
    }


def doctor_text(diagnosis: Diagnosis, width: int) -> str:
    """One page. Commands are not folded, so that they can be copied."""
    page = as_text(_sections(diagnosis), width)
    lines = []
    for number, step in enumerate(diagnosis.next_steps, 1):
        lines += [f"{number}. {printable(step.command)}", fold(f"   {printable(step.why)}", width)]
    if not lines:
        possible = diagnosis.asked.possible
        lines = [
            "nothing: all is as it should be" if possible else "no command mends it: see above"
        ]
    return "\n".join([page, "", "What to do next", *lines])


def doctor_markdown(diagnosis: Diagnosis, home: str | None) -> str:
    """For an issue: folded away, without the name of the machine or its user's folder."""
    page = as_markdown(_sections(diagnosis)).replace("# ", "### ", 1).replace("\n## ", "\n#### ")
    steps = [
        f"# {' '.join(printable(step.why).split())}\n{printable(step.command)}"
        for step in diagnosis.next_steps
    ]
    commands = "\n".join(["#### What to do next", "", "```sh", *steps, "```"]) if steps else ""
    text = f"{page}\n\n{commands}".rstrip()
    if not home or home == "/":
        return text
    # Not the beginning of another's: /home/al in /home/alice. A shell takes no ~ between quotes.
    named = re.escape(home.rstrip("/"))
    return re.sub(rf"{named}(?![\w.-])", "~", re.sub(rf"'{named}/", "~/'", text))


def _sections(diagnosis: Diagnosis) -> Iterator[Section]:
    findings = diagnosis.findings
    yield Section(_title(diagnosis), [_verdict(diagnosis)])
    yield Section("Board", [_board(findings.board, findings.root)])
    yield from _signals(findings.signals, findings.board.kind == "board")
    yield Section("Software" if findings.machine_is_root else "Software of this machine", [
        _software(findings.python, findings.packages, findings.onnxruntime)
    ])  # fmt: skip
    yield Section("Memory, disk, other software", [_machine(findings)])
    yield Section("Jobs", list(_jobs(diagnosis)))


def _title(diagnosis: Diagnosis) -> str:
    board = diagnosis.findings.board
    name = board.device or board.model or "this machine"
    return f"edgeprof {diagnosis.edgeprof_version} doctor: {name}, {diagnosis.created_utc}"


def _verdict(diagnosis: Diagnosis) -> str:
    asked = diagnosis.asked
    if asked.possible:
        return f"{asked.job}: possible"
    reasons = [f"{asked.job}: not possible: {one.reason}" for one in asked.blocking]
    return "\n".join(reasons)


def _board(board: Board, root: str) -> str:
    software = [f"L4T {board.l4t}"] if board.l4t else []
    if board.l4t or board.jetpack:
        software.append(f"JetPack {board.jetpack or _NOT_KNOWN}")
    mode = board.power_mode or _NOT_KNOWN
    if board.power_mode and not board.power_mode_is_set and board.confidence != "named":
        mode += " (the default; nothing says that another is set)"
    peak, gpu = board.peak_bandwidth_bytes_per_s, board.gpu_architecture
    is_board = board.kind == "board"
    return key_values(
        ("root", "device", "model", "software", "power mode", "clocks", "peak", "GPU", "warning"),
        (
            "" if root == "/" else f"{root} (what is read there is marked simulated)",
            _device(board),
            board.model or "",
            ", ".join(software),
            mode if is_board else "",
            _clocks(board) if is_board else "",
            f"{show(peak, 'B/s')} of memory bandwidth" if peak else "",
            f"sm_{gpu}" if gpu else "",
            "; ".join(board.warnings),
        ),
    )


def _device(board: Board) -> str:
    if board.device is not None:
        return f"{board.device} (confidence: {board.confidence})"
    if board.candidates:
        return f"{' or '.join(board.candidates)}: not sure; name it with --device"
    return "no Jetson board that edgeprof knows"


def _clocks(board: Board) -> str:
    parts = [
        f"{clock.part} pinned at {show(clock.high_hz, 'Hz')}"
        if clock.pinned
        else f"{clock.part} free, {show(clock.low_hz, 'Hz')} to {show(clock.high_hz, 'Hz')}"
        for clock in board.clocks
    ]
    known = {clock.part for clock in board.clocks}
    parts += [f"{part} {_NOT_KNOWN}" for part in ("memory", "GPU", "CPU") if part not in known]
    return "; ".join(parts)


def _signals(signals: Sequence[SignalFinding], is_board: bool) -> Iterator[Section]:
    """Those that are served, each with what it shows; then where they are read; then the rest."""
    served = [signal for signal in signals if signal.state != "absent"]
    grouped = list(_groups(served))
    simulated = " (simulated)" if any(s.quality == "simulated" for s in served) else ""
    parts: list[str | Table] = []
    if grouped:
        headers = ("signal", "state", "value", "source", "permission", "read in", "window")
        parts.append(Table(headers, [_row(name, group) for name, group in grouped], left=5))
    parts += _joined([f"{s.name} suspect: {s.reason}" for s in served if s.state == "suspect"])
    parts += _joined(_paths(grouped))
    yield Section(f"Signals{simulated}", parts)
    absent = [signal for signal in signals if signal.state == "absent"]
    if absent and is_board:
        yield Section("Not there", _joined(_absent(absent)))
    elif absent:
        names = ", ".join(signal.name for signal in absent)
        yield Section("", [f"No Jetson sensors here: {names} are absent (--json has the reasons)."])


def _groups(served: Sequence[SignalFinding]) -> Iterator[tuple[str, list[SignalFinding]]]:
    """Every signal, and the many of a family of which no single one matters in one row."""
    families: dict[str, list[SignalFinding]] = {}
    for signal in served:
        family = signal.name.partition(".")[0]
        alone = family not in _FAMILIES or signal.state != "ok"
        families.setdefault(signal.name if alone else family, []).append(signal)
    for name, group in families.items():
        yield (name if len(group) == 1 and "." in name else _plural(name, group)), group


def _plural(name: str, group: Sequence[SignalFinding]) -> str:
    return f"{name}.* ({len(group)})" if name in _FAMILIES else name


def _row(name: str, group: Sequence[SignalFinding]) -> Sequence[str]:
    first = group[0]
    values = sorted(signal.value for signal in group if signal.value is not None)
    ends = [shown(first.name, value) for value in dict.fromkeys((values[0], values[-1]))]
    reads = [signal.read_latency_s for signal in group if signal.read_latency_s is not None]
    return (
        name,
        first.state,
        " to ".join([ends[0].partition(" ")[0], *ends[1:]]) if len(ends) > 1 else ends[0],
        first.source or _NONE,
        first.permission or _NONE,
        show(max(reads), "s", 2) if reads else _NONE,
        _window(first),
    )


def _paths(grouped: Sequence[tuple[str, Sequence[SignalFinding]]]) -> list[str]:
    """What is read, and for which signals."""
    by_path: dict[str, list[str]] = {}
    for name, group in grouped:
        paths = [signal.path for signal in group if signal.path]
        if paths:
            where = paths[0] if len(paths) == 1 else f"{os.path.commonpath(paths)}/*"
            by_path.setdefault(where, []).append(name)
    return [f"{path}: {', '.join(names)}" for path, names in by_path.items()]


def _absent(signals: Sequence[SignalFinding]) -> list[str]:
    """One line for all that is absent for one reason."""
    reasons: dict[tuple[str | None, str | None], list[str]] = {}
    for signal in signals:
        reasons.setdefault((signal.reason, signal.fix), []).append(signal.name)
    return [
        f"{', '.join(names)}: absent: {reason}" + (f" -> {fix}" if fix else "")
        for (reason, fix), names in reasons.items()
    ]


def _joined(lines: Sequence[str]) -> list[str]:
    return ["\n".join(lines)] if lines else []


def _window(signal: SignalFinding) -> str:
    kind = _WINDOWS.get(signal.window_kind or "")
    if kind is None:
        return _NOT_KNOWN
    basis = f", {signal.window_basis}" if signal.window_basis not in (None, "documented") else ""
    if signal.window_s is None:
        return f"{kind}, ? s" if signal.window_kind == "exponential" else kind
    return f"{show(signal.window_s, 's', 2)} {kind}{basis}"


def _software(python: Python, packages: Sequence[Package], runtime: Runtime) -> str:
    there = [f"{one.name} {one.version}" for one in packages if one.state == "ok"]
    lines = [
        f"Python {python.version} on {python.machine}: {python.executable}"
        + (" (virtual environment)" if python.virtual_environment else ""),
        _script(python),
        f"packages: {', '.join(there) or 'none'}",
    ]
    lines += [
        f"{one.name} {one.version or ''} {one.state}: {one.reason}"
        + (f" -> {one.fix}" if one.fix else "")
        for one in packages
        if one.state == "broken" or (one.state == "missing" and one.needed_for == "core")
    ]
    missing = [p.name for p in packages if p.state == "missing" and p.needed_for == "run"]
    if missing:
        lines.append(f"not installed, needed to run models: {', '.join(missing)}")
    return "\n".join([*lines, *_runtime(runtime)])


def _script(python: Python) -> str:
    module = f"`{shlex.quote(python.executable)} -m edgeprof`"
    if python.script is None:
        script = f"the script edgeprof is nowhere: {module} does the same"
    elif python.script_on_path:
        script = f"script: {python.script}"
    else:
        folder = python.script.rpartition("/")[0]
        script = (
            f"script: {python.script}, not on PATH: {module} does the same, or"
            f' export PATH="{folder}:$PATH"'
        )
    if python.runs_as == "sudo":
        script += (
            "\nrun by sudo, which is never needed; to keep the environment: sudo -E env"
            ' "PATH=$PATH" edgeprof ...; files that are root\'s by now: sudo chown "$USER": FILE'
        )
    return script


def _runtime(runtime: Runtime) -> Iterator[str]:
    if not runtime.copies and runtime.package is None:
        yield "onnxruntime: not installed"
        return
    for copy in runtime.copies:
        charge = ", in charge" if copy.in_charge else ""
        yield f"{copy.package} {copy.version}{charge}: {copy.location}"
    if runtime.built_for_cuda:
        yield f"built for CUDA {runtime.built_for_cuda}"
    for provider in runtime.providers:
        word = (
            "an operator came back right" if provider.usable else f"not usable: {provider.reason}"
        )
        yield f"provider {provider.name}: {word}"
    if runtime.gpu is not None:
        code = [f"sm_{number}" for number in runtime.gpu.architectures]
        code += [f"compute_{number} (PTX)" for number in runtime.gpu.ptx_architectures]
        yield f"GPU code in {runtime.gpu.library}: {', '.join(code)}"
        if runtime.gpu.reason is not None:
            yield runtime.gpu.reason
    yield from runtime.warnings


def _machine(findings: Findings) -> str:
    lines = [_memory(findings.memory)]
    for disk in findings.disks:
        state = "" if disk.writable else ", not writable"
        free = f"{show_gib(disk.free_bytes)} free{state}: {disk.path}"
        lines.append(f"disk for {disk.purpose}: {free if disk.path else 'no folder is known'}")
    libraries = [f"{one.name} {one.version} ({one.file})" for one in findings.libraries]
    lines.append(f"libraries: {', '.join(libraries) or 'no CUDA, cuDNN or TensorRT found'}")
    lines += _jtop(findings.jtop)
    container = findings.container
    if container is None:
        lines.append("container: this is none, as far as can be seen")
    else:
        lines.append(f"container: {container.kind}")
        lines += [
            f"docker run {mount.options}   gives {mount.brings}" for mount in container.missing
        ]
    return "\n".join(lines)


def _memory(memory: Memory) -> str:
    parts = [f"{show_gib(memory.available_bytes)} of {show_gib(memory.total_bytes)} available"]
    if memory.largest_free_block_bytes is not None:
        size = memory.largest_free_block_bytes
        parts.append(f"largest free blocks {memory.largest_free_blocks} x {size / 2**20:g} MiB")
    swap = f"swap {show_gib(memory.swap_used_bytes)} of {show_gib(memory.swap_total_bytes)}"
    parts.append(
        swap + (f", {show_gib(memory.zram_bytes)} of it zram" if memory.zram_bytes else "")
    )
    return f"memory: {'; '.join(parts)}"


def _jtop(jtop: Jtop) -> Iterator[str]:
    """Every copy; of none of them anything is needed."""
    for copy in jtop.copies:
        script = f", {copy.script}" if copy.script else ""
        yield f"jetson-stats {copy.version}: {copy.folder}{script}"
    if jtop.service_unit is not None:
        version = jtop.service_version or "version not known"
        yield f"jtop service ({version}): {jtop.service_unit}: {jtop.service_command or _NONE}"
    if jtop.socket is not None:
        yield f"jtop socket: {jtop.socket} {jtop.socket_permission}"
    if jtop.reason is not None:
        yield f"jtop: {jtop.reason}" + (f" -> {jtop.fix}" if jtop.fix else "")
    elif not jtop.copies and jtop.service_unit is None:
        yield "jetson-stats: not installed, and not needed"


def _jobs(diagnosis: Diagnosis) -> Iterator[str | Table]:
    rows = [
        (
            job.job,
            "yes" if job.possible else "no",
            "; ".join(one.reason for one in job.blocking) or _NONE,
        )
        for job in diagnosis.jobs
    ]
    yield Table(("job", "possible", "what is in the way"), rows, left=3)
    if diagnosis.asked.limits:
        yield "\n".join(f"limit: {limit}" for limit in diagnosis.asked.limits)
