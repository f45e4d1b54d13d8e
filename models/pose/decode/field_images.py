"""Drawings of composite fields over the network's input.

Pictures are uint8 (height, width, 3) RGB; drawings are `zoom` times as large. The centre of cell (column i, row j) of a
field is at pixel (i, j) times the field's stride.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ..argument_types import Kind

Pixels = NDArray[np.uint8]
Floats = NDArray[np.floating]
Integers = NDArray[np.intp]
Colour = tuple[int, int, int]

COLOURS: dict[Kind, tuple[Colour, ...]] = {
    "cif": ((240, 110, 0),),
    "caf": ((20, 80, 220), (0, 150, 60)),
    "cifdet": ((0, 150, 60),),
}
"""Kind -> colour of the confidence and the first vector, and of a second vector that points to a joint."""

BOX: Colour = (250, 220, 40)
WHITE: Colour = (255, 255, 255)

_FRACTION = 4  # fractional bits of OpenCV's drawing coordinates
_ROUND = np.array([(np.cos(turn), np.sin(turn)) for turn in np.linspace(0, 2 * np.pi, 16, endpoint=False)])


@dataclass(frozen=True, eq=False)
class Field:
    """One field of a head, target or prediction, in cells.

    Attributes:
        kind: of its head.
        confidence: (rows, columns), NaN in ignored cells.
        points: for each vector to a position, (2, rows, columns), x and y of that position.
        scales: for each of these positions (rows, columns), two standard deviations; none for boxes.
        extent: (2, rows, columns), width and height; boxes only.
    """

    kind: Kind
    confidence: Floats
    points: tuple[Floats, ...]
    scales: tuple[Floats, ...] = ()
    extent: Floats | None = None


def target_field(kind: Kind, target: Floats) -> Field:
    """Read an encoder's target (components, rows, columns); cif, caf and cifdet have 5, 9 and 7 components."""
    _check(kind, target, {"cif": 5, "caf": 9, "cifdet": 7})
    grid = np.mgrid[: target.shape[1], : target.shape[2]][::-1]
    first = grid + target[1:3]
    if kind == "cif":
        return Field(kind, target[0], (first,), (target[4],))
    if kind == "caf":
        return Field(kind, target[0], (first, grid + target[3:5]), (target[7], target[8]))
    return Field(kind, target[0], (first,), extent=target[3:5])


def predicted_field(kind: Kind, prediction: Floats) -> Field:
    """Read a decoded head's field (components, rows, columns): confidences in [0, 1], positions in cells.

    cif, caf and cifdet have 5, 8 and 6 components; drawings do not show the first one.
    """
    _check(kind, prediction, {"cif": 5, "caf": 8, "cifdet": 6})
    confidence, first, second = prediction[1], prediction[2:4], prediction[4:6]
    if kind == "cif":
        return Field(kind, confidence, (first,), (prediction[4],))
    if kind == "caf":
        return Field(kind, confidence, (first, second), (prediction[6], prediction[7]))
    return Field(kind, confidence, (first,), extent=second)


def picture_of(image: Floats, mean: tuple[float, ...], std: tuple[float, ...]) -> Pixels:
    """Convert the network's input (3, height, width), (v / 255 - mean) / std, back to a picture; rounds and clips."""
    levels = 255.0 * (image.transpose(1, 2, 0) * np.array(std) + np.array(mean))
    return np.rint(np.clip(levels, 0.0, 255.0)).astype(np.uint8)


def confidence_picture(picture: Pixels, field: Field, stride: int, zoom: int) -> Pixels:
    """Draw the confidence, one square per cell: 0 is the picture, 1 the kind's colour; ignored cells are whitened."""
    canvas = enlarged(picture, zoom).astype(np.float32)
    confidence = field.confidence[cells_of(canvas, field.confidence.shape, stride, zoom)][..., None]
    ignored = np.isnan(confidence)
    opacity = np.where(ignored, 0.5, 0.9 * np.clip(confidence, 0.0, 1.0))
    colour = np.where(ignored, WHITE, COLOURS[field.kind][0])
    return np.rint(canvas * (1 - opacity) + colour * opacity).astype(np.uint8)


def cells_of(canvas: NDArray[Any], cells: tuple[int, ...], stride: int, zoom: int) -> tuple[Integers, Integers]:
    """Return row (height, 1) and column (width,) of the cell nearest to each pixel; `cells` is the grid's shape."""
    rows, columns = (
        np.clip(np.rint(((np.arange(length) + 0.5) / zoom - 0.5) / stride).astype(int), 0, count - 1)
        for length, count in zip(canvas.shape[:2], cells, strict=True)
    )
    return rows[:, None], columns


