"""Photos through any trained recipe that says how to predict, as `figura predict` does, in a folder that is removed."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.files import read_bytes
from figura.base.pictures import Pixels, write_png
from figura.base.sampling import evenly_spaced
from figura.commands.explore.project import Project
from figura.commands.explore.trying import (
    COMPUTING,
    Trained,
    accelerator_of,
    dataset_name,
    is_trained,
    model_of,
    recipes_of_photos,
    schema_of,
    trained,
)
from figura.prediction import model as prediction
from figura.prediction.files import TABLE
from figura.prediction.inputs import IMAGES
from figura.prediction.predictor import Predictor
from figura.prediction.results import Results
from figura.recipe.types import PHOTOS, find_type
from models.images.pairs import ImagePairs
from models.people.photos import PersonPhotos

NAME = "photo"
PEOPLE = f"{NAME}.people.json"
"""What `people.PersonPhotos` reads beside a photo, and a pose recipe that saves `people` writes."""
SAMPLES = 20
LENS = 24
"""Side of the part of a photo that the magnifier shows, pixels of the photo."""


@dataclass(frozen=True, eq=False)
class PhotoResults:
    """What a recipe makes of a photo.

    Attributes:
        photo: the photo as it was used, uint8 (H, W, 3).
        trial: the model is that of a try.
        categories: names by id, as far as the model's data told them.
        pictures: pictures (h, w, 3) by name.
        enlarged: names of pictures that the network itself made of the photo, a whole number of times as large.
        records: lists of records by name.
        files: all results by file name, to download.
    """

    photo: Pixels
    trial: bool
    categories: dict[int, str]
    pictures: dict[str, Pixels] = field(default_factory=dict)
    enlarged: list[str] = field(default_factory=list)
    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


def photo_results(project: Project, recipe: str, pixels: Pixels, longest: int) -> PhotoResults:
    """Run a recipe's prediction on a photo, uint8 (H, W, 3), whose longer side is made `longest` pixels if it is more.

    VUNet needs to know where people are; for such a recipe, a trained pose recipe reads the photo first.

    Raises:
        UserError: the recipe is not trained or does not say how to predict, or the photo cannot be used.
    """
    model, photo = trained(project, recipe), shrunk(pixels, longest)
    with tempfile.TemporaryDirectory(prefix="figura-") as temporary:
        folder = Path(temporary)
        source = folder / f"{NAME}.png"
        write_png(source, photo)
        if _needs_people(model):
            _write_people(project, source)
        made = _predict(project, recipe, source)
        made.save(folder / "results")
        files = {path.name: read_bytes(path) for path in sorted((folder / "results").iterdir()) if path.name != TABLE}
    return _results(photo, made, files, model)


def shrunk(pixels: Pixels, longest: int) -> Pixels:
    """Return a picture whose longer side has at most `longest` pixels."""
    height, width = pixels.shape[:2]
    if max(height, width) <= longest:
        return pixels
    size = [max(1, round(side * longest / max(height, width))) for side in (width, height)]
    return np.asarray(cv2.resize(pixels, (size[0], size[1]), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _needs_people(model: Trained) -> bool:
    if model.predict is None:
        return False
    kind = find_type(model.predict.data.type, PHOTOS, "predict.data.type", ErrorCollector(model.recipe.path))
    own = model.predict.data.arguments
    known = own.get("people") is not None or own.get("annotations") is not None
    return isinstance(kind, type) and issubclass(kind, PersonPhotos) and not known


def _write_people(project: Project, source: Path) -> None:
    """Write the people in a photo beside it, as the first recipe of poses reads them."""
    poses = [name for name in recipes_of_photos(project) if _saves_people(project, name)]
    if not any(is_trained(project, name) for name in poses):
        first = f": run dvc repro train@{poses[0]}, then reload this page" if poses else "; dvc.yaml has none"
        raise UserError(f"this recipe needs to know where people are, which a trained pose recipe tells{first}")
    _predict(project, poses[0], source).save(source.parent / "people")
    (source.parent / "people" / PEOPLE).rename(source.parent / PEOPLE)


def _saves_people(project: Project, recipe: str) -> bool:
    predict = schema_of(project, recipe).predict
    return predict is not None and predict.save.get("people") == "records"


def _predict(project: Project, recipe: str, source: Path) -> Results:
    model = trained(project, recipe)
    if model.predict is None:
        raise UserError(f"{model.recipe.path}: predict: missing; so the recipe does not say how to use a photo")
    with COMPUTING:
        ready = prediction.Trained(model.recipe, model.predict, model.networks, accelerator_of(model.recipe))
        predictor = Predictor(model_of(project, recipe), ready)
        try:
            made = predictor.predict(source, batch_size=8, skip=True, workers=0)
        except UserError as error:
            raise UserError(_without(source.parent, str(error))) from None
    if made.faults:
        raise UserError(_without(source.parent, "\n".join(made.faults)))
    return made


def _without(folder: Path, message: str) -> str:
    """Return a message without the folder that nobody knows."""
    return message.replace(f"{folder}/", "").replace(f"{NAME}.png: {NAME}.png", f"{NAME}.png")


def _saved_pictures(model: Trained) -> set[str]:
    """Return the pictures that the mode of a prediction saves: not those that the prediction draws over photos."""
    assert model.predict is not None, "it has predicted"
    saved = model.recipe.evaluate.modes[model.predict.mode].save
    return {name for name, form in saved.items() if form == "image"}


def _results(photo: Pixels, made: Results, files: dict[str, bytes], model: Trained) -> PhotoResults:
    names = {one["id"]: one["name"] for one in model.recipe.facts.get("categories") or ()}
    results, saved = PhotoResults(photo, model.trial, names, files=files), _saved_pictures(model)
    results.pictures.update(made.sheets)
    for one in made:
        compared = {f"{name}.compared": picture for name, picture in one.compared.items()}
        for name, picture in {**one.pictures, **compared}.items():
            results.pictures[_title(one.name, name)] = picture
        for name, records in one.records.items():
            results.records[_title(one.name, name)] = [dict(record) for record in records]
    results.enlarged.extend(
        name for name, picture in results.pictures.items() if name in saved and _is_enlarged(photo, picture)
    )
    return results


def _title(result: str, name: str) -> str:
    """Return `1.drawn` for the picture `drawn` of the first person, `drawn` for that of the photo."""
    return f"{result}.{name}".removeprefix(NAME).lstrip(".-")


def _is_enlarged(photo: Pixels, picture: Pixels) -> bool:
    height, width = photo.shape[:2]
    factor = picture.shape[0] // height
    return factor >= 2 and picture.shape[:2] == (factor * height, factor * width)


def sample_photos(project: Project, recipe: str) -> dict[str, Path]:
    """Return some pictures of a recipe's validation data, by a name to choose; {} if it has no photos of its own.

    Pairs of pictures are not photos. Raises UserError if the recipe has faults.
    """
    content = schema_of(project, recipe)
    if dataset_name(content, ImagePairs) is not None:
        return {}
    for entry in content.data.validation.values():
        root, split = Path(str(entry.arguments.get("root", ""))), str(entry.arguments.get("split", "validation"))
        for folder in (root / "images" / split, root / split):
            files = sorted(one for one in folder.glob("*") if one.suffix.lower() in IMAGES)
            if files:
                return {files[place].name: files[place] for place in evenly_spaced(len(files), SAMPLES)}
    return {}


def table_of(records: Sequence[Mapping[str, Any]], categories: Mapping[int, str]) -> tuple[list[str], list[list[str]]]:
    """Return the titles and rows of a table of records: numbers, categories by name, joints by their count."""
    titles = list(dict.fromkeys(key for one in records for key in one if key != "image_id"))
    return titles, [[_cell(key, one.get(key, ""), categories) for key in titles] for one in records]


def _cell(key: str, value: Any, categories: Mapping[int, str]) -> str:
    if key == "category_id" and value in categories:
        return categories[value]
    if key == "keypoints" and isinstance(value, list):
        return f"{sum(flag > 0 for flag in value[2::3])} of {len(value) // 3}"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return ", ".join(f"{one:.0f}" if isinstance(one, (int, float)) else str(one) for one in value)
    return str(value)


def magnified(photo: Pixels, picture: Pixels, x: float, y: float) -> tuple[Pixels, Pixels]:
    """Return the part around a place of a photo (x and y from 0 to 1), and the same part of an enlarged picture of it.

    The photo's part is enlarged to the same size, each pixel to a square.
    """
    factor = picture.shape[0] // photo.shape[0]
    sides = [min(LENS, side) for side in photo.shape[:2]]
    top, left = (
        int(np.clip(round(share * whole - side / 2), 0, whole - side))
        for share, whole, side in zip((y, x), photo.shape[:2], sides, strict=True)
    )
    part = photo[top : top + sides[0], left : left + sides[1]]
    rows, columns = (
        slice(factor * first, factor * (first + side)) for first, side in zip((top, left), sides, strict=True)
    )
    return np.repeat(np.repeat(part, factor, axis=0), factor, axis=1), picture[rows, columns]
