"""Is the predicted speed-up the one that held-out prompts get? ``python predicted_speedup.py``.

    python benchmarks/predicted_speedup.py collect FOLDER     until all sessions are there
    python benchmarks/predicted_speedup.py compare FOLDER     the table, from the sessions

SmolLM2-135M, both weight formats, n-gram and model drafter, K from 1 to 7. Acceptance comes from
one run at K = 8 on the prompts of the recipe and those that were tuned on; c and v(n) from held
passes; measured is the decode speed-up on the final prompts, of which nothing else is used. One
call of ``collect`` records one session that is missing, so that a quiet machine is asked for
minutes only; call it again until it says that nothing is missing.
"""

import argparse
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from speed_rounds import read_prompts

from edgeprof.catalog import find_recipe
from edgeprof.cli.prepare import prepare
from edgeprof.profiling.recorder import record
from edgeprof.recipe import ModelDrafter, Prompt, Recipe, Variant, override, read_recipe

WEIGHTS = ("fp32", "int4")
DRAFTERS = ("ngram", "draft")
LONGEST = 8
HELD_REPEATS = 30
PER_SESSION = 11  # held-out prompts
TEMPLATE = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


class Quiet:
    def plan(self, legs: int) -> None: ...

    def leg(self, leg: Any) -> None: ...


def base() -> Recipe:
    return read_recipe(find_recipe("smollm2-135m"))


def calibration_prompts() -> list[Prompt]:
    return [Prompt(kind=kind, text=text) for kind, text in _texts("tuning")]


def held_out_prompts() -> list[Prompt]:
    """Shuffled, so that every session has some of every kind."""
    prompts = [Prompt(kind=kind, text=text) for kind, text in _texts("final")]
    prompts += base().prompts
    return random.Random(0).sample(prompts, len(prompts))


def _texts(use: str) -> list[tuple[str, str]]:
    before, after = TEMPLATE.split("{prompt}")
    return [
        (kind, text.removeprefix(before).removesuffix(after)) for kind, text in read_prompts(use)
    ]


def recipes(repeats: int) -> Iterator[tuple[str, Recipe]]:
    """Every session, by its file's name."""
    parts = range(0, len(held_out_prompts()), PER_SESSION)
    for weights in WEIGHTS:
        yield f"{weights}-calibration", recipe(weights, [LONGEST], calibration_prompts(), 128)
    for repeat, weights, start in product(range(1, repeats + 1), WEIGHTS, parts):
        part = held_out_prompts()[start : start + PER_SESSION]
        name = f"{weights}-held-out-{repeat}-{start // PER_SESSION + 1}"
        yield name, recipe(weights, list(range(1, LONGEST)), part, 64)


def recipe(target: str, lengths: list[int], prompts: list[Prompt], new_tokens: int) -> Recipe:
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
        prompts=prompts,
        new_tokens=new_tokens,
        repeats=1,
        warmup_requests=0,
        held_repeats=HELD_REPEATS,
        verify_tokens=list(range(1, LONGEST + 2)),
        measure_ceiling=False,
    )


def collect(folder: Path, repeats: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, wanted in recipes(repeats):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["collect", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    if given.what == "collect":
        collect(given.folder, given.repeats)


if __name__ == "__main__":
    main()
