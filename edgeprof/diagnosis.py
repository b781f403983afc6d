"""What ``edgeprof doctor`` finds: the document ``edgeprof.doctor/1``, whose keys are these fields.

Figures are SI with the unit in the name; unknown is None. Knows nothing of how it is found out.
"""

from typing import Literal

from msgspec import Struct

from edgeprof.hardware.clock_ends import ClockEnds
from edgeprof.hardware.container import Container
from edgeprof.hardware.installed import Installed

SCHEMA = "edgeprof.doctor/1"

Job = Literal["run", "watch", "contend"]
JOBS: tuple[Job, ...] = ("run", "watch", "contend")
SignalState = Literal["ok", "suspect", "absent"]
PackageState = Literal["ok", "broken", "missing"]


class Board(Struct, frozen=True, kw_only=True):
    """Which board this is and what it is set to. ``kind`` is ``host`` where it is none;
    ``gpu_architecture`` is 87 for sm_87. Never the serial number."""

    kind: Literal["board", "host"]
    device: str | None
    model: str | None
    confidence: str
    candidates: tuple[str, ...]
    soc: str | None
    gpu_architecture: int | None
    l4t: str | None
    jetpack: str | None
    power_mode: str | None
    power_mode_is_set: bool
    peak_bandwidth_bytes_per_s: float | None
    memory_bytes: int | None
    clocks: list[ClockEnds]
    warnings: tuple[str, ...]


class SignalFinding(Struct, frozen=True, kw_only=True):
    """One signal from the source that serves it, or the reasons why none does.

    ``path`` is the file, program or socket, ``permission`` its mode and owner. ``value`` is in
    ``unit``, the latest reading. ``read_latency_s`` is the median time of a read, None of a source
    that speaks by itself. ``window_s`` None is not known, or the time between two readings.
    """

    name: str
    unit: str
    state: SignalState
    source: str | None = None
    path: str | None = None
    permission: str | None = None
    value: float | None = None
    quality: str | None = None
    read_latency_s: float | None = None
    window_s: float | None = None
    window_kind: str | None = None
    window_basis: str | None = None
    reason: str | None = None
    fix: str | None = None


class Python(Struct, frozen=True, kw_only=True):
    """The interpreter, and where the script ``edgeprof`` lies; ``runs_as`` says who runs it."""

    version: str
    executable: str
    machine: str
    virtual_environment: bool
    edgeprof_version: str
    script: str | None
    script_on_path: bool
    runs_as: Literal["user", "root", "sudo"]


class Package(Struct, frozen=True, kw_only=True):
    """A package that a part of edgeprof needs. ``needed_for`` is ``core``, ``run`` or ``jtop``."""

    name: str
    needed_for: str
    state: PackageState
    version: str | None = None
    location: str | None = None
    reason: str | None = None
    fix: str | None = None


class RuntimeCopy(Struct, frozen=True, kw_only=True):
    """A package that brings the module ``onnxruntime``; one of several is in charge of it.
    ``lacks_gpu`` where its wheel is known to have no code for this board's GPU."""

    package: str
    version: str
    location: str
    in_charge: bool
    lacks_gpu: bool


class Provider(Struct, frozen=True, kw_only=True):
    """What came of one real operator on it, in a process of its own."""

    name: str
    usable: bool
    reason: str | None


class GpuLibrary(Struct, frozen=True, kw_only=True):
    """The GPU code of the wheel, read from its library; ``runs_here`` is about this board's GPU,
    None where that is not known. ``reason`` says what follows."""

    library: str
    architectures: tuple[int, ...]
    ptx_architectures: tuple[int, ...]
    runs_here: bool | None
    reason: str | None


class Runtime(Struct, frozen=True, kw_only=True):
    """ONNX Runtime as this Python finds it. ``needs_numpy`` is what its wheel was built against,
    where another is installed."""

    copies: list[RuntimeCopy]
    package: str | None
    version: str | None
    built_for_cuda: str | None
    providers: list[Provider]
    gpu: GpuLibrary | None
    needs_numpy: str | None
    warnings: list[str]


class JtopCopy(Struct, frozen=True, kw_only=True):
    version: str
    folder: str
    script: str | None


class Jtop(Struct, frozen=True, kw_only=True):
    """jetson-stats: its clients, its service, and whether they fit. None of it is needed.
    ``commands`` are what the fix says to type."""

    copies: list[JtopCopy]
    service_unit: str | None
    service_command: str | None
    service_version: str | None
    socket: str | None
    socket_permission: str | None
    reason: str | None
    fix: str | None
    commands: list[str]


class Memory(Struct, frozen=True, kw_only=True):
    """What programs can have, in what pieces, and what swap there is, that in zram a part of it."""

    total_bytes: int | None
    available_bytes: int | None
    largest_free_block_bytes: int | None
    largest_free_blocks: int | None
    swap_total_bytes: int | None
    swap_used_bytes: int | None
    zram_bytes: int


class Disk(Struct, frozen=True, kw_only=True):
    """A folder that edgeprof writes to when it measures."""

    purpose: str
    path: str
    free_bytes: int | None
    writable: bool


class Blocker(Struct, frozen=True, kw_only=True):
    """What keeps a job from being done, and the command that mends it."""

    reason: str
    fix: str | None


class JobFinding(Struct, frozen=True, kw_only=True):
    """``limits`` do not keep it from being done, but the figures will lack something."""

    job: Job
    possible: bool
    blocking: list[Blocker]
    limits: list[str]


class Step(Struct, frozen=True, kw_only=True):
    """One command to type, and why."""

    command: str
    why: str


class Findings(Struct, frozen=True, kw_only=True):
    """All that was found, before anything is concluded from it. ``machine_is_root``: packages,
    disk and Python are of the machine whose board lies below the root."""

    root: str
    machine_is_root: bool
    board: Board
    signals: list[SignalFinding]
    python: Python
    packages: list[Package]
    onnxruntime: Runtime
    libraries: list[Installed]
    jtop: Jtop
    memory: Memory
    disks: list[Disk]
    container: Container | None


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All that was found and what follows from it. ``job`` is what was asked about."""

    schema: str
    created_utc: str
    edgeprof_version: str
    job: Job
    jobs: list[JobFinding]
    next_steps: list[Step]
    findings: Findings

    @property
    def asked(self) -> JobFinding:
        """What was found about the job that was asked for."""
        return next(finding for finding in self.jobs if finding.job == self.job)
