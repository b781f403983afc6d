"""What counts as the loss of a signal, and how much of it is told."""

from fake_sources import MS, S

from edgeprof.session.records import Event
from edgeprof.telemetry.losses import Presence, is_loss


def test_a_loss_takes_a_second_and_three_readings() -> None:
    assert not is_loss(19, 950 * MS)  # 20 Hz
    assert is_loss(20, S)
    assert not is_loss(2, 2 * S)  # 1 Hz
    assert is_loss(3, 3 * S)


class Told:
    """A channel that is read ten times a second."""

    def __init__(self) -> None:
        self.presence = Presence("gpu_busy_frac", "sysfs")
        self.events: list[Event] = []
        self.now_ns = 0

    def read(self, times: int, reason: str | None = None) -> None:
        """``times`` readings: with a value, or without where a reason is given."""
        for _ in range(times):
            self.now_ns += 100 * MS
            if reason is None:
                self.events += self.presence.known(self.now_ns, self.now_ns)
            else:
                self.events += self.presence.unknown(self.now_ns, reason)

    def close(self) -> list[Event]:
        before = len(self.events)
        self.events += self.presence.close(self.now_ns)
        return self.events[before:]


def test_a_loss_is_told_with_its_reason_and_again_when_it_has_ended() -> None:
    told = Told()
    told.read(5)  # the last at 0.5 s
    told.read(9, "no such device")
    assert told.events == []
    told.read(1, "no such device")  # at 1.5 s
    (absent,) = told.events
    assert told.presence.lost
    assert (absent.kind, absent.severity, absent.t_ns) == ("absent", "info", 1500 * MS)
    name = {"signal": "gpu_busy_frac", "source": "sysfs"}
    reason = {"reason": "no such device"}
    assert absent.detail == {**name, **reason, "fix": None, "since_ns": 500 * MS}
    told.read(5, "no such device")
    told.read(1)  # at 2.1 s
    gap = told.events[1]
    assert (gap.kind, gap.severity) == ("gap", "warning")
    assert gap.detail == {**name, **reason, "since_ns": 500 * MS, "until_ns": 2100 * MS}
    assert told.close() == []


def test_what_was_never_there_is_not_lost() -> None:
    told = Told()
    told.read(50, "no such device")
    assert told.events == [] and told.close() == []


def test_a_reading_that_fails_now_and_then_is_no_loss() -> None:
    told = Told()
    for _ in range(20):
        told.read(1)
        told.read(5, "try again")
    assert told.events == [] and told.close() == []


def test_a_loss_that_lasts_is_told_at_the_end() -> None:
    told = Told()
    told.read(1)
    told.read(30, "empty")
    (gap,) = told.close()
    assert (gap.detail["since_ns"], gap.detail["until_ns"]) == (100 * MS, 3100 * MS)


def test_a_gpu_that_is_switched_off_again_and_again_is_not_told_every_time() -> None:
    told = Told()
    for _ in range(100):  # off for 2 s, on for 1 s
        told.read(10)
        told.read(20, "switched off")
    told.read(1)
    assert [event.kind for event in told.events] == ["absent", "gap"] * 4
    (rest,) = told.close()
    # The fifth loss begins at 4 x 3 + 1 s; the last ends with the reading at 300.1 s. Each lasts
    # 2.1 s, from one known reading to the next.
    assert rest.detail["losses"] == 96
    assert rest.detail["since_ns"] == 13 * S and rest.detail["until_ns"] == 300_100 * MS
    assert round(rest.detail["lost_s"], 6) == 201.6
