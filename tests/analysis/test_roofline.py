"""Passes on a roof, against cases worked out by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from edgeprof.analysis.roofline import (
    Phase,
    Roof,
    expected_time,
    pass_cost,
    pass_time,
    roof_of,
)
from edgeprof.catalog import find_device, find_engine, find_kv_type, find_model, model_table
from edgeprof.hardware.engines import EngineClass
from edgeprof.models.spec import ModelSpec
from edgeprof.quantity import Band

F16 = find_kv_type("f16")
AT_68 = Roof(bandwidth_bytes_per_s=68e9, flop_per_s=None)


def spec(name: str) -> ModelSpec:
    return find_model(name)[0]


def tokens_per_s(name: str, context: int = 0, roof: Roof = AT_68) -> float:
    return pass_time(pass_cost(spec(name), F16, "decode", 1, context), roof).tokens_per_s


def test_the_example_of_the_readme() -> None:
    """Llama-2-7B Q4_K_M on an Orin Nano in 15W."""
    device = find_device("orin-nano")
    one = pass_time(
        pass_cost(spec("7b-q4"), F16, "decode", 1, 0), roof_of(device.profile, device.mode)
    )
    # weights 4 006 535 168 + one row of the embedding 2304 + the token's own keys and values
    assert one.cost.weight_bytes == 4_006_535_168 + 2_304
    assert one.cost.total_bytes == 4_006_537_472 + 524_288 == 4_007_061_760
    # over 2133 MHz x 2 x 16 bytes = 68.256 GB/s
    assert one.time_s == 4_007_061_760 / 68.256e9
    assert one.time_s == pytest.approx(58.7e-3, abs=0.05e-3)
    assert one.tokens_per_s == pytest.approx(17.0, abs=0.05)
    # 2 x (32 x (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096) + 4 x 32 x 128 x 32 layers x 1
    assert one.cost.flop == 2 * 6_607_077_376 + 524_288
    assert one.cost.intensity_flop_per_byte == pytest.approx(3.298, abs=0.001)
    # 8 SMs x 624.75 MHz x 2048 = 10.236 TFLOP/s
    assert one.ridge_flop_per_byte == pytest.approx(10.2359e12 / 68.256e9, rel=1e-4)
    assert one.bound == "memory"


@pytest.mark.parametrize(
    ("name", "board", "rate"),
    [
        # MLC: 4.5 bits on layers and head, 3.977 and 4.222 GB
        ("qwen2.5-7b:mlc-q4f16_1", "orin-nano-8gb@15W", 17.2),
        ("qwen2.5-7b:mlc-q4f16_1", "orin-nano-8gb-super@MAXN_SUPER", 25.7),
        ("llama3.1-8b:mlc-q4f16_1", "orin-nano-8gb@15W", 16.2),
        ("llama2-7b:q4_0", "orin-nano-8gb@15W", 18.2),  # 3.751 GB
    ],
)
def test_bounds_of_published_runs(name: str, board: str, rate: float) -> None:
    device = find_device(board)
    roof = roof_of(device.profile, device.mode)
    assert tokens_per_s(name, roof=roof) == pytest.approx(rate, abs=0.06)


@pytest.mark.parametrize(
    ("board", "engine", "name", "context", "measured"),
    [
        ("orin-nano-8gb@15W", "MLC", "llama3.1-8b:mlc-q4f16_1", 0, 14.0),
        ("orin-nano-8gb@15W", "MLC", "qwen2.5-7b:mlc-q4f16_1", 0, 14.2),
        ("orin-nano-8gb-super@MAXN_SUPER", "MLC", "smollm2-1.7b:mlc-q4f16_1", 0, 64.5),
        ("orin-nano-8gb-super@15W", "llama.cpp", "smollm2-135m:q4_k_m", 2048, 114.7),
        ("orin-nano-8gb-super@7W", "llama.cpp", "smollm2-135m:q4_k_m", 2048, 53.8),
        ("orin-nx-8gb@20W", "Ollama", "r1-distill-qwen-7b:q4_k_m", 0, 6.0),
        ("agx-orin-64gb@MAXN", "TensorRT-LLM", "llama3.1-8b:trtllm-int4", 192, 35.9),
        ("agx-orin-64gb@MODE_30W", "llama.cpp", "qwen2.5-32b:q4_k_m", 64, 5.37),
        ("agx-orin-64gb@MAXN", "llama.cpp", "qwen2.5-14b:q4_k_m", 64, 14.49),
        ("agx-thor-t5000@MAXN", "vLLM", "llama3.1-8b:w4a16", 2112, 44.0),
    ],
)
def test_published_rates_lie_in_the_band_of_their_engine(
    board: str, engine: str, name: str, context: int, measured: float
) -> None:
    """Rates that others measured, among them models of 135M, where overhead is most of the time,
    and a GPU capped at 408 MHz, where memory is not the wall."""
    device = find_device(board)
    cost = pass_cost(spec(name), F16, "decode", 1, context)
    one = pass_time(cost, roof_of(device.profile, device.mode), find_engine(engine))
    assert measured < one.tokens_per_s
    band = one.expected_tokens_per_s
    assert band is not None
    assert band.low < measured < band.high


def test_the_cache_slows_decoding_down() -> None:
    """Qwen2.5-7B Q4_K_M at 68 GB/s: 4.370 GB of weights, 57 344 B of cache a token."""
    assert tokens_per_s("qwen2.5-7b") == pytest.approx(15.56, abs=0.01)
    assert tokens_per_s("qwen2.5-7b", 4096) == pytest.approx(14.77, abs=0.01)
    assert tokens_per_s("qwen2.5-7b", 32_768) == pytest.approx(10.88, abs=0.01)
    cost = pass_cost(spec("qwen2.5-7b"), F16, "decode", 1, 32_768)
    assert cost.kv_read_bytes == 1_879_048_192
    assert cost.kv_write_bytes == 57_344


@pytest.mark.parametrize(
    ("context", "flop"), [(0, 14_140_973_056), (4096, 15_785_140_224)]
)  # 2 x 7 070 285 824 matrix weights + 4 x 28 heads x 128 x 28 layers x (C + 1)
def test_operations_of_a_token(context: int, flop: int) -> None:
    assert pass_cost(spec("qwen2.5-7b"), F16, "decode", 1, context).flop == flop


def test_a_verify_pass_reads_weights_once_and_uses_lm_head_for_all() -> None:
    model = spec("qwen2.5-7b")
    one = pass_cost(model, F16, "decode", 1, 100)
    five = pass_cost(model, F16, "verify", 5, 100)
    assert five.weight_bytes - one.weight_bytes == 4 * model.embedding_row_bytes
    assert five.kv_read_bytes == one.kv_read_bytes
    assert five.kv_write_bytes == 5 * one.kv_write_bytes
    # attended: 101 + 102 + 103 + 104 + 105
    assert five.flop == 5 * 2 * 7_070_285_824 + 4 * 28 * 128 * 28 * 515


def test_a_prefill_uses_lm_head_for_the_last_position_only() -> None:
    model = spec("qwen2.5-7b")
    verify = pass_cost(model, F16, "verify", 512, 0)
    prefill = pass_cost(model, F16, "prefill", 512, 0)
    assert verify.flop - prefill.flop == 2 * 511 * 152064 * 3584


def test_attention_respects_windows() -> None:
    """Gemma-3-1B: 22 layers see 512 tokens, 4 see all; 4 heads of 256."""
    model = spec("gemma3-1b")
    flop = pass_cost(model, F16, "decode", 1, 8192).flop
    deeper = pass_cost(model, F16, "decode", 1, 8193).flop
    assert deeper - flop == 4 * 4 * 256 * 4  # one token more, in the 4 full layers alone
    # positions 511, 512, 513 of a pass: full layers attend to each, windowed ones to 512 at most
    three = pass_cost(model, F16, "verify", 3, 510).flop
    matrices = 3 * (pass_cost(model, F16, "decode", 1, 0).flop - 4 * 4 * 256 * 26)
    attended = 22 * (511 + 512 + 512) + 4 * (511 + 512 + 513)
    assert three == matrices + 4 * 4 * 256 * attended


@pytest.mark.parametrize(
    ("board", "ridge"), [("orin-nx@15W", 13.8), ("agx-orin@MODE_15W", 10.3), ("thor@MAXN", 265.8)]
)
def test_positions_from_which_a_pass_is_no_longer_free(board: str, ridge: float) -> None:
    """peak x bytes a weight / (2 x bandwidth), at 4.5 bits."""
    device = find_device(board)
    roof = roof_of(device.profile, device.mode)
    assert roof.ridge_flop_per_byte is not None
    assert roof.ridge_flop_per_byte * 4.5 / 8 / 2 == pytest.approx(ridge, abs=0.1)


def test_without_a_published_rate_only_memory_counts() -> None:
    thor = find_device("thor@120W")
    one = pass_time(
        pass_cost(spec("7b-q4"), F16, "prefill", 512, 0),
        roof_of(thor.profile, thor.mode),
        find_engine(),
    )
    assert one.ridge_flop_per_byte is None
    assert one.bound == "memory"
    assert one.time_s == one.cost.total_bytes / 273.024e9
    assert one.expected_time_s is None  # memory says nothing of 512 positions


def test_other_arithmetic_moves_the_roof() -> None:
    nano = find_device("orin-nano")
    fp16, int8 = (roof_of(nano.profile, nano.mode, kind).flop_per_s for kind in ("fp16", "int8"))
    assert fp16 is not None
    assert int8 == 2 * fp16
    assert roof_of(nano.profile, nano.mode, "fp8").flop_per_s is None


def test_nothing_is_expected_of_a_board_that_nobody_measured() -> None:
    xavier = find_device("xavier-nx-8")
    roof = roof_of(xavier.profile, xavier.mode)
    cost = pass_cost(spec("7b-q4"), F16, "decode", 1, 0)
    assert pass_time(cost, roof, find_engine()).expected_time_s is None


def test_clocks_that_are_not_published_are_those_of_the_fullest_mode() -> None:
    """Thor in 120W: the 20 SMs at 1575 MHz of MAXN, as its bandwidth is MAXN's too."""
    thor = find_device("thor@120W")
    roof = roof_of(thor.profile, thor.mode)
    assert roof.flop_per_s is None
    assert roof.gpu_clock_hz == pytest.approx(1.575e9)
    assert roof.sm_clocks_per_s == pytest.approx(20 * 1.575e9)


