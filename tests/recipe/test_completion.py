"""Completing a recipe: `data.common`, `evaluate.data`, and facts of the training data."""

from typing import Any, ClassVar

import pytest
import toy

from figura.base.errors import UserError
from figura.interfaces import Callback
from figura.prediction.comparison import Comparison
from figura.prediction.inputs import PhotoExamples


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


class Other(toy.Ramps):
    """Ramps that call their length `size`."""

    def __init__(self, size: int) -> None:
        super().__init__(size)


class Wide(Callback):
    """A callback that wants a width of the data."""

    from_data: ClassVar[tuple[str, ...]] = ("width",)

    def __init__(self, width: int) -> None:
        self.width = width

    def before_iteration(self, trainer):
        pass


class AsWide(Comparison):
    """A comparison that wants a width of the data."""

    from_data: ClassVar[tuple[str, ...]] = ("width",)

    def __init__(self, target: str, width: int) -> None:
        super().__init__(target=target)
        self.width = width


class Photos(PhotoExamples):
    """Photos with the names of ramps."""

    names: ClassVar[tuple[str, ...]] = ("x", "y", "index")


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


@pytest.mark.parametrize(
    ("own", "judged"),
    [
        (None, {"length": 8, "jitter": 0.5}),
        ({"length": 3}, {"length": 3, "jitter": 0.5}),
        ({"type": "toy.Ramps", "length": 3}, {"length": 3, "jitter": 0.5}),
        ({"type": NAME("Other"), "size": 3}, {"size": 3}),  # another type inherits nothing
    ],
)
def test_evaluation_uses_the_validation_data_unless_it_names_its_own(own, judged):
    validation = {"ramps": {"type": "toy.Ramps", "length": 8, "jitter": 0.5}}
    recipe = toy.checked({"data.validation": validation, "evaluate.data": {} if own is None else {"ramps": own}})
    assert recipe.evaluate.data["ramps"].arguments == judged
    assert recipe.data.validation["ramps"].arguments == {"length": 8, "jitter": 0.5}


def test_an_argument_of_another_type_is_blamed_where_it_is_written():
    own = {"ramps": {"type": NAME("Other"), "size": 3, "jitter": 1.0}}
    with pytest.raises(UserError, match=r"^toy\.yaml: evaluate\.data\.ramps\.jitter: unknown argument of Other 'jit"):
        toy.checked({"evaluate.data": own})


def sized(width: int) -> dict[str, Any]:
    return {"ramps": {"type": NAME("Sized"), "length": 8, "width": width}}


PLAIN = {"plain": {"type": "toy.Ramps", "length": 4}}


@pytest.mark.parametrize(
    ("train", "own", "arguments", "facts"),
    [
        (sized(5), {}, {"width": 5}, {"width": 5, "colour": "grey"}),
        (sized(5), {"width": 2}, {"width": 2}, {"width": 5, "colour": "grey"}),
        (PLAIN | sized(5) | {"second": sized(5)["ramps"]}, {}, {"width": 5}, {"width": 5, "colour": "grey"}),
        (PLAIN | sized(5) | {"second": sized(6)["ramps"]}, {}, {}, {"colour": "grey"}),
    ],
    ids=["one dataset", "the recipe's own value wins", "several that agree", "several that differ in one"],
)
def test_facts_of_the_training_data_fill_what_a_type_takes_from_the_data(train, own, arguments, facts):
    changes = {"data.train": train, "data.validation": sized(7), "networks.painter": {"type": NAME("Fitting")} | own}
    recipe = toy.checked(changes)
    assert recipe.networks["painter"].arguments == arguments
    assert recipe.facts == facts


def test_facts_reach_callbacks_and_comparisons():
    predict = {"data": {"type": NAME("Photos")}, "mode": "plain", "save": {"image": "image"},
               "compare": {"image": {"type": NAME("AsWide"), "target": "y"}}}  # fmt: skip
    recipe = toy.checked({"data.train": sized(5), "callbacks": {"wide": {"type": NAME("Wide")}}, "predict": predict})
    assert recipe.callbacks["wide"].arguments == {"width": 5}
    assert recipe.predict.compare["image"].arguments == {"target": "y", "width": 5}


class Chained(Sized):
    """Ramps that take their colour from the data."""

    from_data: ClassVar[tuple[str, ...]] = ("colour",)

    def __init__(self, length: int, width: int, colour: str = "red") -> None:
        super().__init__(length, width)
        self.colour = colour

    @classmethod
    def facts(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"colour": arguments.get("colour", f"of width {arguments['width']}")}


def test_what_datasets_take_from_the_data_is_of_the_first_and_reaches_the_others():
    train = {name: {"type": NAME("Chained"), "length": 8, "width": width} for name, width in (("a", 5), ("b", 6))}
    train["c"] = train["b"] | {"colour": "own"}
    recipe = toy.checked({"data.train": train})
    assert recipe.facts == {"colour": "of width 5"}
    assert [recipe.data.train[name].arguments["colour"] for name in "abc"] == ["of width 5", "of width 5", "own"]
