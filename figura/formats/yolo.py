"""YOLO's folders of labels: `labels/*.txt` and a `data.yaml` (https://docs.ultralytics.com/datasets/pose).

A row of a label is `class x y width height`, in fractions of the picture, with the centre of the box; then the joints,
`x y` or `x y flag` by `kpt_shape`, or a polygon's points if there is no `kpt_shape`. A picture without a label file
counts as empty; these are counted.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from figura.base.errors import UserError, closest
from figura.base.files import read_text
from figura.base.links import real_path
from figura.base.yaml12 import BOOL
from figura.formats.exports import OF_COUNT, Entry, Export, entry_of
from figura.formats.keypoint_sets import SETS
from figura.formats.pair_files import SUFFIXES
from figura.formats.records import UnusableError, is_finite, numbered_apart, whole_number

_LARGEST = 1 << 24  # bytes of data.yaml, of a label or of a list of pictures
_MOST_JOINTS = 1 << 10
_UNKNOWN = "class is not one of data.yaml"
_ROUNDED = 0.02  # of a side
_FEW = 0.2  # of the pictures may be without a label, as background
SPLITS = {"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}
"""Key of data.yaml -> split."""
OTHERS = ("path", "names", "nc", "kpt_shape", "flip_idx", "kpt_names")  # keys that are read


class _Loader(yaml.SafeLoader):
    """Has no truth values: `yes`, `no`, `on` and `off` are names of classes."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, form) for tag, form in forms if tag != BOOL]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def yolo_file(path: Path) -> Path | None:
    """Return the data.yaml that a path is, or that is in this folder, or None; it may have another name."""
    if path.is_dir():
        usual = [path / name for name in ("data.yaml", "data.yml", "dataset.yaml") if (path / name).is_file()]
        others = [file for file in sorted(path.glob("[!.]*.y*ml")) if not usual and _names_data(file)]
        return usual[0] if usual else others[0] if len(others) == 1 else None
    return path if path.suffix.lower() in (".yaml", ".yml") else None


def _names_data(file: Path) -> bool:
    """Whether a file has the keys `train` and `names`."""
    text = file.read_bytes() if file.is_file() else b""
    return all(re.search(rb"^%s\s*:" % key, text, re.MULTILINE) for key in (b"train", b"names"))


def open_yolo(path: Path, root: Path) -> dict[str, Export]:
    """Return split -> the records of its pictures, whose names are relative to `root`, the folder of the dataset.

    No file outside of it is read.

    Raises:
        UserError: data.yaml is no map, names no folder of pictures that exists below `root`, or has wrong values.
    """
    content, root = _content(path), root.resolve()
    names = _names(path, content.get("names"), content.get("nc"))
    joints, shape, flip = _joints(path, content, names)
    categories = tuple({"id": number + 1, "name": name} for number, name in names.items())
    splits, seen, typos = dict[str, Export](), set[str](), _misspelt(path, content)
    for key, split in SPLITS.items():
        if content.get(key) and split not in splits:
            pictures = list(dict.fromkeys(_pictures(path, root, content, key)))
            there = [picture for picture in pictures if (root / picture).exists()]
            bare = [picture for picture in there if not (root / _label_file(root, picture)).is_file()]
            if pictures and len(bare) == len(pictures):
                label = label_of(pictures[0])
                raise UserError(f"{path}: no labels: {label} and the others do not exist below {root}")
            notes = [*typos, *_labels_told(path.name, split, pictures, bare)]
            folders = {str(PurePosixPath(one).parent) for one in there} - seen
            entries = partial(_entries, path, root, pictures, sorted(folders), names, shape)
            splits[split] = Export(path, "YOLO's labels", entries, joints, categories, False, True, flip, tuple(notes))
            seen |= folders
            typos = []
    if not splits:
        raise UserError(f"{path}: no split; it needs `train` and `val`, folders of pictures")
    return splits


