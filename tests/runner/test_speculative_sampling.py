"""Speculative sampling is exact: every way a round can go is gone, with its exact probability.

The loop that runs is driven by a chance that takes each branch in turn. Where a round emits fewer
tokens than it could, the rest is filled up with the target's own probabilities; what comes out must
be the target's distribution over whole stretches of text, to 1e-12.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeprof.convert.folder import convert
from edgeprof.recipe import Sampling
from edgeprof.runner import decode as decoding
from edgeprof.runner.acceptance import Verdict, accept_sampled, acceptance_probability
from edgeprof.runner.decode import FirstToken, RoundDone, Step, decode
from edgeprof.runner.draft_length import AdaptiveLength, PassCost
from edgeprof.runner.drafters import Drafter, ModelDrafter, NgramDrafter, Proposal
from edgeprof.runner.ort_model import OrtModel
from edgeprof.runner.sampling import Chance, Dice, Distribution, Sampler, point_mass, residual
from edgeprof.runner.token_model import TokenModel

T = TypeVar("T")
Text = tuple[int, ...]
Pair = tuple[OrtModel, OrtModel]

RULES = {
    "temperature 1": Sampling(temperature=1),
    "cold": Sampling(temperature=0.3),
    "hot top-k": Sampling(temperature=2, top_k=2),
    "top-p": Sampling(temperature=1, top_p=0.7),
    "min-p": Sampling(temperature=1.5, min_p=0.4),
    "all": Sampling(temperature=0.8, top_k=3, top_p=0.9, min_p=0.1),
}
PROMPT = (0, 1, 0, 2, 1, 0, 1, 2, 0, 1, 0)  # everything in it has been followed by something
EXACT = 1e-12
COSTS_S = {1: 1.0, 2: 1.45, 3: 1.75}  # a drafted token pays where the draft is rather sure of it


class TableModel:
    """A TokenModel whose logits are random numbers fixed by the last two tokens and a seed.

    ``head`` lists the tokens of its columns; ``padding`` columns after them always look best.
    """

    def __init__(self, seed: int, head: Sequence[int], padding: int = 0) -> None:
        self.seed = seed
        self.head = np.array([*head, *range(50, 50 + padding)])
        self.padding = padding
        self.vocab_size = 60
        self.capacity = 64
        self.stamps_ns = (0, 0)
        self.cached: list[int] = []
        self.known: dict[Text, NDArray[np.float32]] = {}

    @property
    def length(self) -> int:
        return len(self.cached)

    def after(self, text: Sequence[int]) -> NDArray[np.float32]:
        end = tuple(text[-2:])
        if end not in self.known:
            generator = np.random.default_rng([self.seed, *end])
            logits = generator.normal(0, 1.2, len(self.head))
            logits[len(logits) - self.padding :] = 40
            self.known[end] = logits.astype(np.float32)
        return self.known[end]

    def extend(self, tokens: Sequence[int], rows: int | None = None) -> NDArray[np.float32]:
        found = []
        for token in tokens:
            self.cached.append(token)
            found.append(self.after(self.cached))
        return np.array(found[-(len(tokens) if rows is None else rows) :])

    def rewind(self, length: int) -> None:
        del self.cached[length:]

    def token_ids(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        ids: NDArray[np.int64] = self.head[columns]
        return ids


class Path:
    """A Chance that follows given choices, then takes the first of whatever is possible."""

    def __init__(self, choices: Sequence[int]) -> None:
        self.choices = choices
        self.taken: list[tuple[int, int]] = []  # the choice and how many there were
        self.probability = 1.0

    def happens(self, probability: float) -> bool:
        return self._choose([(True, probability), (False, 1 - probability)])

    def pick(self, distribution: Distribution) -> int:
        shares = zip(distribution.tokens.tolist(), distribution.probabilities.tolist(), strict=True)
        return int(self._choose(list(shares)))

    def _choose(self, options: list[tuple[T, float]]) -> T:
        possible = [option for option in options if option[1] > 0]
        done = len(self.taken)
        choice = self.choices[done] if done < len(self.choices) else 0
        self.taken.append((choice, len(possible)))
        self.probability *= possible[choice][1]
        return possible[choice][0]


def outcomes(run: Callable[[Chance], T]) -> Iterator[tuple[T, float]]:
    """What ``run`` gives on every path that chance can take, with the path's probability."""
    choices: list[int] | None = []
    while choices is not None:
        path = Path(choices)
        yield run(path), path.probability
        taken = path.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        choices = [choice for choice, _ in taken[:-1]] + [taken[-1][0] + 1] if taken else None


