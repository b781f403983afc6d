"""Records the sessions that the measured figures are drawn from: ``python plots/record.py``.

``cpu.sqlite`` is a real run of the demo's model on this machine's CPU, ``cpu-contention.sqlite`` a
real one of it beside processes that stream. ``emulated-orin-nano.sqlite`` is ``edgeprof watch``
beside a program that announces phases, on the files of an emulated board, which this script drives
through them: the recorder and the sampler are real, the board is not, and every sample says so.
``scripted.sqlite`` is a decode that a script makes up, with known bytes a pass, played in real time
through the files of an emulated board: again the sampler is real and the board is not.

Without names all are recorded; ``python plots/record.py scripted`` records that one.
"""

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import msgspec
from emulated.played import play
from emulated.tree import Tree, build
from emulated.truth import Counter, Script, Truth, Work, session_info

from edgeprof import __version__

REAL = {
    "cpu-contention": "contend smollm2-135m --target fp32 --dose 25 --dose 50 --dose 100 -r 4"
    " --seconds 1",
    "cpu": "run smollm2-135m -n 32 --repeats 1",
    "cpu-repeats": "run smollm2-135m -n 32 --repeats 3",
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
IDLE_W, J_PER_BYTE, VOLTS = 4.5, 0.12e-9, 5.0

SESSIONS = Path(__file__).parent / "sessions"
EDGEPROF = (sys.executable, "-m", "edgeprof")
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


def main(names: Sequence[str]) -> None:
    SESSIONS.mkdir(exist_ok=True)
    recorders = {
        "emulated-orin-nano": watch_emulated,
        "scripted": play_scripted,
        **{name: partial(record, command) for name, command in REAL.items()},
    }
    for name in names or recorders:
        recorders[name](SESSIONS / f"{name}.sqlite")


def record(command: str, output: Path) -> None:
    subprocess.run([*EDGEPROF, *shlex.split(command), "-o", str(output), "--force"], check=True)


def watch_emulated(output: Path) -> None:
    with tempfile.TemporaryDirectory() as board:
        tree = build(Path(board), "orin-nano")
        watch = ["watch", "-q", "--root", board, "-o", str(output), "--force", "--"]
        program = [sys.executable, "-c", ANNOUNCER]
        with subprocess.Popen([*EDGEPROF, *watch, *program], stdin=subprocess.PIPE) as watching:
            drive(tree, lambda phase: tell(watching, phase))


def play_scripted(path: Path) -> None:
    """Phases held for their bytes and answers with a draft on an emulated board, in real time. Its
    counter of the memory is slow, its power follows the bandwidth."""
    created_utc = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    info = msgspec.structs.replace(
        session_info(),
        created_utc=created_utc,
        edgeprof_version=__version__,
        device={"name": "emulated Orin Nano, driven by a script", "kind": "board"},
    )
    with tempfile.TemporaryDirectory() as board:
        tree = build(Path(board), "orin-nano")
        rail = tree.board.chips[0].rails[0].label

        def draw_power(bytes_per_s: float) -> None:
            tree.set_rail(rail, ma=round(1000 * (IDLE_W + J_PER_BYTE * bytes_per_s) / VOLTS))

        play(tree, script_from, path, beside=draw_power, info=info)


def script_from(start_s: float) -> Script:
    lengths = {"leg_s": 5.0, "repeats": 3, "answers": 2, "answer_s": 10.0}
    return Script(TRUTH, seed=1, start_s=start_s, duty=False, **lengths)


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
    main(sys.argv[1:])
