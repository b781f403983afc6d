"""Quantities: what people write is what is meant, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeprof.errors import UsageFault
from edgeprof.units import parse, show, show_gib, significant


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("68 GB/s", "B/s", 68e9),
        ("68GB/s", "B/s", 68e9),
        ("7.44 GiB", "B", 7.44 * 2**30),
        ("58.7 ms", "s", 0.0587),
        ("17 tokens/s", "tokens/s", 17.0),
        ("3199 MHz", "Hz", 3.199e9),
        ("1e3 B", "B", 1000.0),
    ],
)
def test_parse(text: str, unit: str, value: float) -> None:
    assert parse(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("text", ["", "GB/s", "68", "68 Gb/s", "68 GB", "nan GB/s", "1e999 B/s"])
def test_parse_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(UsageFault, match=r"quantity|too large"):
        parse(text, "B/s")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (68.256e9, "B/s", "68.3 GB/s"),
        (0.058706, "s", "58.7 ms"),
        (999.96e6, "B", "1.00 GB"),  # rounds up to the next prefix, not to 1000 MB
        (512e6, "B", "512 MB"),
        (0, "B", "0 B"),
        (None, "B/s", "not known"),
    ],
)
def test_show(value: float | None, unit: str, text: str) -> None:
    assert show(value, unit) == text


def test_memory_is_shown_in_gib() -> None:
    assert show_gib(7620 * 2**20) == "7.44 GiB"  # 7620 / 1024 = 7.441
    assert show_gib(None) == "not known"


@pytest.mark.parametrize(
    ("value", "text"), [(17.034, "17.0"), (4.005, "4.00"), (1566.9, "1567"), (0.0, "0")]
)
def test_significant_digits_without_exponent(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(min_value=1e-8, max_value=1e17))
def test_what_is_shown_parses_to_the_same_three_digits(value: float) -> None:
    assert parse(show(value, "B/s"), "B/s") == pytest.approx(value, rel=0.005)
