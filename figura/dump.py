"""A dump: the outputs of a trained recipe for each example of `evaluate.data`, written once, read lazily.

    examples.csv      one row for each example and draw of a mode: `mode`, `index`, `draw`, `dataset`, the example's own
                      numbers, `loss.<name>`, and `file.<name>` paths relative to the dump; written last, so a dump
                      that has it is complete
    grids.csv         one row for each pair of a grid: `grid`, `row`, `column` (indices of examples), `file.<name>`
    facts.json        facts of the training data (`interfaces.ExampleDataset.facts`)
    try.txt           only for a try: the mark, with its number of steps (`recipe/trial.py`)
    averages/         means over training examples, float32 .npy
    <mode>.<name>.zip the files of one name of a mode, of a grid or of the `inputs`, uncompressed (`base/archives.py`)
    SHA256SUMS        the SHA-256 of each file above, checked by readers; also readable by `sha256sum -c`

A file is an image of values in [-1, 1] (`image`) or [0, 1] (`mask`), rounded to 8 bits, or has exact values (`array`,
float32 .npy). File names end in the format, so that readers restore the range. Where they lie in no archive, as figura
wrote them at first, they are read from the folder. A `number` is a column of the table and has no file. The `records`
of all examples are one list, `<mode>/<name>.json`. Numbers are finite; an empty cell was not computed, or for numbers
of the example, is unknown.
"""

import copy
import csv
import errno
import hashlib
import json
import math
import os
import secrets
import struct
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.archives import ArchiveReader
from figura.base.checksums import SUMS, read_sums
from figura.base.errors import UserError, nearest
from figura.base.files import read_bytes
from figura.base.pictures import Pixels, decode_picture, encode_png
from figura.recipe.schema import Format

if TYPE_CHECKING:  # a prediction writes files like those of a dump, and needs neither
    import pandas as pd
    from torch import Tensor

Array = NDArray[np.float32]
EXAMPLES = "examples.csv"
GRIDS = "grids.csv"
FACTS = "facts.json"
TRY = "try.txt"
RERUN_HINT = "run eval-dump again"
TEXTS = {"mode": str, "grid": str, "dataset": str, "name": str}
"""String columns; they may look like numbers (the name of `000000000139.jpg`) or missing values (`NA.jpg`)."""
COMPUTED = ("loss.", "ms.")  # prefixes of computed columns, whose cells are finite numbers or empty
SUFFIX: dict[Format, str] = {"image": ".image.png", "mask": ".mask.png", "array": ".npy"}
MOST_PIXELS = 2**26  # larger pictures are rejected before decoding: their values would take more than 800 MB
PNG = b"\x89PNG\r\n\x1a\n"

NO_SPACE_HINT, IN_THE_WAY_HINT = "make room on the disk, or ", "remove what is in its place, or "
ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), NO_SPACE_HINT),
    **dict.fromkeys((errno.EISDIR, errno.EEXIST, errno.ENOTDIR), IN_THE_WAY_HINT),
}
"""Advice by errno."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UserError if `path` cannot be written completely, even temporarily."""
    try:
        yield
    except OSError as error:
        advice = f"{ADVICE.get(error.errno or 0, '')}write elsewhere, and run this again"
        raise UserError(f"{path}: cannot be written: {error.strerror or error}; {advice}") from None


