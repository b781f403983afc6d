"""Is the leading limit the one that was built in? ``python benchmarks/verdict_confusion.py``.

200 constructed sessions, each from its seed: clean ones, with one limit, with two. Every pass of
them has its time, with 3 % of noise, and goes through the same lines as a measured session. Some
hold contention legs too, by whose kappa the bus is to be blamed or not. Of two
limits the leading one is that whose undoing, in the construction, makes the variant faster by more;
a fault of the set-up comes before a cost. Where both make it faster by nearly the same (within
5 %), either is right. Prints the confusion matrix.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from made_session import MS, SessionMaker

from edgeprof.analysis.speculation import expected_tokens
from edgeprof.analysis.summary import summarise
from edgeprof.session.records import Event, Session

VARIANT, PLAIN = "t+draft k={}", "t"
PROMPTS, REPEATS, ROUNDS = 4, 3, 24
CONTEND_REPEATS, CONTEND_PASSES = 3, 20
BESIDE = {"shared": 1.5, "slack": 1.0}  # a pass beside the draft, over one alone
TARGET_BYTES = 4_000_000_000
NO_LIMIT = "none"
EITHER = 1.05


class World(NamedTuple):
    """What a session is built from; costs in plain target passes."""

    k: int = 4
    acceptance: float = 0.8
    draft: float = 0.06
    draft_bytes: float = 0.06
    verify_slope: float = 0.01
    compute_bound: bool = False
    fixed: float = 0.02
    in_situ: float = 1.0
    overlap: bool = False
    kappa: str | None = None
    vocabulary: float = 1.0
    swapped: bool = False
    throttled: bool = False
    clocks: bool = False
    provider: str = "cuda"
    draft_provider: str = "cuda"
    draft_threads: int = 1
    others: float = 0.0

    def v(self, tokens: int) -> float:
        return 1 + self.verify_slope * (tokens - 1)

    @property
    def speedup(self) -> float:
        round_cost = self.k * self.draft + self.v(self.k + 1)
        return expected_tokens(self.acceptance, self.k) / (round_cost * self.in_situ + self.fixed)


def clean(rng: random.Random) -> World:
    world = World(
        acceptance=rng.uniform(0.72, 0.9),
        draft=(draft := rng.uniform(0.03, 0.1)),
        draft_bytes=draft * rng.uniform(0.7, 1.1),
        verify_slope=rng.uniform(0.0, 0.02),
        fixed=rng.uniform(0.0, 0.04),
        in_situ=rng.uniform(0.98, 1.04),
        kappa=rng.choice([None, None, "shared", "slack"]),
    )
    return max((world._replace(k=k) for k in range(1, 13)), key=lambda one: one.speedup)


def _slow(world: World, rng: random.Random) -> World:
    return world._replace(in_situ=rng.uniform(1.4, 2.0))


def _crowded(world: World) -> World:
    """Others took the share of the two cores by which passes became slower."""
    others = 2 * (1 - 1 / world.in_situ)
    return world._replace(others=others, draft_provider="cpu", draft_threads=2)


def _at_once(world: World, kappa: str | None) -> World:
    """The draft runs on a core, the target on the GPU."""
    return world._replace(overlap=True, draft_provider="cpu", kappa=kappa)


def _in_turns(world: World, rng: random.Random) -> World:
    """Nothing else is seen, or both ran at once and the bus was measured to have room."""
    return rng.choice([world._replace(kappa=None), _at_once(world, "slack")])


LIMITS: dict[str, Callable[[World, random.Random], World]] = {
    "low acceptance": lambda w, r: w._replace(acceptance=r.uniform(0.1, 0.4)),
    "mismatched vocabularies": lambda w, r: w._replace(
        acceptance=r.uniform(0.02, 0.2), vocabulary=r.uniform(0.5, 0.9)
    ),
    "draft cost": lambda w, r: w._replace(draft=(c := r.uniform(0.25, 0.6)), draft_bytes=c),
    "overhead-bound draft": lambda w, r: w._replace(
        draft=r.uniform(0.25, 0.6), draft_bytes=r.uniform(0.02, 0.1)
    ),
    "verification cost": lambda w, r: w._replace(verify_slope=r.uniform(0.15, 0.4)),
    "compute-bound verification": lambda w, r: w._replace(
        verify_slope=r.uniform(0.15, 0.4), compute_bound=True
    ),
    "overhead": lambda w, r: w._replace(fixed=r.uniform(0.5, 1.2)),
    "draft length": lambda w, r: w._replace(
        k=r.randint(14, 20), acceptance=r.uniform(0.6, 0.75), draft=r.uniform(0.08, 0.1)
    ),
    "bus contention": lambda w, r: _at_once(_slow(w, r), r.choice([None, "shared"])),
    "alternation": lambda w, r: _in_turns(_slow(w, r), r),
    "GPU fought over": lambda w, r: _slow(w, r)._replace(overlap=True, kappa=None),
    "memory pressure": lambda w, r: _slow(w, r)._replace(swapped=True),
    "cores fought over": lambda w, r: _crowded(_slow(w, r)),
    "throttled": lambda w, _: w._replace(throttled=True),
    "clocks not pinned": lambda w, _: w._replace(clocks=True),
    "wrong provider": lambda w, _: w._replace(provider="cpu"),
}
SETUP = ("memory pressure", "throttled", "wrong provider")
# These change the same part of the construction: two of one group are one limit.
GROUPS = (
    {"low acceptance", "mismatched vocabularies", "draft length"},
    {"draft cost", "overhead-bound draft", "draft length"},
    {"verification cost", "compute-bound verification"},
    {"bus contention", "alternation", "GPU fought over", "memory pressure", "cores fought over"},
    {"GPU fought over", "wrong provider"},
    {"throttled", "clocks not pinned"},
)
CLOCK_GAIN = 1.25


def gain(name: str, both: World, base: World, rng: random.Random) -> float:
    """What undoing one limit gains in the construction."""
    if name in SETUP:
        return float("inf")
    if name == "clocks not pinned":
        return CLOCK_GAIN
    changed = LIMITS[name](base, rng)
    fields = [f for f in World._fields if getattr(changed, f) != getattr(base, f)]
    undone = both._replace(**{f: getattr(base, f) for f in fields})
    return undone.speedup / both.speedup


def build(world: World, seed: int) -> Session:
    rng = random.Random(seed)
    maker = SessionMaker()
    unit_ms = rng.uniform(20, 60)
    variant = VARIANT.format(world.k)
    _models(maker, world, unit_ms)
    sizes = sorted({1, 2, 3, 5, 8, 12, 16, 21, world.k + 1})
    held = {n: tuple(unit_ms * world.v(n) * _noise(rng) for _ in range(9)) for n in sizes}
    maker.held_leg("verify", PLAIN, held)
    maker.held_leg("draft", "draft", {1: tuple(unit_ms * world.draft * _noise(rng)
                                               for _ in range(9))})  # fmt: skip
    _ceiling(maker, world, unit_ms)
    if world.kappa is not None:
        _contend(maker, world, unit_ms, BESIDE[world.kappa], rng)
    for repeat in range(REPEATS):
        for name in (PLAIN, variant):
            for prompt in range(PROMPTS):
                _answer(maker, world, name, repeat, prompt, unit_ms, rng)
    _signals(maker, world, rng)
    return maker.session()


def _noise(rng: random.Random) -> float:
    return rng.gauss(1.0, 0.03)


def _models(maker: SessionMaker, world: World, unit_ms: float) -> None:
    known = maker.info.models
    target = replace(
        known["fp32"], provider=world.provider, streamed_weight_bytes=TARGET_BYTES, kernel="x",
        flop_per_token=2 * TARGET_BYTES, kv_bytes_per_token=0, vocab_size=32_000, threads=2,
    )  # fmt: skip
    draft = replace(
        known["draft"], provider=world.draft_provider, threads=world.draft_threads,
        kv_bytes_per_token=0,
        streamed_weight_bytes=round(TARGET_BYTES * world.draft_bytes),
        vocab_size=round(32_000 * world.vocabulary),
    )  # fmt: skip
    maker.info = replace(maker.info, models={"t": target, "draft": draft})


def _ceiling(maker: SessionMaker, world: World, unit_ms: float) -> None:
    """Arithmetic that a verify pass reaches to 70 or to 10 %."""
    tokens = world.k + 1
    rate = 2 * TARGET_BYTES * tokens / (unit_ms * world.v(tokens))
    ceiling = rate / (0.7 if world.compute_bound else 0.1)
    flop = 10_000_000_000
    maker.ceiling_leg("x", TARGET_BYTES, flop, {1: unit_ms / 1.2, 64: 64 * flop / ceiling})


def _contend(
    maker: SessionMaker, world: World, unit_ms: float, beside: float, rng: random.Random
) -> None:
    """The target alone, the draft alone, and both."""
    attrs = {"antagonist": "draft", "antagonist_kind": "model", "dose": 1.0,
             "competes_for": ["bus"], "core_share": 1.0}  # fmt: skip
    whole_ms = CONTEND_PASSES * unit_ms * beside
    for repeat in range(1, CONTEND_REPEATS + 1):
        for target_ms, more in ((unit_ms, {}), (None, attrs), (unit_ms * beside, attrs)):
            leg_id = maker.leg("contend", PLAIN, repeat=repeat, attrs=more)
            start = maker.now
            while target_ms is not None and maker.now < start + whole_ms * MS:
                maker.run_pass(leg_id, "decode", PLAIN, target_ms * _noise(rng))
            end, maker.now = maker.now, start
            while more and maker.now < start + whole_ms * MS:
                draft_ms = unit_ms * world.draft * _noise(rng)
                maker.run_pass(leg_id, "draft", "draft", draft_ms, stream=1)
            maker.now = max(end, maker.now)
            maker.end_leg()


def _answer(
    maker: SessionMaker,
    world: World,
    name: str,
    repeat: int,
    prompt: int,
    unit_ms: float,
    rng: random.Random,
) -> None:
    from made_session import Shape

    shapes = []
    if name == PLAIN:
        for _ in range(2 * ROUNDS):
            pass_ms = unit_ms * _noise(rng)
            shapes.append(Shape(0, 0, 0, 1, 0.0, pass_ms, 0.005 * unit_ms))
    else:
        for _ in range(ROUNDS):
            shapes.append(_round(world, unit_ms, rng))
    emitted = 1 + sum(shape.emitted for shape in shapes)
    answers = {f"p{prompt}": list(range(emitted))}
    first = len(maker.passes)
    maker.decode_leg(name, repeat=repeat, rounds=shapes, answers=answers)
    if name != PLAIN and world.overlap:
        _overlap(maker, first)
    leg = maker.legs[-1]
    seconds = ((leg.t1_ns or 0) - leg.t0_ns) / 1e9
    attrs: dict[str, Any] = {"processor": {"others_s": world.others * seconds, "stolen_s": 0.0}}
    grown = (64 << 20) if world.swapped and name != PLAIN else 0
    attrs["memory"] = {"swap_growth_bytes": grown, "major_faults": 0}
    maker.legs[-1] = replace(leg, attrs={**leg.attrs, **attrs})
    if world.throttled:
        detail = {"counter": "oc1", "from": 1, "to": 2}
        t_ns = (leg.t0_ns + (leg.t1_ns or 0)) // 2
        maker.events.append(
            Event(leg_id=None, t_ns=t_ns, kind="throttling", severity="warning", detail=detail)
        )


def _round(world: World, unit_ms: float, rng: random.Random) -> Any:
    from made_session import Shape

    accepted = 0
    while accepted < world.k and rng.random() < world.acceptance:
        accepted += 1
    evaluated = min(accepted + 1, world.k)
    draft_ms = unit_ms * world.draft * world.in_situ * _noise(rng)
    target_ms = unit_ms * world.v(world.k + 1) * world.in_situ * _noise(rng)
    other_ms = unit_ms * (0.005 + world.fixed)
    return Shape(world.k, evaluated, accepted, accepted + 1, draft_ms, target_ms, other_ms)


def _overlap(maker: SessionMaker, first: int) -> None:
    """Draft passes begin when the verify pass before them is half done; the rest stays."""
    half_ns = 0
    for i in range(first, len(maker.passes)):
        one = maker.passes[i]
        if one.phase == "verify":
            half_ns = (one.t1_ns - one.t0_ns) // 2
        elif one.phase == "draft" and half_ns:
            shifted = replace(one, t0_ns=one.t0_ns - half_ns, t1_ns=one.t1_ns - half_ns)
            maker.passes[i] = shifted


def _signals(maker: SessionMaker, world: World, rng: random.Random) -> None:
    """A GPU that is busy, unless the models run elsewhere; a clock that stands still, or not."""
    start, end = maker.legs[0].t0_ns, maker.now
    times = range(start, end, 50 * MS)
    busy = 0.03 if world.provider == "cpu" else 0.9
    maker.signal("gpu_busy_frac", "", [(t, busy) for t in times])
    slow = 1 / (2 * CLOCK_GAIN - 1)  # half of the time, so that the mean is 1 / 1.25 of the highest
    slow = 2 / CLOCK_GAIN - 1

    def hz(i: int) -> float:
        return 918e6 * (slow if world.clocks and i % 2 else 1.0) * rng.uniform(0.998, 1.0)

    maker.signal("gpu_clock_hz", "Hz", [(t, hz(i)) for i, t in enumerate(times)])


class Case(NamedTuple):
    """A world and the limits that lead in it."""

    world: World
    leading: frozenset[str]


def case(seed: int, count: int) -> Case:
    rng = random.Random(seed)
    base = clean(rng)
    if count == 0:
        return Case(base, frozenset((NO_LIMIT,)))
    for _ in range(1000):
        names = rng.sample(sorted(LIMITS), count)
        if any(len(group & set(names)) > 1 for group in GROUPS):
            continue
        world = base
        for name in names:
            world = LIMITS[name](world, rng)
        gains = {name: gain(name, world, base, rng) for name in names}
        largest = max(gains.values())
        if largest < 1.2:
            continue
        return Case(world, frozenset(n for n, g in gains.items() if g * EITHER >= largest))
    raise AssertionError("no such case")


def leading(session: Session) -> str:
    (comparison,) = summarise(session).comparisons
    limits = [one for one in comparison.verdict.limits if one.name != "output differs"]
    return limits[0].name if limits else NO_LIMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clean", type=int, default=60)
    parser.add_argument("--one", type=int, default=80)
    parser.add_argument("--two", type=int, default=60)
    given = parser.parse_args()
    matrix: Counter[tuple[str, str]] = Counter()
    right: Counter[int] = Counter()
    seed = 0
    for count, cases in enumerate((given.clean, given.one, given.two)):
        for _ in range(cases):
            seed += 1
            made = case(seed, count)
            named = leading(build(made.world, seed))
            truth = named if named in made.leading else "/".join(sorted(made.leading))
            matrix[truth, named] += 1
            right[count] += named in made.leading
    print("| built in | named | sessions |\n|---|---|---|")
    for (truth, named), cases in sorted(matrix.items()):
        print(f"| {truth} | {named} | {cases} |")
    for count, cases in enumerate((given.clean, given.one, given.two)):
        print(f"{count} limits: {right[count]} of {cases} right")


if __name__ == "__main__":
    main()
