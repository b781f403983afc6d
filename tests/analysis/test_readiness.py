"""What blocks a job, and which command comes first: from findings that are made by hand."""

from msgspec import structs

from edgeprof.analysis.readiness import Means, default_job, job_findings, next_steps
from edgeprof.diagnosis import (
    Board,
    Disk,
    Findings,
    Job,
    JobFinding,
    Jtop,
    Memory,
    Package,
    Provider,
    Python,
    Runtime,
    RuntimeCopy,
    SignalFinding,
)
from edgeprof.hardware.clock_ends import ClockEnds
from edgeprof.hardware.container import Container, MissingMount
from edgeprof.hardware.jetpack import stack_of

SENSOR = "sudo python -I -S -B sensor.py --socket x --uid 1000 --gid 1000"
MEANS = Means(pip="pip", python="python", sensor=SENSOR, stack=None, cores=6)
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


BANDWIDTH = SignalFinding(name="dram_bandwidth_bytes_per_s", unit="B/s", state="ok")
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
        socket_permission=None, reason=None, fix=None,
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


def found(findings: Findings, job: Job, means: Means = MEANS) -> JobFinding:
    return next(one for one in job_findings(findings, means) if one.job == job)


def commands(findings: Findings, job: Job = "run", means: Means = MEANS) -> list[str]:
    jobs = job_findings(findings, means)
    return [step.command for step in next_steps(findings, jobs, job, means)]


def test_a_bare_host_can_watch_and_is_told_what_running_lacks() -> None:
    assert default_job(HOST) == "watch"
    assert found(HOST, "watch").possible
    run = found(HOST, "run")
    assert not run.possible and [one.reason for one in run.blocking] == [
        "no onnxruntime is installed"
    ]
    assert commands(HOST, "run") == ["pip install 'edgeprof[cpu]'"]
    # and then what running models would need
    assert commands(HOST, "watch") == ["edgeprof watch", "pip install 'edgeprof[cpu]'"]


def test_with_a_runtime_everything_can_be_done() -> None:
    assert default_job(BOARD) == "run"
    assert all(one.possible for one in job_findings(BOARD, MEANS))
    assert commands(BOARD) == ["edgeprof run smollm2-135m"]


def test_i10_a_numpy_that_cannot_be_imported_blocks_what_needs_it_and_comes_first() -> None:
    damaged = structs.replace(BOARD, packages=packages(numpy="broken"))
    damaged = structs.replace(damaged, onnxruntime=runtime(("onnxruntime", "1"), cpu=False))
    assert not found(damaged, "run").possible and found(damaged, "watch").possible
    assert commands(damaged) == ["mend numpy"]
    bare = structs.replace(HOST, packages=packages(numpy="broken"))
    assert default_job(bare) == "run"


def test_i04_two_runtimes_are_removed_before_one_is_installed() -> None:
    both = runtime(("onnxruntime", "1.23.2"), ("onnxruntime-gpu", "1.23.0"))
    findings = structs.replace(BOARD, onnxruntime=both)
    assert commands(findings) == [
        "pip uninstall -y onnxruntime onnxruntime-gpu",
        "pip install onnxruntime-gpu==1.23.0",
        "edgeprof run smollm2-135m",
    ]
    lacking = [structs.replace(copy, lacks_gpu="gpu" in copy.package) for copy in both.copies]
    findings = structs.replace(BOARD, onnxruntime=structs.replace(both, copies=lacking))
    assert "pip install onnxruntime==1.23.2" in commands(findings)


def test_i04_two_runtimes_of_which_none_works_come_first_too() -> None:
    both = runtime(("onnxruntime", "1.23.2"), ("onnxruntime-gpu", "1.23.0"), cpu=False)
    findings = structs.replace(BOARD, onnxruntime=both)
    assert not found(findings, "run").possible
    assert commands(findings)[0] == "pip uninstall -y onnxruntime onnxruntime-gpu"
    alone = runtime(("onnxruntime-gpu", "1.23.0"), cpu=False, package="onnxruntime-gpu")
    findings = structs.replace(BOARD, onnxruntime=alone)
    assert commands(findings) == ["pip install --force-reinstall --no-deps onnxruntime-gpu"]


