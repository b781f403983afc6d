"""What another draft length would bring: acceptance replayed from one run, times from held passes.

A run with long drafts tells, token by token, whether the drafter agreed with the target. A shorter
draft length is played through those tokens: E comes from rounds that begin where they would begin,
not from one rate for all positions, as agreement comes in stretches. A round that drafts d tokens
takes c1 + ... + cd + v(d+1) + o: v from held passes; c by place in the round, o, and by how much
target passes take longer in place than held are measured in the same run. Pure arithmetic.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from edgeprof.analysis.latency import seconds
from edgeprof.analysis.statistics import bootstrap_interval, resampled
from edgeprof.analysis.variants import Answer, VariantRuns
from edgeprof.session.records import Pass, Round

_ENOUGH_PASSES = 8  # of one size, to tell its time in place


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


class RoundTimes(Struct, frozen=True, kw_only=True):
    """Seconds of the parts of a round. ``draft_s``: a draft pass with what lies between it and the
    next, by its place in the round, as the first one finds the caches full of the target's weights;
    the last entry holds for all places from there on. ``verify_s`` by tokens of the pass;
    ``other_s`` what else a round takes; ``plain_s`` a plainly decoded token."""

    draft_s: Sequence[float]
    verify_s: Mapping[int, float]
    other_s: float
    plain_s: float

    def round_s(self, drafted: int) -> float | None:
        """Of a round that drafts so many tokens; None beyond the passes that were held."""
        verify_s = between(self.verify_s, drafted + 1)
        if verify_s is None:
            return None
        drafts_s = sum(self.draft_s[:drafted])
        if self.draft_s:
            drafts_s += max(drafted - len(self.draft_s), 0) * self.draft_s[-1]
        return drafts_s + verify_s + self.other_s


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
    run: VariantRuns, plain: VariantRuns, held_s: Mapping[int, float]
) -> RoundTimes | None:
    """The times of rounds by held passes, as they were in place in ``run``.

    ``held_s`` are the seconds of held target passes by tokens. None where nothing was decoded.
    """
    plain_s = _plain_s(plain)
    rounds = [found for answer in run.decoded for found in rounds_with_passes(answer)]
    targets = [one for _, own in rounds for one in own if one.phase != "draft"]
    in_place = _in_place(targets, held_s)
    if plain_s is None or not in_place:
        return None
    drafts_s = [_drafts_s(own) for _, own in rounds]
    whole_s = sum((one.t1_ns - one.t0_ns) / 1e9 for one, _ in rounds)
    other_s = whole_s - sum(map(sum, drafts_s)) - sum(map(seconds, targets))
    return RoundTimes(
        draft_s=_by_place(drafts_s),
        verify_s={n: held * _nearest(in_place, n) for n, held in held_s.items()},
        other_s=max(other_s / len(rounds), 0.0),
        plain_s=plain_s,
    )


def _in_place(passes: Iterable[Pass], held_s: Mapping[int, float]) -> dict[int, float]:
    """By tokens, how many times as long as held passes took: those sizes of which there are enough
    passes, or, where there are of none, all. Where the memory is slower in place than it was for
    held passes, small passes suffer more than large ones, which compute."""
    taken: dict[int, list[float]] = {}
    for one in passes:
        taken.setdefault(one.tokens, []).append(seconds(one))
    ratios = {
        n: (len(times), sum(times) / len(times) / held)
        for n, times in taken.items()
        if (held := between(held_s, n))
    }
    enough = {n: ratio for n, (count, ratio) in ratios.items() if count >= _ENOUGH_PASSES}
    return enough or {n: ratio for n, (_, ratio) in ratios.items()}


def _nearest(known: Mapping[int, float], tokens: int) -> float:
    """Between sizes that are known on a straight line, beyond them as at the last."""
    value = between(known, min(max(tokens, min(known)), max(known)))
    assert value is not None  # the size lies within those that are known
    return value


def _drafts_s(passes: Sequence[Pass]) -> list[float]:
    """Of every draft pass of a round, the time until the next pass begins."""
    ends = [one.t0_ns for one in passes[1:]] + [one.t1_ns for one in passes[-1:]]
    return [
        (end - one.t0_ns) / 1e9
        for one, end in zip(passes, ends, strict=True)
        if one.phase == "draft"
    ]


def _by_place(drafts_s: Sequence[Sequence[float]]) -> list[float]:
    """Means over rounds, those of the last place over all places from there on."""
    places = (
        [taken for own in drafts_s for taken in own[place:upto]]
        for place, upto in ((0, 1), (1, 2), (2, None))
    )
    return [sum(found) / len(found) for found in places if found]


def rounds_with_passes(answer: Answer) -> list[tuple[Round, list[Pass]]]:
    """Every round with the passes that belong to it."""
    by_round: dict[int | None, list[Pass]] = {}
    for one in answer.passes:
        by_round.setdefault(one.round_id, []).append(one)
    return [(one, by_round.get(one.id, [])) for one in answer.rounds]


def _plain_s(plain: VariantRuns) -> float | None:
    tokens = sum(answer.decode_tokens for answer in plain.decoded)
    return sum(answer.decode_s or 0.0 for answer in plain.decoded) / tokens if tokens else None


def forecasts(run: VariantRuns, times: RoundTimes, lengths: Iterable[int]) -> list[Forecast]:
    """The speed-up at every length of which all costs are known.

    Up to the length that was run the tokens are replayed. Beyond it, for a draft model, each round
    whose tokens all stood goes on with the acceptance of the run.
    """
    drafted = [one.drafted for answer in run.decoded for one in answer.rounds]
    longest = run.draft_tokens or max(drafted, default=0)
    answers = [answer.rounds for answer in run.decoded if answer.rounds]
    found = []
    for length in lengths:
        if length <= longest:
            gained = [_replayed(rounds, longest, length, times) for rounds in answers]
        elif run.drafter_kind == "model":
            gained = _beyond(answers, longest, length, times)
        else:
            continue
        known = [one for one in gained if one is not None]
        if not known or len(known) < len(answers):
            continue
        low, high = bootstrap_interval(len(known), _drawing(known, times.plain_s))
        found.append(
            Forecast(
                draft_tokens=length,
                predicted_speedup=_gain(known, times.plain_s),
                low=low,
                high=high,
                tokens_per_round=sum(one.tokens for one in known)
                / sum(one.rounds for one in known),
            )
        )
    return found


class _Answered(NamedTuple):
    """What an answer would give and take."""

    tokens: float
    rounds: int
    seconds: float


def _replayed(
    rounds: Sequence[Round], longest: int, length: int, times: RoundTimes
) -> _Answered | None:
    found = replay(places_of(rounds, longest), length)
    taken = [_taken(times.round_s(drafted), count) for drafted, count in found.rounds.items()]
    known = [one for one in taken if one is not None]
    if len(known) < len(taken):
        return None
    return _Answered(found.tokens, found.rounds.total(), sum(known))


def _taken(round_s: float | None, count: int) -> float | None:
    return None if round_s is None else round_s * count


def _beyond(
    answers: Sequence[Sequence[Round]], longest: int, length: int, times: RoundTimes
) -> list[_Answered | None]:
    """As many rounds as there were; of those that drafted the longest, each drafts more."""
    every = [one for rounds in answers for one in rounds]
    evaluated = sum(one.evaluated for one in every)
    rate = sum(one.accepted for one in every) / evaluated if evaluated else 0.0
    more = sum(rate**i for i in range(1, length - longest + 1))
    found: list[_Answered | None] = []
    for rounds in answers:
        seconds = [
            times.round_s(length if one.drafted >= longest else one.drafted) for one in rounds
        ]
        known = [one for one in seconds if one is not None]
        whole = sum(one.accepted >= longest for one in rounds)
        tokens = sum(one.emitted for one in rounds) + more * whole
        complete = len(known) == len(seconds)
        found.append(_Answered(tokens, len(rounds), sum(known)) if complete else None)
    return found


def _drawing(answers: Sequence[_Answered], plain_s: float) -> Callable[[random.Random], float]:
    return lambda rng: _gain(resampled(answers, rng), plain_s)


def _gain(answers: Sequence[_Answered], plain_s: float) -> float:
    """Tokens for the time in which plain decoding would give one, over all answers."""
    return sum(one.tokens for one in answers) * plain_s / sum(one.seconds for one in answers)


def between(known: Mapping[int, float], tokens: int) -> float | None:
    """At a size that was measured, or on the straight line between its neighbours."""
    below = max((size for size in known if size <= tokens), default=None)
    above = min((size for size in known if size >= tokens), default=None)
    if below is None or above is None:
        return None
    part = (tokens - below) / (above - below) if above > below else 0.0
    return known[below] + part * (known[above] - known[below])
