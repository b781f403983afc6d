"""Rails that a profile adds up: disjoint, and of a named scope."""

from pathlib import Path

import pytest

from edgeprof.catalog import DEVICES_FOLDER
from edgeprof.errors import FileFault
from edgeprof.hardware.profile import load_profile

AGX_ORIN = (DEVICES_FOLDER / "agx-orin-64gb.toml").read_text()


def profile_with(folder: Path, rails: str, scope: str = 'scope = "GPU, SoC and CPU"') -> Path:
    power = f'[power]\nmodule_rails = {rails}\n{scope}\nsource = "a test"\n\n'
    path = folder / "agx-orin-64gb.toml"
    path.write_text(AGX_ORIN.replace("[[mode]]", f"{power}[[mode]]", 1))
    return path


def test_a_sum_is_declared_with_what_it_stands_for(tmp_path: Path) -> None:
    power = load_profile(profile_with(tmp_path, '["VDD_GPU_SOC", "VDD_CPU_CV"]')).power
    assert power is not None
    assert (power.module_rails, power.scope) == (["VDD_GPU_SOC", "VDD_CPU_CV"], "GPU, SoC and CPU")


@pytest.mark.parametrize(
    ("rails", "said"),
    [
        ('["VDD_IN", "VDD_IN"]', "names a rail twice"),
        ('["VDD_IN"]', r"length >= 2"),
    ],
)
def test_s17_nothing_is_added_up_twice(tmp_path: Path, rails: str, said: str) -> None:
    with pytest.raises(FileFault, match=said):
        load_profile(profile_with(tmp_path, rails))


def test_a_sum_without_a_scope_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFault, match="scope"):
        load_profile(profile_with(tmp_path, '["A", "B"]', scope=""))
