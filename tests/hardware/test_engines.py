"""Classes of engines and kernels: names, both files, and the cost of further positions."""

import csv
from pathlib import Path

import pytest

from edgeprof.catalog import engine_classes, engines, find_engine
from edgeprof.hardware.engines import KernelClass, verify_cost
from edgeprof.quantity import Band

MEASURED = Path(__file__).parents[2] / "benchmarks" / "data" / "verify_scaling.csv"


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("MLC", "tuned"),
        ("MLC 0.1.2", "tuned"),
        ("TensorRT-LLM 0.12", "tuned"),
        ("tensorrt-edge-llm", "tuned"),
        ("ApxInf", "tuned"),
        ("llama.cpp", "general"),
        ("LLAMA_CPP b9292", "general"),
        ("llama.cpp +FA", "general"),
        ("ollama/llama.cpp", "general"),
        ("Ollama 0.24", "general"),
        ("vLLM 0.24", "serving"),
        ("llama.cpp CPU 12 threads", "cpu"),
        ("T-MAC", "cpu"),
        ("general", "general"),
        ("an engine of my own", "any"),
        ("", "any"),
        (None, "any"),
    ],
)
def test_engines_are_known_as_people_write_them(engine: str | None, name: str) -> None:
    assert find_engine(engine).name == name


def test_an_unknown_engine_gets_a_band_that_holds_those_of_all_gpu_classes() -> None:
    widest = find_engine()
    for engine in engine_classes():
        for field in (
            "bandwidth_share",
            "unpack_clocks_per_byte",
            "overhead_clocks",
            "compute_share",
            "extra_position",
        ):
            inner, outer = getattr(engine, field), getattr(widest, field)
            assert outer.low <= inner.low <= inner.high <= outer.high


def test_every_name_leads_somewhere() -> None:
    table = engines()
    assert set(table.engines.values()) <= set(table.classes)
    for kernels in table.kernels_of.values():
        assert set(kernels) <= set(table.kernels)


KERNEL = KernelClass(
    title="by hand",
    second_position=Band(low=0.9, high=1.1),
    extra_position=Band(low=0.1, high=0.3),
    extra_position_experts=Band(low=0.2, high=0.5),
    source="by hand",
)


def test_cost_of_further_positions_by_hand() -> None:
    assert verify_cost(1, KERNEL) == Band(low=1.0, high=1.0)
    # 0.9 + 4 x 0.1; 1.1 + 4 x 0.3
    five = verify_cost(5, KERNEL)
    assert (five.low, five.high) == pytest.approx((1.3, 2.3))
    # 0.9 + 4 x 0.2; 1.1 + 4 x 0.5
    five = verify_cost(5, KERNEL, experts=True)
    assert (five.low, five.high) == pytest.approx((1.7, 3.1))
    assert verify_cost(9, KERNEL) == verify_cost(8, KERNEL)


def test_verifying_with_experts_is_never_cheaper_than_decoding() -> None:
    """The batched kernel of a dense model may be the faster one, 0.85 of a single position; further
    positions of experts read further experts."""
    assert engines().verify_cost(2, "matrix-matrix").low == 0.85
    for kernel in engines().kernels.values():
        for tokens in range(2, 10):
            band = verify_cost(tokens, kernel, experts=True)
            assert 1.0 <= band.low <= band.high


def test_an_engine_costs_what_its_kernels_span() -> None:
    table = engines()
    vector, matrix = (table.verify_cost(8, k) for k in ("matrix-vector", "matrix-matrix"))
    assert table.verify_cost(8, "llama.cpp") == Band(low=matrix.low, high=vector.high)
    assert table.verify_cost(8, "MLC") == matrix


def test_measured_passes_lie_in_the_band_of_their_kernel() -> None:
    """Passes over 2 to 8 positions against one, measured on Orin Nano and AGX Orin."""
    kernels = {"mvq": "matrix-vector", "MMQ": "matrix-matrix"}
    with MEASURED.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 70
    for row in rows:
        band = engines().verify_cost(
            int(row["n_tokens"]), kernels[row["kernel"]], experts="A3B" in row["model"]
        )
        assert band.low <= float(row["pass_cost_vs_1"]) <= band.high, row
