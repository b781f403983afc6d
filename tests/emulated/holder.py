"""Makes the machine it sees look like a board, then holds that until its stdin ends.

Runs as the first process of a private mount namespace and changes nothing outside of it. At the
end, also where whoever started it was killed, it ends every process of the namespace and removes
the folder that holds the board.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from emulated.boards import BOARDS, DEBUG, Board

JTOP_GROUP_ID = 2718
_TESTS = Path(__file__).parent.parent


def dress(work: Path, board: Board, *, one_user: bool) -> None:
    """Mount what makes this namespace look like ``board``, whose files are below ``work/tree``.

    With ``one_user`` nobody but the caller exists in here, so that what is open to root alone has
    to be closed in another way than by its owner.
    """
    inside = work / "inside"  # what is only written in here
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(inside))
    base = Path(sys.base_prefix)
    for place in () if one_user else _closed_places(base, Path(sys.prefix), _TESTS):
        overlay(place, inside, {})
    # The service writes there; a folder that exists in the upper layer needs no right to make it.
    overlay(base, inside, {"local/jtop/": ""})
    overlay(Path("/etc"), inside, _etc(work / "tree", 0 if one_user else JTOP_GROUP_ID))
    overlay(Path("/usr/bin"), inside, _programs(board))
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    mount("--bind", str(work / "tree/sys"), "/sys")
    if one_user:
        _close_debugfs(work / "tree")
    for name in ("stat", "meminfo", "cpuinfo"):
        mount("--bind", str(work / "tree/proc" / name), f"/proc/{name}")


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise OSError(f"mount {' '.join(arguments)}: {done.stderr.strip()}")


def overlay(place: Path, inside: Path, files: dict[str, str]) -> None:
    """Lay a writable layer with ``files`` over a folder, and let everybody pass through it.

    A name that ends in a slash is a folder; a file that starts with ``#!`` can be run.
    """
    layer = inside / place.relative_to("/").as_posix().replace("/", "-")
    upper, scratch = layer / "upper", layer / "work"
    upper.mkdir(parents=True)
    scratch.mkdir()
    for name, text in files.items():
        path = upper / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)
    upper.chmod(stat.S_IMODE(place.stat().st_mode) | stat.S_IXOTH)
    layers = f"lowerdir={place},upperdir={upper},workdir={scratch}"
    mount("-t", "overlay", "-o", layers, "overlay", str(place))


def _closed_places(*needed: Path) -> list[Path]:
    """Folders on the way to what is needed that another user may not pass through."""
    ways = dict.fromkeys(parent for place in needed for parent in [*place.parents][::-1])
    return [way for way in ways if not way.stat().st_mode & stat.S_IXOTH]


def _etc(tree: Path, group_id: int) -> dict[str, str]:
    groups = Path("/etc/group").read_text().splitlines()
    others = [line for line in groups if not line.startswith("jtop:")]
    group = "\n".join([f"jtop:x:{group_id}:", *others, ""])  # the first of a number names it
    texts = {path.name: path.read_text() for path in (tree / "etc").iterdir()}
    return {**texts, "group": group}


def _programs(board: Board) -> dict[str, str]:
    name = board.modes[board.mode][0]
    modes = "\n".join(
        f"NVPM VERB: POWER_MODEL: ID={number} NAME={mode}"
        for number, (mode, _) in enumerate(board.modes)
    )
    told = f"NVPM VERB: PM_CONFIG: DEFAULT={name}({board.mode})\n{modes}"
    gpu_low, gpu_high = board.gpu_hz
    emc_low, emc_high = board.emc_hz
    clocks = f"""SOC family:{board.soc}  Machine:{board.model}
GPU MinFreq={gpu_low} MaxFreq={gpu_high} CurrentFreq={gpu_high}
EMC MinFreq={emc_low} MaxFreq={emc_high} CurrentFreq={emc_high} FreqOverride=0
NV Power Mode: {name}"""
    return {
        "nvpmodel": f"""#!/bin/sh
case "$1" in
-q) printf '%s\\n' 'NV Power Mode: {name}' '{board.mode}' ;;
-p) echo '{told}' ;;
*) echo 'this board keeps its mode' >&2; exit 1 ;;
esac
""",
        "jetson_clocks": f"#!/bin/sh\necho '{clocks}'\n",
        "tegrastats": f"""#!/bin/sh
PYTHONPATH='{_TESTS}' exec '{sys.executable}' -m emulated.tegrastats {board.name} "$@"
""",
    }


def _close_debugfs(tree: Path) -> None:
    """Debugfs as a folder that nobody may enter without the rights of root."""
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", DEBUG)
    for folder in (tree / DEBUG.lstrip("/")).iterdir():
        place = Path(DEBUG, folder.name)
        place.mkdir()
        mount("--bind", str(folder), str(place))
    os.chmod(DEBUG, 0)


def end_others() -> None:
    """End every other process of this mount namespace."""
    own = os.readlink("/proc/self/ns/mnt")
    found = True
    while found:
        found = False
        for entry in os.listdir("/proc"):
            if not entry.isdecimal() or int(entry) == os.getpid():
                continue
            with suppress(OSError):
                if os.readlink(f"/proc/{entry}/ns/mnt") == own and not _is_dead(entry):
                    found = True
                    os.kill(int(entry), signal.SIGKILL)


def _is_dead(process: str) -> bool:
    return Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def main(work: str, board: str, outside: str, users: str) -> None:
    if os.readlink("/proc/self/ns/mnt") == outside:
        sys.exit("not in a mount namespace of its own")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        dress(Path(work), BOARDS[board], one_user=users == "one")
    except OSError as error:
        print(f"refused: {error}", flush=True)
    else:
        print("ready", flush=True)
    sys.stdin.read()
    end_others()
    for place in ("/sys", f"{work}/inside"):  # what is mounted upon cannot be removed
        subprocess.run(["umount", "-l", place], capture_output=True, timeout=20)
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
