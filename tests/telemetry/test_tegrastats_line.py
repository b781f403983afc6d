"""Lines of tegrastats of every release: each form, and everything that is not one.

The lines of tests/data/tegrastats_lines.jsonl have the forms that boards print and figures of our
own; what is expected of them was worked out by hand.
"""

import json
import random
import re
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from edgeprof.telemetry.signals import unit_of
from edgeprof.telemetry.source import Reading
from edgeprof.telemetry.tegrastats_line import (
    LONGEST_LINE,
    TegrastatsLine,
    begins_whole,
    parse_line,
    readings,
)

DATA = Path(__file__).parent.parent / "data" / "tegrastats_lines.jsonl"
LINES: dict[str, str] = {
    row["id"]: row["line"] for row in map(json.loads, DATA.read_text().splitlines())
}
MIB = 2**20


def parsed(text: str) -> TegrastatsLine:
    line = parse_line(text)
    assert line is not None
    return line


def values(text: str, bytes_per_clock: float | None = 32.0) -> dict[str, float | None]:
    return {name: reading.value for name, reading in read(text, bytes_per_clock).items()}


def read(text: str, bytes_per_clock: float | None = 32.0) -> Mapping[str, Reading]:
    return readings(parsed(text), bytes_per_clock)


@pytest.mark.parametrize("name", LINES)
def test_every_form_is_read_with_nothing_left_over(name: str) -> None:
    line = parsed(LINES[name])
    assert line.unread == ()
    found = readings(line, 32.0)
    for signal, reading in found.items():
        unit_of(signal)  # every one is a signal
        assert reading.quality == "ok"
    assert line.cores is not None and line.gpu is not None
    assert len(found) >= 10


