"""Settings of datasets read from files: sections of an entry of `data/params.yaml`."""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from figura.base.errors import nearest
from figura.base.raw_pictures import Orientation
from figura.formats.keypoint_sets import SETS
from figura.formats.prepared import OTHERS
from figura.preparation.splits import TRAIN, VALIDATION

RESERVED = (*OTHERS, "shares")
"""Names of other files and folders of a prepared dataset, and of a key next to the splits."""


def _split_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9_-]+", name) or name in RESERVED:
        raise ValueError(
            f"{name!r} cannot name a split; allowed are a-z, 0-9, - and _, and any name but {', '.join(RESERVED)}"
        )
    return name


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
Point = Annotated[list[float], Field(min_length=2, max_length=2)]
Positive = Annotated[float, Field(gt=0)]
Split = Annotated[str, AfterValidator(_split_name)]
Share = Annotated[float, Field(gt=0, lt=1)]
Shares = Annotated[dict[Split, Share], BeforeValidator(lambda shares: {} if shares is None else shares)]
"""Split -> fraction of `train`; null is none, so that `-S ...shares=null` removes them."""


def check_splits(named: Mapping[str, Any], shares: Mapping[str, float], where: str) -> None:
    """Raise ValueError unless the splits suit training or evaluation, and the shares leave training data.

    Training needs train and validation, once each. Data for evaluating trained models need no train.
    """
    if TRAIN not in named and (shares or not named or nearest(TRAIN, named)):
        raise ValueError(
            f"the split 'train' is missing{nearest(TRAIN, named)}; {where} names {', '.join(named) or 'none'}"
        )
    if TRAIN in named and VALIDATION not in {*named, *shares}:
        close = "(did you mean 'validation'?) " if any(name.startswith("val") for name in named) else ""
        raise ValueError(
            f"the split 'validation' is missing; {where} names {', '.join(named)} {close}and shares "
            f"{', '.join(shares) or 'none'}; name it in one of them, as in `shares: {{validation: 0.2}}`"
        )
    if twice := [name for name in shares if name in named]:
        raise ValueError(
            f"shares.{twice[0]}: {where} names {', '.join(named)}; shares split other names off the split 'train'"
        )
    if sum(shares.values()) >= 1:
        raise ValueError(f"shares: the sum is {sum(shares.values()):g}; it must be below 1, the rest is 'train'")


def _check_apart(places: Mapping[str, Sequence[str]], what: str, deep: bool = False) -> None:
    """Raise ValueError if a path occurs twice, or with `deep`, if one is inside another."""
    every = [(split, PurePosixPath(one)) for split, several in places.items() for one in several]
    for (other, before), (split, place) in combinations(every, 2):
        if place == before:
            raise ValueError(f"{other} and {split} are both {str(place)!r}; each needs a {what} of its own")
        if deep and (place in before.parents or before in place.parents):
            raise ValueError(
                f"{other} is {str(before)!r} and {split} {str(place)!r}, one within the other; each needs a {what} of "
                "its own"
            )


