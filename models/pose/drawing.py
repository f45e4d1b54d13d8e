"""Drawings of scenes: the network's input, annotations, and the heads' targets over it."""

import colorsys
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from figura.interfaces import Example
from figura.show.drawing import ExampleDrawing

from .decode.field_images import Floats, Pixels, cells_of, enlarged, picture_of, target_field, vectors_picture
from .decode.overlays import OverlayStyle, overlay, zoom_of
from .scenes import Scenes

STYLE = OverlayStyle(boxes=True, scores=False)
IGNORED = (225, 30, 30)
HATCH = 6  # pixels between lines


class SceneDrawing(ExampleDrawing):
    """Draws `pose.Scenes`.

    `annotated`: boxes and people as augmented, with dashed lines to hidden joints; crowd regions are dotted.
    `<head>_target` shows the maximum confidence over all fields, one square per cell in the colour of that field; red
    hatching marks cells that the losses ignore in all fields (dense) or in some (pale). `<head>_target vectors` shows
    an arrow from each confident cell to its target, with the joint's scale or the box.
    """

    reads: ClassVar[tuple[str, ...]] = ("image",)
    legend: ClassVar[str] = (
        "red hatching: ignored by the losses (pale: in some fields); dotted box: crowd or ignored; colours of "
        "cells: fields; arrows: to joints or centres, circles: scales"
    )

    def pictures(self, example: Example) -> dict[str, Pixels]:
        """Return `image`, and two pictures per target."""
        scenes = cast(Scenes, self.dataset)
        image = example.get("image")
        if image is None:
            return super().pictures(example)
        picture = picture_of(np.asarray(image), scenes.mean, scenes.std)
        zoom = zoom_of(picture, STYLE)
        others = {name: value for name, value in example.items() if name != "image" and not name.endswith("_target")}
        drawn = {"image": picture}
        for head, encoder in scenes.encoders.items():
            name = f"{head}_target"
            if name in example:
                target = np.asarray(example[name])
                drawn[name] = confidence_drawing(picture, target, encoder.stride, zoom)
                field = target_field(encoder.kind, strongest(target))
                drawn[f"{name} vectors"] = vectors_picture(picture, field, encoder.stride, zoom)
        return drawn | super().pictures(others)

    def annotated(self, index: int, random: np.random.Generator) -> dict[str, Pixels]:
        """Return `annotated`, the source of the targets."""
        scenes = cast(Scenes, self.dataset)
        view = scenes.view(index, random)
        shown, crowds = list[Any](), list[Any]()
        for joints, box, crowd in zip(view.objects.keypoints, view.objects.boxes, view.objects.crowd, strict=True):
            # as if hidden joints (v = 1) were found with a confidence of 0.5, visible ones with 1
            body = {"keypoints": (joints * (1, 1, 0.5)).ravel()} if len(joints) and not crowd else {}
            (crowds if crowd else shown).append({"bbox": box, "iscrowd": crowd} | body)
        return {"annotated": overlay(view.picture, shown, (), scenes.skeleton, STYLE, crowds)}


def strongest(target: Floats) -> NDArray[np.floating]:
    """Reduce a target (fields, components, rows, columns) to one field: the most confident one in each cell.

    Cells with confidence 0 where some field is ignored are NaN.
    """
    confidence = target[:, 0]
    ignored = np.isnan(confidence)
    best = np.where(ignored, -1.0, confidence).argmax(axis=0)
    field = np.take_along_axis(target, best[None, None], axis=0)[0].copy()
    field[0] = np.where(ignored.any(axis=0) & ~(field[0] > 0), np.nan, field[0])
    return field


def confidence_drawing(picture: Pixels, target: Floats, stride: int, zoom: int) -> Pixels:
    """Draw the maximum confidence of all fields, and hatch ignored cells by the number of ignoring fields."""
    colours = np.array([colorsys.hsv_to_rgb(turn, 1.0, 1.0) for turn in np.linspace(0.1, 0.88, len(target))]) * 255
    canvas = enlarged(picture, zoom).astype(np.float32)
    cells = cells_of(canvas, target.shape[2:], stride, zoom)
    share = np.isnan(target[:, 0]).mean(axis=0)[cells]
    known = np.nan_to_num(target[:, 0])
    confidence, field = known.max(axis=0)[cells], known.argmax(axis=0)[cells]
    canvas += (colours[field] - canvas) * (0.55 * np.clip(confidence, 0.0, 1.0))[..., None]
    lines = np.indices(canvas.shape[:2]).sum(axis=0) % HATCH < HATCH // 3
    opacity = np.where(share > 0, np.where(lines, 0.35 + 0.65 * share, 0.25 * share), 0.0)
    canvas += (np.array(IGNORED) - canvas) * opacity[..., None]
    return np.rint(canvas).astype(np.uint8)
