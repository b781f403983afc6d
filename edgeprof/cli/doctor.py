"""``edgeprof doctor``: what this machine can measure, what is in the way, and what to do next."""

import os
from pathlib import Path
from typing import Literal

import click

from edgeprof.cli.output import print_json, refuse_contradiction, talk
from edgeprof.diagnosis import JOBS, Job
from edgeprof.errors import EnvironmentFault

Form = Literal["text", "json", "md"]


@click.command()
@click.option("--for", "job", type=click.Choice(JOBS), help="The job to check for; default: run"
              " where an ONNX Runtime is installed, else watch.")  # fmt: skip
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False),
              metavar="DIR", default=Path("/"), help="Read the board's files below DIR; Python and"
              " packages are those of this machine.")  # fmt: skip
@click.option("--device", metavar="D[@M]", help="The board and its mode, if not detected.")
@click.option("--format", "form", type=click.Choice(["text", "json", "md"]),
              help="Default: text; md is a block to paste in an issue.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
def command(
    job: Job | None, root: Path, device: str | None, form: Form | None, as_json: bool
) -> None:
    """Say what can be measured here, what is in the way, and the commands that mend it.

    Looks at board, signals, packages, memory and container; needs no root and changes nothing.
    Exits with 3, the output still complete, when the job cannot be done.
    """
    from edgeprof.profiling.doctor import examine
    from edgeprof.report.doctor import doctor_document, doctor_markdown, doctor_text
    from edgeprof.report.table import terminal_width

    refuse_contradiction(form, as_json)
    diagnosis = examine(root, job, device, talk)
    if as_json or form == "json":
        print_json(doctor_document(diagnosis))
    elif form == "md":
        click.echo(doctor_markdown(diagnosis, os.path.expanduser("~")))
    else:
        click.echo(doctor_text(diagnosis, terminal_width()))
    asked = diagnosis.asked
    if not asked.possible:
        reasons = "; ".join(blocker.reason for blocker in asked.blocking)
        raise EnvironmentFault(f"{asked.job} is not possible: {reasons}")
