"""A model folder is evaluated as another recipe asks; a try says that it is one; a network judges another's dump."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
import toy
from dumps_by_hand import sealed
from skeletons_by_hand import DOG

from figura.base.checksums import write_sums
from figura.base.errors import UserError
from figura.base.lock import hold
from figura.base.pictures import write_png
from figura.base.yaml12 import to_yaml
from figura.dump import Dump
from figura.engine.build import build_networks
from figura.evaluation.trained import ignored_settings, load_trained, refuse_foreign, with_split, write_dump
from figura.report.interfaces import Picture
from figura.training.checkpoints import write_model
from figura.training.trainer import Trainer
from stages.eval_dump import main as eval_dump
from stages.metrics import main as metrics
from stages.pose_consistency import judging_content, refuse_other_joints


class Split(toy.Ramps):
    def __init__(self, length: int, split: str = "validation", jitter: float = 0.0) -> None:
        super().__init__(length, jitter)
        self.split = split


@pytest.fixture
def model(tmp_path):
    """Trained with noise in what validates."""
    validation = {"ramps": {"type": "test_trained.Split", "length": 8, "jitter": 0.5}}
    recipe = toy.checked({"data.validation": validation}, toy.gan())
    write_model(tmp_path / "model", build_networks(recipe), recipe, {})
    return tmp_path / "model"


def test_what_the_recipe_no_longer_has_is_told_or_does_not_come_back(model):
    validation = {"ramps": {"type": "test_trained.Split", "length": 8}}
    for changes in ({}, {"evaluate.data": {"ramps": {"length": 3}}}):
        asked = toy.checked({"data.validation": validation} | changes, toy.gan())
        recipe, _ = load_trained(model, asked)
        assert recipe.evaluate.data == asked.evaluate.data
        assert "jitter" not in with_split(recipe, "test").evaluate.data["ramps"].arguments
    changes = {"losses.distance": ..., "losses.fool.weight": 2.0, "train.steps": 13}
    asked = toy.checked(changes, toy.gan())
    trained, _ = load_trained(model, asked)
    assert sorted(ignored_settings(asked, trained)) == [
        "losses.distance is not in the recipe; the model was trained with it, which counts here",
        "losses.fool.weight is 2.0 in the recipe; the model was trained with 1.0, which counts here",
        "train.steps is 13 in the recipe; the model was trained with 12, which counts here",
    ]
    alone = toy.checked({"train.ema": None})
    lines = ignored_settings(alone, trained)
    for key in ("networks.critic", "steps.critic", "losses.real"):
        assert f"{key} is not in the recipe; the model was trained with it, which counts here" in lines
    assert not ignored_settings(toy.checked({}, toy.gan()), trained)


@pytest.mark.parametrize("name", ["critic.safetensors", "recipe.yaml"])
def test_a_flipped_bit_of_a_model_is_told(name, model):
    content = bytearray((model / name).read_bytes())
    content[-2] ^= 1
    (model / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"model/{name}: its SHA-256 is another than in .*model/SHA256SUMS"):
        load_trained(model, toy.checked({}, toy.gan()))


def test_a_dump_takes_the_place_of_what_a_killed_process_left(tmp_path):
    """It left its lock, before anything else and then beside half a dump; the lock is held until the dump is whole."""
    recipe, folder = toy.checked(), tmp_path / "dump"
    folder.mkdir()
    (folder / ".lock").touch()
    refuse_foreign(folder)
    (folder / "old").mkdir()
    for name in ("examples.csv.0f.unfinished", "old/0.npy"):
        (folder / name).touch()
    refuse_foreign(folder)
    with hold(folder):
        write_dump(recipe, build_networks(recipe), folder)
        assert (folder / ".lock").is_file()
    assert {"old", ".lock", "examples.csv.0f.unfinished"}.isdisjoint(path.name for path in folder.iterdir())
    assert (folder / "examples.csv").is_file()


MARK = "TRY of 10 steps, no result"
PAINT = toy.recipe()["evaluate"]["modes"]["plain"]
CONTENT = toy.changed(
    {
        "data.validation.ramps.length": 30,
        "evaluate.modes": {"plain": PAINT, "twice": PAINT | {"repeat": 2}},
        "evaluate.grids": {"all": {"rows": ["x"], "columns": ["y"], "size": 6, **PAINT}},
        "evaluate.averages": {"mean": {"of": "x", "examples": 22}},
        "metrics.summary": {"l1": {"metric": "distance.mean", "better": "lower"}},
        "metrics.pictures": {"dark": {"type": "test_trained.Dark"}},
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The models of a training and of a try, by whether it is one."""
    folder = tmp_path_factory.mktemp("runs")
    for trial in (False, True):
        Trainer(toy.checked({"train.try": trial}, CONTENT), folder / str(trial)).fit()
    return folder


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
    recipe = toy.checked({"train.try": asked}, CONTENT)
    told = ignored_settings(recipe, load_trained(runs / "True/model", recipe)[0])
    said = "train.try is False in the recipe; the model was trained with True, which counts here"
    assert told == [] if asked else said in told
    whole = dumped(runs, False, asked)
    assert MARK not in capsys.readouterr().out
    assert whole.trial == ""
    assert whole.table["mode"].value_counts().to_dict() == {"plain": 30, "twice": 60}
    assert len(whole.grid("all")) == 36


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


