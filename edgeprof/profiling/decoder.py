"""The decoder: the child process that holds the models and runs the legs of a recipe.

Everything it measures goes to the recorder as it happens; it writes no file.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import isnan
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from edgeprof.analysis.held_legs import DUTY, HELD_BYTES
from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.profiling.ceilings import run_ceilings
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.divergence import first_divergence, logit_gap
from edgeprof.profiling.journal import Interrupted, Journal, ModelName
from edgeprof.profiling.loading import model_files, open_model, provider_detail
from edgeprof.profiling.messages import DecodeJob, Ended, Message, ModelReady, Order, Plan
from edgeprof.profiling.model_words import different_words, end_token_ids
from edgeprof.profiling.page_cache import cached_share
from edgeprof.profiling.process_load import watch_processor
from edgeprof.profiling.process_memory import watch_memory
from edgeprof.profiling.prompts import prompt_digest
from edgeprof.profiling.schedule import (
    HeldPhase,
    held_order,
    leg_count,
    longest_pass,
    model_drafters,
    order_of_tests,
    variant_order,
)
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.recipe import NgramDrafter, SyntheticTest, Variant, cache_tokens, model_uses
from edgeprof.runner.agreement import probe_agreement
from edgeprof.runner.decode import decode
from edgeprof.runner.draft_length import AdaptiveLength, PassCost
from edgeprof.runner.drafters import Drafter, ModelDrafter
from edgeprof.runner.drafters import NgramDrafter as NgramLookup
from edgeprof.runner.held import HeldPass, held_passes
from edgeprof.runner.known_tokens import KnownTokens
from edgeprof.runner.sampling import Chance, Dice, Sampler
from edgeprof.runner.synthetic import synthetic_passes
from edgeprof.runner.token_model import TokenModel
from edgeprof.session.records import Leg, ModelRecord, Phase

_clock = time.monotonic_ns
# Sensors show a mean of the last moments: those of the leg before are not to count for the next.
_SETTLING_S = 0.1


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Run all legs of the job; ends early, and says so, where the recorder asked to stop."""
    assert isinstance(job, DecodeJob)
    held_for_bytes = job.held_leg_s is not None
    outbox.put(Plan(legs=leg_count(job.recipe, held_for_bytes=held_for_bytes)))
    journal = Journal(
        outbox.put,
        clock=_clock,
        stop_asked=control.stop_asked,
        watches={"memory": watch_memory, "processor": watch_processor},
    )
    try:
        run_ceilings(job, journal)
        _Decoding(job, journal, outbox.put).run()
    except Interrupted:
        outbox.put(Ended(interrupted=True))
    else:
        outbox.put(Ended())