EXPECTED: dict[str, dict[str, float | None]] = {
    "tx1-r28": {  # names without _FREQ, one clock behind the list of cores
        "emc_busy_frac": 0.01,
        "emc_clock_hz": 408e6,
        "dram_bandwidth_bytes_per_s": 0.01 * 408e6 * 32,
        "gpu_busy_frac": 0.03,
        "gpu_clock_hz": 76e6,
        "cpu_busy_frac": (0.17 + 0.16 + 0.32 + 0.06) / 4,
        "cpu_online": 4,
        "ram_used_bytes": 3486 * MIB,
        "ram_total_bytes": 3983 * MIB,
        "swap_used_bytes": 895 * MIB,
    },
    "tx1-r32": {
        "dram_bandwidth_bytes_per_s": 0.07 * 408e6 * 32,
        "power_w.total": 2.564,  # VDD_IN, mW without a unit
        "power_w.VDD_CPU": 0.163,
        "power_w.VDD_GPU": 0.058,
        "temp_c.gpu": 40.5,
        "temp_c.tdiode": 43.75,
    },
    "tx2-r32": {
        "cpu_busy_frac": (0.03 + 0.03 + 0.02 + 0.02) / 4,
        "cpu_online": 4,
        "swap_used_bytes": 0,  # a zero that was measured
        "dram_bandwidth_bytes_per_s": 0.04 * 1600e6 * 32,
        "power_w.total": 3.098,
        "power_w.VDD_4V0_WIFI": 0,
    },
    "nano-r32": {
        "emc_busy_frac": 0,  # at a clock: measured
        "emc_clock_hz": 204e6,
        "dram_bandwidth_bytes_per_s": 0,
        "power_w.total": 1.108,  # POM_5V_IN
        "power_w.POM_5V_CPU": 0.234,
    },
    "agx-xavier-r32": {  # rails named like engines, cores and zones
        "power_w.GPU": 0,
        "power_w.CPU": 0.361,
        "power_w.SYS5V": 1.523,
        "temp_c.gpu": 39,
        "temp_c.cpu": 39.5,
        "cpu_online": 4,
        "cpu_busy_frac": (0.02 + 0.01 + 0.02 + 0.01) / 4,
        "gpu_busy_frac": 0,
        "gpu_clock_hz": 318e6,
    },
    "xavier-nx-r35": {
        "gpu_clock_hz": 510e6,
        "power_w.total": 5.132,
        "power_w.VDD_CPU_GPU_CV": 0.721,
        "emc_clock_hz": 1600e6,
    },
    "agx-orin-r35-two-fields": {
        "gpu_busy_frac": 0,
        "gpu_clock_hz": None,  # two clocks of 0: without power
        "temp_c.gpu": None,  # -256 C: switched off
        "temp_c.tj": 43.093,
        "power_w.VIN_SYS_5V0": 4.052,
        "power_w.VDDQ_VDD2_1V8AO": 0.343,
    },
    "agx-orin-r35-list": {"gpu_busy_frac": 0, "gpu_clock_hz": None, "temp_c.cv0": None},
    "agx-orin-r36": {
        "gpu_clock_hz": 305e6,
        "cpu_online": 12,
        # 3 7 3 1 3 100 2 2 100 3 2 3 are 229
        "cpu_busy_frac": 2.29 / 12,
        "dram_bandwidth_bytes_per_s": 0.01 * 2133e6 * 32,
        "temp_c.gpu": 49.812,
    },
    "agx-orin-r36-user": {"gpu_busy_frac": 0, "gpu_clock_hz": None},  # a load all the same
    "agx-orin-r39": {
        "gpu_busy_frac": 0.12,
        "gpu_clock_hz": 1300e6,
        "dram_bandwidth_bytes_per_s": 0.03 * 3199e6 * 32,
        "temp_c.cpu": 53.468,  # the highest since start stands behind it
        "power_w.VDD_CPU_CV": 3.331,  # so do average and highest
    },
    "orin-nx-r35-user": {  # `0%` without a clock is what a user is shown
        "emc_busy_frac": None,
        "emc_clock_hz": None,
        "dram_bandwidth_bytes_per_s": None,
        "gpu_busy_frac": 0,
        "gpu_clock_hz": None,
    },
    "orin-nano-r35": {"gpu_clock_hz": 305e6, "cpu_online": 4, "power_w.total": 4.975},
    "orin-nano-super-r36-user": {"swap_used_bytes": 1901 * MIB, "power_w.total": 7.263},
    "orin-nano-super-r39": {
        "dram_bandwidth_bytes_per_s": 0.05 * 665e6 * 32,
        "gpu_clock_hz": 305e6,
        "power_w.total": 3.649,
        "temp_c.soc1": 47.281,
    },
    "agx-thor-r39": {
        "dram_bandwidth_bytes_per_s": 0.34 * 4266e6 * 32,
        "gpu_busy_frac": 0.87,
        "gpu_clock_hz": 1574e6,
        "cpu_online": 3,
        "cpu_busy_frac": (0.93 + 0.78 + 0.10) / 3,
        "power_w.total": 124.537,  # VIN, and not VIN_SYS_5V0
        "power_w.VIN_SYS_5V0": 15.562,
        "power_w.VDD_GPU": 37.976,
        "temp_c.soc012": 57.375,
    },
    "drive-orin": {  # a clock without a load
        "emc_busy_frac": None,
        "emc_clock_hz": 2133e6,
        "dram_bandwidth_bytes_per_s": None,
        "gpu_clock_hz": 1109e6,
    },
}


@pytest.mark.parametrize("name", EXPECTED)
def test_values_of_each_generation(name: str) -> None:
    found = values(LINES[name])
    for signal, value in EXPECTED[name].items():
        assert found[signal] == (None if value is None else pytest.approx(value)), signal


@pytest.mark.parametrize("name", ["agx-orin-r36-user", "orin-nano-super-r36-user"])
def test_without_the_field_there_is_no_emc(name: str) -> None:
    assert not {"emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s"} & set(
        values(LINES[name])
    )


@pytest.mark.parametrize("name", ["agx-orin-r35-list", "agx-orin-r36", "agx-xavier-r32"])
def test_s18_no_total_rail_is_made_up(name: str) -> None:
    found = values(LINES[name])
    assert "power_w.total" not in found and "power_w.NC" not in found
    assert "power_w.module_sum" not in found


def test_the_power_chip_is_a_constant_and_no_zone() -> None:
    assert "PMIC@100C" in LINES["nano-r32"]
    assert "temp_c.pmic" not in values(LINES["nano-r32"])


def test_the_stamp_is_a_label() -> None:
    assert parsed(LINES["agx-orin-r39"]).stamp == datetime(2026, 7, 25, 9, 24, 14)
    assert parsed(LINES["nano-r32"]).stamp is None
    odd = parsed("13-45-2026 25:00:00 RAM 5/7MB")
    assert odd.stamp is None and odd.unread == ("13-45-2026 25:00:00",)


