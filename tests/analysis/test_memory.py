"""Fit in memory, by hand."""

from edgeprof.analysis.memory import fit
from edgeprof.catalog import find_device, find_kv_type, find_model

F16 = find_kv_type("f16")


def test_a_pair_that_does_not_fit_an_8_gb_board() -> None:
    """Llama-2-7B Q4_0 at 4096 tokens with Qwen2.5-0.5B Q8_0 on an Orin Nano."""
    target, _ = find_model("llama2-7b:q4_0")
    draft, _ = find_model("qwen2.5-0.5b:q8_0")
    board = find_device("orin-nano").profile
    answer = fit(
        target=target, draft=draft, kv=F16, tokens=4096, dram_bytes=board.visible_dram_bytes
    )
    assert round(answer.weights_bytes / 1e9, 3) == 3.825
    assert answer.kv_bytes == 4096 * 524_288 == 2_147_483_648
    assert round(answer.draft_weights_bytes / 1e9, 3) == 0.525
    assert answer.draft_kv_bytes == 4096 * 12_288 == 50_331_648
    models = answer.weights_bytes + answer.kv_bytes
    models += answer.draft_weights_bytes + answer.draft_kv_bytes
    assert round(models / 1e9, 3) == 6.548
    # 6.10 GiB + 1.86 for the system + 0.5 for the runtime, against 7620 MiB visible
    assert round(answer.total_bytes / 2**30, 2) == 8.46
    assert round(answer.dram_bytes / 2**30, 2) == 7.44
    assert not answer.fits


def test_the_target_alone_fits_and_the_edge_is_inclusive() -> None:
    target, _ = find_model("llama2-7b:q4_0")
    answer = fit(target=target, draft=None, kv=F16, tokens=512, dram_bytes=7620 * 2**20)
    assert answer.fits
    assert answer.draft_weights_bytes == answer.draft_kv_bytes == 0
    exact = fit(target=target, draft=None, kv=F16, tokens=512, dram_bytes=answer.total_bytes)
    assert exact.fits
    short = fit(target=target, draft=None, kv=F16, tokens=512, dram_bytes=answer.total_bytes - 1)
    assert not short.fits


def test_sixteen_bit_weights_of_a_7b_model_do_not_fit() -> None:
    target, _ = find_model("llama2-7b:f16")
    answer = fit(target=target, draft=None, kv=F16, tokens=1, dram_bytes=7620 * 2**20)
    assert not answer.fits
