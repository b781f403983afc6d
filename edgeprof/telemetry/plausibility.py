"""Is a reading believable? By its range, and by what else was read at the time.

Pure: knows no source, no file and no clock. A reading that is not believed is kept; that it equals
the one before is no ground. A GPU at 0 all along while the memory is busy is not judged here, as a
load on the CPU alone looks just so.
"""

from typing import Literal, NamedTuple

from edgeprof.telemetry.source import BoardFigures, Reading

_RANGES = {
    "emc_busy_frac": (0.0, 1.05),
    "gpu_busy_frac": (0.0, 1.05),
    "cpu_busy_frac": (0.0, 1.05),
    "emc_clock_hz": (10e6, 20e9),  # some that do not know it tell 1 kHz
    "gpu_clock_hz": (1e6, 10e9),
    "dram_bandwidth_bytes_per_s": (0.0, 10e12),
    "cpu_clock_hz": (1e6, 20e9),
    "cpu_online": (1.0, 4096.0),
    "ram_used_bytes": (0.0, 2.0**50),
    "ram_total_bytes": (2.0**20, 2.0**50),
    "swap_used_bytes": (0.0, 2.0**50),
    "power_w": (0.0, 1000.0),
    "temp_c": (-40.0, 150.0),
    "cooling_state": (0.0, 1e6),
    "throttle_events": (0.0, 2.0**64),
}
_WITNESSES = frozenset(("emc_busy_frac", "emc_clock_hz", "gpu_busy_frac"))
_NOT_ZERO_BESIDE_BUSY_GPU = frozenset(
    ("emc_busy_frac", "dram_bandwidth_bytes_per_s", "gpu_busy_frac")
)
_BESIDE_EMC_CLOCK = frozenset(("emc_busy_frac", "dram_bandwidth_bytes_per_s"))
_ZEROS_IN_A_ROW = 20
_GPU_BUSY_FRAC = 0.8
_ABOVE_PEAK = 1.05  # what rounding and the edges of windows may add
_FRESH_NS = 5_000_000_000
_TWO_CLOCKS = "the clock fell within the time that this reading averages"


class Finding(NamedTuple):
    """Why a reading is not believed, and since when that is so."""

    kind: Literal["range", "peak", "stuck"]
    reason: str
    since_ns: int


