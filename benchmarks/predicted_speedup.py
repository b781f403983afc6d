"""Is the predicted speed-up the one that held-out prompts get? ``python predicted_speedup.py``.

    python benchmarks/predicted_speedup.py collect FOLDER     until all sessions are there
    python benchmarks/predicted_speedup.py compare FOLDER     the table, from the sessions

SmolLM2-135M, both weight formats, n-gram and model drafter, K from 1 to 7. Acceptance comes from
one run at K = 8 on the prompts with every second filling of ``data/prompt_families.toml``; c and
v(n) from held passes; measured is the decode speed-up on the prompts with the other fillings, of
which nothing else is used. One call of ``collect`` records one session that is missing, so that a
quiet machine is asked for minutes only; call it again until it says that nothing is missing. Where
the machine drifts, a calibration that was renamed to ``fp32-calibration-before.sqlite`` counts
together with one recorded after the others. Pairs of answers of which one ran while something
outside slowed the machine are left out of what was measured, by the times of passes of equal size,
and counted.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from edgeprof.analysis.comparison import Pair, decode_speedup, pairs_of
from edgeprof.analysis.forecast import RoundTimes, forecasts, round_times
from edgeprof.analysis.latency import seconds
from edgeprof.analysis.pass_cost import held_passes
from edgeprof.analysis.variants import Answer, VariantRuns, plain_variant, variants_of
from edgeprof.catalog import find_recipe
from edgeprof.cli.prepare import prepare
from edgeprof.profiling.recorder import record
from edgeprof.recipe import ModelDrafter, Prompt, Recipe, Variant, override, read_recipe
from edgeprof.session.records import Session
from edgeprof.session.store import read_session
from edgeprof.tomlfile import load_toml

WEIGHTS = ("fp32", "int4")
DRAFTERS = ("ngram", "draft")
LONGEST = 8
HELD_REPEATS = 30
DISTURBED = 1.25
LEAST_PASSES = 4
NEW_TOKENS = 48
PER_SESSION = 24  # held-out prompts
FAMILIES = Path(__file__).parent / "data" / "prompt_families.toml"
TEMPLATE = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


class Family(Struct, frozen=True, kw_only=True):
    """Every filling in every template is a prompt."""

    kind: str
    templates: list[str]
    fillings: list[str]


class Families(Struct, frozen=True, kw_only=True):
    families: list[Family]


class Quiet:
    def plan(self, legs: int) -> None: ...

    def leg(self, leg: Any) -> None: ...


def base() -> Recipe:
    return read_recipe(find_recipe("smollm2-135m"))


def prompts(held_out: bool) -> list[Prompt]:
    """Of both uses equally many of every template, shuffled, so that a session has some of each."""
    found = [
        Prompt(kind=family.kind, text=template.replace("{filling}", filling))
        for family in load_toml(FAMILIES, Families).families
        for template in family.templates
        for filling in family.fillings[held_out::2]
    ]
    return random.Random(0).sample(found, len(found))


def recipes() -> Iterator[tuple[str, Recipe]]:
    """Every session, by its file's name."""
    held_out = prompts(held_out=True)
    for weights in WEIGHTS:
        yield f"{weights}-calibration", recipe(weights, [LONGEST], prompts(held_out=False))
    for start, weights in product(range(0, len(held_out), PER_SESSION), WEIGHTS):
        part = held_out[start : start + PER_SESSION]
        name = f"{weights}-held-out-{start // PER_SESSION + 1:02d}"
        yield name, recipe(weights, list(range(1, LONGEST)), part)


def recipe(target: str, lengths: list[int], asked: list[Prompt]) -> Recipe:
    found = base()
    variants = [Variant(target=target)]
    variants += [
        Variant(target=target, drafter=drafter, draft_tokens=length)
        for length in lengths
        for drafter in DRAFTERS
    ]
    assert isinstance(found.drafters["draft"], ModelDrafter)
    return override(
        found,
        template=TEMPLATE,
        targets={target: found.targets[target]},
        variants=variants,
        prompts=asked,
        new_tokens=NEW_TOKENS,
        repeats=1,
        warmup_requests=0,
        held_repeats=HELD_REPEATS,
        verify_tokens=list(range(1, LONGEST + 2)),
        measure_ceiling=False,
    )


