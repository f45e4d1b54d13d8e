"""Modules that are computed again in the backward pass: same gradients, buffers and noise, less memory."""

from collections.abc import Mapping

import pytest
import torch
import toy
from torch import Tensor, nn
from trainings import BASE, fit, outputs
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.engine.checkpointing import blocks, checkpoint_modules
from figura.training.trainer import Trainer
from models.pix2pix.generator import UNetGenerator
from models.pose.pose_network import PoseNetwork
from models.super_resolution.rrdb import RRDBGenerator
from models.vunet.networks import VUNet


class Unit(nn.Module):
    """Whatever a repetition might get wrong: batch statistics, dropout, noise, and a buffer that each forward moves."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Dropout(0.3)
        self.register_buffer("drift", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        with torch.no_grad():
            if self.training:
                self.drift.mul_(1.01)
        noisy = self.dropout(torch.relu(self.norm(self.layer(x)))) + 0.1 * torch.randn_like(x)
        return x + self.drift * noisy.sin()


class Tower(nn.Module):
    outputs = ("image",)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 1), nn.Conv2d(2, 1, 1)
        self.units = nn.ModuleList(Unit() for _ in range(3))

    def forward(self, x: Tensor) -> Mapping[str, Tensor]:
        x = self.first(x)
        for unit in self.units:
            x = unit(x)
        return {"image": self.last(x)}


HERE = "test_checkpointing.Tower"
CHANGES = BASE | {
    "networks": {"painter": {"type": HERE}},
    "steps.painter.injectors.paint": toy.PAINT,
    "train.accumulation": 2,
}  # fmt: skip


def result(network, call):
    """Gradients and buffers after two forward and backward passes, each from the same random state."""
    torch.manual_seed(5)
    for _ in range(2):
        made = call(network)
        sum(value.square().mean() for value in made).backward()
    tensors = {f"gradient of {name}": p.grad for name, p in network.named_parameters() if p.grad is not None}
    return tensors | dict(network.named_buffers())


def leaves(value):
    return [leaf for part in value.values() for leaf in leaves(part)] if isinstance(value, Mapping) else [value]


PICTURE = torch.linspace(-1, 1, 2 * 3 * 64 * 64).sin().view(2, 3, 64, 64)
NETWORKS = {
    "vunet": (lambda: VUNet(image_size=64, nf_start=4, nf_max=8, dropout=0.1), lambda n: leaves(n(PICTURE, PICTURE))),
    "rrdb": (lambda: RRDBGenerator(scale=2, features=8, blocks=2, growth=4), lambda n: leaves(n(PICTURE[..., :16]))),
    "unet": (lambda: UNetGenerator(image_size=64, features=4, n_downs=3, norm="batch"), lambda n: leaves(n(PICTURE))),
    **{
        name: (
            lambda name=name: PoseNetwork(
                backbone={"name": name}, heads={"cif": {"fields": 3, "dropout": 0.2}}
            ),
            lambda n: leaves(n(PICTURE[..., :49, :33])),
        )
        for name in ("small", "resnet18", "shufflenetv2k16")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_and_buffers_are_the_same(name):
    make, call = NETWORKS[name]
    expected, found = ({}, {})
    for checkpointing, kept in ((False, expected), (True, found)):
        torch.manual_seed(1)
        network = make()
        checkpoint_modules(network, checkpointing, "networks.x.checkpointing")
        kept.update(result(network, call))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key


def test_blocks_are_the_outermost_entries_of_lists_that_have_parts():
    assert list(blocks(RRDBGenerator(features=4, blocks=3, growth=2))) == ["trunk.0", "trunk.1", "trunk.2"]
    assert list(blocks(UNetGenerator(image_size=32, n_downs=3, features=2)))[:2] == ["downs.0", "downs.1"]
    shuffle = blocks(PoseNetwork(backbone={"name": "shufflenetv2k16"}, heads={"cif": {"fields": 3}}))
    assert len(shuffle) == 1 + 4 + 8 + 4
    assert "base_net.stage3.7" in shuffle


@pytest.mark.parametrize(("chosen", "mode"), [(True, "inherit"), (["units.*", "last"], "inherit"), (True, "eval")])
def test_a_training_ends_in_the_same_bytes(tmp_path, chosen, mode):
    changes = CHANGES | {"steps.painter.injectors.paint": toy.PAINT | {"mode": mode}}
    Unit.calls = 0
    fit(tmp_path / "plain", changes)
    once, Unit.calls = Unit.calls, 0
    fit(tmp_path / "saving", changes | {"networks.painter.checkpointing": chosen})
    plain, saving = outputs(tmp_path / "plain"), outputs(tmp_path / "saving")
    assert {k: v for k, v in saving.items() if "recipe" not in k} == {
        k: v for k, v in plain.items() if "recipe" not in k
    }
    assert Unit.calls > once  # it did compute them again


def test_two_ranks_draw_the_same_noise_again(tmp_path):
    def trained():
        for name, changes in (("plain", {}), ("saving", {"networks.painter.checkpointing": True})):
            fit(tmp_path / name, CHANGES | changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accelerate.Accelerator.end_training", lambda self: None)  # two trainings, one group of processes
        run_in_two(trained)
    weights = "model/painter.safetensors"
    assert outputs(tmp_path / "plain")[weights] == outputs(tmp_path / "saving")[weights]


def test_a_gradient_penalty_goes_through():
    torch.manual_seed(1)
    tower = Tower().double().eval()
    norms = []
    for checkpointing in (False, True):
        checkpoint_modules(tower, checkpointing, "k")
        torch.manual_seed(2)
        x = torch.linspace(0, 1, 16, dtype=torch.float64).view(1, 1, 4, 4).requires_grad_()
        (slope,) = torch.autograd.grad(tower(x)["image"].sum(), x, create_graph=True)
        norms.append(torch.autograd.grad(slope.square().sum(), tower.first.weight)[0])
    assert norms[0].abs().sum() > 0
    assert torch.equal(*norms)


def test_less_is_saved():
    def saved(checkpointing):
        network = RRDBGenerator(scale=2, features=8, blocks=3, growth=4)
        checkpoint_modules(network, checkpointing, "k")
        sizes = {}

        def pack(tensor):
            sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            kept = network(PICTURE)  # noqa: F841  # its graph lives while sizes are counted
        return sum(sizes.values())

    assert saved(True) < saved(False) / 3


@pytest.mark.parametrize(
    ("network", "chosen", "said"),
    [
        (HERE, ["unit.1"], r"networks.painter.checkpointing: Tower has no module 'unit.1' .*; it consists of first"),
        ("toy.Painter", True, r"Painter has no list of blocks to choose from; write the names of modules"),
    ],
)
def test_errors(network, chosen, said, run):
    recipe = toy.checked({"networks": {"painter": {"type": network, "checkpointing": chosen}},
                          "steps.painter.injectors.paint.args": {}})  # fmt: skip
    with pytest.raises(UserError, match=said):
        Trainer(recipe, run)
