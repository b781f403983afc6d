"""``edgeprof probe``: what this machine reaches through the runtime that decodes."""

import signal
import sys
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeprof.cli.output import talk, write_new_file
from edgeprof.cli.paper import FORMS, Form, chosen_form, put
from edgeprof.errors import EdgeprofError, EnvironmentFault, PartialResult, UsageFault
from edgeprof.report.printable import printable

if TYPE_CHECKING:
    from edgeprof.hardware.measured import MeasuredProfile
    from edgeprof.probe.recording import Request

_PROVIDERS = ("cpu", "cuda", "tensorrt")


@click.command()
@click.option("--provider", type=click.Choice(_PROVIDERS), default="cpu", show_default=True,
              help="Where products are computed.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 1024), help="Default: all cores.")
@click.option("--shapes", "models", multiple=True, metavar="MODEL",
              help="Stack this model's layers too, with synthetic weights: NAME[:FORMAT] or a path;"
                   " may be given again.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PROFILE",
              help="The TOML file to write; default: a new one in the user's folder.")  # fmt: skip
@click.option("--from", "earlier", type=click.Path(path_type=Path), metavar="PROFILE",
              help="Show or plot this profile instead of measuring.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE",
              help="Draw the measured roofs and v(n): .svg, .png or .pdf.")  # fmt: skip
@click.option("--csv", "data", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the passes, one a line.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--format", "form", type=click.Choice(FORMS), help="Default: text.")
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    provider: str,
    threads: int | None,
    models: tuple[str, ...],
    output: Path | None,
    earlier: Path | None,
    plot: Path | None,
    data: Path | None,
    force: bool,
    form: Form | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure what this machine reaches through the runtime that decodes, in a minute or so.

    Memory read and copied; for each weight format what one row reads, what many rows compute and
    v(n), the cost of n rows; with --shapes decoding and v(n) of a model that is not on the machine.
    On a board with an EMC counter, what that counts. The profile serves --device here and
    --verify-cost. Ctrl-C keeps what is done (exit code 130).
    """
    from edgeprof.hardware.measured import read_measured

    chosen = chosen_form(form, as_json)
    _check_new(plot, data, force)
    if earlier is not None:
        if models or output is not None or threads is not None:
            raise click.UsageError("--from shows a profile; it measures nothing")
        _show(read_measured(earlier), chosen, plot, data, force)
        return
    request = _request(provider, threads, models)
    path = output or _default_path()
    _reserve(path, force=force, own=output is None)
    profile = _measure(request, path, quiet)
    _show(profile, chosen, plot, data, force)
    talk(f"profile: {path}")
    _leave(profile)


def _request(provider: str, threads: int | None, names: tuple[str, ...]) -> "Request":
    from importlib.util import find_spec

    import msgspec

    from edgeprof.catalog import find_model
    from edgeprof.hardware.machine import usable_cores
    from edgeprof.profiling.provider_check import require_providers
    from edgeprof.provider_settings import ProviderName
    from edgeprof.runner.providers import load_onnxruntime, require_provider

    require_provider(load_onnxruntime(), provider)
    if find_spec("onnx") is None:
        raise EnvironmentFault(
            "a probe builds its graphs with the package onnx: pip install 'edgeprof[cpu]'"
        )
    from edgeprof.probe.recording import ModelAsked, Request, check_model  # imports onnx

    cores = usable_cores()
    if threads is not None and threads > cores:
        talk(f"warning: {threads} threads on {cores} cores")
    asked = []
    for name in dict.fromkeys(names):
        spec, found = find_model(name)
        check_model(spec)
        if found.is_short and found.model is not None:
            talk(f"{name} = {found.full}")
        asked.append(ModelAsked(name=name[:200], spec=spec))
    require_providers({provider})
    return Request(
        provider=msgspec.convert(provider, ProviderName),
        threads=threads or cores,
        models=tuple(asked),
    )


def _measure(request: "Request", path: Path, quiet: bool) -> "MeasuredProfile":
    from edgeprof.probe.recording import record_probe
    from edgeprof.profiling.watches import stop_wishes

    try:
        with stop_wishes() as wishes:
            return record_probe(request, path, progress=_Progress(quiet), wishes=wishes)
    finally:
        with suppress(OSError):
            if path.stat().st_size == 0:  # only reserved
                path.unlink()


def _show(
    profile: "MeasuredProfile", form: Form, plot: Path | None, data: Path | None, force: bool
) -> None:
    from edgeprof.report.measured import probe_document, probe_rows, probe_sections
    from edgeprof.report.sections import as_csv

    put(form, probe_document(profile), probe_sections(profile), probe_rows(profile))
    if data is not None:
        write_new_file(data, as_csv(probe_rows(profile)), force=force)
        talk(f"data written to {data}")
    if plot is not None:
        if not profile.kernels and not profile.models:
            raise EdgeprofError("nothing to plot: no pass of several rows was timed")
        from edgeprof.report.figures import save_figure  # loads matplotlib
        from edgeprof.report.measured_figure import probe_figure

        save_figure(probe_figure(profile), plot, force=force)
        talk(f"plot written to {plot}")


def _leave(profile: "MeasuredProfile") -> None:
    """The exit code says how it ended."""
    if not profile.complete:
        talk("interrupted; what was measured is kept, marked incomplete")
        raise click.exceptions.Exit(128 + signal.SIGINT)
    if profile.lost:
        parts = "; ".join(f"{one.part}: {one.cause}" for one in profile.lost)
        raise PartialResult(f"not all could be measured: {parts}")


def _check_new(plot: Path | None, data: Path | None, force: bool) -> None:
    """Before a minute is spent."""
    for path in (plot, data):
        if path is not None and path.exists() and not force:
            raise UsageFault(f"{path}: exists already; choose another name, or add --force")
    if plot is not None and plot.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise UsageFault(f"{plot}: a figure is saved as .svg, .png or .pdf")


def _reserve(path: Path, *, force: bool, own: bool) -> None:
    """Take the name before a minute is spent, so that of two probes only one gets it."""
    from edgeprof.session.store import keep_sessions

    keep_sessions(path)
    if path.suffix != ".toml":
        raise UsageFault(f"{path}: a profile's name ends in .toml")
    try:
        if own:
            path.parent.mkdir(parents=True, exist_ok=True)
        if force and path.exists():
            path.open("a").close()
        else:
            path.open("x").close()
    except FileExistsError as error:
        raise UsageFault(f"{path}: exists already; choose another name, or add --force") from error
    except OSError as error:
        raise EnvironmentFault(
            f"{path}: cannot be written: {error.strerror}; name another file with -o"
        ) from error


def _default_path() -> Path:
    """A name that no other probe takes, even one that starts in the same second."""
    import os

    from edgeprof.hardware.measured import profiles_folder

    now = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    return profiles_folder() / f"probe-{now}-{os.getpid()}.toml"


class _Progress:
    """A line a part on stderr."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._start_s = 0.0

    def begin(self, part: str, number: int, of: int) -> None:
        self._start_s = time.monotonic()
        if not self._quiet:
            click.echo(f"[{number}/{of}] {printable(part)} ...", err=True, nl=False)
            sys.stderr.flush()

    def end(self, part: str, cause: str | None) -> None:
        if not self._quiet:
            seconds = time.monotonic() - self._start_s
            click.echo(
                f" {seconds:.1f} s" if cause is None else f" no: {printable(cause)}", err=True
            )