class Section(BaseModel):
    """A closed set of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KeypointSettings(Section):
    """The joints of a dataset, if missing or wrong in its files. Joints are referred to by name.

    A single string is the name of a published set: `keypoints: wholebody` is `keypoints: {set: wholebody}`. Missing
    settings come from `set`, or else from the category in the files, from the published set with the same names, or
    from rules (`figura.preparation.skeletons`).

    Attributes:
        set: a published set of joints (`figura.formats.keypoint_sets`): coco, crowdpose, mpii, wholebody, ...
        keypoints: the names of the joints, in the order of the annotations.
        sigmas: each joint's standard deviation as a fraction of the instance's scale (OKS), or one number for all.
        flip: joints that are swapped when the image is mirrored, in one direction: `{left_eye: right_eye}`.
        connections: pairs of joints.
        dense_connections: further pairs, for the dense association field.
        kinematic_tree: pairs that reach each joint once, from the root outwards.
        score_weights: weights of the joints' confidences in descending order.
        standing_pose: `[x, y]` of each joint, y upwards, of an upright instance about 10 high.
    """

    set: str | None = None
    keypoints: Annotated[list[str], Field(min_length=2)] | None = None
    sigmas: Positive | list[Positive] | None = None
    flip: dict[str, str] | None = None
    connections: list[Pair] | None = None
    dense_connections: list[Pair] | None = None
    kinematic_tree: list[Pair] | None = None
    score_weights: list[Positive] | None = None
    standing_pose: list[Point] | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_of_a_set(cls, value: Any) -> Any:
        return {"set": value} if isinstance(value, str) else value

    @field_validator("set")
    @classmethod
    def _is_published(cls, name: str | None) -> str | None:
        if name is not None and name not in SETS:
            raise ValueError(f"no set of joints {name!r}{nearest(name, SETS)}; there are {', '.join(SETS)}")
        return name

    @model_validator(mode="after")
    def _names_once(self) -> "KeypointSettings":
        if self.set is not None and self.keypoints is not None:
            raise ValueError("set names the joints already; leave out set or keypoints")
        return self


class Coco(Section):
    """Annotation files and the folders of their images, by split.

    A single annotation file is that of `train`. It is a COCO file, or one of the formats of
    `figura.formats.exports`, or a YOLO folder or its `data.yaml`, which names the splits and their images itself.
    `shares` split other names off `train`, at random: by identity if annotations have a `person_id`, by image
    otherwise. A single image folder is that of all splits; default: `images`. Joints of predictions count from a
    confidence of `min_confidence`.

    `category` is the category of people, or several to merge; `keypoints` adds what the files lack about the joints.
    For both, see `Preparation`. `boxes` and `coordinates` say what numbers mean (`Conventions`); `orientation`, which
    way up pictures with an EXIF orientation are read, by default the way that annotations fit. `group_by` keeps images
    together in `shares`: a key of the image records (`video_id`, `extra.name`), or a regular expression whose group is
    the common part of file names.
    """

    renamed: ClassVar[dict[str, str]] = {"validation_share": "shares: {validation: SHARE}"}

    images: dict[Split, str]
    annotations: dict[Split, str]
    shares: Shares = {}
    boxes: Literal["xywh", "corners", "centre", "joints"] | None = None
    coordinates: Literal["pixels", "relative", "percent"] | None = None
    orientation: Orientation | None = None
    group_by: str | None = None
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.0
    category: str | Annotated[list[str], Field(min_length=1)] | None = None
    keypoints: KeypointSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _by_split(cls, content: Any) -> Any:
        if isinstance(content, dict):
            content = dict(content)
            if isinstance(content.get("annotations"), str):
                content["annotations"] = {TRAIN: content["annotations"]}
            content.setdefault("images", "images")
            if isinstance(content.get("images"), str) and isinstance(content.get("annotations"), dict):
                content["images"] = dict.fromkeys(content["annotations"], content["images"])
        return content

    @model_validator(mode="after")
    def _complete(self) -> "Coco":
        if [*self.annotations] != [TRAIN] or self.annotations[TRAIN].endswith(".json"):
            check_splits(self.annotations, self.shares, "annotations")  # data.yaml may name more of them
        _check_apart({split: (file,) for split, file in self.annotations.items()}, "file")
        if set(self.images) != set(self.annotations):
            raise ValueError(
                f"images names {', '.join(self.images)}, annotations {', '.join(self.annotations)}; each annotation "
                "file needs its folder of images, or images is one folder for all"
            )
        return self


class Folders(Section):
    """One folder per split, relative to the entry's source; `shares` split other names off `train`, by file."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, str]
    deep: ClassVar = False

    shares: Shares = {}

    @property
    def splits(self) -> dict[str, str]:
        """Split -> folder."""
        return self.__pydantic_extra__

    @model_validator(mode="after")
    def _complete(self) -> "Folders":
        for name in self.splits:
            _split_name(name)
        check_splits(self.splits, self.shares, "this section")
        _check_apart({split: (folder,) for split, folder in self.splits.items()}, "folder", self.deep)
        return self


class PictureFolders(Folders):
    """Folders of pictures, including subfolders."""

    deep: ClassVar = True


class Identities(Section):
    """Shared by datasets of persons with identities.

    `shares` split other names off `train`, by identity. `poses` is a COCO file with keypoints whose `file_name`s match,
    or predictions, such as a folder of `<name>.people.json` from `figura predict`, with a minimum confidence
    `min_confidence` of joints. `keypoints` adds what the poses lack about the joints. `pairs` are CSV
    files by split with the columns `from` and `to`, file names of an appearance and of a target.
    """

    shares: Shares = {}
    poses: str | None = None
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.0
    keypoints: KeypointSettings | None = None
    pairs: dict[Split, str] = {}

    def _check(self, named: Mapping[str, tuple[str, ...]], where: str) -> None:
        check_splits(named, self.shares, where)
        for name in ("min_confidence", "keypoints"):
            if self.poses is None and getattr(self, name):
                raise ValueError(f"{name} is about the joints of poses; poses is missing")
        every = {*named, *self.shares}
        if unknown := [name for name in self.pairs if name not in every]:
            raise ValueError(f"pairs.{unknown[0]}: no such split; there are {', '.join(sorted(every))}")


class Market1501(Identities):
    """The folders of Market-1501 by split, as published."""

    folders: dict[Split, tuple[str, ...]] = {"train": ("bounding_box_train",), "test": ("bounding_box_test", "query")}

    @model_validator(mode="after")
    def _complete(self) -> "Market1501":
        self._check(self.folders, "folders")
        _check_apart(self.folders, "folder", deep=True)
        return self


Status = Literal["train", "query", "gallery"]  # the evaluation status of an image of DeepFashion


class DeepFashion(Identities):
    """DeepFashion In-shop Clothes Retrieval as published: a folder of images, and the list of its partition.

    `partition` has the evaluation status of each image; `statuses` are those of each split. A person is an `item` in
    all colours, or one `variant` of it: the first number in the file name.
    """

    images: str = "Img/img"
    partition: str = "Eval/list_eval_partition.txt"
    statuses: dict[Split, tuple[Status, ...]] = {"train": ("train",), "test": ("query", "gallery")}
    identity: Literal["item", "variant"] = "variant"

    @model_validator(mode="after")
    def _complete(self) -> "DeepFashion":
        self._check(self.statuses, "statuses")
        _check_apart(self.statuses, "status")
        return self
