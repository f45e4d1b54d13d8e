"""Times as shares of a training: `end: 100%` is the iteration `train.steps`, so that schedules follow its length.

`margin: 2%` of a dataset is none: it stays text, which its type refuses.

`train.shares_of` is another number of iterations to take shares of: a training that ends early has the schedules of a
whole one.
"""

import re
from typing import Any

from figura.base.error_collector import ErrorCollector

FORM = r"^\d+(\.\d+)?%$"
TIMELESS = ("data", "networks", "losses", "metrics")
"""Sections in which only schedules and gates have times."""
TIMES = {"schedule", "every", "after", "before"}


def in_iterations(content: dict[str, Any], errors: ErrorCollector) -> dict[str, Any]:
    """Return a recipe's content with iterations, rounded, in place of shares; `errors` gets those without `steps`."""
    train = content.get("train")
    steps = (train.get("shares_of") or train.get("steps")) if isinstance(train, dict) else None

    def counted(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: counted(part, f"{key}.{name}") for name, part in value.items()}
        if isinstance(value, list):
            return [counted(part, f"{key}.{index}") for index, part in enumerate(value)]
        if not isinstance(value, str) or not re.match(FORM, value) or not _is_time(key):
            return value
        if not isinstance(steps, int) or key in (".train.steps", ".train.shares_of"):
            errors.add(key.lstrip("."), f"found {value!r}, a share of `train.steps`, which is no number of iterations")
            return value
        return round(float(value[:-1]) / 100 * steps)

    return counted(content, "")


def _is_time(key: str) -> bool:
    section, *names = key.lstrip(".").split(".")
    return section not in TIMELESS or not TIMES.isdisjoint(names)
