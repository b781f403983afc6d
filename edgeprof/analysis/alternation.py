"""What alternating costs the phases themselves: their time in the real run less that in isolation.

Draft and target take turns, so each finds the caches full of the other's weights, and clocks that
the other's load has set. Held passes of the same model and size are the isolated ones.
"""

import random
import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from edgeprof.analysis.board import Readings, clock_change
from edgeprof.analysis.latency import seconds
from edgeprof.analysis.pass_cost import held_passes
from edgeprof.analysis.statistics import bootstrap_interval, median_of, resampled
from edgeprof.analysis.variants import VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import Pass, Phase, Session


class Alternation(Struct, frozen=True, kw_only=True):
    """Passes of one size of one phase of a variant; medians. ``difference_s`` is in-situ less
    isolated, None where ``not_compared`` says why. Contexts are the mean tokens cached before."""

    variant: str
    model: str
    phase: Phase
    tokens: int
    isolated_s: Quantity
    isolated_context_tokens: float
    in_situ_s: Quantity
    in_situ_context_tokens: float
    difference_s: Quantity | None
    not_compared: str | None


def alternations(
    session: Session, runs: Sequence[VariantRuns], readings: Readings
) -> list[Alternation]:
    """Of every speculative variant, each size of a phase's passes that was held too."""
    found = []
    for run in runs:
        if run.drafter is None:
            continue
        for phase, held, model in (
            ("draft", "draft", run.drafter),
            ("verify", "verify", run.target),
            ("decode", "verify", run.target),
        ):
            isolated = _by_tokens(held_passes(session, held).get(model, []))
            in_situ = _by_tokens([p for a in run.decoded for p in a.passes if p.phase == phase])
            legs = [
                leg
                for leg in session.legs
                if leg.kind == "held" and leg.variant == model and leg.attrs.get("held") == held
            ]
            differs = clock_change(run.legs, legs, readings)
            for tokens in sorted(isolated.keys() & in_situ.keys()):
                found.append(_alternation(run.name, isolated[tokens], in_situ[tokens], differs))
    return found


def _alternation(
    variant: str, isolated: Sequence[Pass], in_situ: Sequence[Pass], differs: str | None
) -> Alternation:
    first = in_situ[0]
    alone_s = median_of([seconds(p) for p in isolated], source="held passes, median")
    real_s = median_of([seconds(p) for p in in_situ], source="passes of the real run, median")
    assert alone_s is not None and real_s is not None  # neither list is empty
    return Alternation(
        variant=variant,
        model=first.model,
        phase=first.phase,
        tokens=first.tokens,
        isolated_s=alone_s,
        isolated_context_tokens=statistics.fmean(p.context_tokens for p in isolated),
        in_situ_s=real_s,
        in_situ_context_tokens=statistics.fmean(p.context_tokens for p in in_situ),
        difference_s=_difference(isolated, in_situ) if differs is None else None,
        not_compared=differs,
    )


def _difference(isolated: Sequence[Pass], in_situ: Sequence[Pass]) -> Quantity:
    """Passes of one answer have much in common, so answers are drawn whole."""
    held = [seconds(p) for p in isolated]
    answers: dict[int | None, list[float]] = defaultdict(list)
    for pass_ in in_situ:
        answers[pass_.request_id].append(seconds(pass_))
    groups = [np.array(times) for times in answers.values()]

    def difference(drawn: Sequence[npt.NDArray[np.float64]], base: Sequence[float]) -> float:
        return float(np.median(np.concatenate(drawn)) - np.median(base))

    def draw(rng: random.Random) -> float:
        return difference(resampled(groups, rng), resampled(held, rng))

    low, high = bootstrap_interval(min(len(groups), len(held)), draw)
    return Quantity(
        value=difference(groups, held),
        low=low,
        high=high,
        n=len(groups),
        kind="measured",
        source="median in the real run less the median of held passes; 95 % bootstrap over answers",
    )


def _by_tokens(passes: Sequence[Pass]) -> dict[int, list[Pass]]:
    found: dict[int, list[Pass]] = defaultdict(list)
    for pass_ in passes:
        found[pass_.tokens].append(pass_)
    return found
