"""Every key of the shared parts holds its own figure: each value here stands once."""

from edgeprof.analysis.memory import Fit, Resident
from edgeprof.analysis.roofline import PassCost
from edgeprof.catalog import find_kv_type, find_model
from edgeprof.report.paper_document import fit_document, model_document, work_document


def test_the_work_of_a_pass() -> None:
    cost = PassCost(
        phase="verify", tokens=5, context_tokens=100, weight_bytes=1000, kv_read_bytes=200,
        kv_write_bytes=50, flop=2500, parts=(),
    )  # fmt: skip
    assert work_document(cost) == {
        "phase": "verify",
        "tokens": 5,
        "context_tokens": 100,
        "weight_bytes": 1000,
        "kv_read_bytes": 200,
        "kv_write_bytes": 50,
        "total_bytes": 1250,  # 1000 + 200 + 50
        "flop": 2500,
        "intensity_flop_per_byte": 2.0,  # 2500 / 1250
    }


def test_what_is_resident_and_whether_it_fits() -> None:
    parts = {
        "weights_bytes": 1,
        "kv_bytes": 2,
        "draft_weights_bytes": 4,
        "draft_kv_bytes": 8,
        "runtime_bytes": 16,
        "system_bytes": 32,
    }
    whole = {**parts, "total_bytes": 63}
    assert fit_document(Fit(**parts, dram_bytes=63)) == {**whole, "dram_bytes": 63, "fits": True}
    assert fit_document(Fit(**parts, dram_bytes=62)) == {**whole, "dram_bytes": 62, "fits": False}
    assert fit_document(Resident(**parts)) == {**whole, "dram_bytes": None, "fits": None}


def test_a_model_with_its_cache() -> None:
    spec, _ = find_model("llama2-7b:q4_k_m")
    half = model_document(spec, find_kv_type("f16"))
    # 2 x 32 layers x 4096 values of 2 bytes; of Q8_0 a block of 32 values takes 34 bytes
    assert half["kv_bytes_per_token"] == 2 * 32 * 4096 * 2
    eight = model_document(spec, find_kv_type("q8_0"))
    assert eight["kv_bytes_per_token"] == 2 * 32 * 4096 * 34 // 32
    # The input embedding, 32 000 rows of 4096 in Q4_K (144 bytes for 256), is held and not streamed
    embedding = 32_000 * 4096 // 256 * 144
    assert half["resident_weight_bytes"] - half["streamed_weight_bytes"] == embedding
    assert (half["name"], half["quantisation"]) == ("llama2-7b", "q4_k_m")
