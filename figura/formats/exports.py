"""Annotations and predictions of other tools, as one stream of records: `open_export`.

Formats, by their documentation:
    COCO results (https://cocodataset.org/#format-results), figura's `Results.to_coco()` and `<name>.people.json`.
    AlphaPose: docs/output.md; a list whose `image_id` are file names.
    OpenPose: doc/02_output.md; a folder of `<name>_keypoints.json` with BODY_25 or COCO's 18 joints, face and hands.
    MMPose: files of `MMPoseInferencer` and of demo/*.py: instances with `keypoints` and `keypoint_scores`.
    MPII: the lists of HRNet and MMPose: records with `joints`, `joints_vis`, `center` and `scale`.
    OCHuman: ochuman.json of OCHumanApi.
    COCO files in a folder, as PoseTrack 2018 has one for each video.
YOLO's folders are in `figura.formats.yolo`.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from figura.base.errors import UserError
from figura.base.file_kinds import HEAD, kind_of
from figura.base.files import open_regular, read_json
from figura.base.links import real_path
from figura.formats.coco import (
    KEYPOINTS,
    categories_by_id,
    file_name_of,
    read_elements,
    read_head,
    read_pairs,
    read_records,
)
from figura.formats.keypoint_sets import SETS
from figura.formats.records import Size, UnusableError, is_finite, whole_number

LARGEST = 1 << 28  # maximum bytes of a file that is read at once: one of a folder with a file per picture

_OPENPOSE_18 = (
    "nose", "neck", *(f"{side}_{part}" for side in ("right", "left") for part in ("shoulder", "elbow", "wrist")),
    *(f"{side}_{part}" for side in ("right", "left") for part in ("hip", "knee", "ankle")),
    *(f"{side}_{part}" for part in ("eye", "ear") for side in ("right", "left")),
)  # fmt: skip
_WHOLEBODY = SETS["wholebody"].keypoints
_FACE, _HANDS = _WHOLEBODY[23:91], (_WHOLEBODY[91:112], _WHOLEBODY[112:])
_BODIES = {25: SETS["body_25"].keypoints, 18: _OPENPOSE_18}
OF_COUNT = _BODIES | {
    len(SETS[name].keypoints): SETS[name].keypoints for name in ("mpii", "coco", "halpe26", "wholebody", "halpe")
}
"""Number of joints -> their names, for predictions that do not say them; 14 are of CrowdPose or Leeds Sports."""


class Entry(NamedTuple):
    """One record of an export.

    `picture` is a file name, with or without folders and suffix, or a number. `record` has keys of a COCO annotation
    (no ids); None stands for a picture in which there is nobody, a fault for a record that cannot be read. `number`
    names it in `rejected.csv`. `size` is the picture's, if the export says it; `image` are further keys of its record.
    """

    picture: str | int
    record: dict[str, Any] | UnusableError | None
    number: str = ""
    size: Size | None = None
    image: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Export:
    """A source of records in another format than COCO's.

    Attributes:
        path: the file or folder.
        format: what it is, for messages.
        entries: starts a pass over the records.
        joints: the names of the joints in the records; empty if it does not say them.
        categories: those of the records, with `id` and `name`.
        predicted: the third number of a joint is a confidence instead of COCO's flag.
        relative: coordinates are fractions of the picture's width and height.
        flip: the mirrored index of each joint, if it says so without names.
        notes: lines to print.
    """

    path: Path
    format: str
    entries: Callable[[], Iterator[Entry]]
    joints: tuple[str, ...] = ()
    categories: tuple[Mapping[str, Any], ...] = ({"id": 1, "name": "person"},)
    predicted: bool = True
    relative: bool = False
    flip: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def open_export(path: Path, key: str) -> Export | None:
    """Return what a file or folder holds; None for a COCO file, and for a file that is no JSON.

    `key` is the dotted key of the setting that names it, for errors.

    Raises:
        UserError: it cannot be read, or it is a format that figura does not read; the message names the format and what
            to do.
    """
    files = json_files(path) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{key}: {path}: {_of_other_files(path)}")
    where, first = f"{key}: {files[0].name}", files[0]
    if advice := _TEXTS.get(first.suffix.lower()):
        raise UserError(f"{where}: {advice}")
    if path.is_dir() and first.name.endswith(".people.json"):
        people = [file for file in files if file.name.endswith(".people.json")]
        return Export(path, "figura's people", partial(_of_pictures, people, path, _result, suffix=".people"))
    try:
        character, content = _beginning(first)
    except UserError as error:
        raise UserError(f"{key}: {error}") from None
    read = {"{": _of_object, "[": _of_list}.get(character)
    if read and (export := read(path, files, content, key)):
        return export
    _refuse_others(first, character, content, where)
    if path.is_dir():
        keys = ", ".join(sorted(content or ())[:8])
        raise UserError(f"{key}: {first}: a JSON object with {keys}, no format that figura reads")
    return None


def _refuse_others(path: Path, character: str, content: Any, where: str) -> None:
    """Raise UserError if a file is XML, a list or an object of another tool, with what to do."""
    keys = set(content) if isinstance(content, dict) else set()
    for told, advice in _OTHERS.items():
        if {*told.split()} <= {character, *keys}:
            raise UserError(f"{where}: {advice}")
    if character == "<":
        raise UserError(f"{where}: XML; {_of_xml(path)}")
    if character == "[":
        found = "an empty list" if content is None else f"a list that begins with {repr(content)[:60]}"
        found = f"a list of objects with {', '.join(sorted(keys)[:8])}" if keys else found
        raise UserError(
            f"{where}: {found}; a COCO file is an object with images, annotations and categories; of lists, figura "
            "reads results with image_id and keypoints or bbox"
        )
    if keys and any(isinstance(one, dict) and "regions" in one for one in content.values()):
        raise UserError(f"{where}: {_VIA}")


def _of_object(path: Path, files: list[Path], content: Mapping[str, Any], key: str) -> Export | None:
    """Return the records of an object, or of the `files` of a folder; the first begins with this `content`."""
    several = path.is_dir()
    if "instance_info" in content:
        return _mmpose(files, path, content)
    if "keypoint_names" in content:
        return Export(files[0], "OCHuman", partial(_ochuman, files[0]), KEYPOINTS, predicted=False)
    if several and "people" in content:
        return _openpose(files, path)
    if several and "images" in content:
        return _coco_files(files, path, key)
    if {"annotations", "images"} <= set(content) and _has_confidences(path):
        return _coco(files, path, "predictions in COCO's format", predicted=True)
    if {"annotations", "images"} <= set(content) and _has_unlabelled_frames(path):
        return _coco(files, path, "PoseTrack's COCO file", predicted=False)
    return None


def _of_list(path: Path, files: list[Path], content: Any, key: str) -> Export | None:
    """Return the records of a list, or of the `files` of a folder; the first begins with this `content`."""
    keys, first, export = set(content) if isinstance(content, dict) else set(), files[0], None
    if path.is_dir() and (content in (None, []) or "keypoint_scores" in keys):
        return _mmpose(files, path, content)
    if {"joints", "joints_vis", "image"} <= keys:
        export = Export(
            first, "MPII", partial(_listed, first, _mpii_person, "image"), SETS["mpii"].keypoints, predicted=False
        )
    elif "image_id" in keys and keys & {"keypoints", "bbox"}:
        tool = "AlphaPose's results" if isinstance(content["image_id"], str) else "COCO results"
        export = Export(first, tool, partial(_listed, first, _result, "image_id"))
    if export and len(files) > 1:
        raise UserError(f"{key}: {path}: {len(files)} JSON files; write the one with the {export.format}")
    return export


def _beginning(path: Path) -> tuple[str, Any]:
    """Return the first character of a file; and the first keys of an object, or what a list begins with."""
    with open_regular(path) as file:
        head = file.read(1 << 12)
    character = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1].decode("latin-1")
    if character not in ("{", "[", "<") and (kind := kind_of(head[:HEAD], path)):
        raise UserError(f"{path}: {kind}")
    content: Any = dict(islice(_named(path), 20)) if character == "{" else None
    if character == "[":
        content = next(read_elements(path), None)
        while isinstance(content, list) and content:  # of MMPose's inferencer, a list for each picture
            content = content[0]
    return character, content


def _named(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the first occurrence of each top-level key of an object; the value of a list of records is not read."""
    seen = set[str]()
    for name, value in read_pairs(path):
        if name not in seen:
            seen.add(name)
            yield name, value
        if {"images", "annotations"} <= seen:
            return


