"""The console script: Ctrl-C ends it in a word and with exit code 130, from its first moment on.

What it does is in ``commands``, which takes a while to import and hence is imported in here.
"""

import signal
import sys
from contextlib import suppress
from os import devnull


def main() -> None:
    """Run the command line of this process, and exit."""
    _open_closed_streams()
    # What is half done is cleared away as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from edgeprof.cli.commands import run

        code = run()
    except KeyboardInterrupt:
        _end_in_peace()
        with suppress(OSError):
            print("interrupted", file=sys.stderr, flush=True)
        code = 128 + signal.SIGINT
    _end_in_peace()
    raise SystemExit(code)


def _end_in_peace() -> None:
    """From now on another Ctrl-C changes nothing; while the interpreter ends, it would be a death
    by that signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _open_closed_streams() -> None:
    """Where the caller closed a stream (`>&-`), the next file opened would get its number, and
    what a child prints would land in that file. In order, as each takes the lowest free number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(devnull, mode, encoding="utf-8"))  # noqa: SIM115
