"""Limits that are really induced, and what the verdict leads with: ``python induced_limits.py``.

SmolLM2-135M on the CPU, a few prompts. Each case changes one thing: a draft whose words are
shuffled, a spinning program on the cores, one that streams memory, a draft length of 16, 4-bit
weights where reading is cheap and arithmetic is not, and a limit on memory. Takes about three
minutes on a quiet machine; on a busy one every case is one of cores.
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
from typing import Any

import numpy as np

from edgeprof.analysis.summary import Summary, summarise
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


def measure(recipe: Recipe, folder: Path, *, shuffle: bool = False) -> Summary:
    folders = prepare(recipe, find_recipe("smollm2-135m").parent, talk=lambda _: None)
    if shuffle:
        folders = {**folders, "draft": _shuffled_folder(folders["draft"], folder)}
    session = record(recipe, folders, folder / "s.sqlite", progress=Quiet(), force=True)
    return summarise(session)


def _shuffled_folder(draft: DecoderFolder, folder: Path) -> DecoderFolder:
    """A copy whose cut head names other words than it means."""
    copy = folder / "shuffled"
    shutil.copytree(draft.path, copy)
    rows = np.load(copy / HEAD_ROWS_NAME)
    np.save(copy / HEAD_ROWS_NAME, np.random.default_rng(0).permutation(rows))
    return read_decoder_folder(copy)


def told(name: str, summary: Summary) -> None:
    for one in summary.comparisons:
        speedup = one.decode_speedup
        value = 0.0 if speedup is None else speedup.value or 0.0
        limits = [
            f"{limit.name}" + ("" if limit.gain is None else f" ({limit.gain:.2f}x)")
            for limit in one.verdict.limits
        ]
        print(f"{name}: {one.variant} {value:.2f}x; {', '.join(limits) or 'no limit'}", flush=True)
        for limit in one.verdict.limits[:1]:
            print(f"    {limit.evidence}\n    try: {limit.advice}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="Try the script, measure nothing.")
    given = parser.parse_args()
    cases: dict[str, tuple[str, int, str | None]] = {
        "as it is": ("fp32", 2, None),
        "K far too large": ("fp32", 16, None),
        "wrong weight format": ("int4", 2, None),
        "spin hog": ("fp32", 2, SPIN),
        "memory hog": ("fp32", 2, STREAM),
        "shuffled draft": ("fp32", 2, None),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case, (target, draft_tokens, program) in cases.items():
            with ExitStack() as stack:
                if program is not None:
                    stack.enter_context(beside(program))
                recipe = base(target, draft_tokens, short=given.short)
                told(case, measure(recipe, folder, shuffle=case == "shuffled draft"))
        try:
            with memory_limit():
                told("memory limit", measure(base("fp32", 2, short=given.short), folder))
        except EdgeprofError as error:
            print(f"memory limit: {error}")


if __name__ == "__main__":
    main()
