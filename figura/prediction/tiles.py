"""Predict from large pictures in overlapping tiles, so that memory depends on the tile, not on the picture.

Tiles of one size cover a picture in rows. In the middle half of an overlap, one tile fades into the next linearly; the
outer quarters only give context. So the result is that of the whole picture if no pixel depends on inputs further away
than a quarter of the overlap, and has no seams otherwise.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.pictures import Pixels
from figura.prediction.inputs import Photo, SettingError
from figura.prediction.result import Result, image_of

if TYPE_CHECKING:
    from figura.prediction.runner import Runner


class Tiling:
    """Tiles of `side` pixels, of which neighbours share `overlap`, by default a quarter of the side.

    Raises:
        UserError: the overlap is negative or more than half the side, which must be positive.
    """

    def __init__(self, side: int, overlap: int | None = None) -> None:
        self.side, self.overlap = side, side // 4 if overlap is None else overlap
        if side < 1 or not 0 <= self.overlap <= side // 2:
            raise UserError(f"tiles of {side} pixels, overlap {self.overlap}; from 0 to half the tile can overlap")

    def starts(self, length: int) -> list[int]:
        """Return where the tiles of a picture's side begin; the last one ends with the picture."""
        last = length - self.side
        return [0] if last <= 0 else [*range(0, last, self.side - self.overlap), last]

    def weights(self, length: int, scale: int) -> NDArray[np.float32]:
        """Return the weights of tiles along a picture's side, float32 (tiles, side * scale); they sum to 1 anywhere."""
        starts = self.starts(length)
        side, ramp = min(self.side, length) * scale, self.overlap * scale / 2
        rise = np.clip((np.arange(side) + 0.5 - ramp / 2) / ramp, 0, 1) if ramp else np.ones(side)
        weights = np.ones((len(starts), side))
        weights[1:] *= rise
        weights[:-1] *= rise[::-1]
        total = np.zeros(length * scale)
        places = [slice(start * scale, start * scale + side) for start in starts]
        for place, one in zip(places, weights, strict=True):
            total[place] += one
        return np.array([one / total[place] for place, one in zip(places, weights, strict=True)], np.float32)


class Mosaic:
    """A picture, uint8 (height * scale, width * scale, 3), put together from tiles that come row by row.

    Only as many rows as a tile has are held as float32; `picture` is complete after the last tile.
    """

    def __init__(self, tiling: Tiling, height: int, width: int, scale: int) -> None:
        self.picture = np.zeros((height * scale, width * scale, 3), np.uint8)
        self.rows, self.columns = ([one * scale for one in tiling.starts(side)] for side in (height, width))
        self.down, self.across = tiling.weights(height, scale), tiling.weights(width, scale)
        self._sum = np.zeros((self.down.shape[1], width * scale, 3), np.float32)  # of the current row of tiles

    def add(self, tile: Pixels, place: int) -> None:
        """Add the tile of index `place`."""
        row, column = divmod(place, len(self.columns))
        left, top = self.columns[column], self.rows[row]
        weights = np.outer(self.down[row], self.across[column])[..., None]
        self._sum[:, left : left + tile.shape[1]] += weights * tile
        if column == len(self.columns) - 1:
            done = self.rows[row + 1] - top if row + 1 < len(self.rows) else len(self._sum)
            self.picture[top : top + done] = np.rint(self._sum[:done])
            self._sum[:-done] = self._sum[done:].copy()
            self._sum[-done:] = 0


