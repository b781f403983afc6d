"""Profiles that probes made, and files that only look like them."""

from pathlib import Path

import pytest

from edgeprof.errors import FileFault, UsageFault
from edgeprof.hardware.measured import MeasuredProfile, as_toml, read_measured

GOOD = """schema = "edgeprof.probe/1"
created_utc = "2026-01-01T00:00:00Z"
edgeprof_version = "0.1.0"
complete = true
duration_s = 40.0
provider = "cpu"
threads = 2

[machine]
name = "a machine"
kind = "host"
architecture = "x86_64"
cores = 2
memory_bytes = 1000

[[stream]]
kind = "read"
size_bytes = 100
bandwidth_bytes_per_s = {value = 2e9, low = 1e9, high = 3e9, n = 5}

[[kernel]]
weights = "int4"
accuracy_level = 4
operator = "int4 MatMulNBits"
weight_bytes = 100
flop_per_row = 400
bandwidth_bytes_per_s = {value = 1e9, low = 1e9, high = 1e9, n = 5}
flop_per_s = {value = 8e9, low = 8e9, high = 8e9, n = 5}

[[kernel.pass]]
tokens = 1
time_s = {value = 1e-7, low = 1e-7, high = 1e-7, n = 5}
cost = {value = 1.0, low = 1.0, high = 1.0, n = 5}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "probe.toml"
    path.write_text(text)
    return path


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    profile = read_measured(written(tmp_path, GOOD))
    again = read_measured(written(tmp_path, as_toml(profile)))
    assert again == profile
    (kernel,) = profile.kernels
    assert kernel.label == "int4:4"
    assert kernel.ridge_rows == pytest.approx(100 / 1e9 * 8e9 / 400)  # 2 rows
    assert profile.best_bandwidth_bytes_per_s == 2e9
    assert profile.rates_flop_per_s() == {"int4": 8e9}


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("value = 2e9", "value = nan", "stream"),
        ("value = 2e9", "value = inf", "stream"),
        ("value = 2e9", "value = -2e9", "stream"),
        ("value = 2e9", "value = 1e30", "stream"),
        ("value = 2e9", "value = 9e9", "low <= value <= high"),
        ("value = 2e9", 'value = "fast"', "stream"),
        ("tokens = 1", "tokens = 0", "pass"),
        ("tokens = 1", "tokens = 99999999", "pass"),
        ("cores = 2", "cores = -1", "cores"),
        ("duration_s = 40.0", "duration_s = nan", "duration_s"),
        ("threads = 2", "threads = 2\nthread = 3", "did you mean 'threads'"),
        ('provider = "cpu"', 'provider = "abacus"', "provider"),
        ('weights = "int4"', 'weights = "int5"', "weights"),
        ("weight_bytes = 100", "weight_bytes = 99999999999999999999", "weight_bytes"),
        ('created_utc = "2026', 'created_utc = "yesterday 2026', "created_utc"),
        ("edgeprof.probe/1", "edgeprof.probe/9", "edgeprof probe"),
        ("[machine]", "[machine", "not valid TOML"),
        ('name = "a machine"', f'name = "{"a" * 500}"', "machine.name"),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_name(
    tmp_path: Path, good: str, bad: str, told: str
) -> None:
    assert good in GOOD
    path = written(tmp_path, GOOD.replace(good, bad, 1))
    with pytest.raises(FileFault) as fault:
        read_measured(path)
    assert str(path) in str(fault.value) and told in str(fault.value)


def test_a_file_that_is_too_large_or_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFault, match="1 MiB"):
        read_measured(written(tmp_path, GOOD + "# " + "x" * (1 << 20)))
    with pytest.raises(UsageFault, match="No such file"):
        read_measured(tmp_path / "none.toml")


def test_absent_is_left_out_of_the_file_and_never_zero(tmp_path: Path) -> None:
    text = as_toml(read_measured(written(tmp_path, GOOD)))
    assert "l4t" not in text and "load_average" not in text
    assert isinstance(read_measured(written(tmp_path, text)), MeasuredProfile)
