"""A scripted decode that moves known bytes: its legs and passes, and what a counter makes of them.

Bandwidth stands still within a pass. The counter averages it, by a boxcar or exponentially, on a
clock that is late or early, with noise; readings may be missing. Everything follows from a seed.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from edgeprof.session.records import (
    SCHEMA_VERSION,
    Leg,
    Pass,
    Request,
    Round,
    Sample,
    SessionInfo,
    Signal,
    Token,
)

GB = 1e9
PEAK = 68.256e9  # of the emulated Orin Nano in 15W
DRAFT_TOKENS = 3
CONTEXT = 256


class Counter(NamedTuple):
    """How the memory's activity is averaged and read."""

    kind: Literal["boxcar", "exponential"]
    window_s: float
    noise: float
    offset_s: float
    gaps: int = 0


class Work(NamedTuple):
    """Bytes and seconds of one pass."""

    bytes: float
    seconds: float


class Truth(NamedTuple):
    """What is to be found."""

    passes: dict[str, Work]
    idle_bytes_per_s: float
    interference: float
    counter: Counter


class Piece(NamedTuple):
    """A stretch of constant bandwidth."""

    t_s: float
    bytes_per_s: float


def random_truth(seed: int) -> Truth:
    rng = random.Random(seed)
    weights = rng.uniform(0.5, 4.0) * GB
    decode_s = weights / (rng.uniform(0.35, 0.85) * PEAK)
    verify = weights * rng.uniform(1.0, 1.05)
    verify_s = max(decode_s * rng.uniform(1.0, 1.6), verify / (0.9 * PEAK))
    draft = weights * rng.uniform(0.05, 0.2)
    draft_s = draft / (rng.uniform(0.15, 0.8) * PEAK)
    kind: Literal["boxcar", "exponential"] = rng.choice(["boxcar", "exponential"])
    return Truth(
        passes={
            "decode": Work(weights, decode_s),
            "verify": Work(verify, verify_s),
            "draft": Work(draft, draft_s),
        },
        idle_bytes_per_s=rng.uniform(0.2, 3.0) * GB,
        interference=rng.uniform(0.0, 0.1),
        counter=Counter(
            kind=kind,
            window_s=rng.uniform(0.3, 1.5),
            noise=rng.uniform(0.01, 0.03),
            offset_s=rng.uniform(-0.05, 0.05),
            gaps=rng.choice([0, 0, 3]),
        ),
    )


