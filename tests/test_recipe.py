"""Recipes: those that ship are sound, and what is wrong with one is told with its place."""

from pathlib import Path

import pytest

from edgeprof.catalog import RECIPES_FOLDER
from edgeprof.errors import FileFault
from edgeprof.recipe import ModelDrafter, NgramDrafter, Recipe, Sampling, override, read_recipe

SHIPPED = sorted(RECIPES_FOLDER.glob("*.toml"))
MINIMAL = """
schema = "edgeprof.recipe/1"
name = "one"
question = "?"
variants = [{target = "t"}]
prompts = [{kind = "chat", text = "hi"}]
targets = {t = {model = "x.gguf"}}
"""


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    path = tmp_path / "one.toml"
    path.write_text(MINIMAL)
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_recipe_is_named_as_its_file(path: Path) -> None:
    assert read_recipe(path).name == path.stem


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_recipe_can_be_compared_and_predicted(path: Path) -> None:
    """Every target runs plain too, and v(n) is held at every pass size that a variant verifies."""
    recipe = read_recipe(path)
    assert {v.target for v in recipe.variants if v.drafter is None} == set(recipe.targets)
    for variant in recipe.variants:
        if variant.draft_tokens is not None:
            assert variant.draft_tokens + 1 in recipe.verify_tokens
    assert 1 in recipe.verify_tokens


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_files_that_a_shipped_recipe_names_ship_with_it(path: Path) -> None:
    recipe = read_recipe(path)
    models = [*recipe.targets.values()]
    models += [d.use() for d in recipe.drafters.values() if isinstance(d, ModelDrafter)]
    for use in models:
        assert use.head_rows is None or (path.parent / use.head_rows).is_file()


