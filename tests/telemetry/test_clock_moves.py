"""When a clock counts as moved, and how much of it is told."""

from fake_sources import S

from edgeprof.session.records import Event
from edgeprof.telemetry.clock_moves import moves_of


def told(signal: str, *clocks_hz: float) -> list[Event]:
    """One reading a second; at 100 s all ends."""
    moves = moves_of(signal, "sysfs")
    assert moves is not None
    events = [event for t, hz in enumerate(clocks_hz) for event in moves.note(hz, t * S)]
    return [*events, *moves.close(100 * S)]


def test_the_first_move_of_the_memory_clock_is_told_at_once() -> None:
    (event,) = told("emc_clock_hz", 3199e6, 3199e6, 665.6e6, 665.6e6)
    assert (event.kind, event.severity, event.t_ns) == ("clock_change", "info", 2 * S)
    assert event.detail == {
        "signal": "emc_clock_hz", "source": "sysfs", "from": 3199e6, "to": 665.6e6,
    }  # fmt: skip


def test_more_moves_are_counted_and_told_at_the_end() -> None:
    first, rest = told("emc_clock_hz", *[3199e6, 665.6e6] * 500)
    assert first.t_ns == S
    assert (rest.t_ns, rest.detail) == (100 * S, {
        "signal": "emc_clock_hz", "source": "sysfs", "changes": 999,
        "lowest_hz": 665.6e6, "highest_hz": 3199e6,
    })  # fmt: skip


def test_two_per_cent_is_no_move() -> None:
    assert told("emc_clock_hz", 2133e6, 2133e6 * 1.019, 2133e6 * 0.981) == []
    (event,) = told("emc_clock_hz", 2133e6, 2133e6 * 1.021)
    assert event.detail["to"] == 2133e6 * 1.021


def test_a_gpus_clock_is_counted_only() -> None:
    (event,) = told("gpu_clock_hz", 306e6, 612e6)
    assert event.t_ns == 100 * S
    assert (event.detail["changes"], event.detail["lowest_hz"], event.detail["highest_hz"]) == (
        1, 306e6, 612e6,
    )  # fmt: skip
    assert told("gpu_clock_hz", 306e6, 306e6) == []


def test_what_is_no_clock_does_not_move() -> None:
    assert moves_of("gpu_busy_frac", "sysfs") is None
