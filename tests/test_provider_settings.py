"""What a recipe may ask of a provider."""

from pathlib import Path

import pytest

from edgeprof.errors import FileFault
from edgeprof.provider_settings import ProviderSettings
from edgeprof.recipe import ModelDrafter, Recipe, model_uses, read_recipe

RECIPE = """
schema = "edgeprof.recipe/1"
name = "pair"
question = "?"
prompts = [{kind = "chat", text = "x"}]

[[variants]]
target = "t"
drafter = "d"
draft_tokens = 2

[targets.t]
model = "big"
TARGET

[drafters.d]
kind = "model"
model = "small"
DRAFT
"""


def recipe(path: Path, target: str, draft: str = "") -> Recipe:
    path.write_text(RECIPE.replace("TARGET", target).replace("DRAFT", draft))
    return read_recipe(path)


def test_target_and_draft_may_run_on_different_providers(tmp_path: Path) -> None:
    target = (
        'provider = "tensorrt"\n'
        'provider_settings = {fp16 = true, engine_cache = "e", memory_limit_bytes = 2000000000}'
    )
    read = recipe(
        tmp_path / "r.toml", target, 'provider = "cuda"\nprovider_settings.fallback = true'
    )
    uses = model_uses(read)
    assert {key: use.provider for key, use in uses.items()} == {"t": "tensorrt", "d": "cuda"}
    assert uses["t"].provider_settings == ProviderSettings(
        fp16=True, engine_cache="e", memory_limit_bytes=2_000_000_000
    )
    assert isinstance(read.drafters["d"], ModelDrafter)
    assert uses["d"].provider_settings.fallback


def test_the_default_is_the_cpu_without_settings(tmp_path: Path) -> None:
    use = recipe(tmp_path / "r.toml", "").targets["t"]
    assert (use.provider, use.provider_settings) == ("cpu", ProviderSettings())


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("provider_settings.fp16 = true", "fp16 is for tensorrt, the provider is cpu"),
        ("provider_settings.fallback = true", "fallback is for cuda and tensorrt"),
        (
            'provider = "tensorrt"\nprovider_settings.cuda_graph = true',
            "cuda_graph is for cuda, the provider is tensorrt",
        ),
        ('provider = "cuda"\nprovider_settings.fp17 = true', "fp17"),
        ('provider = "cuda"\nprovider_settings.arena = "doubling"', "arena"),
        ('provider = "cuda"\nprovider_settings.memory_limit_bytes = 1', "memory_limit_bytes"),
        ('provider = "tensorrt"\nprovider_settings.engine_cache = ""', "engine_cache"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(tmp_path: Path, target: str, says: str) -> None:
    with pytest.raises(FileFault) as told:
        recipe(tmp_path / "r.toml", target)
    assert says in str(told.value) and "r.toml" in str(told.value)
