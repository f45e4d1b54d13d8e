"""Milliseconds to encode an image's targets (joints, limbs, boxes) on one core. `python -m bench.pose_encoders`

The stride is 8. The budget is 2 ms for joints and limbs together, 5 persons, 193 pixels.
"""

import numpy as np

from bench.table import seconds, show
from figura.data.formats.skeletons import COCO
from models.pose.annotations import Annotations
from models.pose.encoders import Caf, Cif, CifDet

STRIDE = 8
CATEGORIES = 91


def crowd_scene(persons: int, side: int) -> Annotations:
    """Return standing persons, half as high as the image, with a fifth of the joints hidden, and a crowd region."""
    generator = np.random.default_rng(0)
    upright = COCO.standing_pose * (1, -1) * (side / 2 / np.ptp(COCO.standing_pose[:, 1]))
    keypoints = np.full((persons + 1, len(upright), 3), 2.0, dtype=np.float32)
    centres = generator.uniform(0.2, 0.8, (persons + 1, 1, 2)) * side
    keypoints[:, :, :2] = upright - upright.mean(axis=0) + centres
    keypoints[:, :, 2] -= generator.random(keypoints.shape[:2]) < 0.2
    corners = keypoints[:, :, :2].min(axis=1)
    crowd = np.zeros(persons + 1, dtype=bool)
    crowd[-1] = True
    return Annotations(
        keypoints=keypoints,
        boxes=np.concatenate([corners, keypoints[:, :, :2].max(axis=1) - corners], axis=1),
        crowd=crowd,
        categories=np.zeros(persons + 1, dtype=np.int64),
        ids=np.arange(persons + 1),
    )


def main() -> None:
    """Print the table."""
    encoders: dict[str, list[Cif | Caf | CifDet]] = {
        "cif 17": [Cif(COCO, STRIDE)],
        "caf 19": [Caf(COCO, STRIDE)],
        "cif + caf": [Cif(COCO, STRIDE), Caf(COCO, STRIDE)],
        "caf 25 dense": [Caf(COCO, STRIDE, connections="dense")],
        f"cifdet {CATEGORIES}": [CifDet(CATEGORIES, STRIDE)],
    }
    rows: list[list[object]] = [["pixels", "persons", *(f"{name}, ms" for name in encoders)]]
    for side in (193, 385):
        for persons in (1, 5, 20):
            scene, area = crowd_scene(persons, side), (0.0, 0.0, side - 1.0, side - 1.0)
            row: list[object] = [side, persons]
            for those in encoders.values():

                def encode(those: list[Cif | Caf | CifDet] = those) -> None:
                    for one in those:
                        one.encode(scene, (side, side), area)  # noqa: B023

                row.append(1e3 * seconds(encode, budget=0.5))
            rows.append(row)
    show(rows)


if __name__ == "__main__":
    main()
