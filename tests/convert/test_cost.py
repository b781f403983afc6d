"""How much memory converting the real model takes, in a process of its own; at most 1.5 GB is the
goal. How long it takes is a matter of benchmarks/convert_load.py."""

import subprocess
import sys
from pathlib import Path

import pytest

CONVERT = """
import resource, sys
from pathlib import Path
from edgeprof.convert.folder import convert
convert(Path(sys.argv[1]), Path(sys.argv[2]), weights=sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def printed(code: str, *arguments: object) -> float:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return float(done.stdout)


@pytest.mark.parametrize("weights", ["as-is", "fp32"])
def test_converting_holds_little(weights: str, smollm2_gguf: Path, tmp_path: Path) -> None:
    """The 538 MB of float32 weights go to disk one by one and are never held together."""
    peak_bytes = printed(CONVERT, smollm2_gguf, tmp_path / "out", weights)
    assert peak_bytes < 1.5e9
    if weights == "fp32":
        assert (tmp_path / "out" / "model.onnx.data").stat().st_size > 538e6
        assert peak_bytes < 538e6