def vectors_picture(picture: Pixels, field: Field, stride: int, zoom: int, threshold: float = 0.5) -> Pixels:
    """Draw an arrow from each cell of at least this confidence to its target, over the whitened picture.

    The tip of each arrow has a circle with the scale as diameter, or the box. Paler arrows are less confident; grey
    arrows belong to ignored cells with a vector (the fringe of a box).
    """
    canvas = enlarged(picture, zoom)
    canvas = 255 - (255 - canvas) // 2
    for which, point in enumerate(field.points):
        colour = COLOURS[field.kind][which]
        shown = np.isfinite(point).all(axis=0) & ~(field.confidence < threshold)
        # the most confident last, on top
        for row, column in sorted(np.argwhere(shown).tolist(), key=lambda cell: field.confidence[*cell]):
            faded = _faded(colour, float(field.confidence[row, column]), threshold)
            end = point[:, row, column] * stride
            start = np.array([column, row]) * float(stride)
            (tail,), (head,) = _at(start[None], zoom), _at(end[None], zoom)
            cv2.arrowedLine(canvas, tail, head, faded, 1, cv2.LINE_AA, _FRACTION, tipLength=0.15)
            if field.extent is not None:
                extent = field.extent[:, row, column] * stride
                draw_box(canvas, np.concatenate([end - extent / 2, extent]), zoom, faded)
            elif np.isfinite(scale := field.scales[which][row, column]):
                draw_circle(canvas, end, scale * stride / 2, zoom, faded, 1)
    return canvas


def _check(kind: Kind, values: Floats, components: dict[Kind, int]) -> None:
    if values.ndim != 3 or values.shape[0] != components[kind]:
        raise ValueError(f"a {kind} field of shape {values.shape}: ({components[kind]}, rows, columns) is needed")


def enlarged(picture: Pixels, zoom: int) -> Pixels:
    """Return a copy of a picture, `zoom` times as large."""
    size = (picture.shape[1] * zoom, picture.shape[0] * zoom)
    return np.ascontiguousarray(cv2.resize(picture, size, interpolation=cv2.INTER_LINEAR), dtype=np.uint8)


def write_title(canvas: Pixels, text: str) -> None:
    """Write white on dark in the upper left corner; truncates."""
    fitting = text[: max(canvas.shape[1] // 8 - 1, 0)]
    (width, height), below = cv2.getTextSize(fitting, cv2.FONT_HERSHEY_SIMPLEX, 0.4, 1)
    canvas[: height + below + 4, : width + 6] //= 4
    cv2.putText(canvas, fitting, (3, height + 3), cv2.FONT_HERSHEY_SIMPLEX, 0.4, WHITE, 1, cv2.LINE_AA)


def _at(points: Floats, zoom: int) -> list[tuple[int, int]]:
    """Map points (n, 2) of the picture to OpenCV's fixed-point coordinates of the canvas, clipped to their range."""
    places = (((points + 0.5) * zoom - 0.5) * (1 << _FRACTION)).clip(-(2**20), 2**20).tolist()
    return [(round(x), round(y)) for x, y in places]


def _faded(colour: Colour, confidence: float, threshold: float) -> Colour:
    if np.isnan(confidence):
        return (120, 120, 120)
    share = 1.0 if threshold >= 1 else min(max((confidence - threshold) / (1 - threshold), 0.0), 1.0)
    red, green, blue = (round(255 - (255 - one) * (0.35 + 0.65 * share)) for one in colour)
    return red, green, blue


def draw_circle(canvas: Pixels, middle: Floats, radius: float, zoom: int, colour: Colour, thickness: int) -> None:
    """Draw a circle with a radius in pixels of the picture; `thickness` is in pixels of the canvas, -1 fills."""
    size = min(max(round(radius * zoom * (1 << _FRACTION)), 0), 2**20)
    (place,) = _at(middle[None], zoom)
    if size >= 4 << _FRACTION:
        cv2.circle(canvas, place, size, colour, thickness, cv2.LINE_AA, _FRACTION)
        return
    # OpenCV draws small circles as squares on their corners
    outline = np.rint(place + size * _ROUND).astype(np.int32)
    if thickness < 0:
        cv2.fillPoly(canvas, [outline], colour, cv2.LINE_AA, _FRACTION)
    else:
        cv2.polylines(canvas, [outline], True, colour, thickness, cv2.LINE_AA, _FRACTION)


def draw_line(
    canvas: Pixels, start: Floats, end: Floats, zoom: int, colour: Colour, thickness: int = 1, dash: float = 0.0
) -> None:
    """Draw a line between two points of the picture; `dash` is about the length of dashes and gaps, canvas pixels."""
    length = float(np.abs(end - start).max()) * zoom
    parts = max(1, min(int(length / (2 * dash)), 1000)) if dash else 1
    ends = np.stack([start, end]) if parts == 1 else np.linspace(start, end, 2 * parts)
    if parts > 1:  # shorten each dash by its round caps, half a line width each
        inwards = min(thickness / 2 / length, 0.25 / parts) * (end - start)
        ends[::2] += inwards
        ends[1::2] -= inwards
    places = _at(ends, zoom)
    for a, b in zip(places[::2], places[1::2], strict=True):
        cv2.line(canvas, a, b, colour, thickness, cv2.LINE_AA, _FRACTION)


def draw_box(canvas: Pixels, box: Floats, zoom: int, colour: Colour, dotted: bool = False, thickness: int = 1) -> None:
    """Draw the outline of a box (x, y, width, height)."""
    x, y, width, height = np.asarray(box, dtype=np.float64)
    corners = np.array([(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)])
    for start, end in pairwise(corners):
        draw_line(canvas, start, end, zoom, colour, thickness, dash=3.0 * thickness if dotted else 0.0)
