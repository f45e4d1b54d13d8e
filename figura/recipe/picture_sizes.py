"""The size of prepared pictures beside that at which a recipe trains on them, where it resizes whole ones."""

from collections import Counter
from pathlib import Path

from figura.base.files import read_json
from figura.recipe.schema import Recipe

SMALLEST, LARGEST = 32, 256
"""Sizes that are proposed, powers of 2 in between; larger ones are a matter of GPUs."""
FACTOR = 2  # between the sizes of pictures and of training, from which it is said


def fitting(side: int) -> int:
    """Return the size at which to train on pictures whose shorter side has so many pixels."""
    return min(max(1 << side.bit_length() - 1, SMALLEST), LARGEST)


def other_sizes(recipe: Recipe) -> list[str]:
    """Return a line for each dataset most of whose pictures are much larger or smaller than training makes them.

    Datasets of crops (people, patches) have no `crop_size`, and get no line.
    """
    lines = []
    for entry in recipe.data.train.values():
        file, trained = Path(str(entry.arguments.get("root")), "statistics.json"), entry.arguments.get("crop_size")
        if not isinstance(trained, int) or not file.is_file():
            continue
        counts, sizes = read_json(file).get(str(entry.arguments.get("split")), {}), Counter[str]()
        for part in (counts, *(one for one in counts.values() if isinstance(one, dict))):
            sizes.update(part.get("sizes", {}))
        width, height = map(int, sizes.most_common(1)[0][0].split("x")) if sizes else (trained, trained)
        side = min(width, height)
        if (side >= FACTOR * trained or FACTOR * side <= trained) and fitting(side) != trained:
            key = ("" if recipe.path == Path("params.yaml") else f"{recipe.path}:") + "data.common.crop_size"
            lines.append(f"{width} x {height} pictures, trained at {trained}: `-S {key}={fitting(side)}`")
    return lines
