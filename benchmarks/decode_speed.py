"""How fast decoding is, beside others: ``python benchmarks/decode_speed.py``.

SmolLM2-135M with its own 4-bit blocks, or with ``--weights fp32`` the same weights widened; greedy,
up to 128 tokens, two threads, each engine in a process of its own. Without a peer's options it is
left out:

    --llama-python PYTHON --gguf FILE        an environment with llama-cpp-python
    --genai-python PYTHON --genai FOLDER     one with onnxruntime-genai, and what its builder wrote,
                                             which edgeprof then runs, too

Prints rates, and ratios of neighbouring runs by class of prompt, beside what acceptance and the
costs of held passes predict. A round takes half a minute or more on two quiet cores: ``--keep
FILE`` holds every run, and a later call adds to it; ``--rounds 0`` only prints.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from speed_rounds import (
    Run,
    Way,
    Worker,
    beside_prediction,
    kept_runs,
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
SAME_MODEL = "genai graph"  # run by edgeprof, so that the loop alone is compared
MOST_DRAFTED = 8


def our_ways(draft: bool) -> list[Way]:
    ways = [
        Way("plain", OURS, {}),
        Way("ngram", OURS, {"drafter": "ngram", "draft_tokens": MOST_DRAFTED, "adaptive": True}),
    ]
    if draft:
        asked = {"drafter": "draft", "draft_tokens": MOST_DRAFTED, "adaptive": True}
        ways.append(Way("draft", OURS, asked))
    return ways


def opened(given: argparse.Namespace, stack: ExitStack) -> tuple[dict[str, Worker], list[Way]]:
    """The engines asked for, each in its process, and the ways they decode."""
    arguments = [OURS, "--weights", given.weights]
    if not given.no_draft:
        arguments += ["--draft", "smollm2-135m-draft"]
    workers = {OURS: stack.enter_context(Worker(sys.executable, arguments))}
    ways = our_ways(not given.no_draft)
    if given.llama_python:
        arguments = ["llama.cpp", "--model", given.gguf]
        arguments += ["--plain-buffers"] if given.plain_buffers else []
        workers["llama.cpp"] = stack.enter_context(Worker(given.llama_python, arguments))
        ways.append(Way("llama.cpp", "llama.cpp", {}))
    if given.genai_python:
        arguments = ["genai", "--model", given.genai]
        workers["genai"] = stack.enter_context(Worker(given.genai_python, arguments))
        ways.append(Way("genai", "genai", {}))
        asked = {"drafter": "ngram", "ngram_size": 3, "draft_tokens": 4}
        ways.append(Way("genai ngram", "genai", asked))
    if given.genai:
        arguments = [OURS, "--model", given.genai]
        workers[SAME_MODEL] = stack.enter_context(Worker(sys.executable, arguments))
        ways.append(Way(SAME_MODEL, SAME_MODEL, {}))
    return workers, ways


def print_rates(runs: Sequence[Run]) -> None:
    print(f"{'way':<14}{'tokens/s, median':>18}{'(quartiles)':>18}{'runs':>6}")
    for way in sorted({run.way for run in runs}):
        rates = [run.rate for run in runs if run.way == way]
        low, middle, high = statistics.quantiles(rates, n=4)
        print(f"{way:<14}{middle:>18.1f}{f'({low:.1f} to {high:.1f})':>18}{len(rates):>6}")


def print_ratios(runs: Sequence[Run], names: set[str]) -> None:
    for way, reference in (
        ("ngram", "plain"),
        ("draft", "plain"),
        ("plain", "llama.cpp"),
        ("plain", "genai"),
        (SAME_MODEL, "genai"),
        ("genai ngram", "genai"),
        ("ngram", "genai ngram"),
    ):
        if not {way, reference} <= names:
            continue
        print(ratio_line(f"{way} / {reference}", ratio(runs, way, reference)))
        if reference == "plain":
            measured, predicted = beside_prediction(runs, way, reference)
            print(
                f"    all answers together {measured:.3f}, by acceptance, v and c {predicted:.3f}"
            )


def print_texts(runs: Sequence[Run], names: set[str]) -> None:
    """Of how many prompts every answer equals the first one of its reference."""
    first = {(run.way, run.prompt): run.text for run in reversed(runs)}
    prompts = {run.prompt for run in runs}
    for way in sorted(names):
        reference = way.split()[0] if way.startswith("genai") else "plain"
        if reference not in names or way == "llama.cpp":
            continue
        alike = [
            all(
                run.text == first[reference, prompt]
                for run in runs
                if (run.way, run.prompt) == (way, prompt)
            )
            for prompt in prompts
        ]
        print(f"{way}: text of {reference} on {sum(alike)} of {len(alike)} prompts")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", choices=["as-is", "fp32"], default="as-is")
    parser.add_argument("--no-draft", action="store_true")
    parser.add_argument("--llama-python")
    parser.add_argument("--gguf")
    parser.add_argument("--plain-buffers", action="store_true")
    parser.add_argument("--genai-python")
    parser.add_argument("--genai")
    parser.add_argument("--use", choices=["tuning", "final"], default="final")
    parser.add_argument("--per-kind", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--keep", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    gguf = fetch("smollm2-135m")
    given.gguf = given.gguf or str(gguf.path)
    folder = cached_conversion(gguf.path, gguf.sha256, cache=cache_dir() / "decoders")
    tokenizer = Tokenizer(folder)
    prompts = [
        (kind, tokenizer.encode(text)) for kind, text in read_prompts(given.use, given.per_kind)
    ]
    runs = kept_runs(given.keep)
    if given.rounds:
        with ExitStack() as stack:
            workers, ways = opened(given, stack)
            runs = run_rounds(
                workers,
                ways,
                prompts,
                rounds=given.rounds,
                new_tokens=given.new_tokens,
                end_tokens=folder.end_token_ids,
                minutes=given.minutes,
                keep=given.keep,
            )
    print_rates(runs)
    names = {run.way for run in runs}
    print_ratios(runs, names)
    print_texts(runs, names)


if __name__ == "__main__":
    main()