class TiledPhoto:
    """A photo in memory, its tiles as photos, and the mosaics of their pictures, by name."""

    def __init__(self, photo: Photo, tiling: Tiling) -> None:
        self.photo, self.tiling, self.pixels = photo, tiling, photo.pixels()
        self.height, self.width = self.pixels.shape[:2]
        self.rows, self.columns = tiling.starts(self.height), tiling.starts(self.width)
        count = len(self.rows) * len(self.columns)
        self.names = [f"{photo.name} (tile {index} of {count})" for index in range(1, count + 1)]
        self.mosaics: dict[str, Mosaic] = {}
        self.added = 0

    def tiles(self) -> Iterator[Photo]:
        """Yield the tiles, row by row. They have the photo's number, as only names must be unique."""
        side = self.tiling.side
        corners = ((top, left) for top in self.rows for left in self.columns)
        for name, (top, left) in zip(self.names, corners, strict=True):
            tile = self.pixels[top : top + side, left : left + side]
            yield replace(self.photo, name=name, frame=tile, faults=[], suspicions={})

    def add(self, result: Result) -> bool:
        """Add the result of the next tile; return whether it was the last one.

        Raises:
            UserError: a picture is not as large as the tile or a whole multiple of it.
        """
        for name, tile in result.pictures.items():
            if name not in self.mosaics:
                self.mosaics[name] = Mosaic(self.tiling, self.height, self.width, self._scale(tile))
            self.mosaics[name].add(tile, self.added)
        self.added += 1
        return self.added == len(self.names)

    def result(self, last: Result) -> Result:
        """Return the result of the photo, given that of its last tile."""
        pictures = {name: mosaic.picture for name, mosaic in self.mosaics.items()}
        return replace(last, name=self.photo.name, image=image_of(self.photo), pictures=pictures)

    def _scale(self, tile: Pixels) -> int:
        height, width = min(self.tiling.side, self.height), min(self.tiling.side, self.width)
        scale = tile.shape[0] // height
        if scale < 1 or tile.shape[:2] != (height * scale, width * scale):
            raise UserError(
                f"{self.photo.path}: of a tile of {height} x {width} pixels, the network made {tile.shape[0]} x "
                f"{tile.shape[1]}; tiles need one whose picture is as large as its input or a multiple of it. Where "
                "predict.data has an image_size, the tile must have it, too, and pictures must not be smaller"
            )
        return scale


def tiled_results(
    runner: "Runner", photos: Iterable[Photo], tiling: Tiling, progress: bool = False
) -> Iterator[Result]:
    """Yield the result of each photo, put together from those of its tiles; otherwise like `Runner.results`.

    A photo is in memory whole (uint8), and so are its pictures; `runner.images` are the tiles.

    Raises:
        SettingError: the recipe saves more than pictures, several results of a photo, or compares them with a truth.
        UserError: see `Runner.results`.
    """
    for name, form in runner.trained.predict.save.items():
        if form not in ("image", "mask"):
            raise SettingError(f"predict.save.{name} is {form}: tiles make pictures (image, mask)")
    if runner.comparisons:
        raise SettingError(f"predict.compare.{next(iter(runner.comparisons))}: a tile has no truth; predict the whole")
    runner.grid = None  # of photos, not of tiles
    tiled: dict[int, TiledPhoto] = {}  # by the photo's number
    with tqdm(total=0, unit="tile", desc="predict", disable=not progress) as bar:
        for result in runner.results(_tiles(runner, photos, tiling, tiled, bar)):
            bar.update()
            if result.name != result.image.name:
                raise SettingError(f"{result.name}: one of several results of a tile, which must have one")
            one = tiled.get(result.image.id)
            if one is None or result.name != one.names[one.added]:  # the missing tile has been reported
                tiled.pop(result.image.id, None)
                continue
            added = runner.attempt(one.photo.path, one.add, result)
            if added is None or added:
                del tiled[result.image.id]
            if added:
                yield one.result(result)


def _tiles(
    runner: "Runner", photos: Iterable[Photo], tiling: Tiling, tiled: dict[int, TiledPhoto], bar: "tqdm[NoReturn]"
) -> Iterator[Photo]:
    """Yield the tiles of all photos, which are kept in `tiled`; of one whose tile has failed, no more."""
    for photo in photos:
        one = runner.attempt(photo.path, TiledPhoto, photo, tiling)
        if one is None:
            continue
        runner.suspect(photo)
        bar.total = (bar.total or 0) + len(one.names)
        bar.refresh()
        tiled[photo.number] = one
        for tile in one.tiles():
            if photo.number not in tiled:
                break
            yield tile