HAND_ROOF = Roof(
    bandwidth_bytes_per_s=100e9,
    flop_per_s=1e12,
    sustained_bytes_per_s=Band(low=70e9, high=80e9),
    gpu_clock_hz=1e9,
    sm_clocks_per_s=4e9,
)
HAND_ENGINE = EngineClass(
    name="hand",
    engines="by hand",
    bandwidth_share=Band(low=0.5, high=1.0),
    unpack_clocks_per_byte=Band(low=0.0, high=0.2),
    overhead_clocks=Band(low=0.0, high=2e6),
    compute_share=Band(low=0.4, high=0.8),
    extra_position=Band(low=0.0, high=0.25),
)


def test_expected_time_by_hand() -> None:
    """Per part the larger of its two times, then the overhead."""
    cost = pass_cost(spec("7b-q4"), F16, "decode", 1, 0)
    band = expected_time(cost, HAND_ROOF, HAND_ENGINE)
    assert band is not None
    streamed = cost.total_bytes - 2304  # the embedding row is no part of its own
    # A weight of 0.5625 bytes and 2 operations is read in 7.0 ps at best, computed in 2.5; at worst
    # in 44 and 5: every matrix is at the wall of memory.
    assert band.low == pytest.approx(streamed / 80e9)
    # half of 70 GB/s; 0.2 clocks a byte on 4 SMs at 1 GHz; 2e6 clocks at 1 GHz
    assert band.high == pytest.approx(streamed / 35e9 + streamed * 0.2 / 4e9 + 2e6 / 1e9)


