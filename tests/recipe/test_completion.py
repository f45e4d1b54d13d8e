"""Completing a recipe: `data.common`, `evaluate.data`, and facts of the training data."""

from typing import Any, ClassVar

import pytest
import toy
from torch import nn

from models.base.errors import UserError


class Sized(toy.Ramps):
    """Ramps that tell the rest of a recipe how wide they are."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__(length)
        self.width = width

    @classmethod
    def facts(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"width": arguments["width"], "colour": "grey"}


class Fitting(toy.Painter):
    """A painter as wide as the data."""

    from_data: ClassVar[tuple[str, ...]] = ("width",)


class Plain(nn.Module):
    """A network that asks for nothing."""


NAME = f"{__name__}.{{}}".format


def test_common_arguments_reach_every_dataset_and_an_entry_wins():
    recipe = toy.checked(
        {
            "data.common": {"type": "toy.Ramps", "jitter": 0.5, "length": 8},
            "data.train": {"a": {"jitter": 0.25}, "b": {"length": 2, "weight": 2.0}},
            "data.validation": {"c": {}},
        }
    )
    assert {name: entry.arguments for name, entry in (recipe.data.train | recipe.data.validation).items()} == {
        "a": {"jitter": 0.25, "length": 8},
        "b": {"jitter": 0.5, "length": 2},
        "c": {"jitter": 0.5, "length": 8},
    }
    assert recipe.data.train["b"].weight == 2.0


def test_common_must_be_a_map():
    with pytest.raises(UserError, match=r"toy.yaml: data.common: found 3; expected a map of arguments"):
        toy.checked({"data.common": 3})


def test_evaluation_uses_the_validation_data_unless_it_names_its_own():
    validation = {"ramps": {"type": "toy.Ramps", "length": 8, "jitter": 0.5}}
    recipe = toy.checked({"data.validation": validation})
    assert recipe.evaluate.data["ramps"].arguments == {"length": 8, "jitter": 0.5}
    judged = toy.checked({"data.validation": validation, "evaluate.data": {"ramps": {"length": 3}}})
    assert judged.evaluate.data["ramps"].arguments == {"length": 3, "jitter": 0.5}
    assert judged.data.validation["ramps"].arguments == {"length": 8, "jitter": 0.5}


def test_data_for_evaluation_without_an_entry_are_those_of_validation():
    validation = {"ramps": {"type": "toy.Ramps", "length": 8}}
    for nothing in ({}, None):
        recipe = toy.checked({"data.validation": validation, "evaluate.data": nothing})
        assert recipe.evaluate.data == recipe.data.validation


def test_faults_of_the_data_for_evaluation_stand_at_its_key():
    with pytest.raises(UserError, match=r"toy.yaml: evaluate.data.ramps.lenght: unknown argument.*'length'") as error:
        toy.checked({"data.validation": {"ramps": {"type": "toy.Ramps", "length": 8}},
                     "evaluate.data": {"ramps": {"lenght": 3}}})  # fmt: skip
    assert "data.validation" not in str(error.value)


def sized(width: int) -> dict[str, Any]:
    return {"ramps": {"type": NAME("Sized"), "length": 8, "width": width}}


def test_facts_of_the_training_data_fill_what_a_type_takes_from_the_data():
    recipe = toy.checked(
        {"data.train": sized(5), "data.validation": sized(7), "networks.painter": {"type": NAME("Fitting")}}
    )
    assert recipe.networks["painter"].arguments == {"width": 5}
    assert recipe.facts == {"width": 5, "colour": "grey"}


def test_a_value_in_the_recipe_wins_over_a_fact():
    recipe = toy.checked(
        {"data.train": sized(5), "data.validation": sized(5),
         "networks.painter": {"type": NAME("Fitting"), "width": 2}}
    )  # fmt: skip
    assert recipe.networks["painter"].arguments == {"width": 2}


def test_the_first_dataset_that_has_a_fact_counts():
    train = {"plain": {"type": "toy.Ramps", "length": 4}, "first": sized(5)["ramps"], "second": sized(6)["ramps"]}
    recipe = toy.checked({"data.train": train, "networks.painter": {"type": NAME("Fitting")}})
    assert recipe.networks["painter"].arguments == {"width": 5}


def test_a_recipe_does_not_write_facts():
    with pytest.raises(UserError, match=r"toy.yaml: facts: unknown key 'facts'"):
        toy.checked({"facts": {"width": 3}})
