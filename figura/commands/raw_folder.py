"""What a folder of raw data holds, as an entry of `data/params.yaml`: for `figura init --data`.

The readers of `figura.preparation` decide. Splits keep the names that they have in the folder; the others are shares of
`train`.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.pictures import SUFFIXES, VIDEOS, left_out_line, picture_files
from figura.base.raw_pictures import picture_facts, read_picture
from figura.base.sampling import evenly_spaced
from figura.formats.coco import file_name_of, read_pairs, read_records
from figura.formats.exports import open_export
from figura.formats.pair_files import Fault, Loaded, find_pairs, load_pair, sides, split_folders
from figura.formats.records import UnusableError
from figura.formats.yolo import SPLITS, open_yolo, yolo_file
from figura.preparation.pairs import looks_single
from figura.preparation.picture_names import PictureNames
from figura.preparation.splits import TRAIN, VALIDATION, in_order

FEWEST = 20  # pictures, so that each split has some
_MANY = 500  # pictures, of which a tenth is enough to judge by
_SAMPLE = 40  # pictures that are looked for or opened
_MOST = 0.9  # share of the sample that stands for all
_FOLDERS = 10  # in which the pictures of one may be those of another, smaller
_COMPARED = 4  # pictures
_SMALLER = 1.5  # times
_THUMB, _ALIKE = 8, 0.9  # pixels of a side, correlation
_FLATTER = 0.2  # share of the pixels that flat colours cover on one side of a pair more than on the other

_SPLIT = re.compile(r"(?<![a-z])(train|val|test)(?:id|idation|ing|set)?(?![a-z])")
"""A split as a word of its own: `interval` and `latest` are none."""
_BESIDE = re.compile(r"\.|__MACOSX$|(?i:(readme|licen[cs]e)\b|.*\.(7z|db|gz|html|ini|md|pdf|rar|tar|tgz|zip)$)")
"""What lies beside the one folder that has everything."""
_ARCHIVES = (".7z", ".gz", ".rar", ".tar", ".tgz", ".zip")
_ANNOTATIONS = (".json", ".ndjson", ".jsonl", ".xml", ".csv", ".txt", ".h5", ".slp", ".mat")

Places = dict[str, tuple[str, Path, tuple[str, ...]]]
"""Split -> its name in the folder, its folder, and the folders of A and B in it, or `.`."""


class Found(NamedTuple):
    """What a folder holds.

    `source` is the folder, or the one in it that has everything; `kind` and `section` are those of its dataset,
    `recipe` is one for it. `seen` are lines about it. `side` is the usual shorter side of pictures in pixels;
    `direction` is that of pairs, if one side looks like a label map.
    """

    source: Path
    kind: str
    section: dict[str, Any]
    recipe: str
    seen: tuple[str, ...]
    side: int | None = None
    direction: str | None = None


def look(path: Path) -> Found:
    """Return what a folder holds. Raises UserError, with what to do, for what trains nothing or cannot be known."""
    if path.is_file() and path.suffix.lower() in VIDEOS:
        raise _of_video(path, path)
    if not path.is_dir():
        what = "a single file" if path.is_file() else "no such folder"
        raise UserError(f"--data {path}: {what}; name a folder of at least {FEWEST} pictures")
    packed = list[str]()
    while len(inside := [one for one in path.iterdir() if not _BESIDE.match(one.name)]) == 1 and inside[0].is_dir():
        names = sorted(one.name for one in path.iterdir() if one.suffix.lower() in _ARCHIVES)
        packed += [one for one in names if not one.startswith(inside[0].name)]  # its own archive
        path = inside[0]
    found = [one for one in (_yolo(path), _coco(path), _two_sides(path)) if one]
    if len(found) > 1:
        both = "; and ".join(one.seen[0] for one in found)
        raise UserError(f"--data {path}: {both}: name a folder that has one of them")
    one = found[0] if found else _pictures(path)
    return one._replace(seen=(*one.seen, f"not unpacked: {', '.join(packed)}")) if packed else one


def _yolo(folder: Path) -> Found | None:
    file = yolo_file(folder)
    if file is None:
        return None
    entries = {split: list(export.entries()) for split, export in open_yolo(file, folder).items()}
    faults = [one for of in entries.values() for one in of if isinstance(one.record, UnusableError)]
    pictures = {split: [one.picture for one in of if one.picture and not one.record] for split, of in entries.items()}
    records = [one.record for of in entries.values() for one in of if isinstance(one.record, dict)]
    files = [folder / str(picture) for of in pictures.values() for picture in of]
    counts = {split: len(of) for split, of in pictures.items()}
    if faults and not records:
        raise UserError(f"--data {folder}: no label can be used; the first, {faults[0].number}: {faults[0].record}")
    return _annotated(folder, f"YOLO's {file.name}", {"annotations": file.name}, counts, records, files)


def _coco(folder: Path) -> Found | None:
    inside = (folder / name for name in ("annotations", *_named_splits(folder)))
    places = [folder, *(one for one in inside if one.is_dir())]
    by_split: dict[str, list[Path]] = {}
    for file in [file for one in places for file in sorted(one.glob("*.json")) if file.name[0] != "."]:
        if export := open_export(file, f"--data {folder}"):
            raise UserError(
                f"--data {folder}: {export.format}, {file.name}: write its entry as data/raw/README.md says"
            )
        if {"images", "annotations"} <= {key for key, _ in read_pairs(file)}:
            word = _SPLIT.search(file.relative_to(folder).as_posix().lower())
            by_split.setdefault(SPLITS[word[1]] if word else TRAIN, []).append(file)
    if not by_split:
        return None
    if TRAIN not in by_split:  # as of COCO's val2017 alone
        by_split[TRAIN] = by_split.pop(in_order(by_split)[0])
    by_split = {split: by_split[split] for split in in_order(by_split)}
    for split, files in by_split.items():
        by_split[split] = [one for one in files if "keypoints" in one.name] or files
        if len(by_split[split]) > 1:
            both = " and ".join(one.name for one in files[:2])
            more = f", and {len(files) - 2} more," if len(files) > 2 else ""
            raise UserError(
                f"--data {folder}: {both}{more} are annotations of one split; leave one of them there, or join them"
            )
    records, pictures, counts, images = list[Any](), list[Path](), dict[str, int](), dict[str, str]()
    for split, (file,) in by_split.items():
        said = [str(file_name_of(one)) for one in read_records(file, "images") if isinstance(one, dict)]
        images[split], names = _place_of(folder, file, said)
        counts[split] = len(names)
        pictures += [folder / images[split] / name for name in names]
        records += [one for one in read_records(file, "annotations") if isinstance(one, dict)]
    paths = {split: file.relative_to(folder).as_posix() for split, (file,) in by_split.items()}
    section: dict[str, Any] = {
        "images": images if len({*images.values()}) > 1 else images[TRAIN],
        "annotations": paths[TRAIN] if [*paths] == [TRAIN] else paths,
    }
    return _annotated(folder, "COCO's JSON", section, counts, records, pictures)


def _place_of(folder: Path, annotations: Path, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the folder of most pictures, relative to `folder`, and their names in it.

    The names may have folders of another machine, and some pictures may be missing. Splits may have pictures of the
    same names, so the folder of the annotations comes first, then those with its split in their path; at last, names
    count as `prepare` finds them.
    """
    word = _SPLIT.search(annotations.relative_to(folder).as_posix().lower())
    below = [one for one in sorted(folder.rglob("*")) if one.is_dir()]
    of_split = [one for one in below if word and word[0] in one.relative_to(folder).as_posix().lower()]
    names = [name.replace("\\", "/") for name in names]
    sample, most, best = evenly_spaced(len(names), _SAMPLE), 0, ("", names)
    places = (annotations.parent, annotations.parent / "images", *of_split, folder / "images", folder, *below)
    for place, ends in _ways(folder, places, names):
        if (count := sum((place / ends[index]).is_file() for index in sample)) > most:
            most, best = count, (place.relative_to(folder).as_posix(), ends)
        if most == len(sample):
            break
    if most:
        return best
    found = f"no picture that the annotations name, such as {names[0]}" if names else "annotations without pictures"
    raise UserError(f"--data {folder}: found {found}")