def test_expected_time_of_a_pass_over_five_positions_by_hand() -> None:
    """The slow end pays a quarter more for each of the 4 further positions; at 5 x 2 operations a
    weight over 0.4 TFLOP/s, 25 ps, memory (2 x 44 ps) stays the wall."""
    cost = pass_cost(spec("7b-q4"), F16, "verify", 5, 0)
    band = expected_time(cost, HAND_ROOF, HAND_ENGINE)
    assert band is not None
    streamed = cost.total_bytes - 5 * 2304
    assert band.high == pytest.approx(2 * streamed * (1 / 35e9 + 0.2 / 4e9) + 2e6 / 1e9)


def test_without_a_gpu_clock_only_engines_that_need_none_are_told_of() -> None:
    roof = replace(HAND_ROOF, gpu_clock_hz=None, sm_clocks_per_s=None)
    cost = pass_cost(spec("7b-q4"), F16, "decode", 1, 0)
    assert expected_time(cost, roof, HAND_ENGINE) is None
    assert expected_time(cost, roof, find_engine("llama.cpp on the CPU")) is not None


def test_f10_the_compute_roof_is_the_dense_rate_of_the_data_type() -> None:
    """An Orin Nano Super is sold with 67 TOPS, sparse INT8: 8 SMs x 1.020 GHz x 4096 = 33.4 dense,
    and half of that in FP16."""
    device = find_device("orin-nano-8gb-super@MAXN_SUPER")
    int8, fp16 = (roof_of(device.profile, device.mode, kind) for kind in ("int8", "fp16"))
    assert int8.flop_per_s == pytest.approx(8 * 1.020e9 * 4096)
    assert fp16.flop_per_s == pytest.approx(8 * 1.020e9 * 2048)


