"""Weights on disk, and what a training starts from: a file, published weights, an earlier run."""

import os
from pathlib import Path

import pytest
import torch
import toy
import trainings
from safetensors.torch import load_file, save_file
from torch import nn

from figura.base.errors import UserError
from figura.base.exit_status import run as stage
from figura.base.yaml12 import to_yaml
from figura.engine.weights import load_weights, save_weights
from figura.training.trainer import Trainer
from stages import eval_dump, train


def network(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width))


def test_weights_and_buffers_come_back(tmp_path):
    source, target = network(), network()
    source(torch.randn(8, 2))  # moves the running statistics
    save_weights(source, tmp_path / "model" / "n.safetensors")
    load_weights(target, tmp_path / "model" / "n.safetensors")
    assert source.state_dict().keys() == target.state_dict().keys()
    for name, value in source.state_dict().items():
        assert torch.equal(value, target.state_dict()[name]), name
    assert os.listdir(tmp_path / "model") == ["n.safetensors"]


def test_tied_weights_are_written_under_both_names(tmp_path):
    source, target = network(2), network(2)
    for one in (source, target):
        one.append(nn.Linear(2, 2))
        one[2].weight = one[0].weight
    save_weights(source, tmp_path / "n.safetensors")
    written = load_file(tmp_path / "n.safetensors")
    assert torch.equal(written["0.weight"], source[0].weight)
    assert torch.equal(written["2.weight"], source[0].weight)
    load_weights(target, tmp_path / "n.safetensors")
    assert target[2].weight is target[0].weight
    assert torch.equal(target[0].weight, source[0].weight)


def test_weights_that_do_not_fit_are_all_listed(tmp_path):
    path = tmp_path / "n.safetensors"
    save_file({"0.weight": torch.zeros(4, 2), "0.bias": torch.zeros(3), "extra": torch.zeros(1)}, path)
    target = nn.Sequential(nn.Linear(2, 3))
    before = target[0].weight.detach().clone()
    target.register_parameter("gain", nn.Parameter(torch.zeros(1)))
    with pytest.raises(UserError) as caught:
        load_weights(target, path)
    assert str(caught.value) == (
        f"{path} does not fit Sequential: 0.weight has shape [4, 2], the network [3, 2]; missing gain; unexpected extra"
    )
    assert torch.equal(target[0].weight, before)
    path.write_bytes(b"\x80\x04never unpickled")
    with pytest.raises(UserError, match="not a readable safetensors file"):
        load_weights(target, path)
    path.unlink()
    with pytest.raises(UserError, match=r"n\.safetensors: no such file"):
        load_weights(target, path)


# published weights that a network knows by itself: read where training starts, and never again


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
    painter = {"type": "test_weights.Taught", "width": 2, "dropout": 0.1, "pretrained": str(weights)}
    return toy.changed({"networks.painter": painter, "runtime.samples": None, **changes})


def test_a_file_that_the_recipe_names_comes_first(weights, tmp_path):
    other = tmp_path / "other.safetensors"
    save_file({name: torch.full_like(w, 2.0) for name, w in toy.Painter(2).state_dict().items()}, other)
    weights.unlink()
    recipe = toy.checked(content=content(weights, **{"networks.painter.weights": str(other)}))
    live = Trainer(recipe, tmp_path / "run").networks.live["painter"]
    assert all((value == 2.0).all() for value in live.state_dict().values())


def test_training_starts_from_published_weights_and_evaluation_does_without_them(weights, tmp_path):
    live = Trainer(toy.checked(content=content(weights)), tmp_path / "start").networks.live["painter"]
    assert all((value == 0.5).all() for value in live.state_dict().values())
    recipe, run = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(to_yaml(content(weights)))
    assert stage(train.main, [str(recipe), str(run)]) == 0
    weights.unlink()
    assert stage(eval_dump.main, [str(recipe), str(run)]) == 0
    assert (run / "dump").is_dir()


# an earlier run

QUIET = {"runtime.samples": None}


def test_all_networks_or_a_named_one_start_from_an_earlier_run(run, tmp_path):
    expected = trainings.weights(trainings.trained(tmp_path / "earlier", {"train.steps": 3}, toy.gan()), "ema")
    fresh = trainings.weights(Trainer(toy.checked(QUIET, toy.gan()), tmp_path / "fresh"))
    for networks in (None, ["painter"]):
        start = {"train.init_from": {"run": str(tmp_path / "earlier"), "networks": networks}}
        started = trainings.weights(Trainer(toy.checked(QUIET | start, toy.gan()), run))
        for name, value in started.items():
            old = networks is None or name.startswith("painter.")
            assert torch.equal(value, (expected if old else fresh)[name])


class Pool(torch.nn.Module):
    """The last pictures; no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(4, 1, 4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.kept[: len(x)] = x.detach()
        return x


def test_averages_of_a_network_without_parameters_are_its_buffers(run):
    call = {"type": "Forward", "network": "pool", "inputs": {"x": "image"}, "outputs": {"output": "pooled"}}
    changes = {
        "networks.pool": {"type": "test_weights.Pool"},
        "steps.painter.trains": ["painter", "pool"],
        "steps.painter.injectors.pool": call,
    }
    trainer = Trainer(toy.checked(QUIET | changes), run)
    trainer.fit()
    kept = trainer.networks.ema["pool"].kept
    assert kept.abs().sum() > 0
    assert torch.equal(kept, trainer.networks.live["pool"].kept)
