"""The figures that turn a board's readings into others."""

from pathlib import Path

import pytest

from edgeprof.catalog import DEVICES_FOLDER
from edgeprof.errors import UsageFault
from edgeprof.profiling.board import board_figures
from edgeprof.telemetry.source import BoardFigures


def device_tree(root: Path, *compatible: str) -> Path:
    folder = root / "proc/device-tree"
    folder.mkdir(parents=True)
    (folder / "compatible").write_text("".join(f"{entry}\0" for entry in compatible))
    return root


def test_a_board_is_known_by_its_device_tree(tmp_path: Path) -> None:
    root = device_tree(tmp_path, "nvidia,p3768-0000+p3767-0005-super", "nvidia,tegra234")
    # 128 bit: 16 bytes, twice a clock
    assert board_figures(root) == BoardFigures(
        root=str(tmp_path),
        profile="orin-nano-8gb-super",
        bytes_per_emc_clock=32,
        emc_max_hz=3199e6,
    )


def test_the_board_that_is_named_counts(tmp_path: Path) -> None:
    root = device_tree(tmp_path, "nvidia,p3768-0000+p3767-0005-super", "nvidia,tegra234")
    figures = board_figures(root, "agx-orin@MODE_30W")
    assert (figures.profile, figures.bytes_per_emc_clock) == ("agx-orin-64gb", 64)
    assert figures.emc_max_hz == 3200e6  # what the module can, not what the mode lets it
    with pytest.raises(UsageFault, match="agx-ori"):
        board_figures(root, "agx-ori")


@pytest.mark.parametrize("compatible", [[], ["raspberrypi,3-model-b"], ["nvidia,tegra234"]])
def test_a_board_that_is_not_sure_has_no_figures(tmp_path: Path, compatible: list[str]) -> None:
    root = device_tree(tmp_path, *compatible)
    assert board_figures(root) == BoardFigures(root=str(tmp_path))


def test_a_root_is_kept_as_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampler runs in another folder."""
    monkeypatch.chdir(tmp_path)
    assert board_figures(Path("board")).root == str(tmp_path / "board")
    assert not board_figures(Path("/")).simulated


def test_rails_that_a_profile_adds_up_are_told(tmp_path: Path) -> None:
    profile = (DEVICES_FOLDER / "agx-orin-64gb.toml").read_text()
    power = (
        '[power]\nmodule_rails = ["VDD_GPU_SOC", "VDD_CPU_CV"]\nscope = "GPU, SoC and CPU"\n'
        'source = "a test"\n\n'
    )
    path = tmp_path / "agx-orin-64gb.toml"
    path.write_text(profile.replace("[[mode]]", f"{power}[[mode]]", 1))
    assert board_figures(tmp_path, str(path)).module_rails == ("VDD_GPU_SOC", "VDD_CPU_CV")
