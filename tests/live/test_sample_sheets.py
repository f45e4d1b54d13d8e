"""Sample pictures of a training: after each evaluation, of the same examples, and nothing else changed by them."""

from typing import ClassVar

import cv2
import numpy as np
import pytest
import toy
from trainings import outputs

from figura.base.errors import UserError
from figura.live import listeners
from figura.training.trainer import Trainer


class Marked(toy.Ramps):
    """Ramps with a picture that the validation data lack."""

    names: ClassVar[tuple[str, ...]] = (*toy.Ramps.names, "mark")

    def example(self, index, random):
        found = super().example(index, random)
        return found | {"mark": found["x"]}


def trained(run, **runtime):
    recipe = toy.checked({"runtime": toy.recipe()["runtime"] | runtime})
    Trainer(recipe, run, listeners=listeners(recipe)).fit()


def test_sheets_of_validation_and_training_change_no_output(run):
    trained(run / "both", samples={"names": ["image", "x"], "count": 3, "every": 4, "split": "both"})
    sheets = sorted(path.name for path in (run / "both/live/samples").iterdir())
    assert sheets == sorted(f"000000{step}{end}.png" for step in ("04", "08", "12") for end in ("-train", ""))
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
    assert outputs(run / "with") == outputs(run / "both") == outputs(run / "without")


def test_sheets_of_an_earlier_training_are_gone(run):
    (run / "live/samples").mkdir(parents=True)
    for name in ("00000000.png", "00000500.png", "00000500-train.png", "my notes.png"):
        (run / "live/samples" / name).touch()
    trained(run, samples={"names": ["x"], "count": 1, "every": 12})
    assert sorted(path.name for path in (run / "live/samples").iterdir()) == [
        "00000000.png", "00000012.png", "my notes.png"
    ]  # fmt: skip


def test_a_training_sheet_shows_the_batch_as_the_network_got_it(run):
    recipe = toy.checked({"runtime.samples": {"names": ["x"], "count": 2, "every": 1, "split": "train"}})
    trainer = Trainer(recipe, run, listeners=listeners(recipe))
    trainer.fit()
    for step in (1, 7, 12):  # 5 batches an epoch
        batch = next(iter(trainer.loaders.train(step - 1)))
        sheet = cv2.imread(str(run / f"live/samples/{step:08d}-train.png"))
        for row in range(2):
            top = 18 + row * (18 + 96 + 2) + 18  # a title, then a label above each row of 96 pixels: 4 times 24
            cells = sheet[top : top + 96, :96, 0][12::24, 12::24].astype(int)
            levels = np.rint((batch["x"][row, 0].numpy().astype(np.float64).clip(-1, 1) + 1) * 127.5)
            assert np.abs(cells - levels).max() <= 1


def test_a_name_of_training_batches_alone(run):
    changes = {"data.train.ramps.type": "test_sample_sheets.Marked", "train.steps": 1}
    samples = {"names": ["x", "mark"], "count": 2}
    recipe = toy.checked(changes | {"runtime.samples": samples | {"split": "train"}})
    Trainer(recipe, run, listeners=listeners(recipe)).fit()
    sheet = cv2.imread(str(run / "live/samples/00000001-train.png"))
    assert sheet.shape[1] == 2 * 96 + 4  # both pictures, and what is between them
    with pytest.raises(UserError, match=r"runtime\.samples\.names: unknown name: nothing provides 'mark'"):
        toy.checked(changes | {"runtime.samples": samples})