# --- the failure catalogue ---


def test_s01_a_clock_for_every_cluster_of_the_gpu() -> None:
    found = values("RAM 5120/7607MB (lfb 3x4MB) EMC_FREQ 41%@3199 GR3D_FREQ 73%@[1020,1018]")
    assert found["gpu_busy_frac"] == pytest.approx(0.73)
    assert found["gpu_clock_hz"] == 1020e6
    assert found["emc_clock_hz"] == 3199e6


def test_s04_a_line_without_gpu_load_keeps_the_rest() -> None:
    found = values(
        "RAM 8000/125771MB (lfb 1x4MB) CPU [0%@1998] VDD_GPU 5200mW/5100mW"
        " VDD_CPU_SOC_MSS 7000mW/6900mW cpu@50.1C/104.0C gpu@47.9C/104.0C"
    )
    assert found["temp_c.gpu"] == 47.9
    assert found["power_w.VDD_GPU"] == 5.2
    assert "gpu_busy_frac" not in found and "gpu_clock_hz" not in found


def test_s05_a_load_without_its_clock_gives_no_bandwidth() -> None:
    text = "RAM 2411/7852MB (lfb 1020x4MB) CPU [7%@345] EMC_FREQ 14% GR3D_FREQ 0% VDD_IN 3395/3310"
    found = values(text)
    assert found["emc_busy_frac"] == pytest.approx(0.14)
    assert found["emc_clock_hz"] is None and found["dram_bandwidth_bytes_per_s"] is None
    assert found["power_w.total"] == 3.395


def test_s12_lines_with_and_without_a_stamp() -> None:
    bare = "RAM 100/7607MB (lfb 1x4MB) CPU [1%@729]"
    stamped = parsed(f"03-02-2026 18:41:07 {bare}")
    assert stamped.stamp == datetime(2026, 3, 2, 18, 41, 7)
    assert readings(stamped, None) == readings(parsed(bare), None)


def test_s14_cores_that_are_off_enter_no_mean() -> None:
    line = parsed("RAM 900/7607MB (lfb 1x4MB) CPU [12%@729,off,off,3%@729,off,off]")
    assert line.cores is not None
    assert [core.on for core in line.cores] == [True, False, False, True, False, False]
    assert [core.busy_frac for core in line.cores] == [0.12, None, None, 0.03, None, None]
    found = readings(line, None)
    assert found["cpu_busy_frac"].value == pytest.approx(0.075)
    assert found["cpu_online"].value == 2


def test_s15_one_clock_behind_the_list_is_that_of_all() -> None:
    line = parsed("RAM 900/3956MB (lfb 10x4MB) CPU [1%,2%,0%,4%]@1190")
    assert line.cores is not None
    assert [core.clock_hz for core in line.cores] == [1190e6] * 4


def test_s16_rails_without_a_unit_are_milliwatts() -> None:
    found = values("VDD_IN 3395/3310 VDD_SYS_GPU 201/188 POM_5V_GPU 4010/3300")
    assert found == {
        "power_w.total": 3.395,
        "power_w.VDD_SYS_GPU": 0.201,
        "power_w.POM_5V_GPU": 4.01,
    }
    assert parsed("VDD_IN 3395/3310").rails["VDD_IN"].raw == "VDD_IN 3395/3310"  # the average


def test_s17_a_total_rail_is_the_total_and_nothing_is_added() -> None:
    text = "VDD_IN 7900mW/7800mW VDD_CPU_GPU_CV 3000mW/2900mW VDD_SOC 1500mW/1500mW"
    both = readings(parsed(text), None, module_rails=("VDD_CPU_GPU_CV", "VDD_SOC"))
    assert both["power_w.total"].value == 7.9
    assert "power_w.module_sum" not in both


def test_s18_the_sum_of_rails_only_where_the_board_declares_it() -> None:
    line = parsed(
        "VDD_GPU_SOC 4000mW/4000mW VDD_CPU_CV 1200mW/1200mW VIN_SYS_5V0 4100mW/4100mW"
        " NC 0mW/0mW VDDQ_VDD2_1V8AO 500mW/500mW"
    )
    rails = ("VDD_GPU_SOC", "VDD_CPU_CV", "VDDQ_VDD2_1V8AO")
    assert readings(line, None, module_rails=rails)["power_w.module_sum"].value == pytest.approx(
        5.7
    )
    partial = readings(line, None, module_rails=(*rails, "VDD_OTHER"))
    assert "power_w.module_sum" not in partial


