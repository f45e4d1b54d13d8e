"""Dataset of full images with all people and objects in them, and the targets of the composite fields."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from figura.base.errors import UserError, nearest
from figura.formats.coco import PERSON
from figura.formats.prepared import FACTS, Manifest, read_facts
from figura.formats.skeletons import Skeleton
from figura.interfaces import Example, ExampleDataset
from figura.recipe.types import checked_call

from ..images.augmentation import augment
from ..images.augmentation_settings import Chance, InputTransforms, Limits, PairAugmentation, Section, Transforms
from .affine import MEAN_COLOUR, Geometry, Placement, fit_to_multiple, fitted, random_padding_colour, random_placement
from .annotations import Annotations
from .argument_types import Count, Deviations, Side, categories_from, skeleton_of
from .encoders import Caf, Cif, CifDet
from .scene_table import SceneTable, read_categories

IMPORTED_FOR = {".moved_scenes": ("further",)}
KINDS: dict[str, type[Cif] | type[Caf] | type[CifDet]] = {"cif": Cif, "caf": Caf, "cifdet": CifDet}

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class GaussianBlur(Chance):
    """A standard deviation in pixels of the square, drawn uniformly between its limits ((0, 5) in OpenPifPaf)."""

    sigma: Limits[Annotated[float, Field(ge=0.0, le=100.0)]]


class SceneAugmentation(Section):
    """The augmentation of a scene, in this order: geometry, blur, colours and compression, and then `further`.

    `further` are transforms of the package albumentations that move joints and boxes with the picture.
    """

    geometry: Geometry = Geometry()
    blur: GaussianBlur | None = None
    pixels: InputTransforms = InputTransforms()
    further: Transforms = Field(default_factory=dict)


class View(NamedTuple):
    """An augmented scene before encoding.

    `picture` is uint8 (height, width, 3) RGB. `people` are the annotations for cif and caf, `objects` (of all
    categories) those for cifdet, both in pixels of the picture. `placement` maps the image into the picture.
    """

    picture: NDArray[np.uint8]
    people: Annotations
    objects: Annotations
    placement: Placement


class Scenes(ExampleDataset):
    """The images of a prepared people dataset (`root/<split>.json`, `root/images`), sorted by id, with their targets.

    `heads` names the targets: `{cif: {stride: 8}, caf: {stride: 8}, caf25: {kind: caf, connections: dense, stride: 8},
    cifdet: {stride: 8}}`. `kind` is the name unless given; the other entries are arguments of the encoder
    (`models.pose.encoders`), except that `categories` of a cifdet head is by default the dataset's number of
    categories. `skeleton` (a map for `figura.formats.skeletons.skeleton_from`) and `categories` (a list of
    `{id, name}`; field f detects the category at index f) are by default those of the prepared dataset; without its
    facts, COCO's skeleton and the file's categories by id. Without `augmentation`, the longer side is resized to `side`
    pixels and the picture centred on a square; with `multiple`, on the smallest canvas whose sides are a multiple of it
    plus one (16 for a backbone of stride 16); a `side` of 0 then keeps the size of each picture.

    The dataset uses images with at least one annotation (not a crowd region) that a head can learn from, and with
    `min_keypoint_annotations` persons with a labelled keypoint (default 1; 0 without a keypoint head). `keep_empty`
    also uses images without annotations, if that number is 0. `image_ids` restricts the images.

    An example has `image` float32 (3, side, side) RGB, (v / 255 - mean) / std; `<head>_target` for each head, from its
    encoder; `valid_area` float32 (4,) (x, y, width, height), the pixels that show the image; the integers `index`,
    `image_id`, `images` (their number in the dataset), and `width` and `height` of the file; `to_original` float32 (2,
    3), which maps pixels (x, y, 1) of the picture to those of the file. `joints` adds `joints` float32 (K, 3), x, y and
    visibility of the only person in pixels of the picture, and the `person_height` of its box; both are 0 for images
    with no person or several. `truth` adds `truth`, the annotations in COCO's format, in pixels of the file.

    Raises ValueError for arguments out of range. Raises UserError, with file and annotation id, for annotations that
    cannot be encoded and missing files, and if no image is left.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton", "categories")
    drawing: ClassVar[str | None] = "pose.SceneDrawing"
    names: ClassVar[tuple[str, ...]] = (
        "image",
        "index",
        "image_id",
        "images",
        "valid_area",
        "width",
        "height",
        "to_original",
    )

    def __init__(
        self,
        *,
        root: str,
        split: str,
        side: Side | Literal[0],
        heads: Annotated[dict[str, dict[str, Any]], Field(min_length=1)],
        skeleton: dict[str, Any] | None = None,
        categories: list[dict[str, Any]] | None = None,
        augmentation: SceneAugmentation | None = None,
        min_keypoint_annotations: Annotated[int, Field(ge=0)] | None = None,
        keep_empty: bool = False,
        image_ids: tuple[int, ...] | None = None,
        joints: bool = False,
        truth: bool = False,
        multiple: Count | None = None,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: Deviations = IMAGENET_STD,
    ) -> None:
        if multiple is not None and augmentation is not None:
            raise ValueError(f"multiple {multiple}: pictures of a dataset with augmentation are squares of `side`")
        if not side and multiple is None:
            raise ValueError("side 0, which keeps the size of pictures, needs `multiple`; squares need a side")
        self.side, self.multiple, self.augmentation = side, multiple, augmentation
        self.joints, self.truth = joints, truth
        if (facts := Path(root, FACTS)).is_file():
            Manifest(Path(root)).check(facts)
        known = read_facts(Path(root))
        skeleton = skeleton or known.get("skeleton")
        self.skeleton = skeleton_of(skeleton)
        fields: dict[int, int] | None = None  # of category ids, if there is a detection head
        if any(one.get("kind", name) == "cifdet" for name, one in heads.items()):
            path = Path(root) / f"{split}.json"
            chosen = categories_from(categories or known.get("categories") or read_categories(path))
            fields = {number: field for field, number in enumerate(chosen)}
        self.encoders = {name: _encoder(name, one, self.skeleton, len(fields or ())) for name, one in heads.items()}
        if fields is not None:
            limit = min(one.fields for one in self.encoders.values() if isinstance(one, CifDet))
            fields = {number: field for number, field in fields.items() if field < limit}
        # an instance can provide more names than its class declares
        self.names = self.provides({"heads": heads, "joints": joints, "truth": truth})  # type: ignore[misc]
        self.mean, self.std = mean, std
        self._gain = (1.0 / (255.0 * np.array(std))).astype(np.float32)[:, None, None]
        self._shift = (-np.array(mean) / np.array(std)).astype(np.float32)[:, None, None]
        needs_people = any(not isinstance(encoder, CifDet) for encoder in self.encoders.values())
        self.table = SceneTable(Path(root), split, self.skeleton if needs_people else None, _people(known), fields)
        if fields is not None:
            _check_names(self.table, chosen)
        least = int(needs_people) if min_keypoint_annotations is None else min_keypoint_annotations
        self.rows = self.table.usable(least, keep_empty, image_ids)

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return `names`, `<head>_target` for each of `heads`, and the names that `joints` and `truth` add."""
        heads = arguments.get("heads")
        targets = [f"{head}_target" for head in (heads if isinstance(heads, Mapping) else ())]
        joints = ("joints", "person_height") if arguments.get("joints") else ()
        return (*cls.names, *targets, *joints, *(("truth",) if arguments.get("truth") else ()))

    @classmethod
    def facts(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts that adapt a recipe to the data, only those relevant to this dataset's heads.

        These are `side`, the `stride` shared by all heads, with a cif or caf head `skeleton` and `category` (people's
        id), and with a cifdet head `categories`.
        """
        root = Path(arguments["root"])
        known, file = read_facts(root), root / f"{arguments['split']}.json"
        categories = arguments.get("categories") or known.get("categories")
        if categories is None and file.is_file():
            categories = [{"id": one["id"], "name": str(one.get("name"))} for one in read_categories(file)]
        heads = {name: one for name, one in arguments["heads"].items() if isinstance(one, Mapping)}
        kinds = [one.get("kind", name) for name, one in heads.items()]
        strides = [one.get("stride") for one in heads.values()]
        facts: dict[str, Any] = {
            "side": arguments["side"],
            "stride": strides[0] if strides and all(one == strides[0] for one in strides) else None,
        }
        if "cif" in kinds or "caf" in kinds:
            facts["skeleton"] = arguments.get("skeleton") or known.get("skeleton")
            named = (one.get("id") for one in categories or () if one.get("name") == _people(known))
            facts["category"] = next(named, None)
        if "cifdet" in kinds:
            facts["categories"] = categories
        return {name: fact for name, fact in facts.items() if fact is not None}

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, index: int) -> dict[str, int | float | str]:
        """Return id, file and size in pixels of the image, and the counts of `SceneTable.counts`."""
        row = int(self.rows[index])
        width, height = self.table.size(row)
        return {
            "image_id": int(self.table.image_ids[row]),
            "file": self.table.file(row),
            "width": width,
            "height": height,
            **self.table.counts(row),
        }

    def group(self, index: int) -> tuple[int, int]:
        """Return height and width of the picture."""
        if self.multiple is None:
            return self.side, self.side
        width, height = self.table.size(int(self.rows[index]))
        span = fit_to_multiple(width, height, self.side or max(width, height), self.multiple).span
        return int(span[1]) + 1, int(span[0]) + 1

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Return example `index`; `random` is only used by the augmentation."""
        view = self.view(index, random)
        image = np.ascontiguousarray(view.picture.transpose(2, 0, 1)).astype(np.float32)
        image *= self._gain
        image += self._shift
        example: Example = {
            "image": image,
            "index": index,
            "image_id": int(self.table.image_ids[self.rows[index]]),
            "images": len(self),
            "valid_area": view.placement.valid_area,
            "to_original": view.placement.to_original,
        }
        example["width"], example["height"] = self.table.size(int(self.rows[index]))
        size = view.picture.shape[:2]
        for name, encoder in self.encoders.items():
            shown = view.objects if isinstance(encoder, CifDet) else view.people
            example[f"{name}_target"] = encoder.encode(shown, size, view.placement.valid_area)
        if self.joints:
            alone = len(view.people) == 1 and not view.people.crowd[0]
            example["joints"] = view.people.keypoints[0] if alone else np.zeros((self.table.joints, 3), np.float32)
            example["person_height"] = float(view.people.boxes[0, 3]) if alone else 0.0
        if self.truth:
            example["truth"] = self.table.truth(int(self.rows[index]))
        return example

    def view(self, index: int, random: np.random.Generator) -> View:
        """Return scene `index` before encoding, equal to that in `example` for the same state of `random`."""
        row = int(self.rows[index])
        image, scene = self.table.image(row), self.table.annotations(row)
        height, width = image.shape[:2]
        if self.multiple is not None:
            longer = self.side or max(width, height)
            placement, colour = fit_to_multiple(width, height, longer, self.multiple), MEAN_COLOUR
        elif self.augmentation is None:
            placement, colour = fitted(width, height, self.side), MEAN_COLOUR
        else:
            geometry = self.augmentation.geometry
            interest = scene.boxes[~scene.crowd]
            placement = random_placement(width, height, self.side, interest, geometry, random)
            colour = random_padding_colour(geometry, random)
        picture = placement.picture(image, (colour[2], colour[1], colour[0]))
        picture = np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), dtype=np.uint8)
        if self.augmentation is not None:
            picture = _varied(picture, self.augmentation, random)
        placed = _placed(scene, placement, self.skeleton, self.augmentation.geometry if self.augmentation else None)
        if self.augmentation is not None and self.augmentation.further:
            from .moved_scenes import moved_scene

            entries = self.augmentation.further
            picture, placed, placement = moved_scene(picture, placed, placement, entries, self.skeleton, random)
        people = placed.where(placed.categories == self.table.person_field)
        return View(picture, people, placed, placement)


def _people(known: Mapping[str, Any]) -> str:
    """Return the name of the category of people; `known` are the facts of a dataset, or {} if prepared without."""
    return known.get("people") or PERSON


def _check_names(table: SceneTable, chosen: Mapping[int, str]) -> None:
    for number, name in chosen.items():
        if table.names.get(number, name) != name:
            raise UserError(
                f"{table.path}: categories: {number} is {table.names[number]!r}, but {name!r} in the `categories` that "
                "the fields stand for, by default those of the training data; give both the same ids"
            )


def _encoder(name: str, settings: Mapping[str, Any], skeleton: Skeleton, categories: int) -> Cif | Caf | CifDet:
    kind = settings.get("kind", name)
    if str(kind) not in KINDS:
        near = nearest(str(kind), KINDS)
        raise ValueError(f"heads.{name}.kind {kind!r}{near}: one of {', '.join(KINDS)} is needed")
    arguments = {key: value for key, value in settings.items() if key != "kind"}
    supplied: dict[str, Any] = {"categories": categories} if kind == "cifdet" else {"skeleton": skeleton}
    supplied = {key: value for key, value in supplied.items() if key not in arguments}
    return cast(Cif | Caf | CifDet, checked_call(KINDS[kind], arguments, f"heads.{name}", **supplied))


def _varied(picture: NDArray[np.uint8], settings: SceneAugmentation, random: np.random.Generator) -> NDArray[np.uint8]:
    if settings.blur is not None and random.random() < settings.blur.chance:
        sigma = float(random.uniform(*settings.blur.sigma))
        if sigma > 0:
            picture = np.asarray(cv2.GaussianBlur(picture, (0, 0), sigma), dtype=np.uint8)
    if settings.pixels == InputTransforms():
        return picture
    return augment(picture, picture, PairAugmentation(input=settings.pixels), picture.shape[:2], random, ())[0]


def _placed(scene: Annotations, placement: Placement, skeleton: Skeleton, geometry: Geometry | None) -> Annotations:
    """Map annotations to pixels of the picture; with augmentation, drop those outside.

    Source: openpifpaf/transforms/crop.py and openpifpaf/plugins/coco/cocodet.py.
    """
    boxes = placement.boxes(scene.boxes)
    flip = skeleton.flip if scene.keypoints.shape[1] else ()
    scene = replace(scene, keypoints=placement.keypoints(scene.keypoints, flip), boxes=boxes)
    if geometry is None:
        return scene
    shown = placement.shown(boxes)
    left = shown[:, 2:].prod(axis=1) / boxes[:, 2:].prod(axis=1)
    crowd = scene.crowd.copy()
    if geometry.ignore_small is not None:
        crowd |= shown[:, 2:].min(axis=1, initial=np.inf) <= geometry.ignore_small
    if geometry.ignore_cut is not None:
        crowd |= left <= geometry.ignore_cut
    return replace(scene, boxes=shown, crowd=crowd).where(left > 0)
