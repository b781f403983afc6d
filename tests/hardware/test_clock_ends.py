"""Which clocks are pinned, by the ends between which they may move."""

from pathlib import Path

from handmade_tree import put

from edgeprof.hardware.board_facts import EmcRange
from edgeprof.hardware.board_files import BoardFiles
from edgeprof.hardware.clock_ends import read_clock_ends

GPU = "/sys/class/devfreq/17000000.gpu"
CPU = "/sys/devices/system/cpu"


def test_each_part_is_pinned_or_free_on_its_own(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            f"{GPU}/min_freq": "1020000000",
            f"{GPU}/max_freq": "1020000000",
            f"{GPU}/cur_freq": "1020000000",
            "/sys/class/devfreq/gpu-nvd-0/max_freq": "1692000000",  # the video engines' clock
            f"{CPU}/cpu0/cpufreq/scaling_min_freq": "729600",
            f"{CPU}/cpu0/cpufreq/scaling_max_freq": "729600",
            f"{CPU}/cpu4/cpufreq/scaling_min_freq": "115200",
            f"{CPU}/cpu4/cpufreq/scaling_max_freq": "1728000",
            f"{CPU}/cpufreq/policy0/scaling_max_freq": "1",
        },
    )
    emc = EmcRange(low_hz=204e6, high_hz=3199e6, now_hz=665.6e6, file="/emc/max_rate")
    found = {one.part: one for one in read_clock_ends(BoardFiles(tmp_path), emc)}
    assert {part: one.pinned for part, one in found.items()} == {
        "memory": False, "GPU": True, "CPU": False,
    }  # fmt: skip
    assert found["memory"].now_hz == 665.6e6
    assert (found["CPU"].low_hz, found["CPU"].high_hz) == (115.2e6, 1.728e9)
    assert found["CPU"].file == f"{CPU}/cpu4/cpufreq/scaling_max_freq"


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, {f"{GPU}/min_freq": "1", f"{GPU}/max_freq": "much"})
    assert read_clock_ends(BoardFiles(tmp_path), None) == []
