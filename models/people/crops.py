"""Square crops around persons: the same window for pictures, masks and joints."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Crop:
    """A square window of integer pixels, `side` wide, scaled to `size` x `size`; it may extend beyond the image."""

    left: int
    top: int
    side: int
    size: int

    def inside(self, height: int, width: int) -> tuple[slice, slice]:
        """Return rows and columns of the part of the window that lies in an image; empty slices if there is none."""
        rows = slice(min(max(self.top, 0), height), min(max(self.top + self.side, 0), height))
        columns = slice(min(max(self.left, 0), width), min(max(self.left + self.side, 0), width))
        return rows, columns

    def resized(
        self, part: NDArray[np.float32], height: int, width: int, fill: float, shown: NDArray[np.uint8] | None = None
    ) -> NDArray[np.float32]:
        """Scale the window; `part` holds its pixels inside an image of `height` x `width`.

        `part` is `(h, w)` or `(h, w, channels)`. The rest of the window is `fill`, and so are the pixels where the mask
        `shown` `(h, w)` is 0. Downsamples by area, upsamples linearly. Returns `(size, size)` or
        `(size, size, channels)`.
        """
        if part.shape[:2] != (self.side, self.side) or shown is not None:
            rows, columns = self.inside(height, width)
            whole = np.full((self.side, self.side, *part.shape[2:]), fill, dtype=np.float32)
            place = whole[rows.start - self.top :, columns.start - self.left :][: part.shape[0], : part.shape[1]]
            if part.size:
                cv2.copyTo(part, shown, place)  # in place; several times as fast as indexing by the mask
            part = whole
        method = cv2.INTER_AREA if self.side > self.size else cv2.INTER_LINEAR
        return np.asarray(cv2.resize(part, (self.size, self.size), interpolation=method), dtype=np.float32)

    def view(
        self, pixels: NDArray[np.uint8], person: NDArray[np.uint8], background: float | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the window of an image `(H, W, 3)`, as `(size, size, 3)` in [-1, 1], and of a person's mask `(H, W)`.

        `background` in [-1, 1] replaces all pixels outside the mask; None keeps them, with mid-gray outside the image.
        """
        height, width = pixels.shape[:2]
        inside = self.inside(height, width)
        shown, part = np.ascontiguousarray(person[inside]), pixels[inside] * np.float32(2 / 255)
        part -= 1
        fill, mask = (0.0, None) if background is None else (background, shown)
        picture = self.resized(part, height, width, fill, mask)
        return np.clip(picture, -1, 1, out=picture), self.mask(person)

    def mask(self, whole: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Scale the window of an image's mask `(H, W)` to `(1, size, size)` in [0, 1]."""
        height, width = whole.shape
        part = whole[self.inside(height, width)].astype(np.float32)
        resized = self.resized(part, height, width, fill=0.0)
        return np.clip(resized, 0, 1, out=resized)[None]

    def joints(self, keypoints: NDArray[np.floating]) -> NDArray[np.float64]:
        """Map joints `(K, 3)` (x, y, v) to pixels of the crop; 0 is the centre of the first pixel in both."""
        moved = np.array(keypoints, dtype=np.float64)
        moved[:, :2] = (moved[:, :2] - (self.left, self.top) + 0.5) * (self.size / self.side) - 0.5
        return moved

    def box(self, box: NDArray[np.floating]) -> NDArray[np.float64]:
        """Map a box `(4,)` (x, y, width, height), with edges at pixel borders, to the crop."""
        scale = self.size / self.side
        return (np.asarray(box, dtype=np.float64) - (self.left, self.top, 0, 0)) * scale


def square(box: NDArray[np.floating], margin: float, size: int) -> Crop:
    """Return the square around a box `(4,)` (x, y, width, height), plus `margin` of its longer side on each side."""
    x, y, width, height = (float(one) for one in box)
    side = max(1, round(max(width, height) * (1 + 2 * margin)))
    return Crop(left=round(x + (width - side) / 2), top=round(y + (height - side) / 2), side=side, size=size)
