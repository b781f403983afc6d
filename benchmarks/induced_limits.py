"""Limits that are really induced, and what the verdict says: ``python induced_limits.py``.

SmolLM2-135M on the CPU, a few prompts. Each case changes one thing: a draft whose words are
shuffled, a spinning program on the cores, one that streams memory, a draft length of 16, 4-bit
weights where reading is cheap and arithmetic is not, and a limit on memory. What was changed must
be named; what it promises for undoing it is set beside what undoing it gave: tokens/s as it is over
those of the case. Walls are ranked by what they promise, so that those which the run has anyway
(the demo's draft agrees with half of the tokens) may lead, and with dear verification a shorter
draft may. The run as it is comes first and last, so that a drift of the machine shows. Takes about
eight minutes on a quiet machine with two cores; on a busy one every case is one of cores.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgeprof.analysis.summary import Comparison, summarise
from edgeprof.catalog import find_recipe
from edgeprof.cli.prepare import prepare
from edgeprof.errors import EdgeprofError
from edgeprof.models.decoder_folder import HEAD_ROWS_NAME, DecoderFolder, read_decoder_folder
from edgeprof.profiling.recorder import record
from edgeprof.profiling.selection import select
from edgeprof.recipe import Recipe, override, read_recipe

SPIN = "while True: pass"
STREAM = """
import numpy
a = numpy.ones(1 << 25)
b = numpy.empty_like(a)
while True: numpy.copyto(b, a)
"""
MEMORY_LIMIT_BYTES = 600 << 20


class Quiet:
    def plan(self, legs: int) -> None: ...

    def leg(self, leg: Any) -> None: ...


def base(target: str, draft_tokens: int, *, short: bool) -> Recipe:
    recipe = read_recipe(find_recipe("smollm2-135m"))
    chosen = select(recipe, variants=[target, f"{target}+draft"], draft_tokens=[draft_tokens])
    sizes = sorted({1, 2, 3, 4, 5, 8, 12, draft_tokens + 1})
    return override(
        chosen,
        prompts=recipe.prompts[:2] if short else recipe.prompts[:6],
        new_tokens=16 if short else 48,
        repeats=1 if short else 2,
        verify_tokens=sizes,
        held_repeats=3 if short else 9,
    )


@contextmanager
def beside(program: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def memory_limit() -> Iterator[None]:
    """Of this process and those that it starts."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Case(NamedTuple):
    """One thing that is changed, and what the verdict may call it; ``program`` runs beside."""

    name: str
    called: tuple[str, ...]
    target: str = "fp32"
    draft_tokens: int = 2
    program: str | None = None
    shuffled: bool = False


AS_IT_IS = Case("as it is", ())
CASES = (
    Case("K far too large", ("draft length",), draft_tokens=16),
    Case("wrong weight format", ("verification cost", "compute-bound verification"), "int4", 4),
    Case("spin hog", ("cores fought over",), program=SPIN),
    # It takes a core as well, and no counter tells its bytes here.
    Case("memory hog", ("cores fought over", "bus contention"), program=STREAM),
    Case("shuffled draft", ("low acceptance",), shuffled=True),
)


class Measured(NamedTuple):
    """Of the variant with the draft."""

    tokens_per_s: float
    comparison: Comparison

    @property
    def names(self) -> list[str]:
        return [limit.name for limit in self.comparison.verdict.limits]

    @property
    def tokens_a_round(self) -> float:
        terms = self.comparison.round_terms
        return 0.0 if terms is None else terms.tokens


def measure(case: Case, *, short: bool) -> Measured:
    recipe = base(case.target, case.draft_tokens, short=short)
    folders = prepare(recipe, find_recipe("smollm2-135m").parent, talk=lambda _: None)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        if case.program is not None:
            stack.enter_context(beside(case.program))
        if case.shuffled:
            folders = {**folders, "draft": _shuffled_folder(folders["draft"], folder)}
        session = record(recipe, folders, folder / "s.sqlite", progress=Quiet(), force=True)
    summary = summarise(session)
    (comparison,) = summary.comparisons
    rates = {leg.name: leg.tokens_per_s for leg in summary.legs}
    rate = rates[comparison.variant]
    return Measured(0.0 if rate is None else rate.value or 0.0, comparison)


def _shuffled_folder(draft: DecoderFolder, folder: Path) -> DecoderFolder:
    """A copy whose cut head names other words than it means."""
    copy = folder / "shuffled"
    shutil.copytree(draft.path, copy)
    rows = np.load(copy / HEAD_ROWS_NAME)
    np.save(copy / HEAD_ROWS_NAME, np.random.default_rng(0).permutation(rows))
    return read_decoder_folder(copy)


def told(case: Case, found: Measured) -> None:
    comparison = found.comparison
    speedup = comparison.decode_speedup
    value = 0.0 if speedup is None else speedup.value or 0.0
    limits = [
        limit.name + ("" if limit.gain is None else f" ({limit.gain:.2f}x)")
        for limit in comparison.verdict.limits
    ]
    print(
        f"{case.name}: {comparison.variant} {found.tokens_per_s:.1f} tokens/s, {value:.2f}x; "
        f"{', '.join(limits) or 'no limit'}",
        flush=True,
    )


def judged(case: Case, found: Measured, usual: Measured) -> None:
    """Is it named, before what is not usual, and does it promise what undoing it gave?"""
    limits = found.comparison.verdict.limits
    induced = next((limit for limit in limits if limit.name in case.called), None)
    if induced is None:
        print(f"    MISSED: none of {', '.join(case.called)}", flush=True)
        return
    new = [name for name in found.names if name not in usual.names or name in case.called]
    place = "first" if new[0] == induced.name else f"after {new[0]}, which promises more"
    print(f"    {induced.name} is named {place}, walls as it is apart", flush=True)
    print(f"    {induced.evidence}\n    try: {induced.advice}", flush=True)
    if case.target != AS_IT_IS.target or induced.gain is None:
        return  # another model: its tokens/s are not to be compared
    gave, promised = usual.tokens_per_s / found.tokens_per_s, induced.gain
    words = f"promised {promised:.2f}x"
    if case.shuffled:  # by a draft as it is, and not by a good one
        promised = usual.tokens_a_round / found.tokens_a_round
        words += f", {promised:.2f}x at the acceptance as it is"
    print(f"    {words}; undone it gave {gave:.2f}x, {gave / promised:.2f} of it", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="Try the script, measure nothing.")
    short = parser.parse_args().short
    usual = measure(AS_IT_IS, short=short)
    told(AS_IT_IS, usual)
    for case in CASES:
        found = measure(case, short=short)
        told(case, found)
        judged(case, found, usual)
    try:
        with memory_limit():
            told(Case("memory limit", ()), measure(AS_IT_IS, short=short))
    except EdgeprofError as error:
        print(f"memory limit: {error}", flush=True)
    told(Case("as it is, again", ()), measure(AS_IT_IS, short=short))


if __name__ == "__main__":
    main()
