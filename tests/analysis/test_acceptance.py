"""The names of acceptance, each against counts done by hand."""

import pytest

from edgeprof.analysis.acceptance import acceptance_of
from edgeprof.session.records import Round


def make(drafted: int, evaluated: int, accepted: int) -> Round:
    return Round(
        id=1,
        leg_id=1,
        request_id=1,
        drafted=drafted,
        evaluated=evaluated,
        accepted=accepted,
        emitted=accepted + 1,
        t0_ns=0,
        t1_ns=1,
    )


@pytest.fixture
def rounds() -> list[Round]:
    """Three drafted each: all accepted, one accepted, none; and a round with nothing drafted."""
    return [make(3, 3, 3), make(3, 2, 1), make(3, 1, 0), make(0, 0, 0)]


def test_three_numbers_called_acceptance(rounds: list[Round]) -> None:
    acceptance = acceptance_of(rounds)
    assert acceptance is not None
    assert acceptance.draft_acceptance_rate == 4 / 9  # 3 + 1 + 0 of 3 x 3 drafted
    assert acceptance.conditional_acceptance == 4 / 6  # of 3 + 2 + 1 evaluated
    assert acceptance.mean_acceptance_length == (4 + 2 + 1 + 1) / 4


def test_positions(rounds: list[Round]) -> None:
    acceptance = acceptance_of(rounds)
    assert acceptance is not None
    assert acceptance.per_position == [2 / 4, 1 / 4, 1 / 4]
    assert acceptance.conditional_per_position == [2 / 3, 1 / 2, 1 / 1]
    assert acceptance.histogram == [2, 1, 0, 1]
    assert (acceptance.rounds, acceptance.rounds_without_draft) == (4, 1)


def test_length_is_one_and_the_positions(rounds: list[Round]) -> None:
    acceptance = acceptance_of(rounds)
    assert acceptance is not None
    assert acceptance.mean_acceptance_length == 1 + sum(acceptance.per_position)


def test_position_that_was_never_reached_is_unknown() -> None:
    acceptance = acceptance_of([make(2, 1, 0)])
    assert acceptance is not None
    assert acceptance.per_position == [0.0, 0.0]
    assert acceptance.conditional_per_position == [0.0, None]


def test_nothing_drafted_is_no_rate() -> None:
    acceptance = acceptance_of([make(0, 0, 0)])
    assert acceptance is not None
    assert acceptance.draft_acceptance_rate is None
    assert acceptance.conditional_acceptance is None
    assert acceptance_of([]) is None


def test_field_example_of_132_accepted_of_198() -> None:
    """132 of 198 drafted tokens accepted in 66 rounds of 3: 198 tokens, 3.0 a round.

    A published run counts 68 steps for 200 tokens, 2.94 a step, its last steps being shorter.
    """
    all_or_one = [make(3, 3, 3)] * 33 + [make(3, 2, 1)] * 33  # 99 + 33 = 132
    acceptance = acceptance_of(all_or_one)
    assert acceptance is not None
    assert acceptance.draft_acceptance_rate == pytest.approx(0.667, abs=0.001)
    assert acceptance.conditional_acceptance == 132 / 165  # 0.80
    assert acceptance.mean_acceptance_length == 3.0
