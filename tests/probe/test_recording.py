"""Whole probes, small ones: what is measured is kept, whatever happens to the rest."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from edgeprof.catalog import find_model
from edgeprof.errors import EnvironmentFault
from edgeprof.hardware.measured import MeasuredProfile, read_measured
from edgeprof.probe import parts, recording
from edgeprof.probe.budget import LOADING_FACTOR, affordable_bytes
from edgeprof.probe.recording import ModelAsked, Request, record_probe
from edgeprof.runner.product import Kernel

SMALL = Request(
    provider="cpu", threads=1, rows=(1, 2), tokens=(1, 2), warm_s=0.01, size_bytes=4 << 20
)
DYING = Path(__file__).parent / "workers"


class Silence:
    def __init__(self) -> None:
        self.parts: list[tuple[str, str | None]] = []

    def begin(self, part: str, number: int, of: int) -> None:
        pass

    def end(self, part: str, cause: str | None) -> None:
        self.parts.append((part, cause))


@pytest.fixture(autouse=True)
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "KERNELS", {"cpu": (Kernel("int4", 4),)})
    for name in ("_STREAM_BUDGET_S", "_PRODUCT_BUDGET_S", "_MODEL_BUDGET_S", "_BEFORE_S"):
        monkeypatch.setattr(recording, name, 0.05)


def probe(
    tmp_path: Path, request: Request = SMALL, wishes_after: int | None = None
) -> tuple[MeasuredProfile, Silence]:
    """``wishes_after`` so many parts somebody presses Ctrl-C."""
    silence = Silence()

    def wishes() -> int:
        return int(wishes_after is not None and len(silence.parts) >= wishes_after)

    found = record_probe(request, tmp_path / "p.toml", progress=silence, wishes=wishes)
    return found, silence


def test_a_probe_measures_and_writes_what_it_found(tmp_path: Path) -> None:
    spec, _ = find_model("smollm2-135m:q4_1")
    asked = ModelAsked(name="smollm2-135m:q4_1", spec=spec)
    found, silence = probe(tmp_path, replace(SMALL, models=(asked,)))
    assert read_measured(tmp_path / "p.toml").complete
    assert [part for part, _ in silence.parts] == [
        "memory read",
        "memory copy",
        "int4:4",
        "smollm2-135m:q4_1",
    ]
    assert not found.missing
    assert {one.kind for one in found.streams} == {"read", "copy"}
    (kernel,) = found.kernels
    assert [one.tokens for one in kernel.passes] == [1, 2]
    assert kernel.passes[0].cost.value == 1.0
    # 4096 inputs; of each weight 4 bits, and of each 32 a float32 scale
    assert kernel.weight_bytes * 8 == 5 * kernel.flop_per_row // 2
    one_row = kernel.passes[0].time_s.value
    assert kernel.bandwidth_bytes_per_s.value == pytest.approx(
        kernel.weight_bytes / one_row, rel=0.3
    )
    assert kernel.flop_per_s.value >= 0.99 * kernel.flop_per_row / one_row
    (model,) = found.models
    assert (model.kind, model.layers_measured) == ("measured", 30)
    assert model.weight_bytes == 111_617_280  # what `edgeprof convert` says of the real one
    # of an even number the median of rates is a little above one over the median of times
    rate = 1 / model.passes[0].time_s.value
    assert model.decode_tokens_per_s.value == pytest.approx(rate, rel=0.05)
    assert model.best
    assert found.conditions.others_cpu_share is not None
    assert found.versions["onnxruntime"]


def test_layers_that_do_not_fit_are_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, _ = find_model("smollm2-135m:q4_1")
    room = 32_000_000 + 3 * 2_654_208 + 1000  # the head, three layers and a little
    monkeypatch.setattr(recording, "affordable_bytes", lambda root: room)
    asked = ModelAsked(name="m", spec=spec)
    found, _ = probe(tmp_path, replace(SMALL, models=(asked,)))
    (model,) = found.models
    assert (model.kind, model.layers, model.layers_measured) == ("modelled", 30, 3)
    assert model.weight_bytes == pytest.approx(111_617_280, rel=0.002)  # norms apart
    assert model.flop_per_token == pytest.approx(2 * spec.used_parameters, rel=0.001)


def test_ctrl_c_keeps_what_is_done_marked_incomplete(tmp_path: Path) -> None:
    found, _ = probe(tmp_path, wishes_after=1)
    assert not found.complete and found.ended_reason == "interrupted"
    kept = read_measured(tmp_path / "p.toml")
    assert len(kept.streams) == 1 and not kept.complete


def test_ctrl_c_before_anything_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        probe(tmp_path, wishes_after=0)
    assert not list(tmp_path.iterdir())


def test_a_child_that_is_killed_costs_its_part_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(DYING))
    monkeypatch.setattr(parts, "MODULE", "dying_worker")
    found, silence = probe(tmp_path)
    assert len(found.streams) == 2
    (missing,) = found.lost
    assert missing.part == "int4:4" and "SIGKILL" in missing.cause
    assert found.complete
    # what it had told before it died is kept
    assert [one.tokens for one in found.kernels[0].passes] == [1, 2]
    assert [part for part, _ in silence.parts] == ["memory read", "memory copy", "int4:4"]


def test_where_nothing_can_be_measured_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "affordable_bytes", lambda root: 1000)
    with pytest.raises(EnvironmentFault, match="no cache holds"):
        probe(tmp_path)
    assert not list(tmp_path.iterdir())


def test_room_is_what_machine_and_container_leave(tmp_path: Path) -> None:
    """4 GB available: 0.8 of it less 256 MiB for the process, over what loading takes."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable:    4000000 kB\n")
    machine = affordable_bytes(tmp_path)
    assert machine == int((0.8 * 4_000_000 * 1024 - (256 << 20)) / LOADING_FACTOR)
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000000000\n")
    assert affordable_bytes(tmp_path) == machine
    (group / "memory.max").write_text("2000000000\n")
    assert affordable_bytes(tmp_path) == int((0.8 * 1e9 - (256 << 20)) / LOADING_FACTOR)


def test_nothing_measured_leaves_an_earlier_profile_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.toml").write_text("earlier")
    monkeypatch.setattr(recording, "affordable_bytes", lambda root: 1000)
    with pytest.raises(EnvironmentFault):
        probe(tmp_path)
    assert (tmp_path / "p.toml").read_text() == "earlier"
