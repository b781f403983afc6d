"""The decoder: the child process that holds the models and runs the legs of a recipe.

Everything it measures goes to the recorder as it happens; it writes no file.
"""

import hashlib
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

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import read_decoder_folder
from edgeprof.profiling.ceilings import run_ceilings
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.divergence import first_divergence, logit_gap
from edgeprof.profiling.journal import Interrupted, Journal, ModelName
from edgeprof.profiling.loading import open_model
from edgeprof.profiling.messages import DecodeJob, Ended, Message, ModelReady, Order, Plan
from edgeprof.profiling.prompts import render
from edgeprof.profiling.schedule import leg_count, model_drafters, variant_order
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.recipe import NgramDrafter, Variant, model_uses
from edgeprof.runner.agreement import probe_agreement
from edgeprof.runner.decode import decode
from edgeprof.runner.draft_length import AdaptiveLength, PassCost
from edgeprof.runner.drafters import Drafter, ModelDrafter
from edgeprof.runner.drafters import NgramDrafter as NgramLookup
from edgeprof.runner.held import held_passes
from edgeprof.runner.ort_model import OrtModel
from edgeprof.runner.sampling import Chance, Dice, Sampler
from edgeprof.session.records import Leg, ModelRecord, Phase

_clock = time.monotonic_ns
# The threads of a model that ran before go on spinning for some 60 ms (measured), then they park.
_PARKING_S = 0.1


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Run all legs of the job; ends early, and says so, where the recorder asked to stop."""
    assert isinstance(job, DecodeJob)
    outbox.put(Plan(legs=leg_count(job.recipe)))
    journal = Journal(outbox.put, clock=_clock, stop_asked=control.stop_asked)
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
        self._models: dict[str, OrtModel] = {}
        self._records: dict[str, ModelRecord] = {}
        self._names = {key: ModelName(key, m.provider) for key, m in job.models.items()}
        folders = {key: Path(job.models[key].folder) for key in job.recipe.targets}
        self._tokenizers = {
            key: Tokenizer(read_decoder_folder(path)) for key, path in folders.items()
        }
        self._id_counts = {key: tokenizer.id_count for key, tokenizer in self._tokenizers.items()}
        self._end_tokens = {
            key: read_decoder_folder(path).end_token_ids
            if job.recipe.stop_at_end_token
            else frozenset()
            for key, path in folders.items()
        }
        self._held_s: dict[str, dict[int, float]] = {}
        self._draft_lengths: dict[str, AdaptiveLength] = {}
        self._gaps: dict[tuple[str, int, int, int | None], float | None] = {}

    def run(self) -> None:
        for key in self._job.models:
            self._load(key)
        self._note_fewer_threads()
        self._note_short_contexts()
        for key in self._recipe.targets:
            self._check(key)
        if self._recipe.verify_tokens:
            self._hold()
        self._warm_up()
        for repeat in range(1, self._recipe.repeats + 1):
            self._repeat(repeat)

    def _load(self, key: str) -> None:
        prepared = self._job.models[key]
        capacity = self._recipe.context_tokens
        self._models[key], self._records[key] = open_model(
            prepared, capacity=capacity, clock=_clock
        )
        self._put(ModelReady(key=key, model=self._records[key]))

    def _note_fewer_threads(self) -> None:
        """Where the recipe asks a model for more threads than there are cores."""
        for key, use in model_uses(self._recipe).items():
            used = self._job.models[key].threads
            if use.threads is not None and used < use.threads:
                detail = {"model": key, "asked": use.threads, "used": used}
                self._journal.note(None, "threads", detail)

    def _note_short_contexts(self) -> None:
        """Where a draft's context ends before its target's, drafting ends there too."""
        for target, draft in {(v.target, v.drafter) for v in self._recipe.variants}:
            if draft is None or draft not in self._models:
                continue
            room, needed = self._models[draft].capacity, self._models[target].capacity
            if room < needed:
                detail = {"draft": draft, "target": target, "draft_context_tokens": room}
                self._journal.note(None, "draft_context", detail)

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
        time.sleep(_PARKING_S)
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

    def _warm_up(self) -> None:
        for variant in self._recipe.variants if self._recipe.warmup_requests else []:
            with self._decode_leg(variant, f"{variant.name} warm-up", 0) as leg:
                for index in range(self._recipe.warmup_requests):
                    self._answer(leg, variant, index % len(self._recipe.prompts))

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

    def _decode_leg(self, variant: Variant, name: str, repeat: int) -> AbstractContextManager[Leg]:
        """A leg in which ``variant`` answers prompts; repeat 0 is the warm-up."""
        time.sleep(_PARKING_S)
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
        text = render(self._recipe, index)
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
        )
        names = {"target": self._names[variant.target]}
        if variant.drafter in self._names:
            names["draft"] = self._names[variant.drafter]
        return self._journal.answer(
            leg,
            steps,
            names,
            self._tokenizers[variant.target].decode,
            prompt_sha256=hashlib.sha256(text.encode()).hexdigest(),
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
        return Sampler(
            self._models[key],
            self._recipe.sampling,
            chance,
            vocabulary=self._id_counts[target],
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


if __name__ == "__main__":
    serve(work)
