"""Ranges of arguments that systems share; `figura.recipe.types` checks arguments of a recipe against their types."""

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=1)]
Sides = Count | tuple[Count, Count]  # of a square, or (height, width), pixels
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]  # of dropout
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


def sides(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return (height, width)."""
    return (size, size) if isinstance(size, int) else size
