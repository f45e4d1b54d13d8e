"""Visibility of a figure's keypoints, from the label map."""

import numpy as np

from figura.synthetic.canvas import Part, instance_of, part_of
from figura.synthetic.figure import Figure

_FACE: tuple[frozenset[Part], ...] = (frozenset({Part.HEAD}),) * 5
# for each keypoint in COCO's order, the parts of the joint
OWN = _FACE + tuple(
    frozenset(parts)
    for parts in (
        (Part.LEFT_UPPER_ARM,), (Part.RIGHT_UPPER_ARM,),
        (Part.LEFT_UPPER_ARM, Part.LEFT_FOREARM), (Part.RIGHT_UPPER_ARM, Part.RIGHT_FOREARM),
        (Part.LEFT_FOREARM,), (Part.RIGHT_FOREARM,),
        (Part.LEFT_THIGH,), (Part.RIGHT_THIGH,),
        (Part.LEFT_THIGH, Part.LEFT_SHIN), (Part.RIGHT_THIGH, Part.RIGHT_SHIN),
        (Part.LEFT_SHIN,), (Part.RIGHT_SHIN,),
    )
)  # fmt: skip
# Clothes over trunk and thighs show the joint under them, as in COCO's annotations, unless it is on the far side.
_NONE, _TRUNK, _SKIRT = frozenset[Part](), frozenset({Part.TRUNK}), frozenset({Part.SKIRT})
DRESSED = (_NONE,) * 5 + (_TRUNK,) * 2 + (_NONE,) * 4 + (_TRUNK | _SKIRT,) * 2 + (_SKIRT,) * 2 + (_NONE,) * 2


def see(labels: np.ndarray, figure: Figure, joints: np.ndarray, instance: int) -> np.ndarray:
    """Return keypoints (17, 3) of an instance: v = 2 visible, 1 inside the image but hidden, 0 (x = y = 0) outside.

    `labels` (side, side) is the canvas's map; `joints` (17, 2) and the returned x and y are positions on it, with (0,
    0) at the upper left corner of the image instead of the centre of its first pixel.
    """
    side = len(labels)
    keypoints = np.zeros((17, 3))
    for i, (x, y) in enumerate(joints + 0.5):
        if not (0.0 <= x < side and 0.0 <= y < side):
            continue
        pixel = labels[int(y), int(x)]
        part = Part(int(part_of(pixel)))
        shows = part in OWN[i] or (part in DRESSED[i] and figure.near[i])
        seen = instance_of(pixel) == instance and shows and figure.facing[i]
        keypoints[i] = x, y, 2 if seen else 1
    return keypoints