class Script:
    """The whole decode as records, and the bandwidth while it goes on.

    ``start_s`` is the monotonic time of its start. Pass times vary by two per cent; those of the
    speculative answers are longer by ``in_situ``. ``plain`` adds plain answers, and legs that hold
    passes for their time.
    """

    def __init__(
        self,
        truth: Truth,
        *,
        seed: int,
        start_s: float = 1000.0,
        leg_s: float = 9.9,
        repeats: int = 4,
        held: bool = True,
        duty: bool = True,
        answers: int = 3,
        answer_s: float = 18.0,
        plain: bool = False,
        in_situ: float = 1.0,
    ) -> None:
        self.truth = truth
        self.in_situ = in_situ
        self.legs: list[Leg] = []
        self.requests: list[Request] = []
        self.rounds: list[Round] = []
        self.passes: list[Pass] = []
        self.tokens: list[Token] = []
        self.pieces = [Piece(start_s - 10.0, truth.idle_bytes_per_s)]
        self.now_s = start_s
        self._rng = random.Random(seed + 1_000_000)
        self._pause(1.0)
        if held:
            self._hold(leg_s, repeats, seed)
        if duty:
            self._duty(leg_s)
        for index in range(answers):
            self._answer("t+d k=3", index, answer_s)
        if plain:
            self._time()
            for index in range(answers):
                self._plain_answer(index, answer_s)
        self._pause(1.0)

    def _hold(self, leg_s: float, repeats: int, seed: int) -> None:
        for repeat in range(1, repeats + 1):
            order = ["decode", "verify", "draft", "idle"]
            self._rng.shuffle(order)
            for phase in order:
                model = {"draft": "d", "idle": "idle"}.get(phase, "t")
                tokens = {"verify": DRAFT_TOKENS + 1, "idle": 0}.get(phase, 1)
                attrs = {"held": "bytes", "phase": phase, "tokens": tokens,
                         "context_tokens": CONTEXT, "seed": seed}  # fmt: skip
                with _LegOf(self, f"{model} {phase}", "held", model, repeat, attrs) as leg_id:
                    end_s = self.now_s + leg_s
                    while phase != "idle" and self.now_s < end_s:
                        self._pass(leg_id, phase)
                    if phase == "idle":
                        self._set(truth_idle := self.truth.idle_bytes_per_s)
                        assert truth_idle > 0
                        self.now_s += leg_s

    def _duty(self, leg_s: float) -> None:
        for repeat in (1, 2):
            for drafts in (0, DRAFT_TOKENS, 3 * DRAFT_TOKENS):
                attrs = {"held": "duty", "phase": "verify", "tokens": DRAFT_TOKENS + 1,
                         "context_tokens": CONTEXT, "drafter": "d",
                         "draft_passes": drafts}  # fmt: skip
                with _LegOf(self, f"duty {drafts}", "held", "t", repeat, attrs) as leg_id:
                    end_s = self.now_s + leg_s + 1.0
                    while self.now_s < end_s:
                        self._pass(leg_id, "verify")
                        for _ in range(drafts):
                            self._pass(leg_id, "draft")

    def _answer(self, variant: str, index: int, seconds: float) -> None:
        attrs = {"target": "t", "drafter": "d", "drafter_kind": "model",
                 "draft_tokens": DRAFT_TOKENS}  # fmt: skip
        request_id = index + 1
        more = 1 + self.truth.interference
        with _LegOf(self, f"{variant} r1 p{index + 1}", "decode", variant, 1, attrs) as leg_id:
            t0_s = self.now_s
            self._pass(leg_id, "verify", request_id=request_id, as_phase="prefill")
            first_s, emitted = self.now_s, 1
            while self.now_s < first_s + seconds:
                round_id, round_s = len(self.rounds) + 1, self.now_s
                for phase in (*["draft"] * DRAFT_TOKENS, "verify"):
                    self._pass(leg_id, phase, request_id, round_id, more=more, slower=self.in_situ)
                accepted = self._rng.randint(0, DRAFT_TOKENS)
                emitted += accepted + 1
                evaluated = min(accepted + 1, DRAFT_TOKENS)
                self.rounds.append(
                    Round(id=round_id, leg_id=leg_id, request_id=request_id, drafted=DRAFT_TOKENS,
                          evaluated=evaluated, accepted=accepted, emitted=accepted + 1,
                          t0_ns=_ns(round_s), t1_ns=_ns(self.now_s))
                )  # fmt: skip
            self._request(request_id, leg_id, index, emitted, t0_s, first_s)

    def _request(
        self, request_id: int, leg_id: int, index: int, emitted: int, t0_s: float, first_s: float
    ) -> None:
        self.requests.append(
            Request(id=request_id, leg_id=leg_id, prompt_sha256=f"p{index}", prompt_kind="x",
                    prompt_tokens=9, new_tokens=emitted, t0_ns=_ns(t0_s),
                    first_token_ns=_ns(first_s), t1_ns=_ns(self.now_s), stop_reason="length")
        )  # fmt: skip

    def _plain_answer(self, index: int, seconds: float) -> None:
        attrs = {"target": "t", "drafter": None, "drafter_kind": None, "draft_tokens": None}
        request_id = len(self.requests) + 1
        with _LegOf(self, f"t r1 p{index + 1}", "decode", "t", 1, attrs) as leg_id:
            t0_s = self.now_s
            self._pass(leg_id, "verify", request_id=request_id, as_phase="prefill")
            first_s, emitted = self.now_s, 1
            while self.now_s < first_s + seconds:
                self._pass(leg_id, "decode", request_id=request_id)
                emitted += 1
            self._request(request_id, leg_id, index, emitted, t0_s, first_s)

    def _time(self) -> None:
        """Nine passes of every kind, for what they take."""
        for held, phases in (("verify", ("decode", "verify")), ("draft", ("draft",))):
            model = "d" if held == "draft" else "t"
            with _LegOf(self, f"{model} held", "held", model, 1, {"held": held}) as leg_id:
                for phase in 9 * phases:
                    self._pass(leg_id, phase)

    def _pass(
        self,
        leg_id: int,
        phase: str,
        request_id: int | None = None,
        round_id: int | None = None,
        *,
        more: float = 1.0,
        slower: float = 1.0,
        as_phase: str | None = None,
    ) -> None:
        work = self.truth.passes[phase]
        seconds = work.seconds * slower * self._rng.uniform(0.98, 1.02)
        rate = self.truth.idle_bytes_per_s + more * work.bytes / seconds
        self._set(rate)
        tokens = DRAFT_TOKENS + 1 if phase == "verify" else 1
        values: dict[str, Any] = {"phase": as_phase or phase}
        self.passes.append(
            Pass(id=len(self.passes) + 1, leg_id=leg_id, request_id=request_id, round_id=round_id,
                 model="d" if phase == "draft" else "t", provider="cpu", tokens=tokens,
                 context_tokens=CONTEXT, t0_ns=_ns(self.now_s), t1_ns=_ns(self.now_s + seconds),
                 **values)
        )  # fmt: skip
        self.now_s += seconds

    def _set(self, bytes_per_s: float) -> None:
        self.pieces.append(Piece(self.now_s, bytes_per_s))

    def _pause(self, seconds: float) -> None:
        self._set(self.truth.idle_bytes_per_s)
        self.now_s += seconds

    def records(self) -> Iterator[Any]:
        for table in (self.legs, self.requests, self.rounds, self.passes, self.tokens):
            yield from table


