"""A dump: the outputs of a trained recipe for each example of `evaluate.data`, written once, read lazily.

    examples.csv      one row for each example and draw of a mode: `mode`, `index`, `draw`, `dataset`, the example's own
                      numbers, `loss.<name>`, and `file.<name>` paths relative to the dump; written last, so a dump
                      that has it is complete
    grids.csv         one row for each pair of a grid: `grid`, `row`, `column` (indices of examples), `file.<name>`
    facts.json        what the training data told the recipe (`interfaces.Examples.facts`)
    try.txt           of a try alone: that it is one, and of how many steps (`recipe/trial.py`)
    averages/         means over training examples, float32 .npy
    inputs/ <mode>/   the files

A file is an image of values in [-1, 1] (`image`) or [0, 1] (`mask`), rounded to 8 bits, or holds exact values (`array`,
float32 .npy). File names end in the format, so that a reader restores the range. A `number` is a column of the table
and has no file. The `records` of all examples are one list, `<mode>/<name>.json`.
"""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from models.base.errors import UserError
from models.recipe.schema import Format

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float32]
EXAMPLES = "examples.csv"
FACTS = "facts.json"
TRY = "try.txt"
TEXTS = {"mode": str, "grid": str, "dataset": str, "name": str}
"""Columns of texts, which may look like numbers, such as the name of `000000000139.jpg`, or like none (`NA.jpg`)."""
SUFFIX: dict[Format, str] = {"image": ".image.png", "mask": ".mask.png", "array": ".npy"}


def write_value(path: Path, value: "Tensor") -> None:
    """Write one value in the format of `path`'s ending: image (3 or 1, H, W) in [-1, 1], mask (1, H, W) in [0, 1]."""
    array = value.detach().float().cpu().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(SUFFIX["array"]):
        np.save(path, array)
        return
    levels = (array.clip(-1, 1) + 1) * 127.5 if path.name.endswith(SUFFIX["image"]) else array.clip(0, 1) * 255
    pixels = np.rint(levels).astype(np.uint8).transpose(1, 2, 0)
    cv2.imwrite(str(path), pixels[..., ::-1])


def read_value(path: Path) -> Array:
    """Read what `write_value` wrote: float32, channel first, in its own range."""
    if path.name.endswith(SUFFIX["array"]):
        if not path.is_file():
            raise UserError(f"{path}: no such file; run eval-dump again")
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.float32)
    pixels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise UserError(f"{path}: no readable picture; run eval-dump again")
    channels = pixels[..., ::-1].transpose(2, 0, 1) if pixels.ndim == 3 else pixels[None]
    scaled = channels.astype(np.float32) / (127.5 if path.name.endswith(SUFFIX["image"]) else 255)
    return scaled - 1 if path.name.endswith(SUFFIX["image"]) else scaled


def unfinished(path: Path) -> Path:
    """Return the path of a table while it is being written."""
    return path.with_name(f"{path.name}.unfinished")


class Table:
    """A CSV file written row by row; it appears at `path` when it is closed.

    Rows may lack columns and may add new ones; such cells are empty in the other rows.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._growing, self._columns = path, unfinished(path), list[str]()
        self._file = self._growing.open("w", newline="", encoding="utf-8")

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        if row.keys() - set(self._columns):
            self._widen(row)
        self._writer.writerow(row)

    def _widen(self, row: Mapping[str, Any]) -> None:
        self._file.close()
        earlier = self._growing.replace(self.path.with_name(f"{self.path.name}.earlier"))
        self._columns += [column for column in row if column not in self._columns]
        self._file = self._growing.open("w", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, self._columns, lineterminator="\n", restval="")
        self._writer.writeheader()
        with earlier.open(newline="", encoding="utf-8") as file:
            self._writer.writerows(csv.DictReader(file))
        earlier.unlink()

    def close(self) -> None:
        """Flush to disk, and move the table to `path`."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._growing.replace(self.path)


