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


def probe(provider: str) -> dict[str, Any]:
    """Versions and providers, once the product of two matrices came back right from it.

    Raises EnvironmentFault where it did not, or where the session cannot be opened.
    """
    ort = load_onnxruntime()
    ort.set_default_logger_severity(2)  # the reason of a missing library is a warning only
    session = open_session(_product(), SessionSetup(provider, threads=1), alone=True)
    # Small whole numbers: the product is exact in every precision that a provider may choose.
    random = np.random.default_rng(0)
    left = random.integers(-2, 3, (_ROWS, _INNER)).astype(np.float32)
    right = random.integers(-2, 3, (_INNER, _COLUMNS)).astype(np.float32)
    (product,) = session.run(None, {"left": left, "right": right})
    if not np.array_equal(product, left @ right):
        raise EnvironmentFault(f"{PROVIDERS[provider].title} gives a wrong product")
    return {"onnxruntime": ort.__version__, "providers": session.get_providers()}


def _product() -> bytes:
    from onnx import TensorProto, helper

    left, right, product = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (
            ("left", [_ROWS, _INNER]),
            ("right", [_INNER, _COLUMNS]),
            ("product", [_ROWS, _COLUMNS]),
        )
    )
    node = helper.make_node("MatMul", ["left", "right"], ["product"])
    graph = helper.make_graph([node], "probe", [left, right], [product])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


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
