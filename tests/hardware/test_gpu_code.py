"""GPU code read from ELF files that are made by hand, whole and damaged."""

from pathlib import Path

import pytest
from made_elf import MACHINE_CODE, PTX, elf_with_gpu_code

from edgeprof.hardware.gpu_code import GpuCode, read_gpu_code

PIECES = [(MACHINE_CODE, 90), (MACHINE_CODE, 89), (MACHINE_CODE, 90), (PTX, 90)]


@pytest.mark.parametrize("section", [".nv_fatbin", "__nv_relfatbin"])
def test_architectures_and_ptx_are_told_apart(tmp_path: Path, section: str) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(elf_with_gpu_code(PIECES, section))
    code = read_gpu_code(library)
    assert code == GpuCode(architectures=(89, 90), ptx=(90,))
    assert str(code) == "sm_89, sm_90, compute_90 (PTX)"


def test_i02_a_tegra_runs_its_own_machine_code_or_ptx_of_no_newer_gpu() -> None:
    published = GpuCode(architectures=(89, 90, 120, 121))  # the aarch64 wheels 1.29 to 1.31
    assert not published.runs_on(87) and not published.runs_on(110)  # Orin, Thor
    assert GpuCode(architectures=(72, 87)).runs_on(87)
    assert not GpuCode(architectures=(80, 86)).runs_on(87)
    assert GpuCode(ptx=(80,)).runs_on(87) and not GpuCode(ptx=(90,)).runs_on(87)


def test_what_is_no_library_with_gpu_code_is_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for content in (b"", b"\x7fELF", b"#!/bin/sh\n", elf_with_gpu_code([], ".text")):
        file.write_bytes(content)
        assert read_gpu_code(file) is None
    assert read_gpu_code(tmp_path / "none") is None
    assert read_gpu_code(tmp_path) is None


def test_a_damaged_library_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = elf_with_gpu_code(PIECES)
    file = tmp_path / "file"
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        assert read_gpu_code(file) is None  # the table of sections stands at the end
    for place in range(0, len(whole), 3):
        file.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        read_gpu_code(file)  # neither raises nor goes on for ever
