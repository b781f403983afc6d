"""Gathers the tensors of a file into weight groups: like ones are counted, none is lost."""

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from edgeprof.models.quantisation import Role, StorageType
from edgeprof.models.spec import ExpertUse, WeightGroup


class TensorGroups:
    """Tensors by role, type and size, in the order in which the first of each came."""

    def __init__(self) -> None:
        self._groups: dict[tuple[object, ...], WeightGroup] = {}
        self._counts: Counter[tuple[object, ...]] = Counter()

    def add(
        self,
        role: Role,
        storage_name: str,
        storage: StorageType,
        *,
        rows: int,
        columns: int,
        count: int = 1,
        experts: ExpertUse | None = None,
        stored_bytes: int | None = None,
    ) -> None:
        """``count`` equal matrices; ``stored_bytes`` is what one of them occupies."""
        if not (rows and columns and count):
            return  # an empty tensor is no weight
        group = WeightGroup(
            role=role,
            storage_name=storage_name,
            storage=storage,
            count=1,
            rows=rows,
            columns=columns,
            experts=experts,
            stored_bytes=stored_bytes,
        )
        key = (role, storage_name, rows, columns, experts, stored_bytes)
        self._groups.setdefault(key, group)
        self._counts[key] += count

    def build(self) -> tuple[WeightGroup, ...]:
        return tuple(
            WeightGroup(
                role=group.role,
                storage_name=group.storage_name,
                storage=group.storage,
                count=self._counts[key],
                rows=group.rows,
                columns=group.columns,
                experts=group.experts,
                stored_bytes=None
                if group.stored_bytes is None
                else group.stored_bytes * self._counts[key],
            )
            for key, group in self._groups.items()
        )


def missing_layers(path: Path, found: Collection[int], layers: int) -> Iterator[str]:
    """A warning where layers have no tensor, as when one part of a model was fetched alone."""
    missing = sum(layer not in found for layer in range(layers))
    if missing:
        yield (
            f"{path}: {missing} of {layers} layers have no weights here: part of the model is "
            "missing, and its bytes are NOT counted"
        )


def main_storage(groups: tuple[WeightGroup, ...]) -> str:
    """The type that most bytes are stored in: a name for a file that does not name its format."""
    sizes: Counter[str] = Counter()
    for group in groups:
        sizes[group.storage_name] += group.bytes
    return sizes.most_common(1)[0][0] if sizes else "none"
