"""A session made by hand from round numbers, so that every figure of it can be worked out on paper.

Times are in milliseconds. Two targets, two prompts, two repeats; the second repeat takes 1.25 times
as long in every part. Each answer has 9 tokens: one from the prefill, 8 from decoding.

    fp32             8 rounds of 20 ms, all of it in the pass
    fp32+draft k=2   4 rounds of 30 ms: 2 draft passes of 3, a verify pass of 20, 4 outside
    fp32+ngram k=3   1 round of 24 ms (verify 22, outside 2), 3 of 3 accepted; then 4 plain of 20
    int4             8 rounds of 10 ms
    int4+draft k=2   4 rounds of 26 ms: 2 draft passes of 3, a verify pass of 18, 2 outside
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from edgeprof.session.columns import Samples, Tokens
from edgeprof.session.records import (
    SCHEMA_VERSION,
    Event,
    Leg,
    ModelRecord,
    Pass,
    PassAgreement,
    Phase,
    Request,
    Round,
    Sample,
    Session,
    SessionInfo,
    Signal,
    Token,
)
from edgeprof.session.store import SessionWriter

MS = 1_000_000


class Shape(NamedTuple):
    """One round: what was drafted for it and, in ms, what its parts took."""

    drafted: int
    evaluated: int
    accepted: int
    emitted: int
    draft_ms: float
    target_ms: float
    other_ms: float


def plain(pass_ms: float) -> Shape:
    return Shape(0, 0, 0, 1, 0.0, pass_ms, 0.0)


def drafted(draft_ms: float, target_ms: float, other_ms: float) -> list[Shape]:
    """Accepted 2, 1, 0, 1 of 2: 8 tokens; 4 of 8 drafted, 4 of 7 evaluated are accepted."""
    times = (draft_ms, target_ms, other_ms)
    return [
        Shape(2, 2, 2, 3, *times),
        Shape(2, 2, 1, 2, *times),
        Shape(2, 1, 0, 1, *times),
        Shape(2, 2, 1, 2, *times),
    ]


ROUNDS = {
    "fp32": [plain(20)] * 8,
    "fp32+draft k=2": drafted(3, 20, 4),
    "fp32+ngram k=3": [Shape(3, 3, 3, 4, 0.0, 22, 2), *[plain(20)] * 4],
    "int4": [plain(10)] * 8,
    "int4+draft k=2": drafted(3, 18, 2),
}
DRAFTERS = {"draft": "model", "ngram": "ngram"}
ANSWERS = {"chat": list(range(100, 109)), "code": list(range(200, 209))}


class SessionMaker:
    """Appends records one after another on one time axis; ``session()`` is what came of it."""

    def __init__(self) -> None:
        self.now = 1_000 * MS
        self.legs: list[Leg] = []
        self.requests: list[Request] = []
        self.rounds: list[Round] = []
        self.passes: list[Pass] = []
        self.tokens: list[Token] = []
        self.signals: list[Signal] = []
        self.samples: list[Sample] = []
        self.events: list[Event] = []
        self.info = _info()

    def session(self) -> Session:
        return Session(
            info=self.info,
            legs=self.legs,
            requests=self.requests,
            rounds=self.rounds,
            passes=self.passes,
            tokens=Tokens.of(self.tokens),
            signals=self.signals,
            samples=Samples.of(self.samples),
            events=self.events,
        )

    def leg(self, kind: Any, variant: str, **fields: Any) -> int:
        values: dict[str, Any] = {"repeat": 0, "warmup": False, "status": "complete", **fields}
        leg_id = len(self.legs) + 1
        name = f"{kind} {variant} {values['repeat']}"
        self.legs.append(
            Leg(id=leg_id, name=name, kind=kind, variant=variant, t0_ns=self.now, **values)
        )
        return leg_id

    def end_leg(self) -> None:
        self.legs[-1] = msgspec.structs.replace(self.legs[-1], t1_ns=self.now)

    def run_pass(self, leg_id: int, phase: Phase, model: str, ms: float, **fields: Any) -> None:
        values: dict[str, Any] = {
            "request_id": None,
            "round_id": None,
            "tokens": 1,
            "context_tokens": 9,
            **fields,
        }
        end = self.now + round(ms * MS)
        self.passes.append(
            Pass(
                id=len(self.passes) + 1,
                leg_id=leg_id,
                phase=phase,
                model=model,
                provider="cpu",
                t0_ns=self.now,
                t1_ns=end,
                **values,
            )
        )
        self.now = end

    def decode_leg(
        self,
        variant: str,
        *,
        repeat: int = 0,
        slower: float = 1.0,
        warmup: bool = False,
        rounds: list[Shape] | None = None,
        answers: dict[str, list[int]] = ANSWERS,
        status: str = "complete",
    ) -> None:
        """One leg in which every prompt is answered once."""
        target, _, rest = variant.partition("+")
        drafter, _, draft_tokens = rest.partition(" k=")
        leg_id = self.leg(
            "decode",
            variant,
            repeat=repeat,
            warmup=warmup,
            status=status,
            attrs={
                "target": target,
                "drafter": drafter or None,
                "drafter_kind": DRAFTERS.get(drafter),
                "draft_tokens": int(draft_tokens) if draft_tokens else None,
            },
        )
        shapes = ROUNDS[variant] if rounds is None else rounds
        for kind, tokens in answers.items():
            self._answer(leg_id, target, drafter, kind, tokens, shapes, slower)
        self.end_leg()

    def _answer(
        self,
        leg_id: int,
        target: str,
        drafter: str,
        kind: str,
        tokens: list[int],
        shapes: list[Shape],
        slower: float,
    ) -> None:
        request_id = len(self.requests) + 1
        t0_ns = self.now
        self.run_pass(
            leg_id, "prefill", target, 50 * slower, request_id=request_id, tokens=10,
            context_tokens=0,
        )  # fmt: skip
        first_token_ns = self.now
        for shape in shapes:
            self._round(leg_id, request_id, target, drafter, shape, slower)
        self.requests.append(
            Request(
                id=request_id,
                leg_id=leg_id,
                prompt_sha256=f"{kind}-sha",
                prompt_kind=kind,
                prompt_tokens=10,
                new_tokens=len(tokens),
                t0_ns=t0_ns,
                first_token_ns=first_token_ns if tokens else None,
                t1_ns=self.now,
                stop_reason="new_tokens",
            )
        )
        for position, token_id in enumerate(tokens):
            self.tokens.append(
                Token(
                    id=len(self.tokens) + 1,
                    leg_id=leg_id,
                    request_id=request_id,
                    round_id=None,
                    position=position,
                    token_id=token_id,
                    origin="plain",
                )
            )

    def _round(
        self, leg_id: int, request_id: int, target: str, drafter: str, shape: Shape, slower: float
    ) -> None:
        round_id = len(self.rounds) + 1
        owner = {"request_id": request_id, "round_id": round_id}
        t0_ns = self.now
        if shape.draft_ms:
            for _ in range(shape.drafted):
                self.run_pass(leg_id, "draft", drafter, shape.draft_ms * slower, **owner)
        phase: Phase = "verify" if shape.drafted else "decode"
        self.run_pass(
            leg_id, phase, target, shape.target_ms * slower, tokens=shape.drafted + 1, **owner
        )
        self.now += round(shape.other_ms * slower * MS)
        self.rounds.append(
            Round(
                id=round_id,
                leg_id=leg_id,
                request_id=request_id,
                drafted=shape.drafted,
                evaluated=shape.evaluated,
                accepted=shape.accepted,
                emitted=shape.emitted,
                t0_ns=t0_ns,
                t1_ns=self.now,
            )
        )

    def held_leg(self, held: str, model: str, pass_ms: dict[int, tuple[float, ...]]) -> None:
        """Passes of each size, each taking the times listed for it, after 999 cached tokens."""
        leg_id = self.leg("held", model, attrs={"held": held})
        phases: dict[str, Phase] = {"verify": "verify", "draft": "draft"}
        for tokens, times in pass_ms.items():
            for ms in times:
                self.run_pass(leg_id, phases[held], model, ms, tokens=tokens, context_tokens=999)
        self.end_leg()

    def ceiling_leg(
        self, kernel: str, weight_bytes: int, flop_per_row: int, pass_ms: dict[int, float]
    ) -> None:
        """Three products a row count."""
        attrs = {"weight_bytes": weight_bytes, "flop_per_row": flop_per_row, "threads": 2}
        leg_id = self.leg("ceiling", kernel, attrs=attrs)
        for rows, ms in pass_ms.items():
            for _ in range(3):
                self.run_pass(leg_id, "ceiling", kernel, ms, tokens=rows, context_tokens=0)
        self.end_leg()

    def signal(self, name: str, unit: str, values: list[tuple[int, float]], **fields: Any) -> None:
        """Samples of one signal: (time in ns, value)."""
        signal_id = len(self.signals) + 1
        self.signals.append(Signal(id=signal_id, name=name, unit=unit, source="host"))
        self.samples += [
            Sample(signal_id=signal_id, t0_ns=t_ns, t1_ns=t_ns, value=value, **fields)
            for t_ns, value in values
        ]


def board_signals(session: Session) -> tuple[list[Signal], list[Sample]]:
    """What an emulated board would have told while ``session`` ran, a reading every 100 ms."""
    t0_ns, t1_ns = session.legs[0].t0_ns, session.legs[-1].t1_ns or 0
    named = {
        "dram_bandwidth_bytes_per_s": ("B/s", 40e9), "emc_busy_frac": ("1", 0.6),
        "gpu_busy_frac": ("1", 0.8), "power_w.total": ("W", 14.0), "power_w.VDD_SOC": ("W", 3.0),
        "temp_c.gpu": ("deg C", 48.0), "emc_clock_hz": ("Hz", 2133e6),
        "gpu_clock_hz": ("Hz", 624e6),
    }  # fmt: skip
    signals = [
        Signal(id=index, name=name, unit=unit, source="sysfs")
        for index, (name, (unit, _)) in enumerate(named.items(), start=1)
    ]
    samples = [
        Sample(signal_id=index, t0_ns=t_ns, t1_ns=t_ns, value=value, quality="simulated")
        for index, (_, value) in enumerate(named.values(), start=1)
        for t_ns in range(t0_ns, t1_ns, 100 * MS)
    ]
    return signals, samples


def _info() -> SessionInfo:
    def model(role: Any, weights: str, streamed: int, kernel: str, agree: float) -> ModelRecord:
        return ModelRecord(
            role=role,
            source="/home/somebody/models/tiny.gguf",
            sha256="0123456789abcdef" * 4,
            weights=weights,
            provider="cpu",
            providers_in_session=["CPUExecutionProvider"],
            threads=1 if role == "draft" else 2,
            vocab_size=1000,
            capacity_tokens=2048,
            streamed_weight_bytes=streamed,
            kv_bytes_per_token=50_000,
            flop_per_token=600_000_000,
            kernel=kernel,
            agreement=PassAgreement(
                reference_tokens=2, max_logit_difference={1: agree}, after_rollback=0.0
            ),
        )

    return SessionInfo(
        id="0000-made-by-hand",
        created_utc="2026-01-02T03:04:05Z",
        edgeprof_version="0.1.0",
        schema_version=SCHEMA_VERSION,
        kind="run",
        recipe={"name": "tiny", "question": "Does it pay?", "seed": 7, "new_tokens": 9},
        device={"name": "Paper board", "kind": "host", "serial_number": "1421200012345"},
        environment={
            "python": "3.11.7",
            "platform": "Linux-6.1-x86_64",
            "cpu": "Paper CPU",
            "cores": 2,
            "memory_bytes": 8_000_000_000,
            "last_level_cache_bytes": 32_000_000,
            "onnxruntime": "1.23.0",
            "hostname": "secret-host",
        },
        models={
            "fp32": model("target", "fp32", 500_000_000, "fp32 MatMul", 0.0),
            "int4": model("target", "as-is", 80_000_000, "int4 MatMulNBits", 0.012),
            "draft": model("draft", "as-is", 20_000_000, "int4 MatMulNBits", 0.0),
        },
        complete=True,
    )


@pytest.fixture
def maker() -> SessionMaker:
    """An empty session to fill."""
    return SessionMaker()


@pytest.fixture(scope="session")
def made_session() -> Session:
    """The session that the module's docstring describes."""
    return _make_session()


