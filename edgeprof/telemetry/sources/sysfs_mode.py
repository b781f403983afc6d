"""The power mode that a board is set to, by the name that it has in the board's own conf."""

from collections.abc import Sequence

from edgeprof.hardware.board_facts import CONF, STATUS
from edgeprof.hardware.board_files import printable
from edgeprof.hardware.nvpmodel import parse_conf, parse_status
from edgeprof.telemetry.nodes import Nodes
from edgeprof.telemetry.source import Setting


def open_power_mode(nodes: Nodes) -> Sequence[Setting]:
    """Nothing on machines without nvpmodel."""
    status = nodes.first([STATUS])
    if status is None:
        return []
    conf = parse_conf(nodes.files.read(CONF) or "")
    names = {mode.id: printable(mode.name) for mode in conf.modes}

    def read() -> str | None:
        mode_id = parse_status((status.read() or b"").decode(errors="replace"))
        return None if mode_id is None else names.get(mode_id, f"mode {mode_id}")

    return [Setting(source="sysfs", kind="power_mode", read=read)]
