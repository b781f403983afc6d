"""What a watched program announced, against a counter with a window of 0.5 s."""

from typing import Any

import msgspec
import pytest

from edgeprof.analysis.phases import PhaseFigures
from edgeprof.analysis.summary import summarise
from edgeprof.session.records import Leg, Pass, Sample, Signal

S = 1_000_000_000


class Program:
    """Phases and readings at seconds after the start."""

    def __init__(self, maker: Any) -> None:
        self.maker = maker
        self.maker.info = msgspec.structs.replace(maker.info, kind="watch", models={})
        self.leg("engine", 0, 20, kind="command")

    def leg(self, name: str, start: float, end: float | None, **fields: Any) -> None:
        values = {"kind": "mark", "status": "complete" if end is not None else "running", **fields}
        self.maker.legs.append(
            Leg(
                id=len(self.maker.legs) + 1, name=name, variant="engine", repeat=1, warmup=False,
                t0_ns=round(start * S), t1_ns=None if end is None else round(end * S), **values,
            )
        )  # fmt: skip

    def run_pass(self, phase: Any, model: str, start: float, end: float) -> None:
        self.maker.passes.append(
            Pass(
                id=len(self.maker.passes) + 1, leg_id=1, request_id=None, round_id=None,
                phase=phase, model=model, provider="external", tokens=1, context_tokens=0,
                t0_ns=round(start * S), t1_ns=round(end * S),
            )
        )  # fmt: skip

    def bandwidth(self, window_s: float | None, kind: Any = "exponential") -> None:
        """Reads 1 GB/s times the number of whole seconds since the start, ten times a second."""
        self.maker.signals.append(
            Signal(
                id=1, name="dram_bandwidth_bytes_per_s", unit="B/s", source="sysfs",
                window_s=window_s, window_kind=kind,
            )
        )  # fmt: skip
        self.maker.samples += [
            Sample(signal_id=1, t0_ns=tick * S // 10, t1_ns=tick * S // 10, value=tick // 10 * 1e9)
            for tick in range(201)
        ]

    def phase(self, name: str) -> PhaseFigures:
        return next(p for p in summarise(self.maker.session()).phases if p.name == name)


@pytest.fixture
def program(maker: Any) -> Program:
    return Program(maker)


def test_count_and_mean_by_name(program: Program) -> None:
    program.leg("sample", 1.0, 1.2)
    program.leg("load", 2.0, 5.0)
    program.leg("sample", 6.0, 6.4)
    sample = program.phase("sample")
    assert (sample.count, sample.interrupted, sample.model) == (2, 0, None)
    assert sample.total_s == pytest.approx(0.6)
    assert sample.duration_s is not None
    assert sample.duration_s.value == pytest.approx(0.3) and sample.duration_s.n == 2
    assert [p.name for p in summarise(program.maker.session()).phases] == ["sample", "load"]


def test_passes_are_phases_of_their_model(program: Program) -> None:
    program.run_pass("draft", "small", 1.0, 1.1)
    program.run_pass("verify", "big", 1.1, 1.4)
    program.run_pass("draft", "small", 1.4, 1.7)
    draft = program.phase("draft")
    assert (draft.model, draft.count) == ("small", 2)
    assert draft.total_s == pytest.approx(0.4)


def test_phases_that_were_cut_short_are_in_no_figure(program: Program) -> None:
    program.leg("sample", 1.0, 2.0)
    program.leg("sample", 3.0, 9.0, status="interrupted")
    program.leg("sample", 9.0, None)
    sample = program.phase("sample")
    assert (sample.count, sample.interrupted, sample.total_s) == (1, 2, 1.0)


def test_the_programs_end_ends_its_phases(program: Program) -> None:
    program.leg("decode", 1.0, 5.0)
    program.leg("decode", 12.0, 20.0, status="interrupted")  # the command's end
    decode = program.phase("decode")
    assert (decode.count, decode.interrupted, decode.total_s) == (2, 1, 12.0)
    assert decode.duration_s is not None and decode.duration_s.value == pytest.approx(6.0)


def test_a_program_whose_end_nobody_saw_ends_no_phase(program: Program) -> None:
    program.maker.legs[0] = msgspec.structs.replace(program.maker.legs[0], t1_ns=None)
    program.leg("decode", 12.0, None)
    decode = program.phase("decode")
    assert (decode.count, decode.interrupted, decode.total_s) == (0, 1, 0.0)


def test_only_cut_short(program: Program) -> None:
    program.leg("load", 1.0, None)
    load = program.phase("load")
    assert (load.count, load.interrupted, load.duration_s) == (0, 1, None)


def test_bandwidth_of_a_phase_of_six_windows_leaves_the_first_five_out(program: Program) -> None:
    program.bandwidth(0.5)
    program.leg("held", 4.0, 7.5)
    # Settled from 6.5 s: samples of 6.5 to 6.9 show 6, of 7.0 to 7.5 show 7: (5 x 6 + 6 x 7) / 11
    bandwidth = program.phase("held").bandwidth_bytes_per_s
    assert bandwidth is not None
    assert bandwidth.value == pytest.approx((5 * 6e9 + 6 * 7e9) / 11)
    assert (bandwidth.kind, bandwidth.n, bandwidth.window_s) == ("measured", 1, 0.5)


def test_a_phase_shorter_than_six_windows_has_no_bandwidth(program: Program) -> None:
    program.bandwidth(0.5)
    program.leg("short", 4.0, 6.9)
    for start in range(10):  # nor have many of them together
        program.leg("short", 7.0 + start, 7.5 + start)
    assert program.phase("short").bandwidth_bytes_per_s is None


def test_short_ones_do_not_blur_a_long_one(program: Program) -> None:
    program.bandwidth(0.5)
    program.leg("mixed", 1.0, 1.5)
    program.leg("mixed", 4.0, 7.5)
    bandwidth = program.phase("mixed").bandwidth_bytes_per_s
    assert bandwidth is not None and bandwidth.n == 1
    assert bandwidth.value == pytest.approx(72e9 / 11)


def test_nothing_is_said_where_nobody_knows_the_window(program: Program) -> None:
    program.bandwidth(None)
    program.leg("held", 1.0, 19.0)
    assert program.phase("held").bandwidth_bytes_per_s is None


def test_readings_of_the_moment_need_no_windows(program: Program) -> None:
    program.bandwidth(None, "instantaneous")
    program.leg("short", 4.0, 4.9)
    bandwidth = program.phase("short").bandwidth_bytes_per_s
    assert bandwidth is not None and bandwidth.value == 4e9


def test_the_command_and_its_exit_code(program: Program) -> None:
    command = summarise(program.maker.session()).command
    assert command is not None
    assert (command.name, command.exit_code, command.duration_s) == ("engine", None, 20.0)
    leg = msgspec.structs.replace(program.maker.legs[0], attrs={"exit_code": 137})
    program.maker.legs[0] = leg
    command = summarise(program.maker.session()).command
    assert command is not None and command.exit_code == 137


def test_a_session_of_decoding_has_neither(made_session: Any) -> None:
    summary = summarise(made_session)
    assert summary.command is None and summary.phases == []
