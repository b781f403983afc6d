"""Adaptive draft length against every fixed one: ``python benchmarks/draft_length.py``.

SmolLM2-135M, greedy, up to 128 tokens; ratios to plain decoding by class of prompt, from
neighbouring runs of one process, and beside them what acceptance and the costs of held passes
predict. ``--drafter draft`` drafts with the small model.
"""

import argparse
import sys
from pathlib import Path

from speed_rounds import (
    Way,
    Worker,
    beside_prediction,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", choices=["as-is", "fp32"], default="as-is")
    parser.add_argument("--drafter", choices=["ngram", "draft"], default="ngram")
    parser.add_argument("--use", choices=["tuning", "final"], default="final")
    parser.add_argument("--per-kind", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--keep", type=Path, required=True, help="holds every run; added to")
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
            keep=given.keep,
        )
    for way in ways(given.drafter)[1:]:
        print(ratio_line(f"{way.name} / plain", ratio(runs, way.name, "plain")))
        measured, predicted = beside_prediction(runs, way.name, "plain")
        print(f"    all answers together {measured:.3f}, by acceptance, v and c {predicted:.3f}")


if __name__ == "__main__":
    main()