@pytest.mark.parametrize("placeholder", ["[N/A]", "N/A", "off", "--", "n/a"])
def test_s25_placeholders_are_unknown(placeholder: str) -> None:
    line = parsed(
        f"RAM 5/7MB CPU [{placeholder},4%@729] EMC_FREQ {placeholder}@2133"
        f" GR3D_FREQ {placeholder} VDD_IN {placeholder}/{placeholder}"
    )
    assert line.unread == ()
    found = {name: reading.value for name, reading in readings(line, 32.0).items()}
    assert found["emc_busy_frac"] is None and found["emc_clock_hz"] == 2133e6
    assert found["dram_bandwidth_bytes_per_s"] is None
    assert found["gpu_busy_frac"] is None and found["gpu_clock_hz"] is None
    assert found["power_w.total"] is None
    assert found["cpu_busy_frac"] == pytest.approx(0.04)
    # Whether a core with a placeholder is on, nobody knows.
    assert found["cpu_online"] == (1 if placeholder == "off" else None)


@pytest.mark.parametrize(
    "torn",
    [
        "RAM 4408/62801MB (lfb 17",
        "RAM 4408/62801MB (lfb 17x4MB) CPU [3%@1904,7%@19",
        "%@729,0%@729] EMC_FREQ 1%@2133 GR3D_FREQ 0%@305",
        "RAM 4408/62801MB (lfb 1RAM 4408/62801MB (lfb 17x4MB) SWAP 0/10MB",
        "RAM 4408/62801MB SWAP 0/1 RAM 4409/62801MB SWAP 0/100MB",
        "RAM 4408/62801MB EMC_FREQ 1%@21 09-19-2026 13:34:40 RAM 4409/62801MB",
        "CPU [1%@729] CPU [2%@729]",
        "RAM 4408/62801MB (lfb 17x4MB) SWAP 0/314",
        "RAM 4408/62801MB (lfb 17x4MB) SWAP 0",
        "EMC_FREQ 3%@2133 IRAM 0/2",
    ],
)
def test_s36_a_torn_line_is_no_line(torn: str) -> None:
    assert parse_line(torn) is None


def test_s38_cores_stay_in_the_order_of_their_numbers() -> None:
    line = parsed("CPU [" + ",".join(f"{core}%@729" for core in range(12)) + "]")
    assert line.cores is not None
    assert [core.busy_frac for core in line.cores] == [core / 100 for core in range(12)]


def test_s40_a_percentage_is_of_the_running_clock() -> None:
    # 0.9 x 665 MHz x 32 B = 19.152 GB/s and 0.3 x 2133 MHz x 32 B = 20.4768 GB/s
    name = "dram_bandwidth_bytes_per_s"
    assert values("EMC_FREQ 90%@665")[name] == pytest.approx(19.152e9)
    assert values("EMC_FREQ 30%@2133")[name] == pytest.approx(20.4768e9)
    assert values("EMC_FREQ 30%@2133", None)[name] is None


@pytest.mark.parametrize(
    ("field", "lost"),
    [
        ("EMC_FREQ 14,5%@2133", "emc_busy_frac"),
        ("GR3D_FREQ 73,5%@[305]", "gpu_busy_frac"),
        ("VDD_IN 4,915W/4,9W", "power_w.total"),
        ("gpu@45,5C", "temp_c.gpu"),
        ("SWAP 4,3/7,6GB", "swap_used_bytes"),
    ],
)
def test_s42_a_decimal_comma_costs_its_field_and_no_other(field: str, lost: str) -> None:
    line = parsed(f"RAM 5/7MB {field} tj@46.5C")
    found = readings(line, 32.0)
    assert lost not in found and line.unread == (field,)
    assert found["ram_used_bytes"].value == 5 * MIB and found["temp_c.tj"].value == 46.5


def test_s42_a_list_of_cores_with_commas_is_unknown_as_a_whole() -> None:
    line = parsed("RAM 5/7MB CPU [12,5%@729,3%@729] tj@46.5C")
    found = readings(line, None)
    assert found["cpu_busy_frac"].value is None and "cpu_online" not in found
    assert line.unread == ("CPU [12,5%@729,3%@729]",)


