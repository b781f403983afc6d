"""What is known of JetPack releases and of the wheels that run on them: the data of jetpack.toml.

Knows no board and looks at no machine.
"""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from edgeprof.tomlfile import load_toml

_FILE = Path(__file__).with_suffix(".toml")

Text = Annotated[str, Meta(min_length=1)]
Day = Annotated[str, Meta(pattern=r"^20\d\d-[01]\d-[0-3]\d$")]
# ``reported``: users say that it works; ``none``: no wheel with kernels for its boards was found;
# ``unsupported``: its Python is too old for edgeprof.
GpuWheel = Literal["reported", "none", "unsupported"]


class Known(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where something was seen, and the day on which that was last looked at."""

    source: Text
    checked: Day


class Releases(Known, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JetPack by release of Linux for Tegra (L4T), and by all releases of a series."""

    l4t: dict[Text, Text]
    l4t_series: dict[Text, Text]


class Stack(Known, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes with a JetPack, and how its GPU is reached from ONNX Runtime.

    ``l4t`` are the starts of the releases that it holds for. ``commands`` are to be typed in their
    order, ``{pip}`` standing for the pip of the environment.
    """

    jetpack: Text
    l4t: Annotated[list[Text], Meta(min_length=1)]
    boards: Text
    python: Text
    cuda: Text | None = None
    cudnn: Text | None = None
    tensorrt: Text | None = None
    gpu_wheel: GpuWheel
    advice: Text
    commands: list[Text]

    @property
    def libraries(self) -> dict[str, str]:
        """What it brings for the GPU, by name, as far as that is known."""
        brought = {"CUDA": self.cuda, "cuDNN": self.cudnn, "TensorRT": self.tensorrt}
        return {name: version for name, version in brought.items() if version is not None}


class Wheel(Known, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a wheel that are known before it is run; ``versions`` are starts of versions,
    ``gpu_architectures`` the GPUs that it holds code for: 87 is sm_87."""

    package: Text
    versions: Annotated[list[Text], Meta(min_length=1)]
    machine: Text
    gpu_architectures: list[int] | None = None
    numpy: Text | None = None
    limit: Text


class Gpus(Known, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By system on chip the number that its GPU's machine code is compiled for: 87 for sm_87."""

    sm: dict[Text, Annotated[int, Meta(ge=10, le=999)]]


class Crash(Known, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What mends an import that is killed by ``signal``, or fails with those words."""

    package: Text
    machine: Text
    signal: Text
    fix: Text


class JetPackFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    releases: Releases
    stacks: list[Stack]
    wheels: list[Wheel]
    gpus: Gpus
    crashes: list[Crash]


@lru_cache(maxsize=1)
def known() -> JetPackFile:
    """The data file that comes with edgeprof."""
    return load_toml(_FILE, JetPackFile)


def jetpack_of(l4t: str) -> str | None:
    """The JetPack of an L4T such as ``36.4.3``, or ``32.5``, which is the first of its series; that
    of a newer one is not known."""
    releases = known().releases
    full = l4t if l4t.count(".") > 1 else f"{l4t}.0"
    return releases.l4t.get(full) or releases.l4t_series.get(full.rpartition(".")[0])


def stack_of(l4t: str | None) -> Stack | None:
    """What comes with that release."""
    return next(
        (s for s in known().stacks if l4t is not None and l4t.startswith(tuple(s.l4t))), None
    )


def wheel_limits(package: str, version: str, machine: str) -> list[Wheel]:
    """What is known against a wheel of that version (``1.31.1``) on that machine."""
    return [
        wheel
        for wheel in known().wheels
        if (wheel.package, wheel.machine) == (package, machine)
        and version.startswith(tuple(wheel.versions))
    ]


def crash_fix(package: str, machine: str, cause: str) -> str | None:
    """What mends an import that ended as ``cause`` says."""
    crashes = (c for c in known().crashes if (c.package, c.machine) == (package, machine))
    return next((crash.fix for crash in crashes if crash.signal in cause), None)
