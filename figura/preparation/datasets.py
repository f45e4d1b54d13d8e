"""The entries of `data/params.yaml`: the datasets that `prepare` creates, and their sources."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError, nearest
from figura.base.validation import validated
from figura.base.yaml12 import read_yaml
from figura.preparation.settings import Coco, DeepFashion, Folders, Market1501, PictureFolders, Section
from figura.synthetic.settings import CatalogueSettings, SyntheticSettings

PARAMS = Path("data/params.yaml")


class Dataset(Section):
    """One entry of `datasets`. `source` is the drawing code or the folder of raw data, relative to the project's root.

    People are drawn (`synthetic`) or read from files (`coco`, `market1501`, `deepfashion`). Image pairs are drawn
    (`catalogue`) or read (`paired`), and so are two sets of pictures without pairs (`day_night`, `unpaired`). `images`
    are pictures without annotations. The section named by `kind` is used; other sections may remain in the file.
    """

    kind: Literal[
        "synthetic", "coco", "market1501", "deepfashion", "catalogue", "paired", "day_night", "unpaired", "images"
    ]
    source: str
    seed: Annotated[int, Field(ge=0)]
    max_rejected: Annotated[float, Field(ge=0, le=1, description="share of the records")]
    synthetic: SyntheticSettings | None = None
    coco: Coco | None = None
    market1501: Market1501 | None = None
    deepfashion: DeepFashion | None = None
    catalogue: CatalogueSettings | None = None
    paired: Folders | None = None
    day_night: CatalogueSettings | None = None
    unpaired: Folders | None = None
    images: PictureFolders | None = None

    @property
    def section(self) -> BaseModel | None:
        """The section named by `kind`."""
        section: BaseModel | None = getattr(self, self.kind)
        return section

    @model_validator(mode="after")
    def _has_its_section(self) -> "Dataset":
        if self.section is None:
            raise ValueError(f"kind is {self.kind!r}, so there must be a section {self.kind!r}")
        return self


def read_dataset(name: str, path: Path = PARAMS) -> Dataset:
    """Read and validate `datasets.<name>`. Raises UserError with all its errors."""
    datasets = _entries(path)
    if name not in datasets or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        known = dataset_names(path)
        raise UserError(f"{path}: datasets.{name}: no such dataset{nearest(name, known)}; there are {', '.join(known)}")
    errors = ErrorCollector(path)
    dataset = validated(Dataset, datasets[name], errors, f"datasets.{name}")
    errors.raise_any()
    assert dataset is not None, "`validated` returned None without an error"
    return dataset


def dataset_names(path: Path = PARAMS) -> list[str]:
    """Return the names of the datasets; raises UserError if there is no map of them."""
    return [str(one) for one in _entries(path)]


def _entries(path: Path) -> dict[str, Any]:
    datasets = read_yaml(path).get("datasets")
    if not isinstance(datasets, dict):
        raise UserError(f"{path}: datasets: found {datasets!r}; expected a mapping of names to datasets")
    return datasets