class _Decoding:
    """The loaded models of a job and the legs that run on them."""

    def __init__(self, job: DecodeJob, journal: Journal, put: Callable[[Message], None]) -> None:
        self._recipe = job.recipe
        self._job = job
        self._journal = journal
        self._put = put
        self._models: dict[str, TokenModel] = {}
        self._records: dict[str, ModelRecord] = {}
        self._names = {key: ModelName(key, m.provider) for key, m in job.models.items()}
        self._folders = {
            key: read_decoder_folder(Path(model.folder)) for key, model in job.models.items()
        }
        self._tokenizers = {
            key: _tokenizer(self._folders[key]) if job.recipe.prompts else None
            for key in job.recipe.targets
        }
        self._end_tokens = {
            key: end_token_ids(self._folders[key], tokenizer)
            if job.recipe.stop_at_end_token
            else frozenset()
            for key, tokenizer in self._tokenizers.items()
        }
        self._held_s: dict[str, dict[int, float]] = {}
        self._draft_lengths: dict[str, AdaptiveLength] = {}
        self._gaps: dict[tuple[str, int, int, int | None], float | None] = {}

    def run(self) -> None:
        for key in self._job.models:
            self._load(key)
        self._note_fewer_threads()
        self._note_pairs()
        for key in self._job.models:
            self._check(key)
        if self._recipe.verify_tokens:
            self._hold()
        if self._job.held_leg_s is not None:
            for repeat, held in held_order(self._recipe):
                self._hold_for_bytes(repeat, held, self._job.held_leg_s)
        if self._recipe.idle_s:
            self._idle(self._recipe.idle_s)
        self._ignore_padding()
        self._warm_up()
        for repeat in range(1, self._recipe.repeats + 1):
            self._repeat(repeat)

    def _load(self, key: str) -> None:
        """Cold where its file had to be read from disk, warm where the system still held it."""
        folder = self._folders[key]
        share = cached_share(model_files(folder))
        model, self._records[key] = open_model(
            self._job.models[key],
            capacity=cache_tokens(self._recipe, key),
            longest_pass=longest_pass(self._recipe),
            clock=_clock,
        )
        self._models[key] = model
        detail = {"model": key, "load_s": model.load_s, "cached_share": share}
        self._journal.note(None, "load", detail, "info")
        self._put(ModelReady(key=key, model=self._records[key]))
        if setup := provider_detail(key, model):
            self._journal.note(None, "provider", setup, "info")

    def _note_fewer_threads(self) -> None:
        """Where the recipe asks a model for more threads than there are cores."""
        for key, use in model_uses(self._recipe).items():
            used = self._job.models[key].threads
            if use.threads is not None and used < use.threads:
                detail = {"model": key, "asked": use.threads, "used": used}
                self._journal.note(None, "threads", detail)

    def _note_pairs(self) -> None:
        """What is odd about a draft and its target, and no reason not to run."""
        for target, draft in {(v.target, v.drafter): None for v in self._recipe.variants}:
            if draft is None or draft not in self._models:
                continue
            pair = {"draft": draft, "target": target}
            # Where a draft's context ends before its target's, drafting ends there too.
            room, needed = self._models[draft].capacity, self._models[target].capacity
            if room < needed:
                self._journal.note(None, "draft_context", {**pair, "draft_context_tokens": room})
            different = different_words(self._folders[target], self._folders[draft])
            for word, (ours, theirs) in different.items():
                detail = {**pair, "field": word, "target_has": ours, "draft_has": theirs}
                self._journal.note(None, "special_tokens", detail)

    def _ignore_padding(self) -> None:
        """Rows of a head that stand for no token of the target's tokenizer are never chosen: by the
        target, nor by a draft, which has the same tokenizer."""
        counts = [t.id_count for t in self._tokenizers.values() if t is not None]
        if not counts:
            return
        for key, model in self._models.items():
            tokenizer = self._tokenizers.get(key)
            known = min(counts) if tokenizer is None else tokenizer.id_count
            if known < model.vocab_size:
                self._models[key] = KnownTokens(model, known)

    def _check(self, key: str) -> None:
        """Do passes of every size agree, for this model on this provider?"""
        with self._journal.leg(f"{key} agreement", kind="check", variant=key):
            agreement = probe_agreement(self._models[key], seed=self._recipe.seed)
        if isnan(agreement.after_rollback):
            raise FileFault(
                f"{self._job.models[key].folder}: {key} gives logits that are no numbers; "
                "its weights are damaged"
            )
        self._put(ModelReady(key=key, model=replace(self._records[key], agreement=agreement)))

    def _hold(self) -> None:
        """The cost of passes of every size of interest, and of a draft's step."""
        for key in self._recipe.targets:
            self._hold_model(key, "verify", self._recipe.verify_tokens)
        for key in model_drafters(self._recipe):
            self._hold_model(key, "draft", [1])

    def _hold_model(self, key: str, held: Phase, sizes: list[int]) -> None:
        time.sleep(_SETTLING_S)
        seconds: dict[int, list[float]] = defaultdict(list)
        with self._journal.leg(
            f"{key} held {held}", kind="held", variant=key, attrs={"held": held}
        ) as leg:
            for run in held_passes(
                self._models[key],
                sizes,
                context_tokens=self._recipe.held_context_tokens,
                repeats=self._recipe.held_repeats,
                seed=self._recipe.seed,
            ):
                phase: Phase = "decode" if held == "verify" and run.tokens == 1 else held
                self._journal.run(leg, phase, self._names[key], run)
                seconds[run.tokens].append((run.t1_ns - run.t0_ns) / 1e9)
        self._held_s[key] = {size: median(times) for size, times in seconds.items()}

    def _hold_for_bytes(self, repeat: int, held: HeldPhase, seconds: float) -> None:
        """One kind of pass, or a duty block, or nothing, for many windows of the counter."""
        depth = min(self._recipe.held_context_tokens, self._room(held))
        attrs = {
            "held": HELD_BYTES,
            "phase": held.phase,
            "tokens": held.tokens,
            "context_tokens": depth,
            "seed": self._recipe.seed,
        }
        passes: list[tuple[str, Phase, HeldPass]] = []
        if held.phase != "idle":
            passes.append((held.model, held.phase, self._held_pass(held.model, held.tokens, depth)))
        if held.drafter is not None:
            attrs |= {"held": DUTY, "drafter": held.drafter, "draft_passes": held.draft_passes}
            draft = self._held_pass(held.drafter, 1, depth)
            passes += [(held.drafter, "draft", draft)] * held.draft_passes
        with self._journal.leg(
            f"{held.name} {repeat}", kind="held", variant=held.model, repeat=repeat, attrs=attrs
        ) as leg:
            until_ns = _clock() + round(seconds * 1e9)
            if not passes:
                self._journal.rest(seconds)
            while passes and _clock() < until_ns:
                for key, phase, one in passes:
                    self._journal.run(leg, phase, self._names[key], one.run())

    def _idle(self, seconds: float) -> None:
        """All models loaded and nothing running: what is drawn then is no token's."""
        with self._journal.leg("idle", kind="idle", variant="idle"):
            self._journal.rest(seconds)

    def _room(self, held: HeldPhase) -> int:
        """How deep the models of a phase may be filled."""
        capacities = [
            m.capacity for k, m in self._models.items() if k in (held.model, held.drafter)
        ]
        return min(capacities, default=held.tokens) - held.tokens

    def _held_pass(self, key: str, tokens: int, depth: int) -> HeldPass:
        """Of a target the logits of all tokens, as verifying needs them."""
        rows = None if key in self._recipe.targets else 1
        model, seed = self._models[key], self._recipe.seed
        return HeldPass(model, tokens, context_tokens=depth, rows=rows, seed=seed)

    def _warm_up(self) -> None:
        if not self._recipe.warmup_requests:
            return
        for variant in self._recipe.variants if self._recipe.prompts else []:
            with self._decode_leg(variant, f"{variant.name} warm-up", 0) as leg:
                for index in range(self._recipe.warmup_requests):
                    self._answer(leg, variant, index % len(self._recipe.prompts))
        self._test(0)

    def _repeat(self, repeat: int) -> None:
        for index in range(len(self._recipe.prompts)):
            turn = (repeat - 1) * len(self._recipe.prompts) + index
            answers: dict[str, tuple[Leg, list[int]]] = {}
            for variant in variant_order(self._recipe.variants, turn):
                name = f"{variant.name} r{repeat} p{index + 1}"
                with self._decode_leg(variant, name, repeat) as leg:
                    answers[variant.name] = leg, self._answer(leg, variant, index)
            for variant in self._recipe.variants if self._recipe.sampling.greedy else []:
                if variant.drafter is not None and variant.target in answers:
                    leg, tokens = answers[variant.name]
                    self._compare(leg, variant, index, answers[variant.target][1], tokens)
        self._test(repeat)

    def _test(self, repeat: int) -> None:
        """Every synthetic test of every target, each a leg that bears its name."""
        for test, target in order_of_tests(self._recipe, repeat):
            time.sleep(_SETTLING_S)
            with self._journal.leg(
                test.name,
                kind="decode",
                variant=target,
                repeat=repeat,
                warmup=repeat == 0,
                attrs={"target": target, "test": test.name, **_sizes(test)},
            ) as leg:
                for run in synthetic_passes(
                    self._models[target],
                    **_sizes(test),
                    prefill_tokens=self._recipe.prefill_tokens,
                    seed=self._recipe.seed,
                ):
                    fed = run.context_tokens >= test.depth_tokens + test.prompt_tokens
                    phase: Phase = "decode" if fed else "prefill"
                    self._journal.run(leg, phase, self._names[target], run)

    def _decode_leg(self, variant: Variant, name: str, repeat: int) -> AbstractContextManager[Leg]:
        """A leg in which ``variant`` answers prompts; repeat 0 is the warm-up."""
        time.sleep(_SETTLING_S)
        drafter = self._recipe.drafters.get(variant.drafter or "")
        return self._journal.leg(
            name,
            kind="decode",
            variant=variant.name,
            repeat=repeat,
            warmup=repeat == 0,
            attrs={
                "target": variant.target,
                "drafter": variant.drafter,
                "drafter_kind": drafter and to_builtins(drafter)["kind"],
                # None where it changes from round to round.
                "draft_tokens": None if variant.adaptive else variant.draft_tokens,
            },
        )

    def _answer(self, leg: Leg, variant: Variant, index: int) -> list[int]:
        """The answer of ``variant`` to the prompt with this index, written down as it comes."""
        prompt = self._job.prompts[variant.target][index]
        tokenizer = self._tokenizers[variant.target]
        chance = self._chance(leg.repeat, index)
        steps = decode(
            self._models[variant.target],
            prompt,
            new_tokens=self._recipe.new_tokens,
            clock=_clock,
            drafter=self._drafter(variant, chance),
            draft_tokens=variant.draft_tokens or 0,
            draft_length=self._draft_length(variant),
            end_tokens=self._end_tokens[variant.target],
            sampler=self._sampler(variant.target, variant.target, chance),
            prefill_tokens=self._recipe.prefill_tokens,
        )
        names = {"target": self._names[variant.target]}
        if variant.drafter in self._names:
            names["draft"] = self._names[variant.drafter]
        return self._journal.answer(
            leg,
            steps,
            names,
            _no_text if tokenizer is None else tokenizer.decode,
            prompt_sha256=prompt_digest(self._recipe, index),
            prompt_kind=self._recipe.prompts[index].kind,
            prompt_tokens=len(prompt),
        )

    def _drafter(self, variant: Variant, chance: Chance | None) -> Drafter | None:
        if variant.drafter is None:
            return None
        drafter = self._recipe.drafters[variant.drafter]
        if isinstance(drafter, NgramDrafter):
            return NgramLookup(
                longest=drafter.longest,
                shortest=drafter.shortest,
                context_tokens=drafter.context_tokens,
                least_confidence=drafter.least_confidence,
            )
        return ModelDrafter(
            self._models[variant.drafter],
            self._sampler(variant.drafter, variant.target, chance),
            least_confidence=drafter.least_confidence,
            prefill_tokens=self._recipe.prefill_tokens,
        )

    def _draft_length(self, variant: Variant) -> AdaptiveLength | None:
        """It starts from what held passes cost, and keeps what it learns from answer to answer."""
        if not variant.adaptive:
            return None
        if variant.name not in self._draft_lengths:
            cost = PassCost(self._held_s.get(variant.target))
            self._draft_lengths[variant.name] = AdaptiveLength(cost)
        return self._draft_lengths[variant.name]

    def _chance(self, repeat: int, index: int) -> Chance | None:
        """The same numbers for this prompt in this repeat, whatever ran before; None: greedy.

        All variants of a target draw their first token alike, which makes pairs more alike.
        """
        if self._recipe.sampling.greedy:
            return None
        return Dice(np.random.default_rng([self._recipe.seed, repeat, index]))

    def _sampler(self, key: str, target: str, chance: Chance | None) -> Sampler | None:
        """Draws from this model the tokens that the target's tokenizer knows."""
        if chance is None:
            return None
        tokenizer = self._tokenizers[target]
        return Sampler(
            self._models[key],
            self._recipe.sampling,
            chance,
            vocabulary=self._models[key].vocab_size if tokenizer is None else tokenizer.id_count,
            name=f"{self._job.models[key].folder}: {key}",
        )

    def _compare(
        self, leg: Leg, variant: Variant, index: int, reference: list[int], tokens: list[int]
    ) -> None:
        """Note an answer that is not the plain one, with the logit gap where they part."""
        divergence = first_divergence(reference, tokens)
        if divergence is None:
            return
        place = (variant.target, index, divergence.position, divergence.token)
        if place not in self._gaps:
            prompt = self._job.prompts[variant.target][index]
            model = self._models[variant.target]
            self._gaps[place] = logit_gap(model, prompt, reference, divergence)
        detail = {
            "variant": variant.name,
            "baseline": variant.target,
            "request_index": index,
            "position": divergence.position,
            "logit_gap": self._gaps[place],
            "reference_token": divergence.reference_token,
            "token": divergence.token,
        }
        self._journal.note(leg, "divergence", detail)


def _tokenizer(folder: DecoderFolder) -> Tokenizer | None:
    """None where there is none: then every prompt is given as ids, and answers have no text."""
    return None if folder.tokenizer_path is None else Tokenizer(folder)


def _no_text(tokens: list[int]) -> None:
    return None


def _sizes(test: SyntheticTest) -> dict[str, int]:
    return {
        "prompt_tokens": test.prompt_tokens,
        "new_tokens": test.new_tokens,
        "depth_tokens": test.depth_tokens,
    }


if __name__ == "__main__":
    serve(work)
