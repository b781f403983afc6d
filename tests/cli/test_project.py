"""``edgeprof project`` on the session that is made by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from edgeprof.cli.commands import cli
from edgeprof.session.records import Session


@pytest.fixture
def project(
    made_session: Session, write_session: Callable[..., Path], tmp_path: Path
) -> Callable[..., Any]:
    def run(*options: str, session: Session = made_session) -> Any:
        path = tmp_path / "s.sqlite"
        path.unlink(missing_ok=True)
        write_session(path, session)
        return CliRunner().invoke(cli, ["project", str(path), *options])

    return run


def pairs(result: Any) -> dict[tuple[str, str], Any]:
    found = json.loads(result.stdout)["pairs"]
    return {(pair["target"], pair["drafter"]): pair for pair in found}


def test_acceptance_is_carried_over_and_time_is_modelled(project: Callable[..., Any]) -> None:
    """fp32 streams 500 MB and 50 kB a token, the draft 20 MB. On 68.256 GB/s and about 9 cached
    tokens memory is the wall of both passes: c = 20.5 / 500.5 MB. Rounds of one drafted token give
    8 tokens in 5 rounds, of two in 4; v is 1 but for the keys and values of further tokens."""
    result = project("--device", "orin-nano", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == "edgeprof.projection/1"
    assert document["device"] == {"name": "orin-nano-8gb", "mode": "15W"}
    assert document["carried_over"] and document["modelled"] and document["not_included"]
    pair = pairs(result)["fp32", "draft"]
    assert pair["context_tokens"] == 9 and pair["answers"] == 4
    assert pair["measured_here"] == pytest.approx(4 / 3)
    c = 20.5 / 500.5
    assert pair["draft_cost_ratio"]["bound"] == pytest.approx(c)
    one, two = pair["by_draft_length"]
    assert (one["expected_tokens_per_round"], two["expected_tokens_per_round"]) == (1.6, 2.0)
    assert one["speedup_at_peak"] == pytest.approx(1.6 / (c + 500.55 / 500.5))
    assert two["speedup_at_peak"] == pytest.approx(2.0 / (2 * c + 500.6 / 500.5))
    assert one["speedup"]["low"] < one["speedup_at_peak"]
    assert pair["plain_tokens_per_s"]["bound"] == pytest.approx(68.256e9 / 500.5e6)


def test_what_was_disturbed_is_left_out_as_in_the_report(
    project: Callable[..., Any], made_session: Session
) -> None:
    """Another program took a core in the second repeat: of four answers two are left."""
    legs = [
        replace(leg, attrs={**leg.attrs, "processor": {"others_s": 10.0}})
        if leg.variant == "fp32+draft k=2" and leg.repeat == 1
        else leg
        for leg in made_session.legs
    ]
    disturbed = replace(made_session, legs=legs)
    result = project("--device", "orin-nano", "--json", session=disturbed)
    assert pairs(result)["fp32", "draft"]["answers"] == 2
    assert pairs(result)["fp32", "ngram"]["answers"] == 4


def test_looking_up_costs_no_pass(project: Callable[..., Any]) -> None:
    pair = pairs(project("--device", "orin-nano", "--json"))["fp32", "ngram"]
    assert pair["draft_cost_ratio"]["bound"] == 0.0
    assert len(pair["by_draft_length"]) == 3 and pair["fit"]["draft_weights_bytes"] == 0


def test_text_says_where_each_figure_comes_from(project: Callable[..., Any]) -> None:
    result = project("--device", "agx-orin@MODE_30W")
    assert result.exit_code == 0, result.output
    assert "Paper board, projected to Jetson AGX Orin 64GB, MODE_30W" in result.output
    for words in ("(1.33x was measured here)", "Carried over from the session", "Modelled", "Fits"):
        assert words in result.output
    rows = project("--device", "agx-orin", "--format", "csv").output.splitlines()
    assert rows[0].startswith("target,drafter,draft_length,expected_tokens_per_round")
    assert len(rows) == 1 + 2 + 3 + 2  # lengths of the three pairs


def test_a_board_of_which_nothing_is_expected_has_the_peak(project: Callable[..., Any]) -> None:
    pair = pairs(project("--device", "nano", "--json"))["fp32", "draft"]
    assert pair["by_draft_length"][0]["speedup"] is None
    assert pair["by_draft_length"][0]["speedup_at_peak"] > 1


def test_what_does_not_fit_exits_with_1_and_says_all(
    project: Callable[..., Any], made_session: Session
) -> None:
    huge = {
        key: replace(model, resident_weight_bytes=9_000_000_000)
        for key, model in made_session.info.models.items()
    }
    session = replace(made_session, info=replace(made_session.info, models=huge))
    result = project("--device", "orin-nano", "--json", session=session)
    assert result.exit_code == 1
    assert pairs(result)["fp32", "draft"]["fit"]["fits"] is False


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"legs": []}, "no answer that was drafted for"),
        ({"models": {}}, "does not say what a pass of fp32 streams"),
    ],
)
def test_a_session_that_says_too_little(
    project: Callable[..., Any], made_session: Session, changes: dict[str, Any], says: str
) -> None:
    if "models" in changes:
        session = replace(made_session, info=replace(made_session.info, **changes))
    else:
        session = replace(made_session, **changes)
    result = project("--device", "orin-nano", session=session)
    assert result.exit_code == 1 and says in result.stderr


def test_a_board_or_session_that_is_not_there(project: Callable[..., Any]) -> None:
    assert project("--device", "orin-nanoo").exit_code == 2
    result = CliRunner().invoke(cli, ["project", "no.sqlite", "--device", "orin-nano"])
    assert result.exit_code == 2 and "no such session file" in result.stderr
