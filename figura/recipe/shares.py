"""Times as shares of a training: `end: 100%` is the iteration `train.steps`, so that schedules follow its length.

`margin: 2%` of a dataset is none: it stays text, which its type refuses.

`train.shares_of` is another number of iterations to take shares of: a training that ends early has the schedules of a
whole one.
"""

import re
from typing import Any

from figura.base.error_collector import ErrorCollector

FORM = r"^\d+(\.\d+)?%$"
TIMELESS = ("data", "networks", "losses", "metrics")  # sections in which only schedules and gates have times
TIMES = {"schedule", "every", "after", "before"}


def in_iterations(content: dict[str, Any], errors: ErrorCollector) -> dict[str, Any]:
    """Return a recipe's content with iterations, rounded, in place of shares; without `steps`, an error."""
    train = content.get("train")
    train = train if isinstance(train, dict) else {}
    steps, lacking = train.get("shares_of") or train.get("steps"), list[str]()

    def counted(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: counted(part, f"{key}.{name}") for name, part in value.items()}
        if isinstance(value, list):
            return [counted(part, f"{key}.{index}") for index, part in enumerate(value)]
        if not isinstance(value, str) or not re.match(FORM, value) or not _is_time(key):
            return value
        if isinstance(steps, int) and key not in (".train.steps", ".train.shares_of"):
            return round(float(value[:-1]) / 100 * steps)
        lacking.append(f"{key.lstrip('.')}: {value}")
        return 1  # so that this is the only error

    whole = counted(content, "")
    if lacking:
        more = f" and {len(lacking) - 1} more" if lacking[1:] else ""
        instead = "; write epochs x examples / data.batch_size in place of epochs" if train.get("epochs") else ""
        errors.add("train.steps", f"expected a number: shares of it are `{lacking[0]}`{more}{instead}")
    return whole


def _is_time(key: str) -> bool:
    section, *names = key.lstrip(".").split(".")
    return (section not in TIMELESS and "optimizer" not in names) or not TIMES.isdisjoint(names)
