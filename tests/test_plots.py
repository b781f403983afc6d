"""The reference figures are those that the code draws today."""

import runpy
from pathlib import Path

from edgeprof.analysis.outlook import outlook
from edgeprof.catalog import find_device, find_kv_type, find_model
from edgeprof.report.figures import outlook_series

PLOTS = Path(__file__).parents[1] / "plots"


def test_the_csv_behind_the_roofline_is_up_to_date() -> None:
    make = runpy.run_path(str(PLOTS / "make.py"))
    model, _ = find_model("7b-q4")
    result = outlook(device=find_device("orin-nano"), model=model, kv=find_kv_type("f16"))
    fresh = make["csv_text"](*outlook_series([result]))
    assert (PLOTS / f"{make['NAME']}.csv").read_text() == fresh


def test_every_figure_has_its_csv_and_its_line_in_the_readme() -> None:
    readme = (PLOTS / "README.md").read_text()
    figures = list(PLOTS.glob("*.svg"))
    assert figures
    for figure in figures:
        assert figure.with_suffix(".csv").exists()
        assert figure.name in readme