@pytest.fixture(scope="session")
def write_session() -> Callable[..., Path]:
    """Writes a session to a new file; ``changes`` are made to its info last."""

    def write(path: Path, session: Session, **changes: Any) -> Path:
        writer = SessionWriter(path, session.info)
        for records in (
            session.legs, session.requests, session.rounds, session.passes, session.tokens,
            session.signals, session.samples, session.events,
        ):  # fmt: skip
            for record in records:
                writer.add(record)
        writer.update_info(**changes)
        writer.close()
        return path

    return write


@pytest.fixture
def shape() -> Callable[..., Shape]:
    """Makes one round: drafted, evaluated, accepted, emitted, draft, target and other ms."""
    return Shape


def _make_session() -> Session:
    maker = SessionMaker()
    maker.decode_leg("fp32", warmup=True, slower=100.0)  # would wreck every figure if it counted
    parted = {**ANSWERS, "code": [200, 201, 202, 203, 204, 999, 206, 207, 208]}
    for repeat, slower in ((0, 1.0), (1, 1.25)):
        for variant in ROUNDS:
            answers = parted if variant == "int4+draft k=2" else ANSWERS
            maker.decode_leg(variant, repeat=repeat, slower=slower, answers=answers)
    maker.held_leg("verify", "fp32", {1: (19, 20, 21), 3: (19, 20, 21), 5: (23, 24, 25)})
    maker.held_leg("verify", "int4", {1: (9, 10, 11), 3: (17, 18, 19)})
    maker.held_leg("draft", "draft", {1: (3, 3, 3)})
    maker.ceiling_leg("fp32 MatMul", 300_000_000, 150_000_000, {1: 10, 64: 48})
    maker.ceiling_leg("int4 MatMulNBits", 40_000_000, 150_000_000, {1: 2, 64: 64})
    maker.events.append(
        Event(
            leg_id=6,
            t_ns=maker.now,
            kind="divergence",
            severity="warning",
            detail={
                "variant": "int4+draft k=2",
                "baseline": "int4",
                "request_index": 1,
                "position": 5,
                "logit_gap": 0.004,
                "reference_token": 205,
                "token": 999,
            },
        )
    )
    first = maker.legs[1].t0_ns
    maker.signal("ram_used_bytes", "B", [(first, 2e9), (first + MS, 3e9), (first + 2 * MS, 2.5e9)])
    maker.signal("swap_used_bytes", "B", [(first, 1e6), (first + MS, 4e6)])
    maker.signal("temp_c.package", "deg C", [(first, 41.0), (first + MS, 55.0), (maker.now, 52.0)])
    return maker.session()
