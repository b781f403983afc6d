"""Reads what nvpmodel keeps on a board: the power modes of its conf, and the one that is set.

An id means something within one board's conf only; whoever compares modes does so by name.
"""

import re

from msgspec import Struct

_HEADER = re.compile(r"<\s*(\w+)\b([^>]*)>")
_ATTRIBUTE = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S+)')
_EMC_CAP = re.compile(r"EMC\s+MAX_FREQ(?:_KNEXT)?\s+(-?\d{1,20})\b")
_STATUS = re.compile(r"\bpmode\s*:\s*(\d{1,9})\b")
_MOST_MODES = 256
_LONGEST_LINE = 500
_NO_CAP = 2**31 - 1  # confs write INT_MAX too where they mean "no cap"


class ConfMode(Struct, frozen=True, kw_only=True):
    """A mode of the conf; ``emc_cap_hz`` is None where it sets no cap (left out, 0 or -1)."""

    id: int
    name: str
    emc_cap_hz: int | None = None


class NvpmodelConf(Struct, frozen=True, kw_only=True):
    """The modes of a board by its own conf, and the id of the one that it starts in."""

    modes: tuple[ConfMode, ...]
    default_id: int | None

    def by_id(self, mode_id: int) -> ConfMode | None:
        return next((mode for mode in self.modes if mode.id == mode_id), None)


def parse_conf(text: str) -> NvpmodelConf:
    """The modes that can be read; lines that cannot are passed over."""
    modes: list[ConfMode] = []
    default_id: int | None = None
    in_mode = False
    for line in text.splitlines():
        line = line[:_LONGEST_LINE].strip("\ufeff \t\0")
        header = _HEADER.match(line)
        if header is not None:
            attributes = dict(_ATTRIBUTE.findall(header[2]))
            mode = _mode(attributes) if header[1] == "POWER_MODEL" else None
            in_mode = mode is not None and len(modes) < _MOST_MODES
            if mode is not None and in_mode:
                modes.append(mode)
            if header[1] == "PM_CONFIG":
                default_id = _number(attributes.get("DEFAULT", ""))
        elif in_mode and (cap := _EMC_CAP.match(line)):
            last = modes[-1]
            modes[-1] = ConfMode(id=last.id, name=last.name, emc_cap_hz=cap_hz(int(cap[1])))
    return NvpmodelConf(modes=tuple(modes), default_id=default_id)


def parse_status(text: str) -> int | None:
    """The id of the mode that is set, from ``pmode:0002 fmode:quiet``."""
    match = _STATUS.search(text[:_LONGEST_LINE])
    return None if match is None else int(match[1])


def cap_hz(value: int) -> int | None:
    """A cap as these files give it, where 0, -1 and INT_MAX mean that there is none."""
    return value if value > 0 and value != _NO_CAP else None


def _mode(attributes: dict[str, str]) -> ConfMode | None:
    mode_id, name = _number(attributes.get("ID", "")), attributes.get("NAME", "").strip('"')
    return None if mode_id is None or not name else ConfMode(id=mode_id, name=name)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
