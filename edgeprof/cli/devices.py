"""``edgeprof devices``: the boards and power modes that are known, and which one this is."""

from pathlib import Path

import click

from edgeprof.catalog import device_aliases, device_names, find_board, identify_board
from edgeprof.cli.output import print_json
from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.report.devices import board_text, devices_document, devices_text
from edgeprof.report.identity import identity_document, identity_text
from edgeprof.report.table import terminal_width


@click.command()
@click.argument("name", required=False)
@click.option("--detect", is_flag=True, help="Say which board this is, and how that is known.")
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False),
              metavar="DIR", help="With --detect: read the board's files below DIR.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(name: str | None, detect: bool, root: Path | None, as_json: bool) -> None:
    """List the boards and power modes that edgeprof knows, or show one with its sources.

    NAME is a board, a short name or the path of a profile of your own. With --detect it exits with
    3, the output still complete, when this is no known board.
    """
    if detect:
        if name is not None:
            raise UsageFault(f"--detect finds the board itself; leave out '{name}'")
        _detect(Path("/") if root is None else root, as_json)
        return
    if root is not None:
        raise UsageFault("--root needs --detect")
    boards = [find_board(board) for board in (device_names() if name is None else [name])]
    if as_json:
        print_json(devices_document(boards))
    elif name is None:
        click.echo(devices_text(boards, device_aliases(), terminal_width()))
    else:
        click.echo(board_text(boards[0], terminal_width()))


def _detect(root: Path, as_json: bool) -> None:
    identity = identify_board(root)
    if as_json:
        print_json(identity_document(identity))
    else:
        click.echo(identity_text(identity, terminal_width()))
    if not identity.candidates:
        raise EnvironmentFault(
            f"{identity.doubt}; name one of `edgeprof devices` with --device,"
            " or the path of a profile of your own"
        )
