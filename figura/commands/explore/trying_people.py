"""People drawn in poses that somebody drags, and read by a pose network as the stage `pose-consistency` reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.pictures import Pixels
from figura.base.seeding import generator
from figura.commands.explore.project import Project
from figura.commands.explore.trying import (
    CACHE,
    Trained,
    as_trained,
    drawing_from,
    files_of,
    injectors_for,
    run_once,
    trained,
    untrained,
    validation_dataset,
)
from figura.data.formats.skeletons import COCO, Skeleton, skeleton_from
from figura.evaluation.judging import judging_content
from figura.interfaces import Injector
from figura.prediction.inputs import Photo
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from figura.report.sheets import as_pixels
from models.images.pairs import normalised
from models.people.crops import square
from models.people.pairs import PersonPairs, channels_first
from models.people.stickman import pose_picture, present, skeleton_colours
from models.pose.consistency_scores import as_asked, similarity
from models.pose.decode.overlays import OverlayStyle, overlay
from models.pose.photos import Photos

Joints = NDArray[np.float64]
Appearance = NDArray[np.float32]

LEAST_SCORE = 0.15
"""Of a person that counts as read; `force_complete` makes people of less."""
PADDING = 0.06
"""Of a predicted box, which encloses joints and not whole heads and feet, as `predict.data` of VUNet has it."""
FINER = 4
"""A picture is shrunk until what is cropped has this many times the pixels that the network gets, along its side."""


class PersonDrawer:
    """Draws a person in a pose with an appearance, and takes poses and appearances from the validation examples."""

    def __init__(self, model: Trained) -> None:
        self.trial = model.trial
        self._seed = model.recipe.seed
        self._drawing = drawing_from(model, ("pose", "appearance"))
        self._examples = validation_dataset(model.recipe, PersonPairs)
        self.skeleton, self.size = self._examples.skeleton, self._examples.image_size

    def __len__(self) -> int:
        return len(self._examples)

    def example(self, index: int) -> tuple[Joints, Appearance]:
        """Return joints (K, 3), in pixels of the crop, and the picture (3, P, P) in [-1, 1], of a validation example.

        Raises:
            UserError: there is no such example, or it cannot be read.
        """
        if not 0 <= index < len(self):
            raise UserError(f"example {index}: allowed are 0 to {len(self) - 1}")
        example = self._examples.example(index, generator(self._seed, "explore", index))
        joints = np.array(example["joints"], dtype=np.float64)
        joints[~present(joints)] = 0.0
        return joints, np.asarray(example["target"], dtype=np.float32)

    def picture(self, joints: Joints, appearance: Appearance) -> Pixels:
        """Return the person, uint8 (P, P, 3), in the pose `joints` (K, 3) with an appearance (3, P, P) in [-1, 1]."""
        pose = normalised(self.pose(joints))
        return self._drawing.picture({"pose": pose, "appearance": appearance, "name": "person"})

    def pose(self, joints: Joints) -> Pixels:
        """Return the picture of a pose as the network gets it, uint8 (P, P, 3)."""
        return pose_picture(joints, self.skeleton, self.size)

    def cropped(self, pixels: Pixels, box: Sequence[float] | None) -> Appearance:
        """Return the square around a box (x, y, width, height), or around all of a picture, as an appearance.

        As in `people.PersonPhotos`, what is outside the box becomes the background that the network knows.
        """
        height, width = pixels.shape[:2]
        margin, background = (0.0, None) if box is None else (self._examples.margin, self._examples.background)
        place = np.array((0, 0, width, height) if box is None else _padded(box), dtype=np.float64)
        scale = FINER * self.size / place[2:].max()
        if scale < 1:  # the square would be larger than the picture, in floats
            width, height = max(1, round(width * scale)), max(1, round(height * scale))
            pixels = np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
            place *= scale
        crop = square(place, margin, self.size)
        inside = crop.inside(height, width)
        shown = np.zeros((height, width), dtype=np.uint8)
        left, top, right, bottom = np.maximum(np.rint([*place[:2], *(place[:2] + place[2:])]), 0).astype(int)
        shown[top:bottom, left:right] = 1
        picture = pixels[inside] * np.float32(2 / 255) - 1
        fill, mask = (0.0, None) if background is None else (background, np.ascontiguousarray(shown[inside]))
        return np.clip(channels_first(crop.resized(picture, height, width, fill, mask)), -1, 1)


def _padded(box: Sequence[float]) -> tuple[float, float, float, float]:
    x, y, width, height = box
    more = PADDING * max(width, height)
    return x - more, y - more, width + 2 * more, height + 2 * more


@dataclass(frozen=True, eq=False)
class Reading:
    """What a pose network reads in a picture.

    Attributes:
        overlay: the picture, enlarged, with the person read, and in grey the pose that was asked for.
        person: the best person, a COCO result in pixels of the picture; None if nobody is read.
        text: what was read, and how well it agrees with what was asked for.
    """

    overlay: Pixels
    person: Mapping[str, Any] | None
    text: str


class PoseReader:
    """Reads the person in a picture with the pose network and the settings of an entry of `consistency`."""

    def __init__(self, model: Trained) -> None:
        self._model = model
        self.trial = model.trial
        self._photos = _preparation(model.recipe)
        self._injectors, self._output, reads = _people_mode(model.recipe)
        self._reads = reads | {"image_id", "index"}
        skeleton = model.recipe.facts.get("skeleton")
        self.skeleton = COCO if skeleton is None else skeleton_from(skeleton)

    def person(self, pixels: Pixels) -> Mapping[str, Any] | None:
        """Return the person of the highest score in a picture uint8 (H, W, 3), or None."""
        (example,) = self._photos.examples(Photo(Path("picture"), "picture", 1, np.ascontiguousarray(pixels)))
        state = run_once(self._model, self._injectors, {name: example[name] for name in self._reads & example.keys()})
        people = state[self._output][0]
        best = max(people, key=lambda one: one["score"], default=None)
        return best if best is not None and best["score"] >= LEAST_SCORE else None

    def reading(self, pixels: Pixels, asked: Joints) -> Reading:
        """Return what is read in a picture uint8 (H, W, 3) beside the pose (K, 3) that was asked for."""
        person, truth = self.person(pixels), _annotation(asked)
        style = OverlayStyle(scores=False)
        shown = overlay(pixels, [] if person is None else [person], [], self.skeleton, style, [truth] if truth else [])
        return Reading(shown, person, self._said(person, asked, truth))

    def _said(self, person: Mapping[str, Any] | None, asked: Joints, truth: Mapping[str, Any] | None) -> str:
        if person is None:
            return "nobody is read"
        read = np.reshape(person["keypoints"], (-1, 3))
        both = (read[:, 2] > 0) & (asked[:, 2] > 0)
        text = f"score {person['score']:.2f}"
        if truth is None or not both.any():
            return text
        away = np.linalg.norm(read[both, :2] - asked[both, :2], axis=1).mean()
        agreement = similarity(dict(person), dict(truth), np.asarray(self.skeleton.sigmas, dtype=np.float64))
        return f"{text}; joints {away:.1f} pixels away on average; similarity (OKS) {agreement:.2f}"


def _preparation(recipe: Recipe) -> Photos:
    """Return what prepares pictures as the first dataset of `evaluate.data`, a `pose.DumpedPeople`, does."""
    arguments = next(iter(recipe.evaluate.data.values())).arguments
    settings = {"multiple": 16} | {k: arguments[k] for k in ("side", "multiple", "mean", "std") if k in arguments}
    return Photos(**settings)


def _people_mode(recipe: Recipe) -> tuple[dict[str, Injector], str, set[str]]:
    """Return the injectors of the first mode that saves records, the name of these, and the names that it reads."""
    for name, mode in recipe.evaluate.modes.items():
        for saved, form in mode.save.items():
            if form == "records":
                injectors, reads = injectors_for(mode, name, saved)
                return injectors, saved, reads
    raise UserError(f"{recipe.path}: evaluate.modes: none saves records of people")


def _annotation(joints: Joints) -> dict[str, Any] | None:
    """Return a pose as an annotation in COCO's format whose box encloses the joints; None without joints."""
    there = joints[joints[:, 2] > 0, :2]
    if not len(there):
        return None
    low, high = there.min(axis=0), there.max(axis=0)
    box = [*low.tolist(), *np.maximum(high - low, 1.0).tolist()]
    return as_asked({"image_id": 1, "keypoints": joints.ravel().tolist(), "bbox": box}, 0.0) | {"bbox": box}


