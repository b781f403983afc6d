"""Rounds weights that no container holds exactly to 8 bits, and measures what that changes.

For formats that are read through the gguf package only. Knows nothing of models or ONNX.
"""

import numpy as np

from edgeprof.convert.blocks import BLOCK, Blocks, Bytes, Floats
from edgeprof.errors import EnvironmentFault
from edgeprof.models.quantisation import Requantised

# What the gguf package reads and the exact formats leave out.
REQUANTISABLE = (
    *("Q2_K", "Q3_K", "TQ1_0", "TQ2_0", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"),
    *("IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
)
LARGEST_STEP = 127  # of a symmetric 8-bit range


class Requantiser:
    """Rounds matrix after matrix, and keeps the account of it."""

    def __init__(self) -> None:
        self._storages: set[str] = set()
        self._weights = 0
        self._error_squares = 0.0
        self._weight_squares = 0.0
        self._largest_error = 0.0

    def round(self, weights: Floats, storage: str) -> Blocks:
        """The weights in 8-bit blocks of 32; each is off by at most half a step, a 254th of the
        largest weight of its block."""
        blocks = weights.reshape(len(weights), -1, BLOCK)
        largest = np.abs(blocks).max(axis=-1, keepdims=True)
        scale = largest / np.float32(LARGEST_STEP)
        steps = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
        # A scale too small for float32's full precision may leave more steps than there are.
        np.clip(steps, -LARGEST_STEP, LARGEST_STEP, out=steps)
        error = np.abs(steps * scale - blocks)
        relative = np.divide(error, largest, out=np.zeros_like(error), where=largest > 0)
        self._storages.add(storage)
        self._weights += weights.size
        self._error_squares += float(np.sum(np.square(error, dtype=np.float64)))
        self._weight_squares += float(np.sum(np.square(blocks, dtype=np.float64)))
        self._largest_error = max(self._largest_error, float(relative.max()))
        return Blocks(
            bits=8,
            zero=128,
            quantised=(steps + np.float32(128)).astype(np.uint8),
            scale=scale[..., 0],
        )

    @property
    def account(self) -> Requantised | None:
        """What was rounded; None where nothing was."""
        if not self._storages:
            return None
        size = self._weight_squares**0.5
        return Requantised(
            storages=sorted(self._storages),
            weights=self._weights,
            relative_rms_error=self._error_squares**0.5 / size if size else 0.0,
            largest_error_of_block=self._largest_error,
        )


def read_by_gguf(raw: Bytes, storage: str, rows: int) -> Floats:
    """The weights of a format in ``REQUANTISABLE``."""
    try:
        import gguf
    except ImportError as error:
        raise EnvironmentFault(
            f"weights stored as {storage} need the package gguf: pip install 'edgeprof[cpu]'"
        ) from error
    kind = gguf.GGMLQuantizationType[storage]
    weights: Floats = gguf.quants.dequantize(np.asarray(raw).reshape(rows, -1), kind)
    return weights