def read_table(content: bytes) -> pd.DataFrame:
    """Read the content of a file that `Table` wrote: an empty cell is missing, and so is a number that is not one."""
    columns = pd.read_csv(BytesIO(content), nrows=0).columns
    missing = {column: [""] if column in TEXTS else ["", "nan"] for column in columns}
    return pd.read_csv(BytesIO(content), dtype=TEXTS, keep_default_na=False, na_values=missing)


class RecordsFile:
    """A JSON file with one list, written record by record."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._first = path.open("w", encoding="utf-8"), True
        self._file.write("[")

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records."""
        for record in records:
            self._file.write(("\n" if self._first else ",\n") + json.dumps(record))
            self._first = False

    def close(self) -> None:
        """End the list and flush to disk."""
        self._file.write("\n]\n")
        self._file.close()


class Dump:
    """Reads a dump as a dataset: item i is row i of its table, with every file as an array that is read on demand.

    `dump.mode("transfer")` selects the rows of one mode, `dump.table` is a DataFrame, `dump.average("mean_target")` an
    array. `dump.records("truth")` is the list of an input's records, `dump.mode("poses").records("people")` that of a
    mode's. Only the table grows with the number of examples in memory.
    """

    def __init__(self, folder: Path, table: pd.DataFrame | None = None, part: str = "inputs") -> None:
        self.folder, self.part = folder, part
        if table is None and not (folder / EXAMPLES).is_file():
            raise UserError(f"{folder / EXAMPLES}: no such file; run the eval-dump stage first")
        self.table = read_table((folder / EXAMPLES).read_bytes()) if table is None else table.reset_index(drop=True)

    def mode(self, name: str) -> "Dump":
        """Return the rows of one mode."""
        table = self.table[self.table["mode"] == name]
        if table.empty:
            modes = sorted(self.table["mode"].unique())
            raise UserError(f"{self.folder / EXAMPLES}: no rows of mode {name!r}; there are {', '.join(modes)}")
        return Dump(self.folder, table, name)

    def grid(self, name: str) -> "Dump":
        """Return the pairs of a grid, with columns `row` and `column`."""
        path = self.folder / "grids.csv"
        table = read_table(path.read_bytes()) if path.is_file() else pd.DataFrame({"grid": []})
        if name not in set(table["grid"]):
            raise UserError(
                f"{path}: no grid {name!r}; there are {', '.join(map(str, sorted(set(table['grid'])))) or 'none'}"
            )
        return Dump(self.folder, table[table["grid"] == name], name)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the training data by name; empty if the dump holds none."""
        path = self.folder / FACTS
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return facts

    @property
    def trial(self) -> str:
        """What marks the dump of a try (`recipe.trial.mark`); nothing for a result."""
        path = self.folder / TRY
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""

    def average(self, name: str) -> Array:
        """Return a mean over training examples, float32, channel first."""
        path = self.folder / "averages" / f"{name}.npy"
        if not path.is_file():
            raise UserError(f"{path}: no such average; evaluate.averages names those that are written")
        return read_value(path)

    def records(self, name: str) -> list[dict[str, Any]]:
        """Return the records of all examples, in the order of the rows: of this mode, or of the inputs."""
        path = self.folder / self.part / f"{name}.json"
        if not path.is_file():
            raise UserError(f"{path}: no such file; save {name!r} as records in `evaluate` and run eval-dump again")
        records: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return records

    def value(self, place: int, name: str) -> Array:
        """Return one file of a row as an array, float32, channel first, in its own range."""
        column = f"file.{name}"
        if column not in self.table:
            names = [str(c).removeprefix("file.") for c in self.table if str(c).startswith("file.")]
            raise UserError(f"{self.folder}: nothing named {name!r} was saved; there are {', '.join(names)}")
        return read_value(self.folder / str(self.table[column].iloc[place]))

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: int) -> dict[str, Any]:
        row = {str(key): value for key, value in self.table.iloc[place].items()}
        files = {key: value for key, value in row.items() if key.startswith("file.") and isinstance(value, str)}
        plain = {key: value for key, value in row.items() if not key.startswith("file.")}
        return plain | {key.removeprefix("file."): read_value(self.folder / path) for key, path in files.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))