def _ways(folder: Path, places: Iterable[Path], names: list[str]) -> Iterator[tuple[Path, list[str]]]:
    for place in places:
        yield place, names
        yield place, [Path(name).name for name in names]
    known = PictureNames(list(picture_files(folder)))
    yield folder, [known.nearest(name) or name for name in names]


def _annotated(
    folder: Path, what: str, section: dict[str, Any], counts: dict[str, int], records: Sequence[Any], files: list[Path]
) -> Found:
    joints = sum(any(one.get("keypoints") or ()) for one in records)
    section |= _shares(folder, counts, others=False)
    if TRAIN not in counts:
        raise UserError(f"--data {folder}: {what} has no split train, but {', '.join(counts)}; give one this name")
    if not any({"bbox", "keypoints", "segmentation"} & {*one} for one in records):
        raise UserError(f"--data {folder}: {what} has no box, mask or joint; name the folder of its pictures instead")
    with_joints = f" ({joints} with joints)" if joints else ", boxes without joints"
    seen = f"{what}: {len(records)} annotations{with_joints} in {_counted(counts, 'pictures')}, {_said(_sizes(files))}"
    absent = [one for one in files if not one.is_file()]
    missing = [f"{len(absent)} of these pictures are not there, such as {absent[0]}"] if absent else []
    return Found(folder, "coco", section, "pose" if joints else "detection", (seen, *missing))