_VIA = "VIA's own format; export it as COCO: Annotation > Export Annotations (COCO format)"
_OTHERS = {
    "{ shapes imagePath": (
        "labelme's JSON of one picture, as X-AnyLabeling also writes it; export the pictures together: as COCO, or as "
        "YOLO pose, and write `annotations: data.yaml`"
    ),
    "{ _via_img_metadata": _VIA,
    "{ people version": "OpenPose's JSON of one picture; write the folder of all of them: `annotations: FOLDER`",
    "{ features type": "GeoJSON, coordinates of maps; figura needs pixels, as in a COCO file",
    "{ bodies version": "AlphaPose's JSON in the format cmu; run it without --format, for one alphapose-results.json",
    "[ keypoint_scores": "MMPose's results of one picture; write the folder of all of them: `annotations: FOLDER`",
    "[ frame_id instances": "MMPose's results of a video; predict its frames as pictures",
    "[ score bbox": (
        "people of one picture, as `figura predict` writes them; write the folder of all *.people.json: `annotations: "
        "FOLDER`"
    ),
    "[ annotations data": "Label Studio's own format; export it as COCO or YOLO",
    "[ completions data": "Label Studio's own format; export it as COCO or YOLO",
    "{ objects size": "Supervisely's own format of one picture; export the project as COCO or YOLO",
    "{ categories items": "Datumaro's own format; export it as COCO or YOLO",
    "{ assets version": "VoTT's own format; convert it to COCO or YOLO",
    "{ labels skeletons": "SLEAP's own format; convert it to COCO",
    "{ attribute metadata project": "VIA 3's own format; export it as COCO",
    "{ samples": "FiftyOne's own format; export it as COCODetectionDataset",
    "{ annotations item": "V7 Darwin's own format of one picture; export the dataset as COCO or YOLO",
}
"""First character, and keys that tell a format -> what to do instead."""
_TEXTS = {
    ".ndjson": "an object a line, as Labelbox exports; convert it to COCO's JSON",
    ".jsonl": "an object a line; convert it to COCO's JSON",
    ".data": "Darknet's, as of CVAT's YOLO 1.1; export it as Ultralytics YOLO or COCO",
    ".csv": "a table; figura reads COCO's JSON, YOLO's folders and the results of pose networks",
    ".txt": "a text file; if it is a label of YOLO, write the data.yaml beside its folder: `annotations: data.yaml`",
}


