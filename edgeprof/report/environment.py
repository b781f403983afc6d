"""On what a session was measured, as a table: every value, or why it is not there."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from edgeprof.analysis.caveats import OBSERVED_KINDS
from edgeprof.analysis.recorded import missing
from edgeprof.analysis.summary import Summary
from edgeprof.report.table import Table
from edgeprof.units import show

_MOST_NAMES = 3
_OF_THE_HOST = ", of the host that emulated"


class _Row(NamedTuple):
    """``value`` is why there is none where ``is_known`` is false."""

    name: str
    value: str
    is_known: bool = True


def environment_table(summary: Summary) -> Table:
    """What a reader needs to judge and repeat the figures; what lacks for one reason in one row."""
    rows = list(_rows(summary))
    lacking: dict[str, list[str]] = {}
    for row in rows:
        if not row.is_known:
            lacking.setdefault(row.value, []).append(row.name)
    shown = [
        (row.name, row.value) if row.is_known else _lacking(lacking.pop(row.value), row.value)
        for row in rows
        if row.is_known or row.value in lacking
    ]
    return Table(("", ""), shown, left=2)


def _lacking(names: list[str], why: str) -> tuple[str, str]:
    """A few names head their row; many, which would make all rows wide, are in it."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names), why
    what, _, reason = why.partition(": ")
    return what, f"{', '.join(names)}: {reason}"


def _rows(summary: Summary) -> Iterator[_Row]:
    session, device, kind = summary.session, summary.device, summary.session.kind
    yield _row("board" if device.get("kind") != "host" else "host", device, "name", kind)
    for name, key in (("L4T", "l4t"), ("power mode", "power_mode"), ("clocks", "clocks")):
        yield _row(name, device, key, kind)
    yield from _machine_rows(summary)
    if kind not in OBSERVED_KINDS:
        yield from _software_rows(summary)
    if kind not in (*OBSERVED_KINDS, "contend"):
        yield from _answer_rows(summary)
    if kind not in OBSERVED_KINDS:
        yield _or_why("load time", _loads(summary), "no model was loaded")
    yield _Row("edgeprof", session.edgeprof_version)
    yield _or_why("temperatures", _temperatures(summary), "no sensor was read")
    yield _Row("session", f"{session.id}, {session.created_utc}")


def _machine_rows(summary: Summary) -> Iterator[_Row]:
    """An emulated board has its own processor; what runs edgeprof is the host's."""
    values, kind = summary.environment, summary.session.kind
    whose = _OF_THE_HOST if summary.session.samples.get("simulated") else ""
    yield _row("CPU", values, "cpu", kind)
    yield _row("cores", values, "cores", kind, whose)
    yield _bytes_row("memory", values, "memory_bytes", kind, whose)
    yield _bytes_row("last-level cache", values, "last_level_cache_bytes", kind)
    yield _row("platform", values, "platform", kind, whose)


def _software_rows(summary: Summary) -> Iterator[_Row]:
    """What only matters where edgeprof itself decoded."""
    values, kind = summary.environment, summary.session.kind
    for name, key in (("ONNX Runtime", "onnxruntime"), ("Python", "python"), ("numpy", "numpy")):
        yield _row(name, values, key, kind)
    yield _row("recipe", summary.session.recipe, "name", kind)


def _answer_rows(summary: Summary) -> Iterator[_Row]:
    """What only matters where prompts were answered."""
    recipe, kind = summary.session.recipe, summary.session.kind
    yield _or_why("prompts", _prompts(summary.session.prompts), "no prompt was answered")
    yield _Row("draft lengths K", _draft_lengths(summary))
    yield _row("new tokens", recipe, "new_tokens", kind)
    yield _row("seed", recipe, "seed", kind)
    yield _or_why("sampling", _sampling(recipe.get("sampling")), "this session does not hold it")


def _row(name: str, values: Mapping[str, Any], key: str, kind: str, whose: str = "") -> _Row:
    why = missing(values, key, kind)
    return _Row(name + whose, str(values[key])) if why is None else _Row(name, why, False)


def _bytes_row(name: str, values: Mapping[str, Any], key: str, kind: str, whose: str = "") -> _Row:
    value = values.get(key)
    if not isinstance(value, int | float):
        return _row(name, values, key, kind, whose)
    large = value >= 2**30
    shown = f"{value / 2**30:.1f} GiB" if large else f"{value / 2**20:.0f} MiB"
    return _Row(name + whose, shown)


def _or_why(name: str, value: str, why: str) -> _Row:
    return _Row(name, value) if value else _Row(name, f"not recorded: {why}", False)


def _draft_lengths(summary: Summary) -> str:
    """Of every variant that drafts a fixed number of tokens."""
    lengths = {
        leg.variant: leg.draft_tokens for leg in summary.legs if leg.draft_tokens is not None
    }
    return ", ".join(f"{variant}: {k}" for variant, k in lengths.items()) or "none"


def _temperatures(summary: Summary) -> str:
    """Start, end and highest of every zone over the session."""
    zones = [
        f"{zone.zone} {zone.start_c:.0f} to {zone.end_c:.0f} °C, at most {zone.highest_c:.0f}"
        for zone in summary.temperatures
    ]
    return "; ".join(zones)


def _prompts(prompts: list[dict[str, Any]]) -> str:
    """How many of which kind, and one digest of all: enough to see whether two runs share them."""
    if not prompts:
        return ""
    kinds = Counter(str(prompt["kind"]) for prompt in prompts)
    listed = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
    joined = "\n".join(sorted(str(prompt["sha256"]) for prompt in prompts))
    digest = hashlib.sha256(joined.encode()).hexdigest()
    return f"{len(prompts)} ({listed}), digest {digest[:12]}"


def _loads(summary: Summary) -> str:
    """Cold is read from disk, warm from the memory that held the file already."""
    loads = [
        f"{load.model} {show(load.load_s, 's')} ({load.start or 'cold or warm not known'})"
        for load in summary.loads
    ]
    return "; ".join(loads)


def _sampling(rule: Any) -> str:
    """What the recipe says of choosing tokens; at temperature 0 only that."""
    if not isinstance(rule, dict):
        return ""
    if rule.get("temperature") == 0:
        return "greedy"
    keys = ("temperature", "top_k", "top_p", "min_p")
    return ", ".join(f"{key.replace('_', '-')} {_rule(rule, key)}" for key in keys)


def _rule(rule: Mapping[str, Any], key: str) -> str:
    """A rule that is not set takes no part in choosing."""
    value = rule.get(key)
    return "off" if value is None else str(value)
