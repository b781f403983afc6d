"""Debian's chromium, driven over its DevTools protocol; tests skip only where there is none."""

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, sync_playwright

from edgeprof.analysis.summary import summarise
from edgeprof.report.html import write_html
from edgeprof.session.records import Session

SECOND = 1_000_000_000
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True,
}  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = which("chromium") or which("chromium-browser")
    if path is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with sync_playwright() as library:
        # As root, which CI is, chromium's own sandbox cannot be set up.
        chromium = library.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def write_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Session], Path]:
    """Writes the page of a session into a folder of its own."""
    return lambda session: write_html(session, summarise(session), tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def board_page(board_session: Session, write_page: Callable[[Session], Path]) -> Path:
    return write_page(board_session)


@pytest.fixture(scope="session")
def board_session(made_session: Session) -> Session:
    """The session made by hand, with signals as a board gives them and texts for its tokens."""
    from made_session import board_signals

    from edgeprof.session.columns import Samples

    signals, samples = board_signals(made_session)
    requests = [
        replace(one, text="One two three f", text_ends=[3, 7, 9, 10, 11, 12, 13, 14, 15])
        for one in made_session.requests
    ]
    return replace(made_session, signals=signals, samples=Samples.of(samples), requests=requests)


class Opened:
    """A page that was opened, and what went wrong or out of it since."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda one: self.faults.append(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path) -> "Opened":
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")
        return self

    def range(self, figure: str = "timeline") -> tuple[float, float]:
        """What of the x axis is shown."""
        low, high = self.page.evaluate(
            f"document.querySelector('#{figure} .drawing').layout.xaxis.range"
        )
        return low, high

    def background(self) -> str:
        return str(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Opens a page in a window of its own; options are those of a browser context."""
    contexts = []

    def open_page(path: Path, **options: Any) -> Opened:
        context = browser.new_context(**{**DESKTOP, **options}, offline=True)
        contexts.append(context)
        return Opened(context.new_page()).open(path)

    yield open_page
    for context in contexts:
        context.close()
