"""Recorded logs: which lines are whole, and what time each is of."""

import io
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import pytest

from edgeprof.errors import FileFault, UsageFault
from edgeprof.telemetry import tegrastats_log
from edgeprof.telemetry.tegrastats_log import ClockStep, Gap, Placed, Tally, place, read_entries

LINE = "RAM {}/7486MB (lfb 33x4MB) EMC_FREQ 5%@2133 VDD_IN 3582mW/3582mW"


def read(text: str | bytes) -> tuple[list[int], Tally]:
    """The RAM figures of the lines that were read, and the count of all."""
    tally = Tally()
    raw = text.encode() if isinstance(text, str) else text
    used = [
        round(entry.line.ram.used_bytes / 2**20)
        for entry in read_entries(io.BytesIO(raw), "log", tally)
        if entry.line.ram is not None
    ]
    return used, tally


def axis(text: str, interval_s: float | None = None) -> list[Placed | Gap | ClockStep]:
    return list(place(read_entries(io.BytesIO(text.encode()), "log", Tally()), "log", interval_s))


def seconds(moments: list[Placed | Gap | ClockStep]) -> list[float]:
    return [moment.t_ns / 1e9 for moment in moments if isinstance(moment, Placed)]


def gaps(moments: list[Placed | Gap | ClockStep]) -> list[tuple[float, float]]:
    return [(m.since_ns / 1e9, m.until_ns / 1e9) for m in moments if isinstance(m, Gap)]


def log(*stamps: str) -> str:
    """A line for each; an empty stamp is none."""
    return "".join(
        f"{'09-19-2026 ' if stamp else ''}{stamp} {LINE.format(n)}\n".lstrip()
        for n, stamp in enumerate(stamps, start=1)
    )


# --- lines ---


def test_lines_are_counted_and_blank_ones_are_not() -> None:
    used, tally = read(f"\n{LINE.format(1)}\n\n# a note\n\0\0\r\n{LINE.format(2)}\r\n")
    assert used == [1, 2]
    assert (tally.read, tally.dropped) == (2, 1)


def test_s36_an_unfinished_last_line_is_dropped() -> None:
    used, tally = read(f"{LINE.format(1)}\n{LINE.format(2)}\nRAM 3/7486MB (lfb 17")
    assert used == [1, 2] and tally.dropped == 1


@pytest.mark.parametrize("cut", range(1, 64))
def test_s36_wherever_it_was_cut_nothing_is_made_up(cut: int) -> None:
    last = LINE.format(3)
    used, tally = read(f"{LINE.format(1)}\n{LINE.format(2)}\n{last[:-cut]}")
    assert used == [1, 2] and tally.dropped == (len(last) > cut)


def test_a_last_line_that_only_lacks_its_end_counts() -> None:
    assert read(f"{LINE.format(1)}\n{LINE.format(2)}")[0] == [1, 2]
    assert read(LINE.format(1))[0] == [1]


def test_a_first_line_that_begins_in_its_middle_is_dropped() -> None:
    rest = f"{LINE.format(1)}\n{LINE.format(2)}\n"
    used, tally = read(f"N 3582mW/3582mW\n{rest}")
    assert used == [1, 2] and tally.dropped == 1
    entries = list(
        read_entries(io.BytesIO(f"CC 3/4\nVDD_IN 3/4 VDD_SOC 1/1\n{rest}".encode()), "log", Tally())
    )
    rails = [sorted(entry.line.rails) for entry in entries]
    assert rails == [["VDD_IN", "VDD_SOC"], ["VDD_IN"], ["VDD_IN"]]


WHOLE = (
    "RAM {}/7486MB (lfb 33x4MB) SWAP 0/3743MB (cached 0MB) CPU [1%@729,off] EMC_FREQ 5%@2133"
    " GR3D_FREQ 0%@[305] NVENC off gpu@45.5C VDD_IN 3582mW/3582mW VDD_SOC 1161mW/1173mW"
)