def _labels_told(file: str, split: str, pictures: list[str], bare: list[str]) -> Iterator[str]:
    """Yield a line about pictures without a label, and a warning about those that share one."""
    if bare:
        line = f"{file}: {len(bare)} of {len(pictures)} pictures of {split} have no label file: they count as empty"
        yield f"{'warning: ' if len(bare) > _FEW * len(pictures) else ''}{line}, such as {bare[0]}"
    of_label = dict(zip(map(label_of, pictures), pictures, strict=True))
    shared = [(picture, of_label[label]) for picture in pictures if of_label[label := label_of(picture)] != picture]
    if shared:
        both = " and ".join(shared[0])
        yield f"warning: {file}: {len(shared)} pictures of {split} share the label of another, such as {both}"


def _content(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path, most=_LARGEST)
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("aliases (*name) are not read, as a few of them can stand for any amount of memory")
        content = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: no readable YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: a map with names, train and val is needed; found {repr(content)[:80]}")
    return {key.lower() if str(key).lower() in SPLITS else key: value for key, value in content.items()}


def _misspelt(path: Path, content: dict[str, Any]) -> list[str]:
    """Return a warning for each key that is not read, and is close to one that is and is missing."""
    given = {SPLITS[key] for key in SPLITS if content.get(key)}
    missing = [key for key in (*SPLITS, *OTHERS) if key not in content and SPLITS.get(key) not in given]
    unread = [key for key in map(str, content) if key not in (*SPLITS, *OTHERS)]
    return [
        f"warning: {path.name}: the key {key!r} is not read; is it {near!r}?"
        for key in unread
        if (near := closest(key, missing)) is not None
    ]


def _names(path: Path, names: Any, count: Any) -> dict[int, str]:
    if names is None and type(count) is int and 0 < count <= _MOST_JOINTS:
        return {0: "person"} if count == 1 else {number: f"class_{number}" for number in range(count)}
    known = dict(enumerate(names)) if isinstance(names, list) else names
    known = {whole_number(number): name for number, name in known.items()} if isinstance(known, dict) else {}
    if not known or None in known:
        raise UserError(f"{path}: names: the classes are needed, a list or `0: person`; found {repr(names)[:80]}")
    return {number: str(name) for number, name in known.items() if number is not None}


def _joints(
    path: Path, content: dict[str, Any], names: dict[int, str]
) -> tuple[tuple[str, ...], tuple[int, int], tuple[int, ...]]:
    """Return the names of the joints, `kpt_shape` (their number and that of values of each), and `flip_idx` if said.

    Without names, they are those of a published set that has as many and the same `flip_idx`; without this, too, it is
    left to others to assume them.
    """
    shape, flip = content.get("kpt_shape"), content.get("flip_idx")
    if shape is None:
        return (), (0, 0), ()
    whole = isinstance(shape, list) and len(shape) == 2 and all(type(one) is int for one in shape)
    if not whole or not 2 <= shape[0] <= _MOST_JOINTS or shape[1] not in (2, 3):
        raise UserError(f"{path}: kpt_shape: found {repr(shape)[:80]}; expected [number of joints, 2 or 3]")
    count = shape[0]
    whole = flip is None or (isinstance(flip, list) and all(type(one) is int for one in flip))
    if not whole or (flip and (sorted(flip) != [*range(count)] or any(flip[flip[one]] != one for one in flip))):
        raise UserError(
            f"{path}: flip_idx: found {repr(flip)[:80]}; expected each number from 0 to {count - 1} once, pairs swapped"
        )
    said = content.get("kpt_names")
    said = next(iter(said.values()), None) if isinstance(said, dict) else said
    if isinstance(said, list) and len({*map(str, said)}) != count:
        raise UserError(f"{path}: kpt_names: found {len({*map(str, said)})} names; kpt_shape says {count} joints")
    if isinstance(said, list):
        return tuple(map(str, said)), (count, shape[1]), tuple(flip or ())
    published = [one for one in SETS.values() if len(one.keypoints) == count and "person" in names.values()]
    if flip and (same := [one.keypoints for one in published if one.flip == tuple(flip)]):
        return same[0], (count, shape[1]), ()
    if not flip and published and count in OF_COUNT:
        return (), (count, shape[1]), ()
    return tuple(f"joint_{number}" for number in range(1, count + 1)), (count, shape[1]), tuple(flip or ())


