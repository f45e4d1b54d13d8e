"""Files of spandrel's architectures come in and go out; spandrel itself is asked for the same numbers."""

import sys
from importlib import import_module
from typing import ClassVar

import numpy as np
import pytest
import torch
import toy
from safetensors.torch import load_file

from figura.base.exit_status import run
from figura.base.yaml12 import parse_yaml, to_yaml
from figura.commands.export.command import main as export_main
from figura.commands.import_weights.command import main as import_main
from figura.engine.build import build_networks
from figura.engine.weights import load_start
from figura.interfaces import ExampleDataset
from figura.recipe.load import check_recipe
from figura.recipe.schema import NetworkEntry
from figura.recipe.types import NETWORK, build
from figura.training.checkpoints import write_model
from models.super_resolution.import_spandrel import settings_of

SMALL = {
    "SPAN": {"num_in_ch": 3, "num_out_ch": 3, "upscale": 2, "feature_channels": 16},
    "Compact": {"num_feat": 16, "num_conv": 4, "upscale": 2},
    "SwinIR": {
        "upscale": 2, "img_size": 48, "window_size": 8, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 2],
        "mlp_ratio": 2.0, "upsampler": "pixelshuffledirect",
    },
}  # fmt: skip
RRDB = {"type": "super_resolution.RRDBGenerator", "features": 16, "blocks": 2, "pixels": "unit", "initial_scale": 1.0}


class Small(ExampleDataset):
    names = ("x", "index")

    def __len__(self) -> int:
        return 4

    def example(self, index, random):
        return {"x": np.zeros((3, 8, 8), np.float32), "index": index}


def spandrel():
    pytest.importorskip("spandrel", reason="the package spandrel is not installed")
    return import_module("spandrel")


def trained(folder, network, output):
    """Write a model with this network, with random weights; return its recipe's file and the network."""
    call = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {output: "image"}}
    data = {"small": {"type": "test_spandrel.Small"}}
    content = toy.changed(
        {
            "data.train": data, "data.validation": data, "networks.painter": network, "runtime.samples": ...,
            "losses": {"mean": {"type": "images.Direct", "inputs": {"value": "image"}, "weight": 1.0}},
            "steps.painter.injectors": {"paint": call}, "evaluate.inputs": {"x": "image"},
            "evaluate.modes.plain": {"injectors": {"paint": call}, "save": {"image": "array"}},
        }
    )  # fmt: skip
    file = folder / "mine.yaml"
    file.write_text(to_yaml(content))
    recipe = check_recipe(content, file)
    networks = build_networks(recipe)
    write_model(folder / "model", networks, recipe, {})
    return file, networks["painter"].eval()


def exported(folder, network, output="image"):
    file, built = trained(folder, network, output)
    status = run(export_main, [str(folder), "--format", "spandrel", "--recipe", str(file)])
    return status, built, folder / "export/painter.safetensors"


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_file_comes_in_and_computes_the_same(name, tmp_path, capsys):
    spandrel()
    theirs = getattr(import_module(f"spandrel.architectures.{name}"), name)(**SMALL[name]).eval()
    source, out = tmp_path / "theirs.pth", tmp_path / "ours.safetensors"
    torch.save({"params": theirs.state_dict()}, source)
    assert run(import_main, ["spandrel", str(source), "--output", str(out)]) == 0
    said = capsys.readouterr().out
    (settings,) = parse_yaml(said.partition("with this entry:\n\n")[2], "the command")["networks"].values()
    recipe = toy.checked({"networks.painter": settings, "steps.painter.injectors.paint.inputs": {"x": "x"},
        "steps.painter.injectors.paint.args": ..., "steps.painter.injectors.paint.outputs": {"output": "image"},
        "evaluate.modes.plain.injectors.paint.outputs": {"output": "image"}})  # fmt: skip
    network = build(NetworkEntry.model_validate(settings), NETWORK, "painter").eval()
    load_start({"painter": network}, recipe)
    x = torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(network(x), theirs(x))


class Doubling(torch.nn.Module):
    """Like RealCUGAN's: spandrel notes its scale, which is no argument."""

    hyperparameters: ClassVar = {"scale": 2, "fast": False, "channels": 3, "pro": True}

    def __init__(self, *, channels: int = 3, pro: bool = False) -> None:
        super().__init__()


def test_settings_are_arguments_alone():
    assert settings_of(Doubling()) == {"pro": True}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_network_of_spandrel_goes_out(name, tmp_path):
    registry = spandrel().MAIN_REGISTRY
    status, ours, file = exported(tmp_path, {"type": f"spandrel.architectures.{name}.{name}"} | SMALL[name], "output")
    assert status == 0
    x = torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(registry.load(load_file(file)).model.eval()(x), ours(x))


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "unshuffle"), [(4, 1), (2, 1), (2, 2), (1, 4)])
def test_the_generator_goes_out_as_esrgan(scale, unshuffle, tmp_path):
    registry = spandrel().MAIN_REGISTRY
    status, ours, file = exported(tmp_path, RRDB | {"scale": scale, "unshuffle": unshuffle})
    assert status == 0
    found = registry.load(load_file(file))
    assert (found.architecture.id, found.scale) == ("ESRGAN", scale)
    x = torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(found.model.eval()(x), (ours(2 * x - 1)["image"] + 1) / 2, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "said"),
    [
        (RRDB | {"scale": 4, "scaling": 0.5}, "spandrel computes other pictures of it: they differ by"),
        (RRDB | {"scale": 4, "growth": 16}, "spandrel cannot read it: RuntimeError: Error(s) in loading state_dict"),
        (RRDB | {"scale": 4, "pixels": "signed"}, "ESRGAN's network has `pixels: unit` and `bicubic_skip: false`"),
    ],
)
def test_what_spandrel_has_not_is_told_in_a_line(network, said, tmp_path, capsys):
    spandrel()
    status, _, file = exported(tmp_path, network)
    assert status == 1
    assert not file.exists()
    error = capsys.readouterr().err
    assert f"painter: not written: {said}" in error
    assert len(error.splitlines()) == 2


@pytest.mark.slow
def test_a_file_of_no_architecture_is_told(tmp_path, capsys):
    spandrel()
    torch.save({"a.weight": torch.zeros(3)}, tmp_path / "a.pth")
    assert run(import_main, ["spandrel", str(tmp_path / "a.pth"), "--output", str(tmp_path / "o.safetensors")]) == 1
    assert "as spandrel: spandrel knows no architecture with such tensors" in capsys.readouterr().err


def test_a_missing_package_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "spandrel", None)
    torch.save({"a.weight": torch.zeros(3)}, tmp_path / "a.pth")
    assert run(import_main, ["spandrel", str(tmp_path / "a.pth"), "--output", str(tmp_path / "o.safetensors")]) == 1
    assert "the package spandrel is not installed; `pip install spandrel torch==" in capsys.readouterr().err
    assert exported(tmp_path, RRDB | {"scale": 4})[0] == 1
    assert (
        "not written: the package spandrel is not installed; `pip install spandrel torch==" in capsys.readouterr().err
    )


def test_other_networks_have_no_file(tmp_path, capsys):
    status, _, file = exported(tmp_path, RRDB | {"scale": 4, "bicubic_skip": True})
    assert (status, file.exists()) == (1, False)
    assert "painter: not written: ESRGAN's network has `pixels: unit`" in capsys.readouterr().err
