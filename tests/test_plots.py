"""The reference figures are those that the commands draw today."""

import runpy
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeprof.cli.commands import cli

PLOTS = Path(__file__).parents[1] / "plots"
GALLERY: dict[str, str] = runpy.run_path(str(PLOTS / "make.py"))["GALLERY"]


@pytest.mark.parametrize("name", GALLERY)
def test_the_csv_behind_each_figure_is_up_to_date(name: str, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.csv"
    done = CliRunner().invoke(cli, [*shlex.split(GALLERY[name]), f"--csv={fresh}"])
    assert done.exit_code in (0, 1), done.output
    assert (PLOTS / f"{name}.csv").read_text() == fresh.read_text()


def test_every_figure_has_its_csv_and_its_command_in_the_readme() -> None:
    readme = (PLOTS / "README.md").read_text()
    assert {figure.stem for figure in PLOTS.glob("*.svg")} == set(GALLERY)
    for name, arguments in GALLERY.items():
        assert (PLOTS / f"{name}.csv").exists()
        (line,) = (line for line in readme.splitlines() if f"`{name}.svg`" in line)
        assert line.endswith(f"| `edgeprof {arguments}` |")