def test_f11_verifying_many_positions_is_not_free() -> None:
    """17 positions of Llama-2-7B on a Nano: 17 x 13.2 GFLOP over 0.47 TFLOP/s is 0.48 s, against
    4.0 GB over 25.6 GB/s, 0.16 s."""
    device = find_device("nano")
    roof = roof_of(device.profile, device.mode)
    one = pass_time(pass_cost(spec("7b-q4"), F16, "decode", 1, 0), roof)
    many = pass_time(pass_cost(spec("7b-q4"), F16, "verify", 17, 0), roof)
    assert (one.bound, many.bound) == ("memory", "compute")
    assert many.time_s > 3 * one.time_s


BOARDS = st.sampled_from(["orin-nano", "agx-orin@maxn", "orin-nx@10w", "thor@maxn", "thor"])
ENGINES = st.sampled_from([None, "MLC", "llama.cpp", "vLLM", "llama.cpp CPU"])


@given(
    model=st.sampled_from(sorted(model_table().models)),
    form=st.sampled_from(["q4_k_m", "q8_0", "f16", "awq", "mlc-q4f16_1"]),
    phase=st.sampled_from(["decode", "verify", "prefill"]),
    tokens=st.integers(1, 2000),
    context=st.integers(0, 100_000),
    board=BOARDS,
    engine=ENGINES,
)
def test_the_bound_is_never_beaten(
    model: str,
    form: str,
    phase: Phase,
    tokens: int,
    context: int,
    board: str,
    engine: str | None,
) -> None:
    device = find_device(board)
    roof = roof_of(device.profile, device.mode)
    cost = pass_cost(spec(f"{model}:{form}"), F16, phase, tokens, context)
    one = pass_time(cost, roof, find_engine(engine))
    assert one.time_s >= cost.total_bytes / roof.bandwidth_bytes_per_s
    assert roof.flop_per_s is None or one.time_s >= cost.flop / roof.flop_per_s
    assert (one.expected_time_s is None) is (roof.flop_per_s is None and tokens > 8)
    if one.expected_time_s is not None:
        assert one.time_s <= one.expected_time_s.low < one.expected_time_s.high
    longer = pass_time(pass_cost(spec(f"{model}:{form}"), F16, phase, tokens, context + 1), roof)
    assert longer.time_s >= one.time_s


