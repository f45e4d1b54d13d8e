"""The COCO keypoint format: names, and a streaming reader of its JSON.

Source of names, order and skeleton: the `person` category of COCO 2017 (`person_keypoints_*.json`). Files of other
categories with `keypoints` and `skeleton` have the same format, with other joints.

In addition to COCO's keys, an annotation may have `person_id`, an integer identity: persons with the same number in the
images of a split are the same person in the same clothes. It is used to find a second picture of a person, for example
to evaluate appearance transfer; a person without it is a separate identity. `parts` maps names of clothes to masks.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Self

import orjson

from figura.base.errors import UserError
from figura.base.file_kinds import HEAD, kind_of
from figura.base.files import open_regular
from figura.formats.records import whole_number

KEYPOINTS = (
    "nose",
    *(f"{side}_{part}" for part in ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
      for side in ("left", "right")),
)  # fmt: skip
"""The 17 joints in COCO's order; left means the person's left."""

SKELETON = (
    (16, 14), (14, 12), (17, 15), (15, 13), (12, 13), (6, 12), (7, 13), (6, 7), (6, 8), (7, 9),
    (8, 10), (9, 11), (2, 3), (1, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7),
)  # fmt: skip
"""The 19 connections as pairs of joint indices from 1, as in COCO's files."""

FLIP = (0, *(joint + 1 if joint % 2 else joint - 1 for joint in range(1, 17)))
"""`mirrored[:, i] = keypoints[:, FLIP[i]]`: the joint that mirroring moves to index i."""

PERSON = "person"
RECORDS = ("images", "annotations")

_CHUNK = 1 << 20
_AT_ONCE = 1 << 15  # characters of records parsed per call; the objects of more do not fit the cache
_LARGEST_VALUE = 1 << 27  # characters of a record, or of any other value that is not streamed
_LONGEST_TOKEN = 16  # characters: longer than -Infinity and \u0000


def _integer(digits: str) -> float:
    """Parse an integer; infinity, which is rejected by the record checks, if Python does not convert it."""
    return int(digits) if len(digits) < 1000 else float(digits)


class _Reader:
    """Parses the JSON values of a text file one by one; memory holds one chunk, or one value if that is larger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.decoder, self.long_numbers = json.JSONDecoder(), json.JSONDecoder(parse_int=_integer)
        self.text, self.at, self.before = "", 0, 0

    def __enter__(self) -> Self:
        self.handle = TextIOWrapper(open_regular(self.path), encoding="utf-8-sig")
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.close()

    def fault(self, what: str) -> UserError:
        return UserError(f"{self.path}: not valid JSON at character {self.before + self.at}: {what}")

    def more(self) -> bool:
        try:
            # Double the buffer: a value that spans many chunks is then parsed a few times, not once per chunk.
            chunk = self.handle.read(max(_CHUNK, len(self.text) - self.at))
        except UnicodeDecodeError as error:
            with open_regular(self.path) as file:
                kind = kind_of(file.read(HEAD), self.path) or error.reason
            raise UserError(f"{self.path}: not a text file in UTF-8: {kind}") from error
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror}") from error
        self.before += self.at
        self.text, self.at = self.text[self.at :] + chunk, 0
        return bool(chunk)

    def peek(self) -> str:
        """Return the next character after white space, or an empty string at the end of the file."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def take(self, allowed: str) -> str:
        character = self.peek()
        if not character or character not in allowed:
            expected = " or ".join(repr(one) for one in allowed)
            end = "the end: the file is cut off"
            raise self.fault(f"expected {expected}, found {repr(character) if character else end}")
        self.at += 1
        return character

    def value(self) -> Any:
        self.peek()
        ended = False
        while True:
            problem = "the end: the file is cut off"
            try:
                value, end = self._decoded()
                # a number at the end of the chunk may continue: `1` as `12`, `1.` as `1.5`, `1e-` as `1e-5`
                whole = ended or end + 2 < len(self.text) or not isinstance(value, (int, float))
                if whole and end < len(self.text):
                    self.at = end
                    return value
            except json.JSONDecodeError as error:
                problem = str(error)
                unterminated = error.msg.startswith("Unterminated string")
                if error.pos < len(self.text) - _LONGEST_TOKEN and not unterminated:  # more text would not fix it
                    raise self.fault(f"found no whole value: {problem}") from None
            except RecursionError:
                raise self.fault("found no whole value: too deeply nested") from None
            if len(self.text) - self.at > _LARGEST_VALUE:
                raise self.fault(f"a value of more than {_LARGEST_VALUE:,} characters")
            if ended:
                raise self.fault(f"found no whole value: {problem}")
            ended = not self.more()

    def lines(self) -> list[Any]:
        """Return the values of the next lines as `write_coco` writes them; an empty list if they are written otherwise.

        They are those of up to `_AT_ONCE` characters, or one longer line. The comma after the last one is not consumed.
        Integers of more than 64 bits become floats.
        """
        end = self.text.rfind(",\n", self.at, self.at + _AT_ONCE)
        if end < 0 and len(self.text) - self.at < _AT_ONCE and self.more():
            end = self.text.rfind(",\n", 0, _AT_ONCE)
        if end < 0:
            end = self.text.find("\n", self.at + 1)  # the value may be in the next line
            if end < 0 and self.more():
                end = self.text.find("\n", 1)
            end -= self.text[end - 1 : end] == ","
        try:
            # only complete values form a list between brackets, wherever the text was cut
            values: list[Any] = orjson.loads(f"[{self.text[self.at : end]}]") if end >= 0 else []
        except orjson.JSONDecodeError:
            return []
        self.at = end if values else self.at
        return values

    def _decoded(self) -> tuple[Any, int]:
        try:
            return self.decoder.raw_decode(self.text, self.at)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer of more than 4,300 digits
            return self.long_numbers.raw_decode(self.text, self.at)


