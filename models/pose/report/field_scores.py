"""How near the maxima of confidence fields come to the joints: a score that needs no decoder."""

import cv2
import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.dump import Dump
from models.report.interfaces import Bootstrap, Estimate, Score

Floats = NDArray[np.floating]

VISIBLE = 2


def maxima(field: Floats, least: float) -> NDArray[np.float64]:
    """Return where a decoded field (5, rows, columns) has its confident maxima: (n, 2) x and y in cells.

    A maximum is a cell that no neighbour (of eight) exceeds, with confidence of at least `least`; its place is where its
    vector points. The most confident cell alone where none is confident enough.
    """
    confidence = np.ascontiguousarray(field[1], dtype=np.float32)
    highest = cv2.dilate(confidence, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_REPLICATE)
    chosen = (confidence >= highest) & (confidence >= least)
    if not chosen.any():
        chosen = confidence == confidence.max()
    return np.asarray(field[2:4, chosen].T, dtype=np.float64)


class FieldMaxima(Score):
    """For images with one person: from each visible joint to the nearest confident maximum of its field, over the height.

    `distance` is the mean over images of the mean over joints, in heights of the person's box; `confident` the share of
    joints whose field has a maximum of confidence `confidence` at all (else the most confident cell counts).

    Args:
        mode: of the dump.
        fields: decoded cif fields, an array (K, 5, rows, columns).
        joints: array (K, 3) of the only person, x, y in pixels and visibility; all 0 in images without or with more.
        height: column of the person's height, pixels.
        stride: of the fields, pixels.
        confidence: what a confident maximum has at least.
    """

    def __init__(self, mode: str, fields: str, joints: str, height: str, stride: int, confidence: float) -> None:
        self.mode, self.fields, self.joints, self.height = mode, fields, joints, height
        self.stride, self.confidence = stride, confidence

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        distances, confident, counted = [], 0, 0
        for place in range(len(rows)):
            joints = rows.value(place, self.joints)
            visible = np.flatnonzero(joints[:, 2] >= VISIBLE)
            if not len(visible):
                continue
            fields = rows.value(place, self.fields)
            height = float(rows.table[self.height].iloc[place])
            found = [self._distance(fields[joint], joints[joint, :2]) / height for joint in visible]
            confident += sum(bool((fields[joint, 1] >= self.confidence).any()) for joint in visible)
            counted += len(visible)
            distances.append(float(np.mean(found)))
        if not distances:
            raise UserError(f"{dump.folder}: mode {self.mode!r}: no image shows exactly one person with visible joints")
        estimate = bootstrap.estimate(np.array(distances))
        return {"distance": estimate, "confident": confident / counted, "joints": counted, "images": len(distances)}

    def _distance(self, field: Floats, joint: Floats) -> float:
        places = maxima(field, self.confidence) * self.stride
        return float(np.linalg.norm(places - joint, axis=1).min())
