"""The annotations of one image that the encoders read: after augmentation, in pixels of the network's input."""

from dataclasses import dataclass
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

    Raises:
        ValueError: inconsistent shapes.
    """

    keypoints: NDArray[np.float32]
    boxes: NDArray[np.float32]
    crowd: NDArray[np.bool_]
    categories: NDArray[np.int64]
    ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        count = len(self.ids)
        keypoints = self.keypoints.shape
        if len(keypoints) != 3 or keypoints[0] != count or keypoints[2] != 3:
            raise ValueError(f"keypoints of shape {keypoints}: ({count}, K, 3) is needed, as there are {count} ids")
        for name, shape in {"boxes": (count, 4), "crowd": (count,), "categories": (count,)}.items():
            actual = getattr(self, name).shape
            if actual != shape:
                raise ValueError(f"{name} of shape {actual}: {shape} is needed, as there are {count} ids")

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        """The annotations that a mask (n,) selects, in the same order."""
        return type(self)(
            keypoints=self.keypoints[chosen],
            boxes=self.boxes[chosen],
            crowd=self.crowd[chosen],
            categories=self.categories[chosen],
            ids=self.ids[chosen],
        )
