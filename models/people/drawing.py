"""Drawings of person pairs: the joints over the target, and the target's position in its scene."""

from typing import Any, ClassVar, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from figura.interfaces import Example
from figura.show.drawing import ExampleDrawing, Pixels, picture_of

from .crops import square
from .pairs import PersonPairs

SIDE = 256  # minimum pixels of a drawing of joints
LINE, VISIBLE, HIDDEN, BOX, CROP = (255, 255, 255), (40, 200, 80), (230, 60, 60), (240, 200, 40), (60, 140, 240)


class PersonDrawing(ExampleDrawing):
    """Draws `people.PersonPairs`: `joints` shows the pose over the target, `annotated scene` the target's scene."""

    reads: ClassVar[tuple[str, ...]] = ("target", "joints")
    legend: ClassVar[str] = (
        "joints: green where visible, red rings where hidden; scene: yellow box of the annotation, blue square of the "
        "crop"
    )

    def pictures(self, example: Example) -> dict[str, Pixels]:
        """Return the default pictures, and `joints` if there are joints and a target."""
        target, drawn = example.get("target"), super().pictures(example)
        picture = None if target is None else picture_of(target, self.forms.get("target"))
        if picture is None or "joints" not in example:
            return drawn
        connections = cast(PersonPairs, self.dataset).skeleton.connections
        return drawn | {"joints": joints_over(picture, np.asarray(example["joints"]), connections)}

    def annotated(self, index: int, random: np.random.Generator) -> dict[str, Pixels]:
        """Return the full scene with the box of the target and the crop."""
        dataset = cast(PersonPairs, self.dataset)
        persons, own = dataset.persons, dataset.target(index)
        scene = np.ascontiguousarray(persons.image(own)[..., ::-1])
        x, y, width, height = (round(float(side)) for side in persons.boxes[own])
        crop = square(persons.boxes[own], dataset.margin, dataset.image_size)
        cv2.rectangle(scene, (x, y), (x + width - 1, y + height - 1), BOX, 1)
        cv2.rectangle(scene, (crop.left, crop.top), (crop.left + crop.side - 1, crop.top + crop.side - 1), CROP, 1)
        return {"annotated scene": scene}


def joints_over(picture: Pixels, joints: NDArray[np.floating], connections: Any) -> Pixels:
    """Draw joints (K, 3), x and y in pixels and visibility, over an enlarged picture (H, W, 3).

    `connections` are pairs of joint indices from 0. Unlabelled joints are skipped.
    """
    zoom = max(1, -(-SIDE // max(picture.shape[:2])))
    canvas = np.repeat(np.repeat(picture, zoom, axis=0), zoom, axis=1)
    # 0 is the centre of the first pixel, which now has `zoom` pixels
    places = np.rint((joints[:, :2] + 0.5) * zoom - 0.5).astype(int).tolist()
    for one, other in connections:
        if joints[one, 2] > 0 and joints[other, 2] > 0:
            cv2.line(canvas, places[one], places[other], LINE, 1, cv2.LINE_AA)
    for place, visibility in zip(places, joints[:, 2], strict=True):
        if visibility > 0:
            seen = visibility > 1
            cv2.circle(canvas, place, 4, VISIBLE if seen else HIDDEN, -1 if seen else 1, cv2.LINE_AA)
    return np.asarray(canvas, dtype=np.uint8)
