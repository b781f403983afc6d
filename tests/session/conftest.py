"""A small session with one record of each kind, as values."""

import pytest

from edgeprof.session.records import (
    SCHEMA_VERSION,
    Event,
    Leg,
    ModelRecord,
    Pass,
    PassAgreement,
    Record,
    Request,
    Round,
    Sample,
    SessionInfo,
    Signal,
    Token,
)


@pytest.fixture
def info() -> SessionInfo:
    agreement = PassAgreement(
        reference_tokens=8, max_logit_difference={1: 0.25, 2: 0.0}, after_rollback=0.0
    )
    model = ModelRecord(
        role="target",
        source="tiny.gguf",
        sha256=None,
        weights="fp32",
        provider="cpu",
        providers_in_session=["CPUExecutionProvider"],
        threads=2,
        vocab_size=300,
        capacity_tokens=256,
        agreement=agreement,
    )
    return SessionInfo(
        id="abc",
        created_utc="2026-01-02T03:04:05Z",
        edgeprof_version="0.1.0",
        schema_version=SCHEMA_VERSION,
        kind="run",
        recipe={"name": "tiny", "variants": [{"target": "t"}]},
        device={"name": "paper"},
        environment={"cores": 2},
        models={"t": model},
    )


@pytest.fixture
def records() -> list[Record]:
    """One record of every table, in the order of the tables."""
    return [
        Leg(id=1, name="t r1", kind="decode", variant="t", repeat=1, warmup=False, t0_ns=10),
        Request(
            id=1,
            leg_id=1,
            prompt_sha256="00",
            prompt_kind="chat",
            prompt_tokens=3,
            new_tokens=2,
            t0_ns=11,
            text="h\u00e9\ufffd\x00",
        ),
        Round(
            id=1, leg_id=1, request_id=1, drafted=2, evaluated=1, accepted=0, emitted=1,
            t0_ns=12, t1_ns=13, attrs={"note": None},
        ),
        Pass(
            id=1, leg_id=1, request_id=1, round_id=None, phase="prefill", model="t",
            provider="cpu", tokens=3, context_tokens=0, t0_ns=11, t1_ns=12,
        ),
        Token(id=1, leg_id=1, request_id=1, round_id=1, position=0, token_id=7, origin="plain"),
        Signal(id=1, name="cpu_busy_frac", unit="1", source="host", window_s=0.1),
        Sample(signal_id=1, t0_ns=1, t1_ns=2, value=0.5),
        Event(leg_id=None, t_ns=5, kind="gap", severity="info", detail={"n": [1, 2.5]}),
    ]  # fmt: skip