def decode_times(name: str, context: int, roof: Roof, engine: str | None) -> list[float]:
    """Bound, and both ends of what is expected, which must all move together."""
    one = pass_time(pass_cost(spec(name), F16, "decode", 1, context), roof, find_engine(engine))
    assert one.expected_time_s is not None
    return [one.time_s, one.expected_time_s.low, one.expected_time_s.high]


DENSE_MODELS = st.sampled_from(["smollm2-135m", "gemma3-1b", "qwen2.5-7b", "llama3.3-70b"])


@given(
    model=DENSE_MODELS,
    board=BOARDS,
    engine=ENGINES,
    context=st.integers(0, 100_000),
    further=st.integers(1, 100_000),
)
def test_a_longer_context_is_never_faster(
    model: str, board: str, engine: str | None, context: int, further: int
) -> None:
    device = find_device(board)
    roof = roof_of(device.profile, device.mode)
    name = f"{model}:q4_k_m"
    near = decode_times(name, context, roof, engine)
    far = decode_times(name, context + further, roof, engine)
    assert all(there >= here for here, there in zip(near, far, strict=True))


@given(model=DENSE_MODELS, board=BOARDS, engine=ENGINES, context=st.integers(0, 100_000))
def test_more_bits_are_never_faster(
    model: str, board: str, engine: str | None, context: int
) -> None:
    device = find_device(board)
    roof = roof_of(device.profile, device.mode)
    by_bits = [
        decode_times(f"{model}:{form}", context, roof, engine)
        for form in ("q4_0", "q5_0", "q8_0", "f16", "f32")
    ]
    for fewer, more in pairwise(by_bits):
        assert all(there > here for here, there in zip(fewer, more, strict=True))


@given(
    model=DENSE_MODELS,
    board=BOARDS,
    engine=ENGINES,
    context=st.integers(0, 100_000),
    factor=st.floats(1.01, 10),
)
def test_more_bandwidth_is_never_slower(
    model: str, board: str, engine: str | None, context: int, factor: float
) -> None:
    device = find_device(board)
    roof = roof_of(device.profile, device.mode)
    sustained = roof.sustained_bytes_per_s
    assert sustained is not None
    wider = replace(
        roof,
        bandwidth_bytes_per_s=factor * roof.bandwidth_bytes_per_s,
        sustained_bytes_per_s=Band(low=factor * sustained.low, high=factor * sustained.high),
    )
    name = f"{model}:q4_k_m"
    times = decode_times(name, context, roof, engine)
    assert all(
        fast <= slow
        for slow, fast in zip(times, decode_times(name, context, wider, engine), strict=True)
    )


@given(
    tokens=st.integers(2, 64),
    context=st.integers(0, 10_000),
    engine=ENGINES,
    board=st.sampled_from(["orin-nano", "agx-orin@maxn", "thor@maxn"]),
)
def test_verifying_with_experts_is_never_cheaper_than_decoding(
    tokens: int, context: int, engine: str | None, board: str
) -> None:
    device = find_device(board)
    roof = roof_of(device.profile, device.mode)
    model = spec("qwen3-30b-a3b:q4_k_m")
    one = pass_time(pass_cost(model, F16, "decode", 1, context), roof, find_engine(engine))
    many = pass_time(pass_cost(model, F16, "verify", tokens, context), roof, find_engine(engine))
    assert many.time_s > one.time_s
    assert one.expected_time_s is not None
    assert many.expected_time_s is not None
    assert many.expected_time_s.low > one.expected_time_s.low
    assert many.expected_time_s.high > one.expected_time_s.high
