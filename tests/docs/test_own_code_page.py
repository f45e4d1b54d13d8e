"""docs/your_own_code.md, "One of each": what stands there trains, and computes what it says."""

import importlib
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import toy
import toy_pairs
from test_docs import merged

from figura.base.yaml12 import parse_yaml
from figura.recipe.load import check_recipe
from figura.training.trainer import Trainer

PAGE = Path(__file__).parents[2] / "docs/your_own_code.md"
CODE = re.findall(r"^```python\n# in mine.py\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
FRAGMENTS = re.findall(r"^```yaml\n(# in recipes/pix2pix.yaml\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The module `mine`, of all its blocks."""
    (tmp_path / "mine.py").write_text("\n\n".join(CODE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return importlib.import_module("mine")


def recipe(changes=None):
    """Return the small pix2pix recipe with all fragments of the page in it."""
    content = toy_pairs.content()
    for text in FRAGMENTS:
        for section, entries in parse_yaml(text, PAGE.name).items():
            for name, entry in entries.items():
                old = content[section].get(name)
                content[section][name] = merged(old, entry)
    content["data"].pop("common")
    return check_recipe(toy.changed({"train.record_every": 1, **(changes or {})}, content), Path("mine.yaml"))


def test_all_train_together(mine):
    assert [len(CODE), len(FRAGMENTS)] == [6, 6]
    trainer = Trainer(recipe(), Path("run"))
    first = trainer.networks.live["generator"].layers[0].weight.clone()
    trainer.fit()
    assert isinstance(trainer.networks.live["generator"], mine.Translator)
    assert (trainer.networks.live["generator"].layers[0].weight - first).abs().max() > 1e-5
    log = trainer.loss_log
    assert log.select("G") == ["G_GAN", "G_L1", "G_huber", "G_edges"]
    assert [row["G_L1.weight"] for row in log.train] == pytest.approx([100, 100, 50, 50, 25, 25, 12.5, 12.5])
    assert all(row["gradients.largest"] > 0 for row in log.validation)


def test_the_loss_is_huber(mine):
    image = torch.tensor([0.05, -0.3, 0.1]).reshape(1, 3, 1, 1)
    found = mine.Huber(delta=0.1)(image=image, target=torch.zeros_like(image))
    np.testing.assert_allclose(found, [(0.5 * 0.05**2 + 0.1 * (0.3 - 0.05) + 0.5 * 0.1**2) / 3], rtol=1e-6)


def test_the_injector_takes_differences(mine):
    picture = torch.arange(24.0).reshape(1, 2, 3, 4) ** 2
    (found,) = mine.Edges(["a"], ["b"]).compute([picture], step=0)
    np.testing.assert_array_equal(found, np.diff(picture.numpy(), axis=3))


def test_the_dataset_depends_on_its_generator_alone(mine):
    data = mine.Squares(4)
    one, same, other = (data.example(2, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert torch.equal(one["x"], same["x"])
    assert not torch.equal(one["x"], other["x"])
    assert (one["x"] == 1).sum() == 3 * 8 * 8
    assert torch.equal(one["y"], -one["x"])


def test_the_callback_goes_on_where_it_was(mine):
    callback, copy = mine.LargestGradient("generator"), mine.LargestGradient("generator")
    callback.largest = 0.7
    copy.load_state_dict(callback.state_dict())
    assert copy.on_evaluation(None, {}) == {"largest": 0.7}
    assert copy.on_evaluation(None, {}) == {"largest": 0.0}


def test_a_step_by_hand_reaches_the_losses_of_the_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(from pathlib.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "by_hand.py").write_text(code)
    names = runpy.run_path("by_hand.py")
    changes = {"networks.generator.dropout": 0.0, "train.record_every": 1}
    declared = Trainer(toy_pairs.recipe(changes), Path("declared"))
    by_hand = Trainer(toy_pairs.recipe(changes), Path("hand"), train_step=names["train_step"])
    declared.fit()
    by_hand.fit()
    for row, expected in zip(by_hand.loss_log.train, declared.loss_log.train, strict=True):
        assert row == pytest.approx(expected, rel=1e-3)
