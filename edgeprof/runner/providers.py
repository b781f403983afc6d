"""ONNX Runtime's providers: opening a session on one, and refusing a silent fall-back.

The only module that imports onnxruntime; others get at it through here.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeprof.errors import EnvironmentFault, FileFault

if TYPE_CHECKING:
    import onnxruntime

# name in recipes -> (name in ONNX Runtime, device of its memory, extra that brings it)
PROVIDERS = {
    "cpu": ("CPUExecutionProvider", "cpu", "cpu"),
    "cuda": ("CUDAExecutionProvider", "cuda", "gpu"),
}


def load_onnxruntime() -> Any:
    """The onnxruntime module. Raises EnvironmentFault with the line that installs it."""
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
    *,
    provider: str,
    threads: int,
) -> "onnxruntime.InferenceSession":
    """A session with ``threads`` threads of its own on ``provider``, and on nothing less.

    ``model`` is a file or a serialised graph. Raises EnvironmentFault where the provider is not
    there, FileFault where the graph cannot be loaded.
    """
    ort = load_onnxruntime()
    name, _, extra = PROVIDERS[provider]
    if name not in ort.get_available_providers():
        raise EnvironmentFault(
            f"provider {provider!r}: this onnxruntime has no {name} (it has "
            f"{', '.join(ort.get_available_providers())}); pip install 'edgeprof[{extra}]' on x86, "
            "and see docs/install.md for a Jetson"
        )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    chosen = [name] if provider == "cpu" else [(name, _OPTIONS[provider]), "CPUExecutionProvider"]
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = ort.InferenceSession(source, options, providers=chosen)
    except Exception as error:  # onnxruntime raises a class of its own for each status code
        label = "the graph" if isinstance(model, bytes) else str(model)
        raise FileFault(f"{label}: onnxruntime cannot load it: {_first_line(error)}") from error
    if session.get_providers()[0] != name:
        raise EnvironmentFault(
            f"provider {provider!r} was asked for, but onnxruntime fell back to "
            f"{session.get_providers()[0]}; run `python -c 'import onnxruntime'` for its reason"
        )
    return session


# An arena that doubles takes twice what is asked for on a board whose memory is shared.
_OPTIONS = {"cuda": {"arena_extend_strategy": "kSameAsRequested"}}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
