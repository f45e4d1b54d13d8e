"""Reads the file of tolerances: how far a rerun's metric may be from the committed one, and in which direction.

The file maps patterns of metric names to rules. A name is the metrics file without folder and suffix, then the keys,
joined by dots: `vunet.reconstruction.l1` is `reconstruction.l1` in `metrics/full/vunet.json`. In a pattern, `*` matches
any text, dots included. If several patterns match a name, only the one with the most other characters applies.

A rule is `exact`, `ignore`, or a map of

- `interval`: a multiple of the half-width of the committed bootstrap interval, (`high` - `low`) / 2; where all examples
  agree, the interval has no width, and 0.0001 of the value is left for rounding on another processor,
- `relative`: a multiple of the committed value's magnitude,
- `absolute`: in the metric's own unit,
- `direction`: `both` (the default), `higher_is_better` or `lower_is_better`; the latter two limit only changes for the
  worse.

If a rule gives several widths, the widest applies. A count (an integer without an interval) must be identical if its
rule gives only `interval`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError, nearest
from figura.base.validation import validated
from figura.base.yaml12 import read_yaml

ROUNDING = 1e-4  # relative
Width = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Tolerance(BaseModel):
    """One rule; a width that it does not give is None."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    absolute: Width | None = None
    relative: Width | None = None
    interval: Width | None = None
    direction: Literal["both", "higher_is_better", "lower_is_better"] = "both"

    @model_validator(mode="after")
    def _has_a_width(self) -> "Tolerance":
        if self.absolute is self.relative is self.interval is None:
            raise ValueError("no width; one of absolute, relative, interval is needed")
        return self

    def width(self, value: float, half_width: float | None) -> float | None:
        """Return the allowed distance from the committed `value`, a finite number, in its unit.

        None if the rule gives only `interval` and the metric has none; for a count it is then 0.
        """
        widths = [self.absolute, None if self.relative is None else self.relative * abs(value)]
        if self.interval is not None and half_width is not None:
            widths.append(max(self.interval * half_width, ROUNDING * abs(value) if self.interval else 0.0))
        known = [width for width in widths if width is not None and math.isfinite(width)]
        return max(known, default=0.0 if isinstance(value, int) else None)

    def forgives(self, difference: float) -> bool:
        """Whether a change (reproduced - committed) is for the better under a one-sided rule."""
        return difference > 0 if self.direction == "higher_is_better" else self.direction != "both" and difference < 0


WORDS: dict[str, Tolerance | None] = {"exact": Tolerance(absolute=0.0), "ignore": None}


@dataclass(frozen=True)
class Tolerances:
    """The rules of a file, by pattern; None means that matching metrics are not compared."""

    path: Path
    rules: Mapping[str, Tolerance | None]

    def pattern(self, name: str) -> str:
        """Return the pattern that applies to a metric. Raises UserError if none matches, or two match equally well."""
        fitting = sorted((one for one in self.rules if fits(one, name)), key=specificity, reverse=True)
        if not fitting:
            raise UserError(f"{self.path}: no pattern fits the metric {name}; '*' fits all")
        if len(fitting) > 1 and specificity(fitting[0]) == specificity(fitting[1]):
            raise UserError(
                f"{self.path}: {fitting[0]!r} and {fitting[1]!r} fit the metric {name} equally well; lengthen one"
            )
        return fitting[0]

    def check_used(self, names: Iterable[str], empty: Iterable[str]) -> None:
        """Raise UserError with a line for each pattern that matches no metric, unless it begins with a file's name and
        a dot, and that file is among the `empty` ones.
        """
        known = list(names)
        errors = ErrorCollector(self.path)
        for pattern in self.rules:
            without = pattern.startswith(tuple(f"{file}." for file in empty))
            if not without and not any(fits(pattern, name) for name in known):
                errors.add(pattern, f"fits no metric{nearest(pattern, known)}")
        errors.raise_any()


def read_tolerances(path: Path) -> Tolerances:
    """Read and check a file of tolerances. Raises UserError that lists every fault in it."""
    errors = ErrorCollector(path)
    rules = {pattern: _rule(pattern, content, errors) for pattern, content in read_yaml(path).items()}
    errors.raise_any()
    return Tolerances(path, rules)


def _rule(pattern: str, content: Any, errors: ErrorCollector) -> Tolerance | None:
    if isinstance(content, dict):
        return validated(Tolerance, content, errors, pattern)
    if isinstance(content, str) and content in WORDS:
        return WORDS[content]
    keys = ", ".join(Tolerance.model_fields)
    errors.add(pattern, f"found {content!r}; expected {', '.join(WORDS)} or a map of {keys}")
    return None


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern matches a metric's name."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def specificity(pattern: str) -> int:
    """Return the number of characters that a pattern fixes."""
    return len(pattern.replace("*", ""))
