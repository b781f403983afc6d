"""What a model name means: ``NAME``, ``NAME:FORMAT``, ``NAME-FORMAT`` or a short name such as
``7b-q4``. A short name always resolves to one model in one format, and the caller says which."""

from collections.abc import Mapping

from msgspec import Struct

from edgeprof.models.quantisation import FormatTable
from edgeprof.models.shape import ModelShape
from edgeprof.naming import find_name, name_key

DEFAULT_FORMAT = "q4_k_m"


class ModelTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that the models file says."""

    aliases: dict[str, str]
    models: dict[str, ModelShape]


class ModelName(Struct, frozen=True, kw_only=True):
    """What a name stood for; a part that is not known is None."""

    asked: str
    model: str | None
    quantisation: str | None

    @property
    def full(self) -> str:
        return f"{self.model}:{self.quantisation}"

    @property
    def is_short(self) -> bool:
        """Whether the name left something to be looked up."""
        return name_key(self.asked.replace(":", "-")) != name_key(self.full.replace(":", "-"))


def resolve_model_name(text: str, models: ModelTable, formats: FormatTable) -> ModelName:
    """Reads a name; the part behind the last colon is a format, else the longest ending that is."""
    name, colon, form = text.rpartition(":")
    if colon:
        return ModelName(
            asked=text,
            model=_look_up(name, models.models, models.aliases),
            quantisation=_look_up(form, formats.formats, formats.aliases),
        )
    whole = _look_up(text, models.models, models.aliases)
    if whole is not None:
        return ModelName(asked=text, model=whole, quantisation=DEFAULT_FORMAT)
    for end in range(1, len(text)):
        if text[end] == "-":
            model = _look_up(text[:end], models.models, models.aliases)
            quantisation = _look_up(text[end + 1 :], formats.formats, formats.aliases)
            if model is not None and quantisation is not None:
                return ModelName(asked=text, model=model, quantisation=quantisation)
    return ModelName(asked=text, model=None, quantisation=None)


def _look_up(name: str, known: Mapping[str, object], aliases: Mapping[str, str]) -> str | None:
    alias = find_name(name, aliases)
    return find_name(name, known) if alias is None else aliases[alias]
