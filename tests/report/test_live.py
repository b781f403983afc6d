"""The live view from records fed by hand; times are seconds after its start."""

import json
from typing import Any

import msgspec
import pytest

from edgeprof.report.live import (
    Frame,
    Live,
    absent_now,
    live_block,
    live_document,
    live_line,
    reasons_now,
)
from edgeprof.session.records import Event, Sample, Signal
from edgeprof.telemetry.signals import UNITS

S = 1_000_000_000
START = 500 * S
DEVICE = {
    "name": "Paper board", "profile": "paper", "power_mode": "15W",
    "peak_bandwidth_bytes_per_s": 68e9, "sustained_bandwidth_bytes_per_s": 50e9,
}  # fmt: skip


class Feed:
    """What the sampler says."""

    def __init__(self, device: dict[str, Any] = DEVICE) -> None:
        self.live = Live(device, START)
        self._ids: dict[tuple[str, str], int] = {}

    def announce(self, name: str, source: str = "sysfs", **fields: Any) -> int:
        known = self._ids.setdefault((name, source), len(self._ids) + 1)
        self.live.take(Signal(id=known, name=name, unit="1", source=source, **fields))
        return known

    def read(
        self, name: str, values: dict[float, float | None], source: str = "sysfs", **fields: Any
    ) -> None:
        signal_id = self.announce(name, source)
        for second, value in values.items():
            t_ns = START + round(second * S)
            self.live.take(
                Sample(signal_id=signal_id, t0_ns=t_ns, t1_ns=t_ns, value=value, **fields)
            )

    def note(self, kind: str, **detail: Any) -> None:
        self.live.take(Event(leg_id=None, t_ns=0, kind=kind, severity="info", detail=detail))

    def frame(self, second: float = 1.0, interval_s: float = 1.0) -> Frame:
        return self.live.frame(START + round(second * S), interval_s)


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def board(feed: Feed) -> Feed:
    """A whole board at one moment."""
    for name, value in {
        "dram_bandwidth_bytes_per_s": 34e9, "emc_busy_frac": 0.5, "emc_clock_hz": 2.125e9,
        "gpu_busy_frac": 0.97, "gpu_clock_hz": 624e6, "cpu_busy_frac": 0.23, "cpu_online": 6,
        "cpu_clock_hz": 1.51e9,
        "power_w.total": 7.9, "power_w.VDD_SOC": 1.5, "temp_c.cpu2": 48.0, "temp_c.cpu10": 50.5,
        "ram_used_bytes": 2.0**32, "ram_total_bytes": 2.0**33, "swap_used_bytes": 0.0,
    }.items():  # fmt: skip
        feed.read(name, {0.5: value})
    return feed


def test_a_line(board: Feed) -> None:
    assert live_line(board.frame(1.0)) == (
        "1.0 s  DRAM 34.0 GB/s (50 % of peak 68.0, 68 % of sustained 50.0)  EMC 50 % of 2125 MHz  "
        "GPU 97 % of 624 MHz  CPU 23 %  power 7.90 W  temp 50.5 °C cpu10  RAM 4.00 GiB"
    )


def test_every_line_has_the_same_fields(feed: Feed) -> None:
    assert live_line(feed.frame(2.5)) == (
        "2.5 s  DRAM -  EMC -  GPU -  CPU -  power -  temp -  RAM -"
    )


def test_a_block(board: Feed) -> None:
    lines = live_block(board.frame(1.0), 100)
    assert lines[0] == "Paper board, 15W  1.0 s"
    assert lines[1:7] == [
        "memory  34.0 GB/s (50 % of peak 68.0, 68 % of sustained 50.0), EMC 50 % of 2125 MHz",
        "GPU     97 % of 624 MHz",
        "CPU     23 %, 6 cores on",
        "power   total 7.90 W, VDD_SOC 1.50 W",
        "temp    cpu2 48.0 °C, cpu10 50.5 °C",
        "RAM     4.00 GiB of 8.00 GiB, swap 0.00 GiB",
    ]