def _of_xml(path: Path) -> str:
    with open_regular(path) as file:
        text = file.read(1 << 12)
    if b"<annotations" in text:
        return "CVAT's own format; export the task again as `COCO Keypoints 1.0`, or as `COCO 1.0` for boxes"
    if b"<annotation" in text:
        return "Pascal VOC's boxes of one picture; convert all of them to COCO or YOLO"
    return "figura reads COCO's JSON, YOLO's folders and the results of pose networks"


def json_files(folder: Path) -> list[Path]:
    """Return the JSON files below a folder, sorted, without hidden ones and links, except to the cache."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(parent, name) for name in sorted(names) if name.endswith(".json") and name[0] != "."]
    return [file for file in found if real_path(file, folder) == Path(os.path.realpath(file.parent), file.name)]


def _of_other_files(folder: Path) -> str:
    files = [Path(name) for _, _, names in os.walk(folder) for name in sorted(names)]
    suffixes = {file.suffix.lower() for file in files}
    if ".xml" in suffixes:
        return "XML files, as of Pascal VOC; convert them to COCO or YOLO"
    if ".txt" in suffixes:
        return "text files, as YOLO's labels, without a data.yaml, which names the classes, joints and splits"
    there = next((f"; {file}: {kind}" for file in files if (kind := kind_of(b"", file))), "")
    may = "it may hold COCO files, OpenPose's, MMPose's or figura's results, or YOLO's data.yaml"
    return f"no JSON file; {may}{there}"


def entry_of(
    read: Callable[[Any], dict[str, Any]], raw: Any, picture: str | int, number: str, size: Size | None = None
) -> Entry:
    """Read a record; an entry of its fault if that raises UnusableError."""
    try:
        return Entry(picture, read(raw), number, size)
    except UnusableError as fault:
        return Entry(picture, fault, number)


def _listed(path: Path, read: Callable[[Any], dict[str, Any]], key: str) -> Iterator[Entry]:
    """Yield the records of a list; at `key` is the name or number of the picture of each."""
    for number, one in enumerate(read_elements(path)):
        picture: Any = _values(one, key)[0]
        picture = whole_number(picture) if isinstance(picture, float) else picture
        if type(picture) in (int, str):
            yield entry_of(read, one, picture, str(number), _size(one))
        else:
            yield Entry("", UnusableError(f"record without {key}", repr(one)[:80]), str(number))


def _result(one: Any) -> dict[str, Any]:
    """Read a COCO result; AlphaPose calls the box `box`."""
    if not isinstance(one, dict):
        raise UnusableError("not an object", repr(one)[:80])
    record = {key: one.get(key) for key in ("keypoints", "score", "segmentation")}
    return _stated(record | {"bbox": one.get("bbox", one.get("box")), "category_id": one.get("category_id", 1)})


def _stated(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None}


def _values(one: Any, *keys: str) -> list[Any]:
    return [one.get(key) if isinstance(one, dict) else None for key in keys]


def _size(record: Any) -> Size | None:
    width, height = _values(record, "width", "height")
    return Size(width, height) if type(width) is int and type(height) is int else None


def _has_confidences(path: Path) -> bool:
    """Return whether annotations with a `score` have other numbers than COCO's flags: predictions, not a truth."""
    for one in read_records(path, "annotations"):
        if not isinstance(one, dict) or "score" not in one:
            return False
        keypoints = one.get("keypoints")
        if isinstance(keypoints, list) and any(flag not in (0, 1, 2) for flag in keypoints[2::3]):
            return True
    return False


