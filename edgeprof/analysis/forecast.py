"""What another draft length would bring: acceptance replayed from one run, times from held passes.

A run with long drafts tells, token by token, whether the drafter agreed with the target. A shorter
draft length is played through those tokens: E comes from rounds that begin where they would begin,
not from one rate for all positions, as agreement comes in stretches. A round that drafts d tokens
then takes d c + v(d+1) + o, with c and v from held passes. What passes take longer while decoding
than held, and o, are measured in the same run. Pure arithmetic.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from edgeprof.analysis.latency import seconds
from edgeprof.analysis.statistics import percentile, resampled
from edgeprof.analysis.variants import Answer, VariantRuns
from edgeprof.session.records import Pass, Round

_DRAWS = 300
_SEED = 0


class Agreement(Enum):
    """Of the drafter with the token that came: it said so, said otherwise, or was not asked, as the
    token came as a bonus behind drafted ones that all stood; or it had nothing to say."""

    AGREED = 1
    OTHER = 2
    BONUS = 3
    SILENT = 4


class Place(NamedTuple):
    """One token of an answer; ``room`` counts the tokens that were drafted from here on."""

    agreement: Agreement
    room: int


class Replay(NamedTuple):
    """Rounds by how many tokens each drafts, and the tokens that they give together."""

    rounds: Counter[int]
    tokens: int

    def plus(self, other: "Replay") -> "Replay":
        return Replay(self.rounds + other.rounds, self.tokens + other.tokens)


class RoundTimes(Struct, frozen=True, kw_only=True):
    """Seconds of the parts of a round. ``draft_s`` is a draft pass in place, with what lies between
    two of them; ``verify_s`` by tokens of the pass; ``other_s`` what else a round takes;
    ``plain_s`` a plainly decoded token."""

    draft_s: float
    verify_s: Mapping[int, float]
    other_s: float
    plain_s: float

    def round_s(self, drafted: int) -> float | None:
        """Of a round that drafts so many tokens; None beyond the passes that were held."""
        verify_s = between(self.verify_s, drafted + 1)
        if verify_s is None:
            return None
        return drafted * self.draft_s + verify_s + self.other_s


class Forecast(Struct, frozen=True, kw_only=True):
    """The speed-up at one draft length, with a 95 % bootstrap over answers."""

    draft_tokens: int
    predicted_speedup: float
    low: float | None
    high: float | None
    tokens_per_round: float


def places_of(rounds: Iterable[Round], longest: int) -> list[Place]:
    """The tokens of an answer in their order, from the rounds of a run that drafts ``longest``."""
    places = []
    for one in rounds:
        for i in range(one.accepted):
            places.append(Place(Agreement.AGREED, one.drafted - i))
        if one.emitted > one.accepted:
            places.append(Place(_last_of(one, longest), one.drafted - one.accepted))
    return places


def _last_of(one: Round, longest: int) -> Agreement:
    """A drafter that stopped before the longest had nothing more to say."""
    if one.evaluated > one.accepted:
        return Agreement.OTHER
    return Agreement.BONUS if one.drafted >= longest else Agreement.SILENT


def replay(places: Sequence[Place], draft_tokens: int) -> Replay:
    """Rounds of at most ``draft_tokens`` through the tokens of an answer.

    A bonus token behind drafted ones that all stood is taken for one that the drafter would have
    said too: no better is known of it, and it ends a stretch of agreement.
    """
    rounds = Counter[int]()
    place = 0
    while place < len(places):
        left = len(places) - place
        longest = min(draft_tokens, left)
        accepted = 0
        while accepted < longest and _stands(places[place + accepted]):
            accepted += 1
        rounds[_drafted(places, place, accepted, draft_tokens)] += 1
        place += accepted + 1
    return Replay(rounds, len(places))


def _stands(place: Place) -> bool:
    return place.agreement in (Agreement.AGREED, Agreement.BONUS)


def _drafted(places: Sequence[Place], start: int, accepted: int, draft_tokens: int) -> int:
    """What stood, and what was drafted in vain behind it."""
    if accepted >= draft_tokens or start + accepted >= len(places):
        return min(accepted, draft_tokens)
    stopped = places[start + accepted]
    if stopped.agreement is Agreement.SILENT:
        return accepted
    return min(accepted + max(stopped.room, 1), draft_tokens)


def round_times(
    run: VariantRuns,
    plain: VariantRuns,
    verify_cost: Mapping[int, float],
    held_s: Mapping[int, float],
    held_draft_s: float | None,
) -> RoundTimes | None:
    """The times of rounds by held passes, as they were in place in ``run``.

    ``verify_cost`` is v by tokens, ``held_s`` the seconds of held target passes. None where nothing
    can be compared.
    """
    plain_s = _plain_s(plain)
    if plain_s is None or 1 not in held_s:
        return None
    rounds = [(one, passes) for a in run.decoded for one, passes in rounds_with_passes(a)]
    targets = [(p, held_s[1]) for _, passes in rounds for p in passes if p.phase != "draft"]
    expected = [(between(verify_cost, p.tokens), seconds(p), one_s) for p, one_s in targets]
    known = [(v * one_s, taken) for v, taken, one_s in expected if v is not None]
    if not known:
        return None
    in_place = sum(taken for _, taken in known) / sum(held for held, _ in known)
    drafts = [p for _, passes in rounds for p in passes if p.phase == "draft"]
    between_s = sum(_between_drafts_s(passes) for _, passes in rounds)
    drafted_s = sum(map(seconds, drafts)) + between_s
    whole_s = sum((one.t1_ns - one.t0_ns) / 1e9 for one, _ in rounds)
    other_s = (whole_s - drafted_s - sum(taken for _, taken in known)) / len(rounds)
    draft_s = drafted_s / len(drafts) if drafts else 0.0
    if held_draft_s is None and drafts:
        return None
    return RoundTimes(
        draft_s=draft_s,
        verify_s={n: v * held_s[1] * in_place for n, v in verify_cost.items()},
        other_s=max(other_s, 0.0),
        plain_s=plain_s,
    )


def rounds_with_passes(answer: Answer) -> list[tuple[Round, list[Pass]]]:
    """Every round with the passes that belong to it."""
    by_round: dict[int | None, list[Pass]] = {}
    for one in answer.passes:
        by_round.setdefault(one.round_id, []).append(one)
    return [(one, by_round.get(one.id, [])) for one in answer.rounds]


def _between_drafts_s(passes: Sequence[Pass]) -> float:
    """What lies between the draft passes of a round, and between the last and the verify pass."""
    drafts = [p for p in passes if p.phase == "draft"]
    if not drafts:
        return 0.0
    after = min((p.t0_ns for p in passes if p.phase != "draft"), default=drafts[-1].t1_ns)
    return (after - drafts[0].t0_ns) / 1e9 - sum(map(seconds, drafts))


def _plain_s(plain: VariantRuns) -> float | None:
    tokens = sum(answer.decode_tokens for answer in plain.decoded)
    return sum(answer.decode_s or 0.0 for answer in plain.decoded) / tokens if tokens else None


def forecasts(run: VariantRuns, times: RoundTimes, lengths: Iterable[int]) -> list[Forecast]:
    """The speed-up at every length of which all costs are known."""
    longest = run.draft_tokens or max((r.drafted for a in run.decoded for r in a.rounds), default=0)
    answers = [places_of(answer.rounds, longest) for answer in run.decoded]
    found = []
    for length in lengths:
        replays = [replay(places, length) for places in answers if places]
        gain = _gain(replays, times)
        if gain is None:
            continue
        low, high = _band(replays, times)
        whole = _sum(replays)
        found.append(
            Forecast(
                draft_tokens=length,
                predicted_speedup=gain,
                low=low,
                high=high,
                tokens_per_round=whole.tokens / whole.rounds.total(),
            )
        )
    return found


def _band(replays: Sequence[Replay], times: RoundTimes) -> tuple[float | None, float | None]:
    if len(replays) < 2:
        return None, None
    rng = random.Random(_SEED)
    draws = [_gain(resampled(replays, rng), times) or 0.0 for _ in range(_DRAWS)]
    return percentile(draws, 0.025), percentile(draws, 0.975)


def _sum(replays: Iterable[Replay]) -> Replay:
    whole = Replay(Counter(), 0)
    for one in replays:
        whole = whole.plus(one)
    return whole


def _gain(replays: Sequence[Replay], times: RoundTimes) -> float | None:
    tokens = sum(one.tokens for one in replays)
    total_s = 0.0
    for one in replays:
        for drafted, count in one.rounds.items():
            round_s = times.round_s(drafted)
            if round_s is None:
                return None
            total_s += count * round_s
    return tokens * times.plain_s / total_s if total_s > 0 else None


def between(known: Mapping[int, float], tokens: int) -> float | None:
    """At a size that was measured, or on the straight line between its neighbours."""
    below = max((size for size in known if size <= tokens), default=None)
    above = min((size for size in known if size >= tokens), default=None)
    if below is None or above is None:
        return None
    part = (tokens - below) / (above - below) if above > below else 0.0
    return known[below] + part * (known[above] - known[below])
