"""Drawing saved runs: what is read, what the figures hold, what is told about broken files."""

import json

import cv2
import pandas as pd
import pytest

from figura.base.exit_status import run
from figura.commands.log_plots import read_log, total_loss
from figura.commands.plot_logs import main

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
PROCESS = {
    "command": ["python", "-m", "stages.train", "a b.yaml"],
    "host": "there",
    "commit": "abc",
    "changed_files": [1],
}


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


def test_live_log_of_a_folder_that_was_trained_in_again_and_resumed(tmp_path):
    fresh, resumed = {"process": PROCESS | {"host": "old"}}, {"process": PROCESS}
    live = [fresh, *records([50, 100, 150], 1.0), fresh, *records([50, 100], 2.0), resumed, *records([100, 150], 3.0)]
    log = read_log(write_run(tmp_path, live=live))
    assert log.live["step"].tolist() == [50, 100, 150]
    assert log.live["images_per_second"].tolist() == [2.0, 3.0, 3.0]
    assert log.process["host"] == "there"


def test_runs_with_different_losses_share_figures_and_say_what_made_them(tmp_path, capsys):
    one = write_run(tmp_path / "one", live=[{"process": PROCESS}, *records([10, 20])])
    other = TRAIN.rename(columns=lambda name: name.replace("late", "L1"))
    two = write_run(tmp_path / "two", other, VALIDATION[["step", "caf.raw"]])
    assert run(main, [str(one), str(two), "--output", str(tmp_path / "plots")]) == 0
    told = capsys.readouterr().out
    assert f"one ({one})" in told
    assert "python -m stages.train 'a b.yaml'" in told
    assert "commit      abc, 1 files changed; on there" in told
    assert "training    step 30: caf 1, caf.vector 0.5, late 3, G.lr 0, G.grad_norm 3" in told
    assert "validation  step 30: caf 2\n" in told
    assert "not known" in told
    for name in ("losses.png", "training.png"):
        for colour in ((31, 119, 180), (255, 127, 14)):  # the first two of matplotlib's cycle
            assert drawn(tmp_path / "plots" / name, colour) > 100
    assert run(main, [str(one), "--output", str(tmp_path / "alone")]) == 0
    # caf, caf.vector and late, without L1: the same two rows; without live log there is no speed to draw
    heights = {folder: cv2.imread(str(tmp_path / folder / "training.png")).shape[0] for folder in ("alone", "plots")}
    assert run(main, [str(two), "--output", str(tmp_path / "untimed")]) == 0
    assert heights["alone"] == heights["plots"] > cv2.imread(str(tmp_path / "untimed/training.png")).shape[0]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("history/train.csv", None, "no such file; training writes it when it ends; run train again"),
        ("history/train.csv", "step,caf.raw\n10,much\n", "column 'caf.raw' holds texts"),
        ("live/log.jsonl", '{"step": 1}\n{"step": ', ":2: no record of a training"),
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


def test_a_try_is_labelled_and_its_own_live_log_read(tmp_path, capsys):
    run_folder = write_run(tmp_path / "quick", live=[{"process": PROCESS}, *records([1, 2], rate=40.0)])
    (run_folder / "try").mkdir()
    (run_folder / "live").rename(run_folder / "try/live")
    (run_folder / "live").mkdir()
    (run_folder / "live/log.jsonl").write_text(json.dumps({"process": PROCESS | {"host": "elsewhere"}}) + "\n")
    (run_folder / "model").mkdir()
    (run_folder / "model/recipe.yaml").write_text("train: {try: true}")
    main([str(run_folder), "--output", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert said.startswith("quick (TRY) (")
    assert "on there" in said
