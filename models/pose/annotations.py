"""The annotations of one image that the encoders read: after augmentation, in pixels of the network's input."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Annotations:
    """The n annotations of an image, in file order (the earlier one wins ties between targets).

    The centre of the first pixel is (0, 0). Coordinates are finite; they may lie outside the image.

    Attributes:
        keypoints: float32 (n, K, 3), x, y and visibility v: 0 not labelled, 1 labelled but hidden, 2 visible.
        boxes: float32 (n, 4), x and y of the top left corner, width, height.
        crowd: bool (n,), true for crowd regions, which training ignores.
        categories: int64 (n,), index of the detection field, from 0.
        ids: int64 (n,), for messages.
    """

    keypoints: NDArray[np.float32]
    boxes: NDArray[np.float32]
    crowd: NDArray[np.bool_]
    categories: NDArray[np.int64]
    ids: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        """The annotations that a mask (n,) selects, in the same order."""
        return type(self)(*(getattr(self, one.name)[chosen] for one in fields(self)))
