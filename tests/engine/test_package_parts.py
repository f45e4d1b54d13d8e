"""Networks and losses of other packages stand in a recipe by their own names."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import toy
from torch import nn

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.interfaces import Example, ExampleDataset
from figura.recipe.types import NETWORK, find_type
from figura.training.trainer import Trainer


class Photos(ExampleDataset):
    """`x` (3, 64, 64) in [0, 1], `y` its negative, `mask` (1, 64, 64) of 0 and 1."""

    names: ClassVar[tuple[str, ...]] = ("x", "y", "mask", "index")

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def example(self, index: int, random: np.random.Generator) -> Example:
        x = np.random.default_rng(index).uniform(0, 1, (3, 64, 64)).astype(np.float32)
        mask = np.zeros((1, 64, 64), np.float32)
        mask[:, : 8 + index % 8 * 4] = 1
        return {"x": x, "y": 1 - x, "mask": mask, "index": index}


def make(width: int, **more: Any) -> nn.Module:
    """A function that returns a network."""
    return toy.Painter(width, **more)


def made_of(width: int):
    return toy.Painter(width)


def no_module(width: int) -> nn.Module:
    return width  # type: ignore[return-value]


def fit(changes: dict[str, Any], run: Path) -> Trainer:
    trainer = Trainer(toy.checked({"runtime.states": False} | changes), run)
    trainer.fit()
    return trainer


def refused(changes: dict[str, Any], run: Path) -> str:
    """Return the single line that a training with these changes is refused with, without the recipe's name."""
    with pytest.raises(UserError) as told:
        fit(changes, run)
    (line,) = str(told.value).splitlines()
    return line.partition(": ")[2]


MAKE = {"type": "test_package_parts.make", "width": 2}


def test_a_function_that_returns_a_network_stands_for_it(tmp_path):
    by_class = fit({}, tmp_path / "class")
    by_function = fit({"networks.painter": MAKE | {"dropout": 0.1}}, tmp_path / "function")
    weights = [one.networks.live["painter"].state_dict() for one in (by_class, by_function)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(one, weights[1][name]) for name, one in weights[0].items())
    model = (tmp_path / "function/model/painter.safetensors").read_bytes()
    assert model == (tmp_path / "class/model/painter.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (MAKE | {"width": "2"}, "networks.painter.width: found '2'; expected an integer"),
        ({"type": MAKE["type"]}, "networks.painter.width: missing; make needs it"),
        (MAKE | {"droput": 0.1}, "networks.painter: test_package_parts.make: TypeError: Painter.__init__() got an"),
        (MAKE | {"type": "test_package_parts.no_module"}, "gives a int; a torch.nn.Module is needed"),
        (MAKE | {"type": "test_package_parts.made_of"}, "a function counts if it is annotated to return a torch.nn.M"),
        ({"type": "shutil.rmtree", "path": "x"}, "'shutil.rmtree' is no network (a function counts if"),
        (MAKE | {"type": "test_package_parts.mak"}, "(did you mean 'test_package_parts.make'?)"),
    ],
)
def test_what_is_wrong_with_a_function_is_told_in_a_line(tmp_path, network, said):
    assert said in refused({"networks.painter": network}, tmp_path)


def test_a_frozen_network_may_have_its_own_weights(tmp_path, capsys):
    said = refused({"networks.judge": MAKE}, tmp_path)
    assert said.startswith("networks.judge: no step trains it and it loads no weights; if its type brings its own,")
    trainer = fit({"networks.judge": MAKE | {"weights": "own"}}, tmp_path)
    assert "network 'judge' starts from the weights that its type gives it, digest " in capsys.readouterr().out
    assert not any(parameter.requires_grad for parameter in trainer.networks.live["judge"].parameters())


def test_trusted_types_only_takes_no_functions(monkeypatch):
    monkeypatch.setenv("FIGURA_TRUSTED_TYPES_ONLY", "--trusted-types-only")
    errors = ErrorCollector(Path("p.yaml"))
    assert find_type("torch.nn.utils.parametrizations.orthogonal", NETWORK, "k", errors) is None
    (line,) = errors.lines
    assert "unknown network" in line
    monkeypatch.delenv("FIGURA_TRUSTED_TYPES_ONLY")
    assert find_type("torch.nn.utils.parametrizations.orthogonal", NETWORK, "k", errors) is not None
