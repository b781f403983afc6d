"""Figures of an earlier report in one folder, which would look as if they belonged to a new one.

A file is taken for one only if it has a name that edgeprof gives to figures and the report that is
being replaced shows it: nothing else in a folder is ever removed.
"""

from collections.abc import Iterable
from pathlib import Path

from edgeprof.errors import EnvironmentFault
from edgeprof.report.markdown import PLOTS, REPORT_NAME
from edgeprof.session.store import is_session

FORMS = ("svg", "png", "pdf")
_LONGEST_REPORT_BYTES = 10_000_000


def figures_shown(folder: Path) -> list[Path]:
    """Those that ``report.md`` in ``folder`` shows; none where there is no such report."""
    report = folder / REPORT_NAME
    try:
        if not report.is_file() or report.stat().st_size > _LONGEST_REPORT_BYTES:
            return []
        text = report.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    names = (f"{stem}.{form}" for stem in PLOTS for form in FORMS)
    return [folder / name for name in names if f"]({name})" in text]


def remove_left_over(folder: Path, before: Iterable[Path]) -> list[Path]:
    """Removes those of ``before``, shown by a report that has been replaced since, which the report
    that is there now does not show; returns them. Raises EnvironmentFault."""
    now = figures_shown(folder)
    left = [path for path in before if path not in now and path.is_file() and not is_session(path)]
    for path in left:
        try:
            path.unlink()
        except OSError as error:
            raise EnvironmentFault(f"{path}: cannot be removed: {error.strerror}") from error
    return left