def test_i02_a_board_whose_jetpack_has_a_wheel_is_given_its_commands_in_order() -> None:
    means = structs.replace(MEANS, stack=stack_of("36.4.3"))
    assert commands(BOARD, means=means)[:3] == [
        "pip uninstall -y onnxruntime onnxruntime-gpu",
        "pip install 'numpy<2'",
        'pip install onnxruntime-gpu==1.23.0 --index-url "$JETSON_AI_LAB_INDEX/jp6/cu126"',
    ]
    newer = structs.replace(BOARD, python=structs.replace(BOARD.python, version="3.12.3"))
    assert commands(newer, means=means) == ["edgeprof run smollm2-135m"]  # the wheel is cp310
    cuda = Provider(name="cuda", usable=True, reason=None)
    works = structs.replace(BOARD, onnxruntime=runtime(("onnxruntime-gpu", "1"), providers=[cuda]))
    assert commands(works, means=means) == ["edgeprof run smollm2-135m"]


def test_i02_no_wheel_for_a_jetpack_is_said_with_its_source() -> None:
    means = structs.replace(MEANS, stack=stack_of("39.2.0"))
    (limit,) = [one for one in found(BOARD, "run", means).limits if "JetPack 7.2" in one]
    assert "build onnxruntime from source" in limit and "rbonghi/jetson_stats PR 894" in limit


def test_i03_a_wheel_of_numpy_1_beside_numpy_2() -> None:
    broken = runtime(("onnxruntime-gpu", "1.23.0"), cpu=False, needs_numpy="<2")
    assert commands(structs.replace(BOARD, onnxruntime=broken))[0] == "pip install 'numpy<2'"


def test_what_closes_the_memory_counters_is_opened_by_the_very_command() -> None:
    closed = structs.replace(
        BANDWIDTH, state="absent", reason="only root", fix="edgeprof sensor (it prints ...)"
    )
    findings = structs.replace(BOARD, signals=[*HOST.signals, closed])
    assert commands(findings) == [SENSOR, "edgeprof run smollm2-135m"]
    elsewhere = structs.replace(findings, machine_is_root=False)  # whose files nobody here lends
    assert commands(elsewhere)[0] == "edgeprof sensor (it prints ...)"
    assert any("no measured memory bandwidth" in one for one in found(findings, "watch").limits)
    unloaded = structs.replace(closed, fix="sudo modprobe tegra_cactmon_mc_all")
    findings = structs.replace(BOARD, signals=[*HOST.signals, unloaded])
    assert commands(findings)[0] == "sudo modprobe tegra_cactmon_mc_all"


def test_clocks_that_move_are_pinned_by_the_user() -> None:
    free = ClockEnds(part="GPU", low_hz=3e8, high_hz=1e9, now_hz=None, pinned=False, file="/f")
    board = structs.replace(BOARD.board, clocks=[free])
    findings = structs.replace(BOARD, board=board)
    assert commands(findings) == ["sudo jetson_clocks", "edgeprof run smollm2-135m"]
    assert any(one.startswith("clocks move (GPU)") for one in found(findings, "watch").limits)


def test_i15_a_container_gets_one_line_of_options() -> None:
    mounts = [
        MissingMount(options="-v a:a", brings="A"),
        MissingMount(options="-v b:b", brings="B"),
    ]
    findings = structs.replace(BOARD, container=Container(kind="docker", missing=mounts))
    assert commands(findings)[0] == "docker run -v a:a -v b:b IMAGE"


def test_contention_needs_two_cores_and_a_session_needs_room() -> None:
    one_core = structs.replace(MEANS, cores=1)
    assert found(BOARD, "run", one_core).possible
    assert not found(BOARD, "contend", one_core).possible
    full = [structs.replace(BOARD.disks[0], free_bytes=1 << 20)]
    findings = structs.replace(BOARD, disks=full)
    assert not found(findings, "run").possible and found(findings, "watch").possible


def test_nothing_to_watch_is_a_reason() -> None:
    nothing = structs.replace(HOST, signals=[structs.replace(BANDWIDTH, state="absent")])
    assert not found(nothing, "watch").possible
