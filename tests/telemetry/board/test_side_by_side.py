"""Files, tegrastats and the real jtop service side by side: what they tell is what was set."""

import itertools
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from emulated.namespace import EmulatedBoard
from emulated.recording import Recording, Track
from emulated.signals import HIGH, LOW, Average, Regime, SquareWave
from emulated.tree import Tree

Boards = Callable[[str], EmulatedBoard]

ALL = ("orin-nano", "orin-nano-super", "agx-orin", "thor-like", "nano")
SOURCES = ("sysfs", "tegrastats", "jtop")
BUSY, BANDWIDTH = "emc_busy_frac", "dram_bandwidth_bytes_per_s"


def drive(tree: Tree) -> None:
    """Everything away from where it rests, in steps that every source can tell: whole per cents,
    MHz and milliwatts."""
    tree.set_emc(busy_frac=0.25, clock_hz=1_600_000_000)
    tree.set_gpu(busy_frac=0.55, clock_hz=510_000_000)
    for place, rail in enumerate(rail for chip in tree.board.chips for rail in chip.rails):
        if rail.signal is not None:
            tree.set_rail(rail.label, mv=5000, ma=900 + 20 * place)
    for place, zone in enumerate(tree.board.zones):
        if zone.celsius is not None:
            tree.set_temperature(zone.type, 55.5 + place)
    tree.set_memory(used_mib=2048, swap_used_mib=64)


# ---- steady values


@pytest.mark.parametrize("name", ALL)
def test_every_source_tells_what_is_set(boards: Boards, name: str) -> None:
    board = boards(name)
    drive(board.tree)
    with Recording(board, *SOURCES, interval_s=0.2) as recording:
        for source in SOURCES:
            recording.wait_for_signals(source, [*told_by(source, board.tree)])
    for source in SOURCES:
        tracks = recording.tracks(source)
        for signal, track in tracks.items():
            if signal in board.tree.truth:
                expected = pytest.approx(board.tree.truth[signal], rel=1e-6)
                assert track.values == [expected] * len(track.values), (source, signal)
            assert {sample.quality for sample in track.samples} == {"ok"}, (source, signal)


def told_by(source: str, tree: Tree) -> Iterator[str]:
    """The signals that a source has to tell of a board."""
    for signal in tree.truth:
        # The service cuts its share of the memory clock off to a whole 0 or 1, and finds no GPU
        # where NVML does not answer.
        wrong_in_jtop = signal in (BUSY, BANDWIDTH)
        no_gpu_in_jtop = tree.board.name == "thor-like" and signal == "gpu_clock_hz"
        if source != "jtop" or not (wrong_in_jtop or no_gpu_in_jtop):
            yield signal


@pytest.mark.parametrize("name", ["orin-nano", "nano"])
def test_jtops_share_of_the_emc_is_never_taken(boards: Boards, name: str) -> None:
    board = boards(name)
    board.tree.set_emc(busy_frac=0.8)
    with Recording(board, "sysfs", "jtop", interval_s=0.1) as recording:
        check = recording.wait_for_event("emc_check", source="jtop")
    assert check["agreed"] is False
    assert recording.tracks("sysfs")[BUSY].values[-1] == pytest.approx(0.8)
    assert not {BUSY, BANDWIDTH} & {*recording.tracks("jtop")}


def test_busy_share_and_bandwidth_stay_absent_on_a_thor(boards: Boards) -> None:
    board = boards("thor-like")
    board.tree.set_emc(busy_frac=0.8)
    with Recording(board, *SOURCES, interval_s=0.2) as recording:
        reason = recording.wait_for_event("absent", signal=BANDWIDTH, source="sysfs")["reason"]
        for source in SOURCES:
            recording.wait_for_signals(source, ["emc_clock_hz", "power_w.total"], samples=3)
    assert "not established" in reason
    for source in SOURCES:
        assert not {BUSY, BANDWIDTH} & {*recording.tracks(source)}


# ---- a square wave

# How old a value may be when it is stamped: files not at all; a line of tegrastats is put together
# within the interval before it comes; the jtop source states a tenth of a second.
AGE_NS = {"sysfs": 0, "tegrastats": 100_000_000, "jtop": 100_000_000}
HALF_PERIOD_S = 1.0


class Edge(NamedTuple):
    """A change of level lies between two samples."""

    earliest_ns: int
    latest_ns: int


def edges_of(track: Track) -> list[Edge]:
    """Where the values cross the middle between their extremes."""
    known = [(sample, sample.value) for sample in track.samples if sample.value is not None]
    middle = (min(track.values) + max(track.values)) / 2
    return [
        Edge(before.t0_ns, after.t1_ns)
        for (before, old), (after, new) in itertools.pairwise(known)
        if (old > middle) != (new > middle)
    ]


