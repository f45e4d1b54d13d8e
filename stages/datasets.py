"""The entries of `data/params.yaml`: which datasets `prepare` makes, and from which source."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from data.synthetic.catalogue import CatalogueSettings
from data.synthetic.settings import SyntheticSettings
from models.base.error_collector import ErrorCollector, validated
from models.base.errors import UserError, nearest
from models.base.yaml12 import read_yaml

PARAMS = Path("data/params.yaml")
SPLITS = ("train", "validation")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paths(_Section):
    """A path for each split, relative to the entry's source; a single string stands for both splits."""

    train: str
    validation: str

    @model_validator(mode="before")
    @classmethod
    def _same_for_both(cls, value: Any) -> Any:
        return dict.fromkeys(SPLITS, value) if isinstance(value, str) else value

    def __getitem__(self, split: str) -> str:
        return {"train": self.train, "validation": self.validation}[split]


class Coco(_Section):
    """Image folders and person-keypoint files: one file that `prepare` splits by image, or one file for each split."""

    images: Paths
    annotations: Paths
    validation_share: Annotated[float, Field(gt=0, lt=1)] | None

    @property
    def is_split(self) -> bool:
        """Whether each split has a file of its own."""
        return self.annotations.train != self.annotations.validation

    @model_validator(mode="after")
    def _split_once(self) -> "Coco":
        if self.is_split != (self.validation_share is None):
            raise ValueError(
                "validation_share must be null where annotations names a file for each split, and else a number"
            )
        if self.images.train != self.images.validation and not self.is_split:
            raise ValueError("images may name a folder for each split only where annotations names a file for each")
        return self


class Paired(_Section):
    """One folder of image pairs for each split, relative to the entry's source.

    `data.formats.pair_files` lists the layouts that such a folder may have.
    """

    train: str
    validation: str

    def __getitem__(self, split: str) -> str:
        return {"train": self.train, "validation": self.validation}[split]

    @model_validator(mode="after")
    def _apart(self) -> "Paired":
        if Path(self.train) == Path(self.validation):
            raise ValueError(f"train and validation are both {self.train!r}; each needs a folder of its own")
        return self


class Dataset(_Section):
    """One entry of `datasets`. `source` is the drawing code or the folder of raw data, relative to the project's root.

    People are drawn (`synthetic`) or read from files (`coco`). Image pairs are drawn (`catalogue`) or read (`paired`).
    The section that `kind` names is used; other sections may stay in the file, unused.
    """

    kind: Literal["synthetic", "coco", "catalogue", "paired"]
    source: str
    seed: Annotated[int, Field(ge=0)]
    max_rejected: Annotated[float, Field(ge=0, le=1, description="share of the records")]
    synthetic: SyntheticSettings | None = None
    coco: Coco | None = None
    catalogue: CatalogueSettings | None = None
    paired: Paired | None = None

    @model_validator(mode="after")
    def _has_its_section(self) -> "Dataset":
        if getattr(self, self.kind) is None:
            raise ValueError(f"kind is {self.kind!r}, so there must be a section {self.kind!r}")
        return self


def read_dataset(name: str, path: Path = PARAMS) -> Dataset:
    """Read and validate `datasets.<name>`. Raises UserError that lists every fault in it."""
    datasets = read_yaml(path).get("datasets")
    if not isinstance(datasets, dict):
        raise UserError(f"{path}: datasets: found {datasets!r}; expected a mapping of names to datasets")
    if name not in datasets or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        known = [str(one) for one in datasets]
        raise UserError(f"{path}: datasets.{name}: no such dataset{nearest(name, known)}; there are {', '.join(known)}")
    errors = ErrorCollector(path)
    dataset = validated(Dataset, datasets[name], errors, f"datasets.{name}")
    errors.raise_any()
    assert dataset is not None, "`validated` returned None without an error"
    return dataset
