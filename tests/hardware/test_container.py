"""Whether this is a container, and what it lacks."""

from pathlib import Path

from handmade_tree import put

from edgeprof.hardware.board_files import BoardFiles
from edgeprof.hardware.container import Container, read_container


def container(root: Path, *, tegrastats: bool = False) -> Container:
    found = read_container(BoardFiles(root), tegrastats=tegrastats)
    assert found is not None
    return found


def test_a_board_is_no_container(tmp_path: Path) -> None:
    put(tmp_path, {"/proc/1/cgroup": "0::/init.scope", "/etc/nv_tegra_release": "# R36"})
    assert read_container(BoardFiles(tmp_path), tegrastats=True) is None


def test_each_mark_of_a_container_counts(tmp_path: Path) -> None:
    marks = {
        "/.dockerenv": ("", "docker"),
        "/run/.containerenv": ("", "podman"),
        "/run/systemd/container": ("lxc", "lxc"),
        "/proc/1/cgroup": ("12:cpu:/kubepods/besteffort/pod1", "kubepods"),
    }
    for number, (path, (text, kind)) in enumerate(marks.items()):
        root = put(tmp_path / str(number), {path: text})
        assert container(root).kind == kind


def test_i15_the_socket_of_jtop_and_its_group_are_named(tmp_path: Path) -> None:
    put(tmp_path, {"/.dockerenv": ""})
    missing = {one.options: one.brings for one in container(tmp_path).missing}
    jtop = '-v /run/jtop.sock:/run/jtop.sock --group-add "$(getent group jtop | cut -d: -f3)"'
    assert "jtop" in missing[jtop]
    video = '--runtime nvidia --group-add "$(getent group video | cut -d: -f3)"'
    assert "GPU" in missing[video]  # who is not root needs the group of its devices
    assert "-v /etc/nv_tegra_release:/etc/nv_tegra_release:ro" in missing
    sensor = next(options for options in missing if "EDGEPROF_SENSOR" in options)
    assert "/run/edgeprof-$(id -u)/sensor.sock" in sensor and '--user "$(id -u)"' in sensor


def test_what_is_there_is_not_asked_for(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "/.dockerenv": "",
            "/run/jtop.sock": "",
            "/dev/nvmap": "",
            "/sys/kernel/debug/bpmp": "",
            "/etc/nv_tegra_release": "# R36 (release), REVISION: 4.3",
            "/etc/nvpmodel.conf": "x",
            "/var/lib/nvpmodel/status": "pmode:0000",
        },
    )
    assert container(tmp_path, tegrastats=True).missing == []
