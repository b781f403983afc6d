"""What is not believed, and what is although it looks odd."""

import pytest

from edgeprof.telemetry.plausibility import Finding, Judge, Scene
from edgeprof.telemetry.source import BoardFigures, Reading

MS = 1_000_000
S = 1_000_000_000
# An Orin Nano: 32 bytes a clock at 2133 MHz are 68.256 GB/s.
ORIN_NANO = BoardFigures(bytes_per_emc_clock=32, emc_max_hz=2133e6)


def judge(
    name: str, source: str = "sysfs", board: BoardFigures = ORIN_NANO, scene: Scene | None = None
) -> Judge:
    return Judge(name, source, board, scene or Scene())


@pytest.mark.parametrize(
    ("name", "believed", "not_believed"),
    [
        ("emc_busy_frac", [0.0, 1.0, 1.05], [-0.01, 1.06, 8450.0, 1_745_160.0]),  # S09, S39
        ("gpu_busy_frac", [0.0, 1.0], [1.2, -1.0]),
        ("cpu_busy_frac", [0.0, 1.0], [3.0]),
        ("emc_clock_hz", [204e6, 2133e6, 2200e6], [1e3, 1e6, 3199e6]),  # 1 kHz: not known (S09)
        ("gpu_clock_hz", [76.8e6, 1020e6], [0.0, -1.0, 1.02e12]),
        ("temp_c.cpu", [-40.0, 48.5, 150.0], [-256.0, -41.0, 151.0]),
        ("power_w.total", [0.0, 7.9, 1000.0], [7900.0, -0.1]),
        ("cpu_online", [1.0, 14.0], [0.0]),
        ("ram_used_bytes", [0.0, 125e9], [-1.0]),
        ("throttle_events.oc1", [0.0, 4e9], [-1.0]),
        ("cooling_state.pwm_fan", [0.0, 255.0], [-1.0]),
    ],
)
def test_s09_s39_every_signal_has_its_range(
    name: str, believed: list[float], not_believed: list[float]
) -> None:
    for value in believed:
        assert judge(name)(value, S) is None
    for value in not_believed:
        finding = judge(name)(value, S)
        assert finding is not None and (finding.kind, finding.since_ns) == ("range", S)
        assert f"{value:g}" in finding.reason


def test_bandwidth_above_the_peak_at_its_clock_is_not_believed() -> None:
    scene = Scene()
    clock, bandwidth = (
        judge("emc_clock_hz", scene=scene),
        judge("dram_bandwidth_bytes_per_s", scene=scene),
    )
    clock(665.6e6, 0)  # 32 x 665.6 MHz = 21.3 GB/s; a twentieth more is 22.36
    assert bandwidth(22.3e9, 0) is None
    finding = bandwidth(22.5e9, 0)
    assert finding is not None and finding.kind == "peak"
    assert "22.5 GB/s" in finding.reason and "21.3 GB/s" in finding.reason


def test_what_is_told_beside_a_clock_that_cannot_be_is_not_believed_either() -> None:
    """A log of a 3199 MHz board under the name of one that ends at 2133 MHz."""
    scene = Scene()
    clock = judge("emc_clock_hz", "replay", scene=scene)
    others = [
        judge(name, source, scene=scene)
        for name, source in (
            ("emc_busy_frac", "replay"),
            ("dram_bandwidth_bytes_per_s", "replay"),
            ("gpu_busy_frac", "replay"),
            ("emc_busy_frac", "sysfs"),
        )
    ]
    busy, bandwidth, gpu, elsewhere = others
    assert clock(3199e6, 0) is not None
    for judged, value in ((busy, 0.5), (bandwidth, 51e9)):
        finding = judged(value, 0)
        assert finding is not None and "clock beside it" in finding.reason
    assert gpu(0.5, 0) is None and elsewhere(0.5, 0) is None
    assert clock(2133e6, S) is None
    assert busy(0.5, S) is None and bandwidth(34e9, S) is None


def test_an_average_reaches_back_to_before_the_clock_fell() -> None:
    scene = Scene()
    clock, bandwidth = (
        judge("emc_clock_hz", scene=scene),
        judge("dram_bandwidth_bytes_per_s", scene=scene),
    )
    clock(2133e6, 0)
    clock(665.6e6, 1 * S)
    assert bandwidth(60e9, 1 * S) is None
    clock(665.6e6, 6 * S)  # no average of these boards reaches back so far
    assert bandwidth(60e9, 6 * S) is not None


