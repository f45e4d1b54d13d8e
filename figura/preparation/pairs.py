"""Prepare a dataset of image pairs: usable pairs, statistics, a sample picture."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.links import real_path
from figura.base.pictures import encode_png, other_files
from figura.base.raw_pictures import TURNED
from figura.formats.pair_files import LAYOUTS, Fault, Loaded, Pair, find_pairs, load_pair, sides, split_folders
from figura.preparation.outcome import Outcome, Repaired, Repairs, rejected_line
from figura.preparation.splits import OF_ONE_VIDEO, drawn_apart, video_of

SHOWN = 8  # pictures in a row of a sheet
_AT_ONCE = 64
_SIDE = 128  # of a picture in a sheet, pixels
_VARIES = 8  # standard deviation of a column that is no plain background, of 255

Item = TypeVar("Item")
Result = TypeVar("Result")


class Rejected(NamedTuple):
    """A row of `rejected.csv`: the split, the first file of a pair below the split's folder, and why."""

    split: str
    file: str
    reason: str
    detail: str


class PicturePreparation(Outcome):
    """Copies usable pictures to `<split>/` below `folder`."""

    columns = Rejected._fields

    def in_threads(
        self, items: Iterable[Item], split_of: Callable[[Item], str], work: Callable[[Item, str], Result], title: str
    ) -> Iterator[tuple[Item, str, Result]]:
        """Yield each item, its split, and the result of `work` for them, which runs in a thread per core."""
        watched = iter(tqdm(items, title, unit="file", disable=not self.progress))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while batch := list(islice(watched, _AT_ONCE)):
                splits = [split_of(item) for item in batch]
                yield from zip(batch, splits, pool.map(work, batch, splits), strict=True)

    def count_reading(self, split: str, file: str, done: Iterable[str], suspicions: Mapping[str, str]) -> None:
        """Count what was changed in a file, and what looks wrong in it (see `Reading`)."""
        for kind in done:
            self.statistics[split].repairs.add_row(Repaired(split, file, kind))
        for kind, detail in suspicions.items():
            self.suspicions.add(kind, f"{split} {file}{detail}")

    def write_sheet(self, name: str, rows: Sequence[Sequence[NDArray[np.uint8]]]) -> None:
        """Write rows of pictures of `small` to `plots/<name>`."""
        white = [np.full((_SIDE, _SIDE, 3), 255, dtype=np.uint8)] * SHOWN
        strips = [np.concatenate([*row, *white][:SHOWN], axis=1) for row in rows]
        (self.folder / "plots").mkdir(exist_ok=True)
        (self.folder / "plots" / name).write_bytes(encode_png(np.concatenate(strips)))