def write_file(path: Path, content: bytes) -> str:
    """Write a file of a dump, and return its SHA-256.

    Writes are checked, but files are not flushed to disk one by one, which takes longer than computing them: a dump is
    complete only with its table, and its checksums reveal what a later crash damages.

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def write_value(path: Path, value: "Tensor") -> str:
    """Write one value in the format given by `path`'s suffix; return its SHA-256.

    Raises:
        UserError: like `converted` and `write_file`.
    """
    return write_file(path, encoded(converted(path, value)))


def converted(path: Path, value: "Tensor") -> Pixels | bytes:
    """Convert a value for a file with `path`'s suffix: to pixels (H, W, 3) or (H, W), or the bytes of an array.

    Images are (3 or 1, H, W) in [-1, 1], masks (1, H, W) in [0, 1]. The tensor may change afterwards.

    Raises:
        UserError: an image or a mask has another shape.
    """
    array = value.detach().float().cpu().numpy()
    if path.name.endswith(SUFFIX["array"]):
        return encode_array(array)
    if array.ndim != 3 or array.shape[0] not in (1, 3):
        raise UserError(f"{path}: shape {array.shape}; a picture is (3 or 1, height, width); save it as array")
    signed = path.name.endswith(SUFFIX["image"])
    levels = np.clip(array, -1 if signed else 0, 1)
    if signed:
        levels += 1
    levels *= 127.5 if signed else 255
    planes = np.rint(levels, out=levels).astype(np.uint8)
    return np.asarray(cv2.merge(list(planes)), dtype=np.uint8) if len(planes) == 3 else planes[0]


def encode_array(array: Array) -> bytes:
    """Return an array as the content of a file of `np.save`."""
    buffer = BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def encoded(content: Pixels | bytes) -> bytes:
    """Return the result of `converted` as the content of a file."""
    return content if isinstance(content, bytes) else encode_png(content)


def archive_of(path: str) -> str:
    """Return the name of the archives (`base/archives.py`) in which a file lies, given its path relative to the dump.

    It is `<mode>.<name>` of `<mode>/<example>.<name>.<format>`; the names of recipes have no dot.
    """
    mode, _, file = path.partition("/")
    return f"{mode}.{file.partition('.')[2].partition('.')[0]}"


def decode_value(content: bytes, path: Path) -> Array:
    """Decode a file written by `write_value`: float32, channel first, in its original range.

    Raises:
        UserError: not a picture of 1 or 3 channels of 8 bits, or not an array of finite float32.
    """
    if path.name.endswith(SUFFIX["array"]):
        return _decode_array(content, path)
    width, height = struct.unpack(">2I", content[16:24]) if content[:8] == PNG and len(content) >= 24 else (0, 0)
    if width * height > MOST_PIXELS:
        raise UserError(f"{path}: {width} x {height} pixels; at most {MOST_PIXELS} are read; {RERUN_HINT}")
    pixels = decode_picture(content if width else b"", path, cv2.IMREAD_UNCHANGED, RERUN_HINT)
    if pixels.ndim == 3 and pixels.shape[2] != 3:
        raise UserError(f"{path}: {pixels.shape[2]} channels; a picture of a dump has 1 or 3; {RERUN_HINT}")
    channels = pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels[None]
    scaled = channels.astype(np.float32) / (127.5 if path.name.endswith(SUFFIX["image"]) else 255)
    return scaled - 1 if path.name.endswith(SUFFIX["image"]) else scaled


def _decode_array(content: bytes, path: Path) -> Array:
    file = BytesIO(content)
    try:
        np.lib.format.read_magic(file)
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype != np.dtype("<f4") or len(content) - file.tell() != 4 * math.prod(shape):
            raise ValueError
        flat = np.frombuffer(content, "<f4", offset=file.tell()).astype(np.float32)
        array = flat.reshape(shape, order="F" if by_columns else "C")
    except (ValueError, TypeError, SyntaxError, TokenError, MemoryError, RecursionError, OverflowError, LookupError):
        raise UserError(f"{path}: no float32 array of np.save whose size is that of its head; {RERUN_HINT}") from None
    if wrong := array.size - int(np.isfinite(array).sum()):
        raise UserError(f"{path}: {wrong} of {array.size} values are NaN or infinite; {RERUN_HINT}")
    return np.asarray(array)


class GrowingFile:
    """A text file written incrementally; it appears at `path` on `publish`, until then at `path`.<random>.unfinished.

    Raises:
        UserError: from each method, if the disk is full or the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        self._digest = hashlib.sha256()
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # a name of its own: two predictions may go into one folder
            self._unfinished = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.unfinished")
            self._file = self._unfinished.open("wb")

    def write(self, text: str) -> None:
        """Append text, as UTF-8."""
        content = text.encode("utf-8")
        with writing(self.path):
            self._file.write(content)
        self._digest.update(content)

    def end(self) -> str:
        """Flush to disk and close, and return the SHA-256 of all that was written."""
        with writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._digest.hexdigest()

    def publish(self) -> None:
        """Move the file to `path`."""
        with writing(self.path):
            self._unfinished.replace(self.path)

    def close(self) -> None:
        """End and publish; if that fails, remove what was written."""
        try:
            self.end()
            self.publish()
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what was written, unless it was published."""
        with suppress(OSError):  # none is left, or the disk is read-only by now
            self._unfinished.unlink()


class Table(GrowingFile):
    """A CSV file written row by row.

    Rows may omit columns and add new ones; missing cells are empty.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._columns = list[str]()

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        if row.keys() - set(self._columns):
            self._widen(row)
        self._writer.writerow(row)

    def _widen(self, row: Mapping[str, Any]) -> None:
        self.end()
        earlier = self._unfinished
        self._columns += [column for column in row if column not in self._columns]
        try:
            self._open()
            self._writer = csv.DictWriter(self, self._columns, lineterminator="\n", restval="")
            self._writer.writeheader()
            with earlier.open(newline="", encoding="utf-8") as file:
                self._writer.writerows(csv.DictReader(file))
        finally:
            with suppress(OSError):
                earlier.unlink()


