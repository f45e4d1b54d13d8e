"""Sample pictures of a training: after each evaluation, of the same examples, and nothing else changed by them."""

import cv2
import numpy as np
import toy
from trainings import outputs

from models.live import listeners
from models.live.samples import SampleSheets
from models.live.scores import OnlineScores
from models.training.trainer import Trainer


def trained(run, **runtime):
    recipe = toy.checked({"runtime": toy.recipe()["runtime"] | runtime})
    Trainer(recipe, run, listeners=listeners(recipe)).fit()


def test_a_sheet_after_each_evaluation_changes_no_output(run):
    trained(run / "with", samples={"names": ["x", "image"], "count": 2})
    trained(run / "without", samples=None)
    sheets = sorted((run / "with/live/samples").iterdir())
    assert [path.name for path in sheets] == ["00000005.png", "00000010.png", "00000012.png"]
    first, *_, last = (cv2.imread(str(path)) for path in sheets)
    assert first.shape == last.shape
    middle = first.shape[1] // 2
    np.testing.assert_array_equal(first[:, :middle], last[:, :middle])  # `x`: of the same examples
    assert (first[:, middle:] != last[:, middle:]).any()
    assert not list((run / "without/live/samples").glob("*"))
    assert outputs(run / "with") == outputs(run / "without")


def test_the_recipe_asks_for_listeners():
    scores = {"runtime.scores": {"names": ["distance"]}}
    kinds = [[type(one) for one in listeners(toy.checked(changes))] for changes in (
        {}, {"runtime.samples": None}, scores, {"runtime.samples": None, **scores},
    )]  # fmt: skip
    assert kinds == [[SampleSheets], [], [SampleSheets, OnlineScores], [OnlineScores]]
