"""``edgeprof sensor``: whom it serves, what it becomes, and what it says without root."""

import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping

import click
import pytest
from click.testing import CliRunner

from edgeprof.cli.sensor import command
from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.telemetry import sensor

Become = Callable[..., list[str]]
ACCOUNT = next(entry for entry in pwd.getpwall() if entry.pw_uid > 0 and entry.pw_gid > 0)
NO_ACCOUNT = next(number for number in range(70_000, 80_000) if number not in
                  {entry.pw_uid for entry in pwd.getpwall()})  # fmt: skip


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    """The command line that root's process turns into."""

    def invoke(*arguments: str, environment: Mapping[str, str] | None = None) -> list[str]:
        found: list[str] = []
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(os, "execv", lambda program, line: found.extend([program, *line]))
        monkeypatch.delenv("SUDO_UID", raising=False)
        for name, value in (environment or {}).items():
            monkeypatch.setenv(name, value)
        command.main(list(arguments), standalone_mode=False)
        return found

    return invoke


def test_root_becomes_the_isolated_sensor(become: Become) -> None:
    program, *line = become("--user", str(NO_ACCOUNT), "--socket", "/tmp/a socket")
    assert program == sys.executable
    assert line[:5] == [sys.executable, "-I", "-S", "-B", sensor.__file__]
    assert line[5:] == [
        *("--socket", "/tmp/a socket"),
        *("--uid", str(NO_ACCOUNT), "--gid", str(NO_ACCOUNT)),
    ]


def test_the_user_is_who_called_sudo(become: Become) -> None:
    line = become(environment={"SUDO_UID": str(ACCOUNT.pw_uid)})
    assert line[6:] == [
        *("--socket", f"/run/edgeprof-{ACCOUNT.pw_uid}/sensor.sock"),
        *("--uid", str(ACCOUNT.pw_uid), "--gid", str(ACCOUNT.pw_gid)),
    ]


def test_a_user_may_be_given_by_name(become: Become) -> None:
    line = become("--user", ACCOUNT.pw_name)
    assert line[-4:] == ["--uid", str(ACCOUNT.pw_uid), "--gid", str(ACCOUNT.pw_gid)]


def test_a_relative_socket_path_is_made_absolute(become: Become) -> None:
    assert os.path.abspath("here/s") in become("--user", ACCOUNT.pw_name, "--socket", "here/s")


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("0", "root needs no sensor"),
        ("root", "root needs no sensor"),
        ("no-such-user", "there is no user 'no-such-user'"),
        ("-1", "there is no user '-1'"),
        ("4294967295", "there is no user '4294967295'"),
        ("9" * 5000, "there is no user"),
        ("", "say by --user whom to serve"),
    ],
)
def test_a_user_that_cannot_be_served_is_named(become: Become, user: str, message: str) -> None:
    with pytest.raises(UsageFault, match=message):
        become("--user", user)


def test_a_socket_path_that_is_too_long_is_told_in_our_own_words(become: Become) -> None:
    assert become("--user", ACCOUNT.pw_name, "--socket", "/" + "s" * 89)
    with pytest.raises(UsageFault, match="--socket: longer than 90 bytes: /sss"):
        become("--user", ACCOUNT.pw_name, "--socket", "/" + "s" * 90)


def test_root_without_sudo_must_say_whom_to_serve(become: Become) -> None:
    with pytest.raises(UsageFault, match="say by --user whom to serve"):
        become()


def test_K09_without_root_the_very_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getuid", lambda: NO_ACCOUNT)
    with pytest.raises(EnvironmentFault) as caught:
        command.main([], standalone_mode=False)
    line = shlex.split(str(caught.value).partition("with: ")[2])
    assert line == [
        *("sudo", sys.executable, "-I", "-S", "-B", sensor.__file__),
        *("--socket", f"/run/edgeprof-{NO_ACCOUNT}/sensor.sock"),
        *("--uid", str(NO_ACCOUNT), "--gid", str(NO_ACCOUNT)),
    ]
    # It stands on its own: the sensor parses it, wherever edgeprof is installed.
    done = subprocess.run([*line[1:], "--help"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0


def test_no_option_names_a_path_to_read() -> None:
    assert isinstance(command, click.Command)
    help_text = CliRunner().invoke(command, ["--help"]).output
    assert {option for option in help_text.split() if option.startswith("--")} == {
        "--socket",
        "--user",
        "--help",
    }
