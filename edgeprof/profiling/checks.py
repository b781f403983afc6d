"""What can be known to go wrong before time is spent: pairs, prompts, room in memory and cache."""

from collections.abc import Mapping

from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.pairing import check_pair
from edgeprof.models.readers.onnx_graph import read_onnx_graph, require_external_data
from edgeprof.profiling.environment import usable_cores
from edgeprof.profiling.messages import DecodeJob, PreparedModel
from edgeprof.profiling.prompts import encode_prompts
from edgeprof.profiling.schedule import model_drafters
from edgeprof.recipe import Recipe, model_uses
from edgeprof.runner.agreement import LEAST_CAPACITY

_CEILING_BYTES = 1_200_000_000  # the largest product of runner.ceiling


def plan_job(recipe: Recipe, folders: Mapping[str, DecoderFolder]) -> DecodeJob:
    """The decoder's job, checked. ``folders`` holds a decoder for every model of the recipe.

    Raises an EdgeprofError that says what to change.
    """
    _check_names(recipe)
    _check_pairs(recipe, folders)
    for key in model_uses(recipe):
        require_external_data(read_onnx_graph(folders[key].onnx_path))
        _check_room(recipe, key, folders[key])
    for key in recipe.targets:
        _check_tests(recipe, key, folders[key])
    prompts = {key: encode_prompts(recipe, folders[key]) for key in recipe.targets}
    _check_drafts_know(recipe, folders, prompts)
    _check_memory(recipe, folders)
    return DecodeJob(recipe=recipe, models=_prepared(recipe, folders), prompts=prompts)


def _check_names(recipe: Recipe) -> None:
    both = sorted(set(recipe.targets) & set(recipe.drafters))
    if both:
        raise UsageFault(f"recipe {recipe.name}: {both[0]!r} names a target and a drafter")


def _check_pairs(recipe: Recipe, folders: Mapping[str, DecoderFolder]) -> None:
    pairs = {
        (variant.target, variant.drafter)
        for variant in recipe.variants
        if variant.drafter in model_drafters(recipe)
    }
    for target, drafter in sorted(pairs):
        check_pair(target, folders[target], drafter, folders[drafter])


def _check_room(recipe: Recipe, key: str, folder: DecoderFolder) -> None:
    """The probe and the held passes fit into the model's cache."""
    pad = folder.manifest.attention_pad if folder.manifest else 0
    room = min(recipe.context_tokens, folder.context_tokens - pad)
    if room < LEAST_CAPACITY:
        raise UsageFault(
            f"recipe {recipe.name}: {key} has a context of {room} tokens, fewer than "
            f"{LEAST_CAPACITY}; raise context_tokens or choose another model"
        )
    if not recipe.verify_tokens:
        return
    largest = max(recipe.verify_tokens) if key in recipe.targets else 1
    needed = recipe.held_context_tokens + largest
    if needed > room:
        raise UsageFault(
            f"recipe {recipe.name}: held passes need a context of {recipe.held_context_tokens} + "
            f"{largest} tokens and {key} has {room}; lower held_context_tokens"
        )


def _check_tests(recipe: Recipe, key: str, folder: DecoderFolder) -> None:
    """The synthetic tests fit into the target's cache."""
    pad = folder.manifest.attention_pad if folder.manifest else 0
    room = min(recipe.context_tokens, folder.context_tokens - pad)
    for test in recipe.tests:
        if test.cached_tokens > room:
            raise UsageFault(
                f"test {test.name} needs a context of {test.cached_tokens} tokens and {key} has "
                f"{room}; choose smaller sizes, or raise context_tokens where the model allows it"
            )


def _check_drafts_know(
    recipe: Recipe,
    folders: Mapping[str, DecoderFolder],
    prompts: Mapping[str, list[list[int]]],
) -> None:
    """A prompt given as ids may name a token that pads the target and that the draft has not."""
    largest = max((max(ids) for encoded in prompts.values() for ids in encoded), default=0)
    for key in model_drafters(recipe):
        if largest >= folders[key].vocab_size:
            raise UsageFault(
                f"a prompt has token {largest}, but draft {key} has a vocabulary of "
                f"{folders[key].vocab_size}; leave the token or the draft out"
            )


def _check_memory(recipe: Recipe, folders: Mapping[str, DecoderFolder]) -> None:
    """Everything resident at once against what programs can have without swapping."""
    import psutil

    models = sum(_resident_bytes(folder, recipe.context_tokens) for folder in folders.values())
    on_cpu = any(use.provider == "cpu" for use in recipe.targets.values())
    needed = max(models, _CEILING_BYTES if recipe.measure_ceiling and on_cpu else 0)
    available = psutil.virtual_memory().available
    if needed > available:
        raise EnvironmentFault(
            f"{needed / 2**30:.2f} GiB of memory are needed and {available / 2**30:.2f} GiB are "
            "available; stop other programs, or choose fewer or smaller models"
        )


def _resident_bytes(folder: DecoderFolder, context_tokens: int) -> int:
    """Weights and cache; where the folder does not tell, the size of its files."""
    if folder.manifest is None:
        return sum(path.stat().st_size for path in folder.path.glob(f"{folder.onnx_path.name}*"))
    tokens = min(context_tokens, folder.context_tokens)
    return folder.manifest.resident_weight_bytes + tokens * folder.manifest.kv_bytes_per_token


def _prepared(recipe: Recipe, folders: Mapping[str, DecoderFolder]) -> dict[str, PreparedModel]:
    """More threads than cores are only in each other's way: there are as many at most."""
    cores = usable_cores()
    return {
        key: PreparedModel(
            role="target" if key in recipe.targets else "draft",
            folder=str(folders[key].path.absolute()),
            source=use.model,
            weights=use.weights,
            provider=use.provider,
            threads=min(use.threads or cores, cores),
        )
        for key, use in model_uses(recipe).items()
    }
