"""The dump of a try is small and says that it is one; so do its metrics, curves and pictures."""

import json
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import toy

from figura.base.pictures import write_png
from figura.base.yaml12 import to_yaml
from figura.dump import Dump
from figura.evaluation.trained import ignored_settings, load_trained, write_dump
from figura.report.interfaces import Picture
from figura.training.trainer import Trainer
from stages.eval_dump import main as eval_dump
from stages.metrics import main as metrics

MARK = "TRY of 10 steps, no result"
PAINT = toy.recipe()["evaluate"]["modes"]["plain"]
CONTENT = toy.changed(
    {
        "data.validation.ramps.length": 30,
        "evaluate.modes": {"plain": PAINT, "twice": PAINT | {"repeat": 2}},
        "evaluate.grids": {"all": {"rows": ["x"], "columns": ["y"], "size": 6, **PAINT}},
        "evaluate.averages": {"mean": {"of": "x", "examples": 22}},
        "metrics.summary": {"l1": {"metric": "distance.mean", "better": "lower"}},
        "metrics.pictures": {"dark": {"type": "test_trial_dump.Dark"}},
        "runtime.progress": False,
    }
)


class Dark(Picture):
    def __call__(self, dump: Dump, path: Path) -> None:
        write_png(path, np.zeros((40, 400, 3), np.uint8))


def recipe_file(folder, trial):
    path = folder / f"{trial}.yaml"
    path.write_text(to_yaml(toy.changed({"train.try": trial}, CONTENT)))
    return path


@pytest.fixture
def runs(tmp_path):
    """The models of a training and of a try, by whether it is one."""
    for trial in (False, True):
        Trainer(toy.checked({"train.try": trial}, CONTENT), tmp_path / str(trial)).fit()
    return tmp_path


def dumped(runs, model, asked):
    eval_dump([str(recipe_file(runs, asked)), str(runs / str(model))])
    return Dump(runs / str(model) / "dump")


@pytest.mark.parametrize("asked", [True, False])  # the recipe of the moment does not matter, but that of the weights
def test_how_much_is_dumped(runs, asked, capsys):
    small = dumped(runs, True, asked)
    assert capsys.readouterr().out.splitlines()[0] == MARK
    assert small.trial == MARK
    assert small.table["mode"].value_counts().to_dict() == {"plain": 16, "twice": 32}
    assert (len(small.grid("all")), small.average("mean").shape) == (16, (1, 4, 4))
    whole = dumped(runs, False, asked)
    assert MARK not in capsys.readouterr().out
    assert whole.trial == ""
    assert whole.table["mode"].value_counts().to_dict() == {"plain": 30, "twice": 60}
    assert len(whole.grid("all")) == 36


def test_the_other_recipe_is_told(runs):
    asked, trial = (toy.checked({"train.try": chosen}, CONTENT) for chosen in (False, True))
    trained, networks = load_trained(runs / "True/model", asked)
    assert "train.try is False in the recipe; the model was trained with True, which counts here" in ignored_settings(
        asked, trained
    )
    assert ignored_settings(trial, trained) == []
    write_dump(trained, networks, runs / "dumped")
    assert Dump(runs / "dumped").trial == MARK


@pytest.mark.parametrize("trial", [True, False])
def test_metrics_curves_and_pictures(runs, trial, capsys):
    dumped(runs, trial, trial)
    capsys.readouterr()
    metrics([str(recipe_file(runs, not trial)), *(str(runs / one) for one in (str(trial), "m.json", "plots"))])
    assert (capsys.readouterr().out.splitlines()[0] == MARK) is trial
    written = [json.loads((runs / name).read_text()) for name in ("m.json", "full/m.json")]
    figures = [one["try"] for one in written] if trial else written
    assert [list(one) for one in figures] == [["l1"], ["distance"]]
    assert [len(one) for one in written] == [1, 1]
    for name in ("losses", "contributions", "updates"):
        titles = set(pd.read_csv(runs / f"plots/{name}.csv")["name"])
        assert all(title.startswith("TRY ") is trial for title in titles)
    assert cv2.imread(str(runs / "plots/pictures/dark.png"))[:-40].min() < 128  # text above the picture
    assert (runs / "plots/pictures/losses.png").is_file()
