"""docs/idea.md: the training by hand and the recipe beside it are the same training."""

import copy
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
import toy
import toy_pairs
from torch.utils.data import default_collate

from figura.base.yaml12 import parse_yaml, to_yaml
from figura.dump import Dump
from figura.recipe.load import check_recipe
from figura.training.trainer import Trainer
from stages import eval_dump

PAGE = Path(__file__).parents[2] / "docs/idea.md"

SMALL = {
    "networks.generator.image_size": 32,
    "networks.generator.features": 4,
    "networks.discriminator.features": 4,
    "train.record_every": 1,
    "evaluate.modes.translation.save.fake": "array",
}


def block(language: str) -> str:
    """Return the block of the page in a language, its learning rates falling within the 8 steps of the test."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert {"350", "800"} <= set(re.findall(r"\d+", found))
    return found.replace("350", "2").replace("800", "10")


def content() -> dict:
    """Return the recipe of the page, on pairs that are made on the spot, with small networks."""
    page, changes = parse_yaml(block("yaml"), PAGE.name), dict(toy_pairs.TINY)
    del changes["steps.D.lr_schedule"], changes["steps.G.optimizer"], changes["steps.G.lr_schedule"]
    for section in ("networks", "losses", "steps"):
        changes |= {f"{section}.{name}": entry for name, entry in page[section].items()}
    changes["train.ema"] = page["train"]["ema"]
    changes["evaluate.modes.translation"] = page["evaluate"]["modes"]["translation"]
    return toy.changed(SMALL, toy_pairs.content(changes))


@pytest.fixture
def by_hand(tmp_path, monkeypatch) -> dict:
    """The names that the code of the page defines."""
    monkeypatch.chdir(tmp_path)
    Path("by_hand.py").write_text(block("python"))
    return runpy.run_path("by_hand.py")  # a constant: this file's own hook makes it a part of the training's code


def test_both_have_the_same_losses_and_pictures(by_hand):
    Path("recipe.yaml").write_text(to_yaml(content()))
    batches = []

    def train_step(trainer, x, y, batch):
        batches.append((x.clone(), y.clone()))
        return trainer.train_op(batch)

    trainer = Trainer(check_recipe(content(), Path("recipe.yaml")), Path("run"), train_step=train_step)
    generator, discriminator = (copy.deepcopy(trainer.networks.live[one]) for one in ("generator", "discriminator"))
    start = copy.deepcopy(generator.state_dict())
    trainer.fit()
    history = by_hand["train"](generator, discriminator, batches)
    assert len(history) == 8
    for name in ("D_real", "D_fake", "G_GAN", "G_L1"):
        expected = trainer.loss_log.history(name)["raw"]
        assert [row[name] for row in history] == pytest.approx(list(expected), rel=1e-4), name
    assert max((value - start[name]).abs().max() for name, value in generator.state_dict().items()) > 5e-4

    eval_dump.main(["recipe.yaml", "run"])
    rows = Dump(Path("run/dump")).mode("translation")
    data = toy_pairs.Blobs(6)
    examples = default_collate([data[index] for index in range(6)])
    pictures = by_hand["translate"](generator, [(examples["x"], examples["y"])])
    found = np.stack([row["fake"] for row in rows])
    assert found.shape == (6, 3, 32, 32)
    np.testing.assert_allclose(found, pictures.numpy(), atol=2e-4)
    assert torch.std(pictures) > 1e-3


def test_the_page_counts_its_lines():
    (said,) = re.findall(r"plain PyTorch, (\d+) lines", PAGE.read_text())
    assert int(said) == len(block("python").splitlines())
