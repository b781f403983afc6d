"""Reads what verifying was measured to cost: from a CSV file, a recorded session or the profile of
a probe."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgeprof.errors import FileFault, UsageFault
from edgeprof.naming import unknown_name

TOKENS, COST = "n_tokens", "pass_cost_vs_1"
_LARGEST_BYTES = 1 << 20
_MOST_TOKENS = 1 << 16
_MOST_COST = 1e6
_SQLITE = b"SQLite format 3\0"


def read_verify_cost(path: Path, target: str | None = None) -> dict[int, float]:
    """v(n) by n. ``target`` names a model of a session, or a model or kernel of a probe's profile,
    that holds passes of several."""
    if path.suffix.lower() == ".toml":
        return _from_probe(path, target)
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
            rest = b"" if start == _SQLITE else file.read(_LARGEST_BYTES)
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read: {error.strerror}") from error
    if start == _SQLITE:
        return _from_session(path, target)
    if target is not None:
        raise UsageFault(f"{path}: --verify-target names a model of a session; this is none")
    if len(rest) == _LARGEST_BYTES:
        raise FileFault(f"{path}: larger than 1 MiB, which no table of pass costs is")
    try:
        text = (start + rest).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFault(f"{path}: neither a session nor text in UTF-8") from error
    return _from_csv(path, text)


def _from_probe(path: Path, target: str | None) -> dict[int, float]:
    """Of a model that was stacked, where there is one, else of a kernel."""
    from edgeprof.hardware.measured import read_measured

    profile = read_measured(path)
    models = {one.name: one.passes for one in profile.models}
    kernels = {one.label: one.passes for one in profile.kernels}
    known = models | kernels
    if not known:
        raise FileFault(f"{path}: the profile holds no passes of several rows")
    if target is None and len(models) == 1:
        target = next(iter(models))
    name = _chosen(path, target, known, "timed", "model or kernel")
    return _checked(path, {one.tokens: one.cost.value for one in known[name]})


def _chosen(
    path: Path, target: str | None, known: Mapping[str, object], how: str, what: str
) -> str:
    """The one that was asked for, or the only one."""
    if target is None and len(known) > 1:
        raise UsageFault(
            f"{path}: passes of {', '.join(known)} were {how}; choose one with --verify-target"
        )
    name = next(iter(known)) if target is None else target
    if name not in known:
        raise UsageFault(f"{path}: {unknown_name(what, name, known)}")
    return name


def _from_csv(path: Path, text: str) -> dict[int, float]:
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        columns = rows.fieldnames or []
        for wanted in (TOKENS, COST):
            if wanted not in columns:
                raise FileFault(
                    f"{path}: no column {wanted}; a table of pass costs has {TOKENS},{COST}"
                )
        costs = _collect(path, ((rows.line_num, row[TOKENS], row[COST]) for row in rows))
    except csv.Error as error:
        raise FileFault(f"{path}: line {rows.line_num}: not CSV: {error}") from error
    return _checked(path, costs)


def _collect(path: Path, cells: Iterable[tuple[int, str | None, str | None]]) -> dict[int, float]:
    costs: dict[int, float] = {}
    for line, tokens, cost in cells:
        size, value = _whole(tokens), _positive(cost)
        if size is None:
            raise FileFault(f"{path}: line {line}: {TOKENS} must be 1 to {_MOST_TOKENS}")
        if value is None:
            raise FileFault(f"{path}: line {line}: {COST} must be above 0, at most {_MOST_COST:g}")
        if size in costs:
            raise FileFault(
                f"{path}: line {line}: {TOKENS} {size} is there twice; keep the rows of one board,"
                " model and kernel"
            )
        costs[size] = value
    return costs


def _whole(cell: str | None) -> int | None:
    text = (cell or "").strip()
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        return None
    return int(text) if 1 <= int(text) <= _MOST_TOKENS else None


def _positive(cell: str | None) -> float | None:
    try:
        value = float((cell or "")[:40])
    except ValueError:
        return None
    return value if 0 < value <= _MOST_COST else None


def _from_session(path: Path, target: str | None) -> dict[int, float]:
    from edgeprof.analysis.summary import summarise
    from edgeprof.session.store import read_session

    found: dict[str, dict[int, float]] = {}
    for one in summarise(read_session(path)).verify_cost:
        if one.measured.value is not None:
            found.setdefault(one.target, {})[one.tokens] = one.measured.value
    if not found:
        raise FileFault(f"{path}: the session has no held passes of one token and of several")
    return _checked(path, found[_chosen(path, target, found, "held", "target with held passes")])


def _checked(path: Path, costs: dict[int, float]) -> dict[int, float]:
    if abs(costs.get(1, 1.0) - 1.0) > 1e-3:
        raise FileFault(f"{path}: {COST} of one token is {costs[1]:g}; costs are relative to it: 1")
    if max(costs, default=1) < 2:
        raise FileFault(f"{path}: no cost of a pass over 2 tokens or more")
    return costs
