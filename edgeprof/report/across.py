"""Sessions beside each other, for a terminal or a page: the answer, the figures, what differs."""

from collections.abc import Iterator, Sequence
from typing import Any

from edgeprof.analysis.across import Across, Difference, Ratio, same_as
from edgeprof.quantity import Quantity
from edgeprof.report.headline import ratio as shown_ratio
from edgeprof.report.sections import Section, lines
from edgeprof.report.signal_words import label, shown
from edgeprof.report.table import Table

_NONE = "-"
_LONGEST_VALUE = 60
_METRICS = {"tokens_per_s": "tokens/s", "ttft_s": "TTFT (ms)"}
_IN_TABLES = {"no difference beyond noise": "within noise"}
_SCALES = {"ttft_s": 1e3}


def across_sections(across: Across, names: Sequence[str]) -> list[Section]:
    """``names`` are what the sessions are called here, one each."""
    sections = [
        Section("", lines(list(_answers(across, names)))),
        Section("Sessions", [_session_table(across, names)]),
        Section("Ratios", [_ratio_table(across, names), *lines(list(_left_out(across, names)))]),
        Section("All legs", [_leg_table(across, names)] if _legs_tell_more(across) else []),
        Section("Signals, means over the whole session", [_signal_table(across, names)]),
        Section("What differs", [_difference_table(across.differences, names)]),
        Section("Warnings", lines(across.warnings)),
    ]
    return [
        s
        for s in sections
        if any(part.rows if isinstance(part, Table) else part for part in s.parts)
    ]


def _legs_tell_more(across: Across) -> bool:
    """Whether some leg has no ratio, or a power that no ratio is of."""
    shared = {one.name for one in across.ratios}
    return any(
        (leg["name"] not in shared and f"{leg['name']} {leg['target']}" not in shared)
        or leg["power_w"] is not None
        for leg in across.legs
    )


def _answers(across: Across, names: Sequence[str]) -> Iterator[str]:
    if across.conflicts:
        listed = "; ".join(f"{one.what} {' against '.join(one.values)}" for one in across.conflicts)
        yield f"Not the same machine state, shown because --force asks for it: {listed}."
    for place, earlier in same_as(across.sessions).items():
        yield (
            f"{names[place]} is the same session as {names[earlier]}: one recording, set against "
            "itself."
        )
    if not across.ratios:
        yield "Nothing to compare: no variant or test is in the first session and in another."
    for place in dict.fromkeys(one.session for one in across.ratios):
        own = [one for one in across.ratios if one.session == place]
        who = f"{names[place]} against {names[0]}"
        known = [one for one in own if one.finding != "noise not known"]
        told = [one for one in known if one.finding != "no difference beyond noise"]
        if not known:
            yield f"{who}: the noise is not known, for there is one prompt and one repeat."
        elif not told:
            yield f"{who}: no difference beyond noise in any of {len(known)} figures."
        for one in told:
            figure = f"{one.name} {_METRICS[one.metric]}"
            yield f"{who}: {figure} {one.finding}, {shown_ratio(one.ratio)}."
        if told and (others := len(known) - len(told)):
            rest = "other figure" if others == 1 else f"{others} other figures"
            yield f"{who}: no difference beyond noise in the {rest}."


def _session_table(across: Across, names: Sequence[str]) -> Table:
    rows = [
        (
            name,
            _text(head["device"]),
            head["power_mode_missing"] or str(head["power_mode"]),
            _text(head["recipe"]),
            head["created_utc"],
            head["edgeprof_version"],
        )
        for name, head in zip(names, across.sessions, strict=True)
    ]
    headers = ("session", "board", "power mode", "recipe", "created (UTC)", "edgeprof")
    return Table(headers, rows, left=6)


def _ratio_table(across: Across, names: Sequence[str]) -> Table:
    """One row a figure, with a value and a ratio for each later session."""
    keys = dict.fromkeys((one.name, one.metric) for one in across.ratios)
    found = {(one.name, one.metric, one.session): one for one in across.ratios}
    headers = ["figure", "unit", names[0]]
    for name in names[1:]:
        headers += [name, "ratio", "finding"]
    rows = []
    for name, metric in keys:
        own = [found.get((name, metric, place)) for place in range(1, len(names))]
        row = [name, _METRICS[metric], _base_cell([one for one in own if one is not None])]
        for one in own:
            row += [_NONE] * 3 if one is None else _ratio_cells(one)
        rows.append(row)
    return Table(headers, rows, left=2)


def _base_cell(ratios: Sequence[Ratio]) -> str:
    """The base's figure; from the least to the greatest where it shares other prompts with each."""
    values = sorted(one.base_value for one in ratios)
    low, high = (_scaled(value, ratios[0].metric) for value in (values[0], values[-1]))
    return low if low == high else f"{low} to {high}"


def _left_out(across: Across, names: Sequence[str]) -> Iterator[str]:
    """Which ratios are not over all prompts."""
    for place in dict.fromkeys(one.session for one in across.ratios):
        fewer = {
            one.name: f"{one.name} {one.prompts} of {one.prompts + one.prompts_left_out}"
            for one in across.ratios
            if one.session == place and one.prompts is not None and one.prompts_left_out
        }
        if fewer:
            yield (
                f"{names[place]} against {names[0]} over the prompts that both have, undisturbed: "
                f"{', '.join(fewer.values())}."
            )
        apart = dict.fromkeys(
            one.name for one in across.ratios if one.session == place and not one.paired
        )
        if apart:
            yield (
                f"{names[place]} against {names[0]}: each over its own prompts, as they share too "
                f"few: {', '.join(apart)}."
            )


def _ratio_cells(one: Ratio) -> list[str]:
    finding = _IN_TABLES.get(one.finding, one.finding)
    return [_scaled(one.value, one.metric), shown_ratio(one.ratio), finding]


def _leg_table(across: Across, names: Sequence[str]) -> Table:
    """Every variant and test of every session, for boards that share none."""
    rows = [
        (
            names[leg["session"]],
            leg["name"],
            _value(leg["tokens_per_s"], 1.0),
            _value(leg["ttft_s"], 1e3),
            _value(leg["power_w"], 1.0),
            _value(leg["energy_per_token_j"], 1.0),
        )
        for leg in across.legs
    ]
    return Table(("session", "variant", "tokens/s", "TTFT (ms)", "W", "J/token"), rows, left=2)


def _signal_table(across: Across, names: Sequence[str]) -> Table:
    rows = [
        (
            label(signal["name"]),
            *(
                _NONE if mean is None else shown(signal["name"], mean.value)
                for mean in signal["means"]
            ),
        )
        for signal in across.signals
    ]
    return Table(("signal", *names), rows)


def _difference_table(differences: Sequence[Difference], names: Sequence[str]) -> Table:
    rows = [
        (one.key, *(_text(value)[:_LONGEST_VALUE] for value in one.values)) for one in differences
    ]
    return Table(("setting", *names), rows, left=1 + len(names))


def _text(value: Any) -> str:
    return "not recorded" if value is None else str(value)


def _scaled(value: float, metric: str) -> str:
    return f"{value * _SCALES.get(metric, 1.0):.1f}"


def _value(quantity: Quantity | None, factor: float) -> str:
    if quantity is None or quantity.value is None:
        return _NONE
    return f"{quantity.value * factor:.4g}"
