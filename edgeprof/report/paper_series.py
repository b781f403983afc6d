"""What the paper figures show, as plain numbers: series to draw, and the rows of the CSV behind.

Knows nothing of matplotlib, so that the data can be had without drawing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from edgeprof.analysis.memory import Fit, fit
from edgeprof.analysis.observation import Observation
from edgeprof.analysis.outlook import Outlook
from edgeprof.analysis.plan import Plan
from edgeprof.analysis.roofline import PassTime, pass_cost, pass_time
from edgeprof.analysis.speculation import best_draft_length
from edgeprof.quantity import Band
from edgeprof.report.sections import Row

DEEPEST_SHOWN = 32_768  # of a context axis where no deeper context is asked for
_CONTEXT_STEPS = 32
_MAP_STEPS = 40
_MAP_DEAREST_DRAFT = 0.5


class Roof(Struct, frozen=True, kw_only=True):
    """A board: peak and sustained bandwidth, and its ceilings (names and dense peak rate)."""

    label: str
    bandwidth_bytes_per_s: float
    sustained_bytes_per_s: Band | None = None
    ceilings: tuple[tuple[str, float], ...] = ()


class Point(Struct, frozen=True, kw_only=True):
    """A pass: at its bound, or as measured. Points of one ``series`` have one marker, those under
    the roof of one board (its place among them) one colour."""

    series: str
    roof: int
    label: str
    kind: str
    intensity_flop_per_byte: float
    flop_per_s: float


class Roofline(Struct, frozen=True, kw_only=True):
    """Roofs, and points below them."""

    title: str
    roofs: tuple[Roof, ...]
    points: tuple[Point, ...]


class RatePoint(Struct, frozen=True, kw_only=True):
    """Decoding at one depth; ``expected`` is None where nobody measured the board."""

    context_tokens: int
    bound_tokens_per_s: float
    expected_tokens_per_s: Band | None
    fits: bool


class RateLine(Struct, frozen=True, kw_only=True):
    """Decoding over depth on one board."""

    label: str
    points: tuple[RatePoint, ...]


class RatesByContext(Struct, frozen=True, kw_only=True):
    """Decoding over depth, a line a board."""

    title: str
    lines: tuple[RateLine, ...]


class GainLine(Struct, frozen=True, kw_only=True):
    """Speed-up over draft length at one acceptance; ``best`` is 0 where drafting does not pay."""

    acceptance: float
    lengths: tuple[int, ...]
    speedups: tuple[float, ...]
    bands: tuple[Band, ...]
    best: int


class GainsByLength(Struct, frozen=True, kw_only=True):
    """Speed-up over draft length, a line an acceptance."""

    title: str
    lines: tuple[GainLine, ...]


class GainMap(Struct, frozen=True, kw_only=True):
    """Speed-up at the best draft length; ``speedups`` holds a row an acceptance, and the pair
    itself lies at ``acceptance`` and somewhere in ``draft_cost``."""

    title: str
    draft_costs: tuple[float, ...]
    acceptances: tuple[float, ...]
    speedups: tuple[tuple[float, ...], ...]
    best_draft_lengths: tuple[tuple[int, ...], ...]
    acceptance: float
    draft_cost: Band | None


class MemoryBar(Struct, frozen=True, kw_only=True):
    """What lies in the memory of one board, in the order it is stacked."""

    label: str
    parts: dict[str, int]
    dram_bytes: int


class MemoryBars(Struct, frozen=True, kw_only=True):
    """A bar a board."""

    title: str
    bars: tuple[MemoryBar, ...]


def roofline_series(results: Sequence[Outlook], observations: Sequence[Observation]) -> Roofline:
    """The boards, where each pass lies at best, and where decoding was measured."""
    several = len(results) > 1
    points = [
        _point(place, result, one, several)
        for place, result in enumerate(results)
        for one in result.passes
    ]
    points += [
        _measured(place, result, seen, several)
        for place, result in enumerate(results)
        for seen in observations
    ]
    return Roofline(
        title=results[0].model.full_title,
        roofs=tuple(_roof(result, several) for result in results),
        points=tuple(points),
    )


def rates_by_context(results: Sequence[Outlook]) -> RatesByContext:
    """Decoding from an empty cache to the deepest context asked for."""
    return RatesByContext(
        title=results[0].model.full_title, lines=tuple(_rate_line(result) for result in results)
    )


def memory_bars(results: Sequence[Outlook] | Sequence[Plan]) -> MemoryBars:
    """What must be resident on each board."""
    first = results[0]
    title = _plan_title(first) if isinstance(first, Plan) else first.model.full_title
    return MemoryBars(
        title=title,
        bars=tuple(
            MemoryBar(
                label=board_name(result),
                parts=memory_parts(result.fit),
                dram_bytes=result.fit.dram_bytes,
            )
            for result in results
        ),
    )


def memory_parts(held: Fit) -> dict[str, int]:
    """Bytes by what they hold; what there is none of is left out."""
    parts = {
        "weights": held.weights_bytes,
        "KV cache": held.kv_bytes,
        "draft weights": held.draft_weights_bytes,
        "draft KV cache": held.draft_kv_bytes,
        "runtime": held.runtime_bytes,
        "system": held.system_bytes,
    }
    return {name: size for name, size in parts.items() if size}


def gains_by_length(result: Plan) -> GainsByLength:
    """Speed-up over draft length; nothing to draw where the costs are not known."""
    lines = []
    for gain in result.gains:
        known = [
            (one.draft_length, one.middle_speedup, one.speedup)
            for one in gain.lengths
            if one.middle_speedup is not None and one.speedup is not None
        ]
        if known:
            lengths, speedups, bands = zip(*known, strict=True)
            lines.append(
                GainLine(
                    acceptance=gain.acceptance,
                    lengths=lengths,
                    speedups=speedups,
                    bands=bands,
                    best=gain.best_draft_length or 0,
                )
            )
    return GainsByLength(title=_plan_title(result), lines=tuple(lines))


def gain_map(result: Plan) -> GainMap:
    """Speed-up over acceptance and draft cost, with v(n) between its expected ends or measured."""
    costs = tuple(_MAP_DEAREST_DRAFT * step / _MAP_STEPS for step in range(_MAP_STEPS + 1))
    acceptances = tuple(step / _MAP_STEPS for step in range(_MAP_STEPS + 1))
    between = result.middle
    best = [
        [
            best_draft_length(acceptance, cost, between.verify_cost, longest=between.longest_draft)
            for cost in costs
        ]
        for acceptance in acceptances
        if between is not None
    ]
    given = result.draft_cost.given
    return GainMap(
        title=_plan_title(result),
        draft_costs=costs,
        acceptances=acceptances,
        speedups=tuple(tuple(one.speedup for one in row) for row in best),
        best_draft_lengths=tuple(tuple(one.draft_length for one in row) for row in best),
        acceptance=result.headline.acceptance,
        draft_cost=result.draft_cost.expected if given is None else Band(low=given, high=given),
    )


def roofline_rows(series: Roofline) -> list[Row]:
    """A ridge for each ceiling of each roof, then the points."""
    rows: list[Row] = [
        {
            "kind": "ridge",
            "label": f"{roof.label}, {name}",
            "intensity_flop_per_byte": peak / bandwidth,
            "flop_per_s": peak,
        }
        for roof in series.roofs
        for name, peak in roof.ceilings
        for bandwidth in (roof.bandwidth_bytes_per_s,)
    ]
    return rows + [
        {
            "kind": point.kind,
            "label": point.label,
            "intensity_flop_per_byte": point.intensity_flop_per_byte,
            "flop_per_s": point.flop_per_s,
        }
        for point in series.points
    ]


def rate_rows(series: RatesByContext) -> list[Row]:
    """One record a board and depth."""
    return [
        {
            "board": line.label,
            "context_tokens": point.context_tokens,
            "bound_tokens_per_s": point.bound_tokens_per_s,
            **_band_row("expected_tokens_per_s", point.expected_tokens_per_s),
            "fits": point.fits,
        }
        for line in series.lines
        for point in line.points
    ]


def gain_rows(series: GainsByLength) -> list[Row]:
    """One record an acceptance and draft length."""
    return [
        {
            "acceptance": line.acceptance,
            "draft_length": length,
            "speedup": speedup,
            **_band_row("speedup", band),
            "best": length == line.best,
        }
        for line in series.lines
        for length, speedup, band in zip(line.lengths, line.speedups, line.bands, strict=True)
    ]


def map_rows(series: GainMap) -> list[Row]:
    """One record an acceptance and draft cost."""
    return [
        {
            "acceptance": acceptance,
            "draft_cost": cost,
            "speedup": speedup,
            "best_draft_length": length,
        }
        for acceptance, speedups, lengths in zip(
            series.acceptances, series.speedups, series.best_draft_lengths, strict=False
        )
        for cost, speedup, length in zip(series.draft_costs, speedups, lengths, strict=True)
    ]


def memory_rows(series: MemoryBars) -> list[Row]:
    """One record a board and part, and the memory that there is."""
    return [
        {"board": bar.label, "part": part, "bytes": size}
        for bar in series.bars
        for part, size in [*bar.parts.items(), ("visible", bar.dram_bytes)]
    ]


def board_name(result: Outlook | Plan) -> str:
    """A board and its mode, as ``--device`` takes them."""
    return f"{result.device.profile.name} {result.device.mode.name}"


def _plan_title(result: Plan) -> str:
    drafter = "a draft" if result.draft is None else result.draft.title
    return f"{drafter} for {result.target.title}, {board_name(result)}"


def _roof(result: Outlook, several: bool) -> Roof:
    """With all its ceilings, or that of the arithmetic asked for where boards are compared."""
    peaks = result.device.rates_flop_per_s
    names: Mapping[float, list[str]] = defaultdict(list)
    for name, peak in peaks.items():
        if peak is not None and (name == result.data_type or not several):
            names[peak].append(name)
    return Roof(
        label=board_name(result),
        bandwidth_bytes_per_s=result.roof.bandwidth_bytes_per_s,
        sustained_bytes_per_s=result.roof.sustained_bytes_per_s,
        ceilings=tuple((", ".join(names[peak]), peak) for peak in sorted(names)),
    )


def _point(place: int, result: Outlook, one: PassTime, several: bool) -> Point:
    cost = one.cost
    where = f", {board_name(result)}" if several else ""
    return Point(
        series=f"{cost.phase} {cost.tokens}",
        roof=place,
        label=f"{cost.phase} {cost.tokens} at {cost.context_tokens}{where}",
        kind="bound",
        intensity_flop_per_byte=cost.intensity_flop_per_byte,
        flop_per_s=cost.flop / one.time_s,
    )


def _measured(place: int, result: Outlook, seen: Observation, several: bool) -> Point:
    decode = result.passes[0].cost
    where = f", {board_name(result)}" if several else ""
    return Point(
        series=seen.label,
        roof=place,
        label=f"{seen.label}{where}",
        kind="measured",
        intensity_flop_per_byte=decode.intensity_flop_per_byte,
        flop_per_s=decode.flop * seen.tokens_per_s,
    )


def _rate_line(result: Outlook) -> RateLine:
    deepest = max(one.cost.context_tokens for one in result.passes) or DEEPEST_SHOWN
    steps = min(_CONTEXT_STEPS, deepest)
    depths = [deepest * step // steps for step in range(steps + 1)]
    return RateLine(label=board_name(result), points=tuple(_rate_points(result, depths)))


def _rate_points(result: Outlook, depths: Sequence[int]) -> Iterator[RatePoint]:
    for depth in depths:
        cost = pass_cost(result.model, result.kv, "decode", 1, depth)
        one = pass_time(cost, result.roof, result.engine)
        held = fit(
            target=result.model,
            draft=result.draft,
            kv=result.kv,
            tokens=depth + 1,
            dram_bytes=result.fit.dram_bytes,
        )
        yield RatePoint(
            context_tokens=depth,
            bound_tokens_per_s=one.tokens_per_s,
            expected_tokens_per_s=one.expected_tokens_per_s,
            fits=held.fits,
        )


def _band_row(name: str, band: Band | None) -> dict[str, float | None]:
    return {
        f"{name}_low": None if band is None else band.low,
        f"{name}_high": None if band is None else band.high,
    }
