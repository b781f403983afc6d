"""The power mode by its name on the board."""

from pathlib import Path

from handmade_tree import put

from edgeprof.telemetry.source import BoardFigures
from edgeprof.telemetry.sources.sysfs import open_sysfs

CONF, STATUS = "/etc/nvpmodel.conf", "/var/lib/nvpmodel/status"


def test_the_mode_is_told_by_the_name_in_the_boards_own_conf(tmp_path: Path) -> None:
    conf = "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n"
    put(tmp_path, {CONF: conf, STATUS: "pmode:0000 fmode:quiet"})
    (setting,) = open_sysfs(BoardFigures(root=str(tmp_path))).settings
    assert (setting.source, setting.kind, setting.read()) == ("sysfs", "power_mode", "15W")
    put(tmp_path, {STATUS: "pmode:0002 fmode:quiet"})
    assert setting.read() == "MAXN_SUPER"
    put(tmp_path, {STATUS: "pmode:0007 fmode:quiet"})
    assert setting.read() == "mode 7"
    for unknown in ("", "fmode:quiet", "\x1b[2J"):
        put(tmp_path, {STATUS: unknown})
        assert setting.read() is None


def test_a_machine_without_nvpmodel_has_no_mode(tmp_path: Path) -> None:
    assert open_sysfs(BoardFigures(root=str(tmp_path))).settings == []