@pytest.mark.parametrize("width", [20, 40, 79])
def test_k14_a_block_fits_the_terminal(board: Feed, width: int) -> None:
    board.note("absent", signal="cooling_state", source="sysfs", reason="there is no fan at all")
    lines = live_block(board.frame(), width)
    assert max(map(len, lines)) <= width
    assert "34.0 GB/s" in " ".join(lines)


def test_k03_no_escape_codes(board: Feed) -> None:
    assert "\x1b" not in "".join([live_line(board.frame()), *live_block(board.frame(), 80)])


def test_mean_of_what_came_since_the_frame_before(feed: Feed) -> None:
    feed.read("power_w.total", {0.2: 4.0, 0.4: 6.0})
    assert feed.frame(1.0).value("power_w.total") == 5.0
    feed.read("power_w.total", {1.2: 8.0})
    assert feed.frame(2.0).value("power_w.total") == 8.0
    assert feed.frame(3.0).value("power_w.total") == 8.0  # nothing new: the last one


def test_old_readings_are_unknown(feed: Feed) -> None:
    feed.read("power_w.total", {0.5: 4.0})
    assert feed.frame(3.4).value("power_w.total") == 4.0
    assert feed.frame(3.6).value("power_w.total") is None
    feed.read("power_w.total", {3.7: 4.0})
    assert feed.frame(9.6, interval_s=2.0).value("power_w.total") == 4.0


def test_a_reading_without_a_value_is_unknown(feed: Feed) -> None:
    feed.read("gpu_busy_frac", {0.5: None})
    assert feed.frame().value("gpu_busy_frac") is None
    assert live_document(feed.frame())["gpu_busy_frac"] is None


def test_rates_are_those_delivered(feed: Feed) -> None:
    feed.announce("emc_busy_frac", asked_hz=1000.0)
    feed.read("emc_busy_frac", {0.1 * tick: 0.5 for tick in range(10)})
    signal = feed.frame().signals["emc_busy_frac"]
    assert signal.delivered_hz == pytest.approx(10.0)
    assert signal.jitter_s == pytest.approx(0.0, abs=1e-6)
    assert "rates   EMC busy 10.0 Hz (sysfs)" in live_block(feed.frame(), 200)


def test_the_best_source_that_is_alive(feed: Feed) -> None:
    feed.read("gpu_busy_frac", {0.5: 0.5}, source="jtop")
    feed.read("gpu_busy_frac", {0.5: 0.6}, source="tegrastats")
    assert feed.frame().signals["gpu_busy_frac"].source == "tegrastats"
    feed.read("gpu_busy_frac", {5.0: 0.7}, source="jtop")
    assert feed.frame(5.5).signals["gpu_busy_frac"].source == "jtop"


def test_suspect_values_are_named_and_not_shown_as_figures(feed: Feed) -> None:
    feed.read("emc_busy_frac", {0.5: 0.0})
    feed.note("suspect", signal="emc_busy_frac", source="sysfs", reason="0 while the GPU is busy")
    document = live_document(feed.frame())
    assert document["emc_busy_frac"] is None
    assert document["suspect"] == [
        {"signal": "emc_busy_frac", "source": "sysfs", "reason": "0 while the GPU is busy"}
    ]
    assert document["signals"]["emc_busy_frac"].value == 0.0
    assert "EMC -" in live_line(feed.frame())
    assert "suspect EMC busy (sysfs) shows 0 %: 0 while the GPU is busy" in (
        live_block(feed.frame(), 200)
    )


def test_a_suspect_sample_is_not_a_figure_either(feed: Feed) -> None:
    feed.read("emc_busy_frac", {0.5: 845.0}, quality="suspect")
    assert feed.frame().value("emc_busy_frac") is None


