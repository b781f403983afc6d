"""Adaptive draft length against every fixed one: ``python benchmarks/draft_length.py``.

SmolLM2-135M, greedy, up to 128 tokens; ratios to plain decoding by class of prompt, from
neighbouring runs of one process. ``--drafter draft`` drafts with the small model, and prints what
its acceptance and costs predict: tokens a round over v(n) and draft steps, by the runs' own passes.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence

from speed_rounds import (
    Run,
    Way,
    Worker,
    geomean,
    ratio,
    ratio_line,
    read_prompts,
    run_rounds,
)

from edgeprof.convert.folder import cached_conversion
from edgeprof.models.cache import cache_dir
from edgeprof.models.fetch import fetch
from edgeprof.profiling.tokenizer import Tokenizer

OURS = "edgeprof"
LENGTHS = {"ngram": (1, 2, 3, 4, 6, 8), "draft": (1, 2, 3, 4)}
MOST_DRAFTED = 8


def ways(drafter: str) -> list[Way]:
    fixed = [Way(f"k={k}", OURS, {"drafter": drafter, "draft_tokens": k}) for k in LENGTHS[drafter]]
    asked = {"drafter": drafter, "draft_tokens": MOST_DRAFTED, "adaptive": True}
    return [Way("plain", OURS, {}), *fixed, Way("adaptive", OURS, asked)]


def predicted(runs: Sequence[Run], way: str) -> float | None:
    """The speed-up by the formula: plain passes that the emitted tokens stand for, over the target
    passes and draft steps that were run, each at the median cost of its size; host left out."""
    plain = _pass_medians(runs, "plain")
    costs = _pass_medians(runs, way) | {("decode", 1): plain[("decode", 1)]}
    tokens = passes_s = 0.0
    for run in runs:
        if run.way != way:
            continue
        tokens += len(run.tokens) - 1
        for phase, size, _, _ in run.answer["passes"]:
            passes_s += costs[(phase, size)] if phase != "prefill" else 0.0
    return tokens * plain[("decode", 1)] / passes_s if passes_s else None


def _pass_medians(runs: Sequence[Run], way: str) -> dict[tuple[str, int], float]:
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for run in runs:
        for phase, size, t0_ns, t1_ns in run.answer["passes"] if run.way == way else []:
            found[phase, size].append((t1_ns - t0_ns) / 1e9)
    return {key: statistics.median(values) for key, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", choices=["as-is", "fp32"], default="as-is")
    parser.add_argument("--drafter", choices=["ngram", "draft"], default="ngram")
    parser.add_argument("--use", choices=["tuning", "final"], default="final")
    parser.add_argument("--per-kind", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    gguf = fetch("smollm2-135m")
    folder = cached_conversion(gguf.path, gguf.sha256, cache=cache_dir() / "decoders")
    tokenizer = Tokenizer(folder)
    prompts = [
        (kind, tokenizer.encode(text)) for kind, text in read_prompts(given.use, given.per_kind)
    ]
    arguments = [OURS, "--weights", given.weights]
    arguments += ["--draft", "smollm2-135m-draft"] if given.drafter == "draft" else []
    with Worker(sys.executable, arguments) as worker:
        runs = run_rounds(
            {OURS: worker},
            ways(given.drafter),
            prompts,
            rounds=given.rounds,
            new_tokens=128,
            end_tokens=folder.end_token_ids,
            minutes=given.minutes,
        )
    for way in ways(given.drafter)[1:]:
        print(ratio_line(f"{way.name} / plain", ratio(runs, way.name, "plain")))
        expected = predicted(runs, way.name)
        rates = [geomean([r.rate for r in runs if r.way == name]) for name in (way.name, "plain")]
        if expected is not None:
            print(f"    all runs: {rates[0] / rates[1]:.3f}, predicted from passes {expected:.3f}")


if __name__ == "__main__":
    main()
