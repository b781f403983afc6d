"""Where the time of a token goes: ``python benchmarks/host_overhead.py``; about two minutes.

SmolLM2-135M on the CPU provider with two threads. First the share of the time that passes outside
the provider's run, in plain steps and in rounds with drafts, alone and where every step is written
down as in a run. Then what rate a plain pass reads its
weights at, beside the rate at which two threads read a large array in between. Last, in a session
of its own since profiling slows it, how the provider's time is spread over operators.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from speed_rounds import read_prompts, wait_until_quiet

from edgeprof.convert.folder import WeightForm, cached_conversion
from edgeprof.models.cache import cache_dir
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.fetch import fetch
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.journal import Journal, ModelName
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.runner.decode import FirstToken, PassDone, Step, decode
from edgeprof.runner.draft_length import AdaptiveLength
from edgeprof.runner.drafters import Drafter, ModelDrafter, NgramDrafter
from edgeprof.runner.ort_model import OrtModel

THREADS = 2
CAPACITY = 640
NEW_TOKENS = 128
READ_BYTES = 1 << 29
PROFILED_PASSES = 9
HEAD_ROWS = Path(__file__).parent.parent / "recipes" / "smollm2-135m-draft-head-rows-8192.npy"


class Answered(NamedTuple):
    """Of one answer, from its first token on."""

    wall_s: float
    inside_s: float
    steps: int
    decode_s: list[float]


def answered(
    target: OrtModel, prompt: Sequence[int], drafter: Drafter | None, journal: Journal | None = None
) -> Answered:
    steps = decode(
        target,
        prompt,
        new_tokens=NEW_TOKENS,
        clock=time.monotonic_ns,
        drafter=drafter,
        draft_tokens=8,
        draft_length=None if drafter is None else AdaptiveLength(),
    )
    seen: list[tuple[Step, int]] = []
    if journal is None:
        seen += [(step, time.monotonic_ns()) for step in steps]
    else:
        names = {role: ModelName(role, "cpu") for role in ("target", "draft")}
        with journal.leg("answer", kind="decode", variant="target") as leg:
            journal.answer(
                leg,
                _seen(steps, seen),
                names,
                lambda _: None,
                prompt_sha256="",
                prompt_kind="chat",
                prompt_tokens=len(prompt),
            )
    return _summed_up(seen)


def _seen(steps: Iterator[Step], seen: list[tuple[Step, int]]) -> Iterator[Step]:
    for step in steps:
        seen.append((step, time.monotonic_ns()))
        yield step


def _summed_up(seen: Sequence[tuple[Step, int]]) -> Answered:
    first = next(i for i, (step, _) in enumerate(seen) if isinstance(step, FirstToken))
    runs = [step for step, _ in seen[first:] if isinstance(step, PassDone)]
    taken = [(step.phase, (step.run.t1_ns - step.run.t0_ns) / 1e9) for step in runs]
    return Answered(
        wall_s=(seen[-1][1] - seen[first][1]) / 1e9,
        inside_s=sum(seconds for _, seconds in taken),
        steps=sum(step.role == "target" for step in runs),
        decode_s=[seconds for phase, seconds in taken if phase == "decode"],
    )


def print_outside(
    target: OrtModel, prompts: Sequence[Sequence[int]], drafters: dict[str, Callable[[], Any]]
) -> None:
    print(f"{'drafter':<20}{'outside, us a step':>20}{'share of the time':>20}")
    found: dict[str, list[Answered]] = defaultdict(list)
    with reading_pipe() as pipe:
        outbox = Outbox(pipe)
        journal = Journal(outbox.put, clock=time.monotonic_ns, stop_asked=lambda: False)
        for prompt in prompts:
            wait_until_quiet()
            for name, drafter in drafters.items():
                answered(target, prompt, drafter())  # passes of a size are bound once
                found[name].append(answered(target, prompt, drafter()))
                found[f"{name}, written"].append(answered(target, prompt, drafter(), journal))
        outbox.flush()
    for name, answers in found.items():
        outside_us = statistics.median((a.wall_s - a.inside_s) / a.steps * 1e6 for a in answers)
        share = statistics.median(1 - a.inside_s / a.wall_s for a in answers)
        print(f"{name:<20}{outside_us:>20.0f}{f'{100 * share:.2f} %':>20}")


@contextmanager
def reading_pipe() -> Iterator[int]:
    """A descriptor to write to, whose reader is another process, as the recorder is."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
        assert reader.stdin is not None
        yield reader.stdin.fileno()


def read_rate(array: NDArray[np.uint64]) -> float:
    """Bytes a second that two threads read, each its half."""
    halves = np.array_split(array, THREADS)
    threads = [threading.Thread(target=np.bitwise_or.reduce, args=(half,)) for half in halves]
    t0_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return array.nbytes / (time.perf_counter() - t0_s)


