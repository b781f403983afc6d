"""What the files of a board tell of it, read on kept descriptors below a root folder.

Every generation from Nano to Thor: which files there are decides, not what the board is called.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import structs

from edgeprof.hardware.board_files import BoardFiles
from edgeprof.telemetry.nodes import Nodes
from edgeprof.telemetry.source import BoardFigures, Offer, Reader, Reading
from edgeprof.telemetry.sources.sysfs_emc import open_emc
from edgeprof.telemetry.sources.sysfs_gpu import open_gpu
from edgeprof.telemetry.sources.sysfs_mode import open_power_mode
from edgeprof.telemetry.sources.sysfs_power import open_power
from edgeprof.telemetry.sources.sysfs_proc import open_proc
from edgeprof.telemetry.sources.sysfs_thermal import open_thermal


def _no_lender() -> Mapping[str, int]:
    return {}


def open_sysfs(board: BoardFigures, lent: Callable[[], Mapping[str, int]] = _no_lender) -> Offer:
    """Open what is there.

    ``lent`` gives open descriptors, to keep, by the path on the board; it is asked at most once,
    and only where a node may not be opened.
    """
    files = BoardFiles(Path(board.root))
    nodes = Nodes(files, lent)
    offers = [
        open_emc(nodes, board),
        open_gpu(nodes),
        open_power(files, board),
        open_thermal(files),
        open_proc(nodes),
    ]
    settings = open_power_mode(nodes)
    nodes.close_unused()
    readers = [reader for offer in offers for reader in offer.readers]
    return Offer(
        readers=[_simulated(reader) for reader in readers] if board.simulated else readers,
        settings=settings,
        absences=[absence for offer in offers for absence in offer.absences],
    )


def _simulated(reader: Reader) -> Reader:
    """The same with every reading marked as not of this machine's board."""

    def read() -> Mapping[str, Reading]:
        return {
            name: Reading(reading.value, reading.raw, "simulated", reading.reason)
            for name, reading in reader.read().items()
        }

    return structs.replace(reader, read=read)
