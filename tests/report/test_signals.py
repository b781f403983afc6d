"""How reports show signals and phases, from a watched command made by hand."""

import re
from typing import Any

import msgspec
import pytest

from edgeprof.analysis.summary import Summary, summarise
from edgeprof.report.markdown import markdown
from edgeprof.report.signal_words import label, shown
from edgeprof.report.signals import absent_lines, observed
from edgeprof.report.text import session_text
from edgeprof.session.records import Event, Leg, Sample, Signal

S = 1_000_000_000
WIDE = 1000


class Watched:
    """Ten seconds of a command on a board with a known peak, one sample a second."""

    def __init__(self, maker: Any) -> None:
        self.maker = maker
        device = {
            "name": "Paper board", "kind": "board", "power_mode": "15W",
            "peak_bandwidth_bytes_per_s": 68e9, "sustained_bandwidth_bytes_per_s": 50e9,
        }  # fmt: skip
        maker.info = msgspec.structs.replace(
            maker.info, kind="watch", recipe={"name": "watch engine"}, models={}, device=device
        )
        self.leg("engine", 0, 10, kind="command", attrs={"exit_code": 0})

    def leg(self, name: str, start: float, end: float, **fields: Any) -> None:
        values = {"kind": "mark", "status": "complete", **fields}
        self.maker.legs.append(
            Leg(
                id=len(self.maker.legs) + 1, name=name, variant="engine", repeat=1, warmup=False,
                t0_ns=round(start * S), t1_ns=round(end * S), **values,
            )
        )  # fmt: skip

    def signal(self, name: str, value: float | None, **fields: Any) -> None:
        values: dict[str, Any] = {"source": "sysfs", "unit": "1", **fields}
        quality = values.pop("quality", "ok")
        signal_id = len(self.maker.signals) + 1
        self.maker.signals.append(Signal(id=signal_id, name=name, **values))
        self.maker.samples += [
            Sample(signal_id=signal_id, t0_ns=s * S, t1_ns=s * S, value=value, quality=quality)
            for s in range(11)
        ]

    def event(self, kind: str, **detail: Any) -> None:
        self.maker.events.append(
            Event(leg_id=None, t_ns=0, kind=kind, severity="info", detail=detail)
        )

    def summary(self) -> Summary:
        return summarise(self.maker.session())

    def text(self, width: int = WIDE) -> str:
        return session_text(self.summary(), width)


@pytest.fixture
def watched(maker: Any) -> Watched:
    return Watched(maker)


def row(text: str, start: str) -> list[str]:
    """The cells of the first line that begins so; cells are two blanks apart."""
    line = next(line for line in text.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("dram_bandwidth_bytes_per_s", 31.24e9, "31.2 GB/s"),
        ("emc_busy_frac", 0.456, "46 %"),
        ("emc_clock_hz", 2.133e9, "2133 MHz"),
        ("ram_used_bytes", 3 * 2.0**29, "1.50 GiB"),
        ("power_w.total", 7.913, "7.91 W"),
        ("temp_c.gpu", 51.25, "51.2 °C"),
        ("cpu_online", 6.0, "6"),
        ("gpu_busy_frac", None, "-"),
    ],
)
def test_values_in_the_units_of_people(name: str, value: float | None, expected: str) -> None:
    assert shown(name, value) == expected


def test_labels() -> None:
    assert label("emc_busy_frac") == "EMC busy"
    assert label("temp_c.gpu") == "temperature gpu"
    assert label("power_w") == "power"
    assert label("a_signal_of_later_years") == "a_signal_of_later_years"


def test_headline_of_a_watched_command(watched: Watched) -> None:
    watched.signal("dram_bandwidth_bytes_per_s", 34e9)
    watched.signal("gpu_busy_frac", 0.97)
    watched.signal("power_w.total", 7.9)
    watched.signal("temp_c.cpu", 49.0)
    watched.signal("temp_c.gpu", 51.0)
    assert observed(watched.summary()) == [
        "engine ran for 10.0 s and ended with exit code 0.",
        "On average 34.0 GB/s of memory traffic (50 % of the 68.0 GB/s peak, 68 % of the 50.0 GB/s "
        "that real work sustains), GPU 97 % busy, 7.90 W, at most 51.0 °C (gpu).",
    ]
    text = watched.text()
    assert text.startswith("watch engine on Paper board, ")
    assert "No variant with a drafter" not in text


def test_sum_of_module_rails_is_not_called_the_total(watched: Watched) -> None:
    watched.signal("power_w.module_sum", 12.0)
    assert "12.00 W (the sum of the module's rails)" in watched.text()


def test_s37_says_that_the_run_was_too_short(watched: Watched) -> None:
    watched.maker.legs[0] = msgspec.structs.replace(watched.maker.legs[0], t1_ns=5_000_000)
    watched.signal("cpu_busy_frac", 0.5, asked_hz=10.0)
    watched.maker.samples.clear()
    text = watched.text()
    assert "engine ran for 5.00 ms" in text
    assert "No samples: the run was shorter than the sampling interval." in text
    assert (
        "Not measured\n- CPU busy (sysfs): the run was shorter than the sampling interval" in text
    )