def test_another_source_takes_the_place_of_a_suspect_one(feed: Feed) -> None:
    feed.read("emc_busy_frac", {0.5: 0.0})
    feed.read("emc_busy_frac", {0.5: 0.7}, source="tegrastats")
    feed.note("suspect", signal="emc_busy_frac", source="sysfs", reason="stuck")
    assert feed.frame().value("emc_busy_frac") == 0.7


@pytest.mark.parametrize("quality", ["simulated", "replayed"])
def test_what_no_board_gave_is_stamped_everywhere(feed: Feed, quality: Any) -> None:
    feed.read("gpu_busy_frac", {0.5: 0.5}, quality=quality)
    stamp = quality.upper()
    assert live_line(feed.frame()).endswith(f"  {stamp}")
    assert live_block(feed.frame(), 80)[0] == f"Paper board, 15W  {stamp}  1.0 s"
    document = live_document(feed.frame())
    assert (document["simulated"], document["replayed"]) == (
        quality == "simulated", quality == "replayed",
    )  # fmt: skip


def test_absences_with_one_reason_share_a_line(feed: Feed) -> None:
    for signal in ("emc_busy_frac", "dram_bandwidth_bytes_per_s"):
        feed.note("absent", signal=signal, source="sysfs", reason="needs root", fix="sudo it")
    feed.note("absent", signal="*", source="jtop", reason="no service")
    assert absent_now(feed.frame()) == [
        "EMC busy, DRAM bandwidth: needs root; sudo it",
        "jtop: no service",
    ]


def test_what_another_source_gives_is_not_absent(feed: Feed) -> None:
    feed.note("absent", signal="temp_c", source="sysfs", reason="no zone")
    feed.read("temp_c.cpu", {0.5: 40.0}, source="host")
    assert not any("no zone" in line for line in absent_now(feed.frame()))


def test_what_nobody_speaks_of_is_absent_too(feed: Feed) -> None:
    assert absent_now(feed.frame()) == []  # nothing is known before the first reading
    feed.read("cpu_busy_frac", {0.5: 0.5})
    feed.announce("temp_c.gpu")  # has yet to come
    assert absent_now(feed.frame()) == [
        "DRAM bandwidth, GPU busy, power: no source gives it on this machine"
    ]


def test_document_has_every_signal_and_no_nan(board: Feed) -> None:
    text = msgspec.json.encode(live_document(board.frame())).decode()
    document = json.loads(text, parse_constant=pytest.fail)
    assert document["schema"] == "edgeprof.watch/1"
    assert set(UNITS) <= set(document)
    assert document["dram_bandwidth_bytes_per_s"] == 34e9
    assert document["power_w"] == {"VDD_SOC": 1.5, "total": 7.9}
    assert list(document["temp_c"]) == ["cpu2", "cpu10"]  # S38
    assert document["device"]["peak_bandwidth_bytes_per_s"] == 68e9
    assert document["t_s"] == 1.0


def test_document_without_a_board_has_the_same_keys(board: Feed) -> None:
    bare = live_document(Feed({}).frame())
    assert set(bare) == set(live_document(board.frame()))
    assert bare["device"]["name"] is None and bare["emc_busy_frac"] is None
    assert "\n" not in msgspec.json.encode(bare).decode()


def test_names_from_files_do_not_steer_the_terminal() -> None:
    feed = Feed({"name": "bo\x1b[2Jard", "power_mode": "15\x07W"})
    feed.note("absent", signal="power_w", source="sysfs", reason="\x1b]0;title\x07")
    feed.read("temp_c.a\x1bb", {0.5: 40.0})
    text = "".join(live_block(feed.frame(), 60))
    assert not any(ord(character) < 32 for character in text)


