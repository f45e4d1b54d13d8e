"""`figura translate --compare`: a discriminator of plain PyTorch, as the original's, and what does not fit."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as entropy

from figura.base.exit_status import run
from figura.commands.translate.command import main

COMMAND = (
    "python train.py --dataroot facades --model pix2pix --netG unet_128 --ngf 4 --ndf 4 --netD n_layers --n_layers_D 1 "
    "--crop_size 128 --load_size 136 --norm "
)


class Original:
    """The first iteration of pytorch-CycleGAN-and-pix2pix; its generator's dropout makes `fake` random."""

    def __init__(self, norm="instance"):
        torch.manual_seed(3)
        first, last, leaky = nn.Conv2d(6, 4, 4, 2, 1), nn.Conv2d(8, 1, 4, 1, 1), nn.LeakyReLU(0.2)
        second = nn.Conv2d(4, 8, 4, 1, 1, bias=norm == "instance")
        normed = {"instance": nn.InstanceNorm2d, "batch": nn.BatchNorm2d}[norm](8)
        self.judge = nn.Sequential(first, leaky, second, normed, leaky, last)
        self.values = {name: torch.rand(2, 3, 128, 128) * 2 - 1 for name in ("x", "y", "fake")}
        x, y, fake = self.values.values()
        real_logits, fake_logits = (self.judge(torch.cat([x, one], dim=1)) for one in (y, fake))
        real, not_real = torch.ones_like(real_logits), torch.zeros_like(real_logits)
        self.losses = {
            "D_real": 0.5 * entropy(real_logits, real).item(),
            "D_fake": 0.5 * entropy(fake_logits, not_real).item(),
            "G_GAN": entropy(fake_logits, real).item(),
            "G_L1": 100 * (fake - y).abs().mean().item(),
        }

    def write(self, folder, **losses):
        weights = {f"layers.{name}": one for name, one in self.judge.state_dict().items()}
        save_file(weights, folder / "discriminator.safetensors")
        save_file(self.values, folder / "values.safetensors")
        (folder / "losses.json").write_text(json.dumps(self.losses | losses))


def compared(folder, norm="instance"):
    return run(main, [COMMAND + norm, "--examples=4", f"--output={folder / 'recipe.yaml'}", f"--compare={folder}"])


@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_first_losses_are_those_of_plain_pytorch(norm, tmp_path, capsys):
    """Which judges real and fake pictures in a call each, so that batch norm has the statistics of each."""
    Original(norm).write(tmp_path)
    assert compared(tmp_path, norm) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert f"network 'generator' has random weights: there is no {tmp_path / 'generator.safetensors'}" in said
    rows = {row[0]: float(row[3]) for row in map(str.split, said.splitlines()) if len(row) == 4 and row[0][1:2] == "_"}
    assert rows.keys() == {"D_real", "D_fake", "G_GAN", "G_L1"}
    assert max(rows.values()) <= 1e-5


def test_a_loss_that_differs_is_named(tmp_path, capsys):
    original = Original()
    original.write(tmp_path, G_L1=original.losses["G_L1"] * 1.0001)
    assert compared(tmp_path) == 1
    assert "more than 1e-05 apart: G_L1" in capsys.readouterr().err


def test_a_sum_is_compared_and_a_recipe_that_is_there(tmp_path, capsys):
    """Without losses, it prints their names."""
    original = Original()
    original.write(tmp_path)
    (tmp_path / "losses.json").write_text("{}")
    assert compared(tmp_path) == 0
    assert {row.split()[0] for row in capsys.readouterr().out.splitlines() if "not given" in row} == {*original.losses}
    total = original.losses["D_real"] + original.losses["D_fake"]
    (tmp_path / "losses.json").write_text(json.dumps({"D_real + D_fake": total}))
    assert compared(tmp_path) == 1
    assert "leave SOURCE out to compare it as it is" in capsys.readouterr().err
    recipe = tmp_path / "recipe.yaml"
    again = [f"--output={recipe}", f"--compare={tmp_path}"]
    assert run(main, again) == 0
    recipe.write_text(recipe.read_text().replace("weight: 0.5", "weight: 0.6"))
    capsys.readouterr()
    assert run(main, again) == 1
    assert "more than 1e-05 apart: D_real + D_fake" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("losses", "dropped", "wanted"),
    [
        ({"G_L2": 1.0}, "", "no loss 'G_L2' in the first iteration (did you mean 'G_L1'?)"),
        ({"l_pix": 1.0}, "", "no loss 'l_pix' in the first iteration; there are D_real, D_fake, G_GAN, G_L1"),
        ({"G_L1": "many"}, "", "losses.json: expected a map of losses' names to numbers"),
        ({}, "y", "values.safetensors: nothing provides 'y'"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(losses, dropped, wanted, tmp_path, capsys):
    original = Original()
    original.values.pop(dropped, None)
    original.write(tmp_path, **losses)
    assert compared(tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert wanted in line


def test_a_folder_that_is_not_there_is_refused_before_anything_is_written(tmp_path, capsys):
    folder = tmp_path / "none"
    options = ["--examples=4", f"--output={tmp_path / 'recipe.yaml'}", f"--compare={folder}"]
    assert run(main, [f"{COMMAND}none", *options]) == 1
    assert f"--compare {folder}: no such folder" in capsys.readouterr().err
    assert not (tmp_path / "recipe.yaml").exists()
