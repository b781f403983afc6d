"""The ceilings of this machine inside the runtime that decodes: one large product a weight format.

Both rates of a product, bytes and operations a second, are honest lower bounds of the hardware.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from edgeprof.runner.product import Kernel, Product, timed_runs
from edgeprof.runner.providers import SessionSetup
from edgeprof.runner.token_model import ModelRun

_ROWS = (1, 4, 16, 64)
_REPEATS = 7
# Several times what a cache holds on common machines; the last-level cache is in the session.
_PRODUCTS = (
    (Kernel("fp32"), 32_768),  # columns: 0.54 GB
    (Kernel("int4", 4), 131_072),  # 0.27 GB of values, 0.07 GB of scales
)


class Ceiling(NamedTuple):
    """One kernel's runs; ``tokens`` of a run is its number of rows."""

    kernel: str
    weight_bytes: int
    flop_per_row: int
    runs: list[ModelRun]


def measure_ceilings(
    *, threads: int, clock: Callable[[], int] = time.monotonic_ns
) -> Iterator[Ceiling]:
    """Time fp32 MatMul and int4 MatMulNBits (int8 activations) at 1, 4, 16 and 64 rows.

    CPU provider. Needs about 1.2 GB of memory at a time; needs the ``onnx`` package.
    """
    for kernel, columns in _PRODUCTS:
        product = Product(kernel, columns, SessionSetup("cpu", threads))
        runs = timed_runs(
            product.run, _ROWS, warm_s=0, budget_s=0, rounds=(_REPEATS, _REPEATS), clock=clock
        )
        yield Ceiling(kernel.operator, product.weight_bytes, product.flop_per_row, list(runs))
