"""The HTML report as a file; how a browser shows it is in ``page/``."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from edgeprof.analysis.summary import summarise
from edgeprof.report.html import html, write_html
from edgeprof.report.markdown import markdown
from edgeprof.session.columns import Samples
from edgeprof.session.records import Pass, Round, Session, Signal

MS = 1_000_000


@pytest.fixture(scope="module")
def page(made_session: Session) -> str:
    return html(made_session, summarise(made_session), {"roofline.svg": b"<svg/>"})


def inflated(page: str, name: str) -> str:
    found = re.search(
        rf'<script type="application/octet-stream" id="{name}">([^<]*)</script>', page
    )
    assert found is not None
    return gzip.decompress(base64.b64decode(found[1])).decode()


def test_only_its_own_two_scripts_may_run(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    own = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    assert policy is not None and own is not None
    for script in (own[1], inflated(page, "plotly")):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy[1] and "unsafe-eval" not in policy[1]


def test_it_has_every_section_of_the_markdown_report(page: str, made_session: Session) -> None:
    titles = re.findall(r"^## (.*)$", markdown(summarise(made_session)), re.MULTILINE)
    headings = re.findall(r"<h2 id=[^>]*>([^<]*)</h2>", page)
    assert [title for title in headings if title in titles] == titles
    assert set(headings) - set(titles) == {"Timeline", "Generated text"}
    assert headings[0] == "Timeline"
    links = re.findall(r'<a href="#([^"]*)">', page)
    assert links == re.findall(r'<h2 id="([^"]*)">', page)


def test_its_charts_are_those_that_it_has_places_for(page: str) -> None:
    charts = json.loads(inflated(page, "charts"))
    places = re.findall(r'<figure class="chart" id="([^"]*)">', page)
    assert list(charts) == places == ["timeline", "roofline"]
    assert charts["timeline"]["x_title"] == "time since the start (s)"


def test_p05_what_is_unknown_is_no_number_in_it(page: str) -> None:
    def refuse(word: str) -> Any:
        raise AssertionError(word)

    json.loads(inflated(page, "charts"), parse_constant=refuse)


def test_p15_eight_hours_are_a_page_of_less_than_five_megabytes(maker: Any, tmp_path: Path) -> None:
    """Noise on thirty signals, and more rounds than are drawn: no page holds more than that."""
    rng = np.random.default_rng(1)
    signals, each = 30, 10_000
    times_ns = np.tile(np.arange(each) * 2880 * MS, signals)
    samples = Samples(
        {
            "signal_id": np.repeat(np.arange(1, signals + 1), each),
            "t0_ns": times_ns,
            "t1_ns": times_ns,
            "value": rng.normal(20.0, 5.0, signals * each),
            "quality": np.zeros(signals * each, dtype="i1"),
        }
    )
    leg = maker.leg("decode", "t+d k=3")
    maker.legs[0] = replace(maker.legs[0], t0_ns=0, t1_ns=8 * 3600 * 1000 * MS)
    times = [round_id * 1000 * MS for round_id in range(20_000)]
    session = replace(
        maker.session(),
        signals=[
            Signal(id=i, name=f"temp_c.{i}", unit="deg C", source="sysfs")
            for i in range(1, signals + 1)
        ],
        samples=samples,
        rounds=[
            Round(id=i, leg_id=leg, request_id=1, drafted=3, evaluated=3, accepted=i % 4,
                  emitted=i % 4 + 1, t0_ns=t, t1_ns=t + 900 * MS)
            for i, t in enumerate(times)
        ],
        passes=[
            Pass(id=i, leg_id=leg, request_id=1, round_id=i, phase=phase, model="m",
                 provider="cpu", tokens=4, context_tokens=i, t0_ns=t, t1_ns=t + (i % 7 + 1) * MS)
            for phase in ("draft", "verify")
            for i, t in enumerate(times)
        ],
    )  # fmt: skip
    path = write_html(session, summarise(session), tmp_path)
    assert path.stat().st_size < 5e6
    drawn = json.loads(inflated(path.read_text(), "charts"))["timeline"]["traces"]
    assert max(len(trace["x"]["bdata"]) for trace in drawn) < 5 * 4000 * 8 * 4 / 3 + 4
    left = re.search(r"kept in the session: (\d+) rounds, (\d+) passes", path.read_text())
    assert left is not None
    assert int(left[1]) >= 20_000 - 4_000 and int(left[2]) >= 40_000 - 8_000
