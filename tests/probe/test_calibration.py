"""What a counter of memory traffic counts, found on emulated boards whose counters average and
scale as the code under test is not told."""

from pathlib import Path

import pytest
from emulated.traffic import Counter, Traffic
from emulated.tree import BPMP_ACTIVITY, Tree, build
from handmade_tree import absences, channels, readings, values
from made_profile import Save, figure
from msgspec.structs import replace

from edgeprof.catalog import identify_board
from edgeprof.hardware.board_files import BoardFiles
from edgeprof.hardware.measured import EmcCalibration, MeasuredProfile
from edgeprof.probe.calibration import Clockwork, board_counts, calibration, follow
from edgeprof.profiling.board import board_figures
from edgeprof.telemetry.nodes import Nodes
from edgeprof.telemetry.source import Offer
from edgeprof.telemetry.sources.sysfs import open_sysfs
from edgeprof.telemetry.sources.sysfs_emc import open_clock, open_counters, open_emc

AVERAGE, LAST = f"{BPMP_ACTIVITY}/mc_all_avg_activity", f"{BPMP_ACTIVITY}/mc_all_last_prd_activity"
CACTMON = "/sys/kernel/debug/cactmon/mc_all"
# 64 bytes a clock: of a count of kHz that is 64 000 B/s a unit; a thousandth of it, and odd ones.
KHZ = 64_000.0


def found(tree: Tree, *counters: Counter, load: float = 20e9) -> dict[str, EmcCalibration | str]:
    """The real readers on the board's files, in the board's own time."""
    traffic = Traffic(tree, counters, load_bytes_per_s=load, idle_bytes_per_s=0.7e9)
    nodes = Nodes(BoardFiles(tree.root), dict)
    opened = open_counters(nodes)
    trace = follow(opened, open_clock(nodes), traffic, Clockwork(traffic.now_s, traffic.sleep))
    assert trace is not None
    return {
        one.node: calibration(one.node, trace, traffic.chunks, "Board", "38.4.0")
        for one in counters
    }


@pytest.fixture
def thor(tmp_path: Path) -> Tree:
    tree = build(tmp_path, "thor-like")
    tree.path("/sys/kernel/debug").chmod(0o755)
    return tree


@pytest.mark.parametrize(
    ("kind", "window_s", "scale"),
    [
        ("boxcar", 0.2, KHZ),
        ("boxcar", 0.7, KHZ / 1000),
        ("boxcar", 1.5, 37_411.0),
        ("exponential", 0.2, KHZ / 1000),
        ("exponential", 0.9, 37_411.0),
        ("exponential", 1.5, KHZ),
    ],
)
def test_windows_and_scales_are_found(thor: Tree, kind: str, window_s: float, scale: float) -> None:
    counter = Counter(AVERAGE, kind, window_s, scale)  # type: ignore[arg-type]
    answer = found(thor, counter)[AVERAGE]
    assert isinstance(answer, EmcCalibration)
    assert answer.window_kind == kind
    assert answer.window_s == pytest.approx(window_s, rel=0.03)
    assert answer.bytes_per_s_per_unit.value == pytest.approx(scale, rel=0.01)
    assert answer.idle_raw == pytest.approx(0.7e9 / scale, rel=0.05)
    assert answer.bytes_per_s_per_unit.low <= scale * 1.01
    assert answer.bytes_per_s_per_unit.high >= scale * 0.99
    assert answer.emc_clock_hz == 4_266_000_000


def test_two_counters_of_one_board_are_told_apart(thor: Tree) -> None:
    answers = found(
        thor, Counter(LAST, "boxcar", 0.02, 1_280.0), Counter(AVERAGE, "exponential", 1.0, 64.0)
    )
    last, average = answers[LAST], answers[AVERAGE]
    assert isinstance(last, EmcCalibration) and isinstance(average, EmcCalibration)
    assert (last.window_kind, last.window_s) == ("instantaneous", None)
    assert last.bytes_per_s_per_unit.value == pytest.approx(1_280.0, rel=0.01)
    assert average.window_kind == "exponential"
    assert average.window_s == pytest.approx(1.0, rel=0.03)


def test_a_counter_in_khz_confirms_its_formula(tmp_path: Path) -> None:
    """32 bytes a clock x 1000 clocks: what the documents say of an Orin Nano."""
    tree = build(tmp_path, "orin-nano")
    tree.path("/sys/kernel/debug").chmod(0o755)
    answer = found(tree, Counter(CACTMON, "exponential", 0.9, 32_000.0), load=9e9)[CACTMON]
    assert isinstance(answer, EmcCalibration)
    assert answer.bytes_per_s_per_unit.value == pytest.approx(32_000.0, rel=0.01)


def test_a_counter_that_stands_still_is_refused(thor: Tree) -> None:
    answer = found(thor, Counter(AVERAGE, "boxcar", 0.5, 1e15))[AVERAGE]
    assert isinstance(answer, str) and "does not follow" in answer


def test_a_counter_that_others_drive_is_refused(thor: Tree) -> None:
    """Noise twice as large as what the load adds: a scale from it would be a guess."""
    counter = Counter(AVERAGE, "exponential", 0.5, 100.0, noise=3.0)
    answer = found(thor, counter, load=0.7e9)[AVERAGE]
    assert isinstance(answer, str) and "%" in answer