def levels_of(track: Track, wave: SquareWave, delay_ns: int) -> dict[Regime, float]:
    """The mean of the samples that lie, with their age and window, in one half of the wave."""
    found: dict[Regime, list[float]] = {}
    for sample in track.samples:
        regime = wave.regime_at(sample.t0_ns - delay_ns)
        if regime is not None and regime == wave.regime_at(sample.t1_ns):
            assert sample.value is not None
            found.setdefault(regime, []).append(sample.value)
    assert all(len(values) >= 4 for values in found.values()), found
    return {regime: statistics.fmean(values) for regime, values in found.items()}


def truth_of(signal: str, regime: Regime, tree: Tree) -> float | None:
    """What a signal is in one half of the wave, at the clock that the board rests at."""
    first_rail = tree.board.chips[0].rails[0]
    return {
        BUSY: regime.emc_busy_frac,
        BANDWIDTH: regime.emc_busy_frac * tree.board.emc_hz[1] * tree.board.bytes_per_emc_clock,
        "gpu_busy_frac": regime.gpu_busy_frac,
        first_rail.signal: first_rail.mv * regime.rail_ma / 1e6,
    }.get(signal)


@pytest.mark.parametrize("name", ALL)
def test_a_square_wave_is_recovered(boards: Boards, name: str) -> None:
    board = boards(name)
    first_rail = board.board.chips[0].rails[0].signal
    assert first_rail is not None
    with Recording(board, *SOURCES, interval_s=0.1) as recording:
        for source in SOURCES:
            recording.wait_for_signals(source, [first_rail])
        with SquareWave(board.tree, half_period_s=HALF_PERIOD_S, halves=4) as wave:
            pass
    followed = []
    for source in SOURCES:
        for signal, track in recording.tracks(source).items():
            low, high = (truth_of(signal, regime, board.tree) for regime in (LOW, HIGH))
            if low is None or high is None:
                continue
            followed.append((source, signal))
            window_s = track.signal.window_s
            is_average = track.signal.window_kind == "exponential"
            # The files of this board average nothing, whatever those of a real one do.
            delay_ns = AGE_NS[source] + round(1e9 * (0 if is_average else window_s or 0.0))
            levels = levels_of(track, wave, delay_ns)
            assert levels == {
                LOW: pytest.approx(low, rel=0.02),
                HIGH: pytest.approx(high, rel=0.02),
            }, (source, signal)
            within = [sample for sample in track.samples if sample.t0_ns > wave.steps[0].t1_ns]
            edges = edges_of(Track(signal=track.signal, samples=within))
            assert len(edges) == 3, (source, signal, edges)
            for edge, step in zip(edges, wave.steps[1:], strict=True):
                assert edge.earliest_ns - delay_ns <= step.t1_ns, (source, signal)
                assert edge.latest_ns >= step.t0_ns, (source, signal)
    assert len(followed) == (3 if name == "thor-like" else 4 + 4 + 2), followed


def test_an_averaged_square_wave_is_recovered_by_its_window(boards: Boards) -> None:
    """With time constant tau, the integral of what was is the integral of the average, and tau x
    what the average rose by."""
    board = boards("nano")
    driver = Average(exponent=7, period_s=0.007)  # the driver's default: 0.896 s
    with (
        Recording(board, "sysfs", interval_s=0.05) as recording,
        SquareWave(board.tree, half_period_s=2.5, halves=2, average=driver) as wave,
    ):
        pass
    for signal in (BUSY, BANDWIDTH):
        track = recording.tracks("sysfs")[signal]
        assert track.signal.window_kind == "exponential"
        assert track.signal.window_s == pytest.approx(driver.time_constant_s, rel=0.01)
        assert track.signal.window_basis == "assumed"
        points = [
            ((sample.t0_ns + sample.t1_ns) / 2e9, sample.value)
            for sample in track.samples
            if wave.regime_at(sample.t0_ns) == HIGH and sample.value is not None
        ]
        integral = sum(
            (t1_s - t0_s) * (one + other) / 2
            for (t0_s, one), (t1_s, other) in itertools.pairwise(points)
        )
        (start_s, first), (end_s, last) = points[0], points[-1]
        assert end_s - start_s > 2
        level = (integral + driver.time_constant_s * (last - first)) / (end_s - start_s)
        assert level == pytest.approx(truth_of(signal, HIGH, board.tree), rel=0.02)
        assert first < 0.5 * level  # the average alone would tell something else
