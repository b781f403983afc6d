"""One decoding engine in a process of its own: answers prompts of token ids, one JSON line each.

    python benchmarks/speed_engines.py edgeprof --weights as-is
    python benchmarks/speed_engines.py llama.cpp --model FILE.gguf
    python benchmarks/speed_engines.py genai --model FOLDER

A request holds ``prompt``, ``new_tokens``, ``end_tokens`` and, for edgeprof and genai, how to
draft. The answer holds its ``tokens`` and the seconds from the first of them to the last: prefill
is left out. Decoding is greedy. Engines other than edgeprof need their own package only, so that
this file runs in an environment without edgeprof.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

CAPACITY = 640
CALIBRATED = (1, 2, 3, 4, 6, 8)
CALIBRATIONS = 9
CONTEXT = 200


class Engine(Protocol):
    """Answers one prompt at a time."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]: ...


class Edgeprof:
    """The runner. ``draft`` names the GGUF's fetch name and head rows of a draft model, if any;
    ``model`` is a decoder's folder to run in place of the converted one."""

    def __init__(
        self, weights: Any, threads: int, draft: str | None, model: str | None = None
    ) -> None:
        if model is None:
            self.target = _opened("smollm2-135m", weights, None, threads)
        else:
            self.target = _opened_folder(Path(model), threads)
        self.draft = None
        if draft is not None:
            rows = Path(__file__).parent.parent / "recipes" / f"{draft}-head-rows-8192.npy"
            self.draft = _opened(draft, "as-is", rows, threads)
        self.pass_s = _held(self.target, CALIBRATED)
        self.draft_step_s = None if self.draft is None else _in_turn(self.target, self.draft)
        self.lengths: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        from edgeprof.runner.decode import FirstToken, PassDone, RoundDone, decode

        passes: list[tuple[str, int, int, int]] = []
        rounds: list[tuple[int, int, int]] = []
        tokens: list[int] = []
        t0_s = 0.0
        for step in decode(
            self.target,
            request["prompt"],
            new_tokens=request["new_tokens"],
            clock=time.monotonic_ns,
            drafter=self._drafter(request),
            draft_tokens=request.get("draft_tokens", 0),
            draft_length=self._length(request),
            end_tokens=frozenset(request["end_tokens"]),
        ):
            if isinstance(step, PassDone):
                passes.append((step.phase, step.run.tokens, step.run.t0_ns, step.run.t1_ns))
            elif isinstance(step, FirstToken):
                t0_s = time.perf_counter()
                tokens.append(step.token)
            elif isinstance(step, RoundDone):
                tokens += step.tokens
                rounds.append((step.drafted, step.evaluated, step.accepted))
        seconds = time.perf_counter() - t0_s
        return {"tokens": tokens, "seconds": seconds, "passes": passes, "rounds": rounds}

    def _drafter(self, request: dict[str, Any]) -> Any:
        from edgeprof.runner.drafters import ModelDrafter, NgramDrafter

        kind = request.get("drafter")
        if kind is None:
            return None
        if kind == "ngram":
            return NgramDrafter()
        if self.draft is None:
            raise SystemExit("no draft model was given")
        return ModelDrafter(self.draft)

    def _length(self, request: dict[str, Any]) -> Any:
        """One for each way of drafting, which it gets to know from answer to answer."""
        from edgeprof.runner.draft_length import AdaptiveLength, PassCost

        if not request.get("adaptive"):
            return None
        return self.lengths.setdefault(request["drafter"], AdaptiveLength(PassCost(self.pass_s)))


def _opened(name: str, weights: Any, head_rows: Path | None, threads: int) -> Any:
    from edgeprof.convert.folder import cached_conversion
    from edgeprof.models.cache import cache_dir
    from edgeprof.models.fetch import fetch

    gguf = fetch(name)
    folder = cached_conversion(
        gguf.path,
        gguf.sha256,
        cache=cache_dir() / "decoders",
        weights=weights,
        head_rows=head_rows,
    )
    return _opened_folder(folder.path, threads)


def _opened_folder(path: Path, threads: int) -> Any:
    from edgeprof.models.decoder_folder import read_decoder_folder
    from edgeprof.runner.ort_model import OrtModel

    folder = read_decoder_folder(path)
    return OrtModel.open(folder, threads=threads, capacity=CAPACITY, clock=time.monotonic_ns)


def _held(model: Any, sizes: tuple[int, ...]) -> dict[int, float]:
    """Median seconds of passes of each size."""
    from edgeprof.runner.held import held_passes

    held: dict[int, list[int]] = {}
    for run in held_passes(model, sizes, context_tokens=CONTEXT, repeats=CALIBRATIONS):
        held.setdefault(run.tokens, []).append(run.t1_ns - run.t0_ns)
    return {size: statistics.median(ns) / 1e9 for size, ns in held.items()}