def read_pairs(path: Path, in_lines: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the top-level pairs of a JSON object; the value of `images` or `annotations` is an iterator of the list.

    `in_lines`: the file was written by `write_coco`, and its records are parsed in batches; others can be read, too,
    but see `_Reader.lines`. Raises UserError like `read_head`.
    """
    with _Reader(path) as reader:
        if reader.peek() == "[":
            raise UserError(f"{path}: holds a list; a COCO file is an object with images, annotations and categories")
        reader.take("{")
        follows = reader.take("}") if reader.peek() == "}" else ","
        while follows == ",":
            key = reader.value()
            if not isinstance(key, str):
                raise reader.fault(f"a key must be text, found {repr(key)[:80]}")
            reader.take(":")
            if key in RECORDS and reader.peek() == "[":
                elements = _elements(reader, in_lines)
                yield key, elements
                deque(elements, maxlen=0)  # those that the caller has not read
            else:
                yield key, reader.value()
            follows = reader.take(",}")
        if reader.peek():
            raise reader.fault("something follows the closing brace")


def _elements(reader: _Reader, in_lines: bool) -> Iterator[Any]:
    reader.take("[")
    follows = reader.take("]") if reader.peek() == "]" else ","
    while follows == ",":
        values = reader.lines() if in_lines else []
        in_lines = bool(values)
        yield from values or [reader.value()]
        follows = reader.take(",]")


def read_elements(path: Path) -> Iterator[Any]:
    """Yield the elements of a file that holds one JSON list; raises UserError like `read_head`."""
    with _Reader(path) as reader:
        yield from _elements(reader, in_lines=False)
        if reader.peek():
            raise reader.fault("something follows the closing bracket")


def read_head(
    path: Path, whole: bool = True, look: Callable[[str, Any], object] = lambda *_: None
) -> tuple[dict[str, Any], dict[str, int]]:
    """Read a COCO file except its records; also return their counts, `{"images": n, "annotations": m}`.

    A file without annotations, as COCO publishes for its test sets (`image_info_*.json`), has no count of them. Without
    `whole`, only the part before the records is read, which is everything in a file of `write_coco`; nothing is
    counted. `look` is called with the section and each record.

    Raises:
        UserError: the file is not a JSON object, is truncated, or lacks `images`, or `categories` although it has
            annotations.
    """
    head: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for key, value in read_pairs(path, in_lines=not whole):
        if not isinstance(value, Iterator):
            head[key] = value
            continue
        if not whole:
            return head, counts
        if key in counts:
            raise UserError(f"{path}: {key}: stands twice; one list may hold all records")
        counts[key] = 0
        for counts[key], record in enumerate(value, 1):
            look(key, record)
    for key in (*RECORDS, "categories"):
        if key in head and not isinstance(head[key], list):
            raise UserError(f"{path}: {key}: must be a list, found {type(head[key]).__name__}")
    if "images" not in counts:
        raise UserError(f"{path}: images is missing; a COCO file has images, annotations and categories")
    if "annotations" in counts and "categories" not in head:
        raise UserError(f"{path}: categories is missing; a COCO file with annotations lists their categories")
    return head, counts


def read_records(path: Path, section: str, whole: bool = True) -> Iterator[Any]:
    """Yield the elements of `images` or `annotations` one by one; the file is only read up to their end.

    Without `whole`, the file must be written by `write_coco`. Raises UserError like `read_head`.
    """
    for key, value in read_pairs(path, in_lines=not whole):
        if key == section and isinstance(value, Iterator):
            yield from value
            return
    raise UserError(f"{path}: {section}: must be a list of records")


def file_name_of(image: Mapping[str, Any]) -> Any:
    """Return an image's `file_name`; without one, as in LVIS, the path in its `coco_url`, such as `val2017/1.jpg`."""
    name, url = image.get("file_name"), image.get("coco_url")
    return name if name is not None or not isinstance(url, str) else url.partition("://")[2].partition("/")[2]


def categories_by_id(path: Path, categories: Any) -> dict[int, dict[str, Any]]:
    """Return the categories of a COCO file by id; ids such as "1" and 1.0 become whole numbers.

    Raises:
        UserError: a category is not a map, or has no unique integer `id`.
    """
    known: dict[int, dict[str, Any]] = {}
    for category in categories:
        number = whole_number(category.get("id")) if isinstance(category, dict) else None
        if number is None or number in known:
            raise UserError(
                f"{path}: categories: each needs a whole number of its own as `id`, found {repr(category)[:200]}"
            )
        category["id"] = number
        known[number] = category
    return known


def check_keypoints(path: Path, category: dict[str, Any]) -> None:
    """Raise UserError if a category has `keypoints` that are not two or more different names; none and null are well.

    Blanks around names do not count.
    """
    joints = category.get("keypoints") or []
    names = isinstance(joints, list) and all(isinstance(one, str) and one.strip() for one in joints)
    if not names or len({one.strip() for one in joints}) < len(joints) or len(joints) == 1:
        raise UserError(
            f"{path}: categories: {category.get('name')}: keypoints: found {str(joints)[:200]}; expected two or more "
            "names, each once"
        )
