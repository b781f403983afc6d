"""What a session holds: one record a row of its file. Knows nothing of SQLite, clocks or models.

All times are CLOCK_MONOTONIC nanoseconds of the machine that measured. Field names are the column
names of the session file, where ``round`` and ``pass`` are tables too. Unknown is None, never 0.
The records travel between edgeprof's own processes as they are, hence the tags.
"""

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from edgeprof.models.quantisation import Requantised

if TYPE_CHECKING:
    from edgeprof.session.columns import Samples, Tokens

SCHEMA_VERSION = 1

Phase = Literal["prefill", "decode", "draft", "verify", "ceiling", "antagonist"]
Origin = Literal["plain", "accepted", "corrected", "bonus"]
LegKind = Literal[
    "decode", "held", "ceiling", "check", "contend", "idle", "sustained", "command", "mark"
]
LegStatus = Literal["running", "complete", "interrupted", "died", "failed"]
Quality = Literal["ok", "suspect", "simulated", "replayed"]
WindowKind = Literal["boxcar", "exponential", "instantaneous", "unknown"]
WindowBasis = Literal["documented", "assumed", "measured"]
Severity = Literal["info", "warning", "error"]


class Leg(Struct, frozen=True, kw_only=True, tag=True):
    """A stretch of one kind of work, measured on its own.

    ``kind`` is ``decode`` (requests answered by one variant), ``held`` (one kind of pass repeated
    at a fixed depth, for the cost of an n-token pass), ``ceiling`` (a large product that measures
    bandwidth or arithmetic through the same runtime), ``check`` (do passes agree bit for bit),
    ``contend`` (one kind of pass beside an antagonist, or either of them alone), ``idle`` (nothing
    runs), ``sustained`` (one kind of pass for minutes), ``command`` (the life of a program that was
    watched) or ``mark`` (a phase that this program announced by itself).
    """

    id: int
    name: str
    kind: LegKind
    variant: str
    repeat: int
    warmup: bool
    t0_ns: int
    t1_ns: int | None = None
    status: LegStatus = "running"
    attrs: dict[str, Any] = field(default_factory=dict)


class Request(Struct, frozen=True, kw_only=True, tag=True):
    """One prompt answered in a leg; written when it starts and again when it ends.

    ``text_ends`` holds, for each token of the answer, how many characters of ``text`` stand once it
    has come: a token that only begins a character adds none.
    """

    id: int
    leg_id: int
    prompt_sha256: str
    prompt_kind: str
    prompt_tokens: int
    new_tokens: int
    t0_ns: int
    first_token_ns: int | None = None
    t1_ns: int | None = None
    stop_reason: str | None = None
    text: str | None = None
    text_ends: list[int] | None = None


class Round(Struct, frozen=True, kw_only=True, tag=True):
    """One target pass after the prefill, and what was drafted for it.

    ``evaluated`` counts the drafted tokens that were compared: up to and including the first
    rejection. ``emitted`` counts the tokens it gave, the corrected or bonus token included.
    Plain decoding has rounds too, with nothing drafted.
    """

    id: int
    leg_id: int
    request_id: int
    drafted: int
    evaluated: int
    accepted: int
    emitted: int
    t0_ns: int
    t1_ns: int
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (
            0 <= self.accepted <= self.evaluated <= self.drafted
            and self.accepted <= self.emitted <= self.drafted + 1
        ):
            raise ValueError(
                f"{self.drafted} drafted, {self.evaluated} evaluated, {self.accepted} accepted and "
                f"{self.emitted} emitted tokens do not fit together"
            )


