"""Power rails by their labels; watts worked out by hand."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from handmade_tree import absences, channels, link, put, readings, values

from edgeprof.hardware.board_files import BoardFiles
from edgeprof.telemetry.source import BoardFigures, Offer, Reading
from edgeprof.telemetry.sources.sysfs import open_sysfs
from edgeprof.telemetry.sources.sysfs_power import open_power

TOTAL, SUM = "power_w.total", "power_w.module_sum"
Rail = tuple[str, int, int]  # label, mV, mA


def offer_of(root: Path, *module_rails: str) -> Offer:
    return open_sysfs(BoardFigures(root=str(root), module_rails=module_rails))


def put_chip(root: Path, rails: Sequence[Rail], *, address: str = "1-0040", number: int = 3) -> str:
    """An INA3221 as a board shows it: through its I2C device, and through its class."""
    device = f"/sys/devices/platform/bus@0/c240000.i2c/i2c-{address[0]}/{address}"
    chip = f"{device}/hwmon/hwmon{number}"
    put(root, {f"{chip}/name": "ina3221"})
    put(root, {f"{chip}/in7_label": "sum of shunt voltages", f"{chip}/in7_input": "5"})
    put(root, {f"{chip}/in4_label": "SHUNT", f"{chip}/in4_input": "5", f"{chip}/curr4_input": "5"})
    for channel, (label, millivolts, milliamperes) in enumerate(rails, 1):
        put(root, {f"{chip}/in{channel}_label": label})
        put(root, {f"{chip}/in{channel}_input": str(millivolts)})
        put(root, {f"{chip}/curr{channel}_input": str(milliamperes)})
    link(root, f"/sys/bus/i2c/devices/{address}", device)
    link(root, f"/sys/class/hwmon/hwmon{number}", chip)
    return chip


ORIN_NANO = [("VDD_IN", 4912, 1200), ("VDD_CPU_GPU_CV", 4912, 300), ("VDD_SOC", 4912, 280)]


def test_s17_the_total_is_a_rail_and_no_sum(tmp_path: Path) -> None:
    chip = put_chip(tmp_path, ORIN_NANO)
    offer = offer_of(tmp_path)
    assert values(offer) == {
        TOTAL: pytest.approx(5.8944),  # 4.912 V x 1.2 A
        "power_w.VDD_CPU_GPU_CV": pytest.approx(1.4736),
        "power_w.VDD_SOC": pytest.approx(1.37536),
    }
    assert channels(offer)[TOTAL].node == f"{chip}/in1_input"
    assert readings(offer)[TOTAL].raw == "4912 x 1200"
    assert {TOTAL, SUM}.isdisjoint(absences(offer))
    assert [reader.rate_hz for reader in offer.readers] == [10]


def test_s18_a_carriers_5_v_input_is_not_the_total(tmp_path: Path) -> None:
    put_chip(tmp_path, [("VDD_GPU_SOC", 12160, 400), ("VDD_CPU_CV", 12160, 120), ("NC", 0, 0)])
    put_chip(
        tmp_path,
        [("NC", 0, 0), ("VIN_SYS_5V0", 5000, 820), ("VDDQ_VDD2_1V8AO", 5000, 100)],
        address="1-0041",
        number=4,
    )
    offer = offer_of(tmp_path)
    assert values(offer) == {
        "power_w.VDD_GPU_SOC": pytest.approx(4.864),
        "power_w.VDD_CPU_CV": pytest.approx(1.4592),
        "power_w.VIN_SYS_5V0": pytest.approx(4.1),
        "power_w.VDDQ_VDD2_1V8AO": pytest.approx(0.5),
    }
    assert "VDD_GPU_SOC, VDD_CPU_CV, VIN_SYS_5V0" in absences(offer)[TOTAL].reason
    assert SUM not in absences(offer)  # no profile declares one


def test_the_sum_that_a_profile_declares(tmp_path: Path) -> None:
    chip = put_chip(tmp_path, [("VDD_GPU_SOC", 12000, 500), ("VDD_CPU_CV", 12000, 100)])
    offer = offer_of(tmp_path, "VDD_GPU_SOC", "VDD_CPU_CV")
    assert values(offer)[SUM] == pytest.approx(7.2)
    assert channels(offer)[SUM].note == "sum of VDD_GPU_SOC, VDD_CPU_CV"
    put(tmp_path, {f"{chip}/curr2_input": ""})
    assert readings(offer)[SUM].value is None
    assert values(offer)["power_w.VDD_GPU_SOC"] == pytest.approx(6.0)


def test_no_sum_where_a_rail_of_it_is_missing(tmp_path: Path) -> None:
    put_chip(tmp_path, [("VDD_GPU_SOC", 12000, 500)])
    offer = offer_of(tmp_path, "VDD_GPU_SOC", "VDD_CPU_CV")
    assert SUM not in channels(offer)
    assert absences(offer)[SUM].reason == "not all rails of the sum are there, only VDD_GPU_SOC"


def test_thors_input_is_in_microwatts(tmp_path: Path) -> None:
    put_chip(tmp_path, [("VDD_GPU", 9000, 700), ("VIN_SYS_5V0", 5000, 900)])
    chip = "/sys/bus/i2c/devices/2-0044/hwmon/hwmon4"
    put(tmp_path, {f"{chip}/name": "ina238", f"{chip}/power1_input": "28900000"})
    put(tmp_path, {f"{chip}/in1_input": "20000", f"{chip}/curr1_input": "1445"})
    assert values(offer_of(tmp_path)) == {
        "power_w.VDD_GPU": pytest.approx(6.3),
        "power_w.VIN_SYS_5V0": pytest.approx(4.5),
        TOTAL: pytest.approx(28.9),
    }


def test_agx_xavier_names_its_rails_like_engines(tmp_path: Path) -> None:
    put_chip(tmp_path, [("GPU", 19000, 10), ("CPU", 19000, 20), ("SOC", 19000, 50)])
    assert values(offer_of(tmp_path)) == {
        "power_w.GPU": pytest.approx(0.19),
        "power_w.CPU": pytest.approx(0.38),
        "power_w.SOC": pytest.approx(0.95),
    }


def test_the_driver_of_jetpack_4(tmp_path: Path) -> None:
    device = "/sys/devices/7000c400.i2c/i2c-6/6-0040"
    chip = f"{device}/iio:device0"
    for channel, (rail, milliwatts) in enumerate(
        [("POM_5V_IN", 2345), ("POM_5V_GPU", 0), ("POM_5V_CPU", 812)]
    ):
        put(tmp_path, {f"{chip}/rail_name_{channel}": rail})
        put(tmp_path, {f"{chip}/in_power{channel}_input": str(milliwatts)})
    drivers = "/sys/bus/i2c/drivers/ina3221x"
    put(tmp_path, {f"{drivers}/bind": ""})
    link(tmp_path, f"{drivers}/6-0040", device)
    offer = offer_of(tmp_path)
    assert values(offer) == {TOTAL: 2.345, "power_w.POM_5V_GPU": 0.0, "power_w.POM_5V_CPU": 0.812}
    assert channels(offer)[TOTAL].node == f"{drivers}/6-0040/iio:device0/in_power0_input"


def test_a_second_total_and_a_second_rail_of_one_name_keep_apart(tmp_path: Path) -> None:
    put_chip(tmp_path, [("VDD_IN", 5000, 1000), ("VDD_SOC", 5000, 100), ("VDD_SOC", 5000, 200)])
    put_chip(tmp_path, [("VIN", 19000, 1000)], address="2-0041", number=4)
    assert values(offer_of(tmp_path)) == {
        TOTAL: 5.0,
        "power_w.VDD_SOC": 0.5,
        "power_w.VDD_SOC_2": 1.0,
        "power_w.VIN": 19.0,
    }


def test_the_chips_own_average_is_its_window(tmp_path: Path) -> None:
    chip = put_chip(tmp_path, ORIN_NANO)
    put(tmp_path, {f"{chip}/update_interval": "35"})
    told = channels(offer_of(tmp_path))[TOTAL]
    assert (told.window_s, told.window_kind, told.window_basis) == (0.035, "boxcar", "documented")
    for nonsense in ("0", "-1", "many", "99999999999999999999"):
        put(tmp_path, {f"{chip}/update_interval": nonsense})
        told = channels(offer_of(tmp_path))[TOTAL]
        assert (told.window_s, told.window_kind, told.window_basis) == (None, "unknown", None)


def test_chips_that_are_numbered_anew_are_not_taken_for_each_other(tmp_path: Path) -> None:
    first = put_chip(tmp_path, [("VDD_IN", 5000, 1000)], number=3)
    second = put_chip(tmp_path, [("VDD_SOC", 5000, 200)], address="1-0041", number=4)
    offer = offer_of(tmp_path)
    assert values(offer) == {TOTAL: 5.0, "power_w.VDD_SOC": 1.0}
    shutil.rmtree(tmp_path / "sys")
    put_chip(tmp_path, [("VDD_IN", 5000, 1000)], number=4)
    put_chip(tmp_path, [("VDD_SOC", 5000, 200)], address="1-0041", number=3)
    assert values(offer) == {}
    assert {first, second} == {
        (channels(offer)[name].node or "").removesuffix("/in1_input")
        for name in (TOTAL, "power_w.VDD_SOC")
    }
    assert values(offer_of(tmp_path)) == {TOTAL: 5.0, "power_w.VDD_SOC": 1.0}


@pytest.mark.parametrize("label", ["", "NC", "sum of shunt voltages", "\x1b[2J", "a" * 5000])
def test_what_is_no_rail_is_left_out(tmp_path: Path, label: str) -> None:
    put_chip(tmp_path, [("VDD_IN", 5000, 1000), (label, 5000, 1000)])
    assert set(channels(offer_of(tmp_path))) == {TOTAL}


def test_a_register_that_cannot_be_read_costs_its_rail_only(tmp_path: Path) -> None:
    chip = put_chip(tmp_path, ORIN_NANO)
    offer = offer_of(tmp_path)
    put(tmp_path, {f"{chip}/in2_input": ""})
    (tmp_path / f"{chip[1:]}/curr3_input").unlink()
    assert values(offer) == {TOTAL: pytest.approx(5.8944)}
    assert readings(offer)["power_w.VDD_SOC"].value is None


def test_a_board_without_sensors_says_so(tmp_path: Path) -> None:
    put(tmp_path, {"/sys/class/hwmon/hwmon0/name": "pwmfan"})
    assert absences(offer_of(tmp_path))["power_w"].reason.startswith("there is no power sensor")


# A chip is registered anew


def read_of(root: Path, now_ns: list[int]) -> Callable[[], Mapping[str, Reading]]:
    """How the rails are read while the clock shows the only entry of ``now_ns``."""
    offer = open_power(BoardFiles(root), BoardFigures(root=str(root)), clock=lambda: now_ns[0])
    return offer.readers[0].read


def forget_chip(root: Path, chip: str) -> None:
    """Take away all that shows it."""
    shutil.rmtree(root / chip.lstrip("/"))
    (root / "sys/bus/i2c/devices/1-0040").unlink()
    (root / f"sys/class/hwmon/{Path(chip).name}").unlink()


def test_a_chip_with_another_number_is_found_again_by_its_place_and_label(tmp_path: Path) -> None:
    now_ns = [0]
    chip = put_chip(tmp_path, ORIN_NANO)
    read = read_of(tmp_path, now_ns)
    assert read()[TOTAL].value == pytest.approx(5.8944)
    forget_chip(tmp_path, chip)
    lost = read()[TOTAL]
    assert (lost.value, lost.reason) == (None, "no such file or directory")
    now_ns[0] += 1_000_000_000
    assert read()[TOTAL].value is None
    # Its rails are in another order, and there is a new chip with the number that it had.
    put_chip(tmp_path, [*ORIN_NANO[1:], ("VDD_IN", 5000, 1000)], number=7)
    put_chip(tmp_path, [("VDD_IN", 12000, 9000)], address="1-0041", number=3)
    now_ns[0] += 999_999_999
    assert read()[TOTAL].value is None  # it is looked for once a second
    now_ns[0] += 1
    found = read()
    assert found[TOTAL].value == pytest.approx(5.0)
    assert found["power_w.VDD_SOC"].value == pytest.approx(1.37536)
    assert set(found) == {TOTAL, "power_w.VDD_CPU_GPU_CV", "power_w.VDD_SOC"}


def test_of_two_chips_that_cannot_be_told_apart_neither_is_taken(tmp_path: Path) -> None:
    now_ns = [0]
    folder = "/sys/class/hwmon/hwmon3"  # no device tells where it sits
    rails = {f"{folder}/in1_label": "VDD_IN", f"{folder}/in1_input": "5000"}
    put(tmp_path, {f"{folder}/name": "ina3221", **rails, f"{folder}/curr1_input": "1000"})
    read = read_of(tmp_path, now_ns)
    assert read()[TOTAL].value == 5.0
    shutil.move(tmp_path / folder.lstrip("/"), tmp_path / "sys/class/hwmon/hwmon4")
    shutil.copytree(tmp_path / "sys/class/hwmon/hwmon4", tmp_path / "sys/class/hwmon/hwmon5")
    shutil.rmtree(tmp_path / "sys/class/hwmon/hwmon4")
    shutil.copytree(tmp_path / "sys/class/hwmon/hwmon5", tmp_path / "sys/class/hwmon/hwmon3")
    for second in range(3):
        now_ns[0] = second * 1_000_000_000
        assert read()[TOTAL].value is None
    shutil.rmtree(tmp_path / "sys/class/hwmon/hwmon3")
    now_ns[0] = 3_000_000_000
    assert read()[TOTAL].value == 5.0
