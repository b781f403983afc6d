"""The sections of a paper answer say what they rest on."""

from edgeprof.analysis.outlook import Outlook, outlook
from edgeprof.catalog import find_device, find_kv_type, find_model
from edgeprof.report.roofline import document, roofline_rows, roofline_sections
from edgeprof.report.sections import as_text


def answer(device: str, model: str, contexts: tuple[int, ...] = (0,)) -> Outlook:
    return outlook(
        device=find_device(device),
        model=find_model(model)[0],
        kv=find_kv_type("f16"),
        contexts=contexts,
    )


def text(*results: Outlook) -> str:
    return as_text(roofline_sections(results, []), 100)


def test_shares_of_the_parts_add_up() -> None:
    shown = text(answer("orin-nano", "7b-q4"))
    # 1.277 + 2.621 GB, 107.5 + 1.06 MB of 4.007 GB
    for part in ("31.9 %", "65.4 %", "2.7 %", "< 0.1 %", "4.007 GB"):
        assert part in shown


def test_an_answer_that_fits_has_no_line_to_fold() -> None:
    shown = text(answer("orin-nano", "7b-q4"))
    assert max(map(len, shown.splitlines())) <= 100
    assert not any(line.startswith("    ") for line in shown.splitlines())
    # weights 4.080 GB, cache 5 x 524 288 B
    assert "(weights 3.80, KV 0.00, runtime 0.50, system 1.86)" in shown


def test_experts_and_their_router_are_parts_of_their_own() -> None:
    shown = text(answer("agx-orin", "qwen3-30b-a3b"))
    assert "\nexperts " in shown
    assert "\nrouter " in shown


def test_a_model_that_does_not_fit_says_so_first() -> None:
    shown = text(answer("orin-nano", "llama2-7b:f16"))
    assert shown.index("DOES NOT FIT") < shown.index("Passes")
    assert "\nFits" not in shown


def test_boards_and_depths_are_side_by_side_in_one_table() -> None:
    shown = text(answer("orin-nano", "7b-q4", (0, 4096)), answer("agx-orin", "7b-q4", (0, 4096)))
    assert "Llama-2-7B Q4_K_M on 2 boards or modes" in shown
    boards = ("orin-nano-8gb ", "agx-orin-64gb ")
    rows = [line for line in shown.splitlines() if line.startswith(boards) and "GiB" not in line]
    table = [row.split() for row in rows]
    assert [(row[0], row[3]) for row in table] == [
        ("orin-nano-8gb", "0"), ("orin-nano-8gb", "4096"),
        ("agx-orin-64gb", "0"), ("agx-orin-64gb", "4096"),
    ]  # fmt: skip
    # 4.007 GB and 6.155 GB over 68.256 and 204.8 GB/s
    assert [row[4] for row in table] == ["17.0", "11.1", "51.1", "33.3"]
    assert max(map(len, shown.splitlines())) <= 100


def test_what_is_not_known_is_said() -> None:
    xavier = text(answer("xavier-nx-8", "7b-q4"))
    assert "sustained not known" in xavier
    assert "Expected rates are not known" in xavier
    thor = text(answer("thor", "7b-q4"))
    assert "no published rate for fp16" in thor
    assert "where arithmetic takes over is not known" in thor


def test_unknown_is_null_in_the_document() -> None:
    decode = document(answer("xavier-nx-8", "7b-q4"))["passes"][0]
    assert decode["expected_tokens_per_s"] == {"low": None, "high": None}
    thor = document(answer("thor", "7b-q4"))
    assert thor["device"]["peak_flop_per_s"]["fp16"] is None
    assert thor["passes"][0]["ridge_flop_per_byte"] is None


def test_rows_hold_what_the_passes_of_the_document_do() -> None:
    result = answer("orin-nano", "7b-q4")
    rows = roofline_rows([result])
    assert [row["phase"] for row in rows] == ["decode", "verify", "prefill"]
    for row, one in zip(rows, document(result)["passes"], strict=True):
        band = one.pop("expected_tokens_per_s")
        assert band["low"] == row["expected_tokens_per_s_low"]
        assert one.items() <= row.items()