def _two_sides(folder: Path) -> Found | None:
    """Return pairs, or two sets of pictures, where a folder has two sides or A|B pictures."""
    places = _places(folder)
    listed = {split: find_pairs(place, folder, parts) for split, (_, place, parts) in places.items()}
    pairs = {split: of for split, (of, _) in listed.items()}
    tried = [
        load_pair(places[split][1], of[index]) for split, of in pairs.items()
        for index in evenly_spaced(len(of), _SAMPLE)
    ]  # fmt: skip
    loaded, faults = [one for one in tried if isinstance(one, Loaded)], [one for one in tried if isinstance(one, Fault)]
    names = {split: name for split, (name, _, _) in places.items()}
    counts = {split: len(of) for split, of in pairs.items()}
    if all(len(parts) == 1 for _, _, parts in places.values()):
        both = sum(one.a.shape[0] == one.a.shape[1] and not looks_single(one) for one in loaded)
        opened = len(loaded) + sum(one.reason == "odd width" for one in faults)
        if not both or both < (1 - _MOST) * opened:
            return None
        if both < _MOST * opened:
            raise UserError(
                f"--data {folder}: {both} of {opened} pictures look like A|B pairs side by side, the others like "
                "single ones; name a folder that has one kind"
            )
        return _of_pairs(folder, names, counts, _counted(counts, "A|B pictures, pairs side by side"), loaded)
    files = {
        split: [[place / part / file for file in picture_files(place / part)] for part in parts]
        for split, (_, place, parts) in places.items()
    }  # fmt: skip
    if not any(of for sides_of in files.values() for of in sides_of):
        return None
    if any(parts[-1].lower().startswith("hr") for _, _, parts in places.values()):  # LR is made of HR
        high = {
            split: (place / parts[-1]).relative_to(folder).as_posix() for split, (_, place, parts) in places.items()
        }
        return _of_singles(folder, high, {split: of[-1] for split, of in files.items()})
    sizes = _sizes([file for of in files.values() for file in (*of[0], *of[-1])])
    if loaded and 2 * sum(counts.values()) >= max(sum(len(of[n]) for of in files.values()) for n in (0, -1)):
        found = _of_pairs(folder, names, counts, _counted(counts, "pairs, files of the same names"), loaded)
        alone = [one for _, of in listed.values() for one in of]
        return found._replace(seen=(*found.seen, *_no_pairs(alone + faults)))
    fewer = {split: min(map(len, of)) for split, of in files.items()}
    section = names | _shares(folder, fewer)
    each = ", ".join(f"{len(of[0])} and {len(of[-1])} for {split}" for split, of in files.items())
    seen = f"two sets of pictures without pairs, A and B: {each}, {_said(sizes)}"
    notes = (*_no_pairs(faults), *_named_apart(list(files.values())))
    return Found(folder, "unpaired", section, "unpaired", (seen, *notes), _side(sizes))