# --- what nobody has seen yet ---


def test_unknown_fields_are_skipped_and_kept() -> None:
    line = parsed(
        "RAM 5/7MB FUTURE_TOKEN value EMC_FREQ 3%@3199 {json:1} GR3D_FREQ 7%@[1300]"
        " X=5;Y=6 [1 2 3] NVENC2_FREQ 4%@[1,2] tj@46.5C (note) VDD_NEW 5W/4W"
    )
    assert line.unread == ("FUTURE_TOKEN value", "{json:1}", "X=5;Y=6 [1 2 3]", "(note)")
    found = readings(line, 32.0)
    assert found["emc_busy_frac"].value == pytest.approx(0.03)
    assert found["gpu_clock_hz"].value == 1300e6
    assert found["power_w.VDD_NEW"].value == 5.0
    assert found["temp_c.tj"].value == 46.5


def test_fields_in_any_order_with_any_spaces_in_any_unit() -> None:
    found = values(
        "\tVDD_IN  5.5W/5W   GR3D_FREQ  12.5%@[ 305 ]  cpu@-3.5C   CPU[ 4%@729 , 6%@729MHz ] "
        " EMC_FREQ   50%@1600MHz RAM 1.5/4GB(lfb 1x1kB)  SWAP 512kB/1MB"
    )
    assert found["power_w.total"] == 5.5
    assert found["temp_c.cpu"] == -3.5
    assert found["cpu_busy_frac"] == pytest.approx(0.05)
    assert found["dram_bandwidth_bytes_per_s"] == pytest.approx(0.5 * 1.6e9 * 32)
    assert found["ram_used_bytes"] == 1.5 * 2**30 and found["ram_total_bytes"] == 4 * 2**30
    assert found["swap_used_bytes"] == 512 * 2**10
    assert "gpu_busy_frac" not in found  # a space inside the list is no form that is known


def test_other_engines_and_gpus_are_not_the_gpu() -> None:
    found = values("RAM 5/7MB GR3D_PCI 99%@2600 NVDLA0_FREQ 80%@1600 GR3D_FREQ 5%@305")
    assert found["gpu_busy_frac"] == pytest.approx(0.05) and found["gpu_clock_hz"] == 305e6


def test_two_fields_of_one_gpu_give_its_highest_clock() -> None:
    found = values("RAM 5/7MB GR3D_FREQ 40%@305 GR3D2_FREQ 40%@611")
    assert found["gpu_busy_frac"] == pytest.approx(0.4) and found["gpu_clock_hz"] == 611e6


@pytest.mark.parametrize(
    ("text", "signal", "value"),
    [
        ("EMC_FREQ 845000%@2133", "emc_busy_frac", 8450.0),
        ("EMC_FREQ 845000%@2133", "dram_bandwidth_bytes_per_s", 8450.0 * 2133e6 * 32),
        ("EMC_FREQ 3%@3199000000", "emc_clock_hz", 3199e12),
        ("EMC_FREQ 3%@3199000000", "dram_bandwidth_bytes_per_s", 0.03 * 3199e12 * 32),
        ("EMC_FREQ -5%@2133", "emc_busy_frac", -0.05),
        ("GR3D_FREQ 101000%@305", "gpu_busy_frac", 1010.0),
        ("CPU [300%@729,0%@729]", "cpu_busy_frac", 1.5),
        ("EMC_FREQ 5%@31", "emc_clock_hz", 31e6),
        ("EMC_FREQ 5%@31", "emc_busy_frac", 0.05),
        ("EMC_FREQ 5%@31", "dram_bandwidth_bytes_per_s", 0.05 * 31e6 * 32),
        ("EMC_FREQ 3%@3199000000", "emc_busy_frac", 0.03),
        ("GR3D_FREQ 5%@0.4", "gpu_clock_hz", 0.4e6),
        ("RAM 9000/7000MB", "ram_used_bytes", 9000 * MIB),
        ("RAM 0/0MB", "ram_total_bytes", 0),
        ("VDD_IN 9999999mW/5mW", "power_w.total", 9999.999),
        ("VDD_IN -20mW/5mW", "power_w.total", -0.02),
        ("gpu@999C", "temp_c.gpu", 999.0),
    ],
)
def test_s09_what_cannot_be_is_kept_and_suspect(text: str, signal: str, value: float) -> None:
    reading = read(text)[signal]
    assert reading.quality == "suspect"
    assert reading.value == pytest.approx(value)