def _pictures(path: Path, root: Path, content: dict[str, Any], key: str) -> Iterator[str]:
    """Yield the pictures of a split, relative to `root`: of a folder, of a list in a text file, or of several."""
    several = content[key] if isinstance(content[key], list) else [content[key]]
    bases = [path.parent]
    if isinstance(content.get("path"), str):
        bases.insert(0, path.parent / content["path"])
    for one in several:
        place = next((place for name in _readings(str(one)) if (place := _place(name, bases, root))), None)
        if place is None:
            raise UserError(
                f"{path}: {key}: no folder {str(one)[:200]} below {root}; paths count from `path`, or from the folder "
                f"of {path.name}, and stay in the source; without such pictures, remove the key"
            )
        if place.is_dir():
            files = sorted(file for file in place.rglob("*") if file.suffix.lower() in SUFFIXES)
        else:
            text = read_text(place, most=_LARGEST).removeprefix("\ufeff").replace("\\", "/")
            lines = [line.strip() for line in text.split("\n") if line.strip()]
            files = [_listed(line, [place.parent, *bases], root) for line in lines]
        for file in files:
            if not any(part.startswith(".") for part in file.relative_to(root).parts):
                yield file.relative_to(root).as_posix()


def _readings(name: str) -> Iterator[str]:
    """Yield a folder's path, and of an absolute one, which may be another machine's, its last two parts or more."""
    name = name.replace("\\", "/")
    yield name
    drive, *parts = PurePosixPath(name).parts or ("",)
    if drive == "/" or drive.endswith(":"):
        yield from ("/".join(parts[first:]) for first in range(len(parts) - 1))


def _listed(line: str, bases: list[Path], root: Path) -> Path:
    """Return the picture that a line names, perhaps by a path of another machine; a path without a file if none is."""
    parts = [part for part in PurePosixPath(line).parts if part not in ("/", "..")]
    ends = ("/".join(parts[first:]) for first in range(len(parts)))
    return next((place for name in (line, *ends) if (place := _place(name, bases, root))), root.joinpath(*parts))


def _place(name: str, bases: list[Path], root: Path) -> Path | None:
    """Return an existing path below `root`; `../train/images` also counts from the folder itself, as with Roboflow."""
    for base in bases:
        for said in (name, name.removeprefix("../"), name.removeprefix("./")):
            try:
                if (place := real_path(base / said, root)) is not None and place.exists():
                    return place
            except (OSError, ValueError):
                continue
    return None


def label_of(picture: str) -> str:
    """Return the label of a picture: its last folder `images` becomes `labels`, and the suffix `.txt`."""
    before, images, after = f"/{PurePosixPath(picture).with_suffix('.txt')}".rpartition("/images/")
    return (f"{before}/labels/{after}" if images else after).removeprefix("/")


_composed = partial(unicodedata.normalize, "NFC")


def _label_file(root: Path, picture: str) -> str:
    """Return the label of a picture as its file is named, whose accents may be written apart (macOS) or not."""
    label = PurePosixPath(label_of(picture))
    named = (str(label.with_name(unicodedata.normalize(form, label.name))) for form in ("NFC", "NFD"))
    return next((one for one in (str(label), *named) if (root / one).is_file()), str(label))


def _entries(
    path: Path, root: Path, pictures: list[str], folders: list[str], names: dict[int, str], shape: tuple[int, int]
) -> Iterator[Entry]:
    """Yield the rows of the labels of pictures, and the labels in their folders that belong to none.

    Raises:
        UserError: the labels count classes from 1, and data.yaml from 0, or so.
    """
    used = set[int | None]()
    for picture in pictures:
        yield Entry(picture, None)
        place = _label_file(root, picture)
        if real_path(root / place, root) is None:
            yield Entry(picture, UnusableError("path leaves the data root", Path(place).name), place)
        elif (root / place).is_file():
            for entry in _rows(root / place, picture, place, names, shape):
                used.add(_class_of(entry.record))
                yield entry
    if apart := numbered_apart(used, {*names}):
        raise UserError(f"{path}: labels name the classes {apart}")
    for folder in folders:
        have = {"classes", *(_composed(file.stem) for file in (root / folder).iterdir())}  # classes.txt is labelImg's
        for label in sorted((root / label_of(f"{folder}/x")).parent.glob("*.txt")):
            if _composed(label.stem) not in have and not label.name.startswith("."):  # ._x.txt is macOS's
                place = label.relative_to(root).as_posix()
                yield Entry("", UnusableError("label without a picture", place), place)


