"""A try: what of a recipe is cut short, and what stays as it is written."""

from pathlib import Path

import pytest
import toy

from figura.base.yaml12 import read_yaml
from figura.recipe.load import load_recipe
from figura.recipe.resolved import settings
from figura.recipe.trial import is_try, short_evaluation, short_metrics

ROOT = Path(__file__).parents[2]
RECIPES = ["params.yaml", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "recipes").rglob("*.yaml")))]
TRAINED = [file for file in RECIPES if "train" in read_yaml(ROOT / file)]


@pytest.mark.parametrize("file", TRAINED)
def test_every_recipe_has_the_key_that_s_sets(file):
    assert read_yaml(ROOT / file)["train"]["try"] is False


@pytest.mark.parametrize("content", [toy.recipe(), toy.gan()])
def test_only_the_length_of_the_training_differs(content):
    whole, short = (settings(toy.checked({"train.try": chosen}, content)) for chosen in (False, True))
    assert {key: (whole[key], short[key]) for key in whole if whole[key] != short[key]} == {
        "train.try": (False, True),
        "train.steps": (12, 10),
        "train.evaluate_every": (5, 10),
        "train.evaluate_limit": ("None", 16),
        "train.record_every": (3, 2),
    }


def test_everything_comes_once_at_the_end():
    shown = {"samples": {"names": ["x"], "count": 2, "every": 3}, "scores": {"names": ["distance"], "every": 2}}
    runtime = toy.checked({"train.try": True, **{f"runtime.{key}": one for key, one in shown.items()}}).runtime
    assert runtime.samples is not None
    assert runtime.scores is not None
    assert (runtime.log_every, runtime.samples.every, runtime.scores.every) == (10, None, None)
    assert (runtime.samples.count, runtime.scores.limit) == (2, 16)


def test_what_is_shorter_stays():
    train = toy.checked({"train.try": True, "train.steps": 3, "train.evaluate_limit": 5, "train.record_every": 1}).train
    assert (train.steps, train.evaluate_limit, train.record_every) == (3, 5, 1)
    of_epochs = toy.checked({"train.try": True, "train.steps": ..., "train.epochs": 4}).train
    assert (of_epochs.steps, of_epochs.epochs) == (10, None)


def test_grids_averages_and_resamples():
    recipe = load_recipe(ROOT / "params.yaml", ["metrics"], {})
    short = short_evaluation(recipe).evaluate
    assert (recipe.evaluate.grids["transfer"].size, short.grids["transfer"].size) == (8, 4)
    assert (recipe.evaluate.averages["mean_target"].examples, short.averages["mean_target"].examples) == (2000, 64)
    assert short.modes == recipe.evaluate.modes
    assert (recipe.metrics.bootstrap, short_metrics(recipe).metrics.bootstrap) == (500, 50)
    assert short_metrics(toy.checked()).metrics.bootstrap == 20


def test_the_recipe_beside_weights_says_it(tmp_path):
    assert not is_try(tmp_path)
    for text, said in (("train: {try: true}", True), ("train: {try: false}", False), ("seed: 1", False)):
        (tmp_path / "recipe.yaml").write_text(text)
        assert is_try(tmp_path) is said
