"""A model folder is evaluated as another recipe asks."""

import pytest
import toy

from figura.base.errors import UserError
from figura.base.lock import hold
from figura.engine.build import build_networks
from figura.evaluation.trained import ignored_settings, load_trained, refuse_foreign, with_split, write_dump
from figura.training.checkpoints import write_model


class Split(toy.Ramps):
    """Ramps of a split."""

    def __init__(self, length: int, split: str = "validation", jitter: float = 0.0) -> None:
        super().__init__(length, jitter)
        self.split = split


@pytest.fixture
def model(tmp_path):
    """Trained with noise in what validates."""
    validation = {"ramps": {"type": "test_trained.Split", "length": 8, "jitter": 0.5}}
    recipe = toy.checked({"data.validation": validation}, toy.gan())
    write_model(tmp_path / "model", build_networks(recipe), recipe, {})
    return tmp_path / "model"


def test_a_key_that_the_recipe_leaves_out_does_not_come_back(model):
    validation = {"ramps": {"type": "test_trained.Split", "length": 8}}
    for changes in ({}, {"evaluate.data": {"ramps": {"length": 3}}}):
        asked = toy.checked({"data.validation": validation} | changes, toy.gan())
        recipe, _ = load_trained(model, asked)
        assert recipe.evaluate.data == asked.evaluate.data
        assert "jitter" not in with_split(recipe, "test").evaluate.data["ramps"].arguments


def test_what_the_recipe_no_longer_has_is_told(model):
    changes = {"losses.distance": ..., "losses.fool.weight": 2.0, "train.steps": 13}
    asked = toy.checked(changes, toy.gan())
    trained, _ = load_trained(model, asked)
    assert sorted(ignored_settings(asked, trained)) == [
        "losses.distance is not in the recipe; the model was trained with it, which counts here",
        "losses.fool.weight is 2.0 in the recipe; the model was trained with 1.0, which counts here",
        "train.steps is 13 in the recipe; the model was trained with 12, which counts here",
    ]
    alone = toy.checked({"train.ema": None})
    lines = ignored_settings(alone, trained)
    for key in ("networks.critic", "steps.critic", "losses.real"):
        assert f"{key} is not in the recipe; the model was trained with it, which counts here" in lines
    assert not ignored_settings(toy.checked({}, toy.gan()), trained)


@pytest.mark.parametrize("name", ["critic.safetensors", "recipe.yaml"])
def test_a_flipped_bit_of_a_model_is_told(name, model):
    content = bytearray((model / name).read_bytes())
    content[-2] ^= 1
    (model / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"model/{name}: its SHA-256 is another than in .*model/SHA256SUMS"):
        load_trained(model, toy.checked({}, toy.gan()))


def test_a_dump_takes_the_place_of_what_a_killed_process_left(tmp_path):
    """It left its lock, before anything else and then beside half a dump; the lock is held until the dump is whole."""
    recipe, folder = toy.checked(), tmp_path / "dump"
    folder.mkdir()
    (folder / ".lock").touch()
    refuse_foreign(folder)
    (folder / "old").mkdir()
    for name in ("examples.csv.unfinished", "old/0.npy"):
        (folder / name).touch()
    refuse_foreign(folder)
    with hold(folder):
        write_dump(recipe, build_networks(recipe), folder)
        assert (folder / ".lock").is_file()
    assert {"old", ".lock", "examples.csv.unfinished"}.isdisjoint(path.name for path in folder.iterdir())
    assert (folder / "examples.csv").is_file()
