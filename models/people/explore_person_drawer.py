"""People drawn in poses that somebody drags, and what a pose network reads in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

import figura
from figura.base.errors import UserError
from figura.base.modes import evaluating
from figura.base.pictures import Pixels, shrunk
from figura.base.seeding import generator, random_kept, seed_here
from figura.commands.explore.trying import cached, computing, pose_recipe, predictor, result_of, validation_dataset
from figura.engine.data import collated
from figura.engine.inference import named_injectors, run_injectors
from figura.engine.weights import to_device
from figura.interfaces import Injector, Networks
from figura.prediction.model import Trained
from figura.prediction.result import Box, Person
from figura.prediction.runner import needed
from figura.recipe.schema import Recipe
from figura.report.sheets import as_pixels

from ..images.pairs import normalised
from .crops import square
from .pairs import PersonPairs, channels_first
from .persons import person_mask
from .stickman import pose_picture, present

Joints = NDArray[np.float64]
Appearance = NDArray[np.float32]

LEAST_SCORE = 0.15  # of a person that counts as read
PADDING = 0.06
"""Of a predicted box, which encloses joints and not whole heads and feet, as `predict.data` of VUNet has it."""
LARGEST = 1024  # pixels of the longer side of a photo from which an appearance is cropped


class PersonDrawer:
    """Draws a person in a pose with an appearance, and takes poses and appearances from the validation examples.

    Raises:
        UserError: there are no data, or no mode of `evaluate` draws a picture from `pose` and `appearance` alone.
    """

    def __init__(self, trained: Trained) -> None:
        self._trained, self._recipe = trained, trained.recipe
        self._injectors, self._output = _drawing_mode(self._recipe)
        self._examples = validation_dataset(self._recipe, PersonPairs)
        self.skeleton, self.size = self._examples.skeleton, self._examples.image_size

    def __len__(self) -> int:
        return len(self._examples)

    def example(self, index: int) -> tuple[Joints, Appearance]:
        """Return joints (K, 3), in pixels of the crop, and the picture (3, P, P) in [-1, 1], of a validation example.

        Raises:
            UserError: it cannot be read.
        """
        example = self._examples.example(index, generator(self._recipe.seed, "explore", index))
        joints = np.array(example["joints"], dtype=np.float64)
        joints[~present(joints)] = 0.0
        return joints, np.asarray(example["target"], dtype=np.float32)

    def picture(self, joints: Joints, appearance: Appearance) -> Pixels:
        """Return the person, uint8 (P, P, 3), in the pose `joints` (K, 3) with an appearance (3, P, P) in [-1, 1].

        The same input always gives the same picture.
        """
        example = {"pose": normalised(self.pose(joints)), "appearance": appearance, "name": "person"}
        networks, device = dict(self._trained.networks), self._trained.device
        with computing(), evaluating(*networks.values()), random_kept():
            seed_here(self._recipe.seed, "explore")
            batch = to_device(collated([example]), device.device)
            last = self._recipe.train.steps or 2**62  # schedules have arrived where they end
            state = run_injectors(self._injectors, batch, Networks(networks, networks), last, device)[0]
        return as_pixels(state[self._output].float().cpu().numpy())[0]

    def pose(self, joints: Joints) -> Pixels:
        """Return the picture of a pose as the network gets it, uint8 (P, P, 3)."""
        return pose_picture(joints, self.skeleton, self.size)

    def cropped(self, pixels: Pixels, box: Box | None) -> Appearance:
        """Return the square around a box, or around all of a picture (H, W, 3), as an appearance (3, P, P).

        As in `people.PersonPhotos`, what is outside the box becomes the background that the network knows.
        """
        (height, width), data = pixels.shape[:2], self._examples
        if box is None:
            place, margin, background = np.array([0.0, 0.0, width, height]), 0.0, None
        else:
            more, margin, background = PADDING * max(box.width, box.height), data.margin, data.background
            place = np.array([box.x - more, box.y - more, box.width + 2 * more, box.height + 2 * more])
        person = person_mask(None, place, height, width)
        return channels_first(square(place, margin, self.size).view(pixels, person, background)[0])


def _drawing_mode(recipe: Recipe) -> tuple[dict[str, Injector], str]:
    """Return the injectors and the output of the first mode that makes its first picture from pose and appearance."""
    for name, mode in recipe.evaluate.modes.items():
        output = next((saved for saved, form in mode.save.items() if form == "image"), None)
        if output is not None:
            injectors, reads = needed(named_injectors(mode.injectors, f"evaluate.modes.{name}"), [output])
            if reads - {"name"} == {"pose", "appearance"}:
                return injectors, output
    raise UserError(f"{recipe.path}: evaluate.modes: none draws a picture from pose and appearance alone")


@dataclass(frozen=True, eq=False)
class PeopleTrial:
    """All that the page needs to draw people with one recipe; without a `reader` of poses, `unread` says why."""

    drawer: PersonDrawer
    reader: figura.Predictor | None
    unread: str

    def drawn(self, joints: Joints, appearance: Appearance) -> tuple[Pixels, Pixels | None, str]:
        """Draw a person with an appearance (3, P, P) in the pose `joints` (K, 3), and read it.

        Returns:
            The person, uint8 (P, P, 3); the picture, enlarged, with the people read, None if no network reads; and the
            score of the person read, or why there is none.
        """
        picture = self.drawer.picture(joints, appearance)
        if self.reader is None:
            return picture, None, self.unread
        result = result_of(self.reader, picture)
        best = best_person(result.people)
        return picture, result.draw(), "no person found" if best is None else f"score {best.score:.2f}"

    def appearance(self, pixels: Pixels) -> tuple[Appearance, str]:
        """Return the appearance (3, P, P) of a photo (H, W, 3), and what it shows: the person read, or all of it."""
        pixels = shrunk(pixels, LARGEST)
        if self.reader is None:
            return self.drawer.cropped(pixels, None), "all of the picture: no pose network finds the person"
        person = best_person(result_of(self.reader, pixels).people)
        if person is None:
            return self.drawer.cropped(pixels, None), "the whole picture: no person found"
        return self.drawer.cropped(pixels, person.box), f"the person read, of score {person.score:.2f}"


def best_person(people: Sequence[Person]) -> Person | None:
    """Return the person of the highest score, if it is at least `LEAST_SCORE`."""
    best = max(people, key=lambda one: one.score, default=None)
    return best if best is not None and best.score >= LEAST_SCORE else None


def people_trial(recipes: Mapping[str, Recipe], name: str) -> PeopleTrial:
    """Return the trial of a recipe that draws people; its parts are loaded once.

    Raises:
        UserError: it is not trained, lacks data, or does not say how to predict.
    """
    drawer = cached("drawer", name, recipes[name], partial(PersonDrawer, predictor(recipes, name).trained))
    try:
        return PeopleTrial(drawer, predictor(recipes, pose_recipe(recipes)), "")
    except UserError as error:
        return PeopleTrial(drawer, None, f"no pose network reads the picture: {error}")


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


def ring_svg(joints: Joints, joint: int, size: int) -> str:
    """Return the content of an SVG of `size` units, one a pixel: a ring around a joint, if that is there."""
    x, y, flag = joints[joint] + (0.5, 0.5, 0.0)  # 0 is the centre of the first pixel
    look = f'fill="none" stroke="rgb(255, 255, 0)" stroke-width="{size / 96:.2f}"'
    return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{size / 32:.2f}" {look}/>' if flag > 0 else ""
