"""Scores whether an appearance transfer keeps the colours of the clothes."""

import numpy as np
from numpy.typing import NDArray

from models.dump import Dump
from models.report.interfaces import Bootstrap, Estimate, Score, Values

SMALLEST = 12.0  # pixels of cloth; a mean colour of fewer is unreliable
PARTS = ("top", "bottom")


def correlation(table: Values) -> NDArray[np.float64]:
    """Return Pearson's r between generated and shown colours, averaged over the three channels.

    table (..., identities, 6): generated RGB, shown RGB -> (...).
    """
    generated, shown = (part - part.mean(axis=-2, keepdims=True) for part in (table[..., :3], table[..., 3:]))
    scale = np.sqrt((generated**2).sum(axis=-2) * (shown**2).sum(axis=-2))
    return np.asarray(((generated * shown).sum(axis=-2) / np.maximum(scale, 1e-12)).mean(axis=-1))


def mean_colour(image: NDArray[np.float32], mask: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """Mean of (3, H, W) over a mask (1, H, W) in [0, 1] -> (3,); None if the mask has fewer than `SMALLEST` pixels."""
    area = float(mask.sum())
    return None if area < SMALLEST else np.asarray((image * mask).sum(axis=(1, 2)) / area, dtype=np.float64)


class ClothesColour(Score):
    """Correlation over identities between the clothes' mean colour in a transfer and in the appearance image.

    The dump has the exact masks of the clothes in the target (`top`, `bottom`), which wears the same clothes in the
    requested pose, and in the appearance image (`appearance_top`, `appearance_bottom`). Colours are first averaged
    within each identity.
    """

    def __init__(self, mode: str, image: str, appearance: str, person: str) -> None:
        self.mode, self.image, self.appearance, self.person = mode, image, appearance, person

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        colours: dict[str, dict[int, list[NDArray[np.float64]]]] = {part: {} for part in PARTS}
        for row in rows:
            for part in PARTS:
                generated = mean_colour(row[self.image], row[part])
                shown = mean_colour(row[self.appearance], row[f"appearance_{part}"])
                if generated is not None and shown is not None:
                    colours[part].setdefault(row[self.person], []).append(np.concatenate([generated, shown]))
        metrics: dict[str, Estimate | float | int] = {}
        for part, people in colours.items():
            metrics[f"{part}_identities"] = len(people)
            if len(people) >= 3:
                means = np.stack([np.mean(values, axis=0) for values in people.values()])
                metrics[f"{part}_r"] = bootstrap.estimate(means, correlation)
        return metrics