def _in_turn(target: Any, draft: Any) -> tuple[float, float]:
    """Median seconds of the first draft step behind a target pass, and of those behind it."""
    from edgeprof.runner.prefill import take_in

    first_s: list[float] = []
    later_s: list[float] = []
    for model in (target, draft):
        model.rewind(0)
        for _ in take_in(model, [0] * CONTEXT):
            pass
    for _ in range(CALIBRATIONS):
        target.extend([0, 0])
        for times in (first_s, later_s, later_s):
            draft.extend([0], rows=1)
            t0_ns, t1_ns = draft.stamps_ns
            times.append((t1_ns - t0_ns) / 1e9)
        for model in (target, draft):
            model.rewind(CONTEXT)
    return statistics.median(first_s), statistics.median(later_s)


class LlamaCpp:
    """llama.cpp by its C interface, without the Python wrapper's own loop.

    ``plain_buffers`` leaves out weights laid out anew for this processor (on x86, of Q4_1 and Q8_0,
    that is AMX only, which crashes on machines that announce it and do not allow it).
    """

    def __init__(self, model: str, threads: int, *, plain_buffers: bool) -> None:
        import ctypes

        import llama_cpp
        import numpy as np

        self.np, self.api = np, llama_cpp
        quiet = llama_cpp.llama_log_callback(lambda *_: None)
        self.keep_alive = quiet
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        weights = llama_cpp.llama_model_default_params()
        weights.use_extra_bufts = not plain_buffers
        self.model = llama_cpp.llama_model_load_from_file(model.encode(), weights)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = CAPACITY, CAPACITY, CAPACITY
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        memory = self.api.llama_get_memory(self.context)
        self.api.llama_memory_clear(memory, True)
        tokens = [self._next(request["prompt"])]
        t0_s = time.perf_counter()
        while len(tokens) < request["new_tokens"] and tokens[-1] not in request["end_tokens"]:
            tokens.append(self._next([tokens[-1]]))
        return {"tokens": tokens, "seconds": time.perf_counter() - t0_s}

    def _next(self, tokens: list[int]) -> int:
        ids = (self.api.llama_token * len(tokens))(*tokens)
        if self.api.llama_decode(self.context, self.api.llama_batch_get_one(ids, len(tokens))):
            raise SystemExit("llama.cpp refused a pass")
        row = self.api.llama_get_logits_ith(self.context, -1)
        logits = self.np.ctypeslib.as_array(row, shape=(self.vocab_size,))
        return int(logits.argmax())


class Genai:
    """onnxruntime-genai with a folder that its model builder wrote."""

    def __init__(self, model: str, threads: int) -> None:
        import onnxruntime_genai as og

        self.og = og
        config = og.Config(model)
        options = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": options}}))
        self.model = og.Model(config)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        params = self.og.GeneratorParams(self.model)
        prompt, new_tokens = request["prompt"], request["new_tokens"]
        params.set_search_options(max_length=len(prompt) + new_tokens, do_sample=False)
        if request.get("drafter") == "ngram":
            params.set_speculative_options(
                ngram_size=request.get("ngram_size", 3), max_draft_tokens=request["draft_tokens"]
            )
        generator = self.og.Generator(self.model, params)
        generator.append_tokens(prompt)
        generator.generate_next_token()
        t0_s = time.perf_counter()
        while not generator.is_done():
            generator.generate_next_token()
        seconds = time.perf_counter() - t0_s
        tokens = [int(token) for token in generator.get_sequence(0)[len(prompt) :]]
        return {"tokens": tokens, "seconds": seconds}


def requests() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["edgeprof", "llama.cpp", "genai"])
    parser.add_argument("--model")
    parser.add_argument("--weights", choices=["as-is", "fp32"], default="as-is")
    parser.add_argument("--draft")
    parser.add_argument("--plain-buffers", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    engine: Engine
    t0_s = time.perf_counter()
    if given.engine == "edgeprof":
        engine = Edgeprof(given.weights, given.threads, given.draft, given.model)
    elif given.engine == "llama.cpp":
        engine = LlamaCpp(given.model, given.threads, plain_buffers=given.plain_buffers)
    else:
        engine = Genai(given.model, given.threads)
    ready: dict[str, Any] = {"ready_s": time.perf_counter() - t0_s}
    if isinstance(engine, Edgeprof):
        ready |= {"pass_s": engine.pass_s, "draft_step_s": engine.draft_step_s}
    print(json.dumps(ready), flush=True)
    for request in requests():
        print(json.dumps(engine.answer(request)), flush=True)


if __name__ == "__main__":
    main()
