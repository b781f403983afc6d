"""Bounds and expected bands beside published rates: ``python benchmarks/published.py [CSV]``.

A row is placed on the roof of its board and mode, with the bytes of its model and format, as
edgeprof knows them; what it does not know is taken from the row. ``--json`` prints every row.
"""

import argparse
import csv
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from edgeprof.analysis.roofline import PartCost, PassCost, Roof, pass_cost, pass_time, roof_of
from edgeprof.catalog import engines, find_device, find_kv_type, find_model
from edgeprof.errors import EdgeprofError
from edgeprof.hardware.engines import PROCESSOR, EngineClass
from edgeprof.hardware.profile import DeviceProfile, PowerMode
from edgeprof.quantity import Band
from edgeprof.report.table import table

SHIPPED = Path(__file__).parent / "data" / "published.csv"

# Of peak, where nobody has measured what a board sustains: what those that are measured span.
UNMEASURED_SUSTAINED = Band(low=0.6, high=0.9)

# A part of how a row names its format -> edgeprof's name for it; the first that is found.
_FORMATS = (
    ("q4f16_1", "mlc-q4f16_1"),
    ("q4f16_ft", "mlc-q4f16_ft"),
    ("W4A16 g128", "w4a16"),
    ("per-column", "trtllm-int4"),
    ("GPTQ", "awq"),
    ("AWQ", "awq"),
    ("W8A16", "int8"),
    ("W16A16", "f16"),
    ("NVFP4", "nvfp4"),
    ("FP16", "f16"),
    ("BF16", "bf16"),
)

Row = Mapping[str, str]


class Placed(Struct, frozen=True, kw_only=True):
    """A published row on its roof. ``cost`` is None where its bytes or its roof are not known."""

    row_id: str
    board: str
    phase: str
    flag: str
    tokens_per_s: float | None
    engine_class: EngineClass
    roof: Roof
    arithmetic_flop_per_s: float | None
    cost: PassCost | None
    tokens_per_pass: float

    @property
    def judged(self) -> bool:
        """Whether an expected band has to hold it: decoding, and nothing wrong but assumptions."""
        return (
            self.phase == "decode"
            and set(self.flag.split()) <= {"ASSUMPTION"}
            and self.cost is not None
            and self.tokens_per_s is not None
        )

    @property
    def bound_tokens_per_s(self) -> float | None:
        """With the fastest arithmetic of the board, as a row does not say which it was."""
        if self.cost is None:
            return None
        fastest = replace(self.roof, flop_per_s=self.arithmetic_flop_per_s)
        return self.tokens_per_pass / pass_time(self.cost, fastest).time_s

    @property
    def expected_tokens_per_s(self) -> Band | None:
        """None for speculation, of which the rows tell too little."""
        if self.cost is None or self.phase == "spec":
            return None
        return pass_time(self.cost, self.roof, self.engine_class).expected_tokens_per_s


def read_rows(path: Path) -> list[Row]:
    """The rows as they stand; an absent column or cell reads as empty."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            defaultdict(str, {key: value or "" for key, value in row.items() if key})
            for row in csv.DictReader(file)
        ]


def place(row: Row) -> Placed:
    """Finds the board, mode, engine and bytes of a row."""
    profile, mode = _board(row)
    name = PROCESSOR if profile is not None and profile.gpu is None else row["engine"]
    roof = _roof(row, profile, mode)
    cost = None if roof is None else _pass(row)
    return Placed(
        row_id=row["row_id"],
        board=row["board"],
        phase=row["phase"],
        flag=row["flag"],
        tokens_per_s=_number(row["tokens_per_s"]),
        engine_class=engines().of_engine(name),
        roof=roof or Roof(bandwidth_bytes_per_s=math.inf, flop_per_s=None),
        arithmetic_flop_per_s=_fastest_arithmetic(profile, mode, row["quant"]),
        cost=cost,
        tokens_per_pass=_tokens_per_pass(row, cost),
    )


def _board(row: Row) -> tuple[DeviceProfile | None, PowerMode | None]:
    """The board, and the mode that the row names in its own words; where it names none, the
    fullest mode that has the row's bandwidth."""
    try:
        profile = find_device(row["board"]).profile
    except EdgeprofError:
        return None, None
    for word in re.split(r"[^\w/]+", row["power_mode"]):
        mode = profile.find_mode(word) if word else None
        if mode is not None:
            return profile, mode
    bandwidth = (_number(row["memory_bw_gbps"]) or 0.0) * 1e9
    matching = [
        mode
        for mode in profile.modes
        if abs(profile.peak_bandwidth_bytes_per_s(mode) - bandwidth) < 0.02 * bandwidth
    ]
    return profile, max(matching or profile.modes, key=_fullness)


def _fastest_arithmetic(
    profile: DeviceProfile | None, mode: PowerMode | None, quant: str
) -> float | None:
    """The fastest dense rate that an engine may have used: 16 or 8 bits, fewer where the format
    has them for arithmetic and not for storage alone."""
    if profile is None or mode is None:
        return None
    rates = profile.peak_flop_per_s(mode)
    usable = ["fp16", "int8", "fp8"] + (["fp4"] if "FP4" in quant else [])
    return max((rate for name in usable if (rate := rates.get(name)) is not None), default=None)


def _fullness(mode: PowerMode) -> tuple[float, float]:
    return mode.emc_mhz, (mode.sms or 0) * (mode.gpu_mhz or 0)


