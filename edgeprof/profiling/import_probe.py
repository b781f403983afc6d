"""Imports the modules that it is given, one after the other, and tells how far it came: a child.

Stand-alone, standard library only. A library that is broken may take the process down with it; the
last line on stdout then says which one it was.
"""

import importlib
import json
import sys


def main() -> None:
    for name in sys.argv[1:]:
        print(json.dumps({"module": name}), flush=True)
        try:
            importlib.import_module(name)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            print(json.dumps({"module": name, "reason": reason}), flush=True)


if __name__ == "__main__":
    main()
