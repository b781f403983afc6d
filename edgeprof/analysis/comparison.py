"""A speculative variant against plain decoding of the same target, answer by answer.

Only answers to the same prompt in the same repeat are compared. ``decode_speedup`` is measured;
``predicted_speedup`` comes from acceptance and held passes and never takes its place.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from edgeprof.analysis.latency import seconds_by_phase
from edgeprof.analysis.pass_cost import DraftCost, VerifyCost
from edgeprof.analysis.statistics import bootstrap_interval, grid_sums
from edgeprof.analysis.variants import Answer, VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import Event

Bound = Literal["value", "low", "high"]

_FREE = Quantity(value=0.0, low=0.0, high=0.0, kind="modelled", source="no draft model runs")

NOT_COMPARABLE = "sampled: not comparable token for token"
REFERENCE = "plain one-token decoding of the same model through the same kernels"


class Pair(NamedTuple):
    """The same prompt in the same repeat, answered with and without a drafter."""

    speculative: Answer
    plain: Answer


class _Timing(NamedTuple):
    """What a pair's rates are made of: decoded tokens and seconds of both answers."""

    tokens: int
    wall_s: float
    plain_tokens: int
    plain_s: float


class Output(Struct, frozen=True, kw_only=True):
    """Are the answers the reference's, token for token? ``first_divergence`` is the earliest
    position at which any answer differs, ``logit_gap`` the reference's margin there.

    ``not_comparable`` says why no answer is expected to equal another, and none was compared.
    """

    reference: str
    not_comparable: str | None = None
    identical: bool | None
    first_divergence: int | None
    logit_gap: float | None
    answers_compared: int
    answers_identical: int
    tokens_compared: int


class RoundCost(Struct, frozen=True, kw_only=True):
    """A mean round, in units of the time of one plainly decoded token.

    tokens / (draft + target + other) is the measured speed-up, exactly: this says where it went.
    """

    tokens: float
    draft: float
    target: float
    other: float

    @property
    def total(self) -> float:
        return self.draft + self.target + self.other


def pairs_of(speculative: VariantRuns, plain: VariantRuns) -> list[Pair]:
    """In the order of the speculative answers."""
    partners = {answer.key: answer for answer in plain.answers}
    return [
        Pair(answer, partners[answer.key])
        for answer in speculative.answers
        if answer.key in partners
    ]


def decode_speedup(pairs: Sequence[Pair]) -> Quantity | None:
    """Decode tokens/s with the drafter over those without, all pairs together."""
    cells: dict[tuple[str, int], list[_Timing]] = defaultdict(list)
    for pair in _timed(pairs):
        cells[pair.plain.request.prompt_sha256, pair.plain.repeat].append(_timing(pair))
    timings = [timing for same in cells.values() for timing in same]
    if not timings:
        return None
    whole, sums = _rate_ratio(timings), grid_sums(cells)
    low, high = bootstrap_interval(
        len(timings),
        # A leg that ended early leaves cells empty; a draw of only those says nothing new.
        lambda rng: whole if (drawn := sums(rng)) is None else _ratio_of_sums(drawn),
    )
    prompts, repeats = (len({key[axis] for key in cells}) for axis in (0, 1))
    source = (
        f"decode tokens/s over the baseline's, {prompts} prompts in {repeats} repeats, paired; "
        "95 % bootstrap over prompts and repeats"
    )
    return Quantity(
        value=whole,
        low=low,
        high=high,
        n=len(timings),
        kind="measured",
        source=source,
    )


def round_cost(pairs: Sequence[Pair]) -> RoundCost | None:
    """Where a round's time went; None without timed pairs."""
    timed = _timed(pairs)
    answers = [pair.speculative for pair in timed]
    rounds = sum(len(answer.rounds) for answer in answers)
    if not rounds:
        return None
    total = [sum(column) for column in zip(*map(_timing, timed), strict=True)]
    tokens, wall_s, plain_tokens, plain_s = total
    taken_s = seconds_by_phase(answers)
    draft_s, verify_s, decode_s = (taken_s[phase] for phase in ("draft", "verify", "decode"))
    unit = rounds * plain_s / plain_tokens
    return RoundCost(
        tokens=tokens / rounds,
        draft=draft_s / unit,
        target=(verify_s + decode_s) / unit,
        other=(wall_s - draft_s - verify_s - decode_s) / unit,
    )


def predicted_speedup(
    speculative: VariantRuns,
    verify_costs: Sequence[VerifyCost],
    draft_costs: Sequence[DraftCost],
) -> Quantity | None:
    """E / (K c + v(K+1)), with the mean cost over the lengths K that were drafted.

    E is the mean of emitted tokens a round: 1 + the sum of per-position acceptance. Time outside
    passes is left out. None where v or c was not measured.
    """
    rounds = [round_ for answer in speculative.decoded for round_ in answer.rounds]
    v = {cost.tokens: cost.measured for cost in verify_costs if cost.target == speculative.target}
    c = _draft_ratio(speculative, draft_costs)
    if not rounds or c is None:
        return None
    lengths = Counter(round_.drafted for round_ in rounds)
    emitted = sum(round_.emitted for round_ in rounds) / len(rounds)

    def gain(bound: Bound) -> float | None:
        cost = _mean_round_cost(lengths, v, c, bound)
        return emitted / cost if cost else None

    value = gain("value")
    if value is None:
        return None
    return Quantity(
        value=value,
        low=gain("high"),
        high=gain("low"),
        n=len(rounds),
        kind="modelled",
        source="E / (K c + v(K+1)) from this variant's acceptance and held v and c; time outside "
        "passes left out; band from those of v and c",
    )


