"""What a session is opened with, and how its failures are told. No GPU is needed."""

from pathlib import Path

import numpy as np
import pytest
from tiny_decoder import Decoder, write_folder

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.provider_settings import ProviderSettings
from edgeprof.runner.ort_model import OrtModel
from edgeprof.runner.providers import (
    Device,
    SessionSetup,
    load_onnxruntime,
    open_session,
    provider_options,
    run_bound,
    unknown_options,
)

GIB = 1 << 30


def test_r04_the_arena_grows_by_what_is_asked_for_and_has_a_limit() -> None:
    setup = SessionSetup("cuda", 1, memory_limit_bytes=3 * GIB)
    assert provider_options(setup, "cuda") == {
        "arena_extend_strategy": "kSameAsRequested",
        "gpu_mem_limit": "3221225472",
    }


def test_the_recipe_s_own_choices_come_first() -> None:
    settings = ProviderSettings(
        arena="next-power-of-two", memory_limit_bytes=2 * GIB, cuda_graph=True
    )
    setup = SessionSetup("cuda", 1, settings, memory_limit_bytes=3 * GIB)
    assert provider_options(setup, "cuda") == {
        "arena_extend_strategy": "kNextPowerOfTwo",
        "gpu_mem_limit": "2147483648",
        "enable_cuda_graph": "1",
    }
    assert provider_options(SessionSetup("cpu", 1), "cpu") == {}


def test_r10_tensorrt_keeps_its_engines_and_knows_all_shapes_beforehand() -> None:
    setup = SessionSetup(
        "tensorrt",
        1,
        ProviderSettings(fp16=True),
        memory_limit_bytes=GIB,
        shapes=("a:1x1", "a:1x2", "a:1x3"),
        engine_folder=Path("/engines"),
    )
    assert provider_options(setup, "tensorrt") == {
        "trt_fp16_enable": "1",
        "trt_max_workspace_size": "1073741824",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": "/engines",
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": "/engines",
        "trt_profile_min_shapes": "a:1x1",
        "trt_profile_opt_shapes": "a:1x2",
        "trt_profile_max_shapes": "a:1x3",
    }
    # What it leaves goes to CUDA, whose arena is bounded too.
    assert provider_options(setup, "cuda")["gpu_mem_limit"] == "1073741824"


def test_option_names_are_looked_up_in_the_provider_s_library(tmp_path: Path) -> None:
    library = tmp_path / "libprovider.so"
    library.write_bytes(b"\x7fELF\0trt_engine_cache_path\0trt_fp16_enable_all\0")
    names = ["trt_engine_cache_path", "trt_fp16_enable"]
    assert unknown_options(library, names) == ["trt_fp16_enable"]
    library.write_bytes(b"")
    assert unknown_options(library, names) == []  # nothing to be looked up in
    assert unknown_options(tmp_path / "none.so", names) == []


def test_a_provider_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    folder = write_folder(Decoder(), tmp_path)
    for provider, title in (("cuda", "CUDA"), ("tensorrt", "Tensorrt")):
        with pytest.raises(EnvironmentFault, match=rf"no {title}ExecutionProvider \(it has .*CPU"):
            OrtModel.open(folder, SessionSetup(provider, 1), capacity=8)


def test_captured_passes_need_a_cache_that_stays(tmp_path: Path) -> None:
    setup = SessionSetup("cpu", 1, ProviderSettings(cuda_graph=True))
    with pytest.raises(UsageFault, match=r"grows with every pass.*provider_settings\.cuda_graph"):
        OrtModel.open(write_folder(Decoder(), tmp_path), setup, capacity=8)


def test_a_cache_beyond_all_memory_is_told_with_what_there_is(tmp_path: Path) -> None:
    device = Device(SessionSetup("cpu", 1), str(tmp_path / "model.onnx"))
    with pytest.raises(
        EnvironmentFault, match=r"no memory for a cache of .* are available"
    ) as told:
        device.allocate(1 << 60)
    assert "lower context_tokens" in str(told.value)


class Failing:
    """A session whose every run fails with these words."""

    def __init__(self, words: str) -> None:
        self._words = words

    def run_with_iobinding(self, io: object, options: object) -> None:
        raise RuntimeError(self._words)


@pytest.mark.parametrize(
    "words",
    [
        "Non-zero status code: Failed to allocate memory for requested buffer of size 1075072515",
        "BFCArena::AllocateRawInternal Available memory of 5 is smaller than requested bytes of 9",
        "CUDA failure 2: out of memory ; GPU=0 ; hostname=x\nsecond line",
        "std::bad_alloc",
    ],
)
def test_r06_r42_memory_that_ran_out_in_a_pass_is_the_machine_s_fault(words: str) -> None:
    with pytest.raises(EnvironmentFault, match="are available") as told:
        run_bound(Failing(words), None, "model.onnx")
    message = str(told.value)
    assert message.startswith(f"model.onnx: onnxruntime failed in a pass: {words.splitlines()[0]}")
    assert "a reboot frees fragmented memory" in message and len(message.splitlines()) == 1


def test_any_other_failure_is_the_graph_s() -> None:
    with pytest.raises(FileFault, match=r"m\.onnx: onnxruntime failed in a pass: Got invalid"):
        run_bound(Failing("Got invalid dimensions for input"), None, "m.onnx")


def test_a_token_beyond_the_embedding_is_no_traceback(tmp_path: Path) -> None:
    model = OrtModel.open(write_folder(Decoder(), tmp_path), threads=1, capacity=8)
    with pytest.raises(FileFault, match=r"model\.onnx: onnxruntime failed in a pass: .*Gather"):
        model.extend([4000])


def test_arrays_and_values_share_memory_on_the_cpu() -> None:
    """The engine writes inputs in place and reads logits where they were bound."""
    array = np.zeros(4, np.float32)
    value = load_onnxruntime().OrtValue.ortvalue_from_numpy(array)
    array[2] = 7
    assert value.numpy().tolist() == [0, 0, 7, 0]
    assert value.data_ptr() == array.ctypes.data


def test_a_provider_that_is_listed_but_cannot_be_made_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A build that lists CUDA, whose libraries are not there: onnxruntime warns and takes the CPU,
    here played by a session that was opened on it."""
    ort = load_onnxruntime()
    listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: listed)
    from edgeprof.runner.provider_probe import _PRODUCT

    with pytest.raises((EnvironmentFault, FileFault), match=r"fell back to CPU|cannot load it"):
        open_session(_PRODUCT, SessionSetup("cuda", 1))


def test_no_pool_of_threads_spins_on_while_another_session_runs(tmp_path: Path) -> None:
    """Two pools that spin fight for the cores; a session's own entries come before the rule."""
    name = "session.force_spinning_stop"
    folder = write_folder(Decoder(), tmp_path)
    for entries, value in (({}, "1"), ({name: "0"}, "0")):
        session = open_session(folder.onnx_path, SessionSetup("cpu", 2), entries=entries)
        assert session.get_session_options().get_session_config_entry(name) == value