class Scene:
    """What was read last, by signal and source: what readings are judged against."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, tuple[float, int]]] = {}
        self._clock_doubts: dict[str, Finding] = {}
        self._highest_clock: tuple[float, int] | None = None

    def note(self, name: str, source: str, value: float, t_ns: int) -> None:
        self._latest.setdefault(name, {})[source] = (value, t_ns)
        if name == "emc_clock_hz":
            highest = self._highest_clock
            if highest is None or value >= highest[0] or t_ns - highest[1] > _FRESH_NS:
                self._highest_clock = (value, t_ns)

    def judge_clock(self, source: str, finding: "Finding | None") -> None:
        """What speaks against the EMC clock that a source tells now, if anything does."""
        if finding is None:
            self._clock_doubts.pop(source, None)
        else:
            self._clock_doubts[source] = finding

    def clock_doubt(self, source: str, t_ns: int) -> "Finding | None":
        """Against what is told beside an EMC clock that is not believed."""
        doubt = self._clock_doubts.get(source)
        if doubt is None or t_ns - doubt.since_ns > _FRESH_NS:
            return None
        reason = f"the EMC clock beside it is not believed: {doubt.reason}"
        return Finding(doubt.kind, reason, t_ns)

    def present(self, name: str, source: str, now_ns: int) -> float | None:
        """What a source read last, unless that was long ago."""
        value, t_ns = self._latest.get(name, {}).get(source, (None, 0))
        return value if now_ns - t_ns <= _FRESH_NS else None

    def busy_gpu(self, now_ns: int) -> str | None:
        """The source that tells of a busy GPU, if one does."""
        for source, (value, t_ns) in self._latest.get("gpu_busy_frac", {}).items():
            if value > _GPU_BUSY_FRAC and now_ns - t_ns <= _FRESH_NS:
                return source
        return None

    @property
    def highest_emc_clock_hz(self) -> float | None:
        """Of the last seconds: an average reaches back to before the clock fell."""
        return None if self._highest_clock is None else self._highest_clock[0]


class Judge:
    """Judges the readings of one channel as they come; those of a source's EMC clock before those
    of its EMC load."""

    def __init__(self, name: str, source: str, board: BoardFigures, scene: Scene) -> None:
        self._name, self._source, self._board, self._scene = name, source, board, scene
        self._low, self._high = _RANGES[name if name in _RANGES else name.partition(".")[0]]
        if name == "emc_clock_hz" and board.emc_max_hz is not None:
            self._high = board.emc_max_hz * _ABOVE_PEAK
        self._is_clock = name == "emc_clock_hz"
        self._is_beside_clock = name in _BESIDE_EMC_CLOCK
        self._is_witness = name in _WITNESSES
        self._is_bandwidth = name == "dram_bandwidth_bytes_per_s"
        self._counts_zeros = name in _NOT_ZERO_BESIDE_BUSY_GPU
        self._zeros = 0
        self._zero_since_ns = 0

    def of_one_clock(self, reading: Reading, t_ns: int) -> Reading:
        """The reading; without its value where that is an average over a fall of the EMC clock,
        divided by the clock after it: no share of any clock, and nothing wrong with the counter."""
        value = reading.value
        if self._name != "emc_busy_frac" or value is None or value <= self._high:
            return reading
        clock_hz = self._scene.present("emc_clock_hz", self._source, t_ns)
        highest_hz = self._scene.highest_emc_clock_hz
        if clock_hz is None or highest_hz is None or value * clock_hz > self._high * highest_hz:
            return reading
        return Reading(None, reading.raw or f"{value:g}", reason=_TWO_CLOCKS)

    def __call__(self, value: float, t_ns: int) -> Finding | None:
        """What speaks against a reading; None where nothing does."""
        finding = self._out_of_range(value, t_ns)
        if self._is_clock:
            self._scene.judge_clock(self._source, finding)
        elif self._is_beside_clock:
            finding = finding or self._scene.clock_doubt(self._source, t_ns)
        if finding is not None:
            return finding
        if self._is_witness:
            self._scene.note(self._name, self._source, value, t_ns)
        if self._is_bandwidth and (finding := self._above_peak(value, t_ns)):
            return finding
        return self._stuck_at_zero(value, t_ns) if self._counts_zeros else None

    def _out_of_range(self, value: float, t_ns: int) -> Finding | None:
        if self._low <= value <= self._high:
            return None
        return Finding("range", f"{value:g} is outside {self._low:g} to {self._high:g}", t_ns)

    def _above_peak(self, value: float, t_ns: int) -> Finding | None:
        bytes_per_clock = self._board.bytes_per_emc_clock
        clock_hz = self._scene.highest_emc_clock_hz or self._board.emc_max_hz
        if bytes_per_clock is None or clock_hz is None:
            return None
        peak = bytes_per_clock * clock_hz
        if value <= _ABOVE_PEAK * peak:
            return None
        reason = f"{value / 1e9:.4g} GB/s is above the peak of {peak / 1e9:.4g} GB/s at its clock"
        return Finding("peak", reason, t_ns)

    def _stuck_at_zero(self, value: float, t_ns: int) -> Finding | None:
        """A busy GPU moves bytes; and where one source sees it busy, so must the others."""
        witness = self._scene.busy_gpu(t_ns) if value == 0 else None
        if witness is None:
            self._zeros = 0
            return None
        if self._zeros == 0:
            self._zero_since_ns = t_ns
        self._zeros += 1
        if self._zeros < _ZEROS_IN_A_ROW:
            return None
        reason = f"0 in {_ZEROS_IN_A_ROW} readings in a row while the GPU is busy ({witness})"
        return Finding("stuck", reason, self._zero_since_ns)
