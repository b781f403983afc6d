"""TOML files from outside: what is wrong with them is said in one line."""

from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from edgeprof.errors import EdgeprofError, FileFault, UsageFault
from edgeprof.tomlfile import LARGEST_FILE_BYTES, load_toml


class Inner(Struct, forbid_unknown_fields=True):
    clock_mhz: Annotated[float, Meta(gt=0)]


class Outer(Struct, forbid_unknown_fields=True):
    name: str
    inner: Inner | None = None
    listed: list[Inner] = []
    named: dict[str, Inner] = {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('nme = "x"', "unknown key 'nme'; did you mean 'name'?"),
        ('name = "x"\nzzz = 1', "unknown key 'zzz'; known: name, inner, listed, named"),
        ('name = "x"\n[inner]\nclock_mz = 1', "unknown key 'clock_mz' in inner; did you mean"),
        ('name = "x"\n[[listed]]\nclock_mz = 1', "in listed[0]; did you mean 'clock_mhz'?"),
        ('name = "x"\n[named.a]\nclok_mhz = 1', "did you mean 'clock_mhz'?"),
        ('name = "x"\n[inner]\nclock_mhz = -2', "Expected `float` > 0.0 at `inner.clock_mhz`"),
        ("", "Object missing required field `name`"),
        ("name = ", "not valid TOML"),
        ("a = " + "[" * 5000, "not valid TOML"),
        ("a = " + "9" * 5000, "not valid TOML: Exceeds the limit"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "board.toml"
    path.write_text(content)
    with pytest.raises(FileFault) as caught:
        load_toml(path, Outer)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "fault"), [(b"\xff\xfe", FileFault), (b"#" * (LARGEST_FILE_BYTES + 1), FileFault)]
)
def test_hostile_bytes(tmp_path: Path, content: bytes, fault: type[EdgeprofError]) -> None:
    path = tmp_path / "board.toml"
    path.write_bytes(content)
    with pytest.raises(fault):
        load_toml(path, Outer)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="cannot be read: No such file"):
        load_toml(tmp_path / "none.toml", Outer)
