"""``edgeprof models``: the models that are known by name, or one by name or path."""

import click

from edgeprof.catalog import find_kv_type, find_model, format_table, model_table
from edgeprof.cli.output import print_json, warn
from edgeprof.report.models import document, list_document, list_text, text
from edgeprof.report.table import terminal_width


@click.command()
@click.argument("model", required=False, metavar="[NAME[:FORMAT]|PATH]")
@click.option(
    "--kv", default="f16", show_default=True, metavar="TYPE", help="Type of the KV cache."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(model: str | None, kv: str, as_json: bool) -> None:
    """List the known models and formats, or show one: by name, or as a GGUF file, an ONNX decoder,
    a Hugging Face folder or config.json, a folder for onnxruntime-genai."""
    cache = find_kv_type(kv)
    if model is None:
        models, formats = model_table(), format_table()
        if as_json:
            print_json(list_document(models, formats))
        else:
            click.echo(list_text(models, formats, terminal_width()))
        return
    spec, name = find_model(model)
    warn(spec.warnings)
    if as_json:
        print_json(document(spec, kv, cache))
    else:
        click.echo(text(spec, name, kv, cache, terminal_width()))
