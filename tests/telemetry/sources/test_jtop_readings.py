"""What a jtop update means in the units of edgeprof, and when its EMC percentage is believed."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from emulated.jtop_standin import ORIN_NANO

from edgeprof.telemetry.source import BoardFigures, Reading, SourceName
from edgeprof.telemetry.sources.jtop_readings import (
    EmcCheck,
    Truth,
    Update,
    is_percentage,
    readings,
)

BOARD = BoardFigures(bytes_per_emc_clock=32.0)


def update(**sections: Any) -> Update:
    return Update(heard_ns=0, boottime_offset_ns=0, **sections)


def values(
    board: BoardFigures = BOARD, *, believe_emc: bool = False, **sections: Any
) -> dict[str, float | None]:
    found = readings(update(**sections), board, believe_emc=believe_emc)
    return {name: reading.value for name, reading in found.items()}


def gpu(**entry: Any) -> dict[str, float | None]:
    found = values(gpu={"gpu": {"type": "integrated", **entry}})
    return {name: found[name] for name in ("gpu_busy_frac", "gpu_clock_hz")}


def emc(entry: Any, *, believe_emc: bool = True) -> dict[str, Reading]:
    found = readings(update(memory={"EMC": entry}), BOARD, believe_emc=believe_emc)
    return {name: reading for name, reading in found.items() if "emc" in name or "dram" in name}


def test_units_are_si_and_names_are_the_boards() -> None:
    sections = {name: ORIN_NANO[name] for name in ("memory", "gpu", "power", "temperature")}
    found = readings(update(**sections, cores_online=[True, True, False]), BOARD, believe_emc=False)
    assert {name: reading.value for name, reading in found.items()} == {
        "emc_clock_hz": 2_133_000_000,
        "gpu_busy_frac": 0.555,
        "gpu_clock_hz": 612_000_000,  # the faster of two clusters
        "power_w.VDD_CPU_GPU_CV": 1.473,
        "power_w.VDD_SOC": 1.375,
        "power_w.total": 5.894,
        "temp_c.cpu": 48.5,
        "temp_c.cv0": None,  # off
        "ram_used_bytes": 3_153_920_000,
        "ram_total_bytes": 7_987_200_000,
        "swap_used_bytes": 1_024_000,
        "cpu_online": 2,
    }
    assert found["gpu_busy_frac"].raw == "55.5"
    assert found["temp_c.cv0"].raw == "-256"


def test_an_empty_update_says_nothing() -> None:
    assert set(values().values()) == {None}


def test_s22_a_gpu_without_a_clock_keeps_its_load() -> None:
    assert gpu(status={"load": 41.0}) == {"gpu_busy_frac": 0.41, "gpu_clock_hz": None}


def test_s22_a_gpu_whose_power_is_gated_has_no_clock_and_no_load() -> None:
    """Its file shows 0, which is no frequency."""
    assert gpu(status={}, freq={"cur": 0}) == {"gpu_busy_frac": None, "gpu_clock_hz": None}
    gated = {"gpu": {"freq": {"cur": 0, "GPC": [0, 0]}}}
    found = readings(update(gpu=gated), BOARD, believe_emc=False)
    assert found["gpu_clock_hz"] == Reading(None, "0", reason="the GPU is switched off")
    assert found["gpu_busy_frac"] == Reading(None, reason="the GPU is switched off")
    assert gpu(freq={"cur": 0, "GPC": [0, 612_000]})["gpu_clock_hz"] == 612_000_000


def test_s23_an_empty_gpu_is_unknown() -> None:
    assert values(gpu={})["gpu_busy_frac"] is None
    assert values(gpu={"gpu": "?"})["gpu_clock_hz"] is None


def test_nvml_gives_mhz_and_sysfs_khz() -> None:
    thor = {"status": {"load": 87.0}, "freq": {"cur": 1575, "GPC": []}, "power_control": "nvml"}
    assert gpu(**thor) == {"gpu_busy_frac": 0.87, "gpu_clock_hz": 1_575_000_000}
    khz = {"status": {"load": 87.0}, "freq": {"cur": 1_575_000, "GPC": [1_575_000]}}
    assert gpu(**khz, power_control="nvml")["gpu_clock_hz"] == 1_575_000_000
    assert gpu(freq={"cur": 76_800})["gpu_clock_hz"] == 76_800_000


def test_a_load_of_0_from_an_nvml_that_gives_no_clock_is_unknown() -> None:
    silent = {"status": {"load": 0.0}, "freq": {"cur": 306_000}, "power_control": "nvml"}
    assert gpu(**silent)["gpu_busy_frac"] is None
    none_at_all = {"status": {"load": 0.0}, "freq": {"cur": 0}, "power_control": "nvml"}
    assert gpu(**none_at_all) == {"gpu_busy_frac": None, "gpu_clock_hz": None}
    idle = {"status": {"load": 0.0}, "freq": {"cur": 306}, "power_control": "nvml"}
    assert gpu(**idle)["gpu_busy_frac"] == 0
    assert gpu(status={"load": 0.0}, freq={"cur": 306_000})["gpu_busy_frac"] == 0


def test_s18_a_sum_without_a_name_is_no_total() -> None:
    power = {
        "rail": {
            "VDD_GPU_SOC": {"power": 4864},
            "VDD_CPU_CV": {"power": 1459, "online": True},
            "VIN_SYS_5V0": {"power": 3500},
            "NC": {"power": 0},
            "VDDQ_OFF": {"power": 12, "online": False},
        },
        "tot": {"power": 9823, "avg": 9823},
    }
    board = BoardFigures(module_rails=("VDD_GPU_SOC", "VDD_CPU_CV"))
    found = {k: v for k, v in values(board, power=power).items() if k.startswith("power_w")}
    assert found == {
        "power_w.VDD_GPU_SOC": 4.864,
        "power_w.VDD_CPU_CV": 1.459,
        "power_w.VIN_SYS_5V0": 3.5,
        "power_w.VDDQ_OFF": None,
        "power_w.module_sum": pytest.approx(6.323),
    }
    gone = BoardFigures(module_rails=("VDD_GPU_SOC", "VDD_ELSE"))
    assert values(gone, power=power)["power_w.module_sum"] is None


def test_temperatures_are_of_one_name_each() -> None:
    zones = {"CPU": {"temp": 30.0}, "cpu-therm": {"temp": 31.0}, "PMIC": {"temp": 100.0}, "tj": {}}
    found = {k: v for k, v in values(temperature=zones).items() if k.startswith("temp_c")}
    assert found == {"temp_c.cpu": 30.0, "temp_c.tj": None}


@pytest.mark.parametrize("number", ["12", True, None, {"cur": 1}, [1], 1e300])
def test_what_is_no_number_is_unknown(number: Any) -> None:
    odd = values(
        memory={"EMC": {"cur": number}, "RAM": {"used": number, "tot": number}},
        gpu={"gpu": {"status": {"load": number}, "freq": {"cur": number, "GPC": [number]}}},
        power={"rail": {"VDD_SOC": {"power": number}}, "tot": number},
        temperature={"cpu": {"temp": number}},
        cores_online=["yes", number] if number is not True else None,
    )
    assert set(odd.values()) == {None}


def test_s09_a_clock_of_1_khz_is_unknown_and_so_is_the_bandwidth() -> None:
    found = emc({"cur": 1, "val": 845000, "online": True})
    assert found["emc_clock_hz"] == Reading(None, "1")
    assert found["emc_busy_frac"] == Reading(8450.0, "845000", "suspect")
    assert found["dram_bandwidth_bytes_per_s"].value is None
    assert [*emc({"cur": 1, "val": 845000}, believe_emc=False)] == ["emc_clock_hz"]


def test_s39_a_memory_size_in_place_of_the_percentage_is_suspect() -> None:
    found = emc(1745160)
    assert found["emc_busy_frac"] == Reading(17451.6, "1745160", "suspect")
    assert found["emc_clock_hz"].value is None


def test_a_percentage_that_is_believed_gives_bandwidth_at_its_clock() -> None:
    found = emc({"cur": 2133000, "val": 80})
    assert found["emc_busy_frac"] == Reading(0.8, "80")
    # 0.8 x 2133 MHz x 32 B
    assert found["dram_bandwidth_bytes_per_s"].value == pytest.approx(54.6048e9)
    assert emc({"cur": 2133000, "val": 103})["emc_busy_frac"] == Reading(1.0, "103")
    assert not is_percentage(106) and not is_percentage(-1) and is_percentage(105)


def checked(pairs: Sequence[tuple[float | None, float | None]]) -> tuple[bool, dict[str, Any]]:
    """What ten updates come to; each is the percentage and the true share."""
    return checked_against("sysfs", pairs)


def checked_against(
    source: SourceName, pairs: Sequence[tuple[float | None, float | None]]
) -> tuple[bool, dict[str, Any]]:
    truths: Iterator[Truth | None] = iter(
        [None if truth is None else Truth(source, truth) for _, truth in pairs]
    )
    check = EmcCheck(lambda: next(truths))
    outcomes = [check.look(percent) for percent, _ in pairs]
    assert outcomes[:-1] == [None] * 9
    assert outcomes[-1] is not None
    assert check.look(50.0) is None  # told once
    return check.agreed, outcomes[-1]


def test_a_percentage_that_agrees_under_load_is_believed() -> None:
    agreed, outcome = checked([(79.0, 0.8)] * 10)
    assert agreed
    assert outcome["pairs"] == [[0.79, 0.8]] * 9  # the first may not have been steady
    assert outcome["agreed"] is True


def test_the_missing_factor_of_100_is_noticed() -> None:
    agreed, outcome = checked([(0.0, 0.8)] * 10)
    assert not agreed
    assert outcome["reason"] == "said 0.00% where 80.00% was true"


def test_one_pair_that_disagrees_is_enough() -> None:
    assert not checked([(80.0, 0.8)] * 9 + [(60.0, 0.8)])[0]
    assert checked([(80.0, 0.8)] * 9 + [(72.5, 0.8)])[0]  # within a tenth


@pytest.mark.parametrize(
    "pairs",
    [
        [(1.0, 0.01)] * 10,  # an idle board proves nothing: wrong by 100 it would say 0
        [(80.0, 0.8), (20.0, 0.2)] * 5,  # nor does a load that changes within an update
        [(80.0, 0.8)] * 3 + [(80.0, None)] * 7,  # two pairs
    ],
)
def test_without_three_steady_pairs_under_load_it_is_not_believed(
    pairs: list[tuple[float | None, float | None]],
) -> None:
    agreed, outcome = checked(pairs)
    assert not agreed
    assert outcome["reason"].startswith("fewer than 3")


def test_without_a_truth_it_is_not_believed() -> None:
    agreed, outcome = checked([(80.0, None)] * 10)
    assert not agreed
    assert outcome == {
        "agreed": False,
        "against": None,
        "pairs": [],
        "reason": "neither the node nor tegrastats tells it",
    }


def test_a_service_that_tells_no_percentage_is_no_service_without_a_steady_load() -> None:
    agreed, outcome = checked([(None, 0.8)] * 10)
    assert not agreed
    assert (outcome["against"], outcome["reason"]) == ("sysfs", "the service tells none")


def test_the_whole_per_cents_of_tegrastats_are_a_truth_too() -> None:
    agreed, outcome = checked_against("tegrastats", [(0.0, 0.8)] * 10)
    assert not agreed
    assert outcome["against"] == "tegrastats"
    assert outcome["pairs"] == [[0.0, 0.8]] * 9
    assert outcome["reason"] == "said 0.00% where 80.00% was true"
    assert checked_against("tegrastats", [(80.0, 0.81)] * 10)[0]


def test_all_pairs_are_against_one_source() -> None:
    """Another one may average over another time."""
    truths = iter([Truth("tegrastats", 0.8)] * 4 + [Truth("sysfs", 0.8)] * 6)
    check = EmcCheck(lambda: next(truths))
    *_, outcome = [check.look(80.0) for _ in range(10)]
    assert outcome is not None
    assert outcome["against"] == "sysfs"
    assert outcome["pairs"] == [[0.8, 0.8]] * 5  # of 6 readings, the first has none before it


def test_a_check_that_is_cut_short_believes_nothing_and_says_how_far_it_came() -> None:
    check = EmcCheck(lambda: Truth("sysfs", 0.8))
    assert check.cut_short() is None  # nothing came: there is no outcome
    for _ in range(6):
        check.look(80.0)
    outcome = check.cut_short()
    assert outcome is not None
    assert not check.agreed and outcome["agreed"] is False
    assert outcome["pairs"] == [[0.8, 0.8]] * 5
    assert outcome["reason"] == "the recording ended after 6 of 10 updates"

    unknown = EmcCheck(lambda: None)
    unknown.look(80.0)
    outcome = unknown.cut_short()
    assert outcome is not None
    assert outcome["reason"] == "neither the node nor tegrastats tells it"


def test_a_check_that_is_done_is_not_cut_short() -> None:
    check = EmcCheck(lambda: Truth("sysfs", 0.8))
    assert [check.look(80.0) is not None for _ in range(10)] == [False] * 9 + [True]
    assert check.cut_short() is None and check.agreed
