"""What eight hours of recording take: the size of the session, and time and memory of each report.

    python benchmarks/eight_hours.py [--hours 8] [--keep FILE] [--forms md,html]

Makes a session through the real store: every sample, pass, round and token as the recorder writes
them, 125 samples and 17 passes a second, which is what a plain and a speculative variant of a large
model give at the default rates. Then every form of report in a process of its own. The values are
made up and stamped simulated; only what it costs to keep and to show them is measured.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Literal

import msgspec

from edgeprof import __version__
from edgeprof.session.records import (
    SCHEMA_VERSION,
    Leg,
    ModelRecord,
    Origin,
    Pass,
    Phase,
    Record,
    Request,
    Round,
    Sample,
    SessionInfo,
    Signal,
    Token,
)
from edgeprof.session.store import SessionWriter

SECOND = 1_000_000_000
START_NS = 50_000 * SECOND  # since the board was started
# name -> unit, Hz, the middle of its values and half their width
SIGNALS = {
    "dram_bandwidth_bytes_per_s": ("B/s", 20, 40e9, 15e9),
    "emc_busy_frac": ("1", 20, 0.6, 0.2),
    "emc_clock_hz": ("Hz", 20, 2.133e9, 0.0),
    "gpu_busy_frac": ("1", 20, 0.8, 0.2),
    "gpu_clock_hz": ("Hz", 20, 624.75e6, 0.0),
    "power_w.total": ("W", 10, 10.0, 3.0),
    "power_w.VDD_CPU_GPU_CV": ("W", 10, 4.0, 2.0),
    "temp_c.gpu": ("degC", 1, 55.0, 8.0),
    "temp_c.cpu": ("degC", 1, 54.0, 8.0),
    "cpu_busy_frac": ("1", 1, 0.3, 0.1),
    "ram_used_bytes": ("B", 1, 6e9, 1e8),
    "swap_used_bytes": ("B", 1, 0.0, 0.0),
}
NEW_TOKENS = 256
LEG_S = 300
PLAIN_PASS_NS = 144_000_000  # half of the time 100 000 plain ones, half 400 000 in rounds of five
VERIFY_PASS_NS = 120_000_000
DRAFT_PASS_NS = 15_000_000
ACCEPTED = (4, 1, 2, 0, 3)  # of 4, in turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--keep", type=Path, help="leave the session there")
    parser.add_argument("--forms", default="text,json,md,html,csv,trace")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = chosen.keep or Path(scratch) / "hours.sqlite"
        if not path.exists():
            started = time.monotonic()
            counts = make(path, chosen.hours)
            print(f"written in {time.monotonic() - started:.0f} s: {counts}")
        print(f"session {path.stat().st_size / 1e6:.0f} MB")
        for form in chosen.forms.split(","):
            measure(path, form, Path(scratch))


def make(path: Path, hours: float) -> dict[str, int]:
    """The session; how many records there are of each kind."""
    counts: dict[str, int] = {}
    writer = SessionWriter(path, info())
    for record in chain(signals(), samples(hours), decoding(hours)):
        writer.add(record)
        kind = type(record).__name__
        counts[kind] = counts.get(kind, 0) + 1
    writer.update_info(complete=True)
    writer.close()
    return counts


def measure(path: Path, form: str, scratch: Path) -> None:
    """One report in a process of its own."""
    output = scratch / form
    options = ["--format", form, "-o", str(output), "--force"]
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "edgeprof", "report", str(path), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    talk = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - started
    if status:
        print(f"{form}: {talk.strip().splitlines()[-1]}")
        return
    files = [output] if output.is_file() else sorted(output.iterdir())
    sizes = ", ".join(f"{file.name} {file.stat().st_size / 1e6:.2f} MB" for file in files)
    core_s, peak_mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    print(f"{form}: {seconds:.1f} s ({core_s:.1f} s of a core), {peak_mib:.0f} MiB; {sizes}")


def signals() -> Iterator[Record]:
    for number, (name, (unit, hz, _, _)) in enumerate(SIGNALS.items(), start=1):
        yield Signal(
            id=number,
            name=name,
            unit=unit,
            source="sysfs",
            window_s=0.0 if hz == 1 else 1 / hz,
            window_kind="instantaneous" if hz == 1 else "boxcar",
            window_basis="assumed",
            asked_hz=float(hz),
            delivered_hz=float(hz),
        )


def samples(hours: float) -> Iterator[Record]:
    """In the order of time, as they come."""
    fastest = max(hz for _, hz, _, _ in SIGNALS.values())
    draw = random.Random(0)
    for tick in range(round(hours * 3600 * fastest)):
        t0_ns = START_NS + tick * SECOND // fastest
        for number, (_, hz, middle, half) in enumerate(SIGNALS.values(), start=1):
            if tick % (fastest // hz) == 0:
                value = middle + half * draw.uniform(-1, 1)
                yield Sample(
                    signal_id=number,
                    t0_ns=t0_ns + number * 50_000,
                    t1_ns=t0_ns + number * 50_000 + 40_000,
                    value=value,
                    raw=f"{value:.6g}",
                    quality="simulated",
                )


class _Decoding:
    """Legs in turn plain and with a draft, each answering requests until its time is over."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.ids = {kind: count(1) for kind in (Leg, Request, Round, Pass, Token)}

    def leg(self, repeat: int, draft_tokens: int) -> Iterator[Record]:
        variant = f"int4+draft k={draft_tokens}" if draft_tokens else "int4"
        attrs = {"target": "int4", "drafter": None, "drafter_kind": None, "draft_tokens": None}
        if draft_tokens:
            attrs = {**attrs, "drafter": "draft", "drafter_kind": "model"}
            attrs["draft_tokens"] = draft_tokens  # type: ignore[assignment]
        leg = Leg(
            id=next(self.ids[Leg]),
            name=f"decode {variant} {repeat}",
            kind="decode",
            variant=variant,
            repeat=repeat,
            warmup=False,
            t0_ns=self.now_ns,
            attrs=attrs,
        )
        yield leg
        prompt = 0
        while self.now_ns < leg.t0_ns + LEG_S * SECOND:
            yield from self._request(leg.id, f"{prompt:064x}", draft_tokens)
            prompt += 1
        yield msgspec.structs.replace(leg, t1_ns=self.now_ns, status="complete")

    def _request(self, leg_id: int, prompt: str, draft_tokens: int) -> Iterator[Record]:
        request = Request(
            id=next(self.ids[Request]),
            leg_id=leg_id,
            prompt_sha256=prompt,
            prompt_kind="chat",
            prompt_tokens=128,
            new_tokens=NEW_TOKENS,
            t0_ns=self.now_ns,
        )
        yield request
        yield self._pass(request, None, "prefill", "int4", 128, 0, 400_000_000)
        first_ns, given = self.now_ns, 1
        yield self._token(request, None, 0, "plain")
        for number in count():
            if given >= NEW_TOKENS:
                break
            accepted = ACCEPTED[number % len(ACCEPTED)] if draft_tokens else 0
            emitted = min(accepted + 1, NEW_TOKENS - given)
            yield from self._round(request, draft_tokens, min(accepted, emitted), emitted, given)
            given += emitted
        yield msgspec.structs.replace(
            request,
            first_token_ns=first_ns,
            t1_ns=self.now_ns,
            stop_reason="length",
            text="word " * NEW_TOKENS,
        )

    def _round(
        self, request: Request, draft_tokens: int, accepted: int, emitted: int, given: int
    ) -> Iterator[Record]:
        round_id, t0_ns = next(self.ids[Round]), self.now_ns
        for n in range(draft_tokens):
            yield self._pass(request, round_id, "draft", "draft", 1, 127 + given + n, DRAFT_PASS_NS)
        phase: Phase = "verify" if draft_tokens else "decode"
        long_ns = VERIFY_PASS_NS if draft_tokens else PLAIN_PASS_NS
        tokens = draft_tokens + 1
        yield self._pass(request, round_id, phase, "int4", tokens, 127 + given, long_ns)
        self.now_ns += 500_000
        for n in range(emitted):
            last: Origin = "corrected" if accepted < draft_tokens else "bonus"
            origin = "plain" if not draft_tokens else "accepted" if n < accepted else last
            yield self._token(request, round_id, given + n, origin)
        yield Round(
            id=round_id,
            leg_id=request.leg_id,
            request_id=request.id,
            drafted=draft_tokens,
            evaluated=min(accepted + 1, draft_tokens),
            accepted=accepted,
            emitted=emitted,
            t0_ns=t0_ns,
            t1_ns=self.now_ns,
        )

    def _pass(
        self,
        request: Request,
        round_id: int | None,
        phase: Phase,
        model: str,
        tokens: int,
        context_tokens: int,
        long_ns: int,
    ) -> Pass:
        t0_ns = self.now_ns
        self.now_ns += long_ns
        return Pass(
            id=next(self.ids[Pass]),
            leg_id=request.leg_id,
            request_id=request.id,
            round_id=round_id,
            phase=phase,
            model=model,
            provider="cuda",
            tokens=tokens,
            context_tokens=context_tokens,
            t0_ns=t0_ns,
            t1_ns=self.now_ns,
        )

    def _token(
        self, request: Request, round_id: int | None, position: int, origin: Origin
    ) -> Token:
        return Token(
            id=next(self.ids[Token]),
            leg_id=request.leg_id,
            request_id=request.id,
            round_id=round_id,
            position=position,
            token_id=(position * 7919) % 32000,
            origin=origin,
        )


def decoding(hours: float) -> Iterator[Record]:
    made = _Decoding()
    for repeat in count():
        for draft_tokens in (0, 4):
            if made.now_ns >= START_NS + hours * 3600 * SECOND:
                return
            yield from made.leg(repeat, draft_tokens)


def info() -> SessionInfo:
    return SessionInfo(
        id="eight-hours",
        created_utc="2026-11-30T00:00:00Z",
        edgeprof_version=__version__,
        schema_version=SCHEMA_VERSION,
        kind="run",
        recipe={"name": "eight-hours", "new_tokens": NEW_TOKENS, "seed": 0},
        device={"name": "no board", "kind": "board"},
        environment={},
        models={"int4": _model("target", 4_000_000_000), "draft": _model("draft", 400_000_000)},
    )


def _model(role: Literal["target", "draft"], weight_bytes: int) -> ModelRecord:
    return ModelRecord(
        role=role,
        source=f"{role}.onnx",
        sha256=None,
        weights="int4",
        provider="cuda",
        providers_in_session=["cuda"],
        threads=1,
        vocab_size=32000,
        capacity_tokens=4096,
        streamed_weight_bytes=weight_bytes,
    )


if __name__ == "__main__":
    main()
