"""Records the sessions that the measured figures are drawn from: ``python plots/record.py``.

``cpu.sqlite`` is a real run of the demo's model on this machine's CPU, ``cpu-contention.sqlite`` a
real one of it beside processes that stream. ``emulated-orin-nano.sqlite`` is ``edgeprof watch``
beside a program that announces phases, on the files of an emulated board, which this script drives
through them: the recorder and the sampler are real, the board is not, and every sample says so.
``scripted.sqlite`` is no recording at all: a decode written by a script with known bytes a pass,
through the real store.
"""

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import msgspec
from emulated.tree import Tree, build
from emulated.truth import (
    Counter,
    Script,
    Truth,
    Work,
    bandwidth_signal,
    samples,
    session_info,
)

from edgeprof.session.records import Signal
from edgeprof.session.store import SessionWriter

REAL = {
    "cpu-contention": "contend smollm2-135m --target fp32 --dose 25 --dose 50 --dose 100 -r 4"
    " --seconds 1",
    "cpu": "run smollm2-135m -n 32 --repeats 1",
}
TRUTH = Truth(
    passes={
        "decode": Work(4.0e9, 0.100),
        "verify": Work(4.2e9, 0.120),
        "draft": Work(0.4e9, 0.020),
    },
    idle_bytes_per_s=1e9,
    interference=0.03,
    counter=Counter(kind="exponential", window_s=0.4, noise=0.01, offset_s=0.0),
)
IDLE_W, J_PER_BYTE = 4.5, 0.12e-9

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
    write_scripted(SESSIONS / "scripted.sqlite")
    output = str(SESSIONS / "emulated-orin-nano.sqlite")
    with tempfile.TemporaryDirectory() as board:
        tree = build(Path(board), "orin-nano")
        watch = ["watch", "-q", "--root", board, "-o", output, "--force", "--"]
        program = [sys.executable, "-c", ANNOUNCER]
        with subprocess.Popen([*edgeprof, *watch, *program], stdin=subprocess.PIPE) as watching:
            drive(tree, lambda phase: tell(watching, phase))
    for name, command in REAL.items():
        output = str(SESSIONS / f"{name}.sqlite")
        subprocess.run([*edgeprof, *shlex.split(command), "-o", output, "--force"], check=True)


def write_scripted(path: Path) -> None:
    """Phases held for their bytes and answers with a draft, their bandwidth read through a slow
    counter, and power that follows the bandwidth."""
    seed = 1
    script = Script(TRUTH, seed=seed, leg_s=5.0, repeats=3, answers=2, answer_s=10.0)
    info = msgspec.structs.replace(
        session_info(), device={"name": "a board of a script", "kind": "board"}
    )
    power = Signal(
        id=2, name="power_w.total", unit="W", source="sysfs", window_kind="instantaneous"
    )
    writer = SessionWriter(path, info, force=True)
    for record in (*script.records(), bandwidth_signal(), power):
        writer.add(record)
    for sample in samples(script, seed=seed):
        watts = IDLE_W + J_PER_BYTE * (sample.value or 0.0)
        writer.add(sample)
        writer.add(msgspec.structs.replace(sample, signal_id=2, value=watts))
    writer.close()


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
