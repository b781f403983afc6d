"""The sum behind each figure of a paper roofline, term by term, with where its inputs come from."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from edgeprof.analysis.memory import RUNTIME_BYTES, SYSTEM_BYTES
from edgeprof.analysis.outlook import Outlook
from edgeprof.analysis.roofline import PassTime, expected_time
from edgeprof.catalog import MeasuredDevice
from edgeprof.hardware.engines import EngineClass
from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import AttentionKind, ModelSpec, WeightGroup
from edgeprof.report.sections import Section, lines
from edgeprof.units import show, significant

_RULE = "sum of the terms above"


class Term(Struct, frozen=True, kw_only=True):
    """One figure: how it comes about, its value in an SI unit, and its source where it has one."""

    subject: str
    figure: str
    sum: str
    value: float
    unit: str
    source: str | None = None


def explain(result: Outlook) -> list[Term]:
    """Every figure of the answer, in the order in which one follows from the other."""
    return [
        *_board_terms(result),
        *_model_terms("model", result.model, result.kv),
        *(_model_terms("draft", result.draft, result.kv) if result.draft is not None else ()),
        *(term for one in result.passes for term in _pass_terms(result, one)),
        *(
            term
            for engine in result.engines
            for term in _engine_terms(result.passes[0], result, engine)
        ),
        *_fit_terms(result),
    ]


def explain_sections(terms: Sequence[Term]) -> Iterator[Section]:
    """A line a figure, then where its inputs come from."""
    for subject in dict.fromkeys(term.subject for term in terms):
        mine = [term for term in terms if term.subject == subject]
        sums = [f"{term.figure} = {term.sum} = {_exact(term)}" for term in mine]
        sources = [f"source of {term.figure}: {term.source}" for term in mine if term.source]
        yield Section(f"How: {subject}", lines([*sums, *sources]))


def _board_terms(result: Outlook) -> Iterator[Term]:
    device, roof = result.device, result.roof
    if isinstance(device, MeasuredDevice):
        yield _measured_term(device, roof.bandwidth_bytes_per_s)
        return
    profile, mode = device.profile, device.mode
    source = f"{mode.source or profile.source} ({mode.status or profile.status})"
    subject = f"{profile.name} {mode.name}"
    yield Term(
        subject=subject,
        figure="peak bandwidth",
        sum=f"EMC {mode.emc_mhz:g} MHz x 2 x {profile.dram.bus_width_bits} bit / 8",
        value=roof.bandwidth_bytes_per_s,
        unit="B/s",
        source=source,
    )
    share, band = profile.sustained, roof.sustained_bytes_per_s
    if share is not None and band is not None:
        for end, part, value in (("low", share.low, band.low), ("high", share.high, band.high)):
            yield Term(
                subject=subject,
                figure=f"sustained, {end}",
                sum=f"peak bandwidth x {part:g}",
                value=value,
                unit="B/s",
                source=f"{share.method}; {share.source} ({share.status})" if end == "low" else None,
            )
    gpu = profile.gpu
    if gpu is None or roof.flop_per_s is None or roof.ridge_flop_per_byte is None:
        return
    rates = {str(name): rate for name, rate in gpu.flop_per_clock_per_sm.items()}
    yield Term(
        subject=subject,
        figure=f"peak rate, {result.data_type}",
        sum=f"{mode.sms} SMs x {mode.gpu_mhz:g} MHz x {rates[result.data_type]:g} FLOP, dense",
        value=roof.flop_per_s,
        unit="FLOP/s",
        source=f"{gpu.rates_source} ({gpu.rates_status})",
    )
    yield Term(
        subject=subject,
        figure="ridge",
        sum="peak rate / peak bandwidth",
        value=roof.ridge_flop_per_byte,
        unit="FLOP/B",
    )


def _measured_term(device: MeasuredDevice, bandwidth: float) -> Term:
    return Term(
        subject=device.profile.title,
        figure="bandwidth",
        sum="the most that a probe read",
        value=bandwidth,
        unit="B/s",
        source=f"edgeprof probe, {device.measured.created_utc} (measured)",
    )


def _model_terms(subject: str, model: ModelSpec, kv: StorageType) -> Iterator[Term]:
    subject = f"{subject} {model.name}:{model.quantisation}"
    for group in model.groups:
        yield Term(
            subject=subject,
            figure=f"{group.role} {group.storage_name.upper()}",
            sum=_group_sum(group),
            value=group.bytes,
            unit="B",
        )
    yield Term(
        subject=subject,
        figure="resident weights",
        sum=_RULE,
        value=model.resident_weight_bytes,
        unit="B",
        source=model.source,
    )
    for kind in model.attention.kinds:
        yield Term(
            subject=subject,
            figure="cache a token",
            sum=_cache_sum(kind, kv),
            value=kind.layers * kind.cached_bytes_per_token(kv),
            unit="B",
        )


def _pass_terms(result: Outlook, one: PassTime) -> Iterator[Term]:
    cost, roof = one.cost, result.roof
    model = result.draft if cost.phase == "draft" and result.draft is not None else result.model
    subject = f"{cost.phase} of {cost.tokens} at {cost.context_tokens}"

    def term(figure: str, how: str, value: float, unit: str) -> Term:
        return Term(subject=subject, figure=figure, sum=how, value=value, unit=unit)

    yield term("weights read", _weights_sum(model, cost.tokens), cost.weight_bytes, "B")
    yield term("cache read", _cache_read_sum(model, cost.context_tokens), cost.kv_read_bytes, "B")
    yield term("cache written", f"{cost.tokens} x cache a token", cost.kv_write_bytes, "B")
    yield term("all bytes", "weights read + cache read + cache written", cost.total_bytes, "B")
    attention = cost.parts[-1].flop
    products = cost.flop - attention
    yield term("products", _products_sum(model, cost.tokens, cost.phase), products, "FLOP")
    yield term("attention", _attention_sum(model, attention), attention, "FLOP")
    memory_s = cost.total_bytes / roof.bandwidth_bytes_per_s
    yield term("memory time", "all bytes / peak bandwidth", memory_s, "s")
    if roof.flop_per_s is not None:
        compute_s = cost.flop / roof.flop_per_s
        yield term("compute time", "(products + attention) / peak rate", compute_s, "s")
    yield term("time at best", f"the longer: {one.bound}-bound", one.time_s, "s")
    rate = f"{cost.tokens} / time at best"
    yield term("tokens/s at best", rate, one.tokens_per_s, "tokens/s")


def _engine_terms(decode: PassTime, result: Outlook, engine: EngineClass) -> Iterator[Term]:
    """The two ends of the band of one engine class, for the first pass."""
    band, roof = expected_time(decode.cost, result.roof, engine), result.roof
    if band is None or roof.sustained_bytes_per_s is None:
        return
    for name, end, other, value in (
        ("shortest", "high", "low", band.low),
        ("longest", "low", "high", band.high),
    ):
        share, compute = getattr(engine.bandwidth_share, end), getattr(engine.compute_share, end)
        unpack = getattr(engine.unpack_clocks_per_byte, other)
        overhead = getattr(engine.overhead_clocks, other)
        how = f"bytes / ({share:.3g} x sustained, {end})"
        if unpack and roof.sm_clocks_per_s is not None:
            how += f" + bytes x {unpack:g} clocks / {show(roof.sm_clocks_per_s, 'Hz')} of all SMs"
        if roof.flop_per_s is not None:
            how = f"part by part the longer of {how} and FLOP / ({compute:g} x peak rate)"
        if overhead and roof.gpu_clock_hz is not None:
            how += f" + {overhead / 1e6:g} M clocks / {show(roof.gpu_clock_hz, 'Hz')}"
        yield Term(
            subject="expected of decoding",
            figure=f"{engine.name}, {name}",
            sum=how,
            value=value,
            unit="s",
            source=f"fitted to published rates of {engine.engines}" if end == "high" else None,
        )


def _fit_terms(result: Outlook) -> Iterator[Term]:
    held, device = result.fit, result.device
    observed = "a single observation on an Orin board"

    def term(figure: str, how: str, value: float, source: str | None = None) -> Term:
        return Term(subject="memory", figure=figure, sum=how, value=value, unit="B", source=source)

    yield term("weights", "resident weights", held.weights_bytes)
    yield term("KV", "cache a token x (deepest context + pass)", held.kv_bytes)
    if result.draft is not None:
        yield term("draft weights", "resident weights of the draft", held.draft_weights_bytes)
        yield term("draft KV", "as KV, of the draft", held.draft_kv_bytes)
    yield term("runtime", show(RUNTIME_BYTES, "B"), held.runtime_bytes, f"CUDA; {observed}")
    yield term("system", show(SYSTEM_BYTES, "B"), held.system_bytes, f"a desktop; {observed}")
    yield term("resident", _RULE, held.total_bytes)
    if isinstance(device, MeasuredDevice):
        yield term("visible", "memory that the system counts", held.dram_bytes)
        return
    dram = device.profile.dram
    yield term("visible", f"of {dram.size_gib:g} GiB on the module", held.dram_bytes,
               dram.visible_source or "0.93 of the module, assumed")  # fmt: skip


def _group_sum(group: WeightGroup) -> str:
    if group.stored_bytes is not None:
        return f"{group.count} x {group.rows} x {group.columns} weights, as stored"
    return f"{group.count} x {group.rows} rows x {group.row_bytes} B ({group.columns} weights)"


def _weights_sum(model: ModelSpec, tokens: int) -> str:
    parts = ["all weights but embedding" if model.embedding_row_bytes else "all weights"]
    if model.embedding_row_bytes:
        parts.append(f"{tokens} x {model.embedding_row_bytes} B of embedding")
    experts = next((group.experts for group in model.groups if group.experts), None)
    if experts is not None:
        parts[0] += (
            f", of experts 1 - (1 - {experts.used}/{experts.count})^{tokens}"
            f" = {significant(experts.share(tokens))}"
        )
    return " + ".join(parts)


def _cache_sum(kind: AttentionKind, kv: StorageType) -> str:
    widths = f"{kind.kv_heads} KV heads x {kind.key_dim} keys"
    if not kind.latent_value:
        widths += f" + {kind.kv_heads} x {kind.value_dim} values"
    return f"{kind.layers} layers x ({widths}) x {kv.block_bytes}/{kv.block_weights} B"


def _cache_read_sum(model: ModelSpec, context_tokens: int) -> str:
    return " + ".join(
        f"{kind.seen_tokens(context_tokens)} x cache a token"
        + (f" in {kind.layers} windowed layers" if kind.window_tokens is not None else "")
        for kind in model.attention.kinds
    )


def _products_sum(model: ModelSpec, tokens: int, phase: str) -> str:
    head = sum(group.used_parameters for group in model.groups if group.role == "lm_head")
    used = model.used_parameters
    if phase == "prefill":
        return f"2 x ({tokens} x {used - head} weights + 1 x {head} of lm_head)"
    return f"2 x {tokens} x {used} weights used"


def _attention_sum(model: ModelSpec, flop: int) -> str:
    """The positions of a pass attend to all before them and to themselves, windows respected."""
    kinds = [
        f"2 x {kind.layers} layers x {kind.heads} heads x {kind.key_dim + kind.value_dim}"
        for kind in model.attention.kinds
    ]
    if len(kinds) > 1:
        return " x tokens seen + ".join([*kinds, ""]).removesuffix(" + ")
    (only,) = model.attention.kinds
    seen = flop // (2 * only.layers * only.heads * (only.key_dim + only.value_dim))
    return f"{kinds[0]} x {seen} tokens seen"


def _exact(term: Term) -> str:
    if term.unit in ("B", "FLOP"):
        return f"{term.value:.0f} {term.unit}"
    return show(term.value, term.unit, 4) if term.unit != "tokens/s" else significant(term.value, 4)
