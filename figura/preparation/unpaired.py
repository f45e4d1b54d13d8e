"""Prepare a dataset of two sets of pictures, A and B, that belong to no pairs."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.pictures import picture_files
from figura.base.raw_pictures import Reading, store_picture
from figura.formats.pair_files import split_folders
from figura.formats.records import UnusableError
from figura.preparation.outcome import Repairs, rejected_line
from figura.preparation.pairs import SHOWN, PicturePreparation, Rejected, small
from figura.preparation.pictures import inside
from figura.preparation.splits import OF_ONE_VIDEO, drawn_apart, video_of

SIDES = ("a", "b")


class UnpairedStatistics:
    """Counts over one split, by side."""

    def __init__(self) -> None:
        self.repairs = Repairs()
        self.rejected: Counter[str] = Counter()
        self.sizes: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        self.shown: dict[str, list[NDArray[np.uint8]]] = {side: [] for side in SIDES}
        self.digests: dict[str, set[bytes]] = {side: set() for side in SIDES}

    @property
    def images(self) -> int:
        """The number of usable pictures of the side that has fewer."""
        return min(sizes.total() for sizes in self.sizes.values())

    def add(self, side: str, pixels: NDArray[np.uint8]) -> None:
        """Count a usable picture; store the first few small."""
        height, width = pixels.shape[:2]
        self.sizes[side][f"{width}x{height}"] += 1
        self.digests[side].add(hashlib.blake2b(pixels.tobytes(), digest_size=16).digest())
        if len(self.shown[side]) < SHOWN:
            self.shown[side].append(small(pixels))

    def summary(self) -> dict[str, Any]:
        """Return all counts; sizes are width x height."""
        sides = {
            side: {"pictures": one.total(), "sizes": dict(sorted(one.items()))} for side, one in self.sizes.items()
        }
        return {**sides, "rejected": dict(sorted(self.rejected.items()))}


class UnpairedPreparation(PicturePreparation):
    """Copies usable pictures to `a` and `b` of their splits; collects statistics and rejections."""

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
            files = list(picture_files(found[0] / part, self.left_out))
            self.records += len(files)
            frames = ((video, split_of(file)) for file in files if (video := video_of(file)))
            self.notes += drawn_apart(frames, OF_ONE_VIDEO)
            bring = partial(_bring, found[0] / part, root, self.folder, side)
            once = self._once(files, found[0] / part, root, side, split_of)
            for file, split, outcome in self.in_threads(once, split_of, bring, f"read {part}"):
                if isinstance(outcome, Rejected):
                    self.reject(split, outcome)
                    continue
                self.statistics[split].add(side, outcome.pixels)
                self.count_reading(split, f"{side}/{file}", outcome.done, outcome.suspicions)

    def _once(
        self, files: Sequence[str], folder: Path, root: Path, side: str, split_of: Callable[[str], str]
    ) -> list[str]:
        """Return the files without links to earlier ones, which are rejected."""
        first: dict[Path, str] = {}
        for file in files:
            try:
                path = inside(folder, file, root)
            except UnusableError:  # which `_bring` tells
                path = folder / file
            if (before := first.setdefault(path, file)) != file:
                detail = f"{side}/{file} is the file of {side}/{before}"
                self.reject(split_of(file), Rejected(split_of(file), f"{side}/{file}", "image file used twice", detail))
        return list(first.values())

    def finish(self) -> None:
        """Write `plots/unpaired.png`, and what every preparation writes."""
        self.write_sheet("unpaired.png", [one.shown[side] for one in self.statistics.values() for side in SIDES])
        super().finish()

    def lines(self) -> Iterator[str]:
        """Yield repairs and suspicions, one line a kind, and the counts of each split."""
        yield from super().lines()
        for split, one in self.statistics.items():
            a, b = (one.sizes[side].total() for side in SIDES)
            if both := len(one.digests["a"] & one.digests["b"]):
                yield f"warning: {split}: {both} pictures are in A and in B: each belongs to one of them"
            yield f"{split}: {a} pictures of A, {b} of B, {rejected_line(one.rejected)}"


def _bring(source: Path, root: Path, folder: Path, side: str, file: str, split: str) -> Reading | Rejected:
    """Check a picture and copy it to its side of the split in `folder`, unless it is there already."""
    place = folder / split / side / file
    try:
        return store_picture(inside(source, file, root), None if source / file == place else place)
    except UnusableError as fault:
        return Rejected(split, f"{side}/{file}", fault.reason, fault.detail)
    except UserError as error:
        return Rejected(split, f"{side}/{file}", "image file unreadable", str(error))
