"""Sample pictures of a training: after each evaluation, of the same examples, and nothing else changed by them."""

import cv2
import numpy as np
import toy
from trainings import outputs

from figura.live import listeners
from figura.training.trainer import Trainer


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


def test_training_batches_at_a_cadence_of_their_own_change_no_output(run):
    settings = {"names": ["image", "x"], "count": 3, "every": 4, "split": "both"}
    trained(run / "with", samples=settings)
    trained(run / "without", samples=None)
    sheets = {path.name: cv2.imread(str(path)) for path in (run / "with/live/samples").iterdir()}
    assert sorted(sheets) == [f"000000{step}{end}.png" for step in ("04", "08", "12") for end in ("-train", "")]
    assert outputs(run / "with") == outputs(run / "without")
    assert (sheets["00000004-train.png"] != sheets["00000008-train.png"]).any()


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