def small(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an RGB picture resized to fit a square of a sheet, on white."""
    height, width = pixels.shape[:2]
    scale = _SIDE / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    square = np.full((_SIDE, _SIDE, 3), 255, dtype=np.uint8)
    square[: size[1], : size[0]] = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return square


_BLACK = 64  # of 255 levels: numbers of classes are lower, but for 255, which is none
_SAME = "pairs of which both pictures are the same: is one of the folders a copy of the other?"
_ONE_TURNED = (
    "pairs of which one picture was turned by its EXIF orientation: if the other shows the stored pixels, as label "
    "maps of MATLAB or PIL do, remove the orientation"
)


class Seen(NamedTuple):
    """Summary of a usable pair: size of each half (height, width), small pictures, mean and (population) std.

    `means` and `stds` are those of red, green and blue of A and of B, float64 (2, 3), in 0 to 255.
    `readings` has what was done to each file, and its suspicions; `is_single` is whether it looks like one picture,
    not A|B. `is_same` is whether A and B are equal; `levels` are their highest levels, but for white.
    """

    size: tuple[int, int]
    means: NDArray[np.float64]
    stds: NDArray[np.float64]
    pictures: tuple[NDArray[np.uint8], ...]
    readings: tuple[tuple[tuple[str, ...], dict[str, str]], ...]
    is_single: bool
    is_same: bool
    levels: tuple[int, ...]


class PairStatistics:
    """Counts over one split, pair by pair."""

    def __init__(self) -> None:
        self.images = 0
        self.repairs = Repairs()
        self.sizes: Counter[tuple[int, int]] = Counter()
        self.pixels, self.sums, self.squares = 0, np.zeros((2, 3)), np.zeros((2, 3))
        self.rejected: Counter[str] = Counter()
        self.shown: list[tuple[NDArray[np.uint8], ...]] = []
        self.single: list[str] = []
        self.levels = np.zeros(2)

    def add(self, name: str, seen: Seen) -> None:
        """Count a usable pair; store the first few as small pictures."""
        self.images += 1
        self.sizes[seen.size] += 1
        if seen.is_single:
            self.single.append(name)
        self.levels = np.maximum(self.levels, seen.levels)
        height, width = seen.size
        self.pixels += height * width
        self.sums += height * width * seen.means
        self.squares += height * width * (seen.stds**2 + seen.means**2)
        if len(self.shown) < SHOWN:
            self.shown.append(seen.pictures)

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


class PairPreparation(PicturePreparation):
    """Copies usable pairs in their layout, and collects statistics and rejections."""

    def add(self, splits: tuple[str, ...], source: Path, root: Path, key: str, split_of: Callable[[str], str]) -> None:
        """Read every pair of the split's folders once, and store the usable ones as `Reading.stored` does.

        The folders are those of `split_folders`. `split_of` maps the name of a pair to one of `splits`. No file may be
        outside `root`. Nothing is stored if `source` is already the split's folder.

        Raises:
            UserError: there are no folders; `key` is the setting that names them.
        """
        if (found := split_folders(source)) is None:
            raise UserError(f"{key}: no folder {source}; it may hold {LAYOUTS}{_layout_there(source)}")
        source, parts = found
        pairs, faults = find_pairs(source, root, parts)
        for part in parts:
            entries = [entry for entry in os.scandir(source / part) if entry.name[0] != "."]
            self.left_out += other_files(entry.name for entry in entries if os.path.isfile(entry.path))
            self.left_out += Counter({"folders in those of pairs": sum(os.path.isdir(one.path) for one in entries)})
        pairs, twice = _once(source, root, pairs)
        faults += twice
        self.records += len(pairs) + len(faults)
        self.statistics |= {split: PairStatistics() for split in splits}
        for fault in faults:
            split = split_of(Path(fault.file).stem)
            self.reject(split, Rejected(split, *fault))
        frames = ((video, split_of(pair.name)) for pair in pairs if (video := video_of(pair.files[0])))
        self.notes += drawn_apart(frames, OF_ONE_VIDEO)
        bring = partial(_bring, source, self.folder)
        for pair, split, seen in self.in_threads(pairs, lambda pair: split_of(pair.name), bring, f"read {source.name}"):
            if isinstance(seen, Fault):
                self.reject(split, Rejected(split, *seen))
                continue
            self.statistics[split].add(pair.name, seen)
            for file, reading in zip(pair.files, seen.readings, strict=True):
                self.count_reading(split, file, *reading)
            if len({TURNED in done for done, _ in seen.readings}) == 2:
                self.suspicions.add(_ONE_TURNED, f"{split} {pair.name}")
            if seen.is_same:
                self.suspicions.add(_SAME, f"{split} {pair.name}")

    def finish(self) -> None:
        """Write `plots/pairs.png`, rows of A above rows of B by split, and what every preparation writes."""
        rows = [[pair[side] for pair in one.shown] for one in self.statistics.values() for side in (0, 1)]
        self.write_sheet("pairs.png", rows)
        super().finish()

    def lines(self) -> Iterator[str]:
        """Yield repairs and suspicions, one line a kind, and a summary of each split."""
        yield from super().lines()
        for split, one in self.statistics.items():
            if 2 * len(one.single) > one.images:
                yield (
                    f"warning: {split}: {len(one.single)} of {one.images} pictures (e.g. {one.single[0]}) may be "
                    "single ones: their halves are narrower than high, or one continues the other; pairs are A|B "
                    "pictures, or files of the same names in the folders a and b"
                )
            for side, level in zip("ab", one.levels, strict=True):
                if 0 < level < _BLACK:
                    yield (
                        f"warning: {split}: all pictures of {side} are nearly black, of 255 levels, or white: if they "
                        "hold the numbers of classes, write a colour for each"
                    )
            yield f"{split}: {one.images} pairs, {rejected_line(one.rejected)}"


def _layout_there(folder: Path) -> str:
    """Return the end of a message about a missing folder of pairs: what there is instead."""
    if not folder.parent.is_dir():
        return ""
    if len(there := sides(folder.parent)) == 2:
        return f". {folder.parent} holds {' and '.join(there)} without splits, which `train: .` reads"
    names = sorted(one.name for one in folder.parent.iterdir() if one.is_dir())
    return f". {folder.parent} holds {', '.join(names[:8]) or 'no folders'}"


def _once(source: Path, root: Path, pairs: Sequence[Pair]) -> tuple[list[Pair], list[Fault]]:
    """Return the pairs without files of earlier pairs, and faults of the others, which are links to them.

    Hard links are separate files: a cache may create them for any equal files, only on one machine.
    """
    seen: dict[tuple[str, ...], str] = {}
    once, twice = [], []
    for pair in pairs:
        files = tuple(str(real_path(source / file, root)) for file in pair.files)
        before = seen.setdefault(files, pair.name)
        if before == pair.name:
            once.append(pair)
        else:
            twice.append(Fault(pair.files[0], "image file used twice", f"{pair.name} is the file of {before}"))
    return once, twice


def _bring(source: Path, folder: Path, pair: Pair, split: str) -> Seen | Fault:
    """Check a pair and, if it is usable, copy its files to the split in `folder`, unless they are there."""
    loaded = load_pair(source, pair)
    if isinstance(loaded, Fault):
        return loaded
    place = folder / split
    if place != source:
        places = ("",) if len(pair.files) == 1 else ("a", "b")
        files = [Path(side, Path(file).name) for side, file in zip(places, pair.files, strict=True)]
        for file, content, reading in zip(files, loaded.contents, loaded.readings, strict=True):
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(reading.stored(content))
    return _seen(loaded)


def _seen(loaded: Loaded) -> Seen:
    height, width = loaded.a.shape[:2]
    images = (loaded.a, loaded.b)
    means, stds = np.stack([cv2.meanStdDev(image) for image in images], axis=1)[..., 0]
    readings = tuple((one.done, one.suspicions) for one in loaded.readings)
    levels = tuple(int(one[(one < 255).any(axis=2)].max(initial=0)) for one in images)
    is_same = np.array_equal(*images)
    return Seen(
        (height, width), means, stds, tuple(map(small, images)), readings, looks_single(loaded), is_same, levels
    )


def looks_single(loaded: Loaded) -> bool:
    """Whether a picture looks like a single one, not A|B: its halves are narrower than high, or one continues."""
    height, width = loaded.a.shape[:2]
    return len(loaded.readings) == 1 and (width < 0.95 * height or _continues(loaded.a, loaded.b))


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
