"""Which GPUs a library holds machine code for, read from the fat binary in its ELF sections.

Nothing is loaded or run. The layout of an ELF file is that of the System V ABI; that of a fat
binary is not published, and was checked against wheels whose architectures are known.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_MAGIC = 0xBA55ED50
_PTX, _MACHINE_CODE = 1, 2
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_MOST_SECTIONS = 1 << 12
_MOST_ENTRIES = 1 << 20
_LONGEST_NAME = 64
_ALIGNMENT = 8
_SECTION = struct.Struct("<IIQQQQIIQQ")
_FAT = struct.Struct("<IHHQ")  # magic, version, size of this header, size of what follows
# kind, version, size of this header, size of what follows, ..., architecture
_ENTRY = struct.Struct("<HHIQIIHHI")


class GpuCode(Struct, frozen=True, kw_only=True):
    """``architectures`` has machine code for these GPUs (87: sm_87), ``ptx`` code that the driver
    compiles for these and newer ones."""

    architectures: tuple[int, ...] = ()
    ptx: tuple[int, ...] = ()

    def runs_on(self, architecture: int) -> bool:
        """On the GPU of a Tegra, which runs machine code of its own number alone (CUDA C++
        Programming Guide, "Binary Compatibility"), or what is compiled for it when it starts."""
        return architecture in self.architectures or any(ptx <= architecture for ptx in self.ptx)

    def __str__(self) -> str:
        numbers = [f"sm_{number}" for number in self.architectures]
        return ", ".join(numbers + [f"compute_{number} (PTX)" for number in self.ptx]) or "none"


def read_gpu_code(library: Path) -> GpuCode | None:
    """None where the file is no 64-bit ELF file, cannot be read or holds no code for a GPU."""
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            found = set(_entries(content))
    except (OSError, ValueError, OverflowError, struct.error):  # an empty file cannot be mapped
        return None
    if not found:
        return None
    return GpuCode(
        architectures=tuple(sorted(number for kind, number in found if kind == _MACHINE_CODE)),
        ptx=tuple(sorted(number for kind, number in found if kind == _PTX)),
    )


def _entries(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Kind and architecture of every piece of code."""
    left = _MOST_ENTRIES
    for begin, end in _fat_sections(content):
        at = begin
        while at + _FAT.size <= end and left:
            left -= 1
            magic, _, header, size = _FAT.unpack_from(content, at)
            if magic != _MAGIC:  # what one object file brought is aligned
                at += _ALIGNMENT
                continue
            yield from _pieces(content, at + header, min(at + header + size, end))
            at += max(header + size, _ALIGNMENT)


def _pieces(content: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int]]:
    while at + _ENTRY.size <= end:
        kind, _, header, size, _, _, _, _, architecture = _ENTRY.unpack_from(content, at)
        if kind in (_PTX, _MACHINE_CODE) and 10 <= architecture <= 999:
            yield kind, architecture
        at += max(header + size, _ENTRY.size)


def _fat_sections(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Where the sections begin and end, within the file."""
    if content[: len(_ELF_64_LITTLE)] != _ELF_64_LITTLE:
        return
    (table,) = struct.unpack_from("<Q", content, 0x28)
    entry, count, names = struct.unpack_from("<HHH", content, 0x3A)
    if entry < _SECTION.size or names >= count:
        return
    text = _SECTION.unpack_from(content, table + names * entry)[4]
    for number in range(min(count, _MOST_SECTIONS)):
        section = _SECTION.unpack_from(content, table + number * entry)
        name, offset, size = section[0], section[4], section[5]
        raw = content[text + name : text + name + _LONGEST_NAME]
        if raw.split(b"\0")[0].decode(errors="replace") in _SECTIONS:
            yield offset, min(offset + size, len(content))
