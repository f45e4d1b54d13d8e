"""Drawings of scenes: the picture in its own colours, and what the losses ignore."""

import drawn_scenes
import numpy as np
import pytest

from figura.engine.build import build_datasets
from figura.show.drawing import drawing_of
from models.pose.drawing import IGNORED, SceneDrawing, confidence_drawing, strongest

GREY = np.full((65, 65, 3), 100, np.uint8)


@pytest.fixture
def scenes(tmp_path):
    drawn_scenes.write(tmp_path)
    return build_datasets(drawn_scenes.checked(tmp_path, {}), "train")["scenes"]


def test_pictures_of_an_example(scenes):
    drawing = drawing_of(scenes, {})
    assert isinstance(drawing, SceneDrawing)
    example = scenes.example(1, np.random.default_rng(0))
    pictures = drawing.pictures(example)
    targets = [f"{head}_target{more}" for head in ("cif", "caf", "cifdet") for more in ("", " vectors")]
    assert list(pictures) == ["image", *targets]
    np.testing.assert_array_equal(pictures["image"], scenes.view(1, np.random.default_rng(0)).picture)
    zoom = 6  # 384 of 65 pixels, in whole multiples
    assert {one.shape for name, one in pictures.items() if name != "image"} == {(65 * zoom, 65 * zoom, 3)}
    assert drawing.annotated(1, np.random.default_rng(0))["annotated"].shape == (65 * zoom, 65 * zoom, 3)


def test_without_the_image_nothing_lies_over_it(scenes):
    example = scenes.example(0, np.random.default_rng(0))
    assert drawing_of(scenes, {}).pictures({"cif_target": example["cif_target"]}) == {}


def target(fields):
    """A cif target of 9 x 9 cells without a joint."""
    values = np.full((fields, 5, 9, 9), np.nan, np.float32)
    values[:, 0] = 0.0
    return values


def test_ignored_cells_are_hatched_in_red_and_others_as_they_were():
    values = target(2)
    values[:, 0, :, 6:] = np.nan  # a crowd at the right, in all fields
    values[1, 0, :4, :3] = np.nan  # a hidden joint, in one field
    drawn = confidence_drawing(GREY, values, stride=8, zoom=2).astype(int)
    crowd, hidden, rest = drawn[:, 96:], drawn[:48, :32], drawn[80:, :32]
    assert (rest == 100).all()
    assert (crowd.reshape(-1, 3) == IGNORED).all(axis=1).mean() == pytest.approx(1 / 3, abs=0.02)  # the lines
    redness = [(part[..., 0] - part[..., 1]).mean() for part in (crowd, hidden, rest)]
    assert redness[0] > redness[1] > redness[2] == 0


def test_cells_have_the_colour_of_their_field():
    values = target(3)
    values[0, 0, 1:3, 1:3], values[2, 0, 5:7, 5:7] = 1.0, 1.0
    drawn = confidence_drawing(GREY, values, stride=8, zoom=1).astype(int)
    first, last, rest = drawn[16, 16], drawn[48, 48], drawn[32, 16]
    assert (rest == 100).all()
    assert np.abs(first - last).max() > 50


def test_the_strongest_field_of_each_cell():
    values = target(2)
    values[0, :, 2, 3], values[1, :, 2, 3] = [1, 0.5, 0.5, 1, 1], np.nan  # ignored in the other field: it counts
    values[1, :, 4, 4] = [1, -0.5, 0.25, 1, 2]
    values[1, 0, 6, 6] = np.nan
    field = strongest(values)
    np.testing.assert_array_equal(field[:, 2, 3], np.float32([1, 0.5, 0.5, 1, 1]))
    np.testing.assert_array_equal(field[:, 4, 4], np.float32([1, -0.5, 0.25, 1, 2]))
    assert np.isnan(field[0, 6, 6])
    assert field[0, 0, 0] == 0
