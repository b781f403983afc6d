"""Records as columns: what goes in comes out, group by group."""

import pytest

from edgeprof.session.columns import Samples, Tokens
from edgeprof.session.records import Sample, Token


def sample(signal_id: int, t_ns: int, value: float | None = 1.0) -> Sample:
    return Sample(signal_id=signal_id, t0_ns=t_ns, t1_ns=t_ns + 1, value=value, quality="suspect")


def test_samples_come_signal_by_signal_in_the_order_of_writing() -> None:
    records = [sample(2, 10), sample(1, 11), sample(2, 5, None), sample(1, 12)]
    samples = Samples.of(records)
    assert list(samples) == [records[1], records[3], records[0], records[2]]
    assert list(samples.of_signal(2)) == [records[0], records[2]]
    assert list(samples.of_signal(7)) == []
    assert list(samples.of_signal(70_000)) == list(samples.of_signal(-1)) == []
    assert samples[0] == records[1] and samples[-1] == records[2]
    assert list(samples[1:3]) == [records[3], records[0]]
    with pytest.raises(IndexError):
        samples[4]


def test_views_share_the_columns() -> None:
    samples = Samples.of([sample(1, 1), sample(2, 2), sample(2, 3)])
    part = samples.of_signal(2)
    assert part.value.base is samples.value or part.value.base is samples.value.base
    assert part.t0_ns.tolist() == [2, 3]


def test_unknown_is_none_again() -> None:
    token = Token(
        id=1, leg_id=1, request_id=4, round_id=None, position=0, token_id=9, origin="bonus"
    )
    assert list(Tokens.of([token])) == [token]
    assert next(iter(Samples.of([sample(1, 1, None)]))).value is None


def test_nothing_is_an_empty_sequence() -> None:
    assert not Samples.of([]) and list(Tokens.of([]).of_request(1)) == []


def test_ids_beyond_any_array_index_are_found() -> None:
    highest = 2**63 - 1
    samples = Samples.of([sample(highest, 1), sample(3, 2)])
    assert [one.t0_ns for one in samples.of_signal(highest)] == [1]


def test_rows_that_are_missing_are_no_columns() -> None:
    with pytest.raises(ValueError, match="1 rows instead of 2"):
        Samples.read(iter([(1, 5, 6, 0.5, 0)]), 2)
