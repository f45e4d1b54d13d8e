"""The order of entries that is part of a result, although DVC compares maps without it.

It counts where entries run, or add up, one after the other: steps and their injectors, the losses of a step, datasets,
callbacks, groups of an optimizer (the first match wins). It also counts in maps among the arguments of a `type`, whose
code may read them in order (`taps`, shares to draw from). It does not count for networks, which have a seed each, for
modes and scores, which do not see each other, for arguments, and for `inputs` and `outputs`, which go by name.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

COUNTS = re.compile(
    r"data\.(train|validation)|losses|steps|callbacks|evaluate\.data"
    r"|steps\.[^.]+\.(injectors|groups)|evaluate\.(modes|grids)\.[^.]+\.injectors"
)
ARGUMENTS = re.compile(r"data\.common|(data\.(train|validation)|evaluate\.data)\.[^.]+")
"""Maps whose `type` may stand elsewhere."""
BY_NAME = ("inputs", "outputs")


def orders(value: Any, key: str, argument: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Yield the dotted key and the keys of each map of settings whose order counts; losses are sorted by their step."""
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from orders(part, f"{key}.{index}", argument)
    if not isinstance(value, Mapping):
        return
    named = "type" in value or key.rpartition(".")[2] in BY_NAME
    if len(value) > 1 and (COUNTS.fullmatch(key) or (argument and not named)):
        yield key, sorted(value, key=lambda name: _step(value[name]) if key == "losses" else "")
    for name, part in value.items():
        yield from orders(part, f"{key}.{name}", argument or "type" in value or bool(ARGUMENTS.fullmatch(key)))


def _step(loss: Any) -> str:
    return str(loss.get("step")) if isinstance(loss, Mapping) else ""
