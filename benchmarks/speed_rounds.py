"""Interleaved rounds over engines, each in a process of its own, on a machine that others use too.

Every round answers every prompt by every way of decoding, in random order; two ways are compared by
pairs from the same round and prompt. What other processes took of the processor meanwhile is
written down: a pair in which they took more than a tenth on either side is left out.
"""

import json
import math
import random
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import psutil
from msgspec import Struct

from edgeprof.tomlfile import load_toml

PROMPTS = Path(__file__).parent / "data" / "prompts.toml"
KINDS = ("story", "summary", "code", "edit", "chat")
ENGINES = Path(__file__).parent / "speed_engines.py"
BUSY_LIMIT = 0.1
QUIET_S = 0.2
PARKING_S = 0.1  # threads of the engine that ran before spin on for a while


class Prompt(Struct, frozen=True, kw_only=True):
    """``use`` is what it is for: tuning, or the final runs."""

    use: str
    kind: str
    text: str


class _Prompts(Struct, frozen=True, kw_only=True):
    template: str
    prompts: list[Prompt]


class Way(NamedTuple):
    """A way of decoding: the engine that does it, and what it is asked for besides the prompt."""

    name: str
    engine: str
    asked: Mapping[str, Any]


class Run(NamedTuple):
    """One answer; ``others`` is the share of the processor that other processes took meanwhile."""

    way: str
    prompt: int
    kind: str
    round: int
    tokens: list[int]
    seconds: float
    others: float
    answer: dict[str, Any]

    @property
    def rate(self) -> float:
        """Tokens a second; the first one is the prefill's."""
        return (len(self.tokens) - 1) / self.seconds


class Worker:
    """An engine in a process of its own; it waits for prompts while others run."""

    def __init__(self, python: str, arguments: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [python, str(ENGINES), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = self._line()  # what it tells once it has loaded

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.process.terminate()
        self.process.wait()

    def ask(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        """The answer, and what others took of the processor until it came."""
        assert self.process.stdin is not None
        before_s, own_s, t0_s = _busy_s(), self._cpu_s(), time.perf_counter()
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self._line()
        elapsed_s = time.perf_counter() - t0_s
        foreign_s = (_busy_s() - before_s) - (self._cpu_s() - own_s)
        return answer, max(0.0, foreign_s / elapsed_s / psutil.cpu_count())

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"an engine ended: {self.process.args!r}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def read_prompts(use: str, per_kind: int | None = None) -> list[tuple[str, str]]:
    """Class and text, in the template, of the prompts for this use, class by class."""
    content = load_toml(PROMPTS, _Prompts)
    found: list[tuple[str, str]] = []
    for kind in KINDS:
        texts = [p.text for p in content.prompts if (p.use, p.kind) == (use, kind)]
        found += [(kind, content.template.replace("{prompt}", text)) for text in texts[:per_kind]]
    return found


def wait_until_quiet(limit_s: float = 20.0) -> None:
    """Until others take hardly anything, or the patience ends."""
    end_s = time.perf_counter() + limit_s
    time.sleep(PARKING_S)
    while time.perf_counter() < end_s:
        before_s, t0_s = _busy_s(), time.perf_counter()
        time.sleep(QUIET_S)
        share = (_busy_s() - before_s) / (time.perf_counter() - t0_s) / psutil.cpu_count()
        if share < BUSY_LIMIT / 2:
            return


def run_rounds(
    workers: Mapping[str, Worker],
    ways: Sequence[Way],
    prompts: Sequence[tuple[str, list[int]]],
    *,
    rounds: int,
    new_tokens: int,
    end_tokens: Iterable[int],
    minutes: float,
    patience_s: float = 20.0,
) -> list[Run]:
    """``prompts`` are kinds and token ids. A warm-up round goes before and is not counted; no new
    round starts after ``minutes``."""
    chooser = random.Random(0)
    runs: list[Run] = []
    end_s = time.perf_counter() + 60 * minutes
    ends = sorted(end_tokens)
    for round_index in range(-1, rounds):
        if round_index > 0 and time.perf_counter() > end_s:
            break
        for index, (kind, ids) in enumerate(prompts):
            wait_until_quiet(patience_s if round_index >= 0 else 0)
            for way in chooser.sample(list(ways), len(ways)):
                request = {"prompt": ids, "new_tokens": new_tokens, "end_tokens": ends, **way.asked}
                time.sleep(PARKING_S)
                answer, others = workers[way.engine].ask(request)
                tokens = answer.pop("tokens")
                run = Run(
                    way.name, index, kind, round_index, tokens, answer["seconds"], others, answer
                )
                if round_index >= 0 and len(tokens) > 1:
                    runs.append(run)
    return runs


class Ratio(NamedTuple):
    """A way against another, over the pairs of each prompt: medians, and their geometric mean by
    class and over the classes."""

    by_kind: dict[str, float]
    overall: float
    pairs: int
    left_out: int


def ratio(runs: Sequence[Run], way: str, reference: str) -> Ratio | None:
    """Rates of ``way`` over those of ``reference``; None where no pair is left."""
    places = {(run.way, run.prompt, run.round): run for run in runs}
    pairs: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        other = places.get((reference, run.prompt, run.round))
        if run.way == way and other is not None:
            disturbed = max(run.others, other.others)
            pairs[run.kind, run.prompt].append((disturbed, run.rate / other.rate))
    kept = {
        key: [value for disturbed, value in found if disturbed <= BUSY_LIMIT]
        for key, found in pairs.items()
    }
    by_kind: dict[str, float] = {}
    for kind in KINDS:
        medians = [statistics.median(v) for (k, _), v in kept.items() if k == kind and v]
        if medians:
            by_kind[kind] = geomean(medians)
    if not by_kind:
        return None
    counted = sum(map(len, kept.values()))
    whole = sum(map(len, pairs.values()))
    return Ratio(by_kind, geomean(list(by_kind.values())), counted, whole - counted)


def geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def ratio_line(name: str, found: Ratio | None) -> str:
    if found is None:
        return f"{name:<34} no pair without a disturbance"
    kinds = "  ".join(f"{kind} {found.by_kind.get(kind, math.nan):5.2f}" for kind in KINDS)
    return (
        f"{name:<34} {kinds}  geomean {found.overall:5.3f}"
        f"  ({found.pairs} pairs, {found.left_out} left out)"
    )
