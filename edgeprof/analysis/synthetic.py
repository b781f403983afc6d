"""The synthetic tests of a session: how fast random tokens went through a target.

Comparable with llama-bench: the time is that from the first measured pass to the end of the last,
the tokens cached before are not in it. Warm-up is left out.
"""

from collections import defaultdict

from msgspec import Struct

from edgeprof.session.records import Leg, Pass, Session


class SyntheticRuns(Struct, frozen=True, kw_only=True):
    """One test of one target; ``rates`` are tokens/s, one a repeat. ``measured`` holds of each
    complete leg its repeat, the start and end of what was measured, and the tokens."""

    name: str
    target: str
    tokens: int
    rates: list[float]
    legs: list[Leg]
    measured: list[tuple[int, int, int, int]]


def synthetic_runs(session: Session) -> list[SyntheticRuns]:
    """In the order in which they were first run; a leg that was cut short has no rate."""
    passes: dict[int, list[Pass]] = defaultdict(list)
    for pass_ in session.passes:
        passes[pass_.leg_id].append(pass_)
    legs: dict[tuple[str, str], list[Leg]] = defaultdict(list)
    for leg in session.legs:
        if leg.kind == "decode" and not leg.warmup and "test" in leg.attrs:
            legs[str(leg.attrs["test"]), leg.variant].append(leg)
    found = []
    for (name, target), own in legs.items():
        complete = [leg for leg in own if leg.status == "complete"]
        measured = [
            (leg.repeat, *span) for leg in complete if (span := _measured(leg, passes[leg.id]))
        ]
        found.append(
            SyntheticRuns(
                name=name,
                target=target,
                tokens=sum(tokens for *_, tokens in measured),
                rates=[
                    tokens / (t1_ns - t0_ns) * 1e9
                    for _, t0_ns, t1_ns, tokens in measured
                    if t1_ns > t0_ns
                ],
                legs=own,
                measured=measured,
            )
        )
    return found


def _measured(leg: Leg, passes: list[Pass]) -> tuple[int, int, int] | None:
    """From when to when tokens were measured, and how many."""
    depth = leg.attrs.get("depth_tokens")
    depth_tokens = depth if isinstance(depth, int) else 0
    own = [pass_ for pass_ in passes if pass_.context_tokens >= depth_tokens]
    if not own:
        return None
    return own[0].t0_ns, own[-1].t1_ns, sum(pass_.tokens for pass_ in own)
