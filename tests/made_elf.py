"""A little ELF file with a fat binary in it, for tests: what a library with GPU code looks like.

Layouts: System V ABI for the file; for the fat binary what was found in published wheels.
"""

import struct
from collections.abc import Sequence

PTX, MACHINE_CODE = 1, 2


def elf_with_gpu_code(pieces: Sequence[tuple[int, int]], section: str = ".nv_fatbin") -> bytes:
    """``pieces`` are kinds and architectures: ``(MACHINE_CODE, 87)``. Each stands in a fat binary
    of its own, as every object file brings one."""
    body = b"".join(_fat_binary(*piece) for piece in pieces)
    names = f"\0{section}\0.shstrtab\0".encode()
    name_of_names = names.index(b".shstrtab")
    body_at, names_at = 64, 64 + len(body)
    table_at = names_at + len(names)
    sections = (
        bytes(64),
        _section(1, body_at, len(body)),
        _section(name_of_names, names_at, len(names)),
    )
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 183, 1, 0, 0, table_at, 0, 64, 0, 0, 64, 3, 2)
    return header + body + names + b"".join(sections)


def _section(name: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0)


def _fat_binary(kind: int, architecture: int) -> bytes:
    code = b"\x5a" * 24
    entry = struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(code), 0, 0, 0, 0, architecture)
    entry += bytes(64 - len(entry)) + code
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry
