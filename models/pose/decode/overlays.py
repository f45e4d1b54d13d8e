"""Draw people and objects, and annotations underneath them, over a picture.

The input is records in COCO's result format, in pixels of the picture: `keypoints` (x, y, confidence of each joint; a
confidence of 0 is a missing joint), `bbox` (x, y, width, height), `score`, `category` (a name), `category_id`, and in
videos `track_id` (`TrackPeople`). Each entry is optional. The options follow openpifpaf/show/painters.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from figura.formats.skeletons import Skeleton
from figura.recipe.schema import Section

from ..encoders import instance_scales
from .field_images import BOX, WHITE, Colour, Floats, Pixels, draw_box, draw_circle, draw_line, enlarged

Record = Mapping[str, Any]

# Chosen greedily in CIELAB, each as far as possible from the earlier ones, among colours of lightness 48 to 90 and
# chroma above 42, so that they differ from black, white and the grey of annotations.
COLOURS: tuple[Colour, ...] = (
    (255, 60, 45), (0, 255, 0), (0, 105, 255), (60, 225, 225), (255, 225, 90), (255, 0, 180), (15, 135, 30),
    (240, 180, 255), (180, 0, 255), (165, 105, 45), (0, 165, 240), (240, 105, 135), (0, 255, 165), (180, 225, 150),
    (165, 225, 0), (255, 150, 0), (165, 75, 195), (135, 135, 0), (45, 165, 120), (120, 105, 180),
)  # fmt: skip
TRUTH: Colour = (230, 230, 230)
DARK: Colour = (25, 25, 25)


class OverlayStyle(Section):
    """Drawing style of people and objects; lengths are in pixels of the result."""

    colours: Literal["connection", "instance"] = Field(
        default="connection", description="a colour for each connection, the same in all people, or for each person"
    )
    solid_threshold: float = Field(
        default=0.5, ge=0.0, le=1.0, description="a line is solid if both ends are more confident, else dashed"
    )
    least_score: float = Field(
        default=0.0, ge=0.0, le=1.0, description="people and objects that score less are not drawn"
    )
    boxes: bool = Field(default=False, description="people's boxes")
    scores: bool = Field(default=True, description="a label at each person and object")
    joint_scales: bool = Field(
        default=False, description="circles as wide as the scales that targets of these joints have"
    )
    line_width: int | None = Field(default=None, ge=1, description="at most; left out: by the picture's size")
    whiten: float = Field(default=0.0, ge=0.0, le=1.0, description="how far the picture is faded to white")
    least_side: int = Field(
        default=384,
        ge=1,
        le=4096,
        description="smaller pictures become a whole number of times as large, at least this",
    )


def overlay(
    picture: Pixels,
    people: Sequence[Record],
    boxes: Sequence[Record],
    skeleton: Skeleton,
    style: OverlayStyle = OverlayStyle(),  # noqa: B008 - it is immutable
    truth: Sequence[Record] = (),
) -> Pixels:
    """Draw records over a picture, uint8 (height, width, 3) RGB; the result is `zoom_of` times as large.

    The first record is on top. `truth`, annotations in COCO's format, is underneath in light grey: lines to hidden
    joints are dashed, boxes (of annotations without joints, or with `style.boxes`) around crowds dotted.

    Raises:
        ValueError: keypoints of another skeleton.
    """
    people, boxes = ([one for one in some if one.get("score", 1) >= style.least_score] for some in (people, boxes))
    canvas = enlarged(picture, zoom_of(picture, style))
    if style.whiten:
        canvas = np.rint(255 - (255.0 - canvas) * (1 - style.whiten)).astype(np.uint8)
    pen = _Pen(canvas, zoom_of(picture, style), skeleton, style)
    for record in truth:
        pen.truth(record)
    for record in reversed(boxes):
        pen.box(record, _category_colour(record))
    for place, record in reversed(list(enumerate(people))):
        pen.person(record, _person_colour(place, record) if style.colours == "instance" else None)
    if style.scores:
        for place, record in enumerate(people):
            pen.label(record, _person_colour(place, record) if style.colours == "instance" else DARK)
        for record in boxes:
            pen.label(record, _category_colour(record))
    return canvas


def named(records: Sequence[Record], names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Add `category`, the category name, to each record whose category id has one."""
    return [
        {**one, "category": names[one["category_id"]]} if one.get("category_id") in names else dict(one)
        for one in records
    ]


