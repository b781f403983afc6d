"""Sessions beside each other: ratios of what they share, and what differs where they ran.

The first session is the base. Answers to one prompt are paired across sessions; the interval of a
ratio is a bootstrap over prompts and, in each session by itself, over repeats, widened for few
answers. Document ``edgeprof.compare/1``.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from edgeprof.analysis.disturbance import left_out_legs
from edgeprof.analysis.recorded import missing, recorded
from edgeprof.analysis.statistics import bootstrap_interval, widening_for
from edgeprof.analysis.summary import Summary, VariantFigures, without_private
from edgeprof.analysis.synthetic import synthetic_runs
from edgeprof.analysis.thinning import Floats
from edgeprof.analysis.variants import Answer, VariantRuns, variants_of
from edgeprof.analysis.verdict import side_of_one
from edgeprof.quantity import Quantity
from edgeprof.session.records import Session

Finding = Literal["higher", "lower", "no difference beyond noise", "noise not known"]

# Another value in every run, or told as what must agree.
_VOLATILE = ("available_memory_bytes", "mem_available_bytes", "started", "time")
_SAMPLED = (
    "dram_bandwidth_bytes_per_s", "gpu_busy_frac", "cpu_busy_frac", "power_w.total",
    "power_w.module_sum",
)  # fmt: skip


class Cell(NamedTuple):
    """What one answer, or one synthetic test, adds to a rate: above over below the line."""

    above: float
    below: float


_LEAST_SHARED = 2  # prompts: of one alone nobody knows how much another would differ

Cells = Mapping[tuple[str, int], Sequence[Cell]]  # by prompt and repeat


class Conflict(Struct, frozen=True, kw_only=True):
    """What sessions must agree in before a ratio of theirs says something about a change."""

    what: str
    values: list[str]


class Difference(Struct, frozen=True, kw_only=True):
    """A setting or version that is not the same everywhere, session by session."""

    key: str
    values: list[Any]


class Ratio(Struct, frozen=True, kw_only=True):
    """A figure of one session over that of the base; ``finding`` says which way it went.

    ``paired`` is whether it is over the same ``prompts``, so many; ``prompts_left_out`` are those
    that one of the sessions did not answer, or not undisturbed.
    """

    name: str
    metric: str
    session: int
    base_value: float
    value: float
    ratio: Quantity
    paired: bool
    prompts: int | None
    prompts_left_out: int
    finding: Finding


class Across(Struct, frozen=True, kw_only=True):
    """The whole document. ``sessions`` are in the order asked for, the base first."""

    schema: str = "edgeprof.compare/1"
    sessions: list[dict[str, Any]]
    conflicts: list[Conflict]
    differences: list[Difference]
    ratios: list[Ratio]
    legs: list[dict[str, Any]]
    signals: list[dict[str, Any]]
    warnings: list[str]


def compare_sessions(sessions: Sequence[Session], summaries: Sequence[Summary]) -> Across:
    """Every later session against the first."""
    base, *others = map(_rates, sessions, summaries)
    return Across(
        sessions=[_head(summary) for summary in summaries],
        conflicts=conflicts_of(summaries),
        differences=_differences(summaries),
        ratios=[
            found
            for place, own in enumerate(others, start=1)
            for key in base
            if key in own and (found := _ratio(key, place, base[key], own[key])) is not None
        ],
        legs=[_leg(place, leg) for place, summary in enumerate(summaries) for leg in summary.legs],
        signals=list(_signals(summaries)),
        warnings=list(_warnings(summaries)),
    )


def conflicts_of(summaries: Sequence[Summary]) -> list[Conflict]:
    """Boards, power modes and, of models of one name, the digests of their files."""
    found = [
        ("board", [_text(summary.device.get("name")) for summary in summaries]),
        ("power mode", [_power_mode(summary) for summary in summaries]),
    ]
    names = dict.fromkeys(name for summary in summaries for name in summary.models)
    for name in names:
        records = [summary.models.get(name) for summary in summaries]
        digests = [_text(one.sha256) for one in records if one is not None]
        if len(digests) == len(summaries):
            found.append((f"model {name}", [digest[:12] for digest in digests]))
    return [Conflict(what=what, values=values) for what, values in found if len(set(values)) > 1]


def ratio_of(base: Cells, other: Cells, *, source: str) -> Quantity | None:
    """The rate of ``other`` over that of ``base``, a prompt counting as much as any other however
    often it was answered; prompts are drawn together where both have the same, each session's own
    repeats apart. None where one has nothing."""
    if not base or not other:
        return None
    paired = _prompts(base) == _prompts(other)
    ours = _Side(base, list(dict.fromkeys(prompt for prompt, _ in base)))
    theirs = _Side(other, ours.prompts if paired else list(dict.fromkeys(p for p, _ in other)))
    value = theirs.rate / ours.rate

    def draw(rng: random.Random) -> float:
        rows = ours.draw_prompts(rng)
        more_rows = rows if paired else theirs.draw_prompts(rng)
        means = ours.means(ours.draw_repeats(rng)), theirs.means(theirs.draw_repeats(rng))
        if paired:  # what was left out leaves cells empty: a prompt counts where both have it
            rows = more_rows = rows * ~np.isnan(means[0][0] + means[1][0])
        base_rate = _weighted_rate(means[0], rows)
        return _weighted_rate(means[1], more_rows) / base_rate if base_rate else value

    n = min(len(_all(base)), len(_all(other)))
    spread = (paired and len(ours.prompts) > 1) or (ours.varies and theirs.varies)
    low, high = bootstrap_interval(n, draw) if spread else (None, None)
    if value and low is not None and high is not None:  # few answers make percentiles too narrow
        wide = widening_for(n)
        low, high = value * (low / value) ** wide, value * (high / value) ** wide
    return Quantity(value=value, low=low, high=high, n=n, kind="measured", source=source)


class _Side:
    """One session's cells, prompts by repeats, ready to be drawn from."""

    def __init__(self, cells: Cells, prompts: Sequence[str]) -> None:
        self.prompts = list(prompts)
        self.repeats = list(dict.fromkeys(repeat for _, repeat in cells))
        self.varies = max(len(self.prompts), len(self.repeats)) > 1
        rows, columns = _places(self.prompts), _places(self.repeats)
        self._table = np.zeros((3, len(rows), len(columns)))  # above, below, and how many
        for (prompt, repeat), same in cells.items():
            for cell in same:
                self._table[:, rows[prompt], columns[repeat]] += (cell.above, cell.below, 1.0)

    @property
    def rate(self) -> float:
        means = self.means(np.ones(len(self.repeats)))
        return _weighted_rate(means, np.ones(len(self.prompts)))

    def draw_prompts(self, rng: random.Random) -> Floats:
        """How often each was drawn."""
        return _drawn(len(self.prompts), rng)

    def draw_repeats(self, rng: random.Random) -> Floats:
        return _drawn(len(self.repeats), rng)

    def means(self, repeats: Floats) -> Floats:
        """Of each prompt what is above and below the line, over its answers in repeats that count
        so often; NaN where it has none."""
        *sums, count = self._table @ repeats
        with np.errstate(invalid="ignore"):
            means: Floats = np.array(sums) / count
        return means


