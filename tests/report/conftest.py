"""The session made by hand that the tests of the analysis use too."""

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[1] / "analysis" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("made_by_hand", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
_MODULE = sys.modules.setdefault("made_by_hand", importlib.util.module_from_spec(_SPEC))
_SPEC.loader.exec_module(_MODULE)

maker = _MODULE.maker
made_session = _MODULE.made_session
shape = _MODULE.shape
