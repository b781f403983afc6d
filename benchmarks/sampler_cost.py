"""What the sampler costs: its own processor time, and decode speed with it on over off, paired.

    python benchmarks/sampler_cost.py --write

The sampler reads the files of an emulated Orin Nano at its default rates; they are in memory, so
that a board's slower reads (I2C, calls to firmware) are not in these figures. First its processor
time is taken while nothing else runs, then a decoder process runs blocks of one-token passes of the
demo's model, 4-bit, in pairs: one block while the sampler runs, one while it is stopped (SIGSTOP),
the order drawn. A pair during which other programs took more than a quarter of a core is left out.
This process hears the sampler meanwhile, as the recorder does, and writes nothing down. Takes three
minutes on an idle machine, and gives up where hardly a pair is quiet.

    python benchmarks/sampler_cost.py --processor-only [--no-cpu-clocks]

takes the processor time alone, and of a board that does not show the clocks of its cores.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import random
import selectors
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import exp, log
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from edgeprof.convert.folder import cached_conversion
from edgeprof.models.cache import cache_dir
from edgeprof.models.fetch import fetch
from edgeprof.profiling.environment import describe_device, describe_environment
from edgeprof.profiling.messages import SampleJob
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.runner.ort_model import OrtModel
from edgeprof.session.records import Event, Sample, Signal
from edgeprof.telemetry.source import BoardFigures

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "benchmarks" / "data" / "sampler_cost.json"
BOARD = "orin-nano"
MODEL = "smollm2-135m"
CONTEXT_TOKENS = 128
BLOCK_S = 0.5
SETTLE_S = 0.03  # after the sampler was stopped or woken
WARM_UP_S = 3.0
DRAWS = 10_000

OTHERS_SHARE = 0.25  # of a core
MOST_PAIRS_A_QUIET_ONE = 6


class Block(NamedTuple):
    """``others`` is what all other programs took of a core meanwhile."""

    tokens_per_s: float
    others: float


class Pair(NamedTuple):
    on: Block
    off: Block

    @property
    def quiet(self) -> bool:
        return max(self.on.others, self.off.others) <= OTHERS_SHARE


class Sampler:
    """The sampler as a run has it, heard whenever this process waits."""

    def __init__(self, root: Path) -> None:
        board = BoardFigures(root=str(root), profile=BOARD, bytes_per_emc_clock=32)
        self.signals: dict[int, Signal] = {}
        self.samples = 0
        self._selector = selectors.DefaultSelector()
        self._link = SamplerLink(SampleJob(board=board), self._take)

    def __enter__(self) -> "Sampler":
        self._link.__enter__()
        self._link.attach(self._selector)
        return self

    def __exit__(self, *error: Any) -> None:
        self._link.__exit__(*error)
        self._selector.close()

    @property
    def pid(self) -> int:
        assert self._link.pid is not None, "the sampler has died"
        return self._link.pid

    def hear_for(self, seconds: float) -> None:
        self._hear_until(time.monotonic() + seconds)

    def hear_while_waiting(self, connection: Connection) -> Any:
        """What the other process sends, once it does."""
        self._selector.register(connection, selectors.EVENT_READ)
        self._hear_until(time.monotonic() + 60.0, connection)
        self._selector.unregister(connection)
        return connection.recv()

    def _hear_until(self, end_s: float, connection: Connection | None = None) -> None:
        while (left_s := end_s - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                if key.data is not self._link:
                    assert key.fileobj is connection
                    return
                self._link.receive()

    def _take(self, record: Signal | Sample | Event) -> None:
        if isinstance(record, Signal):
            self.signals[record.id] = record
        elif isinstance(record, Sample):
            self.samples += 1


def processor_share(sampler: Sampler, seconds: float) -> tuple[float, float]:
    """User and system time of the sampler over the time that passed, and how many samples it gave
    a second."""
    sampler.hear_for(WARM_UP_S)
    before_s, t0, heard = processor_s(sampler.pid), time.monotonic(), sampler.samples
    sampler.hear_for(seconds)
    passed_s = time.monotonic() - t0
    return (processor_s(sampler.pid) - before_s) / passed_s, (sampler.samples - heard) / passed_s


def processor_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    total_s: float = times.user + times.system
    return total_s


def measure_pairs(sampler: Sampler, decoder: "Decoder", quiet: int) -> list[Pair]:
    """Until so many of them were quiet; who goes first is drawn for each pair."""
    chooser = random.Random(0)
    pairs: list[Pair] = []
    while sum(pair.quiet for pair in pairs) < quiet:
        order = [True, False]
        chooser.shuffle(order)
        blocks = {on: measure_block(sampler, decoder, on) for on in order}
        pairs.append(Pair(blocks[True], blocks[False]))
        if len(pairs) == MOST_PAIRS_A_QUIET_ONE * quiet:
            sys.exit(f"only {sum(p.quiet for p in pairs)} of {len(pairs)} pairs were quiet")
    return pairs


def measure_block(sampler: Sampler, decoder: "Decoder", on: bool) -> Block:
    os.kill(sampler.pid, signal.SIGCONT if on else signal.SIGSTOP)
    sampler.hear_for(SETTLE_S)
    ours = (os.getpid(), sampler.pid, decoder.pid)
    before_s, t0 = others_s(ours), time.monotonic()
    decoder.connection.send(BLOCK_S)
    rate = sampler.hear_while_waiting(decoder.connection)
    return Block(rate, (others_s(ours) - before_s) / (time.monotonic() - t0))


def others_s(ours: Sequence[int]) -> float:
    """Processor time that other programs, and other machines on these cores, have taken so far."""
    all_of_it = psutil.cpu_times()
    idle_s = all_of_it.idle + all_of_it.iowait
    guests_s = all_of_it.guest + all_of_it.guest_nice  # counted as user time too
    taken_s: float = sum(all_of_it) - idle_s - guests_s
    return taken_s - sum(map(processor_s, ours))


def decode(connection: Connection, threads: int) -> None:
    """The decoder process: for each number of seconds it is sent, the tokens/s of a block."""
    gguf = fetch(MODEL)
    folder = cached_conversion(
        gguf.path, gguf.sha256, cache=cache_dir() / "decoders", weights="as-is", attention_pad=1
    )
    model = OrtModel.open(folder, threads=threads, capacity=256)
    model.extend([7] * CONTEXT_TOKENS, rows=1)
    connection.send("ready")
    while True:
        try:
            seconds = connection.recv()
        except EOFError:
            return
        connection.send(tokens_per_s(model, seconds))


def tokens_per_s(model: OrtModel, seconds: float) -> float:
    passes, t0, now = 0, time.perf_counter(), 0.0
    while now < seconds:
        model.extend([7])
        model.rewind(CONTEXT_TOKENS)
        passes += 1
        now = time.perf_counter() - t0
    return passes / now


class Decoder(NamedTuple):
    pid: int
    connection: Connection


@contextmanager
def decoder_process(threads: int) -> Iterator[Decoder]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=decode, args=(theirs, threads))
    process.start()
    assert process.pid is not None
    theirs.close()
    assert ours.recv() == "ready"
    ours.send(WARM_UP_S)
    ours.recv()
    try:
        yield Decoder(process.pid, ours)
    finally:
        ours.close()
        process.join()


def ratio_with_interval(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The geometric mean of on over off, and its 95 % interval by bootstrap over the pairs."""
    logs = [log(pair.on.tokens_per_s / pair.off.tokens_per_s) for pair in pairs]
    chooser = random.Random(0)
    means = [statistics.fmean(chooser.choices(logs, k=len(logs))) for _ in range(DRAWS)]
    cuts = statistics.quantiles(means, n=40)
    return exp(statistics.fmean(logs)), exp(cuts[0]), exp(cuts[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="What the sampler costs.")
    parser.add_argument("--pairs", type=int, default=100, help="that are quiet  [default: 100]")
    parser.add_argument("--seconds", type=float, default=30.0, help="for the processor time")
    parser.add_argument("--threads", type=int, default=1, help="of the decoder  [default: 1]")
    parser.add_argument("--write", action="store_true", help=f"into {WRITTEN.relative_to(ROOT)}")
    parser.add_argument("--processor-only", action="store_true", help="no pairs, nothing written")
    parser.add_argument("--no-cpu-clocks", action="store_true", help="take them off the board")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    from emulated.tree import build

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(Path(folder), BOARD)
        if options.no_cpu_clocks:
            for clocks in Path(folder).glob("sys/devices/system/cpu/cpu*/cpufreq"):
                shutil.rmtree(clocks)
        with Sampler(Path(folder)) as sampler:
            processor = processor_share(sampler, options.seconds)
            if options.processor_only:
                print(processor_words(*processor, len(sampler.signals), options.seconds))
                return
            with decoder_process(options.threads) as decoder:
                pairs = measure_pairs(sampler, decoder, options.pairs)
    found = results(processor, pairs, sampler, options)
    print("\n".join(lines(found)))
    if options.write:
        WRITTEN.write_text(json.dumps(found, indent=1) + "\n")


def results(
    processor: tuple[float, float],
    pairs: Sequence[Pair],
    sampler: Sampler,
    options: argparse.Namespace,
) -> dict[str, Any]:
    quiet = [pair for pair in pairs if pair.quiet]
    ratio, low, high = ratio_with_interval(quiet)
    machine = describe_environment() | {"name": describe_device()["name"]}
    told = ("name", "cores", "platform", "python", "onnxruntime")
    return {
        "command": f"python benchmarks/sampler_cost.py --write --pairs {options.pairs}",
        "date": datetime.date.today().isoformat(),
        "machine": {key: machine[key] for key in told},
        "board": BOARD,
        "signals": {one.name: one.source for one in sampler.signals.values()},
        "processor_seconds": options.seconds,
        "processor_share": processor[0],
        "samples_per_s": processor[1],
        "model": MODEL,
        "threads": options.threads,
        "pairs_measured": len(pairs),
        "pairs": len(quiet),
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "tokens_per_s_on_off": [[round(block.tokens_per_s, 3) for block in pair] for pair in quiet],
    }


def processor_words(share: float, samples_per_s: float, signals: int, seconds: float) -> str:
    return (
        f"processor time of the sampler, {signals} signals, {samples_per_s:.0f} samples/s:"
        f" {100 * share:.2f} % of a core over {seconds:.0f} s"
    )


def lines(found: dict[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    yield f"{found['date']}, {machine['name']}, {machine['cores']} cores, {machine['platform']}"
    yield processor_words(
        found["processor_share"],
        found["samples_per_s"],
        len(found["signals"]),
        found["processor_seconds"],
    )
    yield (
        f"decode speed, sampler on over off: {found['ratio']:.4f} "
        f"[{found['ratio_low']:.4f}, {found['ratio_high']:.4f}], 95 % interval, "
        f"{found['pairs']} of {found['pairs_measured']} pairs of {BLOCK_S:g} s blocks were quiet, "
        f"{found['threads']} threads"
    )


if __name__ == "__main__":
    main()