def test_a_memory_clock_that_moves_is_refused(thor: Tree) -> None:
    traffic = Traffic(
        thor,
        [Counter(AVERAGE, "boxcar", 0.5, KHZ)],
        load_bytes_per_s=20e9,
        idle_bytes_per_s=0.7e9,
    )
    nodes = Nodes(BoardFiles(thor.root), dict)
    clock_hz = iter([4_266_000_000, 2_133_000_000] * 10_000)

    def sleep(seconds: float) -> None:
        thor.set_emc(clock_hz=next(clock_hz))
        traffic.sleep(seconds)

    trace = follow(
        open_counters(nodes), open_clock(nodes), traffic, Clockwork(traffic.now_s, sleep)
    )
    assert trace is not None
    answer = calibration(AVERAGE, trace, traffic.chunks, "Board", "38.4.0")
    assert isinstance(answer, str) and "jetson_clocks" in answer


def test_a_wish_to_stop_ends_it(thor: Tree) -> None:
    traffic = Traffic(thor, [], load_bytes_per_s=1e9, idle_bytes_per_s=0.0)
    nodes = Nodes(BoardFiles(thor.root), dict)
    clockwork = Clockwork(traffic.now_s, traffic.sleep)
    assert follow(open_counters(nodes), None, traffic, clockwork, lambda: 1) is None


# ---- what becomes of it


def calibrated(tree: Tree, **changes: object) -> EmcCalibration:
    """A calibration in the user's folder, of that tree's board, release and node."""
    facts = identify_board(tree.root).facts
    assert facts.model is not None and facts.l4t is not None
    one = EmcCalibration(
        board=facts.model,
        l4t=facts.l4t,
        node=AVERAGE,
        window_kind="exponential",
        window_s=0.9,
        bytes_per_s_per_unit=figure(1_000.0),
        idle_raw=10.0,
        emc_clock_hz=4_266_000_000.0,
        explained_share=0.99,
    )
    return replace(one, **changes)


def test_a_calibration_serves_the_sysfs_source_from_then_on(
    thor: Tree, save: Save, this_profile: MeasuredProfile
) -> None:
    """Thor's profile says that its counter is not established; for this very board it now is."""
    before = open_sysfs(board_figures(thor.root))
    assert readings(before)["dram_bandwidth_bytes_per_s"].value is None
    assert absences(before)["dram_bandwidth_bytes_per_s"].fix == "edgeprof probe"

    save(replace(this_profile, emc=[calibrated(thor)]))
    board = board_figures(thor.root)
    assert board.emc_counter_established is False
    thor.put(AVERAGE, 136_512_000)  # x 1000 B/s: half of 64 B x 4266 MHz
    offer = open_sysfs(board)
    assert values(offer)["dram_bandwidth_bytes_per_s"] == pytest.approx(136.512e9)
    assert values(offer)["emc_busy_frac"] == pytest.approx(0.5)
    channel = channels(offer)["dram_bandwidth_bytes_per_s"]
    assert channel.calibrated
    assert (channel.node, channel.window_kind, channel.window_s, channel.window_basis) == (
        AVERAGE,
        "exponential",
        0.9,
        "measured",
    )


@pytest.mark.parametrize(
    "changes",
    [{"board": "Another board"}, {"l4t": "38.2.0"}, {"node": "/sys/kernel/debug/other"}],
)
def test_a_calibration_is_for_exactly_its_board_release_and_node(
    thor: Tree, save: Save, this_profile: MeasuredProfile, changes: dict[str, str]
) -> None:
    save(replace(this_profile, emc=[calibrated(thor, **changes)]))
    offer = open_sysfs(board_figures(thor.root))
    assert readings(offer)["dram_bandwidth_bytes_per_s"].value is None


def test_at_another_clock_a_calibrated_reading_is_suspect(
    thor: Tree, save: Save, this_profile: MeasuredProfile
) -> None:
    save(replace(this_profile, emc=[calibrated(thor)]))
    emc = next(reader for reader in open_emc_of(thor).readers if reader.name == "EMC activity")
    assert emc.read()["dram_bandwidth_bytes_per_s"].quality == "ok"
    thor.set_emc(clock_hz=2_133_000_000)
    assert emc.read()["dram_bandwidth_bytes_per_s"].quality == "suspect"
    assert emc.read()["emc_clock_hz"].quality == "ok"


def open_emc_of(tree: Tree) -> Offer:
    return open_emc(Nodes(BoardFiles(tree.root), dict), board_figures(tree.root))


def test_the_newest_calibration_counts(
    thor: Tree, save: Save, this_profile: MeasuredProfile
) -> None:
    for year, scale in (("2026", 1_000.0), ("2027", 2_000.0)):
        made = replace(
            this_profile,
            created_utc=f"{year}-01-01T00:00:00Z",
            emc=[calibrated(thor, bytes_per_s_per_unit=figure(scale))],
        )
        save(made, f"{year}.toml")
    (one,) = board_figures(thor.root).emc_calibrations
    assert one.bytes_per_s_per_unit == 2_000.0


def test_a_kilohertz_counter_takes_the_measured_window_and_keeps_its_scale(
    tmp_path: Path, save: Save, this_profile: MeasuredProfile
) -> None:
    tree = build(tmp_path / "board", "orin-nano")
    tree.path("/sys/kernel/debug").chmod(0o755)
    found_here = calibrated(tree, node=CACTMON, window_kind="boxcar", window_s=0.4)
    save(replace(this_profile, emc=[found_here]))
    tree.set_emc(busy_frac=0.5)
    offer = open_sysfs(board_figures(tree.root))
    assert values(offer)["dram_bandwidth_bytes_per_s"] == pytest.approx(0.5 * 2133e6 * 32)
    channel = channels(offer)["dram_bandwidth_bytes_per_s"]
    assert (channel.window_s, channel.window_basis, channel.calibrated) == (0.4, "measured", False)


def test_a_machine_that_is_no_board_has_nothing_to_calibrate(tmp_path: Path, thor: Tree) -> None:
    assert board_counts(thor.root)
    assert not board_counts(tmp_path / "nowhere")