@pytest.mark.parametrize("name", ["RAM", "SWAP", "IRAM"])
@pytest.mark.parametrize("figures", ["0/314", "0/314mW", "5mW"])
def test_a_memory_is_no_rail(name: str, figures: str) -> None:
    line = parsed(f"EMC_FREQ 3%@2133 {name} {figures} tj@45C")
    assert line.rails == {} and line.unread == (f"{name} {figures}",)


@pytest.mark.parametrize("field", ["EMC_FREQ 5", "EMC 0.40", "GR3D 0.40", "GR3D_FREQ 305"])
def test_a_number_alone_is_neither_share_nor_clock(field: str) -> None:
    engine = values(f"RAM 5/7MB {field} tj@45C")
    assert {value for name, value in engine.items() if name[:4] in ("emc_", "gpu_")} == {None}
    assert values("RAM 5/7MB EMC_FREQ 2133MHz")["emc_clock_hz"] == 2133e6


def test_a_memory_at_its_lowest_clock_is_believed() -> None:
    # A TX2 at rest: 0.13 x 40 MHz x 32 B
    found = read("EMC_FREQ 13%@40")
    assert found["emc_clock_hz"] == Reading(40e6, "EMC_FREQ 13%@40")
    assert found["dram_bandwidth_bytes_per_s"].value == pytest.approx(166.4e6)
    assert found["dram_bandwidth_bytes_per_s"].quality == "ok"


def test_a_list_of_cores_that_are_all_off() -> None:
    line = parsed("RAM 5/7MB CPU [off,off]")
    assert line.cores is not None and [core.on for core in line.cores] == [False, False]


def test_a_little_above_all_is_all() -> None:
    assert read("EMC_FREQ 103%@2133")["emc_busy_frac"] == Reading(1.0, "EMC_FREQ 103%@2133")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \t ",
        "hello world",
        "loading 12 of 30",
        "page 3/5",
        "STEP 3/5 loss 0.25",
        "tokens 40% done",
        "06-01-2026 10:00:00",
        "\0" * 4096,
        "x" * (LONGEST_LINE + 1),
        "[" * 1000,
    ],
)
def test_what_is_no_line_of_tegrastats(text: str) -> None:
    assert parse_line(text) is None


def test_nul_bytes_colours_and_marks_of_other_programs_are_no_harm() -> None:
    plain = values(LINES["nano-r32"])
    assert values("\0\0\0" + LINES["nano-r32"] + "\r\n") == plain
    assert values("\x1b[32m" + LINES["nano-r32"] + "\x1b[0m") == plain
    logged = parsed("Sep 19 13:34:40 host tegrastats[812]: " + LINES["nano-r32"])
    assert {n: r.value for n, r in readings(logged, 32.0).items()} == plain
    assert logged.unread == ("13:34:40 host tegrastats[812]:",)


def test_digits_of_other_scripts_are_no_numbers() -> None:
    line = parsed("RAM 5/7MB EMC_FREQ \u0663%@\u0662\u0661\u0663\u0663 gpu@\u0664\u0665C")
    assert readings(line, 32.0).keys() == {"ram_used_bytes", "ram_total_bytes"}


def test_what_was_skipped_is_fit_for_a_terminal() -> None:
    line = parsed("RAM 5/7MB \u202eevil\u2066 " + "y" * 5000)
    assert len(line.unread) == 1
    assert line.unread[0].isprintable() and len(line.unread[0]) <= 120