def _has_unlabelled_frames(path: Path) -> bool:
    """Return whether the images say `is_labeled`, as PoseTrack's, and one is not."""
    for one in read_records(path, "images"):
        (labelled,) = _values(one, "is_labeled")
        if not labelled:
            return labelled is not None
    return False


def _of_pictures(
    files: list[Path],
    folder: Path,
    read: Callable[[Any], dict[str, Any]],
    key: str = "",
    prefix: str = "",
    suffix: str = "",
) -> Iterator[Entry]:
    """Yield the people in files of a picture each, a list or an object with the list at `key`.

    The picture's name is that of the file without `prefix`, `suffix` and `.json`.
    """
    for file in files:
        name = file.name.removesuffix(".json").removeprefix(prefix).removesuffix(suffix)
        picture = (file.relative_to(folder).parent / name).as_posix()
        try:
            content = read_json(file, most=LARGEST)
        except UserError as error:
            yield Entry(picture, UnusableError("file cannot be read", error), picture)
            continue
        people = content.get(key) if isinstance(content, dict) else content
        while isinstance(people, list) and len(people) == 1 and isinstance(people[0], list):
            people = people[0]
        if not isinstance(people, list):
            yield Entry(picture, UnusableError("file without a list of people", repr(content)[:80]), picture)
            continue
        yield Entry(picture, None)
        for index, one in enumerate(people):
            yield entry_of(read, one, picture, f"{picture}: {index}", _size(one))


def _openpose(files: list[Path], folder: Path) -> Export:
    entries = partial(_of_pictures, files, folder, key="people", suffix="_keypoints")
    found = (entry.record for entry in entries(_openpose_person) if isinstance(entry.record, dict))
    joints: tuple[str, ...] = next(found, {}).get("names", ())
    return Export(folder, "OpenPose's results", partial(entries, partial(_openpose_person, joints=joints)), joints)