def test_the_demo_is_the_contrast_it_promises() -> None:
    demo = read_recipe(RECIPES_FOLDER / "smollm2-135m.toml")
    assert {key: use.weights for key, use in demo.targets.items()} == {
        "fp32": "fp32",
        "int4": "as-is",
    }
    kinds = {type(drafter) for drafter in demo.drafters.values()}
    assert kinds == {ModelDrafter, NgramDrafter}
    for target in demo.targets:
        drafters = {v.drafter for v in demo.variants if v.target == target}
        assert drafters == {None, *demo.drafters}
    assert len({prompt.kind for prompt in demo.prompts}) >= 4
    assert demo.template == (
        "<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_jetson_recipe_runs_on_cuda() -> None:
    recipe = read_recipe(RECIPES_FOLDER / "qwen2.5-7b.toml")
    draft = recipe.drafters["draft"]
    assert isinstance(draft, ModelDrafter)
    assert {use.provider for use in recipe.targets.values()} == {"cuda"} == {draft.provider}


def test_defaults_fill_what_a_recipe_leaves_out(minimal: Path) -> None:
    recipe = read_recipe(minimal)
    assert (recipe.repeats, recipe.template, recipe.drafters) == (3, "{prompt}", {})
    assert recipe.variants[0].name == "t"
    assert recipe.sampling.greedy and recipe.seed == 0


def test_a_drafter_has_its_limits_and_a_variant_may_adapt(minimal: Path) -> None:
    table = 'kind = "model"\nmodel = "d.gguf"\n'
    variant = '{target = "t"}, {target = "t", drafter = "d", draft_tokens = 8, adaptive = true}'
    text = MINIMAL.replace('{target = "t"}', variant)
    minimal.write_text(f"{text}[drafters.d]\n{table}")
    recipe = read_recipe(minimal)
    assert [v.name for v in recipe.variants] == ["t", "t+d k=0-8"]
    drafter = recipe.drafters["d"]
    assert isinstance(drafter, ModelDrafter)
    assert (drafter.threads, drafter.least_confidence) == (2, 0.0)
    minimal.write_text(f"{text}[drafters.d]\n{table}least_confidence = 0.4\nthreads = 3\n")
    drafter = read_recipe(minimal).drafters["d"]
    assert drafter == ModelDrafter(model="d.gguf", least_confidence=0.4, threads=3)


def test_sampling_is_a_table_of_its_own(minimal: Path) -> None:
    minimal.write_text(MINIMAL + "[sampling]\ntemperature = 1\ntop_k = 40\nmin_p = 0.05\n")
    sampling = read_recipe(minimal).sampling
    assert sampling == Sampling(temperature=1.0, top_k=40, top_p=1.0, min_p=0.05)
    assert not sampling.greedy


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("question", "qeustion", "'question'"),
        ('schema = "edgeprof.recipe/1"', 'schema = "edgeprof.recipe/2"', "edgeprof.recipe/2"),
        ('target = "t"}', 'target = "u"}', "'u' is not one of the targets"),
        ('target = "t"}', 'target = "t", drafter = "d", draft_tokens = 2}', "'d' is not defined"),
        ('target = "t"}', 'target = "t", draft_tokens = 2}', "go together"),
        ('[{target = "t"}]', '[{target = "t"}, {target = "t"}]', "listed twice: t"),
        ('[{target = "t"}]', "[]", "variants"),
        ("question", 'template = "no place"\nquestion', "{prompt}"),
        ('name = "one"', 'name = "../one"', "name"),
        ("question", "new_tokens = -1\nquestion", "new_tokens"),
        ("question", "new_tokens = 1000001\nquestion", "1000000"),
        (', text = "hi"', "", "a prompt has one of text, file and ids"),
        ('text = "hi"', 'text = "hi", ids = [1]', "a prompt has one of text, file and ids"),
        ('text = "hi"', "ids = []", "length >= 1"),
        ('text = "hi"', "ids = [-1]", ">= 0"),
        ('[{kind = "chat", text = "hi"}]', "[]", "nothing to run: give prompts or tests"),
        ("question", "tests = [{new_tokens = 0}]\nquestion", "either prompt_tokens or new_tokens"),
        (
            "question",
            "tests = [{new_tokens = 1, prompt_tokens = 1}]\nquestion",
            "either prompt_tokens or new_tokens",
        ),
        ("question", "tests = [{new_tokens = 1, depth = 4}]\nquestion", "'depth_tokens'"),
        ("question", 'chat = true\ntemplate = "U: {prompt}"\nquestion', "leave out template"),
        ("question", 'system = "Be brief."\nquestion', "set chat = true"),
        ("question", "verify_tokens = [0]\nquestion", "verify_tokens"),
        ('model = "x.gguf"', 'model = "x.gguf", threads = 0', "threads"),
        ("question", "seed = 18446744073709551616\nquestion", "seed"),
        (
            "question",
            'drafters.n = {kind = "ngram", longest = 2, shortest = 5}\nquestion',
            "shortest is 5, more than longest, 2",
        ),
        ('model = "x.gguf"', 'model = "x.gguf", provider = "tpu"', "tpu"),
        ("question", "sampling.temperature = -0.1\nquestion", "-0.1, allowed is from 0 to 100"),
        ("question", "sampling.temperature = 101\nquestion", "101.0, allowed is from 0 to 100"),
        ("question", "sampling.temperature = nan\nquestion", "nan, allowed is from 0 to 100"),
        ("question", "sampling.top_k = -1\nquestion", "top_k is -1, allowed is from 0"),
        ("question", "sampling.top_p = 0\nquestion", "above 0 and up to 1"),
        ("question", "sampling.top_p = 1.01\nquestion", "above 0 and up to 1"),
        ("question", "sampling.min_p = 1\nquestion", "to below 1"),
        ("question", "sampling.min_p = inf\nquestion", "to below 1"),
        ("question", "sampling.topk = 1\nquestion", "did you mean 'top_k'"),
        ("schema", "= schema", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_told_with_its_file(minimal: Path, old: str, new: str, says: str) -> None:
    minimal.write_text(MINIMAL.replace(old, new, 1))
    with pytest.raises(FileFault) as caught:
        read_recipe(minimal)
    message = str(caught.value)
    assert says in message and "one.toml" in message and "\n" not in message


def test_overrides_are_checked_too(minimal: Path) -> None:
    recipe: Recipe = read_recipe(minimal)
    assert override(recipe, repeats=7, new_tokens=None).repeats == 7
    with pytest.raises(FileFault, match="repeats"):
        override(recipe, repeats=0)


def test_a_recipe_may_consist_of_synthetic_tests(minimal: Path) -> None:
    tests = "tests = [{prompt_tokens = 512}, {new_tokens = 128, depth_tokens = 4096}]\n"
    minimal.write_text(tests + MINIMAL.replace('prompts = [{kind = "chat", text = "hi"}]\n', ""))
    recipe = read_recipe(minimal)
    assert [test.name for test in recipe.tests] == ["pp512", "tg128@d4096"]
    assert [test.cached_tokens for test in recipe.tests] == [512, 4224]
    assert recipe.prompts == []


def test_r26_a_prompt_may_be_token_0_alone(minimal: Path) -> None:
    minimal.write_text(MINIMAL.replace('text = "hi"', "ids = [0]"))
    assert read_recipe(minimal).prompts[0].ids == [0]
