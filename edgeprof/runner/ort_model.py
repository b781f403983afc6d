"""A TokenModel over ONNX Runtime, for any decoder whose layout its graph tells.

Knows tokens, passes and logits. How the graph is fed is read by graph_layout; how the cache is kept
between passes is the caches' matter.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.readers.onnx_graph import read_onnx_graph
from edgeprof.runner.cache import Cache
from edgeprof.runner.graph_layout import ELEMENTS, Layout, read_layout, shape_range
from edgeprof.runner.growing_cache import GrowingCache
from edgeprof.runner.placement import (
    RECORD_ENTRY,
    Placement,
    assigned_nodes,
    profiled_nodes,
    require_placement,
)
from edgeprof.runner.providers import (
    PROVIDERS,
    Device,
    SessionSetup,
    load_onnxruntime,
    open_session,
    run_bound,
)
from edgeprof.runner.shared_cache import SharedCache
from edgeprof.runner.small_inputs import Masks, SmallInputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeprof.runner.token_model import Logits, TokenIds

_PROBED_TOKENS = 2
_MASK_STEP = 256


class OrtModel:
    """A decoder in ONNX Runtime. See TokenModel for what its methods promise.

    ``setup`` is how its provider was set up, ``providers`` lists those of the session in order.
    ``placement`` says which operators run on which; None on the CPU, which takes all. ``load_s`` is
    the time it took to open the session.
    """

    def __init__(
        self,
        folder: DecoderFolder,
        layout: Layout,
        session: Any,
        setup: SessionSetup,
        *,
        capacity: int,
        clock: Callable[[], int],
    ) -> None:
        self.setup = setup
        self.load_s = 0.0
        self.placement: Placement | None = None
        self._folder = folder
        self._layout = layout
        self._session = session
        self._clock = clock
        self._shapes_stay = setup.settings.cuda_graph
        self._pad = folder.manifest.attention_pad if folder.manifest else 0
        self._capacity = usable_capacity(folder, capacity)
        self._slots = self._capacity + self._pad
        self._head_rows = _read_head_rows(folder)
        self._columns = _count_columns(folder, layout, self._head_rows)
        self._device = Device(setup, str(folder.onnx_path))
        kind = SharedCache if layout.shared else GrowingCache
        self._cache: Cache = kind(layout, self._slots, self._device)
        # A converted graph sums its mask up and does nothing else with it. Elsewhere than on the
        # CPU what is bound is a copy, which later ones do not reach.
        summed = folder.manifest is not None and self._device.name == "cpu"
        self._masks = Masks(layout.inputs, self._slots, step=_MASK_STEP if summed else 1)
        self._bindings: dict[tuple[int, int], _Binding] = {}
        self._logits = np.empty(0, ELEMENTS[layout.logits_storage].numpy)
        self._chooses_rows = layout.chooses_rows
        self._length = 0
        self._stamps_ns = (0, 0)

    @classmethod
    def open(
        cls,
        folder: DecoderFolder,
        setup: SessionSetup | None = None,
        *,
        threads: int | None = None,
        capacity: int,
        longest_pass: int | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        entries: Mapping[str, str] = {},
    ) -> "OrtModel":
        """Load the graph and allocate a cache for ``capacity`` tokens (at most the context).

        ``threads`` alone are those of a session on the CPU. ``longest_pass`` is what a provider may
        count on that builds for shapes; a longer pass costs it another build. ``entries`` are
        further configuration entries of the session.

        Raises EnvironmentFault where the provider is missing or leaves nodes that it may not leave,
        FileFault where the graph cannot be loaded or has a layout that is not served.
        """
        setup = setup or SessionSetup("cpu", threads or 1)
        layout = read_layout(read_onnx_graph(folder.onnx_path), folder)
        slots = usable_capacity(folder, capacity)
        _check_capture(folder, layout, setup)
        if setup.provider == "tensorrt" and setup.shapes is None:
            setup = setup._replace(shapes=shape_range(layout, slots, longest_pass))
        t0 = time.perf_counter()
        session = open_session(folder.onnx_path, setup, entries={**RECORD_ENTRY, **entries})
        model = cls(folder, layout, session, setup, capacity=capacity, clock=clock)
        if layout.columns is None or not layout.chooses_rows:
            model.learn_logits()
        if setup.provider != "cpu":
            model.placement = assigned_nodes(session) or profiled_placement(folder, layout, setup)
            require_placement(
                model.placement,
                PROVIDERS[setup.provider].title,
                fallback=setup.settings.fallback,
                label=str(folder.onnx_path),
            )
            model.warm_up()
        model.load_s = time.perf_counter() - t0
        return model

    @property
    def providers(self) -> list[str]:
        return list(self._session.get_providers())

    @property
    def kv_bytes_per_token(self) -> int:
        """What the cache grows by with each token."""
        return sum(tensor.bytes_per_token for tensor in self._layout.caches)

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
        # A graph that cannot be told computes the head for every row; the rest is dropped here.
        given = wanted if self._chooses_rows else count
        binding = self._binding(count, given)
        total = self._length + count
        binding.inputs.write(tokens, self._length)
        self._cache.bind_pass(binding.io, self._length, count)
        logits = self._bind_logits(binding, given)
        t0_ns = self._clock()
        run_bound(self._session, binding.io, str(self._folder.onnx_path), binding.options)
        self._stamps_ns = (t0_ns, self._clock())
        self._length = total
        self._cache.passed(total)
        return _as_float32(
            logits if wanted == given else logits[-wanted:], self._layout.logits_storage
        )

    def rewind(self, length: int) -> None:
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot rewind to {length}: {self._length} tokens are cached")
        self._length = length

    def token_ids(self, columns: "TokenIds") -> "TokenIds":
        return columns if self._head_rows is None else self._head_rows[columns]

    def warm_up(self) -> None:
        """One pass of one token: what a provider builds for its first pass is part of loading."""
        self.extend([0], rows=1)
        self.rewind(0)

    def learn_logits(self) -> None:
        """What the graph leaves open of its logits, seen in a pass: the columns, and whether every
        token has a row. FileFault where not: drafted tokens could not be verified."""
        count = min(_PROBED_TOKENS, self._capacity)
        binding = self._binding(count, count)
        binding.inputs.write([0] * count, 0)
        self._cache.bind_pass(binding.io, 0, count)
        binding.io.bind_output(self._layout.logits, "cpu")  # bound last, so it comes out last
        run_bound(self._session, binding.io, str(self._folder.onnx_path))
        rows, columns = binding.io.get_outputs()[-1].shape()[-2:]
        if rows != count:
            raise FileFault(
                f"{self._folder.onnx_path}: output {self._layout.logits!r} has {rows} row for a "
                f"pass of {count} tokens, but verifying takes the logits of every token; export it "
                "with the logits of all tokens"
            )
        self._layout = replace(self._layout, columns=int(columns))
        self._columns = _count_columns(self._folder, self._layout, self._head_rows)

    def _binding(self, count: int, rows: int) -> "_Binding":
        """The binding for passes of ``count`` tokens and ``rows`` logit rows, made once."""
        found = self._bindings.get((count, rows))
        if found is None:
            io = self._session.io_binding()
            inputs = SmallInputs(
                io,
                self._layout.inputs,
                self._masks,
                count=count,
                rows=rows,
                device=self._device.name,
                shapes_stay=self._shapes_stay,
            )
            self._cache.bind(io)
            found = _Binding(io, inputs, self._capture_options())
            self._bindings[count, rows] = found
        return found

    def _capture_options(self) -> Any:
        """Passes of each size are captured apart, under a number of their own."""
        if not self._shapes_stay:
            return None
        options = load_onnxruntime().RunOptions()
        options.add_run_config_entry("gpu_graph_id", str(len(self._bindings) + 1))
        return options

    def _bind_logits(self, binding: "_Binding", rows: int) -> "NDArray[Any]":
        """Room for the logits on the host, one for passes of all sizes: it grows with the largest,
        and passes that were bound to what it was before are bound again."""
        columns = self._layout.columns
        assert columns is not None, "learned when the model was opened"
        if rows * columns > self._logits.size:
            self._logits = self._device.host_array(rows * columns, self._logits.dtype)
        if binding.logits is None or binding.logits.base is not self._logits:
            whole = self._logits[: rows * columns].reshape(rows, columns)
            binding.logits = whole[:, : self._columns]
            code = ELEMENTS[self._layout.logits_storage].code
            place = "cpu", 0, code, (1, rows, columns), self._logits.ctypes.data
            binding.io.bind_output(self._layout.logits, *place)
        return binding.logits


class _Binding:
    """What passes of one size are bound to."""

    def __init__(self, io: Any, inputs: SmallInputs, options: Any) -> None:
        self.io = io
        self.inputs = inputs
        self.options = options
        self.logits: NDArray[Any] | None = None


def usable_capacity(folder: DecoderFolder, asked: int) -> int:
    """The tokens that a cache of ``asked`` holds: no more than the context, less what pads it."""
    pad = folder.manifest.attention_pad if folder.manifest else 0
    return min(asked, folder.context_tokens - pad)


def _as_float32(logits: "NDArray[Any]", storage: str) -> "Logits":
    if storage == "f32":
        return logits
    if storage == "bf16":  # the upper half of a float32
        widened: Logits = (logits.astype(np.uint32) << 16).view(np.float32)
        return widened
    return logits.astype(np.float32)


def _count_columns(folder: DecoderFolder, layout: Layout, head_rows: "TokenIds | None") -> int:
    """The columns of the logits that stand for a token; those beyond pad the head."""
    columns = folder.vocab_size if head_rows is None else len(head_rows)
    given = layout.columns
    if given is not None and (given < columns or (head_rows is not None and given != columns)):
        raise FileFault(f"{folder.onnx_path}: gives {given} logits a token, expected {columns}")
    return columns


def _check_capture(folder: DecoderFolder, layout: Layout, setup: SessionSetup) -> None:
    if setup.settings.cuda_graph and not layout.shared:
        raise UsageFault(
            f"{folder.onnx_path}: its cache grows with every pass, so that none can be captured; "
            "leave out provider_settings.cuda_graph"
        )


def profiled_placement(folder: DecoderFolder, layout: Layout, setup: SessionSetup) -> Placement:
    """Where the nodes of one pass ran, in a short session of its own: profiling slows a session."""
    with tempfile.TemporaryDirectory(prefix="edgeprof-") as scratch:
        session = open_session(folder.onnx_path, setup, profile_prefix=Path(scratch) / "pass")
        model = OrtModel(
            folder, layout, session, setup, capacity=_PROBED_TOKENS, clock=time.monotonic_ns
        )
        model.warm_up()
        return profiled_nodes(Path(session.end_profiling()))


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
