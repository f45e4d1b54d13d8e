"""The order of entries counts exactly where another order trains other weights."""

from typing import Any

import pytest
import toy
from trainings import QUIET, contents

from figura.pipeline.order import orders
from figura.recipe.schema import RESULT_SECTIONS
from figura.training.trainer import Trainer

CALLBACKS = """
from figura.interfaces import Callback

class Scale(Callback):
    def after_update(self, trainer, step, report):
        trainer.networks.live["painter"].last.bias.data.mul_(0.5)

class Shift(Callback):
    def after_update(self, trainer, step, report):
        trainer.networks.live["painter"].last.bias.data.add_(0.5)
"""
SECOND = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "second"}}
IMAGE = {"type": "toy.Distance", "inputs": {"image": "image", "target": "y"}, "weight": 0.3}
BOTH = {"trains": ["painter", "other"], "optimizer": {"type": "torch.optim.Adam", "lr": 0.01}}
TOY: dict[str, Any] = {
    "data.train.other": {"type": "toy.Ramps", "length": 9},
    "networks.other": {"type": "toy.Painter"},
    "steps.painter.injectors.second": SECOND,
    "steps.painter.groups": {"bias": {"pattern": "bias", "lr": 0.1}, "last": {"pattern": "last", "lr": 0.2}},
    "steps.other": BOTH
    | {
        "injectors": {
            "paint": SECOND | {"outputs": {"image": "third"}},
            "more": SECOND | {"network": "other", "outputs": {"image": "fourth"}},
        }
    },
    "losses.distance.step": "painter",
    "losses.square.step": "painter",
    "losses.third": IMAGE | {"step": "painter", "power": 3.0},
    "losses.last": IMAGE | {"step": "other", "inputs": {"image": "third", "target": "fourth"}},
    "callbacks": {"scale": {"type": "order_by_hand.Scale"}, "shift": {"type": "order_by_hand.Shift"}},
}


def swapped(content: dict[str, Any], key: str, names: list[str]) -> dict[str, Any]:
    """Return a recipe's content in which these entries of a map stand at its end."""
    content = toy.changed({}, content)
    part = content
    for name in key.split("."):
        part = part[name]
    for name in names:
        part[name] = part.pop(name)
    return content


def counted(content: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [found for section in RESULT_SECTIONS for found in orders(content.get(section), section)]


@pytest.mark.parametrize(
    ("key", "names", "counts"),
    [
        ("steps", ["painter"], True),
        ("steps.painter.injectors", ["paint"], True),
        ("steps.painter.groups", ["bias"], True),
        ("losses", ["distance", "third"], True),
        ("losses", ["distance", "square", "third"], False),  # behind that of another step
        ("data.train", ["ramps"], True),
        ("callbacks", ["scale"], True),
        ("networks", ["painter"], False),
        ("data", ["train"], False),
        ("losses.distance", ["type"], False),
        ("losses.distance.inputs", ["image"], False),
        ("steps.painter", ["trains"], False),
        ("steps.painter.optimizer", ["lr"], False),
        ("steps.painter.injectors.paint", ["network"], False),
    ],
)
def test_an_order_counts_if_it_changes_weights(key, names, counts, tmp_path, monkeypatch):
    (tmp_path / "order_by_hand.py").write_text(CALLBACKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FIGURA_STATES", "off")
    before = toy.changed(TOY)
    weights = []
    for name, content in (("before", before), ("after", swapped(before, key, names))):
        Trainer(toy.checked(QUIET | {"train.steps": 5, "train.ema": None}, content), tmp_path / name).fit()
        files = contents(tmp_path / name / "model")
        weights.append({file: files[file] for file in files if str(file).endswith(".safetensors")})
    assert len(weights[0]) == 2
    assert (weights[0] != weights[1]) == counts
    assert (counted(before) != counted(swapped(before, key, names))) == counts


def test_maps_among_the_arguments_of_a_type_count_but_for_names():
    content = {
        "common": {"side": 3, "kernels": {"area": 0.5, "bicubic": 0.5}},
        "train": {"scenes": {"type": "x.Y", "of": {"a": {"type": "Z", "p": 1, "q": 2}, "b": [{"c": 1, "d": 2}]}}},
        "batch_size": 4,
    }
    assert dict(orders(content, "data")) == {
        "data.common.kernels": ["area", "bicubic"],
        "data.train.scenes.of": ["a", "b"],
        "data.train.scenes.of.b.0": ["c", "d"],
    }
    loss = {"type": "torchmetrics.M", "inputs": {"preds": "a", "target": "b"}, "bins": {"x": 1, "y": 2}}
    assert dict(orders({"scores": {"one": loss, "two": loss}}, "metrics")) == {
        "metrics.scores.one.bins": ["x", "y"], "metrics.scores.two.bins": ["x", "y"],
    }  # fmt: skip