class Pass(Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """One run of a model; the stamps stand right around the provider's run.

    ``tokens`` went in, ``context_tokens`` were cached before. ``stream`` 0 is what is measured;
    what runs beside it at the same time has numbers from 1. In phase ``antagonist`` no model runs:
    a piece of memory is streamed, or a core kept busy.
    """

    id: int
    leg_id: int
    request_id: int | None
    round_id: int | None
    phase: Phase
    model: str
    provider: str
    stream: int = 0
    tokens: int
    context_tokens: int
    t0_ns: int
    t1_ns: int


class Token(Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """One emitted token. ``position`` counts from 0 within the answer of its request."""

    id: int
    leg_id: int
    request_id: int
    round_id: int | None
    position: int
    token_id: int
    origin: Origin


class Signal(Struct, frozen=True, kw_only=True, tag=True):
    """A channel of the sampler: written when it is announced and again with how it was delivered.

    ``window_s`` is the averaging window that its source declares, ``window_basis`` on what ground;
    ``node`` is what was read; ``calibrated`` that its scale was found by a known load on the board
    (`edgeprof probe`). ``delivered_hz`` and ``jitter_s``, the standard deviation of the time
    between readings, are what came; ``asked_hz`` is only what was wished for.
    """

    id: int
    name: str
    unit: str
    source: str
    window_s: float | None = None
    window_kind: WindowKind = "unknown"
    window_basis: WindowBasis | None = None
    node: str | None = None
    note: str | None = None
    asked_hz: float | None = None
    delivered_hz: float | None = None
    jitter_s: float | None = None
    read_latency_s: float | None = None
    calibrated: bool = False


class Sample(Struct, frozen=True, kw_only=True, tag=True):
    """One reading, stamped before and after. ``value`` is in the signal's unit; None is unknown."""

    signal_id: int
    t0_ns: int
    t1_ns: int
    value: float | None
    raw: str | None = None
    quality: Quality = "ok"


class Event(Struct, frozen=True, kw_only=True, tag=True):
    """Something that happened: a death, a gap, a divergence, swapping, throttling."""

    leg_id: int | None
    t_ns: int
    kind: str
    severity: Severity
    detail: dict[str, Any] = field(default_factory=dict)


class PassAgreement(Struct, frozen=True, kw_only=True):
    """Does the same token get the same logits in passes of different size? Probed at start.

    ``max_logit_difference`` maps the number of tokens in a pass to the largest absolute difference
    against passes of ``reference_tokens``; ``after_rollback`` is the same for a repeated pass.
    """

    reference_tokens: int
    max_logit_difference: dict[int, float]
    after_rollback: float

    @property
    def one_token_passes_agree(self) -> bool:
        return all(difference == 0 for difference in self.max_logit_difference.values())


class ModelRecord(Struct, frozen=True, kw_only=True):
    """A model as it was used in the session: identity, size, provider, threads.

    ``streamed_weight_bytes`` is what one pass reads of the weights as stored in the file that ran;
    None where the file's layout is not known. ``requantised`` is what of the model's own weights
    was rounded when it was converted.
    """

    role: Literal["target", "draft"]
    source: str
    sha256: str | None
    weights: str
    provider: str
    providers_in_session: list[str]
    threads: int
    vocab_size: int
    capacity_tokens: int
    layers: int | None = None
    parameters: int | None = None
    streamed_weight_bytes: int | None = None
    resident_weight_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    flop_per_token: int | None = None
    load_s: float | None = None
    kernel: str | None = None
    requantised: Requantised | None = None
    agreement: PassAgreement | None = None


class SessionInfo(Struct, frozen=True, kw_only=True):
    """The single row of table ``session``; structured values are JSON in the file.

    ``device`` holds what the board or machine is, ``environment`` versions and settings.
    """

    id: str
    created_utc: str
    edgeprof_version: str
    schema_version: int
    kind: str
    recipe: dict[str, Any]
    device: dict[str, Any]
    environment: dict[str, Any]
    models: dict[str, ModelRecord]
    complete: bool = False
    ended_reason: str | None = None


Record = Leg | Request | Round | Pass | Token | Signal | Sample | Event


class Session(Struct, frozen=True, kw_only=True):
    """Everything that was measured, in the order of the ids; samples come signal by signal, tokens
    request by request."""

    info: SessionInfo
    legs: list[Leg]
    requests: list[Request]
    rounds: list[Round]
    passes: list[Pass]
    tokens: "Tokens"
    signals: list[Signal]
    samples: "Samples"
    events: list[Event]
