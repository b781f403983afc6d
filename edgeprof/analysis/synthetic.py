"""The synthetic tests of a session: how fast random tokens went through a target.

Comparable with llama-bench: the time is that from the first measured pass to the end of the last,
the tokens cached before are not in it. Warm-up is left out.
"""

from collections import defaultdict

from msgspec import Struct

from edgeprof.session.records import Leg, Pass, Session


class SyntheticRuns(Struct, frozen=True, kw_only=True):
    """One test of one target; ``rates`` are tokens/s, one a repeat."""

    name: str
    target: str
    tokens: int
    rates: list[float]
    legs: list[Leg]


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
        measured = [_measured(leg, passes[leg.id]) for leg in own if leg.status == "complete"]
        found.append(
            SyntheticRuns(
                name=name,
                target=target,
                tokens=sum(tokens for tokens, _ in measured),
                rates=[tokens / seconds for tokens, seconds in measured if seconds > 0],
                legs=own,
            )
        )
    return found


def _measured(leg: Leg, passes: list[Pass]) -> tuple[int, float]:
    """The tokens that were measured, and the seconds that they took."""
    depth = leg.attrs.get("depth_tokens")
    depth_tokens = depth if isinstance(depth, int) else 0
    own = [pass_ for pass_ in passes if pass_.context_tokens >= depth_tokens]
    if not own:
        return 0, 0.0
    return sum(pass_.tokens for pass_ in own), (own[-1].t1_ns - own[0].t0_ns) / 1e9