class _LegOf:
    """A block in which a leg of a script goes on; a short pause comes before."""

    def __init__(
        self, script: Script, name: str, kind: Any, variant: str, repeat: int, attrs: dict[str, Any]
    ) -> None:
        script._pause(0.1)
        self._script, self._start_s = script, script.now_s
        self._fields: dict[str, Any] = {
            "id": len(script.legs) + 1, "name": f"{name} {repeat}", "kind": kind,
            "variant": variant, "repeat": repeat, "warmup": False, "attrs": attrs,
        }  # fmt: skip

    def __enter__(self) -> int:
        leg_id: int = self._fields["id"]
        return leg_id

    def __exit__(self, *_: object) -> None:
        t0_ns, t1_ns = _ns(self._start_s), _ns(self._script.now_s)
        leg = Leg(t0_ns=t0_ns, t1_ns=t1_ns, status="complete", **self._fields)
        self._script.legs.append(leg)


class Shown:
    """What the counter shows at a time; exact for both kinds, from the bytes moved so far."""

    def __init__(self, script: Script, *, grid_s: float = 0.005) -> None:
        self._counter = script.truth.counter
        starts = np.array([piece.t_s for piece in script.pieces])
        rates = np.array([piece.bytes_per_s for piece in script.pieces])
        moved = np.concatenate([[0.0], np.cumsum(np.diff(starts) * rates[:-1])])
        self._starts, self._rates, self._moved = starts, rates, moved
        if self._counter.kind == "exponential":
            grid = np.arange(starts[0], script.now_s + 2.0, grid_s)
            means = np.diff(self._bytes(grid)) / grid_s
            keep = float(np.exp(-grid_s / self._counter.window_s))
            shown = np.empty(len(grid))
            shown[0] = rates[0]
            for i, mean in enumerate(means):
                shown[i + 1] = keep * shown[i] + (1 - keep) * mean
            self._grid, self._shown = grid, shown

    def _bytes(self, t_s: Any) -> Any:
        place = np.searchsorted(self._starts, t_s, side="right") - 1
        return self._moved[place] + (t_s - self._starts[place]) * self._rates[place]

    def at(self, t_s: Any) -> Any:
        """Without noise, at times of the passes' clock; the counter's own is late by its offset."""
        own_s = np.asarray(t_s) - self._counter.offset_s
        if self._counter.kind == "boxcar":
            before = np.maximum(own_s - self._counter.window_s, self._starts[0])
            return (self._bytes(own_s) - self._bytes(before)) / (own_s - before)
        return np.interp(own_s, self._grid, self._shown)


def samples(
    script: Script, *, seed: int, signal_id: int = 1, rate_hz: float = 20.0
) -> Iterator[Sample]:
    """Noisy readings over the whole script, some gaps left out."""
    rng = np.random.default_rng(seed)
    counter = script.truth.counter
    start_s, end_s = script.pieces[0].t_s + 8.0, script.now_s
    times = np.arange(start_s, end_s, 1 / rate_hz)
    times = times + rng.uniform(0, 0.002, len(times))
    noisy = Shown(script).at(times) * (1 + counter.noise * rng.standard_normal(len(times)))
    gaps = sorted(rng.uniform(start_s, end_s) for _ in range(counter.gaps))
    for t_s, value in zip(times, noisy, strict=True):
        place = bisect_right(gaps, t_s)
        if place and t_s < gaps[place - 1] + 1.5:
            continue
        t_ns = _ns(float(t_s))
        yield Sample(signal_id=signal_id, t0_ns=t_ns, t1_ns=t_ns + 50_000, value=float(value),
                     quality="simulated")  # fmt: skip


def bandwidth_signal(signal_id: int = 1) -> Signal:
    """Of a counter of which nobody tells how it averages."""
    return Signal(id=signal_id, name="dram_bandwidth_bytes_per_s", unit="B/s", source="sysfs",
                  window_kind="unknown")  # fmt: skip


def session_info() -> SessionInfo:
    return SessionInfo(
        id="scripted", created_utc="2026-01-02T03:04:05Z", edgeprof_version="0",
        schema_version=SCHEMA_VERSION, kind="run", recipe={"name": "scripted"}, device={},
        environment={}, models={}, complete=True,
    )  # fmt: skip


def write(path: Any, script: Script, seed: int, *, spoil: Callable[[Sample], Sample] | None = None,
          clock: Callable[[float], float] | None = None) -> None:  # fmt: skip
    """The script and its readings through the real store; ``spoil`` changes readings, ``clock``
    gives the EMC clock in Hz at a time in s."""
    from edgeprof.session.store import SessionWriter

    writer = SessionWriter(path, session_info())
    try:
        for record in script.records():
            writer.add(record)
        writer.add(bandwidth_signal())
        read = list(samples(script, seed=seed))
        for sample in read:
            writer.add(sample if spoil is None else spoil(sample))
        if clock is not None:
            writer.add(Signal(id=2, name="emc_clock_hz", unit="Hz", source="sysfs"))
            for sample in read:
                hz = clock(sample.t0_ns / 1e9)
                writer.add(Sample(signal_id=2, t0_ns=sample.t0_ns, t1_ns=sample.t1_ns, value=hz,
                                  quality="simulated"))  # fmt: skip
    finally:
        writer.close()


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