def _places(folder: Path) -> Places:
    """Return the splits of a folder; the folder itself, as train, if it has none."""
    found: Places = {}
    for name, split in _named_splits(folder).items():
        if split not in found and (place := split_folders(folder / name)):
            found[split] = (name, *place)
    return (
        {split: found[split] for split in in_order(found)} if TRAIN in found else {TRAIN: (".", folder, sides(folder))}
    )


def _named_splits(folder: Path) -> dict[str, str]:
    """Return the name of a folder -> its split: the usual names first, then others, such as `Training`."""
    inside = sorted(one.name for one in folder.iterdir() if one.is_dir() and one.name[0] != ".")
    return SPLITS | {name: SPLITS[word[1]] for name in inside if (word := _SPLIT.search(name.lower()))}


def _of_pairs(folder: Path, names: dict[str, str], counts: dict[str, int], what: str, loaded: list[Loaded]) -> Found:
    sizes = Counter((one.a.shape[1], one.a.shape[0]) for one in loaded)
    more = median(_flat(one.b) for one in loaded) - median(_flat(one.a) for one in loaded)
    direction = None if abs(more) < _FLATTER else "b_to_a" if more > 0 else "a_to_b"
    note = f"{direction[0].upper()} has flat colours, as a label map: it is the input" if direction else ""
    seen = f"{what}, {_said(sizes)} each"
    section = names | _shares(folder, counts)
    return Found(folder, "paired", section, "pix2pix", (seen, note) if note else (seen,), _side(sizes), direction)


def _no_pairs(faults: Sequence[Fault]) -> list[str]:
    """Return a line about files that are no pairs, if there are any."""
    if not faults:
        return []
    file, reason, detail = faults[0]
    return [f"no pair: {file}{' and others' if faults[1:] else ''}: {reason}, {detail}"]


def _named_apart(splits: Sequence[Sequence[Sequence[Path]]]) -> list[str]:
    """Return a line if files of A and of B have the same numbers in their names, and no names in common."""
    for a, b in splits:
        numbered = [{tuple(re.findall(r"\d+", one.stem)): one for one in side} for side in (a, b)]
        same = sorted((numbered[0].keys() & numbered[1].keys()) - {()})
        if same and 2 * len(same) >= max(len(a), len(b)) and not {one.stem for one in a} & {one.stem for one in b}:
            first, second = (of[same[0]] for of in numbered)
            both, other = f"{first.name} and {second.name}", f"{second.stem}{first.suffix}"
            return [f"pairs are files of the same name: if {both} are one, rename them, such as {other}"]
    return []


def _pictures(folder: Path) -> Found:
    """Return plain pictures."""
    names, lines = dict[str, str](), list[str]()
    for name, split in _named_splits(folder).items():
        if (folder / name).is_dir():
            names.setdefault(split, name)
    names = {split: names[split] for split in in_order(names)} if TRAIN in names else {TRAIN: "."}
    files = {split: [folder / name / file for file in picture_files(folder / name)] for split, name in names.items()}
    smaller = {split: _smaller(of) for split, of in files.items()}
    full = {split: [one for one in of if one.parent not in smaller[split]] for split, of in files.items()}
    copies = set[Path]().union(*smaller.values())
    if copies and all(len({one.parent for one in of}) == 1 for of in full.values()):  # an entry names one folder
        files, names = full, {split: of[0].parent.relative_to(folder).as_posix() for split, of in full.items()}
        told = ", ".join(sorted(one.relative_to(folder).as_posix() for one in copies))
        lines = [f"{told}: the same pictures, smaller, which super-resolution makes itself: left out"]
    if not any(files.values()):
        videos = sorted(file for file in folder.rglob("*") if file.suffix.lower() in VIDEOS)
        if videos:
            raise _of_video(folder, videos[0])
        raise UserError(f"--data {folder}: no pictures ({', '.join(SUFFIXES)}) and no annotations; {_others(folder)}")
    found = _of_singles(folder, names, files)
    return found._replace(seen=(*found.seen, *lines, *_left_out(folder, names, sum(map(len, files.values())))))


