"""What channels delivered, from samples whose figures can be worked out on paper."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from edgeprof.analysis.channels import (
    SHORTER,
    SOURCE_ORDER,
    SignalFigures,
    source_rank,
    span_of,
)
from edgeprof.analysis.summary import Summary, summarise
from edgeprof.naming import numeric_order
from edgeprof.session.records import Event, Leg, Pass, Sample, Signal
from edgeprof.telemetry import source

S = 1_000_000_000


class Board:
    """A watched command of ``seconds``, and what sources said meanwhile."""

    def __init__(self, maker: Any, seconds: float = 10.0) -> None:
        self.maker = maker
        self.maker.info = msgspec.structs.replace(maker.info, kind="watch", models={})
        self.t0_ns = 1000 * S
        self.command(seconds)

    def command(self, seconds: float) -> None:
        self.maker.legs = [
            Leg(
                id=1, name="engine", kind="command", variant="engine", repeat=1, warmup=False,
                t0_ns=self.t0_ns, t1_ns=self.t0_ns + round(seconds * S), status="complete",
                attrs={"exit_code": 0},
            )
        ]  # fmt: skip

    def signal(
        self,
        name: str,
        values: Sequence[tuple[float, float | None]],
        *,
        source: str = "sysfs",
        quality: Any = "ok",
        **fields: Any,
    ) -> None:
        """Values at seconds after the start of the command."""
        signal_id = len(self.maker.signals) + 1
        self.maker.signals.append(
            Signal(id=signal_id, name=name, unit="1", source=source, **fields)
        )
        for second, value in values:
            t_ns = self.t0_ns + round(second * S)
            self.maker.samples.append(
                Sample(signal_id=signal_id, t0_ns=t_ns, t1_ns=t_ns, value=value, quality=quality)
            )

    def event(self, kind: str, **detail: Any) -> None:
        self.maker.events.append(
            Event(leg_id=None, t_ns=self.t0_ns, kind=kind, severity="info", detail=detail)
        )

    def run_pass(self, provider: str) -> None:
        self.maker.passes.append(
            Pass(
                id=1, leg_id=1, request_id=None, round_id=None, phase="decode", model="m",
                provider=provider, tokens=1, context_tokens=0, t0_ns=self.t0_ns,
                t1_ns=self.t0_ns + S,
            )
        )  # fmt: skip

    def summary(self) -> Summary:
        return summarise(self.maker.session())


@pytest.fixture
def board(maker: Any) -> Board:
    return Board(maker)


def steady(value: float, seconds: range = range(11)) -> list[tuple[float, float | None]]:
    return [(float(second), value) for second in seconds]


def figures(board: Board, name: str, source: str = "sysfs") -> SignalFigures:
    return next(s for s in board.summary().signals if (s.name, s.source) == (name, source))


def mean(figures: SignalFigures) -> float:
    assert figures.mean is not None and figures.mean.value is not None
    return figures.mean.value


def test_sources_are_ranked_as_the_sampler_ranks_them() -> None:
    assert SOURCE_ORDER == source.SOURCE_ORDER
    assert source_rank("sysfs") < source_rank("jtop") < source_rank("a source of later years")


def test_mean_is_weighted_by_time(board: Board) -> None:
    # 10 for the first 4 s, then a ramp to 20 within 2 s: (4 x 10 + 2 x 15) / 6; a plain mean of the
    # six samples would be 70 / 6.
    values = [(0.0, 10.0), (1.0, 10.0), (2.0, 10.0), (3.0, 10.0), (4.0, 10.0), (6.0, 20.0)]
    board.signal("power_w.total", list(values))
    assert mean(figures(board, "power_w.total")) == pytest.approx(70 / 6)
    values[4:] = [(4.0, 10.0), (5.0, 20.0), (6.0, 20.0)]
    board.maker.samples.clear()
    board.signal("power_w.VDD_SOC", list(values))
    # 4 x 10 + 15 + 20 over 6 s
    assert mean(figures(board, "power_w.VDD_SOC")) == pytest.approx(75 / 6)


def test_a_gap_is_not_bridged(board: Board) -> None:
    # 2 s of 10 W, nothing for 6 s, 2 s of 30 W: 4 s are covered, and their mean is 20 W.
    board.signal("power_w.total", [(0, 10), (1, 10), (2, 10), (8, 30), (9, 30), (10, 30)])
    shown = figures(board, "power_w.total")
    assert mean(shown) == pytest.approx(20.0)
    assert shown.coverage_frac == pytest.approx(0.4)


def test_unknown_readings_are_neither_zero_nor_bridged(board: Board) -> None:
    board.signal("gpu_busy_frac", [(0, 0.5), (1, 0.5), (2, None), (3, 0.9), (4, 0.9)])
    shown = figures(board, "gpu_busy_frac")
    assert (shown.n, shown.unknown) == (4, 1)
    assert mean(shown) == pytest.approx(0.7)  # 1 s of 0.5 and 1 s of 0.9
    assert shown.coverage_frac == pytest.approx(0.2)


def test_percentiles_window_and_origin(board: Board) -> None:
    values = [(0.1 * index, float(index)) for index in range(101)]
    board.signal(
        "temp_c.gpu", values, window_s=0.5, window_kind="boxcar", window_basis="assumed",
        node="/sys/class/thermal/thermal_zone1/temp", asked_hz=20.0,
    )  # fmt: skip
    shown = figures(board, "temp_c.gpu")
    assert [shown.p5, shown.p50, shown.p95] == pytest.approx([5, 50, 95])
    assert (shown.window_s, shown.window_kind, shown.window_basis) == (0.5, "boxcar", "assumed")
    assert shown.node == "/sys/class/thermal/thermal_zone1/temp"
    assert shown.mean is not None
    assert (shown.mean.kind, shown.mean.n, shown.mean.window_s) == ("measured", 101, 0.5)


def test_delivered_rate_and_jitter_are_of_what_came(board: Board) -> None:
    # Intervals of 0.1, 0.1, 0.2, 0.2 s: 4 in 0.6 s; their standard deviation is 0.1 / sqrt(3).
    board.signal("cpu_busy_frac", [(0, 1), (0.1, 1), (0.2, 1), (0.4, 1), (0.6, 1)], asked_hz=100.0)
    shown = figures(board, "cpu_busy_frac")
    assert shown.delivered_hz == pytest.approx(4 / 0.6)
    assert shown.jitter_s == pytest.approx(0.1 / 3**0.5)
    assert shown.asked_hz == 100.0


def test_readings_of_one_moment_have_no_rate(board: Board) -> None:
    board.signal("cpu_busy_frac", [(1.0, 1), (1.0, 1), (1.0, 1)])
    assert figures(board, "cpu_busy_frac").delivered_hz is None


def test_delivery_as_the_sampler_counted_it_comes_first(board: Board) -> None:
    board.signal("cpu_busy_frac", steady(1.0), delivered_hz=9.5, jitter_s=0.01)
    shown = figures(board, "cpu_busy_frac")
    assert (shown.delivered_hz, shown.jitter_s) == (9.5, 0.01)


def test_only_the_life_of_the_command_counts(board: Board) -> None:
    board.signal("power_w.total", [(-1, 90), (-0.5, 90), *steady(10.0), (10.5, 90)])
    shown = figures(board, "power_w.total")
    assert (shown.n, mean(shown)) == (11, 10.0)


def test_a_command_whose_end_nobody_saw_lasts_to_the_last_sample(board: Board) -> None:
    board.maker.legs[0] = msgspec.structs.replace(board.maker.legs[0], t1_ns=None, status="running")
    board.signal("power_w.total", steady(10.0))
    assert span_of(board.maker.session()).seconds == 10.0


def test_s37_no_samples_at_all(board: Board) -> None:
    board.command(0.02)
    board.signal("cpu_busy_frac", [(-0.1, 0.5), (0.1, 0.5)], asked_hz=10.0)
    summary = board.summary()
    (shown,) = summary.signals
    assert (shown.mean, shown.n, shown.p50, shown.chosen) == (None, 0, None, False)
    assert shown.reason == SHORTER == "the run was shorter than the sampling interval"
    assert summary.warnings == [f"no samples: {SHORTER}"]


def test_a_source_that_fell_silent_is_another_matter(board: Board) -> None:
    board.signal("cpu_busy_frac", [(-1, 0.5)], asked_hz=10.0)
    assert figures(board, "cpu_busy_frac").reason == "no sample came"


def test_readings_without_any_value(board: Board) -> None:
    board.signal("gpu_busy_frac", [(1, None), (2, None)])
    shown = figures(board, "gpu_busy_frac")
    assert (shown.mean, shown.unknown, shown.reason) == (None, 2, "no reading had a value")


def test_s07_suspect_event_takes_the_figure_and_leaves_the_reason(board: Board) -> None:
    board.signal("emc_busy_frac", steady(0.0))
    reason = "0 in 20 samples while the GPU was busy"
    board.event("suspect", signal="emc_busy_frac", source="sysfs", reason=reason, since_ns=5)
    summary = board.summary()
    (shown,) = summary.signals
    assert shown.suspect and shown.reason == reason
    assert (shown.mean, shown.p5, shown.p50, shown.p95, shown.chosen) == (None,) * 4 + (False,)
    assert shown.n == 11  # the values are kept in the session
    assert f"emc_busy_frac from sysfs is suspect and left out: {reason}" in summary.warnings


def test_s09_suspect_samples_take_the_figure_too(board: Board) -> None:
    board.signal("emc_busy_frac", steady(0.5))
    bad = board.maker.samples[3]
    board.maker.samples[3] = msgspec.structs.replace(bad, value=845.0, quality="suspect")
    shown = figures(board, "emc_busy_frac")
    assert shown.mean is None and shown.reason == "1 of 11 samples are suspect"
    assert shown.samples == {"ok": 10, "suspect": 1}


def test_the_next_source_stands_in_for_a_suspect_one(board: Board) -> None:
    board.signal("gpu_busy_frac", steady(0.9), source="jtop")
    board.signal("gpu_busy_frac", steady(0.1), source="sysfs")
    board.signal("gpu_busy_frac", steady(0.8), source="tegrastats")
    board.event("suspect", signal="gpu_busy_frac", source="sysfs", reason="stuck")
    chosen = {s.source: s.chosen for s in board.summary().signals}
    assert chosen == {"sysfs": False, "tegrastats": True, "jtop": False}


def test_best_source_by_rank_not_by_order_in_the_file(board: Board) -> None:
    board.signal("power_w.total", steady(9.0), source="tegrastats")
    board.signal("power_w.total", steady(8.0), source="sysfs")
    assert [(s.source, s.chosen) for s in board.summary().signals] == [
        ("sysfs", True), ("tegrastats", False),
    ]  # fmt: skip


def test_source_that_was_lost_early_does_not_stand_for_the_run(board: Board) -> None:
    board.signal("power_w.total", steady(8.0, range(3)), source="sysfs")
    board.signal("power_w.total", steady(9.0, range(2, 11)), source="tegrastats")
    assert {s.source: s.chosen for s in board.summary().signals} == {
        "sysfs": False, "tegrastats": True,
    }  # fmt: skip


def test_signal_announced_again_is_one_channel(board: Board) -> None:
    board.signal("power_w.total", steady(8.0, range(5)))
    board.signal("power_w.total", steady(8.0, range(5, 11)))
    (shown,) = board.summary().signals
    assert shown.n == 11


@pytest.mark.parametrize("provider", ["cuda", "CUDAExecutionProvider", "tensorrt"])
def test_s24_gpu_load_of_zero_while_the_model_ran_on_the_gpu(board: Board, provider: str) -> None:
    board.signal("gpu_busy_frac", steady(0.0), source="jtop")
    board.run_pass(provider)
    shown = figures(board, "gpu_busy_frac", "jtop")
    assert shown.suspect and shown.mean is None and shown.reason is not None
    assert "restart jtop.service" in shown.reason
    assert "0 in all 11 samples though the model ran on it" in shown.reason


def test_s24_gpu_load_of_zero_from_jtop_while_the_memory_is_busy(board: Board) -> None:
    board.signal("gpu_busy_frac", steady(0.0), source="jtop")
    board.signal("emc_busy_frac", steady(0.62))
    shown = figures(board, "gpu_busy_frac", "jtop")
    assert shown.suspect and shown.reason is not None
    assert "while the memory was 62 % busy: restart jtop.service" in shown.reason


@pytest.mark.parametrize("values", [[0.0] * 11, [0.0] * 10 + [0.3]])
def test_s24_idle_gpu_of_a_run_on_the_cpu_is_believed(board: Board, values: list[float]) -> None:
    board.signal("gpu_busy_frac", list(zip(map(float, range(11)), values, strict=True)))
    board.run_pass("cpu")
    assert not figures(board, "gpu_busy_frac").suspect


def test_s24_gpu_that_worked_at_all_is_believed(board: Board) -> None:
    board.signal("gpu_busy_frac", [*steady(0.0), (10.0, 0.4)], source="jtop")
    board.run_pass("cuda")
    assert not figures(board, "gpu_busy_frac", "jtop").suspect


def test_s38_numbers_are_ordered_by_value() -> None:
    names = ["cpu10", "cpu2", "cpu1", "oc10_event_cnt", "oc2_event_cnt"]
    assert sorted(names, key=numeric_order) == [
        "cpu1", "cpu2", "cpu10", "oc2_event_cnt", "oc10_event_cnt",
    ]  # fmt: skip


def test_s38_signals_come_by_weight_and_number(board: Board) -> None:
    for name in ("throttle_events.oc10", "temp_c.cpu10", "throttle_events.oc2", "power_w.B",
                 "temp_c.cpu2", "power_w.total", "dram_bandwidth_bytes_per_s"):  # fmt: skip
        board.signal(name, steady(1.0))
    assert [s.name for s in board.summary().signals] == [
        "dram_bandwidth_bytes_per_s", "power_w.total", "power_w.B", "temp_c.cpu2", "temp_c.cpu10",
        "throttle_events.oc2", "throttle_events.oc10",
    ]  # fmt: skip


def test_absences_carry_reason_and_fix(board: Board) -> None:
    board.event(
        "absent", signal="emc_busy_frac", source="sysfs", reason="needs root",
        fix="edgeprof sensor",
    )  # fmt: skip
    (absent,) = board.summary().absent
    assert (absent.signal, absent.source) == ("emc_busy_frac", "sysfs")
    assert (absent.reason, absent.fix) == ("needs root", "edgeprof sensor")


def test_what_another_source_gave_is_not_absent(board: Board) -> None:
    board.event("absent", signal="emc_busy_frac", source="sysfs", reason="needs root")
    board.event("absent", signal="temp_c", source="sysfs", reason="no zone")
    board.event("absent", signal="power_w", source="sysfs", reason="no sensor")
    board.signal("emc_busy_frac", steady(0.5), source="tegrastats")
    board.signal("temp_c.cpu", steady(40.0), source="host")
    assert [absent.signal for absent in board.summary().absent] == ["power_w"]


def test_absences_do_not_clutter_the_warnings(board: Board) -> None:
    board.signal("cpu_busy_frac", steady(0.5))
    board.event("absent", signal="emc_busy_frac", source="sysfs", reason="needs root")
    assert board.summary().warnings == []


@pytest.mark.parametrize("detail", [{}, {"signal": 3, "source": None}, {"signal": ["x"]}])
@pytest.mark.parametrize("kind", ["absent", "suspect", "gap", "marks"])
def test_events_of_other_shapes_do_no_harm(board: Board, kind: str, detail: Any) -> None:
    board.signal("cpu_busy_frac", steady(0.5))
    board.event(kind, **detail)
    assert board.summary().absent == []
    assert not board.summary().signals[0].suspect


def test_gaps_are_told_with_their_length_and_cause(board: Board) -> None:
    board.signal("cpu_busy_frac", steady(0.5))
    for since, until in ((1, 3), (5, 6)):
        board.event("gap", process="sampler", since_ns=since * S, until_ns=until * S, cause="hung")
    board.event("gap", source="tegrastats", since_ns=5)
    assert board.summary().warnings == [
        "2 gaps of 3.0 s in all in the readings of sampler: hung",
        "1 gap in the readings of tegrastats",
    ]


def lost(board: Board, signal: str, since: float, until: float, **detail: Any) -> None:
    times = {"since_ns": board.t0_ns + round(since * S), "until_ns": board.t0_ns + round(until * S)}
    detail = {"source": "sysfs", "reason": "no such file", **times, **detail}
    board.event("gap", signal=signal, **detail)


def test_a_signal_that_was_lost_is_told_with_the_part_that_its_mean_covers(board: Board) -> None:
    for name in ("emc_busy_frac", "dram_bandwidth_bytes_per_s"):
        board.signal(name, steady(0.5, range(5)))  # 4 of 10 s
        lost(board, name, 4, 10)
    board.signal("cpu_busy_frac", steady(0.5))
    assert board.summary().warnings == [
        "emc_busy_frac, dram_bandwidth_bytes_per_s from sysfs: no value from 4.0 to 10.0 s "
        "(no such file); the mean covers 40 % of the run"
    ]


def test_a_signal_that_came_and_went_is_told_in_one_sentence(board: Board) -> None:
    board.signal("gpu_busy_frac", steady(0.5, range(3)))
    board.signal("gpu_busy_frac", steady(0.6, range(3, 11)), source="tegrastats")
    for second in (3, 5):
        lost(board, "gpu_busy_frac", second, second + 1.5)
    lost(board, "gpu_busy_frac", 7, 10, losses=10, lost_s=2.0)
    assert board.summary().warnings == [
        "gpu_busy_frac from sysfs: no value 12 times, for 5.0 s in all (no such file); the mean "
        "covers 20 % of the run; tegrastats, which covers 70 % of the run, stands for it"
    ]


@pytest.mark.parametrize("times", [{"since_ns": "x"}, {"since_ns": 5, "until_ns": None}])
def test_a_loss_of_unknown_length(board: Board, times: Any) -> None:
    board.signal("gpu_busy_frac", steady(0.5))
    board.event("gap", signal="gpu_busy_frac", source="sysfs", **times)
    (told,) = board.summary().warnings
    assert told.startswith("gpu_busy_frac from sysfs: no value for a time that is not recorded")


def test_a_memory_clock_that_moved_warns_of_the_mean_share(board: Board) -> None:
    board.signal("emc_busy_frac", steady(0.5))
    board.signal("emc_clock_hz", [*steady(665.6e6, range(5)), *steady(3199e6, range(5, 11))])
    warning = (
        "the memory clock moved between 666 and 3199 MHz (sysfs), so that the mean of "
        "emc_busy_frac is one of shares of different clocks"
    )
    assert board.summary().warnings == [warning]
    board.signal("dram_bandwidth_bytes_per_s", steady(20e9))
    assert board.summary().warnings == [
        f"{warning}; dram_bandwidth_bytes_per_s is the figure to read"
    ]


def test_a_power_mode_that_changed_is_told_with_its_time(board: Board) -> None:
    board.signal("cpu_busy_frac", steady(0.5))
    detail = {"source": "sysfs", "from": "15W", "to": "MAXN_SUPER"}
    board.maker.events.append(
        Event(
            leg_id=None, t_ns=board.t0_ns + 3 * S, kind="power_mode", severity="warning",
            detail=detail,
        )
    )  # fmt: skip
    assert board.summary().warnings == [
        "the power mode changed from 15W to MAXN_SUPER at 3.0 s: figures of before and after do "
        "not belong together"
    ]


def test_a_memory_clock_that_stood_still_warns_of_nothing(board: Board) -> None:
    board.signal("emc_busy_frac", steady(0.5))
    board.signal("emc_clock_hz", [*steady(2133e6, range(5)), *steady(2170e6, range(5, 11))])
    assert board.summary().warnings == []  # 1.7 %


@pytest.mark.parametrize("quality", ["simulated", "replayed"])
def test_simulated_and_replayed_samples_count_and_are_stamped(board: Board, quality: Any) -> None:
    board.signal("power_w.total", steady(5.0), quality=quality)
    summary = board.summary()
    assert summary.signals[0].samples == {quality: 11}
    assert mean(summary.signals[0]) == 5.0
    assert summary.warnings == [f"{quality}, not read from this machine's board: 11 samples"]
