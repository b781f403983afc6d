"""Findings of the doctor made by hand: a bare host, and a board on which models can be run."""

from msgspec import structs

from edgeprof.diagnosis import (
    Board,
    Disk,
    Findings,
    Jtop,
    Memory,
    Package,
    Provider,
    Python,
    Runtime,
    RuntimeCopy,
    SignalFinding,
)

NO_RUNTIME = Runtime(
    copies=[], package=None, version=None, built_for_cuda=None, providers=[], gpu=None,
    needs_numpy=None, warnings=[],
)  # fmt: skip


def runtime(*packages: tuple[str, str], cpu: bool = True, **changes: object) -> Runtime:
    copies = [
        RuntimeCopy(package=name, version=version, location="/v", in_charge=False, lacks_gpu=False)
        for name, version in packages
    ]
    provider = Provider(name="cpu", usable=cpu, reason=None if cpu else "boom")
    made = structs.replace(NO_RUNTIME, copies=copies, package="onnxruntime", providers=[provider])
    return structs.replace(made, **changes)


def packages(**states: str) -> list[Package]:
    core = ("click", "msgspec", "numpy", "psutil", "platformdirs", "matplotlib")
    return [
        Package(
            name=name,
            needed_for="core" if name in core else "run",
            state=states.get(name, "ok"),  # type: ignore[arg-type]
            fix=None if states.get(name, "ok") == "ok" else f"mend {name}",
        )
        for name in (*core, "onnx", "tokenizers")
    ]


BANDWIDTH = SignalFinding(
    name="dram_bandwidth_bytes_per_s", unit="B/s", state="ok", value=10e9, source="sysfs"
)
HOST = Findings(
    root="/",
    machine_is_root=True,
    board=Board(
        kind="host", device=None, model=None, confidence="none", candidates=(), soc=None,
        gpu_architecture=None, l4t=None, jetpack=None, power_mode=None, power_mode_is_set=False,
        peak_bandwidth_bytes_per_s=None, memory_bytes=8 << 30, clocks=[], warnings=(),
    ),
    signals=[SignalFinding(name="cpu_busy_frac", unit="1", state="ok", value=0.5)],
    python=Python(
        version="3.10.12", executable="/v/bin/python", machine="aarch64", virtual_environment=True,
        edgeprof_version="0.1.0", script="/v/bin/edgeprof", script_on_path=True, runs_as="user",
    ),
    packages=packages(),
    onnxruntime=NO_RUNTIME,
    libraries=[],
    jtop=Jtop(
        copies=[], service_unit=None, service_command=None, service_version=None, socket=None,
        socket_permission=None, reason=None, fix=None, commands=[],
    ),
    memory=Memory(
        total_bytes=8 << 30, available_bytes=6 << 30, largest_free_block_bytes=4 << 20,
        largest_free_blocks=9, swap_total_bytes=0, swap_used_bytes=0, zram_bytes=0,
    ),
    disks=[Disk(purpose="sessions", path="/s", free_bytes=1 << 40, writable=True)],
    container=None,
)  # fmt: skip
BOARD = structs.replace(
    HOST,
    board=structs.replace(HOST.board, kind="board", device="orin-nano-8gb", gpu_architecture=87),
    signals=[*HOST.signals, BANDWIDTH],
    onnxruntime=runtime(("onnxruntime", "1.23.2")),
)
