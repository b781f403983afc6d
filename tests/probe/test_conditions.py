"""What makes a probe's figures those of a moment, and that it says so."""

from pathlib import Path
from typing import Any

import pytest

from edgeprof.hardware.measured import Conditions, Range
from edgeprof.probe.conditions import Watcher, disturbances
from edgeprof.session.records import Event, Sample, Signal

QUIET: dict[str, Any] = {
    "others_cpu_share_before": 0.01,
    "others_cpu_share": 0.02,
    "stolen_cpu_share": 0.0,
}


def told(provider: str = "cpu", **found: Any) -> list[str]:
    return [*disturbances(Conditions(**{**QUIET, **found}), provider)]


def test_a_quiet_machine_is_not_disturbed() -> None:
    assert told() == []
    assert told(cpu_clock_hz=Range(low=2.0e9, high=2.1e9)) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"others_cpu_share_before": 0.3}, "30 % of the processor before it began"),
        ({"others_cpu_share": 0.5}, "50 % of the processor while it ran"),
        ({"stolen_cpu_share": 0.1}, "hypervisor took away 10 %"),
        ({"cpu_clock_hz": Range(low=1e9, high=2e9)}, "processor's clock moved between 1000 and"),
        ({"signals": {"emc_clock_hz": Range(low=2.1e9, high=3.2e9)}}, "memory clock moved"),
        ({"signals": {"swap_used_bytes": Range(low=0, high=64 << 20)}}, "64 MiB were swapped"),
        ({"events": {"throttling": 3}}, "throttling: told 3 times"),
    ],
)
def test_a_disturbed_probe_says_so(found: dict[str, Any], words: str) -> None:
    (sentence,) = told(**found)
    assert words in sentence


def test_the_gpus_clock_matters_where_the_gpu_computes() -> None:
    moved = {"gpu_clock_hz": Range(low=3e8, high=1e9)}
    assert told(signals=moved) == []
    assert "GPU's clock" in told("cuda", signals=moved)[0]


def test_clocks_count_only_while_something_is_timed(tmp_path: Path) -> None:
    """Between the parts a clock may fall as it likes."""
    clock = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
    clock.parent.mkdir(parents=True)
    clock.write_text("0\n")
    watcher = Watcher(tmp_path)
    watcher.take(Signal(id=1, name="emc_clock_hz", unit="Hz", source="sysfs"))
    for khz, emc_hz, timing in ((800_000, 6e8, False), (2_000_000, 3e9, True)):
        clock.write_text(f"{khz}\n")
        watcher.tick(timing=timing)
        watcher.take(Sample(signal_id=1, t0_ns=0, t1_ns=1, value=emc_hz))
    found = watcher.conditions()
    assert found.cpu_clock_hz == Range(low=2e9, high=2e9)
    assert found.signals == {"emc_clock_hz": Range(low=3e9, high=3e9)}


def test_what_the_board_tells_of_throttling_is_counted() -> None:
    watcher = Watcher(Path("/nowhere"))
    for kind in ("throttling", "throttling", "absent"):
        watcher.take(Event(leg_id=None, t_ns=0, kind=kind, severity="warning"))
    assert watcher.conditions().events == {"throttling": 2}
