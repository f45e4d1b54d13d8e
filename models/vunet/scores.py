"""A score of whether an appearance transfer preserves the colours of the clothes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.dump import Array, Dump
from figura.report.interfaces import Bootstrap, Estimate, NotApplicableError, Score, Values, rows_where

SMALLEST = 12.0  # pixels of cloth; with fewer, a mean colour is unreliable
FEWEST = 3  # identities; with two, a correlation is always 1 or -1
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


def _masked(rows: Dump, place: int, image: str, mask: str) -> tuple[Array, Array]:
    """Return an image (3, H, W) and its mask (1, H, W) of a row. Raises UserError for other shapes."""
    picture, masked = rows.value(place, image), rows.value(place, mask)
    if len(picture) != 3 or masked.shape != (1, *picture.shape[1:]):
        raise UserError(
            f"{rows.folder}: {image!r} has the shape {picture.shape}, {mask!r} {masked.shape}; (3, height, width) and "
            "(1, height, width) are needed"
        )
    return picture, masked


class ClothesColour(Score):
    """Correlation over identities between the clothes' mean colour in a transfer and in the appearance image.

    The dump has the exact masks of the clothes in the target (`top`, `bottom`), with the same clothes in the requested
    pose, and in the appearance image (`appearance_top`, `appearance_bottom`). Colours are first averaged within each
    identity of each dataset. With `where`, only examples whose column of this name is not 0 are used. The score is
    skipped if fewer than three identities have masks.
    """

    def __init__(self, mode: str, image: str, appearance: str, person: str, where: str | None = None) -> None:
        self.mode, self.image, self.appearance, self.person, self.where = mode, image, appearance, person, where

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = rows_where(dump.mode(self.mode), self.mode, self.where)
        persons = rows.column(self.person)
        colours: dict[str, dict[Any, list[NDArray[np.float64]]]] = {part: {} for part in PARTS}
        for place in range(len(rows)):
            for part in PARTS:
                generated = mean_colour(*_masked(rows, place, self.image, part))
                shown = mean_colour(*_masked(rows, place, self.appearance, f"appearance_{part}"))
                if generated is not None and shown is not None:
                    dataset = rows.table["dataset"].iloc[place] if "dataset" in rows.table else None
                    identity = dataset, persons.iloc[place]
                    colours[part].setdefault(identity, []).append(np.concatenate([generated, shown]))
        if not any(len(people) >= FEWEST for people in colours.values()):
            counts = " and ".join(f"{len(people)} with a {part}" for part, people in colours.items())
            raise NotApplicableError(
                f"masks of clothes of {FEWEST} identities are needed, in both pictures; mode {self.mode!r} has {counts}"
            )
        metrics: dict[str, Estimate | float | int] = {}
        for part, people in colours.items():
            metrics[f"{part}_identities"] = len(people)
            if len(people) >= FEWEST:
                means = np.stack([np.mean(values, axis=0) for values in people.values()])
                metrics[f"{part}_r"] = bootstrap.estimate(means, correlation)
        return metrics
