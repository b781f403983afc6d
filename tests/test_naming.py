"""Names: spelling does not matter, and a near miss is answered with what is near."""

from edgeprof.naming import find_name, nearest_names, unknown_name

KNOWN = ["orin-nano-8gb", "orin-nx-16gb", "MAXN/10W"]


def test_case_and_separators_do_not_matter() -> None:
    for spelling in ("ORIN_NANO_8GB", "orin.nano.8gb", "OrinNano8GB", "orin nano-8gb"):
        assert find_name(spelling, KNOWN) == "orin-nano-8gb"
    assert find_name("maxn/10w", KNOWN) == "MAXN/10W"
    assert find_name("orin-nano", KNOWN) is None


def test_nearest_is_first_and_nothing_near_is_nothing() -> None:
    assert nearest_names("orinnano8g", KNOWN)[0] == "orin-nano-8gb"
    assert nearest_names("zzzz", KNOWN) == []


def test_message_suggests_or_lists() -> None:
    near = unknown_name("board", "orin-nx-16", KNOWN)
    assert near.startswith("no board named 'orin-nx-16'; did you mean 'orin-nx-16gb'")
    assert unknown_name("board", "zzz", KNOWN).endswith(
        "known: orin-nano-8gb, orin-nx-16gb, MAXN/10W"
    )
