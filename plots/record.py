"""Records the sessions that the measured figures are drawn from: ``python plots/record.py``.

``cpu.sqlite`` is a real run of the demo's model on this machine's CPU.
``emulated-orin-nano.sqlite`` is ``edgeprof watch`` beside a program that announces phases, on the
files of an emulated board, which this script drives through them: the recorder and the sampler are
real, the board is not, and every sample says so.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from emulated.tree import Tree, build

SESSIONS = Path(__file__).parent / "sessions"
ANNOUNCER = "import edgeprof, sys\nfor line in sys.stdin: edgeprof.mark(line.strip())"


class Phase(NamedTuple):
    """What the emulated board shows while it lasts."""

    name: str
    seconds: float
    emc_busy_frac: float
    gpu_busy_frac: float
    milliamperes: int


PREFILL = Phase("prefill", 1.2, 0.45, 0.98, 2600)
DECODE = Phase("decode", 4.0, 0.82, 0.90, 2100)
DRAFT = Phase("draft", 0.35, 0.40, 0.55, 1500)
VERIFY = Phase("verify", 0.65, 0.84, 0.93, 2200)
IDLE = Phase("idle", 1.5, 0.03, 0.0, 900)
PLAN = (IDLE, PREFILL, DECODE, IDLE, PREFILL, *(DRAFT, VERIFY) * 4, IDLE)


def main() -> None:
    SESSIONS.mkdir(exist_ok=True)
    edgeprof = [sys.executable, "-m", "edgeprof"]
    run = ["run", "smollm2-135m", "-n", "32", "--repeats", "3", "-o", str(SESSIONS / "cpu.sqlite")]
    subprocess.run([*edgeprof, *run, "--force"], check=True)
    output = str(SESSIONS / "emulated-orin-nano.sqlite")
    with tempfile.TemporaryDirectory() as board:
        tree = build(Path(board), "orin-nano")
        watch = ["watch", "-q", "--root", board, "-o", output, "--force", "--"]
        program = [sys.executable, "-c", ANNOUNCER]
        with subprocess.Popen([*edgeprof, *watch, *program], stdin=subprocess.PIPE) as watching:
            drive(tree, lambda phase: tell(watching, phase))


def tell(watching: "subprocess.Popen[bytes]", phase: str) -> None:
    """Has the watched program announce a phase."""
    assert watching.stdin is not None
    watching.stdin.write(f"{phase}\n".encode())
    watching.stdin.flush()


def drive(tree: Tree, announce: Callable[[str], None]) -> None:
    """Moves the board through the phases of ``PLAN`` and says when each begins."""
    rail = tree.board.chips[0].rails[0].label
    celsius = 42.0
    for phase in PLAN:
        tree.set_emc(busy_frac=phase.emc_busy_frac)
        tree.set_gpu(busy_frac=phase.gpu_busy_frac)
        tree.set_rail(rail, ma=phase.milliamperes)
        announce(phase.name)
        end_s = time.monotonic() + phase.seconds
        while time.monotonic() < end_s:
            celsius += (42.0 + 20.0 * phase.gpu_busy_frac - celsius) * 0.01
            tree.set_temperature("gpu-thermal", round(celsius, 2))
            tree.add_cpu_ticks(busy=3, idle=7)
            time.sleep(0.1)


if __name__ == "__main__":
    main()
