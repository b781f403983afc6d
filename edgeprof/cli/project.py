"""``edgeprof project``: what a session's acceptance would give on another board."""

from pathlib import Path
from typing import get_args

import click

from edgeprof.cli.paper import FORMS, Form, chosen_form, put
from edgeprof.hardware.profile import DataType


@click.command()
@click.argument("session", type=click.Path(path_type=Path))
@click.option("--device", required=True, metavar="D[@MODE]", help="Board by name or profile.")
@click.option("--mode", metavar="MODE", help="Power mode by name.")
@click.option("--compute", type=click.Choice(get_args(DataType), case_sensitive=False),
              default="fp16", show_default=True, help="Data type of the arithmetic.")  # fmt: skip
@click.option("--engine", metavar="NAME", help="Engine that will run it, such as llama.cpp.")
@click.option("--format", "form", type=click.Choice(FORMS), help="Default: text.")
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
def command(
    session: Path,
    device: str,
    mode: str | None,
    compute: str,
    engine: str | None,
    form: Form | None,
    as_json: bool,
) -> None:
    """Say what the acceptance of SESSION would give on another board.

    Which drafted tokens stood is carried over, as are the bytes of the files that ran; the times
    are modelled, as a bound and as a band. Exits with 1, the output still complete, where a pair
    does not fit.
    """
    from edgeprof.analysis.board import Readings
    from edgeprof.analysis.channels import channels_of
    from edgeprof.analysis.disturbance import disturbances_of, left_out_legs
    from edgeprof.analysis.projection import project
    from edgeprof.analysis.variants import variants_of
    from edgeprof.catalog import engines, find_device, find_engine
    from edgeprof.report.projection import (
        projection_document,
        projection_rows,
        projection_sections,
    )
    from edgeprof.session.store import read_session

    chosen = chosen_form(form, as_json)
    board = find_device(device, mode)
    engine_class, table = find_engine(engine), engines()
    recorded = read_session(session)
    disturbed = disturbances_of(recorded, Readings(channels_of(recorded)))
    result = project(
        recorded,
        variants_of(recorded, left_out_legs(disturbed)),
        device=board,
        engine=engine_class,
        kernels={name: table.kernels[name] for name in table.kernels_of[engine_class.name]},
        data_type=compute,
    )
    machine = str(recorded.info.device.get("name") or "the machine of the session")
    document = projection_document(result, recorded.info.id)
    put(chosen, document, projection_sections(result, machine), projection_rows(result))
    if not all(pair.fit.fits for pair in result.pairs):
        raise click.exceptions.Exit(1)