def _places(names: Sequence[Any]) -> dict[Any, int]:
    return {name: place for place, name in enumerate(names)}


def _drawn(count: int, rng: random.Random) -> Floats:
    return np.bincount(rng.choices(range(count), k=count), minlength=count).astype(float)


def _weighted_rate(means: Floats, weights: Floats) -> float:
    """0 where nothing was drawn that has an answer."""
    above, below = np.nan_to_num(means) @ (weights * ~np.isnan(means[0]))
    return float(above / below) if below else 0.0


class _Key(NamedTuple):
    """A figure that sessions may share."""

    name: str
    metric: str


def _rates(session: Session, summary: Summary) -> dict[_Key, Cells]:
    """Every figure of a session that has answers or repeats to draw from; what was disturbed counts
    where it does in the summary."""
    found: dict[_Key, Cells] = {}
    left_out = left_out_legs(summary.disturbed) if summary.disturbed_left_out else []
    for run in variants_of(session, left_out):
        found[_Key(run.name, "tokens_per_s")] = _cells(
            run, lambda answer: Cell(answer.decode_tokens, answer.decode_s or 0.0)
        )
        found[_Key(run.name, "ttft_s")] = _cells(run, _first_token)
    for test in synthetic_runs(session):
        found[_Key(f"{test.name} {test.target}", "tokens_per_s")] = {
            ("", repeat): [Cell(rate, 1.0)] for repeat, rate in enumerate(test.rates)
        }
    return found


def _cells(run: VariantRuns, cell: Callable[[Answer], Cell]) -> Cells:
    cells: dict[tuple[str, int], list[Cell]] = defaultdict(list)
    for answer in run.decoded:
        cells[answer.request.prompt_sha256, answer.repeat].append(cell(answer))
    return cells


def _first_token(answer: Answer) -> Cell:
    request = answer.request
    return Cell(((request.first_token_ns or request.t0_ns) - request.t0_ns) / 1e9, 1.0)


def _ratio(key: _Key, place: int, base: Cells, other: Cells) -> Ratio | None:
    if not base or not other:
        return None
    ours, theirs = _shared(base, other)
    base_value, value = (_Side(one, sorted(_prompts(one))).rate for one in (ours, theirs))
    if not base_value:
        return None
    prompts = len(_prompts(ours))
    paired = _prompts(ours) == _prompts(theirs)
    how = f"over {prompts} prompts of both" if paired else "each over its own prompts"
    source = f"{key.metric} over the base's, {how}; 95 % bootstrap over prompts and repeats"
    ratio = ratio_of(ours, theirs, source=source)
    if ratio is None:
        return None
    return Ratio(
        name=key.name,
        metric=key.metric,
        session=place,
        base_value=base_value,
        value=value,
        ratio=ratio,
        paired=paired,
        prompts=prompts if paired else None,
        prompts_left_out=len(_prompts(base) | _prompts(other)) - prompts if paired else 0,
        finding=_finding(ratio, min(len({n for _, n in cells}) for cells in (ours, theirs))),
    )