class Setting:
    """A target, what drafts for it, and the rule for both."""

    def __init__(
        self, target: TokenModel, draft: TokenModel | None, rule: Sampling, vocabulary: int
    ) -> None:
        self.target, self.draft, self.rule, self.vocabulary = target, draft, rule, vocabulary
        self.draws = True
        self.adaptive = False
        self.least_confidence = 0.0
        self._own: dict[Text, Distribution] = {}

    def sampler(self, model: TokenModel, chance: Chance) -> Sampler:
        return Sampler(model, self.rule, chance, vocabulary=self.vocabulary, name="m")

    def drafter(self, chance: Chance) -> Drafter:
        if self.draft is None:
            return NgramDrafter(longest=2, shortest=2)
        return ModelDrafter(
            self.draft,
            self.sampler(self.draft, chance) if self.draws else None,
            least_confidence=self.least_confidence,
        )

    def steps(self, draft_tokens: int, new_tokens: int, chance: Chance) -> Iterator[Step]:
        return decode(
            self.target,
            PROMPT,
            new_tokens=new_tokens,
            clock=lambda: 0,
            drafter=self.drafter(chance),
            draft_tokens=draft_tokens,
            draft_length=AdaptiveLength(PassCost(COSTS_S)) if self.adaptive else None,
            sampler=self.sampler(self.target, chance),
        )

    def answer(self, draft_tokens: int, new_tokens: int) -> Callable[[Chance], Text]:
        return lambda chance: tokens_of(self.steps(draft_tokens, new_tokens, chance))

    def first_round(self, draft_tokens: int) -> Callable[[Chance], tuple[Text, RoundDone]]:
        """The first token with those of one round, and that round."""

        def run(chance: Chance) -> tuple[Text, RoundDone]:
            steps: list[Step] = []
            for step in self.steps(draft_tokens, draft_tokens + 2, chance):
                steps.append(step)
                if isinstance(step, RoundDone):
                    return tokens_of(steps), step
            raise AssertionError("no round")

        return run

    def own(self, text: Text) -> Distribution:
        """What the target says after the prompt and this text."""
        if text not in self._own:
            self.target.rewind(0)
            row = self.target.extend([*PROMPT, *text], rows=1)[0]
            self._own[text] = self.sampler(self.target, Path([])).distribution(row)
        return self._own[text]

    def completed(self, texts: Mapping[Text, float], tokens: int) -> dict[Text, float]:
        """The distribution of texts of this length, where the target goes on by itself."""
        whole: dict[Text, float] = defaultdict(float)
        for text, probability in texts.items():
            if len(text) == tokens:
                whole[text] += probability
                continue
            own = self.own(text)
            longer = {
                (*text, token): probability * share
                for token, share in zip(own.tokens.tolist(), own.probabilities, strict=True)
                if share > 0
            }
            for end, share in self.completed(longer, tokens).items():
                whole[end] += share
        return whole


def tokens_of(steps: Iterable[Step]) -> Text:
    tokens: list[int] = []
    for step in steps:
        if isinstance(step, FirstToken):
            tokens.append(step.token)
        elif isinstance(step, RoundDone):
            tokens += step.tokens
    return tuple(tokens)


def table_setting(drafting: str, rule: Sampling, vocabulary: int) -> Setting:
    """A target with padded logits, and a draft that has other opinions and more padding."""
    target = TableModel(1, range(vocabulary), padding=2)
    if drafting == "ngram":
        return Setting(target, None, rule, vocabulary)
    head = [2, 0] if drafting == "cut head" else range(vocabulary)
    draft = TableModel(1 if drafting == "itself" else 2, head, padding=3)
    if drafting != "greedy model":
        return Setting(target, draft, rule, vocabulary)
    setting = Setting(target, TableModel(2, head), rule, vocabulary)  # greedy knows no padding
    setting.draws = False
    return setting


def distribution_of(run: Callable[[Chance], Text]) -> dict[Text, float]:
    found: dict[Text, float] = defaultdict(float)
    for text, probability in outcomes(run):
        found[text] += probability
    return found


