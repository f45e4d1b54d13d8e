"""Prepare a dataset of image pairs: usable pairs, statistics, a sample picture."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from figura.base.errors import one_line
from figura.base.pictures import other_files
from figura.data.formats.pair_files import Fault, Loaded, Pair, find_pairs, load_pair, sides
from figura.data.preparation.outcome import Outcome, Repaired, Repairs
from figura.data.preparation.statistics import drawing

_AT_ONCE = 64
_SHOWN = 8  # pairs per split in the picture
_VARIES = 8  # standard deviation of a column that is no plain background, of 255
_SIDE = 128  # longest side of an image in it, pixels


class Rejected(NamedTuple):
    """A row of `rejected.csv`: the pair's split, its first file below the split's folder, and why."""

    split: str
    file: str
    reason: str
    detail: str


class Seen(NamedTuple):
    """Summary of a usable pair: size of each half (height, width), small pictures, mean and (population) std.

    `means` and `stds` are those of red, green and blue of A and of B, float64 (2, 3), in 0 to 255.
    `done` and `doubts` are of each file, as in `Reading`; `is_single` is whether it looks like one picture, not A|B.
    """

    size: tuple[int, int]
    means: NDArray[np.float64]
    stds: NDArray[np.float64]
    pictures: tuple[NDArray[np.uint8], ...]
    done: tuple[tuple[str, ...], ...]
    doubts: tuple[tuple[str, ...], ...]
    is_single: bool


class PairStatistics:
    """Counts over one split, pair by pair."""

    def __init__(self) -> None:
        self.images = 0
        self.repairs = Repairs()
        self.sizes: Counter[tuple[int, int]] = Counter()
        self.pixels, self.sums, self.squares = 0, np.zeros((2, 3)), np.zeros((2, 3))
        self.rejected: Counter[str] = Counter()
        self.shown: list[tuple[str, tuple[NDArray[np.uint8], ...]]] = []
        self.single: list[str] = []

    def add(self, name: str, seen: Seen) -> None:
        """Count a usable pair; store the first few as small pictures."""
        self.images += 1
        self.sizes[seen.size] += 1
        if seen.is_single:
            self.single.append(name)
        height, width = seen.size
        self.pixels += height * width
        self.sums += height * width * seen.means
        self.squares += height * width * (seen.stds**2 + seen.means**2)
        if len(self.shown) < _SHOWN:
            self.shown.append((name, seen.pictures))

    def summary(self) -> dict[str, Any]:
        """Return all counts; sizes are width x height of one image; mean and std are over all pixels."""
        means = self.sums / max(self.pixels, 1)
        stds = np.sqrt(np.maximum(self.squares / max(self.pixels, 1) - means**2, 0))
        a, b = (
            {"mean": mean.round(3).tolist(), "std": std.round(3).tolist()}
            for mean, std in zip(means, stds, strict=True)
        )
        sizes = sorted(self.sizes.items(), key=lambda item: (-item[1], item[0]))
        return {
            "pairs": self.images,
            "sizes": {f"{width}x{height}": count for (height, width), count in sizes},
            "a": a,
            "b": b,
            "rejected": dict(sorted(self.rejected.items())),
        }


class PairPreparation(Outcome):
    """Copies usable pairs to `<split>/` below `folder`, in their layout, and collects statistics and rejections."""

    columns = Rejected._fields

    def add(
        self,
        splits: tuple[str, ...],
        source: Path,
        root: Path,
        split_of: Callable[[str], str],
        parts: tuple[str, ...] | None = None,
    ) -> None:
        """Read every pair of the folder `source` once, and store the usable ones as `Reading.stored` does.

        `split_of` maps the name of a pair to one of `splits`. No file may be outside `root`. `parts` are those of
        `find_pairs`. Stores nothing if `source` is already the split's folder.
        """
        parts = parts or sides(source)
        pairs, faults = find_pairs(source, root, parts)
        for part in parts:
            self.left_out += other_files(
                entry.name for entry in os.scandir(source / part) if os.path.isfile(entry.path)
            )
        pairs, twice = _once(source, pairs)
        faults += twice
        self.records += len(pairs) + len(faults)
        self.statistics |= {split: PairStatistics() for split in splits}
        for fault in faults:
            split = split_of(Path(fault.file).stem)
            self.reject(split, Rejected(split, *fault))
        watched = iter(tqdm(pairs, f"read {' and '.join(splits)}", unit="pair", disable=not self.progress))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while batch := list(islice(watched, _AT_ONCE)):
                chosen = [split_of(pair.name) for pair in batch]
                outcomes = pool.map(partial(_bring, source), [self.folder / split for split in chosen], batch)
                for split, pair, outcome in zip(chosen, batch, outcomes, strict=True):
                    self._count(split, pair, outcome)

    def _count(self, split: str, pair: Pair, seen: Seen | Fault) -> None:
        if isinstance(seen, Fault):
            self.reject(split, Rejected(split, *seen))
            return
        self.statistics[split].add(pair.name, seen)
        for file, done, doubts in zip(pair.files, seen.done, seen.doubts, strict=True):
            for kind in done:
                self.statistics[split].repairs.add_row(Repaired(split, file, kind))
            for kind in doubts:
                self.doubts.add(kind, f"{split} {file}")

    def finish(self) -> None:
        """Write `plots/pairs.png`, and what every preparation writes."""
        write_sheet(self.statistics, self.folder / "plots" / "pairs.png")
        super().finish()

    def lines(self) -> Iterator[str]:
        """Yield repairs and doubts, one line a kind, and a summary of each split."""
        yield from super().lines()
        for split, one in self.statistics.items():
            if 2 * len(one.single) > one.images:
                yield (
                    f"warning: {split}: {len(one.single)} of {one.images} pictures (e.g. {one.single[0]}) may be "
                    "single ones: their halves are narrower than high, or one continues the other; pairs are A|B "
                    "pictures, or files of the same names in the folders a and b"
                )
            yield f"{split}: {one.images} pairs, {one.rejected.total()} rejected"


def _once(source: Path, pairs: Sequence[Pair]) -> tuple[list[Pair], list[Fault]]:
    """Return the pairs without files of earlier pairs, and faults of the others, which are links to them.

    Hard links are separate files: DVC's cache may create them for any equal files, only on one machine.
    """
    seen: dict[tuple[str, ...], str] = {}
    once, twice = [], []
    for pair in pairs:
        files = tuple(os.path.realpath(source / file) for file in pair.files)
        before = seen.setdefault(files, pair.name)
        if before == pair.name:
            once.append(pair)
        else:
            twice.append(Fault(pair.files[0], "image file used twice", f"{pair.name} is the file of {before}"))
    return once, twice


def _bring(source: Path, place: Path, pair: Pair) -> Seen | Fault:
    """Check a pair and, if it is usable, copy its files to `place`, unless they are there."""
    loaded = load_pair(source, pair)
    if isinstance(loaded, Fault):
        return loaded
    if place != source:
        places = ("",) if len(pair.files) == 1 else ("a", "b")
        files = [Path(side, Path(file).name) for side, file in zip(places, pair.files, strict=True)]
        for file, content, reading in zip(files, loaded.contents, loaded.readings, strict=True):
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(reading.stored(content))
    return _seen(loaded)


def _seen(loaded: Loaded) -> Seen:
    height, width = loaded.a.shape[:2]
    scale = min(1.0, _SIDE / max(height, width))
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    images = (loaded.a, loaded.b)
    means, stds = np.stack([cv2.meanStdDev(image) for image in images], axis=1)[..., 0]
    pictures = [np.asarray(cv2.resize(image, small, interpolation=cv2.INTER_AREA), np.uint8) for image in images]
    done, doubts = (tuple(getattr(one, name) for one in loaded.readings) for name in ("done", "doubts"))
    single = len(loaded.readings) == 1 and (width < 0.95 * height or _continues(loaded.a, loaded.b))
    return Seen((height, width), means, stds, tuple(pictures), done, doubts, single)


def _continues(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> bool:
    """Whether B continues A at the seam: columns that vary, alike, with a step as between neighbours within A and B."""
    if a.shape[1] < 2:
        return False
    left, last, first, right = (one.astype(np.float64) for one in (a[:, -2], a[:, -1], b[:, 0], b[:, 1]))
    if min(last.std(axis=0).max(), first.std(axis=0).max()) < _VARIES:
        return False
    within = (np.abs(left - last).mean() + np.abs(first - right).mean()) / 2
    alike = np.corrcoef((last - last.mean(axis=0)).ravel(), (first - first.mean(axis=0)).ravel())[0, 1]
    return bool(alike > 0.9 and np.abs(last - first).mean() <= 1.5 * max(within, 1.0))


def write_sheet(splits: Mapping[str, PairStatistics], path: Path) -> None:
    """Draw the first pairs of every split, A above B, with their names; same input, same bytes."""
    with drawing(path, (1.5 * _SHOWN, 3.5 * len(splits))) as figure:
        bands = np.ravel(figure.subfigures(len(splits), 1, squeeze=False))
        for band, (split, statistics) in zip(bands, splits.items(), strict=True):
            band.suptitle(f"{split} ({statistics.images} pairs), A above B")
            columns = band.subplots(2, _SHOWN, squeeze=False).T
            for axes in columns.flat:
                axes.set_axis_off()
            for (above, below), (name, (a, b)) in zip(columns, statistics.shown, strict=False):
                above.imshow(a)
                title = one_line(name)
                above.set_title(title if len(title) <= 14 else f"{title[:13]}…", fontsize="small", parse_math=False)
                below.imshow(b)