def _class_of(record: dict[str, Any] | UnusableError | None) -> int | None:
    """Return the class of a row, also of one that data.yaml does not name; None if it has none."""
    if isinstance(record, UnusableError):
        return whole_number(record.detail) if record.reason == _UNKNOWN else None
    return record["category_id"] - 1 if record else None


def _rows(label: Path, picture: str, place: str, names: dict[int, str], shape: tuple[int, int]) -> Iterator[Entry]:
    try:
        lines = read_text(label, most=_LARGEST).removeprefix("\ufeff").splitlines()
    except UserError as error:
        yield Entry(picture, UnusableError("label cannot be read", error), place)
        return
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield entry_of(partial(_row, names=names, shape=shape), line.split(), picture, f"{place}: {number}")


def _row(words: list[str], names: dict[int, str], shape: tuple[int, int]) -> dict[str, Any]:
    joints, dims = shape
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise UnusableError("label is not numbers", " ".join(words)[:80]) from None
    if numbers[0] not in names:
        raise UnusableError(_UNKNOWN, words[0][:20])
    record: dict[str, Any] = {"category_id": int(numbers[0]) + 1}
    rest = numbers[1:]
    track = rest[5] if not joints and len(rest) == 6 and rest[5].is_integer() else 0  # 1 may be an edge
    if track == 1:
        raise UnusableError("a triangle, or a box with its confidence and the number of a track", " ".join(words)[:80])
    flags = {*rest[6::3]}
    if not joints and len(rest) > 9 and len(rest) % 3 == 1 and 2 in flags and flags <= {0, 1, 2}:
        raise UnusableError("joints, and data.yaml has no kpt_shape", f"kpt_shape: [{len(rest) // 3 - 1}, 3]")
    if not joints and len(rest) >= 6 and len(rest) % 2 == 0 and not track:
        xs, ys = rest[::2], rest[1::2]
        box = [min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)]
        record |= {"bbox": box, "segmentation": [rest]}
        positions = rest
    elif len(rest) - 4 - joints * dims in (0, 1, 2):  # more: the confidence of a prediction, the number of a track
        if len(rest) - joints * dims == 5 and _leaves(rest[:4]) and not _leaves(rest[1:5]):
            raise UnusableError("box leaves the picture: a confidence may stand before it", " ".join(words)[:80])
        x, y, width, height = rest[:4]
        record["bbox"] = [x - width / 2, y - height / 2, width, height]
        positions = rest[:4]
        if joints:
            record["keypoints"] = points = _flagged(rest[4 : 4 + joints * dims], dims)
            positions = [*positions, *points[::3], *points[1::3]]
    else:
        others = [[count // of, of] for of in (2, 3) if (count := len(rest) - 4) > 0 and count % of == 0]
        fitting = [shape for shape in others if shape[0] == joints] or others
        fit = f", as of kpt_shape: {fitting[0]}" if joints and fitting else ""
        raise UnusableError(f"label has not {5 + joints * dims} numbers", f"{len(numbers)} numbers{fit}")
    if not is_finite(positions, 2):
        raise UnusableError("label is not in fractions of the picture", " ".join(words)[:80])
    return record


def _leaves(box: list[float]) -> bool:
    """Whether a box, of its centre, leaves the picture by more than rounding."""
    return any(abs(middle - 0.5) + extent / 2 > 0.5 + _ROUNDED for middle, extent in zip(box[:2], box[2:], strict=True))


def _flagged(points: list[float], dims: int) -> list[float]:
    """Return x, y and COCO's flag; without flags, joints at (0, 0) or below 0 are not labelled."""
    keypoints: list[float] = []
    for index in range(0, len(points), dims):
        x, y = points[index : index + 2]
        flag = points[index + 2] if dims == 3 else 2 * (min(x, y) >= 0 and max(x, y) > 0)
        keypoints += [x, y, int(flag) if flag in (0, 1, 2) else flag] if flag else [0, 0, 0]
    return keypoints
