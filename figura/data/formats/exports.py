"""Annotations and predictions of other tools, as one stream of records: `open_export`.

Formats, by their documentation:
    COCO results (https://cocodataset.org/#format-results), figura's `Results.to_coco()` and `<name>.people.json`.
    AlphaPose: docs/output.md; a list whose `image_id` are file names.
    OpenPose: doc/02_output.md; a folder of `<name>_keypoints.json` with BODY_25 or COCO's 18 joints, face and hands.
    MMPose: files of `MMPoseInferencer` and of demo/*.py: instances with `keypoints` and `keypoint_scores`.
    MPII: the lists of HRNet and MMPose: records with `joints`, `joints_vis`, `center` and `scale`.
    OCHuman: ochuman.json of OCHumanApi.
    COCO files in a folder, as PoseTrack 2018 has one for each video.
YOLO's folders are in `figura.data.formats.yolo`.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from figura.base.errors import UserError
from figura.base.files import open_regular, read_json
from figura.data.formats.coco import KEYPOINTS, read_elements, read_head, read_pairs, read_records
from figura.data.formats.keypoint_sets import SETS
from figura.data.formats.records import Size, UnusableError, is_finite, whole_number

LARGEST = 1 << 28
"""Maximum bytes of a file that is read at once: one of a folder with a file per picture."""

_OPENPOSE_18 = (
    "nose", "neck", *(f"{side}_{part}" for side in ("right", "left") for part in ("shoulder", "elbow", "wrist")),
    *(f"{side}_{part}" for side in ("right", "left") for part in ("hip", "knee", "ankle")),
    *(f"{side}_{part}" for part in ("eye", "ear") for side in ("right", "left")),
)  # fmt: skip
_WHOLEBODY = SETS["wholebody"].skeleton.keypoints
_FACE, _HANDS = _WHOLEBODY[23:91], (_WHOLEBODY[91:112], _WHOLEBODY[112:])
_BODIES = {25: SETS["body_25"].skeleton.keypoints, 18: _OPENPOSE_18}
OF_COUNT = {
    14: SETS["crowdpose"].skeleton.keypoints,
    16: SETS["mpii"].skeleton.keypoints,
    17: KEYPOINTS,
    26: SETS["halpe26"].skeleton.keypoints,
    133: _WHOLEBODY,
    136: SETS["halpe"].skeleton.keypoints,
} | _BODIES  # fmt: skip
"""Number of joints -> their names, for predictions that do not say them."""


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
    """

    path: Path
    format: str
    entries: Callable[[], Iterator[Entry]]
    joints: tuple[str, ...] = ()
    categories: tuple[Mapping[str, Any], ...] = ({"id": 1, "name": "person"},)
    predicted: bool = True
    relative: bool = False
    flip: tuple[int, ...] = ()


def open_export(path: Path, key: str) -> Export | None:
    """Return what a file or folder holds; None for a COCO file, and for a file that is no JSON.

    Args:
        path: the file or folder.
        key: the dotted key of the setting that names it, for errors.

    Raises:
        UserError: it cannot be read, or it is a format that figura does not read; the message names the format and what
            to do.
    """
    return _of_folder(path, key) if path.is_dir() else _of_file(path, key)


def _of_file(path: Path, key: str) -> Export | None:
    where = f"{key}: {path.name}"
    if advice := _NO_JSON.get(path.suffix.lower()):
        raise UserError(f"{where}: {advice}")
    match _first_character(path):
        case "<":
            raise UserError(f"{where}: XML; {_of_xml(path)}")
        case "[":
            return _of_list(path, where)
        case "{":
            return _of_object(path, where)
    return None


def _of_object(path: Path, where: str) -> Export | None:
    head = dict(islice(_named(path), 20))
    for names, advice in _OTHER_OBJECTS.items():
        if names <= set(head):
            raise UserError(f"{where}: {advice}")
    if any(isinstance(one, dict) and "regions" in one for one in head.values()):
        raise UserError(f"{where}: {_VIA}")
    if "instance_info" in head:
        return _mmpose([path], path)
    if "keypoint_names" in head:
        return Export(path, "OCHuman", partial(_ochuman, path), KEYPOINTS, predicted=False)
    if {"annotations", "images"} <= set(head) and _has_confidences(path):
        return _coco([path], path, "predictions in COCO's format", predicted=True)
    return None


