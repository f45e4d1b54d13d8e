"""A score without decoder: the distance of confidence maxima to the joints."""

from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError, need
from figura.dump import Dump
from figura.report.interfaces import Bootstrap, Estimate, NotApplicableError, Score

Floats = NDArray[np.floating]

VISIBLE = 2


def maxima(field: Floats, least: float) -> NDArray[np.float64]:
    """Return the positions of the confident maxima of a decoded field (5, rows, columns): (n, 2), x and y in cells.

    A maximum is a cell with a confidence of at least `least` that none of its eight neighbours exceeds; its position is
    where it points. Without any, returns the position of the most confident cell.
    """
    confidence = np.ascontiguousarray(field[1], dtype=np.float32)
    highest = cv2.dilate(confidence, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_REPLICATE)
    chosen = (confidence >= highest) & (confidence >= least)
    if not chosen.any():
        chosen = confidence == confidence.max()
    return np.asarray(field[2:4, chosen].T, dtype=np.float64)


@dataclass(eq=False)
class FieldMaxima(Score):
    """The distance of each visible joint to the nearest confident maximum of its field, in images with one person.

    `distance` is the mean over images of the mean over joints, as a fraction of the height of the person's box.
    `confident` is the fraction of joints whose field has a maximum of at least `confidence`; for the others, the most
    confident cell is used.

    Args:
        mode: of the dump.
        fields: decoded cif fields, an array (K, 5, rows, columns).
        joints: array (K, 3) of the only person, x, y in pixels and visibility; 0 in images with no person or several.
        height: column of the person's height, pixels.
        confidence: minimum confidence of a maximum.
        stride: of the fields, pixels.
    """

    from_data: ClassVar[tuple[str, ...]] = ("stride",)

    mode: str
    fields: str
    joints: str
    height: str
    confidence: float
    stride: int | None = None

    def __post_init__(self) -> None:
        need("stride", self.stride)

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        heights = rows.column(self.height).to_numpy(dtype=np.float64)
        distances, confident, counted = [], 0, 0
        for index in range(len(rows)):
            joints = rows.value(index, self.joints)
            if joints.ndim != 2 or joints.shape[1] != 3:
                raise UserError(f"{rows.folder}: {self.joints!r} has the shape {joints.shape}, (K, 3) is needed")
            visible = np.flatnonzero(joints[:, 2] >= VISIBLE)
            if not len(visible):
                continue
            fields = rows.value(index, self.fields)
            if fields.ndim != 4 or fields.shape[:2] != (len(joints), 5) or fields.size == 0:
                needed = f"({len(joints)}, 5, rows, columns) is needed"
                raise UserError(f"{rows.folder}: {self.fields!r} has the shape {fields.shape}, {needed}")
            if not heights[index] > 0:
                raise UserError(f"{rows.folder}: {self.height!r} of a person is {heights[index]:g}; it must be above 0")
            errors = [self._distance(fields[joint], joints[joint, :2]) / heights[index] for joint in visible]
            confident += sum(bool((fields[joint, 1] >= self.confidence).any()) for joint in visible)
            counted += len(visible)
            distances.append(float(np.mean(errors)))
        if not distances:
            raise NotApplicableError("no image shows exactly one person with visible joints")
        estimate = bootstrap.estimate(np.array(distances))
        return {"distance": estimate, "confident": confident / counted, "joints": counted, "images": len(distances)}

    def _distance(self, field: Floats, joint: Floats) -> float:
        places = maxima(field, self.confidence) * need("stride", self.stride)
        return float(np.linalg.norm(places - joint, axis=1).min())
