"""The HTML report as a reader has it: in a browser, by mouse, by keys, on a phone, on paper."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from msgspec.structs import replace
from playwright.sync_api import Browser, Page

from edgeprof.session.records import Event, Pass, Phase, Round, Session

from .conftest import DESKTOP, PHONE, Opened

Open = Callable[..., Opened]
WIDER = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture(scope="module")
def board(browser: Browser, board_page: Path) -> Iterator[Opened]:
    """The page in one window, for tests that leave it as they find it."""
    context = browser.new_context(**DESKTOP, offline=True)
    yield Opened(context.new_page()).open(board_page)
    context.close()


def test_it_draws_without_a_word_on_the_console_and_without_any_request(
    board: Opened, board_page: Path
) -> None:
    assert board.faults == []
    assert board.requests == [board_page.as_uri()]
    titles = board.page.locator("#timeline .annotation").all_text_contents()
    assert titles == [
        "Legs and passes", "Tokens a round", "Memory bandwidth (GB/s)", "Busy (%)", "Power (W)",
        "Temperature (°C)", "Clocks (MHz)", "simulated",
    ]  # fmt: skip
    drawn = board.page.locator("#timeline .scatterlayer .js-line").count()
    assert drawn > 10
    assert board.page.locator("#roofline .scatterlayer .point").count() == 6  # held pass sizes


def test_what_was_simulated_is_called_so_everywhere(board: Opened) -> None:
    assert board.page.title() == "tiny on Paper board (simulated)"
    assert "Simulated samples" in board.page.locator(".stamp").inner_text()
    assert board.page.locator("#roofline .annotation", has_text="simulated").count() == 1


def test_buttons_zoom_and_move(board: Opened) -> None:
    low, high = board.range()
    press = board.page.locator("#timeline .keys").get_by_role("button", name="Zoom in").click
    press()
    zoomed = board.range()
    assert zoomed[1] - zoomed[0] == pytest.approx((high - low) / 2)
    assert sum(zoomed) == pytest.approx(low + high)
    board.page.locator("#timeline .keys").get_by_role("button", name="Left").click()
    moved = board.range()
    assert moved[0] == pytest.approx(zoomed[0] - (high - low) / 8)
    assert (
        f"{moved[0]:.1f} s to {moved[1]:.1f} s"
        in board.page.locator("#timeline [role=status]").inner_text()
    )
    board.page.locator("#timeline .keys").get_by_role("button", name="Whole").click()
    assert board.range() == pytest.approx((low, high))


def test_keys_alone_reach_the_chart_and_zoom_it(board: Opened) -> None:
    board.page.locator("#timeline .keys button").last.focus()
    board.page.keyboard.press("Tab")
    whole = board.range()
    for key, width in (("+", 0.5), ("+", 0.25), ("-", 0.5), ("0", 1.0)):
        board.page.keyboard.press(key)
        low, high = board.range()
        assert (high - low) / (whole[1] - whole[0]) == pytest.approx(width), key


def test_dragging_pans_and_hovering_tells(board: Opened) -> None:
    place = board.page.locator("#timeline .nsewdrag").nth(2)  # of the memory bandwidth
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    board.page.mouse.move(x, y)
    board.page.wait_for_selector("#timeline .told", state="visible")
    told = board.page.locator("#timeline .told").inner_text()
    assert "DRAM bandwidth 40.00 GB/s (sysfs)" in told and "legs: decode " in told
    before = board.range()
    board.page.mouse.down()
    board.page.mouse.move(x - box["width"] / 4, y, steps=3)
    board.page.mouse.up()
    after = board.range()
    assert after[0] - before[0] == pytest.approx((before[1] - before[0]) / 4, rel=0.05)
    board.page.locator("#timeline .keys").get_by_role("button", name="Whole").click()


def seconds(at_s: float) -> int:
    return 1_000_000_000 * 1000 + round(at_s * 1e9)


@pytest.fixture
def spaced_page(maker: Any, write_page: Callable[[Session], Path]) -> Path:
    """Two legs with ten seconds between them, a round in the first, an event in the second, and a
    rail that was read every second but for two times."""
    maker.now = seconds(0)
    leg = maker.leg("decode", "t")
    request_id = round_id = 1
    owner = {"leg_id": leg, "request_id": request_id, "round_id": round_id}
    passes: list[tuple[Phase, int, float, float]] = [("draft", 1, 1.5, 2.0), ("verify", 4, 2, 4)]
    for phase, tokens, t0_s, t1_s in passes:
        maker.passes.append(
            Pass(id=len(maker.passes) + 1, phase=phase, model=phase[0], provider="cpu",
                 tokens=tokens, context_tokens=8, t0_ns=seconds(t0_s), t1_ns=seconds(t1_s),
                 **owner)
        )  # fmt: skip
    maker.rounds.append(
        Round(id=1, leg_id=leg, request_id=1, drafted=3, evaluated=3, accepted=2, emitted=3,
              t0_ns=seconds(1.5), t1_ns=seconds(4.0))
    )  # fmt: skip
    maker.now = seconds(10)
    maker.end_leg()
    maker.now = seconds(20)
    maker.leg("decode", "u")
    maker.now = seconds(30)
    maker.end_leg()
    read_s = [0, 1, 2, 7, 8, 9, 10, 11, 21, 22, 23]
    maker.signal("power_w.total", "W", [(seconds(t), 5.0 + t) for t in read_s])
    maker.events.append(
        Event(leg_id=2, t_ns=seconds(25), kind="clocks", severity="info", detail={})
    )
    return write_page(maker.session())


def told_at(page: Page, at_s: float, panel: int = 0) -> list[str]:
    """What stands beside the pointer, after the time, with it in a panel of the timeline."""
    place = page.locator("#timeline .nsewdrag").nth(panel)
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    low, high = page.evaluate("document.querySelector('#timeline .drawing').layout.xaxis.range")
    x = box["x"] + (at_s - low) / (high - low) * box["width"]
    page.mouse.move(2, 2)  # out of the chart: what was told before is gone
    page.wait_for_selector("#timeline .told", state="hidden")
    page.mouse.move(x, box["y"] + box["height"] / 2)
    page.wait_for_selector("#timeline .told", state="visible")
    when, *lines = page.locator("#timeline .told p").all_inner_texts()
    assert float(when.removesuffix(" s")) == pytest.approx(at_s, abs=0.05)
    return lines


@pytest.mark.parametrize("panel", [0, 1, 2])
def test_hovering_tells_what_contains_the_pointed_time_and_nothing_else(
    opened: Open, spaced_page: Path, panel: int
) -> None:
    page = opened(spaced_page)
    first, second = (f"legs: decode {one} 0 (decode, complete), 10.0 s" for one in "tu")
    verify = "verify: v (4 tokens after 8), 2.00 s"
    steps = "round 1: 3 drafted, 2 accepted, 3 emitted; draft 500 ms, target 2.00 s of 2.50 s"
    for at_s, told in {
        1.2: [first, "total 6.000 W (host)"],
        2.6: [first, verify, steps, "total 7.000 W (host)"],
        5.0: [first],  # between two readings that lie five seconds apart
        9.4: [first, "total 14.000 W (host)"],
        15.0: [],  # between the legs
        25.0: [second, "clocks at 25.000 s: {}"],  # the last reading is older than they usually are
    }.items():
        assert told_at(page.page, at_s, panel) == told, at_s
    assert page.faults == []


def test_a_reading_that_stands_for_longer_than_usual_tells_when_it_was_read(
    opened: Open, maker: Any, write_page: Callable[[Session], Path]
) -> None:
    """Readings that are not missing, only late: two seconds apart among others of one."""
    maker.now = seconds(0)
    maker.leg("decode", "t")
    maker.now = seconds(10)
    maker.end_leg()
    read_s = [0.0, 1.0, 2.0, 4.4, 5.4, 6.4]
    maker.signal("temp_c.gpu", "deg C", [(seconds(t), 40.0 + t) for t in read_s])
    page = opened(write_page(maker.session()))
    assert told_at(page.page, 2.5)[1:] == ["gpu 42.00 °C (host)"]
    assert told_at(page.page, 3.1)[1:] == ["gpu 42.00 °C (host, read at 2.00 s)"]
    assert told_at(page.page, 4.0)[1:] == ["gpu 44.40 °C (host)"]


def test_a_signal_that_is_switched_off_is_not_told(opened: Open, spaced_page: Path) -> None:
    page = opened(spaced_page)
    page.page.evaluate(
        "Plotly.restyle(document.querySelector('#timeline .drawing'), {visible: 'legendonly'},"
        " [document.querySelector('#timeline .drawing').data.findIndex(d => d.name === 'total')])"
    )
    assert told_at(page.page, 1.2) == ["legs: decode t 0 (decode, complete), 10.0 s"]


def test_a_tap_on_a_phone_tells_in_sight(opened: Open, spaced_page: Path) -> None:
    page = opened(spaced_page, **PHONE)
    place = page.page.locator("#timeline .nsewdrag").first
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    page.page.touchscreen.tap(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
    page.page.wait_for_selector("#timeline .told", state="visible")
    told = page.page.locator("#timeline .told").bounding_box()
    assert told is not None
    assert told["x"] >= 0 and told["x"] + told["width"] <= 390
    assert page.page.evaluate(WIDER) == 0


@pytest.mark.parametrize("options", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_mark_at_either_end_is_drawn_whole(
    opened: Open, maker: Any, write_page: Callable[[Session], Path], options: dict[str, Any]
) -> None:
    maker.now = seconds(0)
    maker.leg("decode", "t")
    maker.now = seconds(300)
    maker.end_leg()
    maker.events += [
        Event(leg_id=1, t_ns=seconds(t), kind="clocks", severity="warning", detail={})
        for t in (0, 300)
    ]
    page = opened(write_page(maker.session()), **options)
    plot = page.page.locator("#timeline .nsewdrag").first.bounding_box()
    marks = [one.bounding_box() for one in page.page.locator("#timeline .point").all()]
    assert plot is not None and len(marks) == 2
    for mark in marks:
        assert mark is not None
        assert mark["x"] >= plot["x"]
        assert mark["x"] + mark["width"] <= plot["x"] + plot["width"]


def test_the_roofline_zooms_too(board: Opened) -> None:
    before = board.range("roofline")
    board.page.locator("#roofline .keys").get_by_role("button", name="Zoom in").click()
    after = board.range("roofline")
    assert after[1] - after[0] == pytest.approx((before[1] - before[0]) / 2)
    board.page.locator("#roofline .keys").get_by_role("button", name="Whole").click()


def test_tokens_differ_by_more_than_colour(board: Opened) -> None:
    lines = board.page.evaluate(
        "['accepted', 'corrected', 'bonus', 'plain'].map(name => getComputedStyle("
        "document.querySelector('.legend .' + name)).borderBottomStyle)"
    )
    assert lines[:3] == ["solid", "dotted", "double"]
    plain = board.page.evaluate(
        "getComputedStyle(document.querySelector('.legend .plain')).borderBottomColor"
    )
    assert plain == "rgba(0, 0, 0, 0)"


def test_it_follows_the_readers_scheme_and_the_button_turns_it(
    opened: Open, board_page: Path
) -> None:
    page = opened(board_page, color_scheme="dark")
    dark = page.background()
    assert dark == "rgb(20, 23, 27)"
    paper = "getComputedStyle(document.querySelector('#timeline .bg')).fill"
    plot = "document.querySelector('#timeline .drawing').layout.plot_bgcolor"
    assert page.page.evaluate(plot) == dark, paper
    page.page.get_by_role("button", name="Light").click()
    assert page.background() == "rgb(255, 255, 255)"
    assert page.page.evaluate(plot) == "rgb(255, 255, 255)"
    page.page.get_by_role("button", name="Dark").click()
    assert page.background() == dark
    assert page.faults == []


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark"}, PHONE],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_nothing(opened: Open, board_page: Path, options: dict[str, Any]) -> None:
    found = Axe().run(opened(board_page, **options).page).response
    assert found["passes"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []


def swipe_up(page: Page, x: float, y: float, pixels: int) -> None:
    """A finger put down at a place and drawn upwards."""
    touch = page.context.new_cdp_session(page)

    def send(kind: str, *points: dict[str, float]) -> None:
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

    send("touchStart", {"x": x, "y": y})
    for moved in range(10, pixels + 1, 10):
        send("touchMove", {"x": x, "y": y - moved})
        page.wait_for_timeout(16)
    send("touchEnd")


def test_a_phone_scrolls_down_only_and_zooms_by_tapping(opened: Open, board_page: Path) -> None:
    page = opened(board_page, **PHONE)
    assert page.page.evaluate(WIDER) == 0
    low, high = page.range()
    page.page.locator("#timeline .keys").get_by_role("button", name="Zoom in").tap()
    zoomed = page.range()
    assert zoomed[1] - zoomed[0] == pytest.approx((high - low) / 2)
    area = page.page.locator("#timeline .nsewdrag").first
    area.evaluate("place => place.scrollIntoView({block: 'center'})")
    place = area.bounding_box()
    assert place is not None
    scrolled = page.page.evaluate("scrollY")
    swipe_up(page.page, place["x"] + place["width"] / 2, place["y"] + place["height"] / 2, 200)
    assert page.page.evaluate("scrollY") > scrolled + 100  # a swipe over a chart moves the page
    assert page.range() == pytest.approx(zoomed)
    page.page.set_viewport_size({"width": 844, "height": 390})  # turned
    width = "document.querySelector('#timeline .drawing').layout.width"
    for _ in range(100):  # wait_for_function evaluates text, which the page's policy forbids
        if page.page.evaluate(width) > 700:
            break
        page.page.wait_for_timeout(50)
    assert page.page.evaluate(width) > 700
    assert page.range() == pytest.approx(zoomed)
    assert page.page.evaluate(WIDER) == 0
    assert page.faults == []


def test_it_prints_light_and_comes_back(opened: Open, board_page: Path) -> None:
    page = opened(board_page, color_scheme="dark")
    plot = "document.querySelector('#timeline .drawing').layout.plot_bgcolor"
    page.page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {plot}; }})")
    printed = page.page.pdf(format="A4")
    assert printed.startswith(b"%PDF") and printed.count(b"/Type /Page\n") > 1
    assert page.page.evaluate("window.printed") == "rgb(255, 255, 255)"
    assert page.page.evaluate(plot) == "rgb(20, 23, 27)"
    assert page.faults == []


def test_without_scripts_all_figures_are_there_and_the_charts_say_why_not(
    browser: Browser, board_page: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(board_page.as_uri())
    assert page.locator("table").first.is_visible()
    assert page.locator("noscript img").count() == 2
    for words in page.locator("noscript").all():
        assert words.is_visible() and "need JavaScript" in words.inner_text()
    assert page.locator("noscript").count() == 2
    context.close()


def test_a_browser_that_cannot_inflate_says_so(browser: Browser, board_page: Path) -> None:
    context = browser.new_context()
    context.add_init_script("delete window.DecompressionStream")
    page = context.new_page()
    page.goto(board_page.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert "This browser could not draw it" in page.locator("#timeline .shown").inner_text()
    context.close()


BAD = (
    "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>\u202e\x00"
    "[a](javascript:alert(1)) ![i](https://example.org/x.png) <a href='javascript:alert(1)'>b</a> "
    "$x ${body} `c` **d** | e"
)


def test_what_a_session_holds_cannot_steer_the_page(
    opened: Open, board_session: Session, write_page: Callable[[Session], Path]
) -> None:
    info = replace(
        board_session.info,
        recipe={"name": BAD, "question": BAD},
        device={"name": BAD},
        environment={"cpu": BAD, "python": BAD},
        models={BAD: next(iter(board_session.info.models.values()))},
        complete=False,
        ended_reason=BAD,
    )
    session = replace(
        board_session,
        info=info,
        legs=[replace(leg, name=BAD, variant=leg.variant + BAD) for leg in board_session.legs],
        requests=[
            replace(one, text=BAD, text_ends=[*range(1, 9), len(BAD)], prompt_kind=BAD)
            for one in board_session.requests
        ],
        passes=[replace(one, model=BAD) for one in board_session.passes],
        signals=[replace(one, name="power_w." + BAD, source=BAD) for one in board_session.signals],
        events=[Event(leg_id=1, t_ns=board_session.legs[0].t0_ns, kind=BAD, severity="error",
                      detail={BAD: BAD})],
    )  # fmt: skip
    path = write_page(session)
    page = opened(path)
    assert page.faults == [] and page.requests == [path.as_uri()]
    assert page.page.evaluate("window.hit") is None
    assert page.page.locator("main a, main img:not([src^='data:'])").count() == 0
    assert page.page.locator("script").count() == 4
    shown = page.page.locator("body").inner_text()
    assert "\u202e" not in shown and "{U+202E}" in shown
    assert page.page.locator(".stamp").count() == 2


@pytest.mark.parametrize("kind", ["run", "watch"])
def test_a_session_with_nothing_in_it_is_a_page(
    opened: Open, made_session: Session, write_page: Callable[[Session], Path], kind: str
) -> None:
    from edgeprof.session.columns import Samples, Tokens

    empty = replace(
        made_session, info=replace(made_session.info, kind=kind), legs=[], requests=[], rounds=[],
        passes=[], tokens=Tokens.of([]), signals=[], samples=Samples.of([]), events=[],
    )  # fmt: skip
    page = opened(write_page(empty))
    assert page.faults == [] and page.page.locator("figure.chart").count() == 0
    assert page.page.locator("h2", has_text="Environment").count() == 1