@pytest.mark.parametrize("cut", range(1, len(WHOLE) - len("C 1161mW/1173mW")))
@pytest.mark.parametrize("place", [0, 2, 4])
def test_s36_a_line_cut_anywhere_in_a_log_is_dropped(cut: int, place: int) -> None:
    lines = [WHOLE.format(used) for used in range(1, 6)]
    lines[place] = lines[place][:cut]
    used, tally = read("\n".join(lines) + "\n")
    assert used == [n for n in range(1, 6) if n != place + 1]
    assert tally.dropped == 1


@pytest.mark.parametrize("cut", [1, 40, 70, 110, 140, len(WHOLE) - 20])
def test_s36_a_line_in_two_pieces_is_one_lost_line(cut: int) -> None:
    lines = [WHOLE.format(used) for used in range(1, 6)]
    lines[2] = f"{lines[2][:cut]}\n{lines[2][cut:]}"
    text = "\n".join(lines) + "\n"
    assert read(text)[0] == [1, 2, 4, 5]
    assert seconds(axis(text, 1.0)) == [0, 1, 3, 4]


def test_two_torn_lines_near_each_other() -> None:
    lines = [WHOLE.format(used) for used in range(1, 8)]
    lines[2], lines[3] = lines[2][:100], lines[3][:150]
    assert read("\n".join(lines) + "\n")[0] == [1, 2, 5, 6, 7]


def test_a_shorter_line_that_comes_again_is_whole() -> None:
    short = "RAM {}/7486MB (lfb 33x4MB) SWAP 0/3743MB (cached 0MB)"
    forms = [WHOLE, WHOLE, short, WHOLE, short, WHOLE, WHOLE, short]
    text = "".join(f"{form.format(used)}\n" for used, form in enumerate(forms, start=1))
    assert read(text)[0] == [1, 2, 3, 4, 5, 6, 7, 8]
    # Recorded as root at first, and then not.
    later = [WHOLE] * 3 + [short] * 3
    text = "".join(f"{form.format(used)}\n" for used, form in enumerate(later, start=1))
    assert read(text)[0] == [1, 2, 3, 4, 5, 6]


def test_a_field_that_is_missing_in_the_middle_tears_nothing() -> None:
    lines = [WHOLE.format(used) for used in range(1, 6)]
    lines[2] = lines[2].replace(" EMC_FREQ 5%@2133", "").replace("NVENC off", "NVENC_FREQ 3%@[7]")
    assert read("\n".join(lines) + "\n")[0] == [1, 2, 3, 4, 5]


def test_a_torn_line_has_its_place_by_its_own_stamp() -> None:
    torn = "09-19-2026 10:00:01 RAM 9/7486MB (lfb 33x4MB) EMC_FREQ 5%@2\n"
    moments = axis(log("10:00:00") + torn + log("10:00:02", "10:00:03"))
    assert seconds(moments) == [0, 2, 3] and gaps(moments) == [(0, 2)]
    # Two lines a second: the second 1 has a place for the one that was lost.
    pairs = log("10:00:00", "10:00:00") + torn + log("10:00:01", "10:00:02", "10:00:02")
    assert seconds(axis(pairs)) == [0, 0.5, 1.5, 2, 2.5]


@pytest.mark.parametrize("zeros", [1, 4096, 100_000])
def test_zeros_that_a_crash_left_before_the_lines(zeros: int) -> None:
    assert read(b"\0" * zeros + log("", "").encode())[0] == [1, 2]
    assert read(log("", "").encode() + b"\0" * zeros)[0] == [1, 2]


@pytest.mark.parametrize("magic", [b"SQLite format 3\0", b"PK\x03\x04", b"\x1f\x8b\x08", b"%PDF-1"])
def test_files_of_other_kinds_are_refused_whatever_lines_they_hold(magic: bytes) -> None:
    with pytest.raises(FileFault, match="log: not a tegrastats log, but "):
        read(magic + b"\n" + log("", "").encode())


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    text = log(*[""] * 2500)
    list(read_entries(io.BytesIO(text.encode()), "log", Tally(), lambda *n: told.append(n)))
    assert [lines for _, lines in told] == [0, 1000, 2000]
    assert 0 < told[0][0] < told[1][0] < told[2][0] <= len(text)


