"""Arguments that classes of this system share: numbers in a range, the kind of a field, skeleton, and categories.

`figura.recipe.types` checks arguments against their types, ranges included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from figura.data.formats.skeletons import COCO, Skeleton, skeleton_from

Kind = Literal["cif", "caf", "cifdet"]
"""Of composite fields: joints, connections of joints, boxes."""

Count = Annotated[int, Field(ge=1)]
Side = Annotated[int, Field(ge=2)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Deviations = tuple[Positive, Positive, Positive]
Distances = Annotated[tuple[Positive, ...], Field(min_length=1)]


def skeleton_of(settings: Mapping[str, Any] | None) -> Skeleton:
    """Return the skeleton of the argument `skeleton`, a map for `skeleton_from`; None is COCO's."""
    return COCO if settings is None else skeleton_from(settings)


@dataclass(frozen=True)
class Categories:
    """The category of each detection field: field f is that at index f of a list of `{id, name}`.

    Attributes:
        ids: of the dataset's annotations; they may have gaps (COCO's 80 categories have ids from 1 to 90).
        names: of the same categories.
    """

    ids: tuple[int, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def fields(self) -> dict[int, int]:
        """Category id -> field."""
        return {number: field for field, number in enumerate(self.ids)}

    @property
    def by_id(self) -> dict[int, str]:
        """Category id -> name."""
        return dict(zip(self.ids, self.names, strict=True))


def categories_from(settings: Sequence[Mapping[str, Any]] | None) -> Categories:
    """Read a list of `{id: 1, name: person}`, in the order of the fields; other keys are ignored. None is empty.

    Raises:
        ValueError: an entry without an integer id or a string name, or a duplicate id.
    """
    entries = list(settings or ())
    for entry in entries:
        if type(entry.get("id")) is not int or not isinstance(entry.get("name"), str):
            raise ValueError(f"categories: found {dict(entry)}; a map such as {{id: 1, name: person}} is needed")
    ids = tuple(entry["id"] for entry in entries)
    for number in ids:
        if ids.count(number) > 1:
            raise ValueError(f"categories: the id {number} occurs more than once")
    return Categories(ids, tuple(entry["name"] for entry in entries))
