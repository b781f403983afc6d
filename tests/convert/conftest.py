"""An independent decoder in float64 numpy to compare the converted graphs with, and a plain ONNX
Runtime loop to run them in."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeprof.convert.folder import WeightForm, convert
from edgeprof.models.decoder_folder import DecoderFolder

Array = NDArray[np.float64]
UNIT_ROUNDOFF = 2.0**-24  # of float32
BLOCK = 32


class Rounding:
    """Random errors of the size that a kernel's arithmetic makes, for Monte Carlo arithmetic.

    A float32 sum of n products is off by at most about sqrt(n) u times the sum of the products'
    sizes (Higham and Mary, 2019, with high probability); a single operation by u times its result.
    ``int8`` adds what rounding each block of 32 activations to 8 bits does: half a step, the step
    being the block's largest value / 127.
    """

    def __init__(self, seed: int, *, int8: bool = False) -> None:
        self._rng = np.random.default_rng(seed)
        self._int8 = int8

    def value(self, x: Array) -> Array:
        rounded: Array = x * (1 + UNIT_ROUNDOFF * self._noise(x))
        return rounded

    def product(self, x: Array, weights: Array) -> Array:
        exact, sizes = x @ weights.T, np.abs(x) @ np.abs(weights).T
        bound = UNIT_ROUNDOFF * weights.shape[1] ** 0.5 * sizes
        rounded: Array = exact + bound * self._noise(exact)
        return rounded

    def activations(self, x: Array) -> Array:
        if not self._int8:
            return x
        blocks = x.reshape(x.shape[0], -1, BLOCK)
        step = np.abs(blocks).max(axis=-1, keepdims=True) / 127
        rounded: Array = (blocks + step / 2 * self._noise(blocks)).reshape(x.shape)
        return rounded

    def _noise(self, like: Array) -> Array:
        return self._rng.uniform(-1, 1, like.shape)


class ReferenceDecoder:
    """The architectures as GGUF defines them, on dequantised weights, in float64.

    Queries and keys are used as the file holds them: rotary partners side by side in the llama
    architecture, half a head apart in the others.
    """

    def __init__(self, path: Path) -> None:
        import gguf

        reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}

        def field(name: str) -> Any:
            found = reader.get_field(name)
            return None if found is None else found.contents()

        architecture = field("general.architecture")
        self.adjacent_pairs = architecture == "llama"
        self.layers = int(field(f"{architecture}.block_count"))
        self.heads = int(field(f"{architecture}.attention.head_count"))
        self.kv_heads = int(field(f"{architecture}.attention.head_count_kv"))
        self.epsilon = float(field(f"{architecture}.attention.layer_norm_rms_epsilon"))
        self.rope_base = float(field(f"{architecture}.rope.freq_base"))

    def weights(self, name: str) -> Array:
        import gguf

        tensor = self._tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.asarray(values, dtype=np.float64)

    def logits(self, tokens: Sequence[int], rounding: Rounding | None = None) -> Array:
        """One pass over all tokens; [tokens, vocabulary]."""

        def value(x: Array) -> Array:
            return x if rounding is None else rounding.value(x)

        def product(x: Array, name: str) -> Array:
            weights = self.weights(name)
            if rounding is None:
                exact: Array = x @ weights.T
                return exact
            return rounding.product(rounding.activations(x), weights)

        def projection(x: Array, name: str) -> Array:
            result = product(x, name + ".weight")
            bias = name + ".bias"
            return value(result + self.weights(bias)) if bias in self._tensors else result

        def norm(x: Array, name: str) -> Array:
            size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon)
            return value(value(x / size) * self.weights(name))

        def head_norm(x: Array, heads: int, name: str) -> Array:
            if name not in self._tensors:
                return x
            return norm(x.reshape(len(x), heads, -1), name).reshape(x.shape)

        x = self.weights("token_embd.weight")[list(tokens)]
        for layer in range(self.layers):
            block = f"blk.{layer}."
            h = norm(x, block + "attn_norm.weight")
            q, k, v = (projection(h, f"{block}attn_{part}") for part in "qkv")
            q = head_norm(q, self.heads, block + "attn_q_norm.weight")
            k = head_norm(k, self.kv_heads, block + "attn_k_norm.weight")
            x = value(x + product(self._attend(q, k, v, value), block + "attn_output.weight"))
            h = norm(x, block + "ffn_norm.weight")
            gate = product(h, block + "ffn_gate.weight")
            gated = value(gate / (1 + np.exp(-gate)) * product(h, block + "ffn_up.weight"))
            x = value(x + product(gated, block + "ffn_down.weight"))
        head = "output.weight" if "output.weight" in self._tensors else "token_embd.weight"
        return product(norm(x, "output_norm.weight"), head)

    def _attend(self, q: Array, k: Array, v: Array, value: Callable[[Array], Array]) -> Array:
        positions, head_dim = q.shape[0], q.shape[1] // self.heads
        q = value(self._turn(q.reshape(positions, self.heads, head_dim)))
        k = value(self._turn(k.reshape(positions, self.kv_heads, head_dim)))
        v = v.reshape(positions, self.kv_heads, head_dim)
        out = np.zeros_like(q)
        future = np.triu(np.ones((positions, positions), dtype=bool), 1)
        for head in range(self.heads):
            shared = head // (self.heads // self.kv_heads)
            scores = value(q[:, head] @ k[:, shared].T / np.sqrt(head_dim))
            scores[future] = -np.inf
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            shares = value(shares / shares.sum(axis=-1, keepdims=True))
            out[:, head] = value(shares @ v[:, shared])
        return out.reshape(positions, -1)

    def _turn(self, x: Array) -> Array:
        """Rotary embedding, pair by pair: [positions, heads, head_dim]."""
        positions, _, head_dim = x.shape
        period = self.rope_base ** (np.arange(0, head_dim, 2) / head_dim)
        if "rope_freqs.weight" in self._tensors:
            period = period * self.weights("rope_freqs.weight")
        angle = np.arange(positions)[:, None] / period
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        half = head_dim // 2
        if self.adjacent_pairs:
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, half), slice(half, None)
        turned = np.empty_like(x)
        turned[..., first] = x[..., first] * cos - x[..., second] * sin
        turned[..., second] = x[..., first] * sin + x[..., second] * cos
        return turned


class PlainDecoder:
    """A converted graph in ONNX Runtime, run the plainest way: arrays in, arrays out."""

    def __init__(self, onnx_path: Path, capacity: int = 64) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(onnx_path), options, providers=["CPUExecutionProvider"]
        )
        self._outputs = [output.name for output in self._session.get_outputs()]
        caches = [i for i in self._session.get_inputs() if i.name.startswith("past_key_values.")]
        self._cache = {
            i.name: np.zeros((1, i.shape[1], capacity, i.shape[3]), np.float32) for i in caches
        }
        self.length = 0

    def extend(self, tokens: Sequence[int], keep_from: int | None = None) -> NDArray[np.float32]:
        """Logits [rows, vocabulary] of the new tokens, from row ``keep_from`` on."""
        self.length += len(tokens)
        feeds = {
            "input_ids": np.array([tokens], dtype=np.int64),
            "attention_mask": np.ones((1, self.length), dtype=np.int64),
            **self._cache,
        }
        if keep_from is not None:
            feeds["keep_from"] = np.array([keep_from], dtype=np.int64)
        results = dict(zip(self._outputs, self._session.run(None, feeds), strict=True))
        self._cache = {
            name: results[name.replace("past_key_values", "present")] for name in self._cache
        }
        logits: NDArray[np.float32] = results["logits"][0]
        return logits


@pytest.fixture(scope="session")
def reference_decoder() -> type[ReferenceDecoder]:
    return ReferenceDecoder


@pytest.fixture(scope="session")
def rounding() -> type[Rounding]:
    return Rounding


@pytest.fixture(scope="session")
def plain_decoder() -> type[PlainDecoder]:
    return PlainDecoder


@pytest.fixture(scope="session")
def smollm2_folder(
    smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[WeightForm], DecoderFolder]:
    """The real model, converted once for each form of weights."""
    base = tmp_path_factory.mktemp("smollm2")

    @functools.cache
    def made(weights: WeightForm) -> DecoderFolder:
        return convert(smollm2_gguf, base / weights, weights=weights)

    return made
