"""What can be known to go wrong before time is spent: graphs, pairs, prompts, providers, memory."""

from collections.abc import Mapping

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.hardware.machine import usable_cores
from edgeprof.hardware.memory_state import read_memory_state
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.pairing import check_pair
from edgeprof.models.readers.onnx_graph import OnnxGraph, read_onnx_graph, require_external_data
from edgeprof.profiling.memory_need import MemoryNeed, job_need, model_need
from edgeprof.profiling.messages import DecodeJob, PreparedModel
from edgeprof.profiling.prompts import encode_prompts
from edgeprof.profiling.provider_check import require_providers
from edgeprof.profiling.schedule import model_drafters
from edgeprof.recipe import Recipe, cache_tokens, model_uses
from edgeprof.runner.agreement import LEAST_CAPACITY
from edgeprof.runner.graph_layout import foreign_operators, read_layout
from edgeprof.runner.ort_model import usable_capacity

_CEILING_BYTES = 1_200_000_000  # the largest product of runner.ceiling


def plan_job(recipe: Recipe, folders: Mapping[str, DecoderFolder]) -> DecodeJob:
    """The decoder's job, checked. ``folders`` holds a decoder for every model of the recipe.

    Raises an EdgeprofError that says what to change.
    """
    _check_names(recipe)
    _check_pairs(recipe, folders)
    uses = model_uses(recipe)
    graphs = {key: read_onnx_graph(folders[key].onnx_path) for key in uses}
    for key, use in uses.items():
        require_external_data(graphs[key])
        if use.provider == "tensorrt":
            _check_standard(graphs[key])
        _check_room(recipe, key, folders[key])
    for key in recipe.targets:
        _check_tests(recipe, key, folders[key])
    prompts = {key: encode_prompts(recipe, folders[key]) for key in recipe.targets}
    _check_drafts_know(recipe, folders, prompts)
    longest = max((len(tokens) for encoded in prompts.values() for tokens in encoded), default=0)
    needs = [_need(recipe, key, folders[key], graphs[key], longest) for key in uses]
    _check_memory(recipe, job_need(needs, [use.provider for use in uses.values()]))
    require_providers({use.provider for use in uses.values()})
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
    room = usable_capacity(folder, cache_tokens(recipe, key))
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
    room = usable_capacity(folder, recipe.context_tokens)
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


def _check_standard(graph: OnnxGraph) -> None:
    """TensorRT knows the operators of the standard and none of onnxruntime's own."""
    if foreign := foreign_operators(graph):
        listed = ", ".join(f"{kind} ({count})" for kind, count in sorted(foreign.items())[:8])
        raise FileFault(
            f"{graph.path}: TensorRT takes standard operators only, and it has {listed}; export it "
            "without them, as optimum does, or take provider cuda"
        )


def _need(
    recipe: Recipe, key: str, folder: DecoderFolder, graph: OnnxGraph, longest: int
) -> MemoryNeed:
    """Of one model; its layout is read for it, so that one which is not served ends here."""
    return model_need(
        graph,
        read_layout(graph, folder),
        slots=min(cache_tokens(recipe, key), folder.context_tokens),
        prompt_tokens=min(longest, recipe.prefill_tokens),
        vocab_size=folder.vocab_size,
    )


def _check_memory(recipe: Recipe, need: MemoryNeed) -> None:
    """Everything resident at once against what programs can have without swapping."""
    import psutil

    on_cpu = any(use.provider == "cpu" for use in recipe.targets.values())
    ceiling_bytes = _CEILING_BYTES if recipe.measure_ceiling and on_cpu else 0
    needed = max(need.total_bytes, ceiling_bytes)
    available = psutil.virtual_memory().available
    left = read_memory_state().available_bytes  # of a container with a limit, that
    available = available if left is None else min(available, left)
    if needed <= available:
        return
    what = f"{need}" if need.total_bytes >= ceiling_bytes else "to measure the ceilings"
    raise EnvironmentFault(
        f"{needed / 2**30:.2f} GiB of memory are needed ({what}) and {available / 2**30:.2f} GiB "
        "are available; stop other programs, lower context_tokens, or choose fewer or smaller "
        "models"
    )


def _prepared(recipe: Recipe, folders: Mapping[str, DecoderFolder]) -> dict[str, PreparedModel]:
    """More threads than cores are only in each other's way: there are as many at most."""
    cores = usable_cores()
    return {
        key: PreparedModel(
            role="target" if key in recipe.targets else "draft",
            folder=str(folders[key].location.absolute()),
            source=use.model,
            weights=use.weights,
            provider=use.provider,
            provider_settings=use.provider_settings,
            threads=min(use.threads or cores, cores),
        )
        for key, use in model_uses(recipe).items()
    }