def zoom_of(picture: Pixels, style: OverlayStyle) -> int:
    """Return the zoom factor of an overlay."""
    return -(-style.least_side // max(picture.shape[:2]))


def joints_of(record: Record, skeleton: Skeleton) -> NDArray[np.float64]:
    """Return (K, 3), x, y and confidence; missing joints, joints that are not finite, and absent `keypoints` are 0."""
    count = len(skeleton.keypoints)
    joints = np.array(record.get("keypoints", np.zeros(3 * count)), dtype=np.float64)
    if joints.size != 3 * count:
        raise ValueError(f"keypoints of {joints.size} numbers: {3 * count} are needed, 3 for each of {count} joints")
    joints = joints.reshape(count, 3)
    joints[~(np.isfinite(joints).all(axis=1) & (joints[:, 2] > 0))] = 0.0
    return joints


class _Pen:
    """Draws on a canvas in a style, and keeps track of labels."""

    def __init__(self, canvas: Pixels, zoom: int, skeleton: Skeleton, style: OverlayStyle) -> None:
        self.canvas, self.zoom, self.skeleton, self.style = canvas, zoom, skeleton, style
        side = max(canvas.shape[:2])
        self.width = style.line_width or max(2, round(side / 300))
        self.letters = min(max(side / 1400, 0.4), 2.0)
        self.labels: list[tuple[int, int, int, int]] = []

    def truth(self, record: Record) -> None:
        """Draw an annotation, grey and thin; without labelled joints, its box."""
        if self.style.boxes or not any(record.get("keypoints", ())[2::3]):
            self.box(record, TRUTH, dotted=bool(record.get("iscrowd", 0)))
        # visibility 0, 1 (hidden) or 2 is drawn as a confidence of 0, 0.5 or 1
        joints = joints_of(record, self.skeleton) * (1.0, 1.0, 0.5)
        self._body(joints, (TRUTH,), TRUTH, max(1, self.width - 1), solid_threshold=0.5)

    def person(self, record: Record, colour: Colour | None) -> None:
        """Draw a person in one colour, or in one colour per connection."""
        joints = joints_of(record, self.skeleton)
        if self.style.boxes:
            self.box(record, colour or BOX)
        if self.style.joint_scales:
            scales = instance_scales(joints[None], self.skeleton.standing_pose)[0] * self.skeleton.sigmas
            for joint, scale in zip(joints, scales, strict=True):
                if joint[2] > 0 and np.isfinite(scale):
                    for own, thickness in ((_rim(colour or WHITE), 3), (colour or WHITE, 1)):
                        draw_circle(self.canvas, joint[:2], scale / 2, self.zoom, own, thickness)
        self._body(joints, (colour,) if colour else COLOURS, WHITE, self.width, self.style.solid_threshold)

    def _body(
        self, joints: NDArray[np.float64], colours: Sequence[Colour], dots: Colour, width: int, solid_threshold: float
    ) -> None:
        """Draw rimmed lines that cycle through `colours`, thinner for small people, then discs on the joints."""
        seen = joints[:, 2] > 0
        if not seen.any():
            return
        width = max(1, min(width, round(np.ptp(joints[seen, :2], axis=0).max() * self.zoom / 40)))
        for index, (a, b) in enumerate(self.skeleton.connections):
            if seen[a] and seen[b]:
                colour = colours[index % len(colours)]
                dash = 0.0 if min(joints[a, 2], joints[b, 2]) > solid_threshold else 2.5 * width + 2
                for own, thickness in ((_rim(colour), width + 2), (colour, width)):
                    draw_line(self.canvas, joints[a, :2], joints[b, :2], self.zoom, own, thickness, dash)
        for joint in joints[seen, :2]:
            for own, radius in ((DARK, 0.6 * width + 1.2), (dots, 0.6 * width + 0.4)):
                draw_circle(self.canvas, joint, radius / self.zoom, self.zoom, own, -1)

    def box(self, record: Record, colour: Colour, dotted: bool = False) -> None:
        """Draw the outline of the record's box, with a rim."""
        box = _box_of(record)
        if box is not None:
            for own, thickness in ((_rim(colour), self.width + 1), (colour, self.width - 1)):
                draw_box(self.canvas, box, self.zoom, own, dotted, max(1, thickness))

    def label(self, record: Record, colour: Colour) -> None:
        """Write category and score on a coloured patch above the box, or lower if other labels are in the way.

        The patch starts at the box's left corner if boxes are drawn, else above the highest joint.
        """
        box = _box_of(record)
        words = [f"#{record['track_id']}"] if "track_id" in record else []
        words += [str(record["category"])] if "category" in record else []
        words += [f"{record['score']:.2f}"] if "score" in record else []
        if box is None or not words:
            return
        (width, height), below = cv2.getTextSize(" ".join(words), cv2.FONT_HERSHEY_SIMPLEX, self.letters, 1)
        size = width + 6, height + below + 4
        joints = joints_of(record, self.skeleton)
        seen = joints[joints[:, 2] > 0]
        if len(seen) and not self.style.boxes:
            box[0] = seen[seen[:, 1].argmin(), 0] - size[0] / 2 / self.zoom
        x, y = self._free(box, size)
        self.labels.append((x, y, *size))
        patch = self.canvas[y : y + size[1], x : x + size[0]]
        patch[:] = np.rint(0.25 * patch + 0.75 * np.array(colour)).astype(np.uint8)
        bright = np.dot(colour, (0.299, 0.587, 0.114)) > 140
        cv2.putText(
            self.canvas, " ".join(words), (x + 3, y + height + 2), cv2.FONT_HERSHEY_SIMPLEX, self.letters,
            DARK if bright else WHITE, 1, cv2.LINE_AA,
        )  # fmt: skip

    def _free(self, box: Floats, size: tuple[int, int]) -> tuple[int, int]:
        """Return the position of a label: above the box, or lower along its side if other labels are in the way."""
        most = [max(side - own, 0) for side, own in zip(self.canvas.shape[1::-1], size, strict=True)]
        x = int(np.clip(box[0] * self.zoom, 0, most[0]))
        places = [int(np.clip(box[1] * self.zoom + (turn - 1) * size[1], 0, most[1])) for turn in range(6)]
        for y in places:
            if all(
                x >= left + width or x + size[0] <= left or y >= top + height or y + size[1] <= top
                for left, top, width, height in self.labels
            ):
                return x, y
        return x, places[0]


def _box_of(record: Record) -> NDArray[np.float64] | None:
    """Return x, y, width, height; None for a missing `bbox` or one that is not finite."""
    box = np.array(record.get("bbox", ()), dtype=np.float64)
    return box if box.shape == (4,) and np.isfinite(box).all() else None


def _cycled(place: int) -> Colour:
    return COLOURS[place % len(COLOURS)]


def _person_colour(place: int, record: Record) -> Colour:
    """Return the colour of a track, the same in all frames, or of a place in the records."""
    return _cycled(record.get("track_id", place + 1) - 1)


def _rim(colour: Colour) -> Colour:
    """Return a darker shade that separates a bright line from a bright picture."""
    red, green, blue = (round(0.55 * one) for one in colour)
    return red, green, blue


def _category_colour(record: Record) -> Colour:
    return _cycled(int(record.get("category_id", 1)) - 1)