def test_why_a_figure_vanished_is_said_in_every_form(board: Feed) -> None:
    board.note(
        "suspect", signal="emc_busy_frac", source="sysfs", reason="0 while the GPU is busy",
        since_ns=START,
    )  # fmt: skip
    board.note("absent", signal="gpu_busy_frac", source="sysfs", reason="gone", since_ns=START)
    board.frame(0.7)
    board.read("gpu_busy_frac", {0.8: None})
    frame = board.frame(1.0)
    assert "EMC -" in live_line(frame) and "GPU -" in live_line(frame)
    assert reasons_now(frame) == [
        "suspect: EMC busy (sysfs): 0 while the GPU is busy",
        "not measured: GPU busy: gone",
    ]
    document = live_document(frame)
    assert document["suspect"] == [
        {"signal": "emc_busy_frac", "source": "sysfs", "reason": "0 while the GPU is busy"}
    ]
    assert document["absent"] == [
        {"signal": "gpu_busy_frac", "source": "sysfs", "reason": "gone", "fix": None}
    ]
    block = " ".join(live_block(frame, 200))
    assert "suspect EMC busy (sysfs) shows 50 %: 0 while the GPU is busy" in block
    assert "not measured GPU busy: gone" in block


def test_a_suspect_channel_that_falls_silent_is_still_named(feed: Feed) -> None:
    feed.read("emc_busy_frac", {0.5: 0.0})
    feed.note("suspect", signal="emc_busy_frac", source="sysfs", reason="stuck")
    feed.read("cpu_busy_frac", {9.5: 0.5})
    assert "suspect: EMC busy (sysfs): stuck" in reasons_now(feed.frame(10.0))


def test_a_channel_that_falls_silent_without_a_word_is_named(feed: Feed) -> None:
    feed.read("gpu_busy_frac", {0.1 * tick: 0.5 for tick in range(20)})
    assert not any("GPU" in line for line in absent_now(feed.frame(4.5)))
    silent = [absent_now(feed.frame(second))[0] for second in (5.0, 8.0)]
    assert silent == ["GPU busy: nothing has come since 1.9 s"] * 2  # told once
    feed.read("gpu_busy_frac", {8.5: 0.5, 9.0: None})
    assert absent_now(feed.frame(9.5))[0] != silent[0]
    feed.read("gpu_busy_frac", {12.0: None})
    assert absent_now(feed.frame(12.0))[0] == "GPU busy: no value has come since 8.5 s"


def test_a_channel_that_never_had_a_value_is_named(feed: Feed) -> None:
    feed.read("power_w.total", {0.5: None, 3.2: None})
    feed.announce("temp_c.gpu")
    assert "power total: no value has come yet" in absent_now(feed.frame(3.5))
    assert "temperature gpu: nothing has come yet" in absent_now(feed.frame(3.5))


def test_after_the_end_of_a_source_its_signals_need_no_reason_of_their_own(feed: Feed) -> None:
    feed.read("gpu_busy_frac", {0.5: 0.5}, source="replay", quality="replayed")
    feed.note("absent", signal="*", source="replay", reason="played to its end")
    assert absent_now(feed.frame(9.0))[0] == "replay: played to its end"
    assert "GPU" not in " ".join(absent_now(feed.frame(9.0)))


def test_a_loss_that_is_told_by_a_gap_alone(feed: Feed) -> None:
    feed.read("gpu_busy_frac", {0.5: None})
    feed.note("gap", signal="gpu_busy_frac", source="sysfs", reason="switched off", since_ns=START)
    feed.note("gap", process="sampler", since_ns=START, cause="killed by signal 9")
    assert absent_now(feed.frame(1.0))[0] == "GPU busy: switched off"
    assert not any("signal 9" in line for line in absent_now(feed.frame(1.0)))


def test_what_was_simulated_and_is_replayed_is_stamped_as_both(feed: Feed) -> None:
    feed.read("power_w.total", {0.5: 4.0}, source="replay", quality="simulated")
    frame = feed.frame()
    assert live_line(frame).endswith("SIMULATED  REPLAYED")
    assert "SIMULATED  REPLAYED" in live_block(frame, 80)[0]
    document = live_document(frame)
    assert document["simulated"] is True and document["replayed"] is True
