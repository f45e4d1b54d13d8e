"""Dataset of another run's output: pictures of single people in its dump, as input of a pose network."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from figura.base.errors import UserError, nearest, need
from figura.dump import Dump
from figura.interfaces import Example, ExampleDataset, Records
from figura.report.interfaces import NotApplicableError, rows_where
from figura.report.sheets import pixels_of

from ..people.pairs import channels_first
from .affine import MEAN_COLOUR, fit_to_multiple
from .argument_types import Count, Deviations, Side
from .scenes import IMAGENET_MEAN, IMAGENET_STD


class DumpedPeople(ExampleDataset):
    """Pictures of single people in a run's dump, preprocessed for a pose network.

    `pictures` maps a kind of picture to its source in the dump: `target` is an input, `transfer.image` the output
    `image` of the mode `transfer`; only the first draw of a mode is used. `where` restricts a kind to rows whose column
    of this name is not 0; a kind without rows is skipped, with a printed line. The examples of this dataset are the
    first kind's pictures, then the second kind's, and so on.

    The longer side of a picture is resized to `side` pixels, by default as in the pose network's training data, and
    centred on the smallest canvas whose sides are a multiple of `multiple` plus one.

    An example has `picture` float32 (3, h, w) in [-1, 1] and `image` float32 (3, rows, columns), (v / 255 - mean) /
    std, of the same; the text `kind`; the integers `index`, `image_id` (index + 1), `example` (the index in the run's
    dump), `person_id` (the example, if the dump has none), and `width` and `height` of the picture; `valid_area` and
    `to_original` as in `pose.Scenes`. The argument `truth` names the dump's records of the target poses, in pixels of
    the picture; the example then has its records as `truth`, with its image id.

    Raises ValueError if `where` names another kind or there is no `side`, and UserError if the dump is of several
    datasets, lacks a picture or records, if pictures differ in size, or if no kind is left.
    """

    from_data: ClassVar[tuple[str, ...]] = ("side",)
    names: ClassVar[tuple[str, ...]] = (
        "picture", "image", "kind", "index", "image_id", "example", "person_id", "width", "height", "valid_area",
        "to_original",
    )  # fmt: skip

    def __init__(
        self,
        *,
        dump: str,
        pictures: Annotated[dict[str, str], Field(min_length=1)],
        truth: str | None = None,
        where: dict[str, str] | None = None,
        side: Side | None = None,
        multiple: Count = 16,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: Deviations = IMAGENET_STD,
    ) -> None:
        self.side, self.multiple = need("side", side), multiple
        for kind in where or {}:
            if kind not in pictures:
                raise ValueError(f"where.{kind}{nearest(kind, pictures)}: pictures has no such kind")
        # an instance can provide more names than its class declares
        self.names = self.provides({"truth": truth})  # type: ignore[misc]
        self.mean, self.std = (np.array(one, dtype=np.float32) for one in (mean, std))
        whole = Dump(Path(dump))
        if "dataset" in whole.table and whole.table["dataset"].nunique() > 1:
            names = ", ".join(map(str, whole.table["dataset"].unique()))
            raise UserError(f"{dump}: examples of {names}; poses are compared for one dataset")
        self.pictures: list[tuple[str, Dump, str]] = []  # kind, rows, and saved name
        for kind, place in pictures.items():
            mode, _, saved = place.rpartition(".")
            try:
                rows = _first_draws(whole, mode, (where or {}).get(kind))
            except NotApplicableError as error:
                print(f"{dump}: {kind}: left out: {error}")
            else:
                self.pictures.append((kind, rows, saved))
        self._ends = list(accumulate(len(rows) for _, rows, _ in self.pictures))
        if not self._ends or not self._ends[-1]:
            raise UserError(f"{dump}: no pictures to read")
        self.truth = None if truth is None else _by_image(whole, truth)
        self._size: tuple[int, int] | None = None

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return `names`, and `truth` if requested."""
        return (*cls.names, *(("truth",) if arguments.get("truth") else ()))

    def __len__(self) -> int:
        return self._ends[-1]

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Return example `index`; `random` is unused."""
        place = bisect_right(self._ends, index)
        kind, rows, saved = self.pictures[place]
        row = index - (self._ends[place - 1] if place else 0)
        pixels = pixels_of(rows, row, saved)
        height, width = pixels.shape[:2]
        self._size = self._size or (height, width)
        if (height, width) != self._size:
            sizes = f"{width} x {height} and {self._size[1]} x {self._size[0]} pixels"
            raise UserError(f"{rows.folder}: {kind}: pictures of {sizes}; all must be of one size")
        placement = fit_to_multiple(width, height, self.side, self.multiple)
        read = placement.picture(pixels, MEAN_COLOUR).astype(np.float32) / 255
        normalised = np.asarray((read - self.mean) / self.std, dtype=np.float32)
        columns = rows.table.iloc[row]
        number = int(columns["index"])
        example: Example = {
            "picture": channels_first(pixels.astype(np.float32) / 127.5 - 1),
            "image": channels_first(normalised),
            "kind": kind,
            "index": index,
            "image_id": index + 1,
            "example": number,
            "person_id": int(columns.get("person_id", number)),
            "width": width,
            "height": height,
            "valid_area": placement.valid_area,
            "to_original": placement.to_original,
        }
        if self.truth is not None:
            asked = self.truth.get(number, [])
            example["truth"] = Records({**one, "image_id": index + 1} for one in asked)
        return example


def _first_draws(dump: Dump, mode: str, where: str | None) -> Dump:
    """Return the rows of a mode's first draw; without a mode, each example's first row, for inputs."""
    rows = rows_where(dump.mode(mode) if mode else dump, mode or "inputs", where)
    first = rows.table[rows.column("draw") == 0].drop_duplicates("index")
    return rows.rows(first)


def _by_image(dump: Dump, name: str) -> dict[int, list[dict[str, Any]]]:
    records: dict[int, list[dict[str, Any]]] = {}
    for index, record in enumerate(dump.records(name)):
        if type(number := record.get("image_id")) is not int:
            raise UserError(f"{dump.folder}: {name!r}: record {index} (counted from 0): image_id is {number!r:.40}")
        records.setdefault(number, []).append(record)
    return records
