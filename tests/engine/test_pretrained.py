"""Published weights that a network knows by itself: read where training starts, and never again."""

from pathlib import Path

import pytest
import torch
import toy
from safetensors.torch import load_file, save_file

from figura.base.errors import UserError
from figura.base.exit_status import run as stage
from figura.base.yaml12 import to_yaml
from figura.training.trainer import Trainer
from stages import eval_dump, train


class Taught(toy.Painter):
    """A painter with weights from a file."""

    def __init__(self, width: int = 1, dropout: float = 0.0, pretrained: str | None = None) -> None:
        super().__init__(width, dropout)
        self.pretrained = pretrained

    def load_pretrained(self) -> None:
        if self.pretrained is not None:
            if not Path(self.pretrained).is_file():
                raise UserError(f"no file {self.pretrained}")
            self.load_state_dict(load_file(self.pretrained))


@pytest.fixture
def weights(tmp_path):
    """A file of weights, all 0.5."""
    path = tmp_path / "published.safetensors"
    save_file({name: torch.full_like(w, 0.5) for name, w in toy.Painter(2).state_dict().items()}, path)
    return path


def content(weights, **changes):
    painter = {"type": "test_pretrained.Taught", "width": 2, "dropout": 0.1, "pretrained": str(weights)}
    return toy.changed({"networks.painter": painter, "runtime.samples": None, **changes})


def test_training_starts_from_them(weights, tmp_path):
    live = Trainer(toy.checked(content=content(weights)), tmp_path / "run").networks.live["painter"]
    assert all((value == 0.5).all() for value in live.state_dict().values())


def test_a_file_that_the_recipe_names_comes_first(weights, tmp_path):
    other = tmp_path / "other.safetensors"
    save_file({name: torch.full_like(w, 2.0) for name, w in toy.Painter(2).state_dict().items()}, other)
    weights.unlink()
    recipe = toy.checked(content=content(weights, **{"networks.painter.weights": str(other)}))
    live = Trainer(recipe, tmp_path / "run").networks.live["painter"]
    assert all((value == 2.0).all() for value in live.state_dict().values())


def test_training_without_the_file_is_refused(weights, tmp_path):
    weights.unlink()
    with pytest.raises(UserError, match=r"network 'painter': no file .*published\.safetensors"):
        Trainer(toy.checked(content=content(weights)), tmp_path / "run")


def test_evaluation_does_without_the_file(weights, tmp_path):
    recipe, run = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(to_yaml(content(weights)))
    assert stage(train.main, [str(recipe), str(run)]) == 0
    weights.unlink()
    assert stage(eval_dump.main, [str(recipe), str(run)]) == 0
    assert (run / "dump").is_dir()
