"""Values of an option that sweeps, as llama-bench writes them."""

import click
import pytest

from edgeprof.cli.sweep import sweep


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("128", (128,)),
        ("0", (0,)),
        ("1000000", (1_000_000,)),
        ("512,128,512", (512, 128)),
        ("1-4", (1, 2, 3, 4)),
        ("5-5", (5,)),
        ("0-1024+256", (0, 256, 512, 768, 1024)),
        ("1-10+4", (1, 5, 9)),
        ("512-4096*2", (512, 1024, 2048, 4096)),
        ("0, 100-300+100", (0, 100, 200, 300)),
        ("1-64", tuple(range(1, 65))),
    ],
)
def test_lists_and_ranges(text: str, values: tuple[int, ...]) -> None:
    assert sweep(text) == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no number"),
        ("-1", "is no number"),
        ("1.5", "is no number"),
        ("1,,2", "is no number"),
        ("1-", "is no number"),
        ("a", "is no number"),
        ("12345678901234567890", "is no number"),
        ("\u0663", "is no number"),  # a digit of another script
        ("1000001", "0<=x<=1000000"),
        ("1-9999999", "0<=x<=1000000"),
        ("4-1", "a range without an end"),
        ("1-4+0", "a range without an end"),
        ("1-4*1", "a range without an end"),
        ("1-4*0", "a range without an end"),
        ("0-4*2", "a range without an end"),
        ("1-65", "more than 64 values"),
        ("1-1000000", "more than 64 values"),
        ("1-40,101-140", "more than 64 values"),
    ],
)
def test_what_is_no_sweep_is_told(text: str, says: str) -> None:
    with pytest.raises(click.BadParameter, match=says.replace("+", r"\+").replace("*", r"\*")):
        sweep(text)