def _smaller(files: Sequence[Path]) -> set[Path]:
    """Return the folders whose pictures are those of another folder of the same names (or `0001x2`), smaller."""
    inside = dict[Path, dict[str, Path]]()
    for file in files:
        inside.setdefault(file.parent, {})[re.sub(r"x\d$", "", file.stem)] = file
    if len(inside) > _FOLDERS:
        return set()
    return {low for low, high in permutations(inside, 2) if _is_smaller(inside[low], inside[high])}


def _is_smaller(low: dict[str, Path], high: dict[str, Path]) -> bool:
    """Return whether pictures are those of the same names of another folder, smaller, by a few of them."""
    both = sorted(low.keys() & high.keys())
    if not both or len(both) < _MOST * len(low):
        return False
    return all(_shows_same(low[both[index]], high[both[index]]) for index in evenly_spaced(len(both), _COMPARED))


def _shows_same(low: Path, high: Path) -> bool:
    try:
        small, large = (read_picture(one) for one in (low, high))
    except UserError:
        return False
    if min(large.shape[:2]) < _SMALLER * min(small.shape[:2]):
        return False
    thumbs = [cv2.resize(one, (_THUMB, _THUMB), interpolation=cv2.INTER_AREA).ravel() for one in (small, large)]
    with np.errstate(invalid="ignore"):  # of one colour all over
        return bool(np.corrcoef(thumbs)[0, 1] > _ALIKE)


def _others(folder: Path) -> str:
    """Return the end of a message about missing pictures: what else is there, in words."""
    others = Counter[str]()
    for _ in picture_files(folder, others):
        pass
    cure = "convert pictures to JPEG or PNG, unpack archives"
    return f"{left_out_line(others)}: {cure}" if others else "bring data there"


def _left_out(folder: Path, names: dict[str, str], used: int) -> list[str]:
    """Return lines about files beside the pictures used, and what to do about those that look like annotations."""
    left_out = Counter[str]()
    counted = sum(1 for _ in picture_files(folder, left_out))
    left_out += Counter({f"pictures outside of {', '.join(names.values())}": counted - used})
    lines = [left_out_line(left_out)] if left_out else []
    for suffix in _ANNOTATIONS:
        fewest = counted / 2 if suffix == ".txt" else 1  # a README.txt is no label
        if left_out[f"files of {suffix}"] >= fewest:
            files = (one.relative_to(folder) for one in sorted(folder.rglob("*")) if one.suffix.lower() == suffix)
            first = next(one for one in files if not any(part.startswith(".") for part in one.parts))
            lines += [line] if (line := _why_not_read(folder / first)) else []
    return lines


def _why_not_read(file: Path) -> str | None:
    """Return what annotations beside plain pictures are, and what to do; None for other files."""
    try:
        export = open_export(file, "not read")
        if export:
            return f"not read: {file.name}: {export.format}; write its entry as data/raw/README.md says"
        if {"images", "annotations"} <= {key for key, _ in read_pairs(file)}:
            return f"not read: {file.name}: COCO JSON; move it beside the folder of its pictures to use it"
    except UserError as error:
        return str(error)
    return None