def read_table(content: bytes, path: Path, needed: Collection[str]) -> "pd.DataFrame":
    """Parse the content of a file written by `Table`; `path` is for messages.

    Empty cells and unknown numbers of the example (`nan`) are missing values.

    Raises:
        UserError: not a table, without a column of `needed`, or with a number that is not finite.
    """
    import pandas as pd

    try:
        columns = [str(column) for column in pd.read_csv(BytesIO(content), nrows=0).columns]
        kinds = TEXTS | {column: str for column in columns if column.startswith("file.")}
        texts = {column for column in columns if column in kinds or column.startswith(COMPUTED)}
        missing = {column: [""] if column in texts else ["", "nan"] for column in columns}
        table = pd.read_csv(BytesIO(content), dtype=kinds, keep_default_na=False, na_values=missing)
    except (ValueError, OverflowError, MemoryError) as error:  # not text, an open quote, rows that are too long
        raise UserError(f"{path}: no readable table: {error}; {RERUN_HINT}") from None
    if not isinstance(table.index, pd.RangeIndex):
        raise UserError(f"{path}: no readable table: a row has more cells than there are columns; {RERUN_HINT}")
    for column in needed:
        if column not in columns or table[column].isna().any():
            raise UserError(f"{path}: no column {column!r}, or it has empty cells; {RERUN_HINT}")
    numeric = set(table.select_dtypes("number").columns)
    for column in columns:
        wrong = column.startswith(COMPUTED) and column not in numeric
        if wrong or (column in numeric and np.isinf(table[column].to_numpy(dtype=np.float64)).any()):
            raise UserError(f"{path}: column {column!r} holds NaN, infinite or no numbers; {RERUN_HINT}")
    return table


class RecordsFile(GrowingFile):
    """A JSON file with one list, written record by record."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._first = True
        self.write("[")

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records. Raises UserError for NaN or infinity, which JSON does not support."""
        for record in records:
            try:
                text = json.dumps(record, allow_nan=False)
            except ValueError:
                raise UserError(f"{self.path}: NaN or infinity in the record {record!s:.200}") from None
            self.write(("\n" if self._first else ",\n") + text)
            self._first = False

    def end(self) -> str:
        """End the list, flush to disk and close, and return the SHA-256."""
        self.write("\n]\n")
        return super().end()


