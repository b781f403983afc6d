"""The command line: finds the command asked for, turns errors into exit codes, stays quiet on a
closed pipe. A command's module is imported only when it runs, so that ``--help`` stays light."""

import importlib
import os
import signal
import sys
from typing import Any

import click

from edgeprof import __version__
from edgeprof.errors import EdgeprofError

# name -> (module that holds a click command called ``command``, one line of help)
COMMANDS = {
    "convert": (
        "edgeprof.cli.convert",
        "Turn a GGUF file into an ONNX decoder.",
    ),
    "devices": ("edgeprof.cli.devices", "List the boards and power modes that edgeprof knows."),
    "fetch": ("edgeprof.cli.fetch", "Fetch a model into the cache and check it."),
    "report": ("edgeprof.cli.report", "Show what a session measured: text, JSON or Markdown."),
    "roofline": ("edgeprof.cli.roofline", "Say how fast a model can go on a board, and why."),
    "run": ("edgeprof.cli.run", "Run a recipe on this machine and record a session."),
}

EXIT_CODES = """\b
Exit codes: 0 ok, 1 failed or does not fit (output is still complete),
2 usage, 3 environment, 4 partial result, 130 interrupted."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except EdgeprofError as error:
            click.echo(f"Error: {error}", err=True)
            raise click.exceptions.Exit(error.exit_code) from error
        except BrokenPipeError:
            # The reader has gone (`edgeprof devices | head -1`): leave without a word, and keep the
            # interpreter from flushing into the closed pipe at exit. Caught here, before click,
            # which would make it exit code 1.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from None


@click.group(
    cls=_Commands,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="edgeprof")
def cli() -> None:
    """How fast a language model, plain or with a draft, can go on a Jetson board,
    how fast it goes, where the bytes go and which wall it hit."""


def main() -> None:
    """The console script."""
    try:
        # Outside standalone mode click hands back the code that an Exit carried.
        code = cli(prog_name="edgeprof", standalone_mode=False)
    except click.ClickException as failure:
        failure.show()
        raise SystemExit(failure.exit_code) from None
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        raise SystemExit(128 + signal.SIGINT) from None
    raise SystemExit(code)
