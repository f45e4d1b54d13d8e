"""Drawing saved runs: what is read, what the figures hold, what is told about broken files."""

import json

import cv2
import pandas as pd
import pytest

from figura.base.exit_status import run
from figura.commands.log_plots import read_log, total_loss
from figura.commands.plot_logs import labels_of, main

TRAIN = pd.DataFrame(
    {
        "step": [10, 20, 30],
        "caf.raw": [4.0, 2.0, 1.0],
        "caf.weight": [0.0, 1.0, 2.0],
        "caf.weighted": [0.0, 2.0, 2.0],
        "caf.vector.raw": [3.0, 1.0, 0.5],
        "caf.vector.weight": [0.0, 1.0, 2.0],
        "caf.vector.weighted": [0.0, 1.0, 1.0],
        "late.raw": [None, 1.0, 3.0],
        "late.weight": [None, 10.0, 10.0],
        "late.weighted": [None, 10.0, 30.0],
        "G.lr": [0.1, 0.01, 0.0],
        "G.grad_norm": [5.0, 4.0, 3.0],
    }
)
VALIDATION = pd.DataFrame({"step": [15, 30], "caf.raw": [3.0, 2.0], "caf.vector.raw": [2.0, 1.0], "late.raw": [2, 4]})


def write_run(folder, train=TRAIN, validation=VALIDATION, live=()):
    (folder / "history").mkdir(parents=True)
    train.to_csv(folder / "history/train.csv", index=False)
    validation.to_csv(folder / "history/validation.csv", index=False)
    if live:
        (folder / "live").mkdir()
        (folder / "live/log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in live))
    return folder


def records(steps, rate=40.0):
    return [{"step": step, "train.caf": 1.0, "images_per_second": rate, "seconds.data": 0.1} for step in steps]


def drawn(path, colour):
    """Count the pixels of one colour (red, green, blue) in a picture."""
    return int((cv2.imread(str(path))[..., ::-1] == colour).all(axis=2).sum())


def test_total_weighs_validation_as_training_was_weighted_at_that_step():
    train, validation = total_loss(TRAIN, VALIDATION)
    assert train.tolist() == [0.0, 12.0, 32.0]
    assert validation.tolist() == [3 * 1 + 2 * 10, 2 * 2 + 4 * 10]  # step 15 lies in the window that ends at 20


def test_runs_with_different_losses_share_figures(tmp_path):
    one = write_run(tmp_path / "one", live=records([10, 20]))
    other = TRAIN.rename(columns=lambda name: name.replace("late", "L1"))
    two = write_run(tmp_path / "two", other, VALIDATION[["step", "caf.raw"]])
    assert run(main, [str(one), str(two), "--output", str(tmp_path / "plots")]) == 0
    for name in ("losses.png", "training.png"):
        for colour in ((31, 119, 180), (255, 127, 14)):  # the first two of matplotlib's cycle
            assert drawn(tmp_path / "plots" / name, colour) > 100
    assert run(main, [str(one), "--output", str(tmp_path / "alone")]) == 0
    assert run(main, [str(two), "--output", str(tmp_path / "untimed")]) == 0
    for folder, empty in (("alone", False), ("plots", False), ("untimed", True)):  # without a live log, no fourth panel
        picture = cv2.imread(str(tmp_path / folder / "training.png"))
        height, width, _ = picture.shape
        assert (picture[height * 5 // 8 :, width * 5 // 8 :] == 255).all() == empty


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("history/train.csv", None, "no such file; training writes it when it ends; run train again"),
        ("history/train.csv", "step,caf.raw\n10,much\n", "column 'caf.raw' holds texts"),
    ],
)
def test_broken_files_are_told_in_one_message(tmp_path, capsys, file, content, message):
    folder = write_run(tmp_path / "run", live=records([10]))
    (folder / file).unlink() if content is None else (folder / file).write_text(content)
    assert run(main, [str(folder), "--output", str(tmp_path / "plots")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {folder / file}")
    assert message in error
    assert not (tmp_path / "plots").exists()


def test_a_try_is_labelled_and_its_own_live_log_read(tmp_path):
    run_folder = write_run(tmp_path / "quick", live=records([1, 2]))
    (run_folder / "try").mkdir()
    (run_folder / "live").rename(run_folder / "try/live")
    (run_folder / "live").mkdir()
    (run_folder / "live/log.jsonl").write_text(json.dumps(records([1], rate=7.0)[0]) + "\n")
    (run_folder / "model").mkdir()
    (run_folder / "model/recipe.yaml").write_text("train: {try: true}")
    assert read_log(run_folder).live["images_per_second"] == ([1, 2], [40.0, 40.0])
    assert labels_of([run_folder]) == ["quick (TRY)"]
