"""ONNX Runtime's providers: opening a session on one, and refusing a silent fall-back.

The only module that imports onnxruntime; others get at it through here.
"""

import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeprof.errors import EdgeprofError, EnvironmentFault, FileFault
from edgeprof.hardware.memory_state import read_memory_state
from edgeprof.process_end import speaks_of_memory
from edgeprof.provider_settings import ProviderSettings

if TYPE_CHECKING:
    import onnxruntime


class Provider(NamedTuple):
    """A provider: its name in ONNX Runtime, the device of its memory, the extra that brings it and
    the library of the package that it lies in."""

    title: str
    device: str
    extra: str
    library: str | None = None


# By the name in recipes.
PROVIDERS = {
    "cpu": Provider("CPUExecutionProvider", "cpu", "cpu"),
    "cuda": Provider("CUDAExecutionProvider", "cuda", "gpu", "libonnxruntime_providers_cuda.so"),
    "tensorrt": Provider(
        "TensorrtExecutionProvider", "cuda", "gpu", "libonnxruntime_providers_tensorrt.so"
    ),
}
# What a provider leaves is offered to these in turn.
_BEHIND: Mapping[str, Sequence[str]] = {"cpu": (), "cuda": ("cpu",), "tensorrt": ("cuda", "cpu")}
# onnxruntime adds the CPU by itself, and refuses to be given both it and this entry.
_NO_CPU = {"session.disable_cpu_ep_fallback": "1"}
# An arena that doubles takes twice what is asked for on a board whose memory is shared.
_ARENAS = {"same-as-requested": "kSameAsRequested", "next-power-of-two": "kNextPowerOfTwo"}
# The threads of a session spin between operators but not between runs: when the draft runs, those
# of the target leave it the cores, and the other way round.
POOL_ENTRIES = {"session.force_spinning_stop": "1"}


class SessionSetup(NamedTuple):
    """What a session is opened with, besides its graph.

    ``shapes`` are the least, the usual and the largest shape of every input, as TensorRT takes
    them; ``engine_folder`` is where it keeps what it built.
    """

    provider: str
    threads: int
    settings: ProviderSettings = ProviderSettings()
    memory_limit_bytes: int | None = None
    shapes: tuple[str, str, str] | None = None
    engine_folder: Path | None = None


def load_onnxruntime() -> Any:
    """The onnxruntime module. Raises EnvironmentFault with the line that installs it."""
    # From 1.29 on it keeps a data base in the user's cache and sends what runs to its maker, by
    # threads beside those that are timed. It looks when it is imported; who sets it has the say.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise EnvironmentFault(
            f"this needs onnxruntime ({error}): pip install 'edgeprof[cpu]', or on a Jetson the "
            "wheel for its JetPack, see docs/install.md"
        ) from error
    # 3: errors only. Its warnings would stand between our own lines on stderr.
    onnxruntime.set_default_logger_severity(3)
    return onnxruntime


def open_session(
    model: Path | bytes,
    setup: SessionSetup,
    *,
    entries: Mapping[str, str] = {},
    alone: bool = False,
    profile_prefix: Path | None = None,
) -> "onnxruntime.InferenceSession":
    """A session with a pool of threads of its own on the provider, or on what is behind it.

    ``model`` is a file or a serialised graph; ``entries`` are configuration entries of the session.
    ``alone`` offers no node to another provider. With ``profile_prefix`` the session is profiled to
    a file of such a name. Raises EnvironmentFault where the provider is not there, lacks an option
    or runs out of memory, FileFault where the graph cannot be loaded.
    """
    ort = load_onnxruntime()
    title = require_provider(ort, setup.provider)
    options = ort.SessionOptions()
    options.intra_op_num_threads = setup.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if alone and setup.provider != "cpu":
        entries = {**entries, **_NO_CPU}
    for key, value in {**POOL_ENTRIES, **entries}.items():
        options.add_session_config_entry(key, value)
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_prefix)
    source = model if isinstance(model, bytes) else str(model)
    label = "the graph" if isinstance(model, bytes) else str(model)
    try:
        session = ort.InferenceSession(
            source, options, providers=_provider_list(ort, setup, alone=alone), enable_fallback=0
        )
    except EdgeprofError:
        raise
    except Exception as error:  # onnxruntime raises a class of its own for each status code
        raise _translated(error, f"{label}: onnxruntime cannot load it") from error
    if session.get_providers()[0] != title:
        raise EnvironmentFault(
            f"provider {setup.provider!r} was asked for, but onnxruntime fell back to "
            f"{session.get_providers()[0]}; run `python -c 'import onnxruntime'` for its reason"
        )
    return session


def run_bound(session: Any, io: Any, label: str, options: Any = None) -> None:
    """One run; what goes wrong is an EdgeprofError that starts with ``label``."""
    try:
        session.run_with_iobinding(io, options)
    except Exception as error:
        raise _translated(error, f"{label}: onnxruntime failed in a pass") from error