def test_nothing_was_ever_announced(watched: Watched) -> None:
    assert "No samples: no source gave a reading." in watched.text()
    assert "## Signals" not in markdown(watched.summary())


def test_signal_table(watched: Watched) -> None:
    watched.signal(
        "dram_bandwidth_bytes_per_s", 34e9, window_s=0.9, window_kind="exponential",
        window_basis="assumed", delivered_hz=19.97, jitter_s=0.0012,
    )  # fmt: skip
    watched.signal("gpu_busy_frac", 0.5)
    text = watched.text()
    assert row(text, "DRAM bandwidth") == [
        "DRAM bandwidth", "sysfs", "34.0 GB/s", "34.0 to 34.0 GB/s", "900 ms exp.", "assumed",
        "20.0", "1.2 ms",
    ]  # fmt: skip
    # no window is known; one reading a second came
    assert row(text, "GPU busy")[4:] == ["not known", "-", "1.00", "0 s"]


def test_suspect_channel_is_listed_without_a_figure(watched: Watched) -> None:
    watched.signal("emc_busy_frac", 0.0)
    watched.event("suspect", signal="emc_busy_frac", source="sysfs", reason="0 while GPU was busy")
    text = watched.text()
    assert row(text, "EMC busy")[:4] == ["EMC busy", "sysfs", "suspect", "-"]
    assert "is suspect and left out: 0 while GPU was busy" in text


def test_counters_that_stood_still_are_not_worth_a_line(watched: Watched) -> None:
    watched.signal("throttle_events.oc1", 3.0)
    watched.signal("throttle_events.oc2", 3.0)
    last = watched.maker.samples[-1]
    watched.maker.samples[-1] = msgspec.structs.replace(last, value=9.0)
    text = watched.text()
    assert "throttling oc1" not in text and "throttling oc2" in text
    assert "throttling oc1" in markdown(watched.summary())


def test_second_best_sources_are_in_the_long_report_only(watched: Watched) -> None:
    watched.signal("gpu_busy_frac", 0.9)
    watched.signal("gpu_busy_frac", 0.8, source="jtop")
    assert "jtop" not in watched.text()
    assert re.search(r"^\| GPU busy +\| jtop ", markdown(watched.summary()), re.MULTILINE)


def test_where_only_some_samples_are_simulated_the_table_says_which(watched: Watched) -> None:
    watched.signal("gpu_busy_frac", 0.9, quality="simulated")
    assert row(watched.text(), "GPU busy")[1] == "sysfs"
    watched.signal("cpu_busy_frac", 0.9, source="host")
    text = watched.text()
    assert row(text, "GPU busy")[1] == "sysfs (simulated)"
    assert row(text, "CPU busy")[1] == "host"
    assert text.startswith("Simulated samples: not read from a board in this session.")


def test_absent_lines_say_why_and_what_mends_it(watched: Watched) -> None:
    for signal in ("emc_busy_frac", "dram_bandwidth_bytes_per_s"):
        watched.event(
            "absent", signal=signal, source="sysfs", reason="needs root", fix="see edgeprof sensor"
        )
    watched.event("absent", signal="*", source="jtop", reason="the service does not run")
    watched.event("absent", signal="tegrastats", source="tegrastats", reason="not installed")
    assert set(absent_lines(watched.summary())) == {
        "DRAM bandwidth, EMC busy (sysfs): needs root; see edgeprof sensor",
        "jtop: the service does not run",
        "tegrastats: not installed",
    }
    assert "\n\nNot measured\n- DRAM bandwidth, EMC busy (sysfs): needs root" in watched.text()
    assert "- DRAM bandwidth, EMC busy (sysfs): needs root" in markdown(watched.summary())


def test_phase_table_and_its_note(watched: Watched) -> None:
    watched.signal("dram_bandwidth_bytes_per_s", 34e9, window_s=0.5, window_kind="exponential")
    watched.leg("verify", 1.0, 1.5)
    watched.leg("verify", 2.0, 2.7)
    watched.leg("load", 3.0, 5.0)
    watched.leg("load", 9.0, 10.0, status="interrupted")
    text = watched.text()
    assert row(text, "verify") == ["verify", "-", "2", "0", "600 ms", "1.20 s", "12 %", "-"]
    # The second lasted until the command's end.
    assert row(text, "load") == ["load", "-", "2", "1", "1.50 s", "3.00 s", "30 %", "-"]
    note = "No phase has a bandwidth of its own: none was held for 6 windows of 500 ms"
    assert note in text and note in markdown(watched.summary())
    watched.leg("held", 5.0, 9.0)
    assert row(watched.text(), "held")[-1] == "34.0"
    assert note not in watched.text()


def test_many_phases_are_summed_up(watched: Watched) -> None:
    for number in range(40):
        watched.leg(f"phase{number}", 0.1 * number, 0.1 * number + 0.05 + 0.001 * number)
    text = watched.text()
    assert "10 more phases took less time than these." in text
    assert "phase39" in text and "phase9 " not in text


