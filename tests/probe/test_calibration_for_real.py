"""A whole probe of an emulated board in real time: the probe's own load reads real memory, and the
board's counters follow the bytes that it has read, through windows and scales nobody tells it."""

from pathlib import Path

import pytest
from emulated.firmware import Firmware
from emulated.traffic import Counter
from emulated.tree import BPMP_ACTIVITY, build

from edgeprof.catalog import identify_board
from edgeprof.hardware.measured import read_measured
from edgeprof.probe import calibration, parts, recording
from edgeprof.probe.recording import Request, record_probe

AVERAGE, LAST = f"{BPMP_ACTIVITY}/mc_all_avg_activity", f"{BPMP_ACTIVITY}/mc_all_last_prd_activity"
AVERAGE_SCALE, LAST_SCALE = 64.0, 37_411.0
IDLE_BYTES_PER_S = 5e9
REQUEST = Request(provider="cpu", threads=1, warm_s=0.01, size_bytes=8 << 20)


class Silence:
    def begin(self, part: str, number: int, of: int) -> None:
        pass

    def end(self, part: str, cause: str | None) -> None:
        pass


@pytest.fixture
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernels, and a load that is on for 4 of these windows, not for 4 of the longest known."""
    monkeypatch.setattr(recording, "KERNELS", {"cpu": ()})
    for name in ("_STREAM_BUDGET_S", "_BEFORE_S"):
        monkeypatch.setattr(recording, name, 0.05)
    for name, seconds in (("_IDLE_S", 2.0), ("_HOLD_S", 1.6), ("_REST_S", 1.2)):
        monkeypatch.setattr(calibration, name, seconds)


def test_a_probe_of_a_board_calibrates_its_counters_in_real_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shorter: None
) -> None:
    """Within 20 % of the windows, 10 % of the scales, and of idle 10 % of the load: the machine may
    be busy, and the load is as fast as it likes."""
    tree = build(tmp_path / "board", "thor-like")
    tree.path("/sys/kernel/debug").chmod(0o755)
    watched = tmp_path / "bytes"
    counters = [
        Counter(AVERAGE, "exponential", 0.4, AVERAGE_SCALE),
        Counter(LAST, "boxcar", 0.25, LAST_SCALE),
    ]
    monkeypatch.setenv("WATCHED_BYTES", str(watched))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "workers"))
    for module in (parts, calibration):
        monkeypatch.setattr(module, "MODULE", "watched_worker")

    with Firmware(tree, counters, watched, idle_bytes_per_s=IDLE_BYTES_PER_S) as board:
        record_probe(
            REQUEST,
            tmp_path / "p.toml",
            progress=Silence(),
            wishes=lambda: 0,
            root=tree.root,
        )

    profile = read_measured(tmp_path / "p.toml")
    facts = identify_board(tree.root).facts
    if profile.missing and board.longest_step_s > 0.15:
        pytest.skip(f"the emulated counters stood still for {board.longest_step_s:.2f} s")
    assert not profile.missing
    assert profile.duration_s < 60  # 8 of them for the calibration: its load ends when told to
    assert {(one.board, one.l4t) for one in profile.emc} == {(facts.model, facts.l4t)}
    found = {one.node: one for one in profile.emc}
    assert set(found) == {AVERAGE, LAST}
    assert found[AVERAGE].window_kind == "exponential"
    assert found[AVERAGE].window_s == pytest.approx(0.4, rel=0.2)
    assert found[LAST].window_kind == "boxcar"
    assert found[LAST].window_s == pytest.approx(0.25, rel=0.2)
    (load_bytes_per_s,) = (
        one.bandwidth_bytes_per_s.value for one in profile.streams if one.kind == "read"
    )
    for node, scale in ((AVERAGE, AVERAGE_SCALE), (LAST, LAST_SCALE)):
        assert found[node].bytes_per_s_per_unit.value == pytest.approx(scale, rel=0.1)
        assert found[node].idle_raw * scale == pytest.approx(
            IDLE_BYTES_PER_S, abs=0.1 * load_bytes_per_s
        )
