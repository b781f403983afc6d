"""The data of JetPack releases and wheels: complete, sourced, and what follows from it."""

import re
from pathlib import Path

import pytest

from edgeprof.errors import FileFault
from edgeprof.hardware import jetpack
from edgeprof.hardware.jetpack import JetPackFile, crash_fix, known, stack_of, wheel_limits
from edgeprof.tomlfile import load_toml

INSTALL = (Path(__file__).parents[2] / "docs" / "install.md").read_text()


def test_every_part_has_a_source_and_a_day() -> None:
    file = known()
    parts = [file.releases, *file.stacks, *file.wheels, file.gpus, *file.crashes]
    for part in parts:
        assert len(part.source) > 5 and re.fullmatch(r"2026-\d\d-\d\d", part.checked)


def test_every_release_belongs_to_exactly_one_stack_of_its_jetpack() -> None:
    file = known()
    for l4t, release in {**file.releases.l4t, **file.releases.l4t_series}.items():
        stacks = [stack for stack in file.stacks if l4t.startswith(tuple(stack.l4t))]
        assert len(stacks) == 1, l4t
        assert release.startswith(tuple(stacks[0].jetpack.split(", "))), l4t
    assert stack_of(None) is None and stack_of("140.1.0") is None


@pytest.mark.parametrize(
    ("l4t", "release"),
    [
        ("31.1.0", "4.1.1"),
        ("32.5", "4.5"),
        ("32.7.1", "4.6.1"),
        ("35.6.4", "5.1.6"),
        ("36.4.3", "6.2"),
        ("38.2", "7.0"),
        ("38.2.1", "7.0"),
        ("39.2.1", "7.2.1"),
    ],
)
def test_the_jetpack_of_a_release(l4t: str, release: str) -> None:
    assert jetpack.jetpack_of(l4t) == release


def test_from_jetpack_4_to_7_every_one_has_a_stack() -> None:
    assert {stack.jetpack[0] for stack in known().stacks} == {"4", "5", "6", "7"}
    assert jetpack.jetpack_of("40.1.0") is None and jetpack.jetpack_of("28.2") is None


def test_the_page_on_installation_knows_every_jetpack() -> None:
    table = INSTALL[INSTALL.index("## On a Jetson, by JetPack") :]
    for stack in known().stacks:
        row = next(line for line in table.splitlines() if line.startswith(f"| {stack.jetpack} |"))
        assert stack.python in row and stack.boards.split(",")[0] in row


def test_i02_the_published_wheels_hold_nothing_for_a_board() -> None:
    for version in ("1.29.0", "1.30.0", "1.31.1"):
        (wheel,) = wheel_limits("onnxruntime-gpu", version, "aarch64")
        assert wheel.gpu_architectures == [89, 90, 120, 121]
        assert not {*known().gpus.sm.values()} & {*wheel.gpu_architectures}
    assert wheel_limits("onnxruntime-gpu", "1.31.1", "x86_64") == []
    assert wheel_limits("onnxruntime", "1.31.1", "aarch64") == []


def test_i03_the_wheel_of_jetpack_6_is_known_to_need_numpy_1() -> None:
    (wheel,) = wheel_limits("onnxruntime-gpu", "1.23.0", "aarch64")
    assert wheel.numpy == "<2"
    stack = stack_of("36.4.3")
    assert stack is not None and "{pip} install 'numpy<2'" in stack.commands


def test_i10_what_mends_a_numpy_that_dies() -> None:
    fix = "export OPENBLAS_CORETYPE=ARMV8"
    assert crash_fix("numpy", "aarch64", "the import was killed by SIGILL") == fix
    assert crash_fix("numpy", "x86_64", "the import was killed by SIGILL") is None
    assert crash_fix("numpy", "aarch64", "ModuleNotFoundError") is None
    assert crash_fix("numpy", "aarch64", "ArithmeticError: it multiplies matrices wrong") == fix


def test_a_key_that_is_not_known_is_named(tmp_path: Path) -> None:
    file = tmp_path / "jetpack.toml"
    text = Path(jetpack.__file__).with_suffix(".toml").read_text()
    file.write_text(text.replace('gpu_wheel = "none"', 'gpu_whel = "none"', 1))
    with pytest.raises(FileFault, match="gpu_whel"):
        load_toml(file, JetPackFile)
