"""The prompts of a recipe as the model gets them: wrapped in the template, as tokens."""

from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.recipe import Recipe


def render(recipe: Recipe, index: int) -> str:
    """The text of a prompt inside the recipe's template."""
    return recipe.template.replace("{prompt}", recipe.prompts[index].text)


def encode_prompts(recipe: Recipe, folder: DecoderFolder) -> list[list[int]]:
    """The tokens of every prompt for one target.

    Raises UsageFault for a prompt that is empty or leaves no room for an answer, FileFault where
    the tokenizer and the model do not belong together.
    """
    tokenizer = Tokenizer(folder)
    pad = folder.manifest.attention_pad if folder.manifest else 0
    capacity = min(recipe.context_tokens, folder.context_tokens - pad)
    encoded = []
    for index, prompt in enumerate(recipe.prompts):
        tokens = tokenizer.encode(render(recipe, index))
        where = f"prompt {index + 1} ({prompt.kind})"
        if not tokens:
            raise UsageFault(f"{where} has no tokens; write a text, or a template that adds one")
        if len(tokens) >= capacity:
            raise UsageFault(
                f"{where} has {len(tokens)} tokens and leaves no room in a context of {capacity}; "
                "shorten it or raise context_tokens"
            )
        if max(tokens) >= folder.vocab_size:
            raise FileFault(
                f"{folder.tokenizer_path}: gives token {max(tokens)}, but the model has a "
                f"vocabulary of {folder.vocab_size}"
            )
        encoded.append(tokens)
    return encoded