def test_a_share_over_a_fall_of_the_clock_is_no_share_of_a_clock() -> None:
    """0.8 of 2133 MHz are 2.56 of 665.6 MHz; no share reaches 1.05 x 2133 / 665.6 = 3.365."""
    scene = Scene()
    clock, busy = judge("emc_clock_hz", scene=scene), judge("emc_busy_frac", scene=scene)
    clock(2133e6, 0)
    clock(665.6e6, 1 * S)
    reading = busy.of_one_clock(Reading(2.56, "1706400"), 1 * S)
    assert (reading.value, reading.raw) == (None, "1706400")
    assert reading.reason is not None and "clock fell" in reading.reason
    for believed in (Reading(0.8, "532480"), Reading(1.05), Reading(None)):
        assert busy.of_one_clock(believed, 1 * S) == believed
    assert busy.of_one_clock(Reading(3.37), 1 * S) == Reading(3.37)
    assert busy(3.37, 1 * S) is not None
    clock(665.6e6, 6 * S)  # no average of these boards reaches back so far
    assert busy.of_one_clock(Reading(2.56), 6 * S) == Reading(2.56)
    assert judge("emc_busy_frac").of_one_clock(Reading(2.56), 0) == Reading(2.56)


def test_without_figures_of_the_board_there_is_no_peak() -> None:
    assert judge("dram_bandwidth_bytes_per_s", board=BoardFigures())(300e9, 0) is None


def zeros(
    channel: Judge, gpu: Judge, busy: float, count: int, start: int = 0
) -> list[Finding | None]:
    """Readings of 0, twenty a second, with the GPU as busy as that."""
    found = []
    for index in range(start, start + count):
        gpu(busy, index * 50 * MS)
        found.append(channel(0.0, index * 50 * MS))
    return found


@pytest.mark.parametrize("name", ["emc_busy_frac", "dram_bandwidth_bytes_per_s"])
def test_s07_an_emc_at_0_beside_a_busy_gpu_is_stuck(name: str) -> None:
    scene = Scene()
    emc, gpu = judge(name, scene=scene), judge("gpu_busy_frac", scene=scene)
    found = zeros(emc, gpu, 0.97, 22)
    assert found[:19] == [None] * 19
    stuck = found[19]
    assert stuck is not None and (stuck.kind, stuck.since_ns) == ("stuck", 0)
    assert found[21] is not None
    assert emc(0.3 if name == "emc_busy_frac" else 20e9, 2 * S) is None  # it moves again
    assert zeros(emc, gpu, 0.97, 19, start=50) == [None] * 19


@pytest.mark.parametrize("busy", [0.0, 0.8])
def test_s07_an_emc_at_0_beside_an_idle_gpu_is_idle(busy: float) -> None:
    scene = Scene()
    emc, gpu = judge("emc_busy_frac", scene=scene), judge("gpu_busy_frac", scene=scene)
    assert zeros(emc, gpu, busy, 60) == [None] * 60


def test_s07_a_gpu_that_was_busy_long_ago_proves_nothing() -> None:
    scene = Scene()
    emc, gpu = judge("emc_busy_frac", scene=scene), judge("gpu_busy_frac", scene=scene)
    gpu(0.97, 0)
    assert [emc(0.0, (6 + index) * S) for index in range(40)] == [None] * 40


def test_s24_a_gpu_at_0_that_another_source_sees_busy_is_stuck() -> None:
    scene = Scene()
    mine, other = (judge("gpu_busy_frac", source, scene=scene) for source in ("jtop", "sysfs"))
    found = zeros(mine, other, 0.9, 20)
    assert found[18] is None
    assert found[19] is not None and "(sysfs)" in found[19].reason


def test_s24_a_gpu_at_0_that_nobody_else_sees_may_be_idle() -> None:
    """A load on the CPU alone keeps the memory busy too."""
    scene = Scene()
    gpu, emc = judge("gpu_busy_frac", scene=scene), judge("emc_busy_frac", scene=scene)
    for index in range(60):
        emc(0.6, index * 50 * MS)
        assert gpu(0.0, index * 50 * MS) is None


def test_equal_readings_in_a_row_are_no_ground() -> None:
    channel = judge("temp_c.tboard")
    assert [channel(45.0, index * S) for index in range(100)] == [None] * 100


def test_a_wild_reading_is_no_witness() -> None:
    scene = Scene()
    emc, gpu = judge("emc_busy_frac", scene=scene), judge("gpu_busy_frac", scene=scene)
    assert zeros(emc, gpu, 97.0, 30) == [None] * 30


def test_the_latest_reading_is_present_until_it_is_old() -> None:
    scene = Scene()
    assert scene.present("emc_busy_frac", "sysfs", 0) is None
    judge("emc_busy_frac", scene=scene)(0.4, 1 * S)
    assert scene.present("emc_busy_frac", "sysfs", 6 * S) == 0.4
    assert scene.present("emc_busy_frac", "sysfs", 7 * S) is None
    assert scene.present("emc_busy_frac", "tegrastats", 1 * S) is None
