"""Recipes that are right, names that gates and mixtures hide, and what is saved of a recipe (faults: messages.txt)."""

import pytest
import toy
from toy import Path

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.recipe.load import check_recipe, load_recipe
from figura.recipe.resolved import resolved

PAINT = "steps.painter.injectors.paint"


def faults(changes, content=None):
    with pytest.raises(UserError) as caught:
        check_recipe(toy.changed(changes, content), Path("params.yaml"))
    return str(caught.value).splitlines()


def test_the_toy_recipes_are_right():
    assert toy.checked().losses["distance"].weight == 2.0
    assert list(toy.checked(content=toy.gan()).steps) == ["critic", "painter"]


@pytest.mark.parametrize(
    ("maker", "reader", "fits"),
    [
        ({"every": 2}, {}, False),
        ({"every": 2}, {"every": 2}, True),
        ({"every": 2}, {"every": 4}, True),
        ({"every": 2}, {"every": 4, "after": 1}, False),
        ({"every": 2, "after": 1}, {"every": 4, "after": 3}, True),
        ({"every": 3}, {"every": 2}, False),
        ({"after": 5}, {}, False),
        ({"after": 5}, {"after": 5}, True),
        ({"before": 5}, {}, False),
        ({"before": 5}, {"before": 5}, True),
        ({"before": 5}, {"before": 4}, True),
        ({"before": 5}, {"before": 6}, False),
        ({}, {"every": 2, "after": 3, "before": 9}, True),
    ],
)
def test_a_name_is_visible_where_its_step_always_runs(maker, reader, fits):
    changes = {f"steps.critic.{key}": value for key, value in maker.items()}
    changes |= {f"steps.painter.{key}": value for key, value in reader.items()}
    if fits:
        toy.checked(changes, toy.gan())
    else:
        assert any("'image' is not there in every iteration" in line for line in faults(changes, toy.gan()))


def test_mixed_datasets_provide_what_all_of_them_provide():
    named = {"type": "toy.Named", "length": 8}
    content = toy.changed({f"{PAINT}.inputs": {"x": "word"}})
    both = {"ramps": toy.recipe()["data"]["train"]["ramps"], "named": named}
    (line, *_) = faults({"data.train": both, "data.validation": {"named": named}}, content)
    assert "'word' comes from some datasets only; a step that reads it says `requires: [word]`" in line
    toy.checked({"data.train": {"named": named}, "data.validation": {"named": named}}, content)


def test_lists_become_the_tuples_that_a_type_asks_for():
    from torch import nn

    from figura.base.error_collector import ErrorCollector
    from figura.recipe.types import OPTIMIZER, construct

    errors = ErrorCollector(Path("p"))
    adam = construct(
        "torch.optim.Adam",
        {"lr": 1, "betas": [0.5, 0.9]},
        OPTIMIZER,
        "o",
        errors,
        params=nn.Linear(1, 1).parameters(),
    )
    assert not errors.lines
    assert adam.defaults["betas"] == (0.5, 0.9)


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


def test_missing_and_undecodable_files(tmp_path):
    with pytest.raises(UserError, match=r"p\.yaml: no such file"):
        load_recipe(tmp_path / "p.yaml")
    (tmp_path / "p.yaml").write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(UserError, match=r"byte 3 is no UTF-8"):
        load_recipe(tmp_path / "p.yaml")
