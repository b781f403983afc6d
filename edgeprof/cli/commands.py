"""The commands: finds the one asked for, turns errors into exit codes, stays quiet on a closed
pipe. A command's module is imported only when it runs, so that ``--help`` stays light."""

import errno
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from edgeprof import __version__
from edgeprof.errors import EdgeprofError, EnvironmentFault
from edgeprof.report.printable import printable

# name -> (module that holds a click command called ``command``, one line of help)
COMMANDS = {
    "compare": ("edgeprof.cli.compare", "Compare sessions: ratios, and what differs."),
    "contend": ("edgeprof.cli.contend", "Show what a neighbour costs a decoding model."),
    "convert": ("edgeprof.cli.convert", "Turn a GGUF file into an ONNX decoder."),
    "devices": ("edgeprof.cli.devices", "List boards and power modes, or detect this board."),
    "doctor": ("edgeprof.cli.doctor", "Say what can be measured here, and what is in the way."),
    "fetch": ("edgeprof.cli.fetch", "Fetch a model into the cache and check it."),
    "import": ("edgeprof.cli.import_", "Turn a recorded log of tegrastats into a session."),
    "models": ("edgeprof.cli.models", "List the models that edgeprof knows, or show one in full."),
    "pair": ("edgeprof.cli.pair", "Say whether a draft model may serve a target."),
    "plan": ("edgeprof.cli.plan", "Say what drafting would bring, and how long to draft."),
    "project": ("edgeprof.cli.project", "Say what a session would give on another board."),
    "probe": ("edgeprof.cli.probe", "Measure what this machine reaches through the runtime."),
    "report": ("edgeprof.cli.report", "Show what a session measured: text, JSON or Markdown."),
    "roofline": ("edgeprof.cli.roofline", "Say how fast a model can go on a board, and why."),
    "run": ("edgeprof.cli.run", "Run a recipe on this machine and record a session."),
    "sensor": ("edgeprof.cli.sensor", "Let one user read the memory counters that need root."),
    "sessions": ("edgeprof.cli.sessions", "List sessions, or recover one after a crash."),
    "watch": ("edgeprof.cli.watch", "Show what the board does, live or while a command runs."),
}

_NO_MORE_OUTPUT = (errno.ENOSPC, errno.EIO)  # the disk is full, the terminal has gone

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

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        with _faults_as_exit_codes():  # --help and --version print here
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with _faults_as_exit_codes():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def _faults_as_exit_codes() -> Iterator[None]:
    """One line and an exit code for what a user can cause; handled before click sees it, which
    would make a closed pipe exit code 1."""
    try:
        yield
    except EdgeprofError as error:
        raise _exit(str(error), error.exit_code) from error
    except BrokenPipeError:
        # The reader has gone (`edgeprof devices | head -1`): leave without a word.
        _let_go_of_stdout()
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        if error.filename is not None:
            raise _exit(
                f"{error.filename}: {error.strerror}", EnvironmentFault.exit_code
            ) from error
        if error.errno not in _NO_MORE_OUTPUT:
            raise
        _let_go_of_stdout()
        raise _exit(f"output: {error.strerror}", EnvironmentFault.exit_code) from error
    except ImportError as error:
        if (error.name or "").startswith("edgeprof"):
            raise
        reason = str(error).strip().partition("\n")[0]  # numpy explains at length
        raise _exit(
            f"a library cannot be imported: {reason}; install it again with"
            " pip install --force-reinstall",
            EnvironmentFault.exit_code,
        ) from error


def _exit(message: str, code: int) -> click.exceptions.Exit:
    with suppress(OSError):  # a terminal that has gone is no reason for another code
        click.echo(f"Error: {printable(message)}", err=True)  # it may quote a file
    return click.exceptions.Exit(code)


def _let_go_of_stdout() -> None:
    """Keeps the interpreter from flushing what is left into the closed pipe or full disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=_Commands,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="edgeprof")
def cli() -> None:
    """How fast a language model, plain or with a draft, can go on a Jetson board,
    how fast it goes, where the bytes go and which wall it hit."""


def run() -> int:
    """The command line that this process was given; its exit code. Raises KeyboardInterrupt."""
    try:
        # Outside standalone mode click hands back the code that an Exit carried.
        code: int = cli(prog_name="edgeprof", standalone_mode=False)
    except click.ClickException as failure:
        failure.show()
        return failure.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    finally:
        _flush()
    return code


def _flush() -> None:
    """Nothing is left for the interpreter to write after all is over."""
    try:
        sys.stdout.flush()
    except OSError:
        _let_go_of_stdout()
