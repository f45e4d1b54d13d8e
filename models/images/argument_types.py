"""Ranges of arguments that systems share; `figura.recipe.types` checks arguments of a recipe against their types."""

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=1)]
Sides = Count | tuple[Count, Count]  # of a square, or (height, width), pixels
Load = Sides | Annotated[float, Field(gt=1.0, lt=4.0)]  # of pictures before a crop; a fraction is a factor of its sides
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]  # of dropout
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


def sides(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return (height, width)."""
    return (size, size) if isinstance(size, int) else size


def crop_and_load(crop_size: Sides, load_size: Load | None) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (height, width) of crops, and of the pictures that they are cut from: by default the same.

    Raises ValueError for a crop larger than the picture.
    """
    crop = sides(crop_size)
    if isinstance(load_size, float):
        return crop, (round(load_size * crop[0]), round(load_size * crop[1]))
    load = crop if load_size is None else sides(load_size)
    if any(one > whole for one, whole in zip(crop, load, strict=True)):
        raise ValueError(f"crop_size {crop_size}: at most load_size, {load_size}, is needed in both directions")
    return crop, load
