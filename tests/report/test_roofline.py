"""The text of a paper answer says what it rests on."""

from edgeprof.analysis.outlook import Outlook, outlook
from edgeprof.catalog import find_device, find_kv_type, find_model
from edgeprof.report.roofline import document, text


def answer(device: str, model: str) -> Outlook:
    return outlook(device=find_device(device), model=find_model(model)[0], kv=find_kv_type("f16"))


def test_shares_of_the_parts_add_up() -> None:
    shown = text(answer("orin-nano", "7b-q4"), [], 100)
    # 1.277 + 2.621 GB, 107.5 + 1.06 MB of 4.007 GB
    for part in ("31.9 %", "65.4 %", "2.7 %", "< 0.1 %", "4.007 GB"):
        assert part in shown


def test_a_model_that_does_not_fit_says_so_first() -> None:
    shown = text(answer("orin-nano", "llama2-7b:f16"), [], 100)
    assert shown.index("DOES NOT FIT") < shown.index("Passes")
    assert "Does not fit: " in shown


def test_what_is_not_known_is_said() -> None:
    xavier = text(answer("xavier-nx-8", "7b-q4"), [], 100)
    assert "sustained not known" in xavier
    assert "Expected rates are not known" in xavier
    thor = text(answer("thor", "7b-q4"), [], 100)
    assert "no published rate for fp16" in thor
    assert "where arithmetic takes over is not known" in thor


def test_unknown_is_null_in_the_document() -> None:
    decode = document(answer("xavier-nx-8", "7b-q4"))["passes"][0]
    assert decode["expected_tokens_per_s"] == {"low": None, "high": None}
    thor = document(answer("thor", "7b-q4"))
    assert thor["device"]["peak_flop_per_s"]["fp16"] is None
    assert thor["passes"][0]["ridge_flop_per_byte"] is None
