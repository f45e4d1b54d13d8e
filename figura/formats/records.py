"""Numbers, ids and sizes in records of annotations."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

LARGEST_ID = 2**63 - 1
_SHOWN = 300  # characters of a detail
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMBERS = {int, float}
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}(\.0*)?")


class UnusableError(Exception):
    """A record that cannot be used; `detail` has at most 300 characters."""

    def __init__(self, reason: str, detail: object = "") -> None:
        text = str(detail)
        self.reason, self.detail = reason, text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        super().__init__(reason, self.detail)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Size(NamedTuple):
    """Width and height of an image, pixels."""

    width: int
    height: int


def whole_number(value: Any) -> int | None:
    """Return a whole number of at most 64 bits, also of `12.0` and `"12"`; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        value = int(text.partition(".")[0]) if _WHOLE.fullmatch(text) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and abs(value) <= LARGEST_ID else None


def real_number(value: Any) -> float | None:
    """Return a finite number, also of a text; None for anything else."""
    try:
        if isinstance(value, str):
            text = value.strip()
            value = float(text) if len(text) < 100 and _NUMBER.fullmatch(text) else None
        return value if type(value) in (int, float) and math.isfinite(value) else None
    except (ValueError, OverflowError):
        return None


def real_numbers(values: Any) -> list[float] | None:
    """Return a list of finite numbers, also of texts; None for anything else."""
    numbers: list[Any] = _numbers(values) if isinstance(values, list) else [None]
    return None if None in numbers else list(numbers)


def _numbers(values: list[Any]) -> list[Any]:
    """Return finite numbers, also of texts; None for each other value."""
    return values if is_finite(values) else [real_number(one) for one in values]


def is_finite(numbers: Iterable[Any], farthest: float = math.inf) -> bool:
    """Return whether all are finite numbers in [-`farthest`, `farthest`].

    Strings, booleans and integers too large for a float are not numbers.
    """
    numbers = numbers if isinstance(numbers, list) else list(numbers)
    try:
        finite = {*map(type, numbers)} <= _NUMBERS and all(map(math.isfinite, numbers))
    except OverflowError:
        return False
    return finite and (farthest == math.inf or max(map(abs, numbers), default=0) <= farthest)


def numbered_apart(used: set[int | None], known: set[int]) -> str:
    """Return what is wrong if records count classes from 0 or 1, and the list of these otherwise; else an empty text.

    Most records would have the class of a neighbour. `used` are their numbers, `known` those of the list.
    """
    numbers = {one for one in used if one is not None}
    if numbers <= known or not any(numbers <= {*range(first, first + len(known))} for first in (0, 1)):
        return ""
    first, second = (" to ".join(map(str, sorted({min(of), max(of)}))) for of in (numbers, known))
    return f"{first}, and there are {second}: they count from different numbers; make them count from the same"


def check_id(record: Any) -> int:
    """Return the record's id; raises UnusableError if it is not a 64-bit integer."""
    if not isinstance(record, dict):
        raise UnusableError("not an object", repr(record)[:80])
    number = record.get("id")
    if type(number) is not int or abs(number) > LARGEST_ID:
        raise UnusableError("id is not a whole number", repr(number)[:80])
    return number


def check_size(record: Mapping[str, Any]) -> Size:
    """Return the size in an image's record; raises UnusableError unless both sides are in [1, 65535]."""
    size = Size(record.get("width"), record.get("height"))  # type: ignore[arg-type]
    if not all(type(side) is int and 0 < side < 2**16 for side in size):
        sides = f"width {repr(size.width)[:80]}, height {repr(size.height)[:80]}"
        raise UnusableError("image size is not two whole numbers", f"{sides}; each must be from 1 to {2**16 - 1}")
    return size