def _first_character(path: Path) -> str:
    with open_regular(path) as file:
        return file.read(1 << 12).removeprefix(b"\xef\xbb\xbf").lstrip()[:1].decode("latin-1")


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
_OTHER_OBJECTS = {
    frozenset({"shapes", "imagePath"}): (
        "labelme's JSON of one picture, as X-AnyLabeling also writes it; export the pictures together: as COCO, or as "
        "YOLO pose, and write `annotations: data.yaml`"
    ),
    frozenset({"_via_img_metadata"}): _VIA,
    frozenset({"people", "version"}): (
        "OpenPose's JSON of one picture; write the folder of all of them: `annotations: FOLDER`"
    ),
    frozenset({"features", "type"}): "GeoJSON, coordinates of maps; figura needs pixels, as in a COCO file",
    frozenset({"bodies", "version"}): (
        "AlphaPose's JSON in the format cmu; run it without --format, for one alphapose-results.json"
    ),
}
_NO_JSON = {
    ".mat": "a MATLAB file, as MPII publishes it; use its JSON lists (train.json, valid.json) of HRNet or MMPose",
    ".csv": "a table; figura reads COCO's JSON, YOLO's folders and the results of pose networks",
    ".zip": "an archive; unpack it, and write the file or the folder in it",
    ".txt": "a text file; if it is a label of YOLO, write the data.yaml beside its folder: `annotations: data.yaml`",
    ".pkl": "a pickle can run programs, so figura reads none; save the results as JSON",
    ".npz": "NumPy arrays; save the results as JSON",
}


def _of_xml(path: Path) -> str:
    with open_regular(path) as file:
        text = file.read(1 << 12)
    if b"<annotations" in text:
        return "CVAT's own format; export the task again as `COCO Keypoints 1.0`, or as `COCO 1.0` for boxes"
    if b"<annotation" in text:
        return "Pascal VOC's boxes of one picture; convert all of them to COCO or YOLO"
    return "figura reads COCO's JSON, YOLO's folders and the results of pose networks"


def _of_list(path: Path, where: str) -> Export:
    first: Any = next(read_elements(path), None)
    while isinstance(first, list) and first:  # the lists of MMPose's inferencer, one for each picture
        first = first[0]
    keys = set(first) if isinstance(first, dict) else set[str]()
    if {"joints", "joints_vis", "image"} <= keys:
        return Export(path, "MPII", partial(_mpii, path), SETS["mpii"].skeleton.keypoints, predicted=False)
    if "image_id" in keys and keys & {"keypoints", "bbox"}:
        tool = "AlphaPose's results" if isinstance(first["image_id"], str) else "COCO results"
        return Export(path, tool, partial(_results, path))
    for names, advice in _OTHER_LISTS.items():
        if names <= keys:
            raise UserError(f"{where}: {advice}")
    found = "an empty list" if first is None else f"a list that begins with {repr(first)[:60]}"
    found = f"a list of objects with {', '.join(sorted(keys)[:8])}" if keys else found
    raise UserError(
        f"{where}: {found}; a COCO file is an object with images, annotations and categories; of lists, figura reads "
        "results with image_id and keypoints or bbox"
    )


_OTHER_LISTS = {
    frozenset({"keypoint_scores"}): (
        "MMPose's results of one picture; write the folder of all of them: `annotations: FOLDER`"
    ),
    frozenset({"frame_id", "instances"}): "MMPose's results of a video; predict its frames as pictures",
    frozenset({"score", "bbox"}): (
        "people of one picture, as `figura predict` writes them; write the folder of all *.people.json: `annotations: "
        "FOLDER`"
    ),
    frozenset({"annotations", "data"}): "Label Studio's own format; export it as COCO or YOLO",
    frozenset({"completions", "data"}): "Label Studio's own format; export it as COCO or YOLO",
}


def _of_folder(folder: Path, key: str) -> Export | None:
    files = json_files(folder)
    first = next((file for file in files if not file.name.startswith(".")), None)
    if first is None:
        raise UserError(f"{key}: {folder}: {_of_other_files(folder)}")
    if first.name.endswith(".people.json"):
        people = [file for file in files if file.name.endswith(".people.json")]
        return Export(folder, "figura's people", partial(_people, people, folder))
    if _first_character(first) == "[":
        return _of_lists(files, folder, key)
    head = set(dict(islice(_named(first), 20)))
    if "people" in head:
        return _openpose(files, folder)
    if "instance_info" in head:
        return _mmpose(files, folder)
    if "images" in head:
        return _coco_files(files, folder, key)
    _of_file(first, key)
    raise UserError(f"{key}: {first}: a JSON object with {', '.join(sorted(head)[:8])}, no format that figura reads")


