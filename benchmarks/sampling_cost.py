"""What choosing tokens costs beside computing their logits: ``python benchmarks/sampling_cost.py``.

The demo's model in 4 bit (49,152 tokens) on the CPU provider, along a text it wrote. After each
pass its logits are chosen from by every rule, in random order, as a decode loop would right then:
the provider's threads still spin. Printed are medians, and their ratio to the median pass.

``token``: one row shaped and drawn from, over the one-token pass. ``round``: four drafted tokens,
so four rows of a draft shaped and drawn from, and these accepted or not, over the five-token pass
and, for the whole round, over that and four steps of the demo's draft with its whole head.
"""

import random
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeprof.convert.folder import cached_conversion
from edgeprof.models.cache import cache_dir
from edgeprof.models.fetch import fetch
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.recipe import Sampling
from edgeprof.runner.acceptance import accept_greedy, accept_sampled
from edgeprof.runner.decode import RoundDone, decode
from edgeprof.runner.held import held_passes
from edgeprof.runner.ort_model import OrtModel
from edgeprof.runner.sampling import Dice, Sampler
from edgeprof.runner.token_model import greedy_tokens

TOKENS = 250
DRAFTED = 4
THREADS = 2
PROMPT = "<|im_start|>user\nWhy is the sky blue, and why is it red in the evening?<|im_end|>\n"
RULES = {
    "greedy": Sampling(),
    "temperature": Sampling(temperature=0.8),
    "top-k 40": Sampling(temperature=0.8, top_k=40),
    "top-p 0.95": Sampling(temperature=0.8, top_p=0.95),
    "min-p 0.05": Sampling(temperature=0.8, min_p=0.05),
    "all three": Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "flat, top-p 0.95": Sampling(temperature=1.5, top_p=0.95),
}
Rows = NDArray[np.float32]


def choose_token(model: OrtModel, sampler: Sampler | None, logits: Rows, draft: Rows) -> None:
    if sampler is None:
        greedy_tokens(model, logits[:1])
    else:
        sampler.chance.pick(sampler.distribution(logits[0]))


def choose_round(model: OrtModel, sampler: Sampler | None, logits: Rows, draft: Rows) -> None:
    if sampler is None:
        drafted = [greedy_tokens(model, row[None])[0] for row in draft]
        accept_greedy(drafted, greedy_tokens(model, logits))
        return
    q = [sampler.distribution(row) for row in draft]
    drafted = [sampler.chance.pick(distribution) for distribution in q]
    accept_sampled(drafted, q, lambda row: sampler.distribution(logits[row]), sampler.chance)


Choice = Callable[[OrtModel, Sampler | None, Rows, Rows], None]
PARTS: dict[str, tuple[int, Choice]] = {
    "token": (1, choose_token),
    "round": (1 + DRAFTED, choose_round),
}


def written(model: OrtModel, prompt: list[int]) -> list[int]:
    """The prompt with an answer that the model draws at temperature 0.8."""
    dice = Dice(np.random.default_rng(0))
    sampler = Sampler(
        model, RULES["temperature"], dice, vocabulary=model.vocab_size, name="smollm2-135m"
    )
    text = list(prompt)
    for step in decode(model, prompt, new_tokens=TOKENS, clock=time.monotonic_ns, sampler=sampler):
        if isinstance(step, RoundDone):
            text += step.tokens
    return text


def measured(
    model: OrtModel, prompt: list[int], part: str
) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds of the passes, and of choosing by each rule."""
    tokens, choose = PARTS[part]
    dice = Dice(np.random.default_rng(0))
    samplers = {
        name: None
        if rule.greedy
        else Sampler(model, rule, dice, vocabulary=model.vocab_size, name="smollm2-135m")
        for name, rule in RULES.items()
    }
    noise = np.random.default_rng(1)
    passes: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in RULES}
    order, chooser = list(RULES), random.Random(0)
    text = written(model, prompt)
    model.rewind(0)
    model.extend(prompt, rows=1)
    for start in range(len(prompt), len(text) - tokens, tokens):
        logits = model.extend(text[start : start + tokens])
        t0_ns, t1_ns = model.stamps_ns
        passes.append((t1_ns - t0_ns) / 1e9)
        # A draft that is of much the same mind, so that rounds end early and late.
        draft = logits[:DRAFTED] + noise.normal(0, 0.5, logits[:DRAFTED].shape).astype(np.float32)
        chooser.shuffle(order)
        for name in order:
            t0_s = time.perf_counter()
            choose(model, samplers[name], logits, draft)
            found[name].append(time.perf_counter() - t0_s)
    return passes, found


def main() -> None:
    gguf = fetch("smollm2-135m")
    folder = cached_conversion(gguf.path, gguf.sha256, cache=cache_dir() / "decoders")
    model = OrtModel.open(folder, threads=THREADS, capacity=512)
    prompt = Tokenizer(folder).encode(PROMPT)
    step_s = draft_step_s()
    print(f"{'rule':<18}{'part':<7}{'median us':>10}{'pass ms':>9}{'of a pass':>11}{'of all':>9}")
    for part in PARTS:
        passes, found = measured(model, prompt, part)
        pass_s = statistics.median(passes)
        whole_s = pass_s + (DRAFTED * step_s if part == "round" else 0.0)
        for name, seconds in found.items():
            median = statistics.median(seconds)
            # What chooses is part of the whole that it takes a share of.
            shares = [f"{100 * median / s:.2f} %" for s in (pass_s, whole_s + median)]
            print(
                f"{name:<18}{part:<7}{median * 1e6:>10.0f}{pass_s * 1e3:>9.2f}"
                f"{shares[0]:>11}{shares[1]:>9}"
            )


def draft_step_s() -> float:
    gguf = fetch("smollm2-135m-draft")
    folder = cached_conversion(gguf.path, gguf.sha256, cache=cache_dir() / "decoders")
    draft = OrtModel.open(folder, threads=THREADS, capacity=512)
    runs = held_passes(draft, [1], context_tokens=200, repeats=25)
    return statistics.median((run.t1_ns - run.t0_ns) / 1e9 for run in runs)


if __name__ == "__main__":
    main()