def test_a_log_of_rails_alone_keeps_its_first_line() -> None:
    text = "VDD_IN 3395/3310 VDD_GPU 5/5\nVDD_IN 3400/3310 VDD_GPU 5/5\n"
    entries = list(read_entries(io.BytesIO(text.encode()), "log", Tally()))
    assert [entry.line.rails["VDD_IN"].power_w for entry in entries] == [3.395, 3.4]


def test_two_lines_run_together_are_one_lost_line() -> None:
    one = LINE.format(2)
    used, tally = read(f"{LINE.format(1)}\n{one[:50]}{one}\n{LINE.format(3)}\n")
    assert used == [1, 3] and tally.dropped == 1


def test_a_line_of_a_megabyte_is_one_lost_line() -> None:
    used, tally = read(f"{LINE.format(1)}\n{'RAM 5/7MB ' * 200_000}\n{LINE.format(2)}\n")
    assert used == [1, 2] and tally.dropped == 1


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_of_other_encodings(encoding: str) -> None:
    assert read(log("", "").encode(encoding))[0] == [1, 2]


def test_bytes_that_are_no_text_cost_their_line_at_most() -> None:
    raw = f"{LINE.format(1)}\n".encode() + b"\xff\xfe\x80\n" + f"{LINE.format(2)}\n".encode()
    used, tally = read(raw)
    assert used == [1, 2] and tally.dropped == 1


def test_unknown_fields_are_counted_by_name_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tegrastats_log, "_MOST_UNKNOWN", 3)
    text = "".join(f"{LINE.format(1)} NEW{i}=1\n" for i in range(10))
    _, tally = read(text)
    assert tally.unknown == {"NEW0=1": 1, "NEW1=1": 1, "NEW2=1": 1, "...": 7}


def test_limits_are_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tegrastats_log, "MOST_LINES", 3)
    assert read(log(*[""] * 3))[0] == [1, 2, 3]
    with pytest.raises(FileFault, match="log: more than 3 lines"):
        read(log(*[""] * 4))
    monkeypatch.setattr(tegrastats_log, "LARGEST_LOG_CHARACTERS", 1 << 20)
    with pytest.raises(FileFault, match="log: larger than 1 MiB"):
        read("\n" * 3_000_000 + "x" * (2 << 20))


def test_any_kind_of_file_is_read_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(log("", ""))
    file: BinaryIO = path.open("rb")
    assert len(list(read_entries(file, "log", Tally()))) == 2
    assert file.closed


# --- times ---


def test_lines_of_one_second_are_spread_over_it() -> None:
    moments = axis(log("10:00:00", "10:00:00", "10:00:01", "10:00:01", "10:00:01", "10:00:01"))
    assert seconds(moments) == [0, 0.5, 1, 1.25, 1.5, 1.75]
    assert gaps(moments) == []


def test_an_interval_is_the_grid() -> None:
    assert seconds(axis(log("", "", ""), 0.2)) == pytest.approx([0, 0.2, 0.4])
    # Stamps of whole seconds do not move it.
    stamps = ("10:00:00", "10:00:00", "10:00:01", "10:00:01", "10:00:03")
    assert seconds(axis(log(*stamps), 0.6)) == pytest.approx([0, 0.6, 1.2, 1.8, 2.4])


def test_neither_stamps_nor_interval_is_a_matter_of_usage() -> None:
    with pytest.raises(UsageFault, match=r"log: its lines have no time stamps.*--interval"):
        axis(log("", "", ""))
    assert axis("hello\n") == []


def test_a_gap_is_kept_and_not_bridged() -> None:
    stamps = ("10:00:00", "10:00:01", "10:00:02", "10:10:02", "10:10:03")
    moments = axis(log(*stamps))
    assert seconds(moments) == [0, 1, 2, 602, 603]
    assert gaps(moments) == [(2, 602)]
    on_grid = axis(log(*stamps), 1.0)
    assert seconds(on_grid) == [0, 1, 2, 602, 603] and gaps(on_grid) == [(2, 602)]


