"""What is refused before time is spent."""

from types import SimpleNamespace

import psutil
import pytest
from msgspec.structs import replace

from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.checks import plan_job
from edgeprof.profiling.environment import usable_cores
from edgeprof.recipe import Prompt, Recipe, SyntheticTest

Folders = dict[str, DecoderFolder]


def prompted(recipe: Recipe, text: str) -> Recipe:
    return replace(recipe, prompts=[Prompt(kind="chat", text=text)])


def test_a_job_holds_models_threads_and_tokens(recipe: Recipe, folders: Folders) -> None:
    job = plan_job(recipe, folders)
    assert {key: (m.role, m.threads) for key, m in job.models.items()} == {
        "t": ("target", 1),
        "d": ("draft", 1),
    }
    assert len(job.prompts["t"]) == 2 and all(job.prompts["t"])


def test_r24_a_template_can_give_an_empty_prompt_its_first_token(
    recipe: Recipe, folders: Folders
) -> None:
    templated = replace(prompted(recipe, ""), template="<|im_start|>{prompt}")
    assert plan_job(templated, folders).prompts == {"t": [[1]]}


def test_r25_the_prompt_is_as_long_as_its_tokens_say(recipe: Recipe, folders: Folders) -> None:
    # one byte, one token, nothing added and nothing taken away
    assert [len(tokens) for tokens in plan_job(prompted(recipe, "x"), folders).prompts["t"]] == [1]


def test_a_prompt_that_fills_the_context_is_refused(recipe: Recipe, folders: Folders) -> None:
    with pytest.raises(UsageFault, match=r"has 300 tokens and leaves no room in a context of 250"):
        plan_job(prompted(recipe, "7" * 300), folders)  # digits are split one by one


def test_a_token_that_a_draft_does_not_have_is_refused(recipe: Recipe, folders: Folders) -> None:
    """A prompt of ids may name a row that pads the target's embedding alone."""
    padded = {**folders, "t": replace(folders["t"], vocab_size=400)}
    asked = replace(recipe, prompts=[Prompt(kind="a", ids=[399])])
    with pytest.raises(UsageFault, match="token 399, but draft d has a vocabulary of 300"):
        plan_job(asked, padded)
    plan_job(replace(asked, drafters={}), padded)


def test_a_test_beyond_the_context_is_refused(recipe: Recipe, folders: Folders) -> None:
    # a slot of the 256 is the dummy row's
    deep = SyntheticTest(new_tokens=56, depth_tokens=200)
    tested = replace(recipe, prompts=[], tests=[deep], context_tokens=10_000)
    with pytest.raises(UsageFault, match="tg56@d200 needs a context of 256 tokens and t has 255"):
        plan_job(tested, folders)
    job = plan_job(replace(tested, tests=[replace(deep, new_tokens=55)]), folders)
    assert job.prompts == {"t": []}


def test_synthetic_tests_need_no_tokenizer(recipe: Recipe, folders: Folders) -> None:
    bare = {"t": replace(folders["t"], tokenizer_path=None)}
    tested = replace(recipe, prompts=[], tests=[SyntheticTest(prompt_tokens=8)], drafters={})
    tested = replace(tested, variants=[recipe.variants[1]])
    assert plan_job(tested, bare).prompts == {"t": []}


def test_held_passes_need_room(recipe: Recipe, folders: Folders) -> None:
    with pytest.raises(UsageFault, match=r"248 \+ 4 tokens and t has 250"):
        plan_job(replace(recipe, held_context_tokens=248), folders)
    plan_job(replace(recipe, held_context_tokens=246), folders)  # and 4 fill it exactly


def test_held_steps_of_a_draft_need_room_too(recipe: Recipe, folders: Folders) -> None:
    short = {**folders, "d": replace(folders["d"], context_tokens=33)}
    # a slot is the dummy row's, and the step comes after 32 tokens
    with pytest.raises(UsageFault, match=r"32 \+ 1 tokens and d has 32"):
        plan_job(recipe, short)
    plan_job(replace(recipe, verify_tokens=[]), short)


def test_a_context_too_small_for_the_probe_is_refused(recipe: Recipe, folders: Folders) -> None:
    # one token of context and eight that are probed
    small = replace(prompted(recipe, "x"), context_tokens=8, verify_tokens=[])
    with pytest.raises(UsageFault, match="t has a context of 8 tokens, fewer than 9"):
        plan_job(small, folders)
    plan_job(replace(small, context_tokens=9), folders)


def test_no_model_gets_more_threads_than_there_are_cores(recipe: Recipe, folders: Folders) -> None:
    eager = replace(recipe, targets={"t": replace(recipe.targets["t"], threads=1024)})
    assert plan_job(eager, folders).models["t"].threads == usable_cores()


def test_r08_available_memory_counts_not_free_memory(
    recipe: Recipe, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def memory(available: int) -> None:
        value = SimpleNamespace(free=420_000, available=available, total=8 << 30)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: value)

    manifests = [folder.manifest for folder in folders.values()]
    # weights of both, and both caches at 250 tokens
    needed = sum(m.resident_weight_bytes + 250 * m.kv_bytes_per_token for m in manifests if m)
    memory(needed)
    plan_job(recipe, folders)
    memory(needed - 1)
    with pytest.raises(EnvironmentFault, match="available"):
        plan_job(recipe, folders)


def test_one_name_for_a_target_and_a_drafter_is_refused(recipe: Recipe, folders: Folders) -> None:
    with pytest.raises(UsageFault, match="'t' names a target and a drafter"):
        plan_job(replace(recipe, drafters={"t": recipe.drafters["ngram"]}), folders)
