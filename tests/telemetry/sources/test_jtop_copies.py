"""Every copy of jetson-stats by what pip, pipx, uv and sudo leave behind."""

from pathlib import Path

import pytest
from handmade_tree import put

from edgeprof.hardware.board_files import BoardFiles
from edgeprof.telemetry.sources import jtop_faults
from edgeprof.telemetry.sources.jtop_copies import Installs, find_installs, same_release
from edgeprof.telemetry.sources.jtop_faults import installation_fault

HOME = "/home/alice"
SYSTEM = "/usr/local/lib/python3.10/dist-packages"
PIPX = f"{HOME}/.local/share/pipx/venvs/jetson-stats"
UNIT = "/etc/systemd/system/jtop.service"


def metadata(folder: str, version: str) -> dict[str, str]:
    return {f"{folder}/jetson_stats-{version}.dist-info/METADATA": f"Version: {version}"}


def service(command: str) -> dict[str, str]:
    return {UNIT: f"[Unit]\nDescription=jtop\n[Service]\nType=exec\nExecStart={command}"}


def installs(root: Path, *prefixes: str) -> Installs:
    return find_installs(BoardFiles(root), HOME, prefixes)


def fault(found: Installs, *, socket: bool = False, container: bool = False) -> tuple[str, str]:
    remedy = installation_fault(
        found, socket_is_there=socket, in_container=container, pip="python3 -m pip"
    )
    assert remedy is not None and remedy.fix is not None
    return remedy.reason, remedy.fix


def test_i06_every_copy_is_listed_and_the_service_has_its_version(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            **metadata(SYSTEM, "4.3.2"),
            "/usr/local/bin/jtop": "#!/usr/bin/python3",
            **metadata(f"{PIPX}/lib/python3.10/site-packages", "7.2.2"),
            f"{PIPX}/bin/jtop": "#!",
            **metadata(f"{HOME}/.local/share/uv/tools/jetson-stats/lib/python3.12/site-packages",
                       "7.2.0"),
            **metadata("/srv/venv/lib/python3.10/site-packages", "7.2.1"),
            **service("/usr/local/bin/jtop --force"),
        },
    )  # fmt: skip
    found = installs(tmp_path, "/srv/venv")
    assert [(copy.version, copy.script) for copy in found.copies] == [
        ("7.2.1", None),
        ("4.3.2", "/usr/local/bin/jtop"),
        ("7.2.2", f"{PIPX}/bin/jtop"),
        ("7.2.0", None),
    ]
    assert found.service is not None
    assert (found.service.unit, found.service.version) == (UNIT, "4.3.2")
    assert installation_fault(found, socket_is_there=True, in_container=False, pip="pip") is None


@pytest.mark.parametrize(
    "command", [f"{PIPX}/bin/python -m jtop --force", f"-{PIPX}/bin/jtop", f"'{PIPX}/bin/jtop' -x"]
)
def test_i06_the_copy_of_the_service_is_found_by_its_script_or_its_python(
    tmp_path: Path, command: str
) -> None:
    put(
        tmp_path,
        {
            **metadata(SYSTEM, "4.3.2"),
            **metadata(f"{PIPX}/lib/python3.10/site-packages", "7.2.2"),
            f"{PIPX}/bin/jtop": "#!",
            **service(command),
        },
    )
    found = installs(tmp_path).service
    assert found is not None and found.version == "7.2.2"


def test_i06_no_client_of_the_services_release_is_a_fault_with_the_version_to_install(
    tmp_path: Path,
) -> None:
    put(
        tmp_path,
        {
            **metadata("/opt/jtop/lib/python3.10/site-packages", "4.3.2"),
            **metadata("/srv/venv/lib/python3.10/site-packages", "7.2.1"),
            **service("/opt/jtop/bin/python -m jtop"),
        },
    )
    found = installs(tmp_path, "/srv/venv", "/opt/jtop")
    lone = Installs(copies=found.copies[:1], service=found.service)
    reason, fix = fault(lone, socket=True)
    assert "service is jetson-stats 4.3.2, the client 7.2.1" in reason
    assert fix == 'python3 -m pip install "jetson-stats~=4.3.0"'


def test_i07_a_client_without_its_service_is_told_how_to_get_one(tmp_path: Path) -> None:
    put(tmp_path, {**metadata(SYSTEM, "7.2.2"), "/usr/local/bin/jtop": "#!"})
    reason, fix = fault(installs(tmp_path))
    assert "the client of jetson-stats 7.2.2 is here, its service is not" in reason
    assert fix == "sudo jtop --install-service"


def test_i07_a_client_of_a_release_that_installs_no_service_is_installed_again_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"{HOME}/.local/lib/python3.10/site-packages"
    put(tmp_path, {**metadata(folder, "4.3.2"), f"{HOME}/.local/bin/jtop": "#!"})
    monkeypatch.setattr(jtop_faults, "_SYSTEM_LIBRARIES", tmp_path / "usr" / "lib")
    # 4.x has no --install-service: its setup.py installs the service where root runs it
    assert fault(installs(tmp_path))[1] == 'sudo pip3 install "jetson-stats~=4.3.0"'
    put(tmp_path, {"/usr/lib/python3.12/EXTERNALLY-MANAGED": "[externally-managed]"})  # PEP 668
    told = 'sudo pip3 install --break-system-packages "jetson-stats~=4.3.0"'
    assert fault(installs(tmp_path))[1] == told


def test_i07_root_does_not_find_what_lies_in_a_users_folder(tmp_path: Path) -> None:
    folder = f"{HOME}/.local/lib/python3.10/site-packages"
    put(tmp_path, {**metadata(folder, "7.2.2"), f"{HOME}/.local/bin/jtop": "#!"})
    assert fault(installs(tmp_path))[1] == f"sudo {HOME}/.local/bin/jtop --install-service"


def test_i15_in_a_container_the_service_is_the_hosts(tmp_path: Path) -> None:
    put(tmp_path, metadata(SYSTEM, "7.2.2"))
    _, fix = fault(installs(tmp_path), container=True)
    assert fix == "start the container with -v /run/jtop.sock:/run/jtop.sock"


def test_none_at_all_is_no_fault(tmp_path: Path) -> None:
    found = installs(tmp_path)
    assert found == Installs(copies=[], service=None)
    assert installation_fault(found, socket_is_there=False, in_container=False, pip="") is None


def test_a_unit_that_says_nothing_is_borne(tmp_path: Path) -> None:
    for number, text in enumerate(("", "ExecStart=", "ExecStart='", "\x00" * 100)):
        root = put(tmp_path / str(number), {UNIT: text or "[Unit]"})
        found = installs(root).service
        assert found is not None and found.version is None


def test_releases_speak_to_their_own_major_and_minor() -> None:
    assert same_release("7.2.0", "7.2.2") and not same_release("4.3.2", "4.2.12")
