"""The sensor and its borrower, as users without rights, on a board whose debugfs is closed."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeprof.telemetry import sensor
from edgeprof.telemetry.sensor_client import ask_sensor, borrow_nodes

USER, STRANGER = 65534, 65533
DEBUG = "/sys/kernel/debug"
MC_ALL, RATE = f"{DEBUG}/cactmon/mc_all", f"{DEBUG}/bpmp/debug/clk/emc/rate"
DEFAULT_SOCKET = f"/run/edgeprof-{USER}/sensor.sock"

# Everything is imported before root is given up, so that the interpreter may lie anywhere.
AS_USER = """
import array, json, os, sys
from edgeprof.telemetry.sensor_client import ask_sensor
uid = int(sys.argv[1])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
"""
BORROW = """
nodes, refusal = ask_sensor()
texts = {path: os.pread(lent, 64, 0).decode() for path, lent in nodes.items()}
print(json.dumps([texts, refusal]))
"""
ENTER = 'mount --bind "$1" /sys && mount -t tmpfs -o mode=755 none /run && echo ready && exec cat'


class Stage:
    """A mount namespace in which /sys is a small board's and /run is empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sys = folder / "sys"
        self.write(MC_ALL, "1706400\n", 0o444)
        self.write(RATE, "2133000000\n", 0o600)
        (self.sys / "kernel" / "debug").chmod(0o700)
        self._holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", ENTER, "sh", str(self.sys)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"

    def close(self) -> None:
        self._holder.communicate()

    def write(self, node: str, text: str, mode: int) -> Path:
        path = self.folder / node[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def user_folder(self, uid: int = USER) -> Path:
        path = self.folder / f"of-{uid}"
        path.mkdir(exist_ok=True)
        os.chown(path, uid, uid)
        return path

    def command(self, *arguments: str) -> list[str]:
        return ["nsenter", "--mount", f"--target={self._holder.pid}", "--", *arguments]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=60)

    def as_user(
        self, uid: int, code: str, socket_path: str | None = None, *, imports: str = ""
    ) -> Any:
        variable = [] if socket_path is None else [f"EDGEPROF_SENSOR={socket_path}"]
        program = imports + AS_USER + code
        done = self.run("env", *variable, sys.executable, "-c", program, str(uid))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def sensor_command(self, *options: str) -> list[str]:
        return [sys.executable, "-ISB", sensor.__file__, f"--uid={USER}", f"--gid={USER}", *options]

    def refused(self, *options: str) -> str:
        """What a sensor says that does not start."""
        done = self.run(*self.sensor_command(*options))
        assert done.returncode == 3, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    @contextmanager
    def sensor(self, *options: str) -> Iterator["Running"]:
        with self.started(*self.sensor_command(*options)) as running:
            yield running

    @contextmanager
    def started(self, *arguments: str) -> Iterator["Running"]:
        running = Running(self.command(*arguments))
        try:
            yield running
        finally:
            running.process.kill()
            running.process.communicate()