def held_target_cost(speculative: VariantRuns, verify_costs: Sequence[VerifyCost]) -> float | None:
    """What the target's part of a round should cost by held passes: v over what was drafted."""
    v = {cost.tokens: cost.measured for cost in verify_costs if cost.target == speculative.target}
    lengths = Counter(r.drafted for answer in speculative.decoded for r in answer.rounds)
    return _mean_round_cost(lengths, v, _FREE, "value") if lengths else None


def _mean_round_cost(
    lengths: Mapping[int, int], v: Mapping[int, Quantity], c: Quantity, bound: Bound
) -> float | None:
    """K c + v(K+1), averaged over how often each K was drafted, at one bound of v and c."""
    draft: float | None = getattr(c, bound)
    total = 0.0
    for length, count in lengths.items():
        verify = _at(v, length + 1, bound)
        if verify is None or draft is None:
            return None
        total += count * (length * draft + verify)
    return total / sum(lengths.values())


def output_of(
    variant: str, pairs: Sequence[Pair], events: Sequence[Event], *, sampled: bool = False
) -> Output:
    """Compares token streams; the logit gap is the one noted while running.

    Sampled answers have the target's distribution and are as different as two plain ones.
    """
    if sampled:
        return Output(
            reference=REFERENCE,
            not_comparable=NOT_COMPARABLE,
            identical=None,
            first_divergence=None,
            logit_gap=None,
            answers_compared=0,
            answers_identical=0,
            tokens_compared=0,
        )
    differences = [
        (position, pair) for pair in pairs if (position := _first_difference(pair)) is not None
    ]
    first = min((position for position, _ in differences), default=None)
    return Output(
        reference=REFERENCE,
        identical=not differences if pairs else None,
        first_divergence=first,
        logit_gap=None if first is None else _logit_gap(variant, first, events),
        answers_compared=len(pairs),
        answers_identical=len(pairs) - len(differences),
        tokens_compared=sum(
            min(len(pair.speculative.token_ids), len(pair.plain.token_ids)) for pair in pairs
        ),
    )


def _first_difference(pair: Pair) -> int | None:
    """Where the two token streams part; the shorter's end where one goes on."""
    ours, theirs = pair.speculative.token_ids, pair.plain.token_ids
    if ours == theirs:
        return None
    shared = zip(ours, theirs, strict=False)
    return next((i for i, (a, b) in enumerate(shared) if a != b), min(len(ours), len(theirs)))


def _logit_gap(variant: str, position: int, events: Sequence[Event]) -> float | None:
    for event in events:
        detail = event.detail
        if (
            event.kind == "divergence"
            and detail.get("variant") == variant
            and detail.get("position") == position
        ):
            gap = detail.get("logit_gap")
            return float(gap) if isinstance(gap, int | float) else None
    return None


def _draft_ratio(speculative: VariantRuns, draft_costs: Sequence[DraftCost]) -> Quantity | None:
    """c of the variant; looking up n-grams runs no model and counts as overhead."""
    if speculative.drafter_kind == "ngram":
        return _FREE
    key = (speculative.target, speculative.drafter)
    return next((c.ratio for c in draft_costs if (c.target, c.drafter) == key), None)


def _at(v: Mapping[int, Quantity], tokens: int, bound: Bound) -> float | None:
    """v at a size that was held, or on the straight line between its held neighbours."""
    below = max((size for size in v if size <= tokens), default=None)
    above = min((size for size in v if size >= tokens), default=None)
    if below is None or above is None:
        return None
    low, high = getattr(v[below], bound), getattr(v[above], bound)
    if low is None or high is None:
        return None
    part = (tokens - below) / (above - below) if above > below else 0.0
    return float(low + part * (high - low))


def _timed(pairs: Sequence[Pair]) -> list[Pair]:
    return [p for p in pairs if p.speculative.decode_s is not None and p.plain.decode_s is not None]


def _timing(pair: Pair) -> _Timing:
    ours, theirs = pair
    return _Timing(
        ours.decode_tokens, ours.decode_s or 0.0, theirs.decode_tokens, theirs.decode_s or 0.0
    )


def _rate_ratio(timings: Sequence[_Timing]) -> float:
    return _ratio_of_sums([sum(column) for column in zip(*timings, strict=True)])


def _ratio_of_sums(sums: Sequence[float]) -> float:
    tokens, wall_s, plain_tokens, plain_s = sums
    return tokens / wall_s * plain_s / plain_tokens