def _openpose_person(person: Any, joints: tuple[str, ...] = ()) -> dict[str, Any]:
    """Join the body, the face (without the pupils) and the hands of a person; `names` are those, without `joints`."""
    kinds = ("pose", "face", "hand_left", "hand_right")
    parts = (_values(person, f"{kind}_keypoints_2d", f"{kind}_keypoints") for kind in kinds)  # the latter until 1.1
    pose, *others = (next((one for one in part if one is not None), list[Any]()) for part in parts)
    if not isinstance(person, dict) or not all(isinstance(part, list) for part in (pose, *others)):
        raise UnusableError("person of another form", repr(person)[:80])
    keypoints, names = list(pose), _BODIES.get(len(pose) // 3)
    if names is None or len(keypoints) % 3:
        raise UnusableError("pose is neither 25 nor 18 joints", f"{len(keypoints)} numbers")
    for part, of_part in zip(others, (_FACE, *_HANDS), strict=True):
        if len(part) >= 3 * len(of_part):
            names += of_part
            keypoints += part[: 3 * len(of_part)]
    if joints and names != joints:
        raise UnusableError("other joints than those of the first person", f"{len(names)} instead of {len(joints)}")
    return {"keypoints": keypoints, "category_id": 1} | ({} if joints else {"names": names})


def _mmpose(files: list[Path], path: Path, head: Any) -> Export:
    (meta,) = _values(head, "meta_info")
    (names,) = _values(meta, "keypoint_id2name")
    named = isinstance(names, dict) and all(str(index) in names for index in range(len(names)))
    joints = tuple(str(names[str(index)]) for index in range(len(names))) if named else ()
    folder = path if path.is_dir() else path.parent
    entries = partial(_of_pictures, files, folder, _mmpose_person, "instance_info", "results_")
    return Export(path, "MMPose's results", entries, joints)


def _mmpose_person(one: Any) -> dict[str, Any]:
    points, scores, box, score = _values(one, "keypoints", "keypoint_scores", "bbox", "bbox_score")
    box = box[0] if isinstance(box, list) and len(box) == 1 else box
    return _stated({"category_id": 1, "keypoints": _triples(points, scores), "bbox": _between(box), "score": score})


def _triples(points: Any, thirds: Any) -> list[Any]:
    """Join pairs of x and y, and a number of each."""
    if not isinstance(points, list) or not isinstance(thirds, list) or len(points) != len(thirds):
        raise UnusableError("joints without a number of each", repr(points)[:80])
    if not all(isinstance(point, list) and len(point) == 2 for point in points):
        raise UnusableError("keypoints are not pairs of x and y", repr(points)[:80])
    return [number for point, third in zip(points, thirds, strict=True) for number in (*point, third)]


def _between(box: Any) -> Any:
    """Return x, y, width and height of a box of two corners; other values are returned unchanged, for `normalise`."""
    if not isinstance(box, list) or len(box) < 4 or not is_finite(box[:4]):
        return box
    return [box[0], box[1], box[2] - box[0], box[3] - box[1]]


def _mpii_person(one: Any) -> dict[str, Any]:
    """Read a person; the box is the square of 200 x `scale` pixels around `center` (MPII's definition).

    Its pixels count from 1, as in MATLAB.
    """
    points, visible, center, scale = _values(one, "joints", "joints_vis", "center", "scale")
    if not isinstance(center, list) or len(center) != 2 or not is_finite([*center, scale]):
        raise UnusableError("record is not one of MPII's", repr(one)[:80])
    flat, side = _triples(points, visible), 200 * scale
    from_0 = [one - 1 if is_finite([one]) else one for one in flat]
    places = zip(from_0[::3], from_0[1::3], flat[2::3], strict=True)
    joints = [(x, y, 2) if seen else (0, 0, 0) for x, y, seen in places]
    box = [center[0] - 1 - side / 2, center[1] - 1 - side / 2, side, side]
    return {"category_id": 1, "keypoints": [number for joint in joints for number in joint], "bbox": box}


_OCHUMAN_FLAGS = {0: 0, 1: 2, 2: 2, 3: 1}
"""ochuman.json: 0 missing, 1 visible, 2 hidden by oneself, 3 hidden by others -> COCO's flag, as its own converter."""


def _ochuman(path: Path) -> Iterator[Entry]:
    names = next(value for name, value in read_pairs(path) if name == "keypoint_names")
    places = [names.index(name) if isinstance(names, list) and name in names else None for name in KEYPOINTS]
    for image in read_records(path, "images"):
        picture, people, number = _values(image, "file_name", "annotations", "image_id")
        if not isinstance(picture, str) or not isinstance(people, list):
            yield Entry("", UnusableError("image of another form", repr(image)[:80]), repr(number)[:80])
            continue
        yield Entry(picture, None, size=_size(image))
        for index, one in enumerate(people):
            yield entry_of(partial(_ochuman_person, places=places), one, picture, f"{number}: {index}", _size(image))


def _ochuman_person(one: Any, places: list[int | None]) -> dict[str, Any]:
    box, numbers, mask = _values(one, "bbox", "keypoints", "segms")
    keypoints: list[Any] = []
    if numbers is not None:
        if not isinstance(numbers, list) or len(numbers) <= 3 * max((place or 0) for place in places) + 2:
            raise UnusableError("keypoints are not those of keypoint_names", repr(numbers)[:80])
        for place in places:
            x, y, flag = [0, 0, 0] if place is None else numbers[3 * place : 3 * place + 3]
            keypoints += [x, y, _OCHUMAN_FLAGS[flag] if flag in (0, 1, 2, 3) else flag]
    outer, inner = _values(mask, "outer", "inner")
    mask = "a mask with holes" if outer and inner else outer  # COCO's polygons have none
    return _stated({"category_id": 1, "bbox": _between(box), "keypoints": keypoints or None, "segmentation": mask})


def _coco_files(files: list[Path], folder: Path, key: str) -> Export:
    splits = {split for file in files if (split := _split_of(file.relative_to(folder)))}
    if len(splits) > 1:
        raise UserError(
            f"{key}: {folder}: its files are those of several splits ({', '.join(sorted(splits))}); write them apart, "
            "as in `annotations: {train: FILE, validation: FILE}` and `images: {train: FOLDER, validation: FOLDER}`"
        )
    return _coco(files, folder, "COCO files", predicted=False)


def _coco(files: list[Path], path: Path, title: str, predicted: bool) -> Export:
    first, *others = (read_head(file)[0].get("categories", []) for file in files)
    for file, categories in zip(files[1:], others, strict=True):
        if categories != first:
            raise UserError(f"{file}: categories: not those of {files[0].name}; the files of a folder have the same")
    known = categories_by_id(files[0], first)
    joints: list[Any] = next(
        (has for one in known.values() if isinstance(has := one.get("keypoints"), list) and has), []
    )
    named = tuple({**one, "name": str(one.get("name"))} for one in known.values())
    entries = partial(entries_of_coco, files, path if path.is_dir() else path.parent, predicted)
    return Export(path, title, entries, tuple(map(str, joints)), named, predicted)


def _split_of(file: Path) -> str | None:
    """Return the split by the name of a folder, or at the beginning of the file's name, or None."""
    for part in (*file.parts[:-1], file.stem.removeprefix("person_keypoints_").removeprefix("instances_")):
        if found := re.match(r"(train|val|test)", part.lower()):
            return found[0]
    return None


def _key(record: Any, key: str) -> int | str | None:
    """Return an id: a whole number where it is one without loss, else a text; None for neither."""
    (value,) = _values(record, key)
    number = whole_number(value)
    return number if number is not None else value if isinstance(value, str) else None


def _name(image: Any) -> str | None:
    """Return an image's file name; None without one, or for what is no image."""
    name = file_name_of(image) if isinstance(image, dict) else None
    return name if isinstance(name, str) else None


def entries_of_coco(files: list[Path], folder: Path, predicted: bool = False) -> Iterator[Entry]:
    """Yield the images and annotations of COCO files below a folder; of `predicted` ones, the keys of a result."""
    for file in files:
        images: dict[Any, tuple[str, Size | None]] = {}
        title = file.relative_to(folder).as_posix()
        names = defaultdict[Any, set[Any]](set)
        for one in read_records(file, "images"):
            names[_key(one, "id")].add(_name(one))
        for one in read_records(file, "images"):
            number, name, (labeled,) = _key(one, "id"), _name(one), _values(one, "is_labeled")
            if number is None or not isinstance(name, str):
                yield Entry("", UnusableError("image of another form", repr(one)[:80]), title)
            elif len(names[number]) > 1:
                yield Entry("", UnusableError("images of the same id", str(number)[:80]), title)
            elif labeled is None or labeled:  # PoseTrack labels some frames of a video; the others show people, too
                images[number] = name, _size(one)
                own = {key: value for key, value in one.items() if key not in ("id", "file_name", "width", "height")}
                yield Entry(name, None, size=_size(one), image=own)
        for one in read_records(file, "annotations") if "annotations" in read_head(file)[1] else ():
            (number,), of = _values(one, "id"), _key(one, "image_id")
            if of not in images:
                yield Entry("", UnusableError("annotation without image", repr(one)[:80]), title)
            else:
                record = {key: value for key, value in one.items() if key not in ("id", "image_id")}
                name, size = images[of]
                yield Entry(name, _result(one) if predicted else record, f"{title}: {repr(number)[:40]}", size)
