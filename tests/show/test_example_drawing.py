"""Pictures of values: which range is black and white, what is no picture, and who draws a dataset."""

from typing import ClassVar

import numpy as np
import pytest
import torch
import toy

from figura.base.errors import UserError
from figura.show.drawing import ExampleDrawing, drawing_of, forms_of, picture_of


class Inverted(ExampleDrawing):
    """Draws nothing but the negative of x."""

    def pictures(self, example):
        return {"x negative": 255 - super().pictures(example)["x"]}


class Negatives(toy.Ramps):
    drawing: ClassVar[str] = "test_example_drawing.Inverted"


@pytest.mark.parametrize(
    ("value", "form", "level"),
    [
        (-1.0, None, 0), (-0.5, None, 64), (0.0, None, 0), (0.5, None, 128), (1.0, None, 255),  # 63.75; 127.5 is even
        (0.0, "image", 128), (0.5, "image", 191), (-3.0, "image", 0), (0.5, "mask", 128), (-0.5, "mask", 0),
    ],
)  # fmt: skip
def test_levels(value, form, level):
    picture = picture_of(np.full((1, 1, 1), value, np.float32), form)
    assert picture.dtype == np.uint8
    assert picture.tolist() == [[[level] * 3]]


def test_values_that_are_no_levels():
    assert picture_of(np.full((1, 1, 1), np.nan, np.float32)).tolist() == [[[255, 0, 255]]]
    levels = np.random.default_rng(0).integers(0, 256, (3, 4, 5), np.uint8)
    values = torch.from_numpy(levels / 127.5 - 1).to(torch.float64)
    for value, form in ((levels, None), (values, "image")):
        np.testing.assert_array_equal(picture_of(value, form), levels.transpose(1, 2, 0))
    for shape in ((), (4,), (3, 4), (2, 4, 4), (17, 5, 3, 3), (3, 0, 4)):
        assert picture_of(np.zeros(shape, np.float32)) is None
    assert picture_of(np.zeros((3, 4, 4), np.int64)) is None
    assert ExampleDrawing(toy.Ramps(1), {}).pictures({"name": "a", "index": 3, "box": np.zeros(4)}) == {}


def test_a_dataset_names_its_drawing():
    example = toy.Ramps(1)[0]
    (plain,) = drawing_of(toy.Ramps(1), {"x": "image"}).pictures({"x": example["x"]}).values()
    drawn = drawing_of(Negatives(1), {"x": "image"}).pictures(example)
    np.testing.assert_array_equal(drawn["x negative"], 255 - plain)


@pytest.mark.parametrize(
    ("name", "message"), [("toy.Distance", "it is no ExampleDrawing"), ("toy.Drawing", "unknown drawing")]
)
def test_a_drawing_that_is_none(name, message, monkeypatch):
    monkeypatch.setattr(Negatives, "drawing", name)
    with pytest.raises(UserError, match=message):
        drawing_of(Negatives(1), {})


def test_forms_are_those_of_the_evaluation():
    changes = {"evaluate.inputs": {"x": "image", "y": "array"}, "evaluate.modes.plain.save": {"image": "mask"}}
    assert forms_of(toy.checked(changes)) == {"x": "image", "image": "mask"}
