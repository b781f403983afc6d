"""The emulated boards: each is made once, with the real service running, and rests between
tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from emulated import namespace
from emulated.namespace import EmulatedBoard

Boards = Callable[[str], EmulatedBoard]


@pytest.fixture(scope="session")
def made_boards() -> Iterator[Boards]:
    """Makes the board of that name at the first call; a failure to do so is an error."""
    if namespace.unshare_options() is None:
        reasons = [namespace.refusal(options) for options in (("-m",), ("-rm",))]
        pytest.skip(f"no private mount namespace: {'; '.join(map(str, reasons))}")
    with ExitStack() as stack:
        made: dict[str, EmulatedBoard] = {}

        def board(name: str) -> EmulatedBoard:
            if name not in made:
                made[name] = stack.enter_context(EmulatedBoard(name))
                made[name].start_service()
            return made[name]

        yield board


@pytest.fixture
def boards(made_boards: Boards) -> Boards:
    """The board of that name, at rest, its service running."""

    def board(name: str) -> EmulatedBoard:
        found = made_boards(name)
        found.tree.rest()
        if not found.service_runs:
            found.start_service()
        return found

    return board
