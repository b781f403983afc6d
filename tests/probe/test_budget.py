"""How large what is streamed is, beside a last level of cache."""

import pytest

from edgeprof.probe.budget import beyond_cache_bytes

MIB = 1 << 20


@pytest.mark.parametrize(
    ("cache_mib", "expected_mib"),
    [
        (0, 64),  # not told
        (4, 64),
        (32, 256),  # eight times
        (96, 768),
        (300, 768),  # 2400 would take minutes
        (512, 1024),  # twice, however large
    ],
)
def test_many_caches_within_limits_and_never_less_than_two(
    cache_mib: int, expected_mib: int
) -> None:
    found = beyond_cache_bytes(cache_mib * MIB, 8, least_bytes=64 * MIB, most_bytes=768 * MIB)
    assert found == expected_mib * MIB