def test_report_of_a_watch_asks_for_nothing_that_only_decoding_has(watched: Watched) -> None:
    watched.signal("cpu_busy_frac", 0.5)
    document = markdown(watched.summary())
    for title in ("Speed", "Acceptance", "Cost of verification", "Not measured"):
        assert f"## {title}\n" not in document
    for words in ("ONNX Runtime", "prompts", "decode rate", "ceilings", "speed-up"):
        assert words not in document
    assert "Means are weighted by time" in document


def test_run_report_does_not_deny_what_was_read(maker: Any) -> None:
    maker.decode_leg("fp32")
    leg = maker.legs[0]
    for name, unit in (("gpu_busy_frac", "1"), ("power_w.total", "W"),
                       ("dram_bandwidth_bytes_per_s", "B/s")):  # fmt: skip
        maker.signal(name, unit, [(leg.t0_ns + 1, 0.5)])
    document = markdown(summarise(maker.session()))
    assert "no power sensor was read" not in document
    assert "no GPU was read" not in document
    assert "no counter was read" not in document and "No counter of memory traffic" not in document
    assert "is not split by pass" in document


def test_imported_log_is_told_by_what_was_seen(maker: Any) -> None:
    maker.info = msgspec.structs.replace(maker.info, kind="import", recipe={}, models={})
    maker.signal("cpu_busy_frac", "1", [(s * S, 0.25) for s in range(5)])
    text = session_text(summarise(maker.session()), WIDE)
    assert text.startswith("import on Paper board")
    assert "Samples over 4.00 s.\nOn average CPU 25 % busy." in text


def test_k14_narrow_terminal_gets_lines_that_fit(watched: Watched) -> None:
    watched.signal("dram_bandwidth_bytes_per_s", 34e9)
    watched.leg("verify", 1.0, 1.5)
    text = watched.text(40)
    tables = text[text.index("Phases that") :]
    assert max(map(len, tables.splitlines())) <= 40
    assert "mean: 34.0 GB/s" in tables and "phase: verify" in tables


def test_names_of_a_program_do_not_steer_the_terminal(watched: Watched) -> None:
    watched.leg("load\x1b[2J", 1.0, 2.0)
    watched.event("absent", signal="emc_busy_frac", source="sysfs", reason="no\x1b[2J way")
    assert "\x1b" not in watched.text()
    assert "\x1b" not in markdown(watched.summary())


@pytest.mark.parametrize(
    ("window", "refusal"),
    [
        # ten seconds are five windows of 2 s and not of 2.1
        ({"window_s": 2.0, "window_kind": "exponential"}, None),
        (
            {"window_s": 2.1, "window_kind": "exponential"},
            "No average of the memory traffic: the counter's is a running average of 2.1 s, which"
            " takes 10.5 s to forget what was before.",
        ),
        ({"window_s": None, "window_kind": "exponential"}, None),
        ({"window_s": 2.1, "window_kind": "boxcar"}, None),
    ],
)
def test_headline_of_a_short_session_has_no_memory_traffic(
    watched: Watched, window: dict[str, Any], refusal: str | None
) -> None:
    watched.signal("dram_bandwidth_bytes_per_s", 34e9, **window)
    watched.signal("power_w.total", 7.0)
    sentences = observed(watched.summary())
    assert ("34.0 GB/s" in " ".join(sentences)) == (refusal is None)
    assert sentences[2:] == ([] if refusal is None else [refusal])
    assert "7.00 W" in sentences[1]


def test_headline_of_five_seconds_where_the_window_is_not_known(watched: Watched) -> None:
    watched.maker.legs[0] = msgspec.structs.replace(watched.maker.legs[0], t1_ns=round(4.9 * S))
    watched.signal("dram_bandwidth_bytes_per_s", 34e9)
    how_long, why = observed(watched.summary())
    assert "4.90 s" in how_long
    assert why == (
        "No average of the memory traffic: the counter's is a running average whose length is not"
        " known, which takes 5.00 s to forget what was before."
    )
    watched.maker.legs[0] = msgspec.structs.replace(watched.maker.legs[0], t1_ns=5 * S)
    assert "34.0 GB/s" in " ".join(observed(watched.summary()))


def test_title_without_a_board_names_none(watched: Watched) -> None:
    watched.maker.info = msgspec.structs.replace(watched.maker.info, device={})
    assert watched.text().startswith("watch engine, 20")
    assert markdown(watched.summary()).startswith("# watch engine\n")


def test_a_replayed_simulation_is_stamped_as_both(watched: Watched) -> None:
    watched.signal("power_w.total", 7.0, source="replay", quality="simulated")
    watched.signal("temp_c.cpu", 40.0, source="sysfs", quality="simulated")
    summary = watched.summary()
    assert summary.session.samples == {"simulated": 22, "replayed": 11}
    for text in (watched.text(), markdown(summary)):
        assert "Simulated samples" in text and "Replayed samples" in text