@pytest.mark.parametrize(
    "text",
    [
        "RAM 5/7MB " + "a " * (LONGEST_LINE // 2 - 8),
        "RAM 5/7MB " + "A1 " * (LONGEST_LINE // 3 - 8),
        "CPU [" + "1%@1," * (LONGEST_LINE // 5 - 8) + "1%]",
        "RAM 5/7MB " + "A" * (LONGEST_LINE - 20),
        "RAM 5/7MB " + "A@" * (LONGEST_LINE // 2 - 20),
        "RAM 5/7MB GR3D_FREQ 5%@[" + "1," * (LONGEST_LINE // 2 - 30) + "x]",
        "RAM 5/7MB" + "()" * (LONGEST_LINE // 2 - 20),
        "RAM 9/9MB EMC_FREQ " + "9" * 60_000 + "%@1",
    ],
)
def test_a_hostile_line_takes_no_more_than_a_moment(text: str) -> None:
    t0 = time.process_time()
    line = parse_line(text)
    assert line is not None
    readings(line, 32.0)
    assert time.process_time() - t0 < 2.0


def test_damaged_lines_give_values_or_none_and_never_an_exception() -> None:
    chooser = random.Random(7)
    letters = "0123456789%@[](),/.-CW \0\x1bMBoff\u0663"
    for text in LINES.values():
        for _ in range(150):
            damaged = list(text)
            for _ in range(chooser.randrange(1, 6)):
                place = chooser.randrange(len(damaged))
                damaged[place : place + chooser.randrange(3)] = chooser.choice(letters)
            line = parse_line("".join(damaged))
            found: Mapping[str, Any] = {} if line is None else readings(line, 32.0)
            for name, reading in found.items():
                unit_of(name)
                assert reading.value is None or abs(reading.value) < float("inf")


def test_whole_lines_begin_with_a_stamp_or_with_ram() -> None:
    assert begins_whole(LINES["agx-orin-r39"]) and begins_whole(LINES["nano-r32"])
    assert not begins_whole("IN 5079mW/5079mW") and not begins_whole("AM 5/7MB")


# What a board can be at; a reading that is believed never lies outside.
PHYSICAL = {
    "emc_busy_frac": (0, 1),
    "emc_clock_hz": (40e6, 10e9),
    "dram_bandwidth_bytes_per_s": (0, 10e9 * 32),
    "gpu_busy_frac": (0, 1),
    "gpu_clock_hz": (10e6, 10e9),
    "cpu_busy_frac": (0, 1),
    "cpu_online": (0, LONGEST_LINE),
    "ram_used_bytes": (0, 2.0**50),
    "ram_total_bytes": (1, 2.0**50),
    "swap_used_bytes": (0, 2.0**50),
    "power_w": (0, 1000),
    "temp_c": (-40, 150),
}
PIECES = ("SWAP 0/314", "EMC_FREQ 5", "EMC_FREQ 5%@3", "GR3D 0.40", "GR3D_FREQ 7%@[0.1,2]", "-",
          "99999999", "%@", "/", "CPU [", "]", "mW", "W", "kB", "nan", "off", "-256C", "\0", "@",
          "VDD_IN 5W/5W", "RAM 5/7TB", "1e400", "0x7f", "09-19-2026 13:00:00")  # fmt: skip


def mutated(text: str, chooser: random.Random) -> str:
    """The line cut, with words lost, swapped or put in, and with figures of other sizes."""
    words = text.split(" ")
    for _ in range(chooser.randrange(1, 4)):
        place = chooser.randrange(len(words))
        kind = chooser.randrange(5)
        if kind == 0:
            words[place] = words[place][: chooser.randrange(len(words[place]) + 1)]
        elif kind == 1:
            words.insert(place, chooser.choice(PIECES))
        elif kind == 2:
            words[place] += chooser.choice(PIECES)
        elif kind == 3:
            other = chooser.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        else:
            digits = str(chooser.randrange(10 ** chooser.randrange(1, 12)))
            words[place] = re.sub(r"\d+", digits, words[place], count=1)
    joined = " ".join(words)
    return joined[: chooser.randrange(len(joined) + 1)] if chooser.random() < 0.3 else joined


def test_no_mutated_line_gives_a_figure_that_is_believed_and_cannot_be() -> None:
    chooser = random.Random(17)
    believed = 0
    for text in LINES.values():
        for _ in range(200):
            damaged = mutated(text, chooser)
            line = parse_line(damaged)
            found = {} if line is None else readings(line, 32.0, module_rails=("VDD_IN", "SOC"))
            for name, reading in found.items():
                low, high = PHYSICAL[name.partition(".")[0]]
                if reading.value is not None and reading.quality == "ok":
                    assert low <= reading.value <= high, (name, reading, damaged)
                    believed += 1
            memories = {"power_w.RAM", "power_w.SWAP", "power_w.IRAM"}
            assert not memories & found.keys(), damaged
    assert believed > 10_000  # most of a line is sound still
