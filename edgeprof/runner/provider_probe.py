"""Runs one real operator on one provider and says whether it came back right: a child process.

``python -m edgeprof.runner.provider_probe cuda`` prints one JSON line. A provider that is listed
may still lack its libraries, or kernels for the GPU at hand, and may take the process down with it.
"""

import json
import sys
from typing import Any

import numpy as np

from edgeprof.errors import EdgeprofError, EnvironmentFault
from edgeprof.runner.providers import PROVIDERS, SessionSetup, load_onnxruntime, open_session

_ROWS, _INNER, _COLUMNS = 4, 64, 32
# left x right, one MatMul of opset 13, as ONNX serialises it: whoever looks for what is wrong need
# not have the package that writes graphs.
_PRODUCT = bytes.fromhex(
    "08083a730a1e0a046c6566740a057269676874120770726f6475637422064d61744d756c120570726f62655a"
    "160a046c656674120e0a0c080112080a0208040a0208405a170a057269676874120e0a0c080112080a020840"
    "0a02082062190a0770726f64756374120e0a0c080112080a0208040a02082042040a00100d"
)


def probe(provider: str) -> dict[str, Any]:
    """Versions and providers, once the product of two matrices came back right from it.

    Raises EnvironmentFault where it did not, or where the session cannot be opened.
    """
    ort = load_onnxruntime()
    ort.set_default_logger_severity(2)  # the reason of a missing library is a warning only
    session = open_session(_PRODUCT, SessionSetup(provider, threads=1), alone=True)
    # Small whole numbers: the product is exact in every precision that a provider may choose.
    random = np.random.default_rng(0)
    left = random.integers(-2, 3, (_ROWS, _INNER)).astype(np.float32)
    right = random.integers(-2, 3, (_INNER, _COLUMNS)).astype(np.float32)
    (product,) = session.run(None, {"left": left, "right": right})
    # numpy multiplies whole numbers without the library that it has for floats.
    if not np.array_equal(product, left.astype(np.int64) @ right.astype(np.int64)):
        raise EnvironmentFault(f"{PROVIDERS[provider].title} gives a wrong product")
    return {"onnxruntime": ort.__version__, "providers": session.get_providers()}


def main() -> None:
    try:
        answer = {"usable": True, **probe(sys.argv[1])}
    except EdgeprofError as error:
        answer = {"usable": False, "reason": str(error)}
    except Exception as error:  # whatever it is, the provider cannot be used
        answer = {"usable": False, "reason": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