def _of_lists(files: list[Path], folder: Path, key: str) -> Export:
    head: Any = next(read_elements(files[0]), {"keypoint_scores": []})  # MMPose: nobody is there
    while isinstance(head, list) and head:
        head = head[0]
    if isinstance(head, dict) and "keypoint_scores" in head:
        return _mmpose(files, folder)
    export = _of_list(files[0], f"{key}: {files[0].name}")
    if len(files) > 1:
        raise UserError(f"{key}: {folder}: {len(files)} JSON files; write the one with the {export.format}")
    return export


def json_files(folder: Path) -> list[Path]:
    """Return the JSON files below a folder, sorted, without hidden ones and links."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(parent, name) for name in sorted(names) if name.endswith(".json") and name[0] != "."]
    return [file for file in found if not file.is_symlink()]


def _of_other_files(folder: Path) -> str:
    suffixes = {Path(name).suffix.lower() for _, _, names in os.walk(folder) for name in names}
    if ".xml" in suffixes:
        return "XML files, as of Pascal VOC; convert them to COCO or YOLO"
    if ".txt" in suffixes:
        return "text files, as YOLO's labels, without a data.yaml, which names the classes, joints and splits"
    return "no JSON file; it may hold COCO files, OpenPose's, MMPose's or figura's results, or YOLO's data.yaml"


def _entry(
    read: Callable[[Any], dict[str, Any]], raw: Any, picture: str | int, number: str, size: Size | None = None
) -> Entry:
    """Read a record; an entry of its fault if that raises UnusableError."""
    try:
        return Entry(picture, read(raw), number, size)
    except UnusableError as fault:
        return Entry(picture, fault, number)


def _results(path: Path) -> Iterator[Entry]:
    for number, one in enumerate(read_elements(path)):
        image: Any = one.get("image_id") if isinstance(one, dict) else None
        image = whole_number(image) if isinstance(image, float) else image
        if type(image) in (int, str):
            yield _entry(_result, one, image, str(number), _size(one))
        else:
            yield Entry("", UnusableError("result without image_id", repr(one)[:80]), str(number))


def _result(one: Any) -> dict[str, Any]:
    """Read a COCO result; AlphaPose calls the box `box`."""
    if not isinstance(one, dict):
        raise UnusableError("not an object", repr(one)[:80])
    keys = ("keypoints", "score", "segmentation")
    box = one.get("bbox", one.get("box"))
    record = {key: one[key] for key in keys if one.get(key) is not None} | ({} if box is None else {"bbox": box})
    return record | {"category_id": one.get("category_id", 1)}


def _size(record: Any) -> Size | None:
    width, height = (record.get(key) if isinstance(record, dict) else None for key in ("width", "height"))
    return Size(width, height) if type(width) is int and type(height) is int else None


def _of_pictures(
    files: list[Path],
    folder: Path,
    name_of: Callable[[str], str],
    people_of: Callable[[Any], Any],
    read: Callable[[Any], dict[str, Any]],
) -> Iterator[Entry]:
    """Yield the people of files of a picture each; `name_of` makes its name of the file's, without `.json`."""
    for file in files:
        picture = name_of(file.relative_to(folder).as_posix().removesuffix(".json"))
        try:
            people = people_of(read_json(file, most=LARGEST))
        except UserError as error:
            yield Entry(picture, UnusableError("file cannot be read", error), picture)
            continue
        if not isinstance(people, list):
            yield Entry(picture, UnusableError("file without a list of people", repr(people)[:80]), picture)
            continue
        yield Entry(picture, None)
        for place, one in enumerate(people):
            yield _entry(read, one, picture, f"{picture}: {place}", _size(one))


def _people(files: list[Path], folder: Path) -> Iterator[Entry]:
    return _of_pictures(files, folder, lambda name: name.removesuffix(".people"), lambda content: content, _result)


def _has_confidences(path: Path) -> bool:
    """Return whether annotations with a `score` have other numbers than COCO's flags: predictions, not a truth."""
    for one in read_records(path, "annotations"):
        if not isinstance(one, dict) or "score" not in one:
            return False
        keypoints = one.get("keypoints")
        if isinstance(keypoints, list) and any(flag not in (0, 1, 2) for flag in keypoints[2::3]):
            return True
    return False


