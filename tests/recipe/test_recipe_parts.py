"""A recipe that is checked for a part loads the code of that part alone."""

import re
from pathlib import Path

import pytest
from loading import modules_loaded_by

ROOT = Path(__file__).parents[2]
RECIPES = ["params.yaml", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/*.yaml"))]
CHECK = """
from pathlib import Path
from models.recipe.load import load_recipe
load_recipe(Path({recipe!r}), [{part!r}], {facts})
"""
FIND = """
from pathlib import Path
from models.base.error_collector import ErrorCollector
from models.recipe.types import LOSS, find_type
assert find_type("images.L1", LOSS, "", ErrorCollector(Path())).__name__ == "L1"
"""


def loaded_by_check(recipe, part):
    """Return the modules that are loaded by checking a recipe for a part."""
    facts = {"stride": 8} if part == "metrics" else None  # these come from the dump
    return modules_loaded_by(CHECK.format(recipe=str(ROOT / recipe), part=part, facts=facts))


def matching(pattern, names):
    return [name for name in names if re.match(pattern, name)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_for_metrics_neither_the_engine_nor_training_nor_a_systems_networks_are_loaded(recipe):
    names = loaded_by_check(recipe, "metrics")
    assert "models.recipe.check_metrics" in names
    assert (
        matching(r"models\.(engine|training|ops|optimizers|evaluation|live)\b|models\.\w+\.(train|decode)\b", names)
        == []
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_for_evaluation_neither_training_nor_optimizers_nor_reports_are_loaded(recipe):
    names = loaded_by_check(recipe, "evaluate")
    assert "models.recipe.check" in names
    assert matching(r"models\.(training|optimizers|report|live)\b|models\.\w+\.report\b", names) == []


def test_looking_a_class_up_loads_the_module_that_defines_it_alone():
    assert matching(r"models\.images\b", modules_loaded_by(FIND)) == [
        "models.images", "models.images.losses", "models.images.losses.pixel",
    ]  # fmt: skip
