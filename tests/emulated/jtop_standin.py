"""A stand-in for the jtop package of jetson-stats, and an interpreter that has it.

It raises what the real client raises, from within what the real one raises it from, and gives
dictionaries of the same form. Written for tests that need no service; knows no edgeprof.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

_PACKAGE = """
import json, pathlib, threading, time
from multiprocessing import AuthenticationError

PLAN = json.loads(pathlib.Path(__file__).with_name("plan.json").read_text())
__version__ = PLAN.get("version", "7.2.2")
CAUSES = {
    "no-socket": FileNotFoundError(2, "No such file"), "stale": ConnectionRefusedError(111, "no"),
    "denied": PermissionError(13, "denied"), "pickle": ValueError("unsupported pickle protocol: 5"),
    "key": AuthenticationError("digest"), "lost": EOFError(),
}
TEXTS = {
    "data": "Error connection",
    "version": "Mismatch version jtop service: [4.3.2] and client: [7.2.2]. Please run:\\n\\nX",
}
print("libraries print where they like", flush=True)


class JtopException(Exception):
    pass


def fail(how):
    if how == "hang":
        threading.Event().wait()
    if how == "eof":
        raise EOFError
    if how == "bug":
        raise KeyError("a key")
    if how in TEXTS:
        raise JtopException(TEXTS[how])
    try:
        raise CAUSES[how]
    except Exception:
        raise JtopException("words of\\nthe client")


class jtop:
    def __init__(self, interval):
        self.interval_user = interval
        self.interval = PLAN.get("interval", interval)
        self.observers = set()
        self.updates = iter(PLAN["updates"])
        self._stats = {"time": object()}

    def start(self):
        if PLAN.get("start"):
            fail(PLAN["start"])
        if PLAN.get("first"):
            self.take(PLAN["first"])

    def attach(self, observer):
        self.observers.add(observer)

    def ok(self):
        time.sleep(0.005)
        update = next(self.updates, None)
        if update is None:
            if PLAN["end"] == "false":
                return False
            fail(PLAN["end"])
        self.take(update)
        return True

    def take(self, update):
        for name, value in {**PLAN.get("every", {}), **update}.items():
            setattr(self, name, value)
        if "uptime" not in self._stats or PLAN.get("runs", True):
            self._stats["uptime"] = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.nvpmodel = type("NVPModel", (), {"name": getattr(self, "mode", None)})
        for observer in self.observers:
            observer(self)
"""
# Takes the place of an interpreter: `PYTHON -I SCRIPT OPTIONS`, with the package on its path.
_RUN = (
    "import runpy, sys; sys.executable = {python!r}; sys.path.insert(0, {folder!r}); "
    "del sys.argv[:2]; runpy.run_path(sys.argv[0], run_name='__main__')"
)

# What jetson-stats 7.2.2 gave of a board that an Orin Nano's files were made up for.
ORIN_NANO: dict[str, Any] = {
    "memory": {
        "RAM": {"tot": 7800000, "used": 3080000, "free": 3900000, "shared": 409600, "lfb": 917},
        "SWAP": {"tot": 3900000, "used": 1000, "cached": 0, "table": {"/swap": {"prio": -2}}},
        "EMC": {"cur": 2133000, "max": 2133000, "min": 204000, "override": 0, "val": 0},
    },
    "gpu": {
        "gpu": {
            "type": "integrated",
            "status": {"railgate": True, "load": 55.5},
            "freq": {"governor": "nvhost_podgov", "cur": 306000, "GPC": [612000, 306000]},
            "power_control": "auto",
        }
    },
    "power": {
        "rail": {
            "VDD_CPU_GPU_CV": {"volt": 4912, "curr": 300, "power": 1473, "online": True},
            "VDD_SOC": {"volt": 4912, "curr": 280, "power": 1375, "online": True},
        },
        "tot": {"volt": 4912, "curr": 1200, "power": 5894, "online": True, "name": "VDD_IN"},
    },
    "temperature": {
        "cpu": {"temp": 48.5, "online": True},
        "cv0": {"temp": -256, "online": False},
    },
    "cpu": {"cpu": [{"online": True}, {"online": True}, {"online": False}]},
    "mode": "15W",
}


class StandIn:
    """An interpreter in ``folder`` whose jtop does what ``plan`` says.

    ``updates`` are given one after the other on top of ``every``; then comes the ``end``: ``hang``,
    ``false`` (of ``ok()``), or a failure. ``start`` is a failure to connect. ``runs`` False keeps
    the time stamp of the first update.
    """

    def __init__(self, folder: Path, *, updates: list[dict[str, Any]], **plan: Any) -> None:
        folder.mkdir(exist_ok=True)
        plan = {"end": "hang", "every": ORIN_NANO, **plan, "updates": updates}
        (folder / "plan.json").write_text(json.dumps(plan))
        (folder / "jtop.py").write_text(_PACKAGE)
        self.python = str(folder / "python")
        run = _RUN.format(python=self.python, folder=str(folder))
        Path(self.python).write_text(
            f"#!/bin/sh\nexec '{sys.executable}' -I -c \"$(cat '{folder}/run')\" \"$@\"\n"
        )
        (folder / "run").write_text(run)
        os.chmod(self.python, 0o755)

    def command(self, client: Path) -> list[str]:
        """The client as edgeprof runs it, by this interpreter."""
        return [self.python, "-I", str(client)]