def collect(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, wanted in recipes():
        path = folder / f"{name}.sqlite"
        if path.exists():
            continue
        folders = prepare(wanted, find_recipe("smollm2-135m").parent, talk=print)
        scratch = path.with_suffix(".part")
        record(wanted, folders, scratch, progress=Quiet(), force=True)
        scratch.rename(path)
        print(name)
        return
    print("nothing is missing")


def compare(folder: Path) -> None:
    """Predictions from the calibration session against what the held-out prompts were given."""
    print(
        "| weights | drafter | K | predicted | measured | ratio | with their acceptance | quiet |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for weights, drafter in product(WEIGHTS, DRAFTERS):
        calibrations = [
            read_session(path) for path in sorted(folder.glob(f"{weights}-calibration*.sqlite"))
        ]
        held_out = [
            read_session(path) for path in sorted(folder.glob(f"{weights}-held-out-*.sqlite"))
        ]
        times, run = _calibrated(calibrations, held_out, weights, drafter)
        usual_s = _usual_s(held_out)
        for one in forecasts(run, times, range(1, LONGEST)):
            every = _pairs(held_out, weights, drafter, one.draft_tokens)
            pairs = _quiet(every, usual_s)
            measured = decode_speedup(pairs)
            assert measured is not None and measured.value is not None
            own = _with_their_acceptance(pairs, times)
            print(
                f"| {weights} | {drafter} | {one.draft_tokens} "
                f"| {one.predicted_speedup:.2f} [{one.low:.2f}, {one.high:.2f}] "
                f"| {measured.value:.2f} [{measured.low:.2f}, {measured.high:.2f}] "
                f"| {one.predicted_speedup / measured.value:.3f} | {own / measured.value:.3f} "
                f"| {len(pairs)} of {len(every)} |"
            )


def _calibrated(
    calibrations: list[Session], held_out: list[Session], weights: str, drafter: str
) -> tuple[RoundTimes, VariantRuns]:
    """Held passes of all sessions together; the rest from the calibrations together."""
    plains, runs = [], []
    for session in calibrations:
        found = variants_of(session)
        plains += [one for one in found if one.drafter is None]
        runs += [one for one in found if one.drafter == drafter]
    passes: dict[int, list[float]] = defaultdict(list)
    for session in (*calibrations, *held_out):
        for one in held_passes(session, "verify")[weights]:
            passes[one.tokens].append(seconds(one))
    held_s = {tokens: median(times) for tokens, times in passes.items()}
    run = _joined(runs)
    times = round_times(run, _joined(plains), held_s)
    assert times is not None
    return times, run


def _joined(runs: list[VariantRuns]) -> VariantRuns:
    return replace(runs[0], answers=[answer for run in runs for answer in run.answers])


def _pairs(held_out: list[Session], weights: str, drafter: str, length: int) -> list[Pair]:
    found: list[Pair] = []
    for session in held_out:
        runs = variants_of(session)
        plain = plain_variant(runs, weights)
        for run in runs:
            if plain is not None and (run.drafter, run.draft_tokens) == (drafter, length):
                found += pairs_of(run, plain)
    return found


def _quiet(pairs: list[Pair], usual_s: dict[tuple[str, int], float]) -> list[Pair]:
    """Those whose answers both ran while nothing outside slowed the machine: no target pass of one
    size took, in the median of an answer, DISTURBED times what such passes usually take."""

    def slow(answer: Answer) -> bool:
        sizes: dict[tuple[str, int], list[float]] = defaultdict(list)
        for one in answer.passes:
            if one.phase in ("decode", "verify"):
                sizes[one.model, one.tokens].append(seconds(one))
        return any(
            median(times) > DISTURBED * usual_s[size]
            for size, times in sizes.items()
            if len(times) >= LEAST_PASSES
        )

    return [pair for pair in pairs if not slow(pair.speculative) and not slow(pair.plain)]


def _usual_s(sessions: list[Session]) -> dict[tuple[str, int], float]:
    """Medians of target passes by model and tokens, over all answers of all sessions."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for session in sessions:
        for one in session.passes:
            if one.phase in ("decode", "verify") and one.request_id is not None:
                times[one.model, one.tokens].append(seconds(one))
    return {size: median(values) for size, values in times.items()}


def _with_their_acceptance(pairs: list[Pair], times: RoundTimes) -> float:
    """The same times, with the rounds that really came: what is left is the error of the times."""
    rounds = [one for pair in pairs for one in pair.speculative.rounds]
    total_s = sum(times.round_s(one.drafted) or 0.0 for one in rounds)
    return sum(one.emitted for one in rounds) * times.plain_s / total_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["collect", "compare"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.what == "collect":
        collect(given.folder)
    else:
        compare(given.folder)


if __name__ == "__main__":
    main()
