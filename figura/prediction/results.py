"""The results of a prediction, as a sequence, a table, a COCO file, or files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from figura.base.errors import DISTRIBUTION, UserError
from figura.prediction.result import LONGEST, Categories, ImageInfo, Pixels, Record, Result

if TYPE_CHECKING:
    import pandas as pd


SHOWN = 8  # results that a notebook shows


@dataclass(frozen=True, eq=False, repr=False)
class Results(Sequence[Result]):
    """The results of a prediction, in the order of the images.

    Attributes:
        items: the results.
        images: all readable images, including those without a result.
        forms: saved outputs: `image`, `mask`, `array` or `records` by name.
        categories: names of joints and categories.
        sheets: pictures of a grid (`predict.grid`), by name: the first results, every row with every column.
        faults: lines about unusable inputs.
    """

    items: tuple[Result, ...]
    images: tuple[ImageInfo, ...]
    forms: Mapping[str, str]
    categories: Categories
    sheets: Mapping[str, Pixels] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = "\n".join(f"  {one!r}" for one in self.items[:SHOWN])
        more = f"\n  and {len(self) - SHOWN} more" if len(self) > SHOWN else ""
        return f"<figura.Results: {len(self)} of {len(self.images)} images>\n{shown}{more}"

    def _repr_png_(self) -> bytes | None:
        """Return the first pictures below each other as a PNG, which notebooks show; None without a picture."""
        first = [one for one in self.items if one.pictures][:SHOWN]
        if not first:
            return None
        from figura.base.pictures import encode_png, shrunk
        from figura.report.sheets import side_by_side

        rows = [[shrunk(pixels, LONGEST // 2) for pixels in one.pictures.values()] for one in first]
        return encode_png(side_by_side(rows, list(first[0].pictures), labels=[one.name for one in first]))

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, place: int) -> Result: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Result, ...]: ...
    def __getitem__(self, place: int | slice) -> Result | tuple[Result, ...]:
        return self.items[place]

    def to_pandas(self, name: str | None = None) -> "pd.DataFrame":
        """Return a table with one row per record, or per result if the recipe saves no records.

        Columns are `name`, `file`, `image_id`, `frame`. Records add `category`, `score`, `x`, `y`, `width` and `height`
        of the box, `track_id` of people in a video, and `<joint>_x`, `<joint>_y`, `<joint>_score` if they have joints
        (also in an empty table); results add the numbers of comparisons.

        Args:
            name: which of the saved records; default: the first.

        Raises:
            UserError: the recipe saves no records of this name, or pandas is not installed.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise UserError(f"tables need pandas: `pip install '{DISTRIBUTION}[train]'`") from None
        if name is None and "records" not in self.forms.values():
            columns = [*PLACE, *dict.fromkeys(number for one in self for number in one.numbers)]
            return pd.DataFrame([_place(one) | dict(one.numbers) for one in self], columns=columns)
        chosen = self._records_name(name)
        rows = [_place(one) | self._row(record) for one in self for record in one.records[chosen]]
        empty = self._row({"keypoints": [0, 0, 0] * len(self.categories.joints)})
        return pd.DataFrame(rows, columns=None if rows else [*PLACE, *empty])

    def to_coco(self, name: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the content of a COCO file: `images`, `annotations` and `categories`.

        `images` map each `id` to a `file_name`. `annotations` are COCO results (`image_id`, `category_id`, `score`,
        `bbox`, `keypoints`) with an `id` from 1; pycocotools accepts them in `loadRes`.

        Args:
            name: which of the saved records; default: the first.

        Raises:
            UserError: the recipe saves no records of this name.
        """
        chosen = self._records_name(name)
        records = [{**record, "image_id": one.image.id} for one in self for record in one.records[chosen]]
        return {
            "images": [_coco_image(one) for one in self.images],
            "annotations": [{"id": number, **record} for number, record in enumerate(records, 1)],
            "categories": self._coco_categories(records),
        }

    def save(self, folder: str | Path) -> None:
        """Write the same files as `predict`: pictures, records, arrays, grids, and the table `predictions.csv`.

        Video frames become separate files.

        Raises:
            UserError: a file cannot be written, or two of them would have the same name; then none is written.
        """
        from figura.prediction.files import ResultFiles  # lazily: it imports pandas

        folder = Path(folder)
        names = [f"{one.name}.{name}" for one in self for name in (*one.pictures, *one.records, *one.arrays)]
        names += [f"{one.name}.{name}.compared" for one in self for name in one.compared]
        if twice := [name for name, count in Counter([*names, *self.sheets]).items() if count > 1]:
            more = f", and {len(twice) - 1} more names" if len(twice) > 1 else ""
            raise UserError(f"{folder / twice[0]}: two results would be this file{more}; save them into two folders")
        with ResultFiles(folder) as files:
            for one in self:
                files.write(one)
            files.write_sheets(self.sheets)
            for one in self:  # the table comes last: it lists complete files
                files.add_row(one)

    def _records_name(self, name: str | None) -> str:
        names = [one for one, form in self.forms.items() if form == "records"]
        if name is None and names:
            return names[0]
        if name not in names:
            saved = ", ".join(names) or f"none, but {', '.join(self.forms)}"
            wanted = "records" if name is None else f"records {name!r}"
            raise UserError(f"{wanted}: the recipe saves {saved}")
        return name

    def _row(self, record: Record) -> dict[str, Any]:
        one = self.categories.thing(record)
        row: dict[str, Any] = {"category": one.category, "score": one.score, **vars(one.box)}
        row |= {"track_id": record["track_id"]} if "track_id" in record else {}
        if "keypoints" in record:
            for joint in self.categories.person(record).joints:
                row |= {f"{joint.name}_{axis}": getattr(joint, axis) for axis in ("x", "y", "score")}
        return row

    def _coco_categories(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Return the categories of the records and the training data, with joints if records have them."""
        posed = {one.get("category_id", 1) for one in records if "keypoints" in one}
        numbers = sorted({*self.categories.names, *(one.get("category_id", 1) for one in records)})
        skeleton = {
            "keypoints": list(self.categories.joints),
            "skeleton": [[a + 1, b + 1] for a, b in self.categories.connections],
        }
        return [
            {"id": one, "name": self.categories.names.get(one, str(one)), **(skeleton if one in posed else {})}
            for one in numbers
        ]


PLACE = ["name", "file", "image_id", "frame"]


def _place(one: Result) -> dict[str, Any]:
    file = None if one.image.file is None else str(one.image.file)
    return {"name": one.name, "file": file, "image_id": one.image.id, "frame": one.image.frame}


def _coco_image(image: ImageInfo) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": image.id, "file_name": image.source}
    if image.size is not None:
        entry |= {"height": image.size[0], "width": image.size[1]}
    return entry | ({} if image.frame is None else {"frame": image.frame})
