"""The values of an option that sweeps, written as llama-bench takes them: ``128``, ``0,512,1024``,
``1-4``, ``512-4096*2``, ``0-1024+256``."""

import re

import click

LARGEST = 1_000_000
LONGEST_DRAFT = 64
_MOST_VALUES = 64
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?:([+*])([0-9]{1,9}))?)?")


def sweep(text: str) -> tuple[int, ...]:
    """Numbers from 0 to a million, in the order given, each once; serves as the type of an option.

    Raises BadParameter, which names the option, for anything else.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise click.BadParameter(
                f"{text!r} is no number from 0 on, list (1,2,4) or range (1-4, 512-4096*2, "
                "0-1024+256)."
            )
        found.update(dict.fromkeys(_numbers(part, match)))
        if len(found) > _MOST_VALUES:
            raise click.BadParameter(f"{text} has more than {_MOST_VALUES} values.")
    return tuple(found)


def _numbers(part: str, match: "re.Match[str]") -> list[int]:
    """One number, or those of a range; of a range that is too long, one more than are allowed."""
    first, last = int(match[1]), int(match[2] or match[1])
    if max(first, last) > LARGEST:
        raise click.BadParameter(f"{part} is not in the range 0<=x<={LARGEST}.")
    times, step = match[3] == "*", int(match[4] or 1)
    if last < first or step <= times or (times and first == 0):
        raise click.BadParameter(f"{part} is a range without an end.")
    numbers = [first]
    while len(numbers) <= _MOST_VALUES:
        following = numbers[-1] * step if times else numbers[-1] + step
        if following > last:
            break
        numbers.append(following)
    return numbers


def draft_lengths(text: str) -> tuple[int, ...]:
    """As ``sweep``, of numbers up to 64; serves as the type of an option."""
    lengths = sweep(text)
    if max(lengths) > LONGEST_DRAFT:
        raise click.BadParameter(f"{max(lengths)} is not in the range 0<=x<={LONGEST_DRAFT}.")
    return lengths
