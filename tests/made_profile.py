"""A probe's profile made by hand, and a user's folder to put it in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeprof.hardware.machine import cpu_model, usable_cores
from edgeprof.hardware.measured import (
    UNKNOWN_PROCESSOR,
    Figure,
    Machine,
    MeasuredKernel,
    MeasuredModel,
    MeasuredProfile,
    MeasuredStream,
    PassCost,
    as_toml,
)

Save = Callable[..., Path]


def figure(value: float, *, unstable: bool = False) -> Figure:
    return Figure(value=value, low=0.9 * value, high=1.1 * value, n=7, unstable=unstable)


def passes(costs: dict[int, float], one_s: float) -> list[PassCost]:
    return [
        PassCost(tokens=n, time_s=figure(cost * one_s), cost=figure(cost))
        for n, cost in costs.items()
    ]


def made_profile() -> MeasuredProfile:
    """Of this machine: reads 40 GB/s; int4 reads 30 GB/s at one row and computes 240 GFLOP/s."""
    return MeasuredProfile(
        schema="edgeprof.probe/1",
        created_utc="2026-01-01T00:00:00Z",
        edgeprof_version="0.1.0",
        complete=True,
        duration_s=40.0,
        provider="cpu",
        threads=2,
        machine=Machine(
            name=cpu_model() or UNKNOWN_PROCESSOR,
            kind="host",
            architecture="x86_64",
            cores=usable_cores(),
            memory_bytes=8 << 30,
        ),
        versions={"onnxruntime": "1.32.0"},
        streams=[
            MeasuredStream(kind="read", size_bytes=1 << 27, bandwidth_bytes_per_s=figure(40e9)),
            MeasuredStream(kind="copy", size_bytes=1 << 27, bandwidth_bytes_per_s=figure(50e9)),
        ],
        kernels=[
            MeasuredKernel(
                weights="int4",
                accuracy_level=4,
                operator="int4 MatMulNBits",
                weight_bytes=120_000_000,
                flop_per_row=384_000_000,
                bandwidth_bytes_per_s=figure(30e9),
                flop_per_s=figure(240e9),
                passes=passes({1: 1.0, 2: 1.2, 4: 2.0, 8: 3.5}, 0.004),
            )
        ],
        models=[
            MeasuredModel(
                name="qwen2.5-7b:q4_k_m",
                title="Qwen2.5-7B Q4_K_M",
                kind="modelled",
                layers=28,
                layers_measured=4,
                context_tokens=128,
                weight_bytes=6_000_000_000,
                flop_per_token=14_000_000_000,
                kv_bytes_per_token=114_688,
                decode_tokens_per_s=figure(4.0),
                passes=passes({1: 1.0, 2: 1.25, 4: 1.5}, 0.25),
            )
        ],
    )


@pytest.fixture
def this_profile() -> MeasuredProfile:
    return made_profile()


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Save:
    """Puts profiles into the user's folder."""
    monkeypatch.setenv("EDGEPROF_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data/probes"
    folder.mkdir(parents=True)

    def write(profile: MeasuredProfile, name: str = "probe.toml") -> Path:
        path = folder / name
        path.write_text(as_toml(profile))
        return path

    return write
