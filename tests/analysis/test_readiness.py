"""What blocks a job, and which command comes first: from findings that are made by hand."""

from made_findings import BANDWIDTH, BOARD, HOST, packages, runtime
from msgspec import structs

from edgeprof.analysis.next_steps import next_steps
from edgeprof.analysis.readiness import Means, default_job, job_findings
from edgeprof.diagnosis import Findings, Job, JobFinding, Provider, SignalFinding
from edgeprof.hardware.clock_ends import ClockEnds
from edgeprof.hardware.container import Container, MissingMount
from edgeprof.hardware.installed import Installed
from edgeprof.hardware.jetpack import stack_of

SENSOR = "sudo python -I -S -B sensor.py --socket x --uid 1000 --gid 1000"
MEANS = Means(pip="pip", edgeprof="edgeprof", sensor=SENSOR, stack=None, cores=6)


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
    on_jetpack_6 = structs.replace(MEANS, stack=stack_of("36.4.3"))  # I13: not from the usual index
    typed = commands(findings, means=on_jetpack_6)
    assert not any("--force-reinstall" in one for one in typed)
    assert typed[-1].endswith('--index-url "$JETSON_AI_LAB_INDEX/jp6/cu126"')


def test_i02_a_board_whose_jetpack_has_a_wheel_is_given_its_commands_in_order() -> None:
    means = structs.replace(MEANS, stack=stack_of("36.4.3"))
    bare = commands(BOARD, means=means)  # an image without JetPack's libraries
    assert bare[0] == "sudo apt-get install nvidia-jetpack"
    assert bare[1:4] == [
        "pip uninstall -y onnxruntime onnxruntime-gpu",
        "pip install 'numpy<2'",
        'pip install onnxruntime-gpu==1.23.0 --index-url "$JETSON_AI_LAB_INDEX/jp6/cu126"',
    ]
    newer = structs.replace(BOARD, python=structs.replace(BOARD.python, version="3.12.3"))
    assert commands(newer, means=means) == ["edgeprof run smollm2-135m"]  # the wheel is cp310
    cuda = Provider(name="cuda", usable=True, reason=None)
    works = structs.replace(BOARD, onnxruntime=runtime(("onnxruntime-gpu", "1"), providers=[cuda]))
    assert commands(works, means=means) == ["edgeprof run smollm2-135m"]


def test_what_jetpack_brings_and_is_missing_is_named_once() -> None:
    means = structs.replace(MEANS, stack=stack_of("36.4.3"))
    cuda = Installed(name="CUDA", version="12.6.68", file="/var/lib/dpkg/status")
    findings = structs.replace(BOARD, libraries=[cuda])
    (limit,) = [one for one in found(findings, "run", means).limits if "not installed" in one]
    assert limit == "not installed, of what comes with JetPack: cuDNN 9.3.0, TensorRT 10.3.0"
    inside = structs.replace(findings, container=Container(kind="docker", missing=[]))
    assert "sudo apt-get install nvidia-jetpack" not in commands(inside, means=means)
    assert not [one for one in found(HOST, "run", means).limits if "not installed" in one]


def test_a_wheel_for_another_cuda_is_told() -> None:
    means = structs.replace(MEANS, stack=stack_of("36.4.3"))  # brings CUDA 12.6
    wheel = runtime(("onnxruntime-gpu", "1.31.1"), built_for_cuda="13.0")
    findings = structs.replace(BOARD, onnxruntime=wheel)
    told = "onnxruntime was built for CUDA 13.0, and this machine has CUDA 12.6"
    assert told in found(findings, "run", means).limits
    newer = Installed(name="CUDA", version="13.2", file="/usr/local/cuda")
    beside = structs.replace(findings, libraries=[newer])
    assert not [one for one in found(beside, "run", means).limits if "built for" in one]


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
    assert commands(elsewhere)[0] == "edgeprof sensor"
    assert any("no measured memory bandwidth" in one for one in found(findings, "watch").limits)
    unloaded = structs.replace(closed, fix="sudo modprobe tegra_cactmon_mc_all")
    findings = structs.replace(BOARD, signals=[*HOST.signals, unloaded])
    assert commands(findings)[0] == "sudo modprobe tegra_cactmon_mc_all"


def test_the_memory_clock_alone_is_worth_the_sensor() -> None:
    """Older boards show the activity to everybody, and the clock that it is a share of to root."""
    clock = SignalFinding(
        name="emc_clock_hz", unit="Hz", state="absent", reason="only root",
        fix="edgeprof sensor (it prints the sudo command)",
    )  # fmt: skip
    findings = structs.replace(BOARD, signals=[*BOARD.signals, clock])
    (sensor, _) = next_steps(findings, job_findings(findings, MEANS), "run", MEANS)
    assert (sensor.command, sensor.why) == (SENSOR, "memory clock: only root")


def test_every_step_is_a_command_also_where_the_remedy_is_a_sentence() -> None:
    unnamed = structs.replace(
        BANDWIDTH, state="absent", reason="no bus width",
        fix="name the board with --device; edgeprof devices lists those that are known",
    )  # fmt: skip
    jtop = structs.replace(
        BOARD.jtop, reason="not in the group", fix="join it, then log in again",
        commands=["sudo usermod -aG jtop \"$USER\"", "newgrp jtop"],
    )  # fmt: skip
    findings = structs.replace(BOARD, signals=[*HOST.signals, unnamed], jtop=jtop)
    by_module = structs.replace(MEANS, edgeprof="/v/bin/python3 -m edgeprof")
    assert commands(findings, means=by_module) == [
        "/v/bin/python3 -m edgeprof devices",
        'sudo usermod -aG jtop "$USER"',
        "newgrp jtop",
        "/v/bin/python3 -m edgeprof run smollm2-135m",
    ]
    (step, *_) = next_steps(findings, job_findings(findings, MEANS), "run", MEANS)
    assert step.why == f"memory bandwidth: no bus width; {unnamed.fix}"


def test_a_board_below_a_root_is_watched_there() -> None:
    elsewhere = structs.replace(BOARD, machine_is_root=False, root="/mnt/my board")
    assert commands(elsewhere, "watch") == ["edgeprof watch --root '/mnt/my board'"]


def test_i04_what_running_lacks_never_brings_a_second_runtime() -> None:
    bare = structs.replace(HOST, packages=packages(onnx="missing", tokenizers="missing"))
    assert commands(bare, "run") == ["pip install 'edgeprof[cpu]'"]  # brings all three
    gpu = structs.replace(bare, onnxruntime=runtime(("onnxruntime-gpu", "1.23.0")))
    assert commands(gpu, "run") == ["mend onnx", "mend tokenizers"]


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


def test_contention_on_one_core_is_mostly_about_that_core() -> None:
    one_core = structs.replace(MEANS, cores=1)
    assert not [one for one in found(BOARD, "run", one_core).limits if "one core" in one]
    contend = found(BOARD, "contend", one_core)
    assert contend.possible and "one core" in contend.limits[-1]


def test_a_session_needs_room() -> None:
    full = [structs.replace(BOARD.disks[0], free_bytes=1 << 20)]
    findings = structs.replace(BOARD, disks=full)
    assert not found(findings, "run").possible and found(findings, "watch").possible


def test_nothing_to_watch_is_a_reason() -> None:
    nothing = structs.replace(HOST, signals=[structs.replace(BANDWIDTH, state="absent")])
    assert not found(nothing, "watch").possible
