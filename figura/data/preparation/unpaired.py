"""Prepare a dataset of two sets of pictures, A and B, that belong to no pairs."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.pictures import Reading, encode_png, picture_files, store_picture
from figura.data.formats.pair_files import split_folders
from figura.data.formats.records import UnusableError
from figura.data.preparation.outcome import Outcome, Repaired, Repairs
from figura.data.preparation.pairs import Rejected
from figura.data.preparation.pictures import inside

SIDES = ("a", "b")
_AT_ONCE = 64
_SHOWN = 8  # pictures of each side in the sheet
_SIDE = 96  # of a picture in it, pixels


class UnpairedStatistics:
    """Counts over one split, by side."""

    def __init__(self) -> None:
        self.repairs = Repairs()
        self.rejected: Counter[str] = Counter()
        self.pictures: Counter[str] = Counter()
        self.sizes: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        self.shown: dict[str, list[NDArray[np.uint8]]] = {side: [] for side in SIDES}

    @property
    def images(self) -> int:
        """The number of usable pictures of the side that has fewer."""
        return min(self.pictures[side] for side in SIDES)

    def add(self, side: str, pixels: NDArray[np.uint8]) -> None:
        """Count a usable picture; store the first few small."""
        height, width = pixels.shape[:2]
        self.pictures[side] += 1
        self.sizes[side][f"{width}x{height}"] += 1
        if len(self.shown[side]) < _SHOWN:
            small = cv2.resize(pixels, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
            self.shown[side].append(np.asarray(small, dtype=np.uint8))

    def summary(self) -> dict[str, Any]:
        """Return all counts; sizes are width x height."""
        sides = {
            side: {"pictures": self.pictures[side], "sizes": dict(sorted(self.sizes[side].items()))} for side in SIDES
        }
        return {**sides, "rejected": dict(sorted(self.rejected.items()))}


class UnpairedPreparation(Outcome):
    """Copies usable pictures to `<split>/a` and `<split>/b` below `folder`; collects statistics and rejections."""

    columns = Rejected._fields

    def add(self, splits: tuple[str, ...], source: Path, root: Path, key: str, split_of: Callable[[str], str]) -> None:
        """Read every picture of the split's folders once, and store the usable ones.

        The folders are those of `split_folders`, subfolders included. `split_of` maps a file's name to one of `splits`.
        No file may be outside `root`. Nothing is stored if `source` is already the split's folder.

        Raises:
            UserError: there are no two folders; `key` is the setting that names them.
        """
        found = split_folders(source)
        if found is None or len(found[1]) != len(SIDES):
            raise UserError(
                f"{key}: found no two folders at {source}; there may be {source.name}A and {source.name}B, or A and B "
                "in it (or a and b)"
            )
        self.statistics |= {split: UnpairedStatistics() for split in splits}
        for side, part in zip(SIDES, found[1], strict=True):
            self._add(side, found[0] / part, root, split_of)

    def _add(self, side: str, source: Path, root: Path, split_of: Callable[[str], str]) -> None:
        files = list(picture_files(source, self.left_out))
        self.records += len(files)
        watched = iter(tqdm(files, f"read {source.name}", unit="picture", disable=not self.progress))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while batch := list(islice(watched, _AT_ONCE)):
                places = [self.folder / split_of(file) / side / file for file in batch]
                for file, outcome in zip(batch, pool.map(partial(_bring, source, root), batch, places), strict=True):
                    self._count(split_of(file), side, file, outcome)

    def _count(self, split: str, side: str, file: str, outcome: Reading | Rejected) -> None:
        if isinstance(outcome, Rejected):
            self.reject(split, outcome._replace(split=split, file=f"{side}/{file}"))
            return
        self.statistics[split].add(side, outcome.pixels)
        for kind in outcome.done:
            self.statistics[split].repairs.add_row(Repaired(split, f"{side}/{file}", kind))
        for kind in outcome.doubts:
            self.doubts.add(kind, f"{split} {side}/{file}")

    def finish(self) -> None:
        """Write `plots/unpaired.png`, and what every preparation writes."""
        rows = [_strip(one.shown[side]) for one in self.statistics.values() for side in SIDES]
        (self.folder / "plots").mkdir(exist_ok=True)
        (self.folder / "plots" / "unpaired.png").write_bytes(encode_png(np.concatenate(rows)))
        super().finish()

    def lines(self) -> Iterator[str]:
        """Yield repairs and doubts, one line a kind, and the counts of each split."""
        yield from super().lines()
        for split, one in self.statistics.items():
            a, b = (one.pictures[side] for side in SIDES)
            yield f"{split}: {a} pictures of A, {b} of B, {one.rejected.total()} rejected"


def _bring(source: Path, root: Path, file: str, place: Path) -> Reading | Rejected:
    """Check a picture and copy it to `place`, unless it is there already."""
    try:
        return store_picture(inside(source, file, root), None if source / file == place else place)
    except UnusableError as fault:
        return Rejected("", "", fault.reason, fault.detail)
    except UserError as error:
        return Rejected("", "", "image file unreadable", str(error))


def _strip(pictures: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return pictures side by side, with white for missing ones."""
    white = np.full((_SIDE, _SIDE, 3), 255, dtype=np.uint8)
    return np.concatenate([*pictures, *[white] * (_SHOWN - len(pictures))], axis=1)
