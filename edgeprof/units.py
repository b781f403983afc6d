"""Quantities as people write them, to SI numbers and back: "68 GB/s" <-> 68e9.

k, M, G are powers of 1000 and Ki, Mi, Gi powers of 1024; the two are never mixed.
"""

import math
import re

from edgeprof.errors import UsageFault

_PREFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "µ": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_SHOWN = ("P", "T", "G", "M", "k", "", "m", "u", "n")  # largest first
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"


def parse(text: str, unit: str) -> float:
    """The number of ``unit`` that ``text`` names: ``parse("58.7 ms", "s") == 0.0587``."""
    prefix = "|".join(sorted(_PREFIXES, key=len, reverse=True))
    match = re.fullmatch(rf"\s*({_NUMBER})\s*({prefix}){re.escape(unit)}\s*", text)
    if match is None:
        raise UsageFault(f"'{text}' is not a quantity in {unit}, such as '2.5 G{unit}'")
    value = float(match[1]) * _PREFIXES[match[2]]
    if not math.isfinite(value):
        raise UsageFault(f"'{text}' is too large")
    return value


def show(value: float | None, unit: str, digits: int = 3) -> str:
    """``value`` with the SI prefix that keeps it between 1 and 1000: "68.3 GB/s"."""
    if value is None:
        return "not known"
    if value == 0:
        return f"0 {unit}"
    rounded = float(f"{value:.{digits - 1}e}")
    prefix = next((p for p in _SHOWN if abs(rounded) >= _PREFIXES[p]), _SHOWN[-1])
    return f"{significant(rounded / _PREFIXES[prefix], digits)} {prefix}{unit}"


def show_gib(value: float | None) -> str:
    """Bytes of memory in GiB, the unit that memory is sold in."""
    return "not known" if value is None else f"{value / 2**30:.2f} GiB"


def significant(value: float, digits: int = 3) -> str:
    """``value`` with that many significant digits and no exponent: 17.0, 4.01, 1234."""
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return f"{value:.{max(decimals, 0)}f}"