JUDGE = "seed: 3\nnetworks: {net: {type: toy.Net}}\nfacts: {side: 97}\n"
OWN = "evaluate: {batch_size: 2, data: {people: {side: 5}}}\nmetrics: {bootstrap: 5}\nruntime: {workers: 0}\n"


@pytest.fixture
def judge_of_people(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(JUDGE)
    write_sums(folder)
    return folder


def written(folder: Path, text: str) -> Path:
    path = folder / "judge.yaml"
    path.write_text(text)
    return path


def test_the_trained_network_and_how_it_judges(tmp_path, judge_of_people):
    content, facts = judging_content(written(tmp_path, OWN), judge_of_people, Path("drawn"))
    assert facts == {"side": 97}
    assert content == {
        "seed": 3, "networks": {"net": {"type": "toy.Net"}}, 
        "evaluate": {"batch_size": 2, "data": {"people": {"dump": "drawn", "side": 5}}},
        "metrics": {"bootstrap": 5}, "runtime": {"workers": 0},
    }  # fmt: skip


@pytest.mark.parametrize("part", ["evaluate", "evaluate.data", "evaluate.data.people"])
def test_who_judges_may_extend_another(part, tmp_path, judge_of_people, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("other.yaml").write_text(OWN)
    section: dict[str, Any] = {"extends": f"other.yaml#{part}"}
    for name in reversed(part.split(".")):
        section = {name: section}
    content, _ = judging_content(
        written(tmp_path, to_yaml(section | {"metrics": {"bootstrap": 5}})), judge_of_people, Path("drawn")
    )
    assert content["evaluate"]["data"] == {"people": {"dump": "drawn", "side": 5}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("evaluate: {data: {extends: none}}\nmetrics: {}\n", "judge.yaml: evaluate.data.extends: unknown entry 'none'"),
        (OWN + "losses: {}\n", "judge.yaml: losses: this is of the network in .*model; allowed are evaluate, metrics"),
        ("evaluate: {}\nruntime: {}\n", "judge.yaml: metrics: missing"),
    ],
)
def test_other_sections_are_refused(tmp_path, judge_of_people, text, said):
    with pytest.raises(UserError, match=said):
        judging_content(written(tmp_path, text), judge_of_people, Path("drawn"))


def test_a_dump_of_other_joints_is_refused_and_one_without_joints_is_not(tmp_path):
    (tmp_path / "examples.csv").write_text("mode,index\nm,0\n")
    facts = {"skeleton": DOG}
    refuse_other_joints(Dump(sealed(tmp_path)), facts, Path("model"))  # pairs of pictures, judged by what was read
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    drawn = Dump(sealed(tmp_path))
    refuse_other_joints(drawn, facts, Path("model"))
    with pytest.raises(UserError, match=r"model: finds the 17 joints nose, .* name a network of the same joints"):
        refuse_other_joints(drawn, {}, Path("model"))