class Dump:
    """Reads a dump as a dataset: item i is row i of its table, with every file as an array read on demand.

    `dump.mode("transfer")` selects the rows of one mode, `dump.table` is a DataFrame, `dump.average("mean_target")` an
    array. `dump.records("truth")` is the list of an input's records, `dump.mode("poses").records("people")` that of a
    mode's. In memory, only the table and the list of files grow with the number of examples.

    Raises:
        UserError: here and wherever a file is read: it is missing, its checksum differs, or its format is wrong.
    """

    def __init__(self, folder: Path, table: "pd.DataFrame | None" = None, part: str = "inputs") -> None:
        self.folder, self.part = folder, part
        self._archives = ArchiveReader(folder, RERUN_HINT)
        if table is None:
            if not (folder / EXAMPLES).exists():
                raise UserError(f"{folder / EXAMPLES}: no such file; run the eval-dump stage first")
            table = read_table(self.read(EXAMPLES), folder / EXAMPLES, ["mode"])
        self.table = table.reset_index(drop=True)
        self.shared: dict[Hashable, Any] = {}  # cache of values that scores compute and share, also across `rows`

    @cached_property
    def checksums(self) -> dict[str, str]:
        """The SHA-256 of each file, by path relative to the folder."""
        return read_sums(self.folder, RERUN_HINT)

    def rows(self, table: "pd.DataFrame", part: str | None = None) -> "Dump":
        """Return a dump with only these rows."""
        chosen = copy.copy(self)
        chosen.table, chosen.part = table.reset_index(drop=True), self.part if part is None else part
        return chosen

    def mode(self, name: str) -> "Dump":
        """Return the rows of one mode."""
        table = self.table[self.table["mode"] == name]
        if table.empty:
            modes = sorted(self.table["mode"].unique())
            raise UserError(f"{self.folder / EXAMPLES}: no rows of mode {name!r}; there are {', '.join(modes)}")
        return self.rows(table, name)

    def grid(self, name: str) -> "Dump":
        """Return the pairs of a grid, with columns `row` and `column`."""
        path = self.folder / GRIDS
        if not self.holds(GRIDS):
            raise UserError(f"{path}: no grid {name!r}; there are none")
        table = read_table(self.read(GRIDS), path, ["grid", "row", "column"])
        if name not in (names := sorted(set(table["grid"]))):
            raise UserError(f"{path}: no grid {name!r}; there are {', '.join(map(str, names))}")
        return self.rows(table[table["grid"] == name], name)

    def column(self, name: str) -> "pd.Series":
        """Return a column of the table. Raises UserError if it does not exist."""
        if name not in self.table:
            names = [str(column) for column in self.table]
            raise UserError(f"{self.folder}: {self.part!r} has no column {name!r}{nearest(name, names)}")
        return self.table[name]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers without gaps, (rows,). Raises UserError otherwise."""
        column = self.column(name)
        if column.dtype.kind not in "biuf" or not np.isfinite(column.to_numpy(dtype=np.float64)).all():
            raise UserError(f"{self.folder}: {self.part!r}: column {name!r} lacks numbers; each row needs one")
        return column.to_numpy(dtype=np.float64)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the training data by name; empty if the dump has none."""
        facts = self._json(FACTS) if self.holds(FACTS) else {}
        if not isinstance(facts, dict):
            raise UserError(f"{self.folder / FACTS}: found {type(facts).__name__}; a map is needed; {RERUN_HINT}")
        return facts

    @property
    def trial(self) -> str:
        """The mark of a try's dump (`recipe.trial.mark`); empty for a result."""
        return self.read(TRY).decode("utf-8", errors="replace").strip() if self.holds(TRY) else ""

    def average(self, name: str) -> Array:
        """Return a mean over training examples, float32, channel first."""
        if not self.holds(path := f"averages/{name}.npy"):
            raise UserError(f"{self.folder / path}: no such average; evaluate.averages names those that are written")
        return self.decoded(path)

    def records(self, name: str) -> list[dict[str, Any]]:
        """Return the records of all examples, in the order of the rows: of this mode, or of the inputs."""
        if not self.holds(path := f"{self.part}/{name}.json"):
            raise UserError(
                f"{self.folder / path}: no such file; save {name!r} as records in `evaluate` and run eval-dump again"
            )
        records = self._json(path)
        if not isinstance(records, list):
            raise UserError(f"{self.folder / path}: found {type(records).__name__}; a list is needed; {RERUN_HINT}")
        for index, record in enumerate(records):
            if not isinstance(record, dict):
                found = f"record {index} (counted from 0): found {record!r:.40}; expected an object"
                raise UserError(f"{self.folder / path}: {found}; {RERUN_HINT}")
        return records

    def value(self, place: int, name: str) -> Array:
        """Return one file of a row as an array, float32, channel first, in its original range."""
        column = f"file.{name}"
        if column not in self.table:
            names = [str(c).removeprefix("file.") for c in self.table if str(c).startswith("file.")]
            raise UserError(f"{self.folder}: nothing named {name!r} was saved; there are {', '.join(names)}")
        path = self.table[column].iloc[place]
        if not isinstance(path, str):
            raise UserError(f"{self.folder}: {self.part!r}: no {name!r} was saved for row {place} (counted from 0)")
        return self.decoded(path)

    def holds(self, path: str) -> bool:
        """Whether the dump has a file, both in the folder and in the checksums."""
        return path in self.checksums or (self.folder / path).exists()

    def read(self, path: str) -> bytes:
        """Return the exact content of a file, given its path relative to the dump.

        Raises:
            UserError: it or its archive is missing, not a regular file, or its checksum differs or is missing.
        """
        if path not in self.checksums:
            if (member := self._archives.read(archive_of(path), path, self.checksums)) is not None:
                return member
            raise UserError(f"{self.folder / path}: not in {SUMS}: it is damaged, or not of this dump; {RERUN_HINT}")
        content = read_bytes(self.folder / path, RERUN_HINT)
        if hashlib.sha256(content).hexdigest() != self.checksums[path]:
            raise UserError(f"{self.folder / path}: damaged: its checksum differs; {RERUN_HINT}")
        return content

    def decoded(self, path: str) -> Array:
        """Return a picture or an array, given its path relative to the dump: float32, channel first, in its range."""
        return decode_value(self.read(path), self.folder / path)

    def _json(self, path: str) -> Any:
        try:
            return json.loads(self.read(path))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.folder / path}: no readable JSON: {error}; {RERUN_HINT}") from None

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: int) -> dict[str, Any]:
        row = {str(key): value for key, value in self.table.iloc[place].items()}
        files = {key: value for key, value in row.items() if key.startswith("file.") and isinstance(value, str)}
        plain = {key: value for key, value in row.items() if not key.startswith("file.")}
        return plain | {key.removeprefix("file."): self.decoded(path) for key, path in files.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))
