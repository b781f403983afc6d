import pytest

from edgeprof.runner.acceptance import accept_greedy


def test_all_accepted_gives_the_bonus_token() -> None:
    assert accept_greedy([4, 5, 6], [4, 5, 6, 7]) == (3, 3, 7)


def test_first_rejection_ends_the_run_and_is_the_last_one_evaluated() -> None:
    # 4 stands, 9 is rejected for 5; the third was never compared.
    assert accept_greedy([4, 9, 6], [4, 5, 6, 7]) == (1, 2, 5)


def test_nothing_accepted() -> None:
    assert accept_greedy([9, 5], [4, 5, 6]) == (0, 1, 4)


def test_nothing_drafted_is_plain_decoding() -> None:
    assert accept_greedy([], [4]) == (0, 0, 4)


def test_the_target_must_have_said_something_after_every_drafted_token() -> None:
    with pytest.raises(ValueError, match="2 drafted tokens need 3 target tokens"):
        accept_greedy([1, 2], [1, 2])
