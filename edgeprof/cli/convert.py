"""``edgeprof convert``: a GGUF file to an ONNX decoder with the same weights."""

from pathlib import Path
from typing import Literal

import click

from edgeprof.cli.output import print_json, talk


@click.command()
@click.argument("gguf", type=click.Path(path_type=Path), metavar="FILE.gguf")
@click.option(
    "-o", "--output", "out", required=True, type=click.Path(path_type=Path), metavar="DIR",
    help="The folder to write.",
)  # fmt: skip
@click.option(
    "--weights",
    type=click.Choice(["as-is", "fp32"]),
    default="as-is",
    show_default=True,
    help="The file's own quantised blocks, or the same weights widened to float32.",
)
@click.option(
    "--head-rows", type=click.Path(path_type=Path), metavar="FILE.npy",
    help="Keep only the output rows of the tokens listed here: a draft's head, cut.",
)  # fmt: skip
@click.option(
    "--no-attention-pad",
    is_flag=True,
    help="Leave out the dummy row that makes passes of one token and of many agree.",
)
@click.option(
    "--requantise",
    is_flag=True,
    help="Round to 8 bits what cannot be kept exactly (IQ types, Q2_K, Q3_K); the error is shown.",
)
@click.option("--force", is_flag=True, help="Replace a folder that edgeprof wrote before.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as one JSON document.")
def command(
    gguf: Path,
    out: Path,
    weights: Literal["as-is", "fp32"],
    head_rows: Path | None,
    no_attention_pad: bool,
    requantise: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Turn a GGUF file into an ONNX decoder with its own weights, and print its folder.

    edgeprof and onnxruntime-genai load it alike. The architectures llama, qwen2 and qwen3; matrices
    stored as Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, F16, BF16 or F32.
    """
    from edgeprof.convert.folder import convert

    folder = convert(
        gguf,
        out,
        weights=weights,
        head_rows=head_rows,
        attention_pad=0 if no_attention_pad else 1,
        requantise=requantise,
        force=force,
        talk=talk,
    )
    if as_json:
        print_json(folder.manifest)
    else:
        click.echo(str(folder.path))