def _shared(base: Cells, other: Cells) -> tuple[Cells, Cells]:
    """What both answered, for prompts differ by more than sessions do; all of either where they
    share too little."""
    shared = _prompts(base) & _prompts(other)
    if len(shared) < _LEAST_SHARED:
        return base, other
    ours, theirs = (
        {key: cells for key, cells in side.items() if key[0] in shared} for side in (base, other)
    )
    return ours, theirs


def _prompts(cells: Cells) -> set[str]:
    return {prompt for prompt, _ in cells}


def _finding(ratio: Quantity, repeats: int) -> Finding:
    low, high, value = ratio.low, ratio.high, ratio.value
    if low is None or high is None or value is None:
        return "noise not known"
    findings: dict[int, Finding] = {1: "higher", -1: "lower"}
    return findings.get(side_of_one(value, low, high, repeats), "no difference beyond noise")


def _all(cells: Cells) -> list[Cell]:
    return [cell for same in cells.values() for cell in same]


def _head(summary: Summary) -> dict[str, Any]:
    session, device = summary.session, summary.device
    return {
        "id": session.id,
        "created_utc": session.created_utc,
        "edgeprof_version": session.edgeprof_version,
        "recipe": session.recipe.get("name"),
        "device": device.get("name"),
        "power_mode": device.get("power_mode"),
        "power_mode_missing": missing(device, "power_mode", session.kind),
        "complete": session.complete,
        "simulated": bool(session.samples.get("simulated")),
        "replayed": bool(session.samples.get("replayed")),
    }


def _leg(place: int, leg: VariantFigures) -> dict[str, Any]:
    return {
        "session": place,
        "name": leg.name,
        "target": leg.target,
        "tokens_per_s": leg.tokens_per_s,
        "ttft_s": leg.ttft_s,
        "energy_per_token_j": leg.energy_per_token_j,
        "power_w": leg.power_w,
    }


def _signals(summaries: Sequence[Summary]) -> Iterator[dict[str, Any]]:
    """Means over whole sessions, which have no repeats and hence no interval."""
    for name in _SAMPLED:
        means = [
            next((s.mean for s in summary.signals if s.chosen and s.name == name), None)
            for summary in summaries
        ]
        if any(means):
            yield {"name": name, "means": means}


def _differences(summaries: Sequence[Summary]) -> list[Difference]:
    """In the environments, the boards, the recipes and the models, by dotted key."""
    flat = [
        {
            **_flat("device", without_private(summary.device)),
            **_flat("environment", without_private(summary.environment)),
            **_flat("recipe", without_private(summary.session.recipe)),
            "edgeprof": summary.session.edgeprof_version,
            "prompts": ",".join(sorted(str(p["sha256"])[:12] for p in summary.session.prompts)),
            **{
                f"models.{name}.{key}": getattr(model, key)
                for name, model in summary.models.items()
                for key in ("sha256", "weights", "provider", "threads", "kernel")
            },
        }
        for summary in summaries
    ]
    keys = dict.fromkeys(key for one in flat for key in one)
    found = []
    for key in keys:
        values = [one.get(key) for one in flat]
        if key.rpartition(".")[2] not in _VOLATILE and any(v != values[0] for v in values):
            found.append(Difference(key=key, values=values))
    return found


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            key: one
            for name, inner in value.items()
            for key, one in _flat(f"{prefix}.{name}", inner).items()
        }
    return {prefix: value}


def same_as(sessions: Sequence[dict[str, Any]]) -> dict[int, int]:
    """Of the heads of a comparison those that are of a recording that comes before: its place, and
    that of the first of them. A copy and what a repair saved keep the id."""
    first: dict[str, int] = {}
    return {
        place: first[head["id"]]
        for place, head in enumerate(sessions)
        if first.setdefault(head["id"], place) != place
    }


def _warnings(summaries: Sequence[Summary]) -> Iterator[str]:
    for place, earlier in same_as([_head(summary) for summary in summaries]).items():
        yield f"session {place + 1} is the same recording as session {earlier + 1}"
    for place, summary in enumerate(summaries, start=1):
        if not summary.session.complete:
            reason = summary.session.ended_reason or "reason not recorded"
            yield f"session {place} is incomplete ({reason})"
        if summary.disturbed_left_out and (legs := len(left_out_legs(summary.disturbed))):
            were = "1 leg was" if legs == 1 else f"{legs} legs were"
            yield f"session {place}: {were} disturbed and left out; its report tells by what"
        for quality in ("simulated", "replayed"):
            if summary.session.samples.get(quality):
                yield f"session {place} has {quality} samples, which no board gave"


def _power_mode(summary: Summary) -> str:
    return recorded(summary.device, "power_mode", summary.session.kind)


def _text(value: Any) -> str:
    return "not recorded" if value is None else str(value)
