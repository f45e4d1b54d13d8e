"""`figura.load` from anywhere: which recipe, whose classes, and that the caller's process stays as it was."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import toy
import toy_photos
from huggingface_hub import constants

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml, to_yaml
from figura.engine.build import build_networks
from figura.prediction import runner
from figura.prediction.predictor import load
from figura.recipe.load import check_recipe
from figura.recipe.types import TRUSTED_ONLY
from figura.training.checkpoints import write_model

ROOT = Path(__file__).parents[2]
NAMED = "vars: [{recipes: {reds: {params: recipe.yaml}, draft: {}, later: null}}]\n"
OWN = '''
from toy_photos import Reds

class Mine(Reds):
    """What this project takes for photos."""

    def examples(self, photo):
        return [one | {{"x": 0 * one["x"] + {level}}} for one in super().examples(photo)]
'''
PICTURE = np.full((6, 9, 3), 50, np.uint8)


@pytest.fixture
def modules(monkeypatch):
    """Forget the modules of the test's projects."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("photos_of_mine", None)


def project(folder: Path, level: float, pipeline: str = NAMED) -> Path:
    """Write a project whose own photos are of one level; return its run."""
    toy_photos.write_run(folder)
    (folder / "runs").mkdir()
    (folder / "run").rename(folder / "runs/reds")
    recipe = read_yaml(folder / "recipe.yaml")
    recipe["predict"]["data"] = {"type": "photos_of_mine.Mine"}
    (folder / "recipe.yaml").write_text(to_yaml(recipe))
    (folder / "photos_of_mine.py").write_text(OWN.format(level=level))
    (folder / "dvc.yaml").write_text(pipeline)
    return folder / "runs/reds"


def level(predictor) -> int:
    (one,) = predictor.predict(PICTURE)
    (value,) = np.unique(one.draw())
    return int(value)


@pytest.mark.parametrize("named", [False, True], ids=["the recipe of the pipeline", "a recipe by its path"])
def test_classes_of_the_project_are_found_from_elsewhere(named, tmp_path, monkeypatch, modules):
    run = project(tmp_path / "a", 1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = list(sys.path)
    predictor = load(run, recipe=tmp_path / "a/recipe.yaml" if named else None)
    assert level(predictor) == 255
    assert sys.path == path


def test_modules_of_two_projects_in_one_process(tmp_path, modules):
    runs = [project(tmp_path / name, value) for name, value in (("a", 1), ("b", -1))]
    first = load(runs[0])
    with pytest.raises(UserError, match=r"/b: its module 'photos_of_mine' cannot be imported.*/a/photos_of_mine\.py; "):
        load(runs[1])
    assert level(first) == 255
    assert level(load(runs[0])) == 255
    del sys.modules["photos_of_mine"]
    assert level(load(runs[1])) == 0


@pytest.mark.parametrize("before", [None, "0"])
def test_what_trusts_figuras_types_alone_ends_with_load_and_predict(before, tmp_path, monkeypatch):
    small = {"networks.generator.features": 4, "networks.generator.growth": 4, "networks.discriminator.features": 4,
             "data.common.root": "nowhere"}  # fmt: skip
    content = toy.changed(small, toy.shipped("recipes/super_resolution.yaml"))
    recipe = check_recipe(content, Path("r.yaml"), ("train", "evaluate", "predict"), {"scale": 2})
    write_model(tmp_path / "model", build_networks(recipe), recipe, {})
    (tmp_path / "r.yaml").write_text(to_yaml(content))
    for name in ("HF_HUB_OFFLINE", TRUSTED_ONLY):
        monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv("HF_HUB_OFFLINE", before)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(UserError, match=r"found 'photos_of_mine\.Mine'; --trusted-types-only takes types of figura"):
        load(project(tmp_path / "a", 1), trusted_types_only=True)
    assert "photos_of_mine" not in sys.modules
    environment, seen, build = dict(os.environ), [], runner.named_injectors

    def recorded(*arguments):
        seen.append((os.environ["HF_HUB_OFFLINE"], bool(os.environ.get(TRUSTED_ONLY)), constants.HF_HUB_OFFLINE))
        return build(*arguments)

    monkeypatch.setattr(runner, "named_injectors", recorded)
    predictor = load(tmp_path / "model", recipe=tmp_path / "r.yaml", trusted_types_only=True)
    assert dict(os.environ) == environment
    assert predictor.predict(PICTURE)[0].draw().shape == (12, 18, 3)
    assert dict(os.environ) == environment
    assert constants.HF_HUB_OFFLINE is False
    assert set(seen) == {("1", True, True)}  # when a prediction looks types up


@pytest.mark.parametrize(
    "pipeline", ["vars: [{recipes: {reds: null}}, {recipes: null}, params.yaml]", "vars: params.yaml"]
)
def test_pipelines_of_others(pipeline, tmp_path, modules):
    run = project(tmp_path / "a", 1, pipeline)
    with pytest.raises(UserError, match=r"names its recipe; name the params file, such as params\.yaml$"):
        load(run)
    with pytest.raises(UserError, match="there is no module 'photos_of_mine'"):
        load(run, recipe=tmp_path / "a/recipe.yaml")  # it is not of that pipeline


def test_pipelines_that_do_not_matter_are_not_read(tmp_path, modules):
    run = project(tmp_path / "outer/a", 1)
    (tmp_path / "outer/dvc.yaml").write_text("vars: [")
    assert level(load(run)) == 255
    (tmp_path / "outer/a/dvc.yaml").write_text("vars: [")
    with pytest.raises(UserError, match=r"a/dvc\.yaml:\d+:\d+: not valid YAML"):
        load(run)
    toys = toy_photos.write_run(tmp_path / "outer/a")
    assert level(load(toys[1], recipe=toys[0])) == 50  # asked for by its path
