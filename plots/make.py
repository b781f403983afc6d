"""Writes the reference figures and the CSV behind each: ``make plots``, from the project's root.

Each figure is what a command prints, so that anybody can have it with another board or model. The
measured ones are drawn from the sessions in ``sessions/``, which ``record.py`` recorded.
"""

import csv
import io
import shlex
from pathlib import Path
from typing import Any

from edgeprof.analysis.summary import summarise
from edgeprof.cli.commands import cli
from edgeprof.report.figures import save_figure
from edgeprof.report.session_figures import figures_of
from edgeprof.session.store import read_session

FOLDER = Path(__file__).parent

GALLERY = {  # file name without suffix -> what ``edgeprof`` is called with
    "roofline-orin-nano-7b-q4": "roofline --device orin-nano --model 7b-q4",
    "roofline-four-boards-7b-q4": "roofline --device orin-nano,orin-nx,agx-orin,thor@MAXN"
    " --model 7b-q4",
    "context-orin-nano-qwen2.5-7b": "roofline --device orin-nano --model qwen2.5-7b:q4_k_m"
    " --context 0,32768 --plot-kind context",
    "fit-orin-nano-llama2-7b": "roofline --device orin-nano --model llama2-7b:q4_0"
    " --draft qwen2.5-0.5b:q8_0 --context 4096 --plot-kind fit",
    "speedup-orin-nano-qwen2.5-7b": "plan --device orin-nano --target qwen2.5-7b:q4_k_m"
    " --draft qwen2.5-0.5b:q8_0 --plot-kind speedup",
    "map-orin-nano-qwen2.5-7b": "plan --device orin-nano --target qwen2.5-7b:q4_k_m"
    " --draft qwen2.5-0.5b:q8_0 --plot-kind map",
}


# Sessions of which every figure of ``edgeprof report`` is kept, in a folder of the same name.
MEASURED = ("cpu", "cpu-repeats", "cpu-contention", "emulated-orin-nano", "scripted")


def drawn_rows(figure: Any) -> str:
    """What a figure shows, as CSV read back from its artists: the points of lines, the bars."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("panel", "kind", "label", "x", "y"))
    for panel, axes in enumerate(figure.axes):
        for number, line in enumerate(axes.lines):
            label = line.get_label() if not str(line.get_label()).startswith("_") else str(number)
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
                writer.writerow((panel, "line", label, f"{x:.5g}", f"{y:.5g}"))
        for container in axes.containers:
            for bar in getattr(container, "patches", ()):
                end, middle = bar.get_x() + bar.get_width(), bar.get_y() + bar.get_height() / 2
                writer.writerow((panel, "bar", "", f"{end:.5g}", f"{middle:.5g}"))
    return text.getvalue()


def measured_figures(name: str) -> dict[str, Any]:
    """By the stem of their files the figures of a recorded session."""
    session = read_session(FOLDER / "sessions" / f"{name}.sqlite")
    return figures_of(session, summarise(session))


def draw_measured() -> None:
    for name in MEASURED:
        folder = FOLDER / name
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for stem, figure in measured_figures(name).items():
            (folder / f"{stem}.csv").write_text(drawn_rows(figure), encoding="utf-8")
            save_figure(figure, folder / f"{stem}.svg", force=True)


def main() -> None:
    """Every reference figure. A command whose model does not fit says so by its exit code."""
    for name, arguments in GALLERY.items():
        files = [f"--plot={FOLDER / name}.svg", f"--csv={FOLDER / name}.csv"]
        call = [*shlex.split(arguments), *files, "--force", "--format=csv"]
        code = cli.main(call, prog_name="edgeprof", standalone_mode=False)
        if code not in (None, 0, 1):
            raise SystemExit(code)
    draw_measured()


if __name__ == "__main__":
    main()