def _roof(row: Row, profile: DeviceProfile | None, mode: PowerMode | None) -> Roof | None:
    """Of the board in its mode, else of the row's own bandwidth, if it has one."""
    if profile is not None and mode is not None:
        roof = roof_of(profile, mode)
    else:
        bandwidth = _number(row["memory_bw_gbps"])
        if bandwidth is None:
            return None
        roof = Roof(bandwidth_bytes_per_s=bandwidth * 1e9, flop_per_s=None)
    if roof.sustained_bytes_per_s is not None:
        return roof
    peak = roof.bandwidth_bytes_per_s
    return replace(
        roof,
        sustained_bytes_per_s=Band(
            low=peak * UNMEASURED_SUSTAINED.low, high=peak * UNMEASURED_SUSTAINED.high
        ),
    )


def _pass(row: Row) -> PassCost | None:
    """One pass of the row: by edgeprof's own count where it knows the model and its format."""
    prompt = _prompt_tokens(row["context"]) if row["phase"] == "prefill" else None
    form = _format(row["quant"])
    if row["model_id"] and form is not None:
        try:
            model, _ = find_model(f"{row['model_id']}:{form}")
        except EdgeprofError:
            pass
        else:
            kv = find_kv_type("f16")
            if row["phase"] == "prefill":
                return None if prompt is None else pass_cost(model, kv, "prefill", prompt, 0)
            return pass_cost(model, kv, "decode", 1, _cached_tokens(row["context"]))
    streamed = _number(row["streamed_bytes_per_token"])
    if streamed is None or row["phase"] == "prefill":
        return None
    return _as_published(round(streamed), round(_number(row["kv_bytes_read_per_token"]) or 0))


def _as_published(weight_bytes: int, kv_bytes: int) -> PassCost:
    return PassCost(
        phase="decode",
        tokens=1,
        context_tokens=0,
        weight_bytes=weight_bytes,
        kv_read_bytes=kv_bytes,
        kv_write_bytes=0,
        flop=0,
        parts=(PartCost(name="as published", bytes=weight_bytes + kv_bytes, flop=0),),
    )


def _format(text: str) -> str | None:
    gguf = re.search(r"\bI?Q\d_\w+", text)
    if gguf is not None:
        return gguf[0]
    return next((name for part, name in _FORMATS if part in text), None)


def _cached_tokens(context: str) -> int:
    """Tokens in the cache halfway through what was generated."""
    whole = re.match(r"in (\d+) out (\d+)", context)
    if whole is not None:
        return int(whole[1]) + int(whole[2]) // 2
    generated = re.match(r"tg(\d+)", context)
    if generated is not None:
        return int(generated[1]) // 2
    return int(context) if context.isdecimal() else 0


def _prompt_tokens(context: str) -> int | None:
    found = re.match(r"(?:pp|in )?(\d+)", context)
    return None if found is None else int(found[1])


def _tokens_per_pass(row: Row, cost: PassCost | None) -> float:
    """Of a speculative row as stated, else no more than all drafted tokens and one."""
    if row["phase"] != "spec":
        return 1 if cost is None else cost.tokens
    text = row["acceptance"]
    stated = re.search(r"([\d.]+) tokens/step", text)
    if stated is not None:
        return float(stated[1])
    counted = re.search(r"(\d+) steps/(\d+) tok", text)
    if counted is not None:
        return int(counted[2]) / int(counted[1])
    return (_number(row["draft_len"]) or 0.0) + 1


def _number(text: str) -> float | None:
    """A positive number, or nothing."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < math.inf else None


def document(rows: Sequence[Placed]) -> dict[str, object]:
    """Every row with its bound and its expected band."""
    return {"rows": [_row_document(row) for row in rows]}


def _row_document(row: Placed) -> dict[str, object]:
    expected = row.expected_tokens_per_s
    return {
        "row_id": row.row_id,
        "phase": row.phase,
        "flag": row.flag,
        "tokens_per_s": row.tokens_per_s,
        "bound_tokens_per_s": row.bound_tokens_per_s,
        "expected_low": None if expected is None else expected.low,
        "expected_high": None if expected is None else expected.high,
    }


def text(rows: Sequence[Placed]) -> str:
    """How many of the rows lie in their bands, by board and by class of engine."""
    judged = [(row, band) for row in rows if row.judged and (band := row.expected_tokens_per_s)]
    lines: list[Sequence[str]] = []
    for column in (0, 1):
        groups: dict[str, list[tuple[Placed, Band]]] = defaultdict(list)
        for row, band in judged:
            groups[(row.board, row.engine_class.name)[column]].append((row, band))
        lines += [_coverage_line(name, groups[name]) for name in sorted(groups)]
    lines += [_coverage_line("all", judged)] if judged else []
    headers = ("board or class", "rows", "covered", "share", "median high/low")
    above = [row.row_id for row in rows if _beats_its_bound(row)]
    return (
        f"{len(rows)} published rows; {len(judged)} decode rows without flag or with assumptions"
        f" only\n\n{table(headers, lines, width=80)}\n\n"
        f"above their bound, so that board, mode or bytes are wrong: {', '.join(above) or 'none'}"
    )


def _coverage_line(name: str, judged: Sequence[tuple[Placed, Band]]) -> tuple[str, ...]:
    covered = sum(band.low <= (row.tokens_per_s or 0) <= band.high for row, band in judged)
    width = statistics.median(band.high / band.low for _, band in judged)
    share = f"{100 * covered / len(judged):.0f} %"
    return name, str(len(judged)), str(covered), share, f"{width:.2f}"


def _beats_its_bound(row: Placed) -> bool:
    bound = row.bound_tokens_per_s
    return bound is not None and (row.tokens_per_s or 0) > 1.02 * bound


def main() -> None:
    """Prints a table, or with ``--json`` every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", nargs="?", type=Path, default=SHIPPED)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    try:
        rows = [place(row) for row in read_rows(options.csv)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        parser.error(f"{options.csv}: cannot be read: {error}")
    print(json.dumps(document(rows), indent=2) if options.as_json else text(rows))


if __name__ == "__main__":
    main()
