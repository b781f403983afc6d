"""How samples were delivered: what came, without the gaps."""

import pytest

from edgeprof.profiling.delivery import Delivery
from edgeprof.session.records import Sample, Signal

MS = 1_000_000


def signal(number: int, name: str = "gpu_busy_frac", source: str = "sysfs") -> Signal:
    return Signal(id=number, name=name, unit="1", source=source, asked_hz=20)


def sample(number: int, t0_ms: float, took_ms: float = 0, value: float | None = 0.5) -> Sample:
    t0_ns = round(t0_ms * MS)
    return Sample(signal_id=number, t0_ns=t0_ns, t1_ns=t0_ns + round(took_ms * MS), value=value)


def test_s32_s33_what_came_is_told_not_what_was_asked() -> None:
    delivery = Delivery()
    delivery.announce(signal(1))
    # Asked for every 50 ms; the intervals are 400, 500 and 600 ms: 2 Hz, +-100 ms. Reads of 1, 2,
    # 3 and 4 ms.
    for t0_ms, took_ms in ((0, 1), (400, 2), (900, 3), (1500, 4)):
        delivery.count(sample(1, t0_ms, took_ms))
    (told,) = delivery.signals()
    assert told.asked_hz == 20
    assert told.delivered_hz == pytest.approx(2.0)
    assert told.jitter_s == pytest.approx(0.1)
    assert told.read_latency_s == pytest.approx(0.0025)


def test_s37_few_samples_have_few_figures() -> None:
    delivery = Delivery()
    delivery.announce(signal(1))
    (none,) = delivery.signals()
    assert (none.delivered_hz, none.jitter_s, none.read_latency_s) == (None, None, None)
    delivery.count(sample(1, 10, 3))
    (one,) = delivery.signals()
    assert (one.delivered_hz, one.jitter_s, one.read_latency_s) == (None, None, 0.003)
    delivery.count(sample(1, 110, 3))
    (two,) = delivery.signals()
    assert two.delivered_hz == pytest.approx(10) and two.jitter_s is None


def test_samples_of_one_moment_divide_by_nothing() -> None:
    delivery = Delivery()
    delivery.announce(signal(1))
    delivery.count(sample(1, 10))
    delivery.count(sample(1, 10))
    assert next(delivery.signals()).delivered_hz is None


def test_gaps_are_no_intervals() -> None:
    delivery = Delivery()
    delivery.announce(signal(1))
    delivery.announce(signal(2, source="tegrastats"))
    for number in (1, 2):
        delivery.count(sample(number, 0))
        delivery.count(sample(number, 100))
    delivery.interrupt("tegrastats")
    for number in (1, 2):
        delivery.count(sample(number, 5000))
        delivery.count(sample(number, 5100))
    rates = {told.source: told.delivered_hz for told in delivery.signals()}
    # sysfs had no gap: three intervals, together 5.1 s
    assert rates == {"sysfs": pytest.approx(3 / 5.1), "tegrastats": pytest.approx(10)}


def test_readings_without_a_value_did_not_come() -> None:
    delivery = Delivery()
    delivery.announce(signal(1))
    # Known at 0, 100, 200, 300 ms and from 4 s on; read every 100 ms in between, and slowly.
    for turn in range(44):
        lost = 300 < 100 * turn < 4000
        delivery.count(sample(1, 100 * turn, 50 if lost else 2, value=None if lost else 0.5))
    (told,) = delivery.signals()
    assert told.delivered_hz == pytest.approx(10)  # three intervals before, three after
    assert told.jitter_s == pytest.approx(0, abs=1e-9)
    assert told.read_latency_s == pytest.approx(0.002)


def test_every_other_reading_without_a_value_halves_the_rate() -> None:
    delivery = Delivery()
    delivery.announce(signal(1))
    for turn in range(21):
        delivery.count(sample(1, 100 * turn, value=None if turn % 2 else 0.5))
    assert next(delivery.signals()).delivered_hz == pytest.approx(5)


def test_nothing_is_delivered_where_no_reading_has_a_value() -> None:
    delivery = Delivery()
    delivery.announce(signal(1))
    for turn in range(5):
        delivery.count(sample(1, 100 * turn, value=None))
    (told,) = delivery.signals()
    assert (told.delivered_hz, told.jitter_s, told.read_latency_s) == (None, None, None)


@pytest.mark.parametrize("source", ["tegrastats", "jtop", "replay"])
def test_how_long_a_stream_took_to_read_is_not_known(source: str) -> None:
    delivery = Delivery()
    delivery.announce(signal(1, source=source))
    delivery.count(sample(1, 0, 0))
    delivery.count(sample(1, 100, 3))
    assert next(delivery.signals()).read_latency_s is None


def test_ids_outlive_a_sampler() -> None:
    delivery = Delivery()
    assert delivery.announce(signal(1)).id == 1
    assert delivery.announce(signal(2, "emc_busy_frac")).id == 2
    assert delivery.count(sample(2, 0)).signal_id == 2
    delivery.restart()
    # The next one leaves the first out, and finds another.
    assert delivery.announce(signal(1, "emc_busy_frac")).id == 2
    assert delivery.announce(signal(2, "emc_busy_frac", "jtop")).id == 3
    assert delivery.count(sample(1, 9000)).signal_id == 2
    assert delivery.count(sample(2, 9000)).signal_id == 3
    assert [told.delivered_hz for told in delivery.signals()] == [None, None, None]