class Running:
    """A sensor that serves, and what it said until then."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said = ""
        while "lending" not in self.said:
            self.said += self.line()

    def line(self) -> str:
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line, self.said
        return line

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(10)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user may look into."""
    path = Path(tempfile.mkdtemp(prefix="sensor-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here: unshare -m true fails")
    stage = Stage(folder)
    yield stage
    stage.close()


def test_a_user_without_rights_reads_what_only_root_can_open(stage: Stage) -> None:
    refusals = """
found = []
for path in sys.stdin.read().split():
    try:
        open(path)
    except PermissionError:
        found.append(path)
print(json.dumps(found))
"""
    closed = subprocess.run(
        stage.command(sys.executable, "-c", AS_USER + refusals, str(USER)),
        input=f"{MC_ALL} {RATE}",
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(closed.stdout) == [MC_ALL, RATE]
    with stage.sensor() as running:
        texts, refusal = stage.as_user(USER, BORROW)
    assert texts == {MC_ALL: "1706400\n", RATE: "2133000000\n"}
    assert refusal is None
    assert f"lending 2 read-only nodes to user {USER} at {DEFAULT_SOCKET}" in running.said
    assert f"  {MC_ALL}\n" in running.said


def test_the_sysfs_source_tells_bandwidth_without_root(stage: Stage) -> None:
    code = """
board = BoardFigures(bytes_per_emc_clock=32.0)
for reader in open_sysfs(board, borrow_nodes).readers:
    if reader.name == "EMC activity":
        print(json.dumps({name: reading.value for name, reading in reader.read().items()}))
        break
else:
    print("null")
"""
    imports = (
        "from edgeprof.telemetry.sensor_client import borrow_nodes\n"
        "from edgeprof.telemetry.source import BoardFigures\n"
        "from edgeprof.telemetry.sources.sysfs import open_sysfs\n"
    )
    assert stage.as_user(USER, code, imports=imports) is None
    with stage.sensor():
        readings = stage.as_user(USER, code, imports=imports)
    # 1 706 400 kHz at 2133 MHz; 32 bytes a clock
    assert readings["emc_busy_frac"] == pytest.approx(0.8)
    assert readings["emc_clock_hz"] == 2_133_000_000
    assert readings["dram_bandwidth_bytes_per_s"] == pytest.approx(54.6048e9)


def test_the_command_becomes_the_sensor(stage: Stage) -> None:
    with stage.started(sys.executable, "-m", "edgeprof", "sensor", "--user", str(USER)) as running:
        line = Path(f"/proc/{running.process.pid}/cmdline").read_text().split("\0")
        assert line[1:5] == ["-I", "-S", "-B", sensor.__file__]
        assert stage.as_user(USER, BORROW)[1] is None
        assert running.end(signal.SIGTERM) == 0


def test_the_borrower_sees_a_node_change(stage: Stage) -> None:
    follow = f"""
nodes, _ = ask_sensor()
print(os.pread(nodes[{MC_ALL!r}], 64, 0).decode().strip(), flush=True)
sys.stdin.readline()
print(os.pread(nodes[{MC_ALL!r}], 64, 0).decode().strip())
"""
    with stage.sensor() as running:
        borrower = subprocess.Popen(
            stage.command(sys.executable, "-c", AS_USER + follow, str(USER)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert borrower.stdout is not None
        assert borrower.stdout.readline() == "1706400\n"
        running.end(signal.SIGTERM)  # what was lent outlives the sensor
        stage.write(MC_ALL, "0426600\n", 0o444)
        rest, _ = borrower.communicate("go on\n")
    assert rest == "0426600\n"


def test_what_is_lent_cannot_be_written(stage: Stage) -> None:
    attempts = """
nodes, _ = ask_sensor()
outcome = {}
for path, lent in nodes.items():
    for name, attempt in {
        "write": lambda: os.write(lent, b"0"),
        "truncate": lambda: os.ftruncate(lent, 0),
        "chmod": lambda: os.fchmod(lent, 0o666),
        "reopen": lambda: os.open(f"/proc/self/fd/{lent}", os.O_RDWR),
    }.items():
        try:
            attempt()
            outcome[name] = "worked"
        except OSError as error:
            outcome.setdefault(name, error.strerror)
print(json.dumps(outcome))
"""
    with stage.sensor():
        outcome = stage.as_user(USER, attempts)
    assert outcome == {
        "write": "Bad file descriptor",
        "truncate": "Invalid argument",
        "chmod": "Operation not permitted",
        "reopen": "Permission denied",
    }


def test_the_serving_process_has_given_root_up(stage: Stage) -> None:
    with stage.sensor() as running:
        lines = Path(f"/proc/{running.process.pid}/status").read_text().splitlines()
        limits = Path(f"/proc/{running.process.pid}/limits").read_text()
    status = {name: value.split() for name, value in (line.split(":", 1) for line in lines)}
    assert status["Uid"] == [str(USER)] * 4
    assert status["Gid"] == [str(USER)] * 4
    assert status["Groups"] == []
    assert status["NoNewPrivs"] == ["1"]
    for capabilities in ("CapPrm", "CapEff", "CapAmb"):
        assert int(status[capabilities][0], 16) == 0
    assert (
        next(line for line in limits.splitlines() if "core file" in line).split()[4:6] == ["0"] * 2
    )


def test_the_sensor_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import runpy, sys; sys.argv = ['sensor.py', '--help']\n"
        f"try: runpy.run_path({sensor.__file__!r}, run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " - set(sys.stdlib_module_names) - {'__main__'}))"
    )
    done = subprocess.run([sys.executable, "-ISBc", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_another_user_cannot_connect(stage: Stage) -> None:
    with stage.sensor():
        texts, refusal = stage.as_user(STRANGER, BORROW, DEFAULT_SOCKET)
    assert texts == {}
    assert refusal == f"the sensor at {DEFAULT_SOCKET}: Permission denied"


def test_another_user_who_can_connect_gets_nothing(stage: Stage) -> None:
    path = stage.user_folder() / "s"
    with stage.sensor(f"--socket={path}") as running:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_uid == USER
        path.chmod(0o666)
        texts, refusal = stage.as_user(STRANGER, BORROW, str(path))
        assert texts == {}
        assert refusal == f"the sensor at {path}: does not serve user {STRANGER}"
        assert running.line() == f"edgeprof sensor: refused user {STRANGER}\n"
        assert stage.as_user(USER, BORROW, str(path))[1] is None


def test_root_is_served_and_believes_a_sensor_that_root_started(stage: Stage) -> None:
    with stage.sensor():
        texts, refusal = stage.as_user(0, BORROW, DEFAULT_SOCKET)
    assert (set(texts), refusal) == ({MC_ALL, RATE}, None)


def test_a_socket_of_somebody_else_is_not_asked(stage: Stage) -> None:
    listen = """
import socket
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[2])
os.chmod(sys.argv[2], 0o666)
listener.listen()
print("ready", flush=True)
sys.stdin.read()
"""
    path = stage.user_folder(STRANGER) / "s"
    impostor = subprocess.Popen(
        [sys.executable, "-c", AS_USER + listen, str(STRANGER), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert impostor.stdout is not None
    assert impostor.stdout.readline() == b"ready\n"
    texts, refusal = stage.as_user(USER, BORROW, str(path))
    impostor.communicate()
    assert texts == {}
    assert refusal == f"the sensor at {path}: belongs to user {STRANGER}, and is not asked"


def test_nodes_that_would_let_the_borrower_write_are_not_lent(stage: Stage) -> None:
    stage.write(MC_ALL, "1706400\n", 0o446)
    with stage.sensor() as running:
        texts, _ = stage.as_user(USER, BORROW)
    assert set(texts) == {RATE}
    assert f"  not lent: {MC_ALL}: others than root may write it\n" in running.said


def test_where_no_counter_may_be_lent_the_reason_is_named(stage: Stage) -> None:
    stage.write(MC_ALL, "1706400\n", 0o446)
    os.chown(stage.write(RATE, "2133000000\n", 0o400), USER, USER)
    said = stage.refused()
    assert said.count("others than root may write it") == 2
    assert "none of the EMC counters of this board may be lent" in said


def test_a_node_of_another_owner_a_link_and_a_pipe_are_not_lent(stage: Stage) -> None:
    os.chown(stage.write(f"{DEBUG}/tegra_bwmgr/emc_max_rate", "1\n", 0o444), USER, USER)
    link = stage.write(f"{DEBUG}/tegra_bwmgr/emc_min_rate", "", 0o444)
    link.unlink()
    link.symlink_to("/etc/shadow")
    pipe = stage.write(f"{DEBUG}/clk/emc/clk_rate", "", 0o444)
    pipe.unlink()
    os.mkfifo(pipe)
    with stage.sensor() as running:
        texts, _ = stage.as_user(USER, BORROW)
    assert set(texts) == {MC_ALL, RATE}
    assert running.said.count("not lent") == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_on_a_signal_and_removes_its_socket(stage: Stage, number: int) -> None:
    path = stage.user_folder() / "s"
    with stage.sensor(f"--socket={path}") as running:
        assert running.end(number) == 0
        assert list(path.parent.iterdir()) == []


def test_a_socket_left_by_a_killed_sensor_is_replaced(stage: Stage) -> None:
    with stage.sensor() as running:
        running.end(signal.SIGKILL)
        assert stage.as_user(USER, BORROW) == [
            {},
            f"the sensor at {DEFAULT_SOCKET} has ended without removing its socket",
        ]
    with stage.sensor():
        assert stage.as_user(USER, BORROW)[1] is None


def test_a_second_sensor_is_refused_and_the_first_goes_on(stage: Stage) -> None:
    with stage.sensor():
        assert "a sensor is listening there" in stage.refused()
        assert stage.as_user(USER, BORROW)[1] is None


def test_what_is_in_the_way_is_left_alone(stage: Stage) -> None:
    folder = stage.user_folder()
    (folder / "file").write_text("mine")
    (folder / "link").symlink_to(folder / "file")
    for name in ("file", "link"):
        said = stage.refused(f"--socket={folder / name}")
        assert f"{folder / name}: exists and is not a socket" in said
    assert (folder / "file").read_text() == "mine"
    assert {path.name for path in folder.iterdir()} == {"file", "link"}


def test_the_socket_is_bound_with_the_users_rights(stage: Stage) -> None:
    closed = stage.folder / "closed"
    closed.mkdir(0o755)
    assert f"a folder that user {USER} may write" in stage.refused(f"--socket={closed / 's'}")
    assert list(closed.iterdir()) == []
    # A link in the user's own folder leads root nowhere either.
    detour = stage.user_folder() / "detour"
    detour.symlink_to(closed)
    stage.refused(f"--socket={detour / 's'}")
    assert list(closed.iterdir()) == []


def test_a_folder_in_which_anybody_may_replace_the_socket_is_refused(stage: Stage) -> None:
    shared = stage.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "anybody may replace files" in stage.refused(f"--socket={shared / 's'}")
    shared.chmod(0o1777)
    with stage.sensor(f"--socket={shared / 's'}"):
        assert stage.as_user(USER, BORROW, str(shared / "s"))[1] is None


def test_a_socket_of_somebody_else_is_not_replaced(stage: Stage) -> None:
    shared = stage.folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(str(shared / "s"))
    os.chmod(shared / "s", 0o666)
    os.chown(shared / "s", STRANGER, STRANGER)
    os.chown(shared, STRANGER, STRANGER)
    assert f"{shared / 's'}: Operation not permitted" in stage.refused(f"--socket={shared / 's'}")
    assert [path.name for path in shared.iterdir()] == ["s"]


def test_the_default_folder_is_not_taken_from_somebody_else(stage: Stage) -> None:
    folder = os.path.dirname(DEFAULT_SOCKET)
    stage.run("ln", "-s", "/tmp", folder)
    assert f"{folder}: not a folder of user {USER}" in stage.refused()


def test_peers_that_say_nothing_hold_nobody_up(stage: Stage) -> None:
    crowd = """
import socket
from edgeprof.telemetry.sensor import socket_path
crowd = []
for _ in range(100):
    crowd.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    crowd[-1].connect(socket_path(uid))
nodes, refusal = ask_sensor()
print(json.dumps([sorted(nodes), refusal]))
"""
    with stage.sensor():
        assert stage.as_user(USER, crowd) == [[RATE, MC_ALL], None]


def test_where_there_is_no_counter_the_reason_is_named(stage: Stage) -> None:
    shutil.rmtree(stage.sys / "kernel" / "debug" / "cactmon")
    shutil.rmtree(stage.sys / "kernel" / "debug" / "bpmp")
    said = stage.refused()
    assert "no EMC counter can be opened: debugfs is not mounted at /sys/kernel/debug" in said
    stage.run("mount", "-t", "tmpfs", "none", DEBUG)
    assert "this is no Jetson, or its kernel lacks the module" in stage.refused()


def test_without_root_it_says_so() -> None:
    prefix = ["unshare", "--user"] if os.geteuid() == 0 else []  # there, root is nobody
    if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("root cannot be put aside here: unshare --user true fails")
    done = subprocess.run(
        [*prefix, sys.executable, "-ISB", sensor.__file__, f"--uid={USER}", f"--gid={USER}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert done.stderr == (
        "edgeprof sensor: Error: opening the EMC counters takes root: start it by sudo\n"
    )


Listener = Callable[[socket.socket], None]


@contextmanager
def listening(answer: Listener, path: Path, kind: int = socket.SOCK_SEQPACKET) -> Iterator[None]:
    """A sensor of the worst kind: one peer gets ``answer``."""
    with socket.socket(socket.AF_UNIX, kind) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(10)

        def serve() -> None:
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                return
            with peer:
                answer(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join()


def sending(
    nodes: Sequence[str], descriptors: Sequence[int], schema: str = sensor.SCHEMA
) -> Listener:
    return raw(json.dumps({"schema": schema, "nodes": nodes}).encode(), descriptors)


def raw(text: bytes, descriptors: Sequence[int] = ()) -> Listener:
    lent = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))

    def answer(peer: socket.socket) -> None:
        peer.sendmsg([text], [lent] if descriptors else [])

    return answer


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The socket that the client asks."""
    path = tmp_path / "s"
    monkeypatch.setenv("EDGEPROF_SENSOR", str(path))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "node").write_text("1\n")
    descriptor = os.open(tmp_path / "node", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_loan_is_open_for_reading_and_not_inherited(at: Path, file: int) -> None:
    with listening(sending([MC_ALL], [file]), at):
        nodes = borrow_nodes()
    assert os.pread(nodes[MC_ALL], 64, 0) == b"1\n"
    assert not os.get_inheritable(nodes[MC_ALL])
    os.close(nodes[MC_ALL])


def test_only_known_nodes_that_are_files_open_for_reading_are_taken(
    at: Path, file: int, tmp_path: Path
) -> None:
    pipe, pipe_end = os.pipe()
    writable = os.open(tmp_path / "node", os.O_RDWR)
    folder = os.open(tmp_path, os.O_RDONLY)
    names = [MC_ALL, "/etc/shadow", MC_ALL, *sensor.NODES[1:4]]
    before = open_descriptors()
    with listening(sending(names, [file, file, file, pipe, writable, folder]), at):
        loan = ask_sensor()
    assert list(loan.nodes) == [MC_ALL]
    os.close(loan.nodes[MC_ALL])
    assert open_descriptors() == before
    for descriptor in (pipe, pipe_end, writable, folder):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (lambda file: raw(b"not json", [file]), "its answer is damaged"),
        (lambda file: raw(b"[" * 60_000, [file]), "its answer is damaged"),
        (lambda file: raw(b"\xff" * 100, [file]), "its answer is damaged"),
        (lambda file: raw(b" " * 70_000, [file]), "its answer is too long"),
        (lambda file: sending([MC_ALL] * 80, [file] * 80), "its answer is too long"),
        (lambda file: sending([MC_ALL, RATE], [file]), "its answer is damaged"),
        (lambda file: sending([MC_ALL], []), "its answer is damaged"),
        (lambda file: sending([MC_ALL], [file], "edgeprof.sensor/9"), "of another version"),
        (lambda file: sending(["/etc/shadow"], [file]), "lends no node that is known"),
        (lambda file: lambda peer: None, "does not serve user"),
    ],
)
def test_a_bad_answer_lends_nothing_and_leaves_nothing_open(
    at: Path, file: int, answer: Callable[[int], Listener], fault: str
) -> None:
    before = open_descriptors()
    with listening(answer(file), at):
        loan = ask_sensor()
    assert loan.nodes == {}
    assert loan.refusal is not None
    assert fault in loan.refusal
    assert open_descriptors() == before


def test_a_sensor_that_does_not_answer_costs_a_second(at: Path) -> None:
    done = threading.Event()
    with listening(lambda peer: [done.wait(10)].clear(), at):
        t0 = time.monotonic()
        loan = ask_sensor()
        waited_s = time.monotonic() - t0
        done.set()
    assert loan == ({}, f"the sensor at {at}: timed out")
    assert 0.9 < waited_s < 5


def test_without_a_sensor_the_reason_is_told(at: Path) -> None:
    assert ask_sensor() == ({}, f"no sensor is running at {at}")
    at.write_text("")
    assert ask_sensor() == ({}, f"the sensor at {at} has ended without removing its socket")
    at.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(at))
        other.listen()
        assert ask_sensor() == ({}, f"the sensor at {at}: Protocol wrong type for socket")
