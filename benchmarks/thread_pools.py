"""Two sessions on two cores: ``python benchmarks/thread_pools.py``; about two minutes.

SmolLM2-135M in 4 bit and its draft, each pool spinning on after a run, as onnxruntime does by
itself, or parked when the run ends (``session.force_spinning_stop``), and the draft with one thread
or two. Printed are rates of answers over those of plain decoding with a spinning pool, medians of
pairs from the same round and prompt.
"""

import argparse
import random
import statistics
import time
from collections import defaultdict
from pathlib import Path

from speed_rounds import geomean, read_prompts, wait_until_quiet

from edgeprof.convert.folder import cached_conversion
from edgeprof.models.cache import cache_dir
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.fetch import fetch
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.runner import providers
from edgeprof.runner.decode import FirstToken, decode
from edgeprof.runner.drafters import ModelDrafter
from edgeprof.runner.ort_model import OrtModel

CAPACITY = 512
DRAFTED = 2
HEAD_ROWS = Path(__file__).parent.parent / "recipes" / "smollm2-135m-draft-head-rows-8192.npy"
POOLS = {"spins": "0", "parks": "1"}


def converted(name: str, head_rows: Path | None = None) -> DecoderFolder:
    gguf = fetch(name)
    cache = cache_dir() / "decoders"
    return cached_conversion(gguf.path, gguf.sha256, cache=cache, head_rows=head_rows)


def opened(folder: DecoderFolder, threads: int, pool: str) -> OrtModel:
    providers.POOL_ENTRIES = {"session.force_spinning_stop": POOLS[pool]}
    return OrtModel.open(folder, threads=threads, capacity=CAPACITY)


def rate(target: OrtModel, draft: OrtModel | None, prompt: list[int], new_tokens: int) -> float:
    """Tokens a second after the first."""
    drafter = None if draft is None else ModelDrafter(draft)
    t0_s = 0.0
    for step in decode(
        target,
        prompt,
        new_tokens=new_tokens,
        clock=time.monotonic_ns,
        drafter=drafter,
        draft_tokens=DRAFTED,
    ):
        if isinstance(step, FirstToken):
            t0_s = time.perf_counter()
    return (new_tokens - 1) / (time.perf_counter() - t0_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--new-tokens", type=int, default=64)
    given = parser.parse_args()
    folder, draft_folder = converted("smollm2-135m"), converted("smollm2-135m-draft", HEAD_ROWS)
    targets = {pool: opened(folder, 2, pool) for pool in POOLS}
    drafts: dict[str, OrtModel | None] = {
        f"draft of {threads}, {pool}": opened(draft_folder, threads, pool)
        for threads in (1, 2)
        for pool in POOLS
    }
    drafts["plain"] = None
    tokenizer = Tokenizer(folder)
    prompts = [tokenizer.encode(text) for _, text in read_prompts("tuning", per_kind=1)]
    ways = [(target, draft) for target in targets for draft in drafts]
    pairs: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    chooser = random.Random(0)
    for round_index in range(-1, given.rounds):
        for place, prompt in enumerate(prompts):
            wait_until_quiet(0 if round_index < 0 else 20)
            found = {}
            for target, draft in chooser.sample(ways, len(ways)):
                time.sleep(0.05)  # the pool that ran before may still spin
                found[target, draft] = rate(
                    targets[target], drafts[draft], prompt, given.new_tokens
                )
            if round_index >= 0:
                for way, value in found.items():
                    pairs[way][place].append(value / found["spins", "plain"])
    for way in ways:
        medians = [statistics.median(values) for values in pairs[way].values()]
        shown = "  ".join(f"{value:.2f}" for value in medians)
        print(f"target {way[0]}, {way[1]:<20} {geomean(medians):.3f}   by prompt: {shown}")


if __name__ == "__main__":
    main()