def _openpose(files: list[Path], folder: Path) -> Export:
    def entries(joints: tuple[str, ...] = ()) -> Iterator[Entry]:
        return _of_pictures(
            files,
            folder,
            lambda name: name.removesuffix("_keypoints"),
            lambda content: content.get("people") if isinstance(content, dict) else content,
            partial(_openpose_person, joints=joints),
        )

    found = (entry.record for entry in entries() if isinstance(entry.record, dict))
    joints: tuple[str, ...] = next(found, {}).get("names", ())
    return Export(folder, "OpenPose's results", partial(entries, joints), joints)


def _openpose_person(person: Any, joints: tuple[str, ...]) -> dict[str, Any]:
    """Join the body, the face (without the pupils) and the hands of a person; `names` are those, without `joints`."""
    numbers: dict[str, list[Any]] = {}
    for key in ("pose", "face", "hand_left", "hand_right"):
        part = person.get(f"{key}_keypoints_2d", []) if isinstance(person, dict) else None
        if not isinstance(part, list):
            raise UnusableError("person of another form", repr(person)[:80])
        numbers[key] = part
    keypoints, names = list(numbers["pose"]), _BODIES.get(len(numbers["pose"]) // 3)
    if names is None or len(keypoints) % 3:
        raise UnusableError("pose is neither 25 nor 18 joints", f"{len(keypoints)} numbers")
    face = numbers["face"][: 3 * len(_FACE)]
    for part, of_part in ((face, _FACE), (numbers["hand_left"], _HANDS[0]), (numbers["hand_right"], _HANDS[1])):
        if len(part) == 3 * len(of_part):
            names += of_part
            keypoints += part
    if joints and names != joints:
        raise UnusableError("other joints than those of the first person", f"{len(names)} instead of {len(joints)}")
    return {"keypoints": keypoints, "category_id": 1} | ({} if joints else {"names": names})


def _mmpose(files: list[Path], path: Path) -> Export:
    joints: tuple[str, ...] = ()
    if files and _first_character(files[0]) == "{":
        meta = dict(islice(_named(files[0]), 20)).get("meta_info")
        names = meta.get("keypoint_id2name") if isinstance(meta, dict) else None
        if isinstance(names, dict) and all(str(place) in names for place in range(len(names))):
            joints = tuple(str(names[str(place)]) for place in range(len(names)))
    folder = path if path.is_dir() else path.parent
    entries = partial(_of_pictures, files, folder, _mmpose_picture, _mmpose_people, _mmpose_person)
    return Export(path, "MMPose's results", entries, joints)


def _mmpose_picture(name: str) -> str:
    parent, slash, base = name.rpartition("/")
    return f"{parent}{slash}{base.removeprefix('results_')}"


def _mmpose_people(content: Any) -> Any:
    people = content.get("instance_info") if isinstance(content, dict) else content
    while isinstance(people, list) and len(people) == 1 and isinstance(people[0], list):
        people = people[0]
    return people


def _mmpose_person(one: Any) -> dict[str, Any]:
    points, scores, box = _values(one, "keypoints", "keypoint_scores", "bbox")
    record = {"category_id": 1, "keypoints": _triples(points, scores)}
    box = box[0] if isinstance(box, list) and len(box) == 1 else box
    if isinstance(box, list) and len(box) >= 4 and is_finite(box[:4]):
        record["bbox"] = _between(box)
    return record | ({"score": one["bbox_score"]} if is_finite([one.get("bbox_score")]) else {})


def _values(one: Any, *keys: str) -> list[Any]:
    return [one.get(key) if isinstance(one, dict) else None for key in keys]


def _triples(points: Any, thirds: Any) -> list[Any]:
    """Join pairs of x and y, and a number of each."""
    if not isinstance(points, list) or not isinstance(thirds, list) or len(points) != len(thirds):
        raise UnusableError("joints without a number of each", repr(points)[:80])
    if not all(isinstance(point, list) and len(point) == 2 for point in points):
        raise UnusableError("keypoints are not pairs of x and y", repr(points)[:80])
    return [number for point, third in zip(points, thirds, strict=True) for number in (*point, third)]


def _between(corners: list[Any]) -> list[Any]:
    """Return x, y, width and height of a box of two corners."""
    return [corners[0], corners[1], corners[2] - corners[0], corners[3] - corners[1]]


def _mpii(path: Path) -> Iterator[Entry]:
    for number, one in enumerate(read_elements(path)):
        (picture,) = _values(one, "image")
        if isinstance(picture, str):
            yield _entry(_mpii_person, one, picture, str(number))
        else:
            yield Entry("", UnusableError("record is not one of MPII's", repr(one)[:80]), str(number))


def _mpii_person(one: Mapping[str, Any]) -> dict[str, Any]:
    """Read a person; the box is the square of 200 x `scale` pixels around `center` (MPII's definition)."""
    points, visible, center, scale = _values(one, "joints", "joints_vis", "center", "scale")
    if not isinstance(center, list) or len(center) != 2 or not is_finite([*center, scale]):
        raise UnusableError("record is not one of MPII's", repr(one)[:80])
    triples, side = _triples(points, visible), 200 * scale
    keypoints = [
        number
        for x, y, seen in zip(triples[::3], triples[1::3], triples[2::3], strict=True)
        for number in ((x, y, 2) if seen else (0, 0, 0))
    ]
    return {"category_id": 1, "keypoints": keypoints, "bbox": [center[0] - side / 2, center[1] - side / 2, side, side]}


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
        for place, one in enumerate(people):
            yield _entry(partial(_ochuman_person, places=places), one, picture, f"{number}: {place}", _size(image))


def _ochuman_person(one: Any, places: list[int | None]) -> dict[str, Any]:
    box, numbers, mask = _values(one, "bbox", "keypoints", "segms")
    if not isinstance(box, list) or len(box) != 4 or not is_finite(box):
        raise UnusableError("box is not four finite numbers", repr(box)[:80])
    record: dict[str, Any] = {"category_id": 1, "bbox": _between(box)}
    if numbers is not None:
        if not isinstance(numbers, list) or len(numbers) <= 3 * max((place or 0) for place in places) + 2:
            raise UnusableError("keypoints are not those of keypoint_names", repr(numbers)[:80])
        keypoints: list[Any] = []
        for place in places:
            x, y, flag = [0, 0, 0] if place is None else numbers[3 * place : 3 * place + 3]
            keypoints += [x, y, _OCHUMAN_FLAGS.get(flag, flag) if type(flag) is int else flag]
        record["keypoints"] = keypoints
    if isinstance(mask, dict) and isinstance(mask.get("outer"), list):
        record["segmentation"] = (
            "a mask with holes" if mask.get("inner") else mask["outer"]
        )  # COCO's polygons have none
    return record


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
    known = {one["id"]: one for one in first if isinstance(one, dict) and type(one.get("id")) is int}
    joints: list[Any] = next((one["keypoints"] for one in known.values() if isinstance(one.get("keypoints"), list)), [])
    named = tuple({"id": number, "name": str(one.get("name"))} for number, one in known.items())
    entries = partial(entries_of_coco, files, path if path.is_dir() else path.parent, predicted)
    return Export(path, title, entries, tuple(map(str, joints)), named, predicted)


def _split_of(file: Path) -> str | None:
    """Return the split by the name of a folder, or at the beginning of the file's name, or None."""
    for part in (*file.parts[:-1], file.stem.removeprefix("person_keypoints_").removeprefix("instances_")):
        if found := re.match(r"(train|val|test)", part.lower()):
            return found[0]
    return None


def entries_of_coco(files: list[Path], folder: Path, predicted: bool = False) -> Iterator[Entry]:
    """Yield the images and annotations of COCO files below a folder; of `predicted` ones, the keys of a result."""
    for file in files:
        images: dict[Any, tuple[str, Size | None]] = {}
        title = file.relative_to(folder).as_posix()
        for one in read_records(file, "images"):
            number, name, labeled = _values(one, "id", "file_name", "is_labeled")
            if type(number) is not int or not isinstance(name, str):
                yield Entry("", UnusableError("image of another form", repr(one)[:80]), title)
            elif labeled is None or labeled:  # PoseTrack labels some frames of a video; the others show people, too
                images[number] = name, _size(one)
                own = {key: value for key, value in one.items() if key not in ("id", "file_name", "width", "height")}
                yield Entry(name, None, size=_size(one), image=own)
        for one in read_records(file, "annotations") if "annotations" in read_head(file)[1] else ():
            number, of = _values(one, "id", "image_id")
            if type(of) is not int or of not in images:
                yield Entry("", UnusableError("annotation without image", repr(one)[:80]), title)
            else:
                record = {key: value for key, value in one.items() if key not in ("id", "image_id")}
                name, size = images[of]
                yield Entry(name, _result(one) if predicted else record, f"{title}: {repr(number)[:40]}", size)
