"""What a sampler is at, for another thread to see whether it gets on."""

from typing import NamedTuple

_PATIENCE_NS = 1_000_000_000


class Step(NamedTuple):
    """Something that may not return; after ``patience_ns`` it is taken to hang."""

    what: str
    since_ns: int
    patience_ns: int


class Progress:
    """``steps`` grows while things go on; ``step`` is what may be holding them up. ``settled`` says
    that all sources were looked at once."""

    def __init__(self) -> None:
        self.steps = 0
        self.settled = False
        self.step: Step | None = None

    def begin(self, what: str, now_ns: int, *, patience_ns: int = _PATIENCE_NS) -> None:
        self.step = Step(what, now_ns, patience_ns)

    def end(self) -> None:
        self.step = None
        self.steps += 1
