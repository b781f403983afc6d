"""Interleaved rounds over engines, each in a process of its own, on a machine that others use too.

Every round answers a prompt of each class, the next in turn, by every way of decoding, in random
order; two ways are compared by pairs from the same round and prompt. What other processes took of
the processor meanwhile is written down: a pair in which they took more than a tenth on either side
is left out.

Runs are kept in a file, a JSON line each, to which a later call of the benchmark adds its rounds.
"""

import hashlib
import json
import math
import random
import statistics
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec
import psutil
from msgspec import Struct

from edgeprof.runner.draft_length import PassCost
from edgeprof.tomlfile import load_toml

PROMPTS = Path(__file__).parent / "data" / "prompts.toml"
KINDS = ("story", "summary", "code", "edit", "chat")
ENGINES = Path(__file__).parent / "speed_engines.py"
BUSY_LIMIT = 0.1
QUIET_S = 0.2
RESAMPLES = 1000
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


class Run(Struct, frozen=True, kw_only=True):
    """One answer; ``others`` is the share of the processor that other processes took meanwhile.

    ``text`` tells answers apart. ``passes`` counts the engine's passes by phase and size
    (``verify 4``), ``rounds`` sums up what was drafted, evaluated and accepted; ``predicted_s`` is
    what these passes took where they were held.
    """

    way: str
    prompt: int
    kind: str
    round: int
    tokens: int
    text: str
    seconds: float
    others: float
    passes: dict[str, int] = {}
    rounds: tuple[int, int, int] | None = None
    predicted_s: float | None = None

    @property
    def rate(self) -> float:
        """Tokens a second; the first one is the prefill's."""
        return (self.tokens - 1) / self.seconds


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
    keep: Path,
    patience_s: float = 20.0,
) -> list[Run]:
    """``prompts`` are kinds and token ids. Rounds go on where those in ``keep`` end, until there
    are as many as asked for or, before that, no further one fits into ``minutes``. A warm-up round
    goes before and is not counted."""
    runs = kept_runs(keep)
    done = 1 + max((run.round for run in runs), default=-1)
    chooser = random.Random(done)
    end_s = time.perf_counter() + 60 * minutes
    longest_s = 0.0
    for round_index in [None, *range(done, rounds)]:
        t0_s = time.perf_counter()
        if round_index is not None and t0_s + longest_s > end_s:
            break
        for index in _in_turn([kind for kind, _ in prompts], round_index or 0):
            kind, ids = prompts[index]
            wait_until_quiet(patience_s if round_index is not None else 0)
            for way in chooser.sample(list(ways), len(ways)):
                request = {
                    "prompt": ids,
                    "new_tokens": new_tokens,
                    "end_tokens": sorted(end_tokens),
                    **way.asked,
                }
                time.sleep(PARKING_S)
                worker = workers[way.engine]
                answer, others = worker.ask(request)
                place = {"prompt": index, "kind": kind, "round": round_index}
                if round_index is not None and len(answer["tokens"]) > 1:
                    runs.append(_run(worker, answer, way=way.name, others=others, **place))
        if round_index is not None:
            longest_s = max(longest_s, time.perf_counter() - t0_s)
            keep.write_bytes(b"".join(msgspec.json.encode(run) + b"\n" for run in runs))
    return runs


def _in_turn(kinds: Sequence[str], turn: int) -> list[int]:
    """One prompt of each kind, by its place."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, kind in enumerate(kinds):
        places[kind].append(place)
    return [found[turn % len(found)] for found in places.values()]


def kept_runs(path: Path) -> list[Run]:
    """Those that earlier calls wrote down."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Run) for line in path.read_bytes().splitlines()]


def _run(worker: Worker, answer: Mapping[str, Any], **told: Any) -> Run:
    tokens = answer["tokens"]
    passes = Counter(f"{phase} {size}" for phase, size, *_ in answer.get("passes", ()))
    return Run(
        tokens=len(tokens),
        text=hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:12],
        seconds=answer["seconds"],
        passes=dict(passes),
        rounds=_sums(answer["rounds"]) if passes else None,
        predicted_s=_predicted_s(answer["passes"], worker.ready) if passes else None,
        **told,
    )


def _sums(rounds: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """Drafted, evaluated and accepted tokens of all rounds."""
    drafted, evaluated, accepted = (sum(column) for column in zip(*rounds, strict=True))
    return drafted, evaluated, accepted


def _predicted_s(passes: Sequence[Sequence[Any]], ready: Mapping[str, Any]) -> float:
    """v of the target's passes and c of the draft's, held; the host is left out. The first draft
    step behind a target pass has a cost of its own."""
    verify_s = PassCost({int(size): seconds for size, seconds in ready["pass_s"].items()})
    plain_s, steps_s = ready["pass_s"]["1"], ready["draft_step_s"] or (0.0, 0.0)
    seconds, before = 0.0, ""
    for phase, size, *_ in passes:
        if phase == "draft":
            seconds += steps_s[before == "draft"]
        elif phase != "prefill":
            seconds += plain_s * verify_s(size)
        before = phase
    return seconds


class Ratio(NamedTuple):
    """A way against another, over the pairs of each prompt: medians, and their geometric mean by
    class and over the classes, with its 95 % interval (pairs of each prompt drawn anew)."""

    by_kind: dict[str, float]
    overall: float
    interval: tuple[float, float]
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
    by_kind = _by_kind(kept)
    if not by_kind:
        return None
    chooser = random.Random(0)
    drawn = sorted(
        geomean(list(_by_kind(again).values()))
        for again in (
            {key: chooser.choices(v, k=len(v)) for key, v in kept.items() if v}
            for _ in range(RESAMPLES)
        )
    )
    interval = drawn[round(0.025 * RESAMPLES)], drawn[round(0.975 * RESAMPLES) - 1]
    counted = sum(map(len, kept.values()))
    whole = sum(map(len, pairs.values()))
    return Ratio(by_kind, geomean(list(by_kind.values())), interval, counted, whole - counted)


def _by_kind(pairs: Mapping[tuple[str, int], Sequence[float]]) -> dict[str, float]:
    medians: dict[str, list[float]] = defaultdict(list)
    for (kind, _), values in pairs.items():
        if values:
            medians[kind].append(statistics.median(values))
    return {kind: geomean(medians[kind]) for kind in KINDS if kind in medians}


def beside_prediction(runs: Sequence[Run], way: str, reference: str) -> tuple[float, float]:
    """The speed-up over all undisturbed answers together, and what their passes predict."""
    seconds, predicted = [], []
    for name in (way, reference):
        used = [run for run in runs if run.way == name and run.others <= BUSY_LIMIT]
        tokens = sum(run.tokens - 1 for run in used) or math.nan
        seconds.append(sum(run.seconds for run in used) / tokens)
        predicted.append(sum(run.predicted_s or math.nan for run in used) / tokens)
    return seconds[1] / seconds[0], predicted[1] / predicted[0]


def geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def ratio_line(name: str, found: Ratio | None) -> str:
    if found is None:
        return f"{name:<24} no pair without a disturbance"
    kinds = "  ".join(f"{kind} {found.by_kind.get(kind, math.nan):5.2f}" for kind in KINDS)
    return (
        f"{name:<24} {kinds}  geomean {found.overall:5.3f}"
        f" [{found.interval[0]:.3f}, {found.interval[1]:.3f}]"
        f"  ({found.pairs} pairs, {found.left_out} left out)"
    )
