"""A TokenModel over ONNX Runtime: one shared key/value buffer a layer, rolled back by its length.

Serves decoders whose attention is GroupQueryAttention with past and present in one buffer: those
that edgeprof converts and those of onnxruntime-genai's model builder.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import GENAI_NAME, DecoderFolder
from edgeprof.runner.providers import PROVIDERS, load_onnxruntime, open_session

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeprof.runner.token_model import Logits, TokenIds

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}
KEEP_FROM = "keep_from"


class _Binding:
    """What one shape of pass is bound to; its arrays are written in place for every pass."""

    def __init__(self, io: Any, arrays: dict[str, Any], rows: int) -> None:
        self.io = io
        self.ids: NDArray[Any] = arrays["ids"]
        self.positions: NDArray[Any] | None = arrays.get("positions")
        self.logits: NDArray[Any] | None = arrays.get("logits")
        self.rows = rows
        self.keep_alive = arrays


class OrtModel:
    """A decoder in ONNX Runtime. See TokenModel for what its methods promise.

    ``providers`` lists the providers of the session in order; ``load_s`` is the time it took to
    open it.
    """

    def __init__(
        self,
        folder: DecoderFolder,
        session: Any,
        *,
        provider: str,
        capacity: int,
        clock: Callable[[], int],
        load_s: float,
    ) -> None:
        self._ort = load_onnxruntime()
        self._folder = folder
        self._session = session
        self._device = PROVIDERS[provider][1]
        self._pad = folder.manifest.attention_pad if folder.manifest else 0
        self._capacity = min(capacity, folder.context_tokens - self._pad)
        self._slots = self._capacity + self._pad
        self._types = {entry.name: entry.type for entry in session.get_inputs()}
        self._types |= {entry.name: entry.type for entry in session.get_outputs()}
        self._has_keep_from = KEEP_FROM in {
            entry.name for entry in session.get_overridable_initializers()
        }
        self._head_rows = _read_head_rows(folder)
        self._columns = folder.vocab_size if self._head_rows is None else len(self._head_rows)
        self._caches = self._allocate_caches()
        self._check_graph()
        self._mask = np.ones((1, self._slots), np.int64)
        self._mask_values: dict[int, Any] = {}
        self._bindings: dict[tuple[int, int], _Binding] = {}
        self._length = 0
        self._stamps_ns = (0, 0)
        self._clock = clock
        self.load_s = load_s

    @classmethod
    def open(
        cls,
        folder: DecoderFolder,
        *,
        provider: str = "cpu",
        threads: int,
        capacity: int,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> "OrtModel":
        """Load the graph and allocate a cache for ``capacity`` tokens (at most the context).

        Raises EnvironmentFault where the provider is missing, FileFault where the graph cannot be
        loaded or has another layout than this class serves.
        """
        t0 = time.perf_counter()
        session = open_session(folder.onnx_path, provider=provider, threads=threads)
        load_s = time.perf_counter() - t0
        return cls(
            folder, session, provider=provider, capacity=capacity, clock=clock, load_s=load_s
        )

    @property
    def providers(self) -> list[str]:
        return list(self._session.get_providers())

    @property
    def vocab_size(self) -> int:
        return self._folder.vocab_size

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def length(self) -> int:
        return self._length

    @property
    def stamps_ns(self) -> tuple[int, int]:
        return self._stamps_ns

    def extend(self, tokens: Sequence[int], rows: int | None = None) -> "Logits":
        count = len(tokens)
        if not 0 < count <= self._capacity - self._length:
            raise ValueError(
                f"cannot take {count} tokens: {self._length} of {self._capacity} are cached"
            )
        wanted = count if rows is None else rows
        # A graph without keep_from computes the head for every row; the rest is dropped here.
        binding = self._bind(count, wanted if self._has_keep_from else count)
        binding.ids[0] = tokens
        if binding.positions is not None:
            binding.positions[0] = np.arange(self._length, self._length + count)
        self._bind_mask(binding, self._length + count)
        t0_ns = self._clock()
        self._session.run_with_iobinding(binding.io)
        self._stamps_ns = (t0_ns, self._clock())
        self._length += count
        return self._logits(binding)[-wanted:]

    def rewind(self, length: int) -> None:
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot rewind to {length}: {self._length} tokens are cached")
        self._length = length

    def token_ids(self, columns: "TokenIds") -> "TokenIds":
        return columns if self._head_rows is None else self._head_rows[columns]

    def _allocate_caches(self) -> list[tuple[str, str, Any]]:
        """(past name, present name, buffer) a layer and kind; both names share the buffer."""
        shapes = {entry.name: entry.shape for entry in self._session.get_inputs()}
        inputs, outputs = self._folder.inputs, self._folder.outputs
        caches = []
        for layer in range(self._folder.layers):
            for past, present in (
                (inputs.past_key_names, outputs.present_key_names),
                (inputs.past_value_names, outputs.present_value_names),
            ):
                past_name, present_name = (
                    past.replace("%d", str(layer)),
                    present.replace("%d", str(layer)),
                )
                if past_name not in shapes or len(shapes[past_name]) != 4:
                    raise FileFault(
                        f"{self._folder.onnx_path}: no cache input {past_name!r} of four "
                        "dimensions; only decoders with GroupQueryAttention caches can be run"
                    )
                heads, head_dim = shapes[past_name][1], shapes[past_name][3]
                shape = [1, heads, self._slots, head_dim]
                if not all(isinstance(size, int) for size in shape):
                    raise FileFault(
                        f"{self._folder.onnx_path}: cache input {past_name!r} leaves heads or "
                        f"head size open: {shapes[past_name]}"
                    )
                buffer = self._value(np.zeros(shape, self._dtype(past_name)))
                caches.append((past_name, present_name, buffer))
        return caches

    def _check_graph(self) -> None:
        """The graph takes and gives what the folder's configuration names, and nothing else."""
        path, inputs, logits = (
            self._folder.onnx_path,
            self._folder.inputs,
            self._folder.outputs.logits,
        )
        served = {inputs.input_ids, inputs.position_ids, inputs.attention_mask}
        served |= {past for past, _, _ in self._caches}
        for entry in self._session.get_inputs():
            if entry.name not in served:
                raise FileFault(
                    f"{path}: needs input {entry.name!r}, which {GENAI_NAME} does not name"
                )
        shapes = {entry.name: entry.shape for entry in self._session.get_outputs()}
        for name in (logits, *(present for _, present, _ in self._caches)):
            if name not in shapes:
                raise FileFault(f"{path}: has no output {name!r}, which {GENAI_NAME} names")
        columns = shapes[logits][-1] if shapes[logits] else 0
        if isinstance(columns, int) and columns != self._columns:  # else it is left open
            raise FileFault(f"{path}: gives {columns} logits a token, expected {self._columns}")

    def _dtype(self, name: str) -> Any:
        kind = self._types.get(name)
        if kind not in _TYPES:
            raise FileFault(f"{self._folder.onnx_path}: {name!r} has type {kind}, not served")
        return _TYPES[kind]

    def _value(self, array: "NDArray[Any]") -> Any:
        return self._ort.OrtValue.ortvalue_from_numpy(array, self._device, 0)

    def _bind(self, count: int, rows: int) -> _Binding:
        """The binding for passes of ``count`` tokens and ``rows`` logit rows, made once.

        On the CPU provider an OrtValue made from an array shares its memory, so that writing the
        array is all a pass needs (a test holds on to this). Inputs stay on the CPU for other
        providers too: onnxruntime copies these few bytes itself.
        """
        if (count, rows) in self._bindings:
            return self._bindings[count, rows]
        inputs = self._folder.inputs
        io = self._session.io_binding()
        arrays: dict[str, Any] = {"ids": np.zeros((1, count), self._dtype(inputs.input_ids))}
        self._bind_input(io, arrays, inputs.input_ids, "ids")
        if inputs.position_ids in self._types:
            arrays["positions"] = np.zeros((1, count), self._dtype(str(inputs.position_ids)))
            self._bind_input(io, arrays, str(inputs.position_ids), "positions")
        if self._has_keep_from:
            arrays["keep_from"] = np.array([count - rows], np.int64)
            self._bind_input(io, arrays, KEEP_FROM, "keep_from")
        for past_name, present_name, buffer in self._caches:
            io.bind_ortvalue_input(past_name, buffer)
            io.bind_ortvalue_output(present_name, buffer)
        logits = self._folder.outputs.logits
        if self._device == "cpu":
            arrays["logits"] = np.zeros((1, rows, self._columns), self._dtype(logits))
            arrays["logits_value"] = self._value(arrays["logits"])
            io.bind_ortvalue_output(logits, arrays["logits_value"])
        else:
            io.bind_output(logits, "cpu")
        self._bindings[count, rows] = _Binding(io, arrays, rows)
        return self._bindings[count, rows]

    def _bind_input(self, io: Any, arrays: dict[str, Any], name: str, key: str) -> None:
        arrays[key + "_value"] = self._ort.OrtValue.ortvalue_from_numpy(arrays[key])
        io.bind_ortvalue_input(name, arrays[key + "_value"])

    def _bind_mask(self, binding: _Binding, total: int) -> None:
        """The attention mask is the one input whose shape changes with every pass."""
        name = self._folder.inputs.attention_mask
        if name is None or name not in self._types:
            return
        if total not in self._mask_values:
            mask = self._mask[:, :total].astype(self._dtype(name), copy=False)
            self._mask_values[total] = self._ort.OrtValue.ortvalue_from_numpy(mask)
        binding.io.bind_ortvalue_input(name, self._mask_values[total])

    def _logits(self, binding: _Binding) -> "Logits":
        if binding.logits is None:
            logits: Logits = binding.io.copy_outputs_to_cpu()[0][0]
        else:
            logits = binding.logits[0]
        return logits


def _read_head_rows(folder: DecoderFolder) -> "TokenIds | None":
    """The tokens that the columns of a cut head stand for."""
    if folder.head_rows_path is None:
        return None
    try:
        # Mapped, so that a header that lies about the length is found out before memory is taken.
        rows = np.load(folder.head_rows_path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileFault(f"{folder.head_rows_path}: not a list of tokens: {error}") from error
    if rows.ndim != 1 or rows.dtype.kind not in "ui" or not 0 < len(rows) <= folder.vocab_size:
        raise FileFault(f"{folder.head_rows_path}: not a list of at most {folder.vocab_size} ids")
    ids: TokenIds = rows.astype(np.int64)
    if ids.min() < 0 or ids.max() >= folder.vocab_size:
        raise FileFault(f"{folder.head_rows_path}: names a token outside the vocabulary")
    return ids
