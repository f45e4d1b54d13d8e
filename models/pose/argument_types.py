"""Arguments that classes of this system share: numbers in a range, the kind of a field, skeleton, and categories.

`figura.recipe.types` checks arguments against their types, ranges included.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from figura.formats.skeletons import COCO, Skeleton, skeleton_from

Kind = Literal["cif", "caf", "cifdet"]  # of composite fields: joints, connections of joints, boxes

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


def categories_from(settings: Sequence[Mapping[str, Any]] | None) -> dict[int, str]:
    """Return id -> name of a list of `{id: 1, name: person}`, in the order of the detection fields. None is empty.

    Ids may have gaps (COCO's 80 categories have ids from 1 to 90). Other keys are ignored.

    Raises:
        ValueError: an entry without an integer id or a string name, or a duplicate id.
    """
    names: dict[int, str] = {}
    for entry in settings or ():
        number, name = entry.get("id"), entry.get("name")
        if type(number) is not int or not isinstance(name, str):
            raise ValueError(f"categories: found {dict(entry)}; a map such as {{id: 1, name: person}} is needed")
        if number in names:
            raise ValueError(f"categories: the id {number} occurs more than once")
        names[number] = name
    return names
