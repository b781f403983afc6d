"""Writes the reference figures and the CSV behind each; ``python plots/make.py`` from the root."""

import csv
import io
from pathlib import Path

from edgeprof.analysis.outlook import outlook
from edgeprof.catalog import find_device, find_kv_type, find_model
from edgeprof.report.figures import (
    RoofLine,
    RooflinePoint,
    outlook_figure,
    outlook_series,
    save_figure,
)

FOLDER = Path(__file__).parent
NAME = "roofline-orin-nano-7b-q4"


def main() -> None:
    """Every reference figure; there is one so far."""
    model, _ = find_model("7b-q4")
    results = [outlook(device=find_device("orin-nano"), model=model, kv=find_kv_type("f16"))]
    save_figure(outlook_figure(results), FOLDER / f"{NAME}.svg", force=True)
    (FOLDER / f"{NAME}.csv").write_text(csv_text(*outlook_series(results)))


def csv_text(roofs: list[RoofLine], points: list[RooflinePoint]) -> str:
    """What the figure shows: for a roof, the ridge that its line bends at."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["kind", "label", "intensity_flop_per_byte", "flop_per_s"])
    for roof in roofs:
        for data_type, peak in roof.flop_per_s.items():
            ridge = peak / roof.bandwidth_bytes_per_s
            rows.writerow(["ridge", f"{roof.label}, {data_type}", f"{ridge:.6g}", f"{peak:.6g}"])
    for point in points:
        figures = f"{point.intensity_flop_per_byte:.6g}", f"{point.flop_per_s:.6g}"
        rows.writerow([point.kind, point.label, *figures])
    return text.getvalue()


if __name__ == "__main__":
    main()
