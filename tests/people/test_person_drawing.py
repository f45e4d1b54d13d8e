"""Where the drawing of a person pair puts joints, box and crop."""

import numpy as np
from test_pairs import draw, folder, pairs

from models.people.drawing import BOX, CROP, HIDDEN, VISIBLE, PersonDrawing, joints_over

__all__ = ["folder"]  # the fixture


def is_colour(pixels: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return (pixels == colour).all(axis=-1)


def test_joints_stand_where_they_are_and_look_as_they_are_labelled() -> None:
    picture = np.zeros((64, 32, 3), np.uint8)
    joints = np.array([[3, 10, 2], [20, 10, 1], [20, 50, 0]])
    drawn = joints_over(picture, joints, [(0, 1), (1, 2)])
    assert drawn.shape == (256, 128, 3)
    rows, columns = is_colour(drawn, VISIBLE).nonzero()  # pixel 3 of four times the size: 12 to 15
    assert abs(columns.mean() - 13.5) <= 0.5
    assert abs(rows.mean() - 41.5) <= 0.5
    ring = drawn[30:54, 70:94].astype(int)
    assert (ring[..., 0] - ring[..., 1] > (HIDDEN[0] - HIDDEN[1]) / 2).any()  # its edges are smooth
    assert (drawn[42, 20:75] > 200).all()  # the white line
    assert not drawn[100:].any()  # neither the unlabelled joint nor its connection


def test_the_scene_shows_box_and_crop(folder) -> None:
    dataset = pairs(folder)
    drawing = PersonDrawing(dataset, {})
    scene = drawing.annotated(1, np.random.default_rng(0))["annotated scene"]
    x, y, width, height = (round(float(one)) for one in dataset.persons.boxes[dataset.target(1)])
    rows, columns = is_colour(scene, BOX).nonzero()
    assert (columns.min(), rows.min()) >= (x, y)
    assert (columns.max(), rows.max()) <= (x + width - 1, y + height - 1)
    assert is_colour(scene, CROP).any()
    pictures = drawing.pictures(draw(dataset, 1))
    assert {"pose", "target", "joints"} <= pictures.keys()
    assert "joints" not in drawing.pictures({"target": draw(dataset, 1)["target"]})
