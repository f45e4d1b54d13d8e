"""Recipes that are right (faults: messages.txt), what is saved of them, and which code a part of them loads."""

import re
from pathlib import Path

import pytest
import toy
from loading import modules_loaded_by

from figura.base.error_collector import ErrorCollector
from figura.base.yaml12 import read_yaml
from figura.recipe.load import check_recipe
from figura.recipe.resolved import resolved
from figura.recipe.types import LOSS, NETWORK, find_type


def test_resolved_is_a_recipe_again(tmp_path):
    recipe = toy.checked({"steps.painter.optimizer.lr": 3e-7, "steps.painter.optimizer.eps": 1e-30})
    text = resolved(recipe)
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    content = read_yaml(path)
    assert list(content) == ["seed", "data", "networks", "losses", "steps", "train", "callbacks"]
    assert content["losses"]["square"]["schedule"] == {"type": "Linear", "start": 2, "end": 6, "from": 0.0, "to": 1.0}
    assert content["steps"]["painter"]["every"] == 1  # defaults filled in
    assert content["train"]["precision"] == "no"
    rest = {section: toy.recipe()[section] for section in ("evaluate", "metrics", "runtime")}
    again = check_recipe(content | rest, path)
    assert again.read_from(recipe.path) == recipe
    assert resolved(again) == text


ROOT = Path(__file__).parents[2]
RECIPES = ["params.yaml", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/*.yaml"))]
CHECK = """
from pathlib import Path
from figura.recipe.load import load_recipe
load_recipe(Path({recipe!r}), [{part!r}], {facts})
"""


def loaded_by_check(recipe, part):
    """Return the modules that are loaded by checking a recipe for a part."""
    facts = {"stride": 8} if part == "metrics" else None  # these come from the dump
    return modules_loaded_by(CHECK.format(recipe=str(ROOT / recipe), part=part, facts=facts))


def named_by(recipe, part, slot):
    """Return the modules that define the classes of a part of a recipe."""
    entries = toy.shipped(recipe).get(part, {}).values()
    return {find_type(entry["type"], slot, part, ErrorCollector(Path(recipe))).__module__ for entry in entries}


def matching(pattern, names):
    return [name for name in names if re.match(pattern, name)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_for_metrics_neither_the_engine_nor_training_nor_a_systems_networks_are_loaded(recipe):
    names = loaded_by_check(recipe, "metrics")
    assert "figura.recipe.check_metrics" in names
    assert matching(r"figura\.(engine|training|injectors|optimizers|evaluation|live)\b", names) == []
    networks = named_by(recipe, "networks", NETWORK)
    assert networks
    assert not {*networks, *named_by(recipe, "losses", LOSS)} & names.keys()
    assert matching(r"models\.\w+\.decode\b", names) == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_for_evaluation_neither_training_nor_optimizers_nor_reports_are_loaded(recipe):
    names = loaded_by_check(recipe, "evaluate")
    assert "figura.recipe.check" in names
    assert named_by(recipe, "networks", NETWORK) <= names.keys()
    assert not named_by(recipe, "losses", LOSS) & names.keys()
    assert matching(r"figura\.(training|optimizers|report|live)\b|models\.\w+\.(scores|plots|sheets)\b", names) == []
