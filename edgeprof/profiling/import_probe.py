"""Imports the modules that it is given, one after the other, and tells how far it came: a child.

Stand-alone, standard library only. A library that is broken may take the process down with it; the
last line on stdout then says which one it was. numpy has to multiply two matrices too: its OpenBLAS
may take the processor for one that it is not.
"""

import importlib
import json
import sys
from typing import Any


def main() -> None:
    for name in sys.argv[1:]:
        print(json.dumps({"module": name}), flush=True)
        try:
            module = importlib.import_module(name)
            if name == "numpy" and not multiplies(module):
                raise ArithmeticError("it multiplies matrices wrong")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            print(json.dumps({"module": name, "reason": reason}), flush=True)


def multiplies(numpy: Any) -> bool:
    """Whether it multiplies floats as it multiplies whole numbers, for which it needs no library.
    The products are exact."""
    left = numpy.arange(24 * 16).reshape(24, 16) % 7
    right = numpy.arange(16 * 24).reshape(16, 24) % 5
    return bool((left.astype("float64") @ right.astype("float64") == left @ right).all())


if __name__ == "__main__":
    main()
