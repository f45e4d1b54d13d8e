"""A try: what of a recipe is cut short, and what stays as it is written."""

from pathlib import Path

import pytest
import toy

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.recipe.dotted_keys import leaves
from figura.recipe.load import check_recipe, load_recipe
from figura.recipe.resolved import settings
from figura.recipe.trial import is_try, mark, scratch, short_evaluation, short_metrics

ROOT = Path(__file__).parents[2]
RECIPES = ["params.yaml", *(f"recipes/{path.name}" for path in sorted((ROOT / "recipes").glob("*.yaml")))]
PUBLISHED = [f"recipes/published/{path.name}" for path in sorted((ROOT / "recipes/published").glob("*.yaml"))]


@pytest.mark.parametrize("file", [*RECIPES, *PUBLISHED])
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


def test_a_recipe_that_is_no_try_stays_as_it_is():
    recipe = load_recipe(ROOT / "params.yaml", ["metrics"], {})
    written = dict(leaves(read_yaml(ROOT / "params.yaml")["train"]))
    assert {key: one for key, one in leaves(recipe.train.model_dump(by_alias=True)) if key in written} == written
    assert (recipe.runtime.log_every, mark(recipe), scratch(Path("run"), recipe)) == (100, "", Path("run"))


def test_grids_averages_and_resamples():
    recipe = load_recipe(ROOT / "params.yaml", ["metrics"], {})
    short = short_evaluation(recipe).evaluate
    assert (recipe.evaluate.grids["transfer"].size, short.grids["transfer"].size) == (8, 4)
    assert (recipe.evaluate.averages["mean_target"].examples, short.averages["mean_target"].examples) == (2000, 64)
    assert short.modes == recipe.evaluate.modes
    assert (recipe.metrics.bootstrap, short_metrics(recipe).metrics.bootstrap) == (500, 50)
    assert short_metrics(toy.checked()).metrics.bootstrap == 20


def test_mark_and_folder():
    recipe = toy.checked({"train.try": True})
    assert mark(recipe) == "TRY of 10 steps, no result"
    assert scratch(Path("runs/toy"), recipe) == Path("runs/toy/try")


def test_the_recipe_beside_weights_says_it(tmp_path):
    assert not is_try(tmp_path)
    for text, said in (("train: {try: true}", True), ("train: {try: false}", False), ("seed: 1", False)):
        (tmp_path / "recipe.yaml").write_text(text)
        assert is_try(tmp_path) is said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train.try": 1}, "train.try: found 1; expected a boolean"),
        ({"train.try_": True}, "train.try_: unknown key 'try_' (did you mean 'try'?)"),
        (
            {"metrics.scores": {"try": {"type": "toy.Mean", "column": "loss.distance"}}},
            "metrics.scores.try: the metrics",
        ),
    ],
)
def test_faults(changes, said):
    with pytest.raises(UserError) as caught:
        check_recipe(toy.changed(changes), Path("toy.yaml"))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"toy.yaml: {said}")
