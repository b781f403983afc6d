"""What the dummy row of attention costs: passes of padded and unpadded decoders, paired.

    python benchmarks/attention_pad.py

The demo's model, as its 4-bit blocks and as fp32, on the CPU provider. Short blocks of passes of
both decoders alternate in random order; printed are the median ratio of neighbouring blocks and its
quartiles. Between blocks the other decoder's threads get time to park: idle ones spin, and would
take the core from the one that is timed. Run it on an idle machine.
"""

import random
import statistics
import time
from collections.abc import Sequence

from edgeprof.convert.folder import WeightForm, cached_conversion
from edgeprof.models.cache import cache_dir
from edgeprof.models.fetch import fetch
from edgeprof.runner.ort_model import OrtModel

CONTEXT_TOKENS = 256
SIZES = (1, 2, 4, 8)
PAIRS = 30
BLOCK = 9
PARKING_S = 0.1
THREADS = 2


def block_s(model: OrtModel, tokens: Sequence[int]) -> float:
    """The median pass of a block, the first one aside."""
    time.sleep(PARKING_S)
    found = []
    for _ in range(BLOCK + 1):
        model.extend(tokens)
        model.rewind(CONTEXT_TOKENS)
        t0_ns, t1_ns = model.stamps_ns
        found.append((t1_ns - t0_ns) / 1e9)
    return statistics.median(found[1:])


def ratios(padded: OrtModel, unpadded: OrtModel, tokens: Sequence[int]) -> list[float]:
    """Padded over unpadded, pair by pair; who goes first is drawn."""
    found = []
    chooser = random.Random(0)
    for _ in range(PAIRS):
        order = [padded, unpadded]
        chooser.shuffle(order)
        times = {id(model): block_s(model, tokens) for model in order}
        found.append(times[id(padded)] / times[id(unpadded)])
    return found


def opened(weights: WeightForm, attention_pad: int) -> OrtModel:
    gguf = fetch("smollm2-135m")
    folder = cached_conversion(
        gguf.path,
        gguf.sha256,
        cache=cache_dir() / "decoders",
        weights=weights,
        attention_pad=attention_pad,
    )
    model = OrtModel.open(folder, threads=THREADS, capacity=512, clock=time.monotonic_ns)
    model.extend([7] * CONTEXT_TOKENS, rows=1)
    return model


def main() -> None:
    print("weights  tokens  padded / unpadded  (quartiles)")
    forms: tuple[WeightForm, ...] = ("as-is", "fp32")
    for weights in forms:
        padded, unpadded = opened(weights, 1), opened(weights, 0)
        for size in SIZES:
            found = ratios(padded, unpadded, [7] * size)
            low, middle, high = statistics.quantiles(found, n=4)
            print(f"{weights:7}  {size:6}  {middle:17.3f}  ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
