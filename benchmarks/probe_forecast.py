"""Does a stack of synthetic layers cost what the model does: ``benchmarks/probe_forecast.py``.

What ``edgeprof probe --shapes`` forecasts, beside the real model: SmolLM2-135M in fp32 and in its
own 4-bit blocks, the demo's draft of four layers, its first two layers by themselves, and forecasts
from ten of thirty layers, scaled.
Each is timed in a process of its own, the real one and the stack in turn, ``--rounds`` times; every
figure is a ratio of medians, forecast over real. Real decoding is greedy, 64 tokens after 96.

The goal is 0.85 to 1.15. Keep the machine idle; takes about four minutes on two cores. ``--only``
times the models that have this in their title.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from edgeprof.analysis.measured_passes import whole_model
from edgeprof.catalog import find_model
from edgeprof.convert.folder import WeightForm, cached_conversion
from edgeprof.hardware.machine import usable_cores
from edgeprof.models.cache import cache_dir
from edgeprof.models.checksum import sha256_of
from edgeprof.models.decoder_folder import read_decoder_folder
from edgeprof.models.fetch import fetch
from edgeprof.probe.parts import MODULE
from edgeprof.probe.worker import CONTEXT_TOKENS
from edgeprof.profiling.children import Child
from edgeprof.profiling.messages import Failed, ProbeFacts, ProbeJob, ProbeRun
from edgeprof.runner.decode import RoundDone, decode
from edgeprof.runner.held import held_passes
from edgeprof.runner.ort_model import OrtModel

SIZES = [1, 2, 3, 4, 5, 6, 8, 12, 16, 32]
CAPACITY = 256
Seconds = dict[int, list[float]]


class Case(NamedTuple):
    """A model as fetched and converted, what it is forecast from, and from how many layers."""

    title: str
    source: str
    weights: WeightForm
    shapes: str
    layers: int


def cases(draft_gguf: Path, cut: str, widened: str) -> list[Case]:
    target, draft = "smollm2-135m", "smollm2-135m-draft"
    return [
        Case("SmolLM2-135M, 4 bits", target, "as-is", f"{target}:q4_1", 30),
        Case("SmolLM2-135M, fp32", target, "fp32", f"{target}:f32", 30),
        Case("the demo's draft, 4 layers", draft, "as-is", str(draft_gguf), 4),
        Case("the first 2 layers, 4 bits", cut, "as-is", cut, 2),
        Case("the first 2 layers, fp32", widened, "fp32", widened, 2),
        Case("4 bits, 10 of 30 layers", target, "as-is", f"{target}:q4_1", 10),
        Case("fp32, 10 of 30 layers", target, "fp32", f"{target}:f32", 10),
    ]


def write_first_layers(source: Path, layers: int, out: Path, *, widened: bool) -> str:
    """The model in ``source`` with its first layers only, its weights as they are or in fp32."""
    import gguf

    model = gguf.GGUFReader(source)
    architecture = model.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture)
    for key, field in model.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            value = layers if key == f"{architecture}.block_count" else field.contents()
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, value, field.types[0], inner)
    for tensor in model.tensors:
        part, _, rest = tensor.name.partition(".")
        if part == "blk" and int(rest.split(".")[0]) >= layers:
            continue
        if widened:
            writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(out)


def folder_of(case: Case, scratch: Path) -> Path:
    """The real model, converted as the demo has it; one that was cut only for this run."""
    if case.source.endswith(".gguf"):
        path, conversions = Path(case.source), scratch
        sha256 = sha256_of(path)
    else:
        found = fetch(case.source)
        path, sha256, conversions = found.path, found.sha256, cache_dir() / "decoders"
    return cached_conversion(path, sha256, cache=conversions, weights=case.weights).path


def real(folder: Path, threads: int) -> None:
    """In a process of its own: held passes by size, and the seconds of every decoded token."""
    model = OrtModel.open(read_decoder_folder(folder), threads=threads, capacity=CAPACITY)
    seconds: Mapping[int, list[float]] = defaultdict(list)
    for run in held_passes(model, SIZES, context_tokens=CONTEXT_TOKENS, repeats=9):
        seconds[run.tokens].append((run.t1_ns - run.t0_ns) / 1e9)
    steps = decode(model, list(range(1, 97)), new_tokens=64, clock=time.monotonic_ns)
    stamps = [time.monotonic() for step in steps if isinstance(step, RoundDone)]
    gaps = [after - before for before, after in pairwise(stamps)]
    print(json.dumps({"passes": seconds, "decode": gaps}))


def timed_real(folder: Path, threads: int) -> tuple[Seconds, list[float]]:
    done = subprocess.run(
        [sys.executable, __file__, "--real", str(folder), "--threads", str(threads)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return {int(size): values for size, values in found["passes"].items()}, found["decode"]


def timed_stack(case: Case, threads: int) -> Seconds:
    job = ProbeJob(
        part="model",
        provider="cpu",
        threads=threads,
        size_bytes=0,
        sizes=SIZES,
        model=find_model(case.shapes)[0],
        layers=case.layers,
        warm_s=0.5,
        rounds=(9, 9),
    )
    runs: dict[str, Seconds] = {"whole": defaultdict(list), "headless": defaultdict(list)}
    facts: dict[str, int] = {}
    with Child("stack", MODULE, job) as child:
        while child.open:
            for message in child.receive():
                if isinstance(message, ProbeRun):
                    taken = (message.t1_ns - message.t0_ns) / 1e9
                    runs[message.what][message.size].append(taken)
                elif isinstance(message, ProbeFacts):
                    facts |= message.facts
                elif isinstance(message, Failed):
                    sys.exit(message.message)
    share = facts["layer_bytes"] / facts["all_layer_bytes"]
    return whole_model(runs["whole"], runs["headless"], share)


def compare(case: Case, folder: Path, threads: int, rounds: int) -> str:
    real_s: Seconds = defaultdict(list)
    stack_s: Seconds = defaultdict(list)
    decode_s: list[float] = []
    for _ in range(rounds):
        passes, gaps = timed_real(folder, threads)
        decode_s += gaps
        for into, found in ((real_s, passes), (stack_s, timed_stack(case, threads))):
            for size, values in found.items():
                into[size] += values
    mine = {size: statistics.median(values) for size, values in stack_s.items()}
    theirs = {size: statistics.median(values) for size, values in real_s.items()}
    cells = [
        case.title,
        f"{1e3 * theirs[1]:.2f}",
        f"{mine[1] / theirs[1]:.3f}",
        f"{mine[1] / statistics.median(decode_s):.3f}",
        *(
            f"{mine[size] / mine[1]:.2f} / {theirs[size] / theirs[1]:.2f}"
            f" = {mine[size] / mine[1] / (theirs[size] / theirs[1]):.3f}"
            for size in (2, 4, 8, 16, 32)
        ),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--only", default="")
    parser.add_argument("--real", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.real is not None:
        real(given.real, given.threads)
        return
    draft, target = fetch("smollm2-135m-draft").path, fetch("smollm2-135m").path
    with tempfile.TemporaryDirectory(prefix="edgeprof-") as folder:
        scratch = Path(folder)
        cut = write_first_layers(target, 2, scratch / "cut.gguf", widened=False)
        widened = write_first_layers(target, 2, scratch / "widened.gguf", widened=True)
        chosen = [one for one in cases(draft, cut, widened) if given.only in one.title]
        folders = [folder_of(case, scratch / "decoders") for case in chosen]
        print("| model | pass, ms | one token | decoding | v(2) | v(4) | v(8) | v(16) | v(32) |")
        print("|---|---|---|---|---|---|---|---|---|")
        for case, decoder in zip(chosen, folders, strict=True):
            print(compare(case, decoder, given.threads, given.rounds), flush=True)


if __name__ == "__main__":
    main()