def require_provider(ort: Any, provider: str) -> str:
    """ONNX Runtime's name of the provider, which this build of it must list."""
    title, _, extra, _ = PROVIDERS[provider]
    if title not in ort.get_available_providers():
        raise EnvironmentFault(
            f"provider {provider!r}: this onnxruntime has no {title} (it has "
            f"{', '.join(ort.get_available_providers())}); pip install 'edgeprof[{extra}]' on x86, "
            "and see docs/install.md for a Jetson"
        )
    return title


def provider_options(setup: SessionSetup, provider: str) -> dict[str, str]:
    """The options of ``provider`` in this setup, by the names in ONNX Runtime's documentation."""
    settings = setup.settings
    options: dict[str, str] = {}
    limit = settings.memory_limit_bytes or setup.memory_limit_bytes
    if provider == "cuda":
        options["arena_extend_strategy"] = _ARENAS[settings.arena]
        if limit is not None:
            options["gpu_mem_limit"] = str(limit)
        if settings.cuda_graph:
            options["enable_cuda_graph"] = "1"
    if provider == "tensorrt":
        if settings.fp16:
            options["trt_fp16_enable"] = "1"
        if limit is not None:
            options["trt_max_workspace_size"] = str(limit)
        if setup.engine_folder is not None:
            options |= {
                "trt_engine_cache_enable": "1",
                "trt_engine_cache_path": str(setup.engine_folder),
                "trt_timing_cache_enable": "1",
                "trt_timing_cache_path": str(setup.engine_folder),
            }
        if setup.shapes is not None:
            kinds = ("min", "opt", "max")
            options |= {
                f"trt_profile_{kind}_shapes": shapes
                for kind, shapes in zip(kinds, setup.shapes, strict=True)
            }
    return options


def unknown_options(library: Path, names: Sequence[str]) -> list[str]:
    """The option names that do not occur in the provider's library; none where there is no such
    file, as in builds of one piece."""
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return [name for name in names if content.find(name.encode() + b"\0") < 0]
    except (OSError, ValueError):  # an empty file cannot be mapped
        return []


def _provider_list(ort: Any, setup: SessionSetup, *, alone: bool) -> list[Any]:
    """The provider and, unless it is to be ``alone``, those behind it, each with its options."""
    providers: list[Any] = []
    for name in (setup.provider, *(() if alone else _BEHIND[setup.provider])):
        options = provider_options(setup, name)
        library = PROVIDERS[name].library
        if library is not None:
            path = Path(ort.__file__).parent / "capi" / library
            if unknown := unknown_options(path, list(options)):
                raise EnvironmentFault(
                    f"provider {name!r}: onnxruntime {ort.__version__} has no option "
                    f"{', '.join(unknown)}; leave out the setting that needs it, or take another "
                    "version, see docs/providers.md"
                )
        providers.append((PROVIDERS[name].title, options) if options else PROVIDERS[name].title)
    return providers


class Buffer:
    """Memory on a device, zeroed."""

    def __init__(self, ort: Any, size_bytes: int, device: str) -> None:
        self._array = np.zeros(size_bytes, np.uint8)
        self._value = ort.OrtValue.ortvalue_from_numpy(self._array, device, 0)
        if device != "cpu":
            del self._array  # the value is a copy
        self.address: int = self._value.data_ptr()


class Device:
    """Where a model's provider computes: takes memory there, and runs graphs on it."""

    def __init__(self, setup: SessionSetup, label: str) -> None:
        self._ort = load_onnxruntime()
        self._setup = setup
        self._label = label
        self.name = PROVIDERS[setup.provider].device

    def allocate(self, size_bytes: int) -> Buffer:
        """Raises EnvironmentFault where there is not as much memory."""
        try:
            return Buffer(self._ort, size_bytes, self.name)
        except Exception as error:  # MemoryError, or onnxruntime's own
            size = f"a cache of {size_bytes / 2**20:.0f} MiB"
            raise EnvironmentFault(
                f"{self._label}: no memory for {size}: {_first_line(error)}; "
                f"{read_memory_state()}; lower context_tokens"
            ) from error

    def host_array(self, size: int, dtype: Any) -> Any:
        """An array beside the device. Raises EnvironmentFault where there is no memory for it."""
        try:
            return np.empty(size, dtype)
        except MemoryError as error:
            raise _translated(error, self._label) from error

    def open_graph(self, graph: bytes) -> Any:
        """A session for a small graph beside the model, where the model computes."""
        provider = "cuda" if self.name == "cuda" else "cpu"
        return open_session(graph, SessionSetup(provider, self._setup.threads))

    def run(self, session: Any, io: Any) -> None:
        run_bound(session, io, self._label)


def _translated(error: Exception, label: str) -> EdgeprofError:
    """What onnxruntime raised, as ours: memory is the machine's fault, all else the graph's."""
    text = f"{label}: {_first_line(error)}"
    if isinstance(error, MemoryError) or speaks_of_memory(str(error)):
        return EnvironmentFault(
            f"{text}; {read_memory_state()}; stop other programs, lower context_tokens or take a "
            "smaller model; where the same ran before, a reboot frees fragmented memory"
        )
    return FileFault(text)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
