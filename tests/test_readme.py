"""What the README says is what happens."""

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from edgeprof.cli.commands import COMMANDS, cli

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_first_screen_shows_both_commands_and_the_roofline() -> None:
    first_screen = README.splitlines()[:25]
    for line in (
        "make demo",
        "make test",
        "$ edgeprof roofline --device orin-nano --model 7b-q4",
    ):
        assert any(shown.startswith(line) for shown in first_screen), line


def test_console_blocks_show_the_real_output() -> None:
    blocks = re.findall(r"```console\n\$ edgeprof ([^\n]*)\n(.*?)```", README, re.DOTALL)
    assert blocks
    for arguments, shown in blocks:
        done = CliRunner().invoke(cli, shlex.split(arguments), env={"COLUMNS": "100"})
        assert done.exit_code == 0
        assert done.stdout.strip() == shown.strip()


def test_every_command_is_there() -> None:
    for name in COMMANDS:
        assert f"`edgeprof {name}" in README
