"""What decoders find in an image: people with their joints, objects with their boxes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Poses:
    """The people found in one image, best first.

    Attributes:
        keypoints: float32 (n, K, 4), x and y in pixels, confidence in [0, 1] (0: not found, its place means nothing), and
            the joint's scale in pixels (two standard deviations).
        scores: float32 (n,), in [0, 1].
    """

    keypoints: NDArray[np.float32]
    scores: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, eq=False)
class Boxes:
    """The objects found in one image, best first.

    Attributes:
        boxes: float32 (n, 4), x and y of the top left corner, width, height in pixels.
        scores: float32 (n,), in [0, 1].
        categories: int64 (n,), index of the field, COCO's category id - 1.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    categories: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)
