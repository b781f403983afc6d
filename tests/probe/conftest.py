"""What tests of probes share; the command line's import it from here too."""

from pathlib import Path

import pytest
from made_profile import Save, made_profile

from edgeprof.hardware.measured import MeasuredProfile, as_toml


@pytest.fixture
def this_profile() -> MeasuredProfile:
    return made_profile()


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Save:
    """Puts profiles into the user's folder."""
    monkeypatch.setenv("EDGEPROF_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data/probes"
    folder.mkdir(parents=True)

    def write(profile: MeasuredProfile, name: str = "probe.toml") -> Path:
        path = folder / name
        path.write_text(as_toml(profile))
        return path

    return write
