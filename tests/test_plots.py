"""The reference figures are those that the commands draw today."""

import runpy
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgeprof.cli.commands import cli

PLOTS = Path(__file__).parents[1] / "plots"
MAKE: dict[str, Any] = runpy.run_path(str(PLOTS / "make.py"))
GALLERY: dict[str, str] = MAKE["GALLERY"]


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


@cache
def measured(name: str) -> dict[str, Any]:
    """The figures of a recorded session, drawn once."""
    figures: dict[str, Any] = MAKE["measured_figures"](name)
    return figures


@pytest.mark.parametrize("name", MAKE["MEASURED"])
def test_measured_figures_show_what_their_session_holds(name: str) -> None:
    """Drawn again from the recorded session, read back from the artists."""
    folder = PLOTS / name
    figures = measured(name)
    assert figures and {path.stem for path in folder.glob("*.svg")} == set(figures)
    for stem, figure in figures.items():
        kept = (folder / f"{stem}.csv").read_text(encoding="utf-8")
        assert MAKE["drawn_rows"](figure) == kept, f"{name}/{stem}: run make plots"


@pytest.mark.parametrize("name", MAKE["MEASURED"])
def test_measured_figures_are_stamped_and_in_the_readmes(name: str) -> None:
    stems = {path.stem for path in (PLOTS / name).glob("*.svg")}
    (stamp,) = {measured(name)[stem]._supxlabel.get_text() for stem in stems}
    assert ("simulated samples" in stamp) == (not name.startswith("cpu"))
    readme = (PLOTS / "README.md").read_text(encoding="utf-8")
    for stem in stems:
        assert f"`{name}/{stem}.svg`" in readme
    assert f"`edgeprof report plots/sessions/{name}.sqlite" in readme
