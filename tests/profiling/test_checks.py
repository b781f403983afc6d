"""What is refused before time is spent."""

from pathlib import Path
from types import SimpleNamespace

import onnx
import psutil
import pytest
from msgspec.structs import replace
from tiny_decoder import Decoder, write_folder

from edgeprof.analysis.memory import RUNTIME_BYTES
from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.hardware.machine import usable_cores
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.readers.onnx_graph import read_onnx_graph
from edgeprof.profiling.checks import plan_job
from edgeprof.profiling.memory_need import MemoryNeed, job_need, model_need
from edgeprof.provider_settings import ProviderName
from edgeprof.recipe import Prompt, Recipe, SyntheticTest
from edgeprof.runner.graph_layout import read_layout

Folders = dict[str, DecoderFolder]


def prompted(recipe: Recipe, text: str) -> Recipe:
    return replace(recipe, prompts=[Prompt(kind="chat", text=text)])


def test_a_job_holds_models_threads_and_tokens(recipe: Recipe, folders: Folders) -> None:
    job = plan_job(recipe, folders)
    assert {key: (m.role, m.threads) for key, m in job.models.items()} == {
        "t": ("target", 1),
        "d": ("draft", min(2, usable_cores())),
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


def only_available(monkeypatch: pytest.MonkeyPatch, available_bytes: int) -> None:
    value = SimpleNamespace(free=420_000, available=available_bytes, total=8 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: value)


def test_r08_r05_available_memory_counts_not_free_memory(
    recipe: Recipe, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = [
        tensor
        for folder in folders.values()
        for tensor in onnx.load(folder.onnx_path).graph.initializer
    ]
    weights = sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in tensors)
    # keys and values of 2 heads of 16 floats, 250 slots: 4 layers of the target, 1 of the draft
    caches = 250 * (4 + 1) * 2 * 2 * 16 * 4
    logits = 2 * 300 * 4  # both graphs are told that one row is wanted
    process = 64 << 20
    needed = weights + caches + logits + process
    only_available(monkeypatch, needed)
    plan_job(recipe, folders)
    only_available(monkeypatch, needed - 1)
    with pytest.raises(EnvironmentFault, match=r"GiB for weights, .* GiB for caches, .* available"):
        plan_job(recipe, folders)


def test_r05_a_cuda_runtime_is_part_of_the_need() -> None:
    nothing = MemoryNeed(weights_bytes=0, cache_bytes=0, logits_bytes=0, runtime_bytes=0)
    small = replace(nothing, weights_bytes=27 << 20)
    on_cpu, on_gpu = job_need([small], ["cpu"]), job_need([small], ["cpu", "cuda"])
    assert on_gpu.total_bytes - on_cpu.total_bytes == RUNTIME_BYTES > 10 * small.weights_bytes
    assert "0.56 GiB for the runtime" in str(on_gpu)  # 0.5 and the process's 64 MiB


def test_logits_of_a_whole_prompt_count_where_the_graph_gives_them(tmp_path: Path) -> None:
    def need(spec: Decoder) -> MemoryNeed:
        folder = write_folder(spec, tmp_path / str(spec.rows))
        graph = read_onnx_graph(folder.onnx_path)
        layout = read_layout(graph, folder)
        return model_need(graph, layout, slots=10, prompt_tokens=100, vocab_size=40)

    assert need(Decoder(rows=True)).logits_bytes == 40 * 4
    whole = need(Decoder())
    assert whole.logits_bytes == 100 * 40 * 4
    # two layers, keys and values, 2 heads of 16 floats, past and present
    assert whole.cache_bytes == 10 * 2 * 2 * 2 * 16 * 4 * 2


def test_a_pass_of_the_prompt_is_what_logits_are_needed_for(
    recipe: Recipe, optimum: DecoderFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph gives logits for every row: 304 columns in float32."""

    def needed(prefill_tokens: int) -> int:
        lowest, highest = 0, 1 << 30
        while highest - lowest > 1:  # what is available and enough
            middle = (lowest + highest) // 2
            only_available(monkeypatch, middle)
            try:
                plan_job(replace(asked, prefill_tokens=prefill_tokens), {"t": optimum})
                highest = middle
            except EnvironmentFault:
                lowest = middle
        return highest

    asked = on(replace(recipe, prompts=[Prompt(kind="a", ids=[7] * 200)]), "cpu")
    assert needed(512) - needed(10) == (200 - 10) * 304 * 4


def on(recipe: Recipe, provider: ProviderName) -> Recipe:
    targets = {"t": replace(recipe.targets["t"], provider=provider)}
    plain = [variant for variant in recipe.variants if variant.drafter is None]
    return replace(recipe, targets=targets, drafters={}, variants=plain)


def test_tensorrt_is_refused_for_graphs_with_operators_of_others(
    recipe: Recipe, folders: Folders
) -> None:
    with pytest.raises(FileFault, match=r"standard operators only.*GroupQueryAttention \(4\)"):
        plan_job(on(recipe, "tensorrt"), folders)


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_does_not_work_ends_the_run_before_it_starts(
    recipe: Recipe, optimum: DecoderFolder, provider: ProviderName
) -> None:
    with pytest.raises(EnvironmentFault, match=f"provider '{provider}' is not usable here: "):
        plan_job(on(recipe, provider), {"t": optimum})


def test_m28_weights_that_are_missing_or_cut_short_are_named_with_their_bytes(
    recipe: Recipe, optimum: DecoderFolder
) -> None:
    write_folder(Decoder(vocab=300, columns=304, context=256), optimum.path, external=True)
    data = optimum.path / "model.onnx_data"
    plan_job(on(recipe, "cpu"), {"t": optimum})
    content = data.read_bytes()
    data.write_bytes(content[:-7])
    with pytest.raises(
        FileFault, match=r"model.onnx_data is truncated: 7 of \d+ bytes are missing"
    ):
        plan_job(on(recipe, "cpu"), {"t": optimum})
    data.unlink()
    with pytest.raises(FileFault, match=r"model.onnx_data is missing \(\d+ bytes\)"):
        plan_job(on(recipe, "cpu"), {"t": optimum})


def test_m30_a_graph_that_cannot_be_fed_ends_the_run_before_it_starts(
    recipe: Recipe, optimum: DecoderFolder
) -> None:
    spec = Decoder(vocab=300, columns=304, context=256, debris="onnx::Neg_50")
    write_folder(spec, optimum.path)
    with pytest.raises(FileFault, match=r"model.onnx: needs 'onnx::Neg_50'"):
        plan_job(on(recipe, "cpu"), {"t": optimum})


def test_one_name_for_a_target_and_a_drafter_is_refused(recipe: Recipe, folders: Folders) -> None:
    with pytest.raises(UsageFault, match="'t' names a target and a drafter"):
        plan_job(replace(recipe, drafters={"t": recipe.drafters["ngram"]}), folders)
