"""How names are compared: without regard to case and to the separators ``- _ .`` and blanks, and
ordered as their numbers are."""

import re
from collections.abc import Iterable, Sequence

_SEPARATORS = str.maketrans("", "", "-_. ")


def name_key(name: str) -> str:
    """What two spellings of one name have in common."""
    return name.lower().translate(_SEPARATORS)


def find_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` spells, in its own spelling."""
    key = name_key(name)
    return next((candidate for candidate in known if name_key(candidate) == key), None)


def nearest_names(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like ``name``, best first; none when nothing comes near."""
    from difflib import get_close_matches  # only ever needed for an error message

    by_key = {name_key(candidate): candidate for candidate in known}
    matches = get_close_matches(name_key(name), by_key, n=count, cutoff=0.5)
    return [by_key[match] for match in matches]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """The one line that says a name is not known, and which ones are near it."""
    candidates = list(known)
    near = nearest_names(name, candidates)
    if near:
        return f"no {kind} named '{name}'; did you mean {_either(near)}?"
    return f"no {kind} named '{name}'; known: {', '.join(candidates)}"


def numeric_order(name: str) -> list[tuple[int, str]]:
    """A key by which cpu2 comes before cpu10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)]


def _either(names: list[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)


def listed(names: Sequence[str]) -> str:
    """Names from a file, quoted and not too many of them."""
    return ", ".join(map(repr, names[:8])) + (" ..." if len(names) > 8 else "")
