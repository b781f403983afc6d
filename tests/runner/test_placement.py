"""Where nodes ran: as a session says it, as a profile says it, and what is refused."""

import json
from pathlib import Path

import pytest
from tiny_decoder import Decoder, write_folder

from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.readers.onnx_graph import read_onnx_graph
from edgeprof.runner.graph_layout import read_layout
from edgeprof.runner.ort_model import profiled_placement
from edgeprof.runner.placement import (
    RECORD_ENTRY,
    assigned_nodes,
    node_counts,
    profiled_nodes,
    require_placement,
)
from edgeprof.runner.providers import SessionSetup, open_session

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.fixture
def folder(tmp_path: Path) -> DecoderFolder:
    return write_folder(Decoder(attention="gqa", positions=False), tmp_path)


def test_one_pass_is_profiled_in_a_session_of_its_own(folder: DecoderFolder) -> None:
    """Two layers: as many attentions, and four products each beside the head's. onnxruntime may
    fuse other nodes, not these."""
    layout = read_layout(read_onnx_graph(folder.onnx_path), folder)
    placement = profiled_placement(folder, layout, SessionSetup("cpu", 1))
    assert set(placement) == {CPU}
    assert placement[CPU]["GroupQueryAttention"] == 2
    assert placement[CPU]["MatMul"] == 2 * 7 + 1


def test_a_session_that_can_tell_says_the_same(folder: DecoderFolder) -> None:
    session = open_session(folder.onnx_path, SessionSetup("cpu", 1), entries=RECORD_ENTRY)
    placement = assigned_nodes(session)
    if placement is None:  # onnxruntime before 1.24
        assert not hasattr(session, "get_provider_graph_assignment_info")
    else:
        assert placement[CPU]["GroupQueryAttention"] == 2


def test_shape_arithmetic_may_stay_on_the_cpu() -> None:
    placement = {CUDA: {"MatMul": 9}, CPU: {"Shape": 3, "Gather": 3, "MemcpyToHost": 1}}
    require_placement(placement, CUDA, fallback=False, label="m.onnx")
    assert node_counts(placement) == {CUDA: 9, CPU: 7}


def test_a_silent_fall_back_is_refused_unless_allowed() -> None:
    placement = {CUDA: {"MatMul": 9}, CPU: {"MatMulNBits": 4, "Shape": 3}}
    with pytest.raises(EnvironmentFault, match=r"not all of it runs on CUDA.*MatMulNBits \(4\)"):
        require_placement(placement, CUDA, fallback=False, label="m.onnx")
    require_placement(placement, CUDA, fallback=True, label="m.onnx")


def test_a_provider_that_took_nothing_is_refused_even_then() -> None:
    for placement in ({CPU: {"MatMul": 9}}, {CPU: {"MatMul": 9}, CUDA: {}}):
        with pytest.raises(EnvironmentFault, match="took none of its nodes"):
            require_placement(placement, CUDA, fallback=True, label="m.onnx")


def event(provider: str, operator: str, name: str = "node_kernel_time") -> dict[str, object]:
    return {"cat": "Node", "name": name, "args": {"provider": provider, "op_name": operator}}


def test_a_profile_counts_kernels_only(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    events: list[object] = [
        event(CUDA, "MatMul"),
        event(CUDA, "MatMul"),
        event(CPU, "Shape"),
        event(CUDA, "MatMul", name="node_fence_before"),
        {"cat": "Session", "name": "model_run", "args": {}},
        "nothing",
        {"cat": "Node", "name": "x_kernel_time", "args": 1},
    ]
    path.write_text(json.dumps(events))
    assert profiled_nodes(path) == {CUDA: {"MatMul": 2}, CPU: {"Shape": 1}}
    path.write_text('[{"cat": ')
    with pytest.raises(FileFault, match="not a profile of onnxruntime"):
        profiled_nodes(path)