def _of_singles(folder: Path, names: dict[str, str], files: dict[str, list[Path]]) -> Found:
    counts = {split: len(of) for split, of in files.items()}
    sizes = _sizes([one for of in files.values() for one in of])
    seen = f"{_counted(counts, 'pictures without annotations')}, {_said(sizes)}"
    below = [file.relative_to(folder / names[TRAIN]) for file in files[TRAIN]]
    inside, lines = sorted({one.parts[0] for one in below} - {*SPLITS}), [seen]
    if len(inside) == 2 and all(len(one.parts) > 1 for one in below):
        lines.append(
            f"they lie in {' and '.join(inside)}: if files of the same names are pairs, or if one is to be turned into "
            "the other, name the folders A and B"
        )
    elif twos := _in_twos(files[TRAIN]):
        lines.append(
            f"they come in twos, as {' and '.join(twos)}: if these are pairs, move them into folders A and B, and give "
            "both the same name; if one is a mask or smaller, move it out"
        )
    return Found(folder, "images", names | _shares(folder, counts), "super_resolution", tuple(lines), _side(sizes))


def _in_twos(files: Sequence[Path]) -> list[str]:
    """Return the names of two pictures, as `1.jpg` and `1_mask.png`, if almost all are one of two that end so."""
    ends = dict[str, dict[Path, str]]()
    for file in files:
        start = re.sub(r"[-_. ]?[A-Za-z]*\Z", "", file.stem)
        ends.setdefault(file.stem.removeprefix(start), {})[file.parent / start] = file.name
    if len(ends) != 2:
        return []
    first, second = ends.values()
    both = sorted(first.keys() & second.keys())
    return [first[both[0]], second[both[0]]] if both and 2 * len(both) >= _MOST * len(files) else []


def _of_video(path: Path, video: Path) -> UserError:
    source, frames = shlex.quote(str(video)), shlex.quote(f"{video.stem}_%05d.jpg")
    return UserError(
        f"--data {path}: {video.name} is a video, and training takes pictures: `ffmpeg -i {source} -r 1 {frames}` "
        "writes one a second; name their folder"
    )


def _shares(folder: Path, counts: dict[str, int], others: bool = True) -> dict[str, Any]:
    """Return `shares` of splits that are missing. Raises UserError for too few pictures, which tells `others`."""
    total, missing = sum(counts.values()), [split for split in (VALIDATION, "test") if split not in counts]
    if total < FEWEST:
        needed = f"training needs at least {FEWEST} pictures, or pairs"
        raise UserError(f"--data {folder}: found {total}, and {needed}{f'; {_others(folder)}' if others else ''}")
    return {"shares": dict.fromkeys(missing, 0.1 if total >= _MANY else 0.2)} if missing else {}


def _sizes(files: Sequence[Path]) -> Counter[tuple[int, int]]:
    """Count width and height of some pictures; those that cannot be read do not count."""
    sizes = Counter[tuple[int, int]]()
    for index in evenly_spaced(len(files), _SAMPLE):
        try:
            sizes[picture_facts(files[index]).upright] += 1
        except UserError:
            continue
    return sizes


def _said(sizes: Counter[tuple[int, int]]) -> str:
    if not sizes:
        return "none of which can be read"
    if len(sizes) == 1:
        ((width, height),) = sizes
        return f"{width} x {height} pixels"
    (low, high), (lowest, highest) = ((min(one), max(one)) for one in zip(*sizes, strict=True))
    return f"{low} to {high} pixels wide and {lowest} to {highest} high"


def _side(sizes: Counter[tuple[int, int]]) -> int | None:
    """Return the median of the shorter sides."""
    return int(median(min(size) for size in sizes.elements())) if sizes else None


def _counted(counts: dict[str, int], what: str) -> str:
    each = f" ({', '.join(f'{split} {count}' for split, count in counts.items())})" if [*counts] != [TRAIN] else ""
    return f"{sum(counts.values())} {what}{each}"


def _flat(picture: NDArray[np.uint8]) -> float:
    """Return the share of the pixels that have one of the 8 commonest colours, of 16 levels a channel."""
    levels = (picture >> 4).astype(np.int64) @ (256, 16, 1)
    return float(np.sort(np.bincount(levels.ravel()))[-8:].sum() / levels.size)