def print_bandwidth(target: OrtModel, folder: DecoderFolder, prompt: Sequence[int]) -> None:
    """The best tenth of both: what others take of the bus only ever lowers a rate."""
    assert folder.manifest is not None
    array = np.ones(READ_BYTES // 8, np.uint64)
    reads, rates = [], []
    for _ in range(9):
        wait_until_quiet()
        reads += [read_rate(array) for _ in range(3)]
        passes = answered(target, prompt, None).decode_s
        rates += [folder.manifest.streamed_weight_bytes / seconds for seconds in passes]
    read, rate = (statistics.quantiles(values, n=10)[-1] for values in (reads, rates))
    print(
        f"weights read at {rate / 1e9:.1f} GB/s (median {statistics.median(rates) / 1e9:.1f}), an "
        f"array at {read / 1e9:.1f} GB/s (median {statistics.median(reads) / 1e9:.1f}): "
        f"{100 * rate / read:.0f} %"
    )


def profiled(folder: DecoderFolder, context_tokens: int) -> dict[str, float]:
    """Microseconds a one-token pass spends in each kind of operator, products by their size."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    options.log_severity_level = 3
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as scratch:
        options.profile_file_prefix = str(Path(scratch) / "pass")
        session = ort.InferenceSession(
            str(folder.onnx_path), options, providers=["CPUExecutionProvider"]
        )
        io = session.io_binding()
        outputs = {entry.name: entry for entry in session.get_outputs()}
        kept = []
        for entry in session.get_inputs():
            if entry.name not in ("input_ids", "attention_mask"):
                heads, width = entry.shape[1], entry.shape[3]
                room = np.zeros((1, heads, context_tokens + 2, width), np.float32)
                value = ort.OrtValue.ortvalue_from_numpy(room)
                io.bind_ortvalue_input(entry.name, value)
                present = entry.name.replace("past_key_values", "present")
                io.bind_ortvalue_output(present, value)
                kept.append((room, value, outputs.pop(present)))
        io.bind_cpu_input("input_ids", np.array([[7]]))
        io.bind_cpu_input("attention_mask", np.ones((1, context_tokens + 1), np.int64))
        io.bind_output("logits")
        for _ in range(PROFILED_PASSES + 1):
            session.run_with_iobinding(io)
        return _by_operator(json.loads(Path(session.end_profiling()).read_text()))


def _operator(told: dict[str, Any]) -> str:
    """Products are told apart by what goes in and what comes out."""
    operator: str = told["op_name"]
    if "MatMul" not in operator and operator != "Gemm":
        return operator
    given, made = (
        next(iter(told[key][0].values()))[-1] for key in ("input_type_shape", "output_type_shape")
    )
    return f"{operator} {given} to {made}"


def _by_operator(events: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The median over the passes but the first."""
    passes: list[dict[str, float]] = [defaultdict(float)]
    for event in sorted(events, key=lambda event: event["ts"]):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            passes[-1][_operator(event["args"])] += event["dur"]
        elif name == "model_run":
            passes[-1]["whole pass"] = event["dur"]
            passes.append(defaultdict(float))
    counted = [found for found in passes if "whole pass" in found][1:]
    names = {name for found in counted for name in found}
    return {name: statistics.median(f.get(name, 0.0) for f in counted) for name in names}


def print_operators(folder: DecoderFolder) -> None:
    wait_until_quiet()
    found = profiled(folder, context_tokens=200)
    whole = found.pop("whole pass")
    found["between operators"] = whole - sum(found.values())
    print(f"{'operator':<36}{'us a pass':>10}{'share':>8}   (profiled: {whole:.0f} us)")
    for name, us in sorted(found.items(), key=lambda item: -item[1]):
        print(f"{name:<36}{us:>10.0f}{f'{100 * us / whole:.1f} %':>8}")


def converted(name: str, weights: WeightForm, head_rows: Path | None = None) -> DecoderFolder:
    gguf = fetch(name)
    return cached_conversion(
        gguf.path,
        gguf.sha256,
        cache=cache_dir() / "decoders",
        weights=weights,
        head_rows=head_rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--use", choices=["tuning", "final"], default="final")
    parser.add_argument("--weights", choices=["as-is", "fp32"], action="append")
    parser.add_argument("--prompts", type=int, default=5)
    given = parser.parse_args()
    draft = OrtModel.open(
        converted("smollm2-135m-draft", "as-is", HEAD_ROWS), threads=THREADS, capacity=CAPACITY
    )
    forms: tuple[WeightForm, ...] = ("as-is", "fp32")
    for weights in given.weights or forms:
        folder = converted("smollm2-135m", weights)
        tokenizer = Tokenizer(folder)
        target = OrtModel.open(folder, threads=THREADS, capacity=CAPACITY)
        print(f"\n{weights}: loaded in {target.load_s:.2f} s")
        prompts = [tokenizer.encode(text) for _, text in read_prompts(given.use, per_kind=1)]
        prompts = prompts[: given.prompts]
        drafters: dict[str, Callable[[], Any]] = {
            "none": lambda: None,
            "ngram": NgramDrafter,
            "draft": lambda: ModelDrafter(draft),
        }
        print_outside(target, prompts, drafters)
        print_bandwidth(target, folder, prompts[0])
        print_operators(folder)


if __name__ == "__main__":
    main()
