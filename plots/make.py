"""Writes the reference figures and the CSV behind each: ``make plots``, from the project's root.

Each figure is what a command prints, so that anybody can have it with another board or model.
"""

import shlex
from pathlib import Path

from edgeprof.cli.commands import cli

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


def main() -> None:
    """Every reference figure. A command whose model does not fit says so by its exit code."""
    for name, arguments in GALLERY.items():
        files = [f"--plot={FOLDER / name}.svg", f"--csv={FOLDER / name}.csv"]
        call = [*shlex.split(arguments), *files, "--force", "--format=csv"]
        code = cli.main(call, prog_name="edgeprof", standalone_mode=False)
        if code not in (None, 0, 1):
            raise SystemExit(code)


if __name__ == "__main__":
    main()