def test_a_second_that_is_skipped_now_and_then_is_no_gap() -> None:
    # A line every 1.02 s: once in fifty a second has none.
    moments = axis(log("10:00:00", "10:00:01", "10:00:03", "10:00:04"))
    assert seconds(moments) == [0, 1, 3, 4] and gaps(moments) == []


def test_a_slow_log_is_not_full_of_gaps() -> None:
    moments = axis(log("10:00:00", "10:00:10", "10:00:20", "10:01:20", "10:01:30", "10:01:40"))
    assert gaps(moments) == [(20, 80)]


def test_unreadable_lines_leave_a_gap() -> None:
    torn = "RAM 5/7486MB (lfb"
    moments = axis(f"{log('')}{torn}\n{torn}\n{log('', '')}", 0.5)
    assert seconds(moments) == [0, 1.5, 2.0] and gaps(moments) == [(0, 1.5)]
    # Talk of another program takes no place on the grid.
    assert seconds(axis(f"{log('')}hello\n{log('')}", 0.5)) == [0, 0.5]
    text = f"{log('10:00:00')}09-19-2026 10:00:00 {torn}\n{log('10:00:00', '10:00:01')}"
    stamped = axis(text)
    assert seconds(stamped) == pytest.approx([0, 2 / 3, 1]) and len(gaps(stamped)) == 1


@pytest.mark.parametrize("interval_s", [None, 1.0])
@pytest.mark.parametrize("later", ["09:00:00", "10:00:01"])
def test_s34_a_clock_that_is_set_back_never_gives_negative_times(
    interval_s: float | None, later: str
) -> None:
    hour = later[:5]
    moments = axis(log("10:00:00", "10:00:01", "10:00:02", later, f"{hour}:02"), interval_s)
    (step,) = [moment for moment in moments if isinstance(moment, ClockStep)]
    assert (str(step.before.time()), str(step.after.time())) == ("10:00:02", later)
    assert step.line_number == 4
    assert all(after > before for before, after in pairwise(seconds(moments)))
    assert seconds(moments)[:4] == [0, 1, 2, 3]


def test_s34_a_clock_that_is_set_forward_by_years_is_a_step_too() -> None:
    line = LINE.format(1)
    text = "".join(
        f"{stamp} {line}\n"
        for stamp in ("01-01-1970 00:00:20", "01-01-1970 00:00:21", "09-19-2026 10:00:00")
    )
    moments = axis(text)
    assert seconds(moments) == [0, 1, 2] and gaps(moments) == []
    assert sum(isinstance(moment, ClockStep) for moment in moments) == 1


def test_s12_lines_without_a_stamp_among_stamped_ones() -> None:
    assert seconds(axis(log("10:00:00", ""))) == [0, 1]
    assert seconds(axis(log("", "", "10:00:00", "10:00:01"))) == [0, 1, 2, 3]
    # Half a second apart as the lines before them.
    mixed = axis(log("10:00:00", "10:00:00", "", "", "10:00:04"))
    assert seconds(mixed) == [0, 0.5, 1.0, 1.5, 4] and gaps(mixed) == [(1.5, 4)]


def test_s12_more_lines_without_a_stamp_than_there_was_time() -> None:
    mixed = seconds(axis(log("10:00:00", "", "", "", "10:00:01", "10:00:02")))
    assert mixed == [0, 1, 2, 3, 4, 5]


def test_a_frozen_clock_does_not_pile_lines_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tegrastats_log, "_BUSIEST", 2)
    times = seconds(axis(log(*["10:00:00"] * 6)))
    assert all(after > before for before, after in pairwise(times))


def test_years_of_gaps_are_refused() -> None:
    line = LINE.format(1)
    dates = (f"{1 + day // 28 % 12:02d}-{1 + day % 28:02d}-2026" for day in range(336))
    text = "".join(f"{date} 00:00:00 {line}\n{date} 23:59:59 {line}\n" for date in dates)
    with pytest.raises(FileFault, match="more than ten years apart"):
        axis(text * 12)