def person_drawer(project: Project, recipe: str) -> PersonDrawer:
    """Return the drawer of a recipe, made once. Raises UserError if it is not trained, or has no data."""
    model = trained(project, recipe)
    return CACHE.get(("drawer", recipe), files_of(project, recipe, model), lambda: PersonDrawer(model))


def unreadable(project: Project, recipe: str) -> str | None:
    """Return why no pose network reads what a recipe draws, and what to do; None if one does."""
    if not project.consistency:
        return "no pose network reads the picture: dvc.yaml has no entry in `consistency`"
    model = Path(project.consistency[_entry(project, recipe)]["model"])
    if (model / "recipe.yaml").is_file():
        return None
    own = next((name for name in project.recipes if project.run(name) / "model" == model), None)
    return f"{model}: no such model" if own is None else untrained(own)


def _entry(project: Project, recipe: str) -> str:
    """Return the entry of `consistency` that judges what a recipe draws, or the first one."""
    dump = project.run(recipe) / "dump"
    own = (name for name, entry in project.consistency.items() if Path(entry["drawn"]) == dump)
    return next(own, next(iter(project.consistency)))


def pose_reader(project: Project, recipe: str) -> PoseReader:
    """Return the reader of what a recipe draws, made once. Raises UserError if its files have faults."""
    entry = project.consistency[_entry(project, recipe)]
    path, model = Path(entry["params"]), Path(entry["model"])

    def make() -> PoseReader:
        content, facts = judging_content(path, model, Path(entry["drawn"]))
        return PoseReader(as_trained(model, check_recipe(content, path, ["evaluate"], facts)))

    return CACHE.get(("reader", str(path), str(model)), [path, *sorted(model.iterdir())], make)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A person that was drawn, uint8 (P, P, 3), and what the pose network reads in it, if one reads."""

    picture: Pixels
    reading: Reading | None


@dataclass(frozen=True, eq=False)
class PeopleTrial:
    """All that the page needs to draw people with one recipe; without a reader, `unread` says why."""

    drawer: PersonDrawer
    reader: PoseReader | None
    unread: str

    def drawn(self, joints: Joints, appearance: Appearance) -> Drawn:
        """Draw the person and read it."""
        picture = self.drawer.picture(joints, appearance)
        return Drawn(picture, None if self.reader is None else self.reader.reading(picture, joints))

    def appearance(self, pixels: Pixels) -> tuple[Appearance, str]:
        """Return the appearance (3, P, P) of a photo (H, W, 3), and what it shows: the person read, or all of it."""
        person = None if self.reader is None else self.reader.person(pixels)
        if person is None:
            why = "nobody is read in it" if self.reader is not None else "no pose network finds the person"
            return self.drawer.cropped(pixels, None), f"all of the picture: {why}"
        return self.drawer.cropped(pixels, person["bbox"]), f"the person read, of score {person['score']:.2f}"


def people_trial(project: Project, recipe: str) -> PeopleTrial:
    """Return the trial of a recipe that draws people.

    Raises:
        UserError: it is not trained, lacks data, or the pose network knows other joints.
    """
    drawer = person_drawer(project, recipe)
    if unread := unreadable(project, recipe):
        return PeopleTrial(drawer, None, unread)
    reader = pose_reader(project, recipe)
    if reader.skeleton.keypoints != drawer.skeleton.keypoints:
        counts = len(reader.skeleton.keypoints), len(drawer.skeleton.keypoints)
        return PeopleTrial(drawer, None, f"the pose network reads {counts[0]} joints other than the {counts[1]} here")
    return PeopleTrial(drawer, reader, "")


def appearance_picture(appearance: Appearance) -> Pixels:
    """Return an appearance as pixels (P, P, 3)."""
    return as_pixels(appearance[None])[0]


def nearest_joint(joints: Joints, x: float, y: float, radius: float) -> int | None:
    """Return the joint that is there and nearest to a place, if it is within `radius` pixels."""
    away = np.where(joints[:, 2] > 0, np.hypot(joints[:, 0] - x, joints[:, 1] - y), np.inf)
    nearest = int(away.argmin())
    return nearest if away[nearest] <= radius else None


def with_joint(joints: Joints, joint: int, x: float, y: float, size: int) -> Joints:
    """Return joints of which one is at a place, the nearest one on a canvas of `size` pixels; then it is there."""
    moved = joints.copy()
    moved[joint] = np.clip(x, 0, size - 1), np.clip(y, 0, size - 1), max(joints[joint, 2], 1.0)
    return moved


def without_joint(joints: Joints, joint: int) -> Joints:
    """Return joints of which one is not there."""
    left = joints.copy()
    left[joint] = 0.0
    return left


def stickman_svg(joints: Joints, skeleton: Skeleton, chosen: int | None, size: int) -> str:
    """Return the content of an SVG of `size` units, one a pixel: lines of the connections, and circles of the joints.

    The chosen joint has a ring. All of it is numbers and colours.
    """
    there, unit = joints[:, 2] > 0, size / 64
    places = joints[:, :2] + 0.5  # 0 is the centre of the first pixel
    lines, dots = skeleton_colours(skeleton)
    parts = [
        f'<line x1="{places[a, 0]:.2f}" y1="{places[a, 1]:.2f}" x2="{places[b, 0]:.2f}" y2="{places[b, 1]:.2f}" '
        f'stroke="rgb{colour}" stroke-width="{0.5 * unit:.2f}"/>'
        for (a, b), colour in zip(skeleton.connections, lines, strict=True)
        if there[a] and there[b]
    ]
    for joint, colour in enumerate(dots):
        if there[joint]:
            x, y = places[joint]
            ring, width = ("rgb(255, 255, 0)", 0.7) if joint == chosen else ("rgb(255, 255, 255)", 0.3)
            parts.append(
                f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{1.2 * unit:.2f}" fill="rgb{colour}" stroke="{ring}" '
                f'stroke-width="{width * unit:.2f}"/>'
            )
    return "".join(parts)
