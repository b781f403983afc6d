"""What kinds of decoding engines make of a board: data, read from two files and put together here.

One file, written by hand, says which engine belongs to which class and what its kernels cost; the
other holds the few figures fitted to published decoding rates. Knows nothing of models.
"""

import re
from typing import Annotated

from msgspec import Meta, Struct

from edgeprof.naming import name_key
from edgeprof.quantity import Band

UNKNOWN = "any"  # the class of an engine that nobody has measured: the widest
PROCESSOR = "cpu"  # the class of every engine that decodes on the CPU
BATCH_POSITIONS = 8  # from the next position on, matrix-vector engines too take a batched kernel

Text = Annotated[str, Meta(min_length=1)]
Share = Annotated[float, Meta(gt=0, le=1)]
Cost = Annotated[float, Meta(ge=0, lt=1e12)]


class KernelClass(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the time of a pass grows with its positions, for one kind of matrix kernel.

    ``second_position`` is what the step from one position to several costs, as the kernel may be
    another one; ``extra_position`` what each position from the second on adds. Both relative to the
    pass over one position. ``extra_position_experts`` is for mixtures of experts, whose further
    positions need further experts.
    """

    title: Text
    second_position: Band
    extra_position: Band
    extra_position_experts: Band
    source: Text


class EngineClass(Struct, frozen=True, kw_only=True):
    """What one kind of decoding engine makes of a roof; every band is that of the class.

    ``bandwidth_share`` is of the sustained bandwidth. ``unpack_clocks_per_byte`` is what unpacking
    a byte costs an SM, in clocks, where the reads do not hide it; ``overhead_clocks`` what launches
    and waits cost a pass, in GPU clocks. ``compute_share`` is of the dense peak.
    ``extra_position`` is what each further position of a pass costs a matrix, as a share of its
    one-position time, up to ``BATCH_POSITIONS``.
    """

    name: str
    engines: str
    bandwidth_share: Band
    unpack_clocks_per_byte: Band
    overhead_clocks: Band
    compute_share: Band
    extra_position: Band

    @property
    def needs_gpu_clock(self) -> bool:
        """Whether the class is told in clocks of a GPU, so that a board must have one."""
        return self.unpack_clocks_per_byte.high > 0 or self.overhead_clocks.high > 0


class ClassEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One class in the file written by hand."""

    engines: Text
    compute_share: Band
    kernels: Annotated[list[Text], Meta(min_length=1)]
    source: Text


class EngineFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file written by hand: classes, engines by name, kernels."""

    engines: dict[str, Text]
    classes: dict[str, ClassEntry]
    kernels: dict[str, KernelClass]


class FittedClass(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the fit says of one class, and how the published rates lie in its band."""

    bandwidth_share: tuple[Share, Share]
    unpack_clocks_per_byte: tuple[Cost, Cost]
    overhead_clocks: tuple[Cost, Cost]
    rows: int
    covered: int
    median_high_over_low: float | None = None
    median_measured_over_middle: float | None = None


class FitFile(Struct, frozen=True, kw_only=True):
    """The file that the fit writes; its account of the fit itself is for readers."""

    classes: dict[str, FittedClass]


class EngineTable(Struct, frozen=True, kw_only=True):
    """All classes, the engines that belong to them by name, and the kernels."""

    classes: dict[str, EngineClass]
    engines: dict[str, str]
    kernels: dict[str, KernelClass]
    kernels_of: dict[str, tuple[str, ...]]

    def of_engine(self, engine: str | None) -> EngineClass:
        """The class of an engine as people write it (``llama.cpp b9292 +FA``, ``vLLM 0.24``)."""
        return self.classes[UNKNOWN if engine is None else self._class_name(engine)]

    def verify_cost(self, tokens: int, name: str, *, experts: bool = False) -> Band:
        """v(``tokens``) expected of a kernel, or of all kernels of an engine, by name."""
        kernels = [name] if name in self.kernels else self.kernels_of[self._class_name(name)]
        bands = [verify_cost(tokens, self.kernels[one], experts=experts) for one in kernels]
        return Band(low=min(b.low for b in bands), high=max(b.high for b in bands))

    def _class_name(self, engine: str) -> str:
        if engine in self.classes:
            return engine
        if re.search(r"\bcpu\b", engine.lower()):
            return PROCESSOR
        key = name_key(engine)
        found = [name for name in self.engines if name_key(name) in key]
        return self.engines[max(found, key=len)] if found else UNKNOWN


def verify_cost(tokens: int, kernel: KernelClass, *, experts: bool = False) -> Band:
    """v(``tokens``): the time of a pass over ``tokens`` positions over that of a pass over one.

    Below 1 where a batched kernel is nearer to the memory's wall than the one for a single
    position; not so with experts, of which further positions need more. Beyond ``BATCH_POSITIONS``
    nothing was measured; the last figure stands.
    """
    if tokens == 1:
        return Band(low=1.0, high=1.0)
    further = min(tokens, BATCH_POSITIONS) - 1
    extra = kernel.extra_position_experts if experts else kernel.extra_position
    least = 1.0 if experts else 0.0
    return Band(
        low=max(least, kernel.second_position.low + further * extra.low),
        high=max(least, kernel.second_position.high + further * extra.high),
    )


def engine_table(file: EngineFile, fit: FitFile) -> EngineTable:
    """Both files together."""
    return EngineTable(
        classes={
            name: EngineClass(
                name=name,
                engines=entry.engines,
                bandwidth_share=_band(fit.classes[name].bandwidth_share),
                unpack_clocks_per_byte=_band(fit.classes[name].unpack_clocks_per_byte),
                overhead_clocks=_band(fit.classes[name].overhead_clocks),
                compute_share=entry.compute_share,
                extra_position=_extra_position([file.kernels[one] for one in entry.kernels]),
            )
            for name, entry in file.classes.items()
        },
        engines=file.engines,
        kernels=file.kernels,
        kernels_of={name: tuple(entry.kernels) for name, entry in file.classes.items()},
    )


def _band(ends: tuple[float, float]) -> Band:
    return Band(low=ends[0], high=ends[1])


def _extra_position(kernels: list[KernelClass]) -> Band:
    return Band(
        low=min(kernel.extra_position.low for kernel in kernels),
        high=max(kernel.extra_position.high for kernel in kernels),
    )