def largest_error(setting: Setting, emitted: Mapping[Text, float], tokens: int) -> float:
    """In the probability of any text, once short ones are filled up by the target itself."""
    found, expected = setting.completed(emitted, tokens), setting.completed({(): 1.0}, tokens)
    assert sum(found.values()) == pytest.approx(1, abs=EXACT)
    return max(abs(found.get(t, 0) - expected.get(t, 0)) for t in {*found, *expected})


@pytest.mark.parametrize("drafting", ["model", "cut head", "greedy model", "ngram"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("draft_tokens", "vocabulary"), [(1, 5), (2, 4), (3, 3), (4, 3)])
def test_a_round_gives_the_targets_own_distribution(
    rule: str, drafting: str, draft_tokens: int, vocabulary: int
) -> None:
    setting = table_setting(drafting, RULES[rule], vocabulary)
    run = setting.first_round(draft_tokens)
    emitted = distribution_of(lambda chance: run(chance)[0])
    if drafting == "model" or rule == "temperature 1":  # else a cut may exclude what is drafted
        assert max(map(len, emitted)) == draft_tokens + 2
    assert largest_error(setting, emitted, draft_tokens + 2) < EXACT


@pytest.mark.parametrize("drafting", ["model", "ngram"])
@pytest.mark.parametrize("draft_tokens", [0, 2])
def test_whole_answers_over_several_rounds_have_it_too(drafting: str, draft_tokens: int) -> None:
    setting = table_setting(drafting, RULES["temperature 1"], 2)
    found = distribution_of(setting.answer(draft_tokens, 5))
    assert {len(text) for text in found} == {5}
    assert largest_error(setting, found, 5) < EXACT


@pytest.mark.parametrize("drafting", ["model", "greedy model", "ngram"])
@pytest.mark.parametrize("limit", ["adaptive", "least confidence"])
def test_drafting_no_more_than_pays_leaves_it_as_it_is(drafting: str, limit: str) -> None:
    setting = table_setting(drafting, RULES["temperature 1"], 3)
    setting.adaptive = limit == "adaptive"
    setting.least_confidence = 0.0 if setting.adaptive else 0.6
    run = setting.first_round(2)
    drafted: set[int] = set()

    def observed(chance: Chance) -> Text:
        text, step = run(chance)
        drafted.add(step.drafted)
        return text

    assert largest_error(setting, distribution_of(observed), 4) < EXACT
    assert len(drafted) > 1 or drafting == "ngram"  # it did not draft the same number always


def test_to_leave_a_drawn_token_out_for_what_it_led_to_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def worth_verifying(rounds: Any, proposal: Proposal) -> Proposal:
        return proposal.cut(rounds.draft_length.keep(proposal.confidence))

    monkeypatch.setattr(decoding._Rounds, "_worth_verifying", worth_verifying)
    monkeypatch.setattr(AdaptiveLength, "goes_on", lambda *_: True)
    monkeypatch.setitem(COSTS_S, 2, 1.7)  # two may pay where one does not: the second decides
    monkeypatch.setitem(COSTS_S, 3, 2.15)
    setting = table_setting("model", RULES["temperature 1"], 3)
    setting.adaptive = True
    run = setting.first_round(2)
    assert largest_error(setting, distribution_of(lambda chance: run(chance)[0]), 4) > 1e-3


def accept_by_p(
    drafted: Sequence[int],
    draft: Sequence[Distribution],
    target: Callable[[int], Distribution],
    chance: Chance,
) -> Verdict:
    """Wrong: accepts with probability p, not p / q."""
    for index, token in enumerate(drafted):
        if not chance.happens(target(index).probability(token)):
            return Verdict(index, index + 1, chance.pick(residual(target(index), draft[index])))
    return Verdict(len(drafted), len(drafted), chance.pick(target(len(drafted))))


def correct_by_p(
    drafted: Sequence[int],
    draft: Sequence[Distribution],
    target: Callable[[int], Distribution],
    chance: Chance,
) -> Verdict:
    """Wrong: a rejected token is replaced from p, not from the residual."""
    for index, token in enumerate(drafted):
        if not chance.happens(acceptance_probability(target(index), draft[index], token)):
            return Verdict(index, index + 1, chance.pick(target(index)))
    return Verdict(len(drafted), len(drafted), chance.pick(target(len(drafted))))


def stale_bonus(
    drafted: Sequence[int],
    draft: Sequence[Distribution],
    target: Callable[[int], Distribution],
    chance: Chance,
) -> Verdict:
    """Wrong: the bonus comes from the row of the last drafted token."""
    last = max(len(drafted) - 1, 0)
    return accept_sampled(drafted, draft, lambda row: target(min(row, last)), chance)


def no_bonus(
    drafted: Sequence[int],
    draft: Sequence[Distribution],
    target: Callable[[int], Distribution],
    chance: Chance,
) -> Verdict:
    """Wrong: where all were accepted, the last of them ends the round. Exact, but a token less."""
    verdict = accept_sampled(drafted, draft, target, chance)
    if drafted and verdict.accepted == len(drafted):
        return Verdict(len(drafted) - 1, len(drafted), drafted[-1])
    return verdict


@pytest.mark.parametrize(
    ("drafting", "wrong"),
    [
        ("model", accept_by_p),  # for n-grams q is 1, and this is the rule
        ("model", correct_by_p),
        ("model", stale_bonus),
        ("ngram", correct_by_p),
        ("ngram", stale_bonus),
    ],
)
def test_the_enumeration_finds_a_wrong_rule(
    wrong: Any, drafting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "accept_sampled", wrong)
    setting = table_setting(drafting, RULES["temperature 1"], 3)
    run = setting.first_round(2)
    assert largest_error(setting, distribution_of(lambda chance: run(chance)[0]), 4) > 1e-3


def test_the_acceptance_of_one_token_is_the_overlap_of_p_and_q() -> None:
    """Leviathan et al., theorem 3.5: the sum of min(p, q) over all tokens."""
    setting = table_setting("model", RULES["hot top-k"], 4)
    twin = Setting(TableModel(2, range(4)), None, RULES["hot top-k"], 4)  # the draft's opinions
    expected = found = 0.0
    for (text, step), probability in outcomes(setting.first_round(1)):
        found += probability * step.accepted
        assert (step.drafted, step.evaluated, len(text)) == (1, 1, 2 + step.accepted)
    for token in range(4):
        p, q = setting.own((token,)), twin.own((token,))
        overlap = sum(min(p.probability(x), q.probability(x)) for x in range(4))
        expected += setting.own(()).probability(token) * overlap
    assert 0.1 < expected < 0.9
    assert found == pytest.approx(expected, abs=EXACT)


def test_r41_a_model_that_drafts_for_itself_is_always_right_when_sampled_too() -> None:
    setting = table_setting("itself", RULES["all"], 3)
    for (_, step), _ in outcomes(setting.first_round(3)):
        assert step.accepted == step.drafted == 3
        assert step.origins == ["accepted"] * 3 + ["bonus"]


def test_the_target_is_asked_only_as_far_as_the_round_gets() -> None:
    asked: list[int] = []
    half = Distribution(np.array([0, 1]), np.array([0.5, 0.5]))

    def target(drafted: int) -> Distribution:
        asked.append(drafted)
        return half

    # two paths of Path: [0] accepts, [1] rejects
    drafted, draft = [0, 0, 0], [point_mass(0)] * 3
    assert accept_sampled(drafted, draft, target, Path([0, 1])) == Verdict(1, 2, 1)
    assert asked == [0, 1]


@pytest.mark.parametrize("drafting", ["model", "ngram"])
@pytest.mark.parametrize("draft_tokens", [0, 3])
def test_next_to_temperature_0_sampling_is_greedy_decoding(
    drafting: str, draft_tokens: int
) -> None:
    setting = table_setting(drafting, Sampling(temperature=1e-9), 5)
    plain = decode(TableModel(1, range(5)), PROMPT, new_tokens=30, clock=lambda: 0)
    sampled = setting.answer(draft_tokens, 30)(Dice(np.random.default_rng(3)))
    assert sampled == tokens_of(plain)


def test_a_seed_fixes_the_answer() -> None:
    answer = table_setting("model", RULES["temperature 1"], 5).answer(3, 40)
    first, again, other = (answer(Dice(np.random.default_rng(seed))) for seed in (5, 5, 6))
    assert first == again != other


class Recalled:
    """The real model, in which each different pass is run once and then remembered."""

    def __init__(self, model: OrtModel) -> None:
        self._model = model
        self.vocab_size, self.capacity = model.vocab_size, model.capacity
        self.stamps_ns = (0, 0)
        self.cached: list[int] = []
        self._known: dict[Any, NDArray[np.float32]] = {}

    @property
    def length(self) -> int:
        return len(self.cached)

    def extend(self, tokens: Sequence[int], rows: int | None = None) -> NDArray[np.float32]:
        key = tuple(self.cached), tuple(tokens), rows
        if key not in self._known:
            self._model.rewind(0)
            if self.cached:
                self._model.extend(self.cached, rows=1)
            self._known[key] = self._model.extend(tokens, rows).copy()
        self.cached += tokens
        return self._known[key]

    def rewind(self, length: int) -> None:
        del self.cached[length:]

    def token_ids(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._model.token_ids(columns)


@pytest.fixture(scope="module")
def models(tiny_gguf: Callable[..., FilePath], tmp_path_factory: Any) -> Pair:
    """A random decoder in ONNX Runtime, and as its draft the same with its matrices in 4 bit."""
    work = tmp_path_factory.mktemp("real")

    def opened(matrices: str) -> OrtModel:
        gguf = tiny_gguf(work / f"{matrices}.gguf", matrices=matrices)
        return OrtModel.open(convert(gguf, work / matrices), threads=1, capacity=32)

    return opened("F32"), opened("Q4_0")


REAL_RULE = Sampling(temperature=0.7, top_k=2)
ANSWERS, ONE_IN = 5000, 1e6


@pytest.fixture(scope="module")
def real(models: Pair) -> Setting:
    target, draft = map(Recalled, models)
    return Setting(target, draft, REAL_RULE, 300)


def distance(one: Mapping[Text, float], other: Mapping[Text, float]) -> float:
    """Total variation: half the sum of the differences."""
    return sum(abs(one.get(text, 0) - other.get(text, 0)) for text in {*one, *other}) / 2


def noise(kinds: int) -> float:
    """What the distance of ``ANSWERS`` draws from their distribution exceeds once in a million.

    Its mean is at most sqrt(kinds / n) / 2, and one draw moves it by at most 1 / n (McDiarmid).
    """
    return float(np.sqrt(kinds / ANSWERS) / 2 + np.sqrt(np.log(ONE_IN) / (2 * ANSWERS)))


def drawn(setting: Setting, seed: int) -> tuple[dict[Text, float], float]:
    """Shares of the answers of four tokens in many runs, and the mean tokens of a first round."""
    dice = Dice(np.random.default_rng(seed))
    shares: dict[Text, float] = defaultdict(float)
    emitted = 0
    for _ in range(ANSWERS):
        steps = list(setting.steps(2, 4, dice))
        emitted += next(len(step.tokens) for step in steps if isinstance(step, RoundDone))
        shares[tokens_of(steps)] += 1 / ANSWERS
    return shares, emitted / ANSWERS


def test_a_real_models_answers_are_distributed_as_its_own(real: Setting) -> None:
    own = real.completed({(): 1.0}, 4)
    assert len(own) == 16
    shares, _ = drawn(real, 1)
    assert distance(shares, own) < noise(16)  # 0.066


@pytest.mark.parametrize("wrong", [accept_by_p, correct_by_p, stale_bonus])
def test_a_wrong_rule_fails_there_all_but_certainly(
    real: Setting, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrong distribution is known exactly, and so far off that draws from it come near the
    right one less than once in a million times."""
    own = real.completed({(): 1.0}, 4)
    monkeypatch.setattr(decoding, "accept_sampled", wrong)
    exact = distribution_of(real.answer(2, 4))
    assert distance(exact, own) - noise(len(exact)) > noise(16)
    shares, _ = drawn(real, 1)
    assert distance(shares, own) > noise(16)


def test_a_round_brings_the_tokens_it_should_and_fewer_without_the_bonus(
    real: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means of values from 1 to 3 stray by more than this once in a million times (Hoeffding)."""
    strays = 2 * np.sqrt(np.log(2 * ONE_IN) / (2 * ANSWERS))  # 0.076
    expected = sum(share * len(step.tokens) for (_, step), share in outcomes(real.first_round(2)))
    _, mean = drawn(real, 2)
    assert abs(mean - expected) < strays
    monkeypatch.setattr(decoding, "accept_sampled", no_bonus)
    fewer = sum(share * len(step.tokens) for (_, step), share in outcomes(real.first_round(2)))
    assert expected - fewer > 2 * strays
    _, mean = drawn(real, 2)
    assert abs(mean - expected) > strays


def test_remembered_passes_are_the_passes_themselves(models: Pair, real: Setting) -> None:
    target, draft = models
    live = Setting(target, draft, REAL_RULE, 300)
    for seed in range(20):
        one, other = (s.answer(2, 12)(Dice(np.random.default_rng(seed))) for s in (live, real))
        assert one == other
