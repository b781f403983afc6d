"""What the dummy row of attention costs: passes of padded and unpadded decoders, paired.

    python benchmarks/attention_pad.py

The demo's model, as its 4-bit blocks and as fp32, on the CPU provider. Passes of both decoders
alternate in random order; printed are the median ratio of neighbours and its quartiles. Run it on
an idle machine.
"""

import random
import statistics
import time
from collections.abc import Sequence

from edgeprof.convert.folder import WeightForm, cached_conversion
from edgeprof.models.fetch import cache_dir, fetch
from edgeprof.runner.ort_model import OrtModel

CONTEXT_TOKENS = 256
SIZES = (1, 2, 4, 8)
PAIRS = 60
THREADS = 2


def pass_s(model: OrtModel, tokens: Sequence[int]) -> float:
    model.extend(tokens)
    model.rewind(CONTEXT_TOKENS)
    t0_ns, t1_ns = model.stamps_ns
    return (t1_ns - t0_ns) / 1e9


def ratios(padded: OrtModel, unpadded: OrtModel, tokens: Sequence[int]) -> list[float]:
    """Padded over unpadded, pair by pair; who goes first is drawn."""
    found = []
    chooser = random.Random(0)
    for _ in range(PAIRS):
        order = [padded, unpadded]
        chooser.shuffle(order)
        times = {id(model): pass_s(model, tokens) for model in order}
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
