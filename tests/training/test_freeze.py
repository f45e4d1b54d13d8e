"""The callback `Freeze`: parts of a network that stay as they are until an iteration, and running statistics."""

from collections.abc import Mapping

import pytest
import toy
from torch import Tensor, nn
from trainings import BASE, Recording, fit, trained

from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml, to_yaml
from figura.evaluation.model_folder import trained_content
from figura.recipe.load import check_recipe
from figura.recipe.resolved import resolved
from figura.training.trainer import Trainer


class Two(nn.Module):
    outputs = ("image",)

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2))
        self.head = nn.Sequential(nn.Conv2d(2, 1, 1), nn.BatchNorm2d(1))

    def forward(self, x: Tensor) -> Mapping[str, Tensor]:
        return {"image": self.head(self.base(x))}


FREEZE = {"type": "figura.callbacks.Freeze", "network": "painter"}
CHANGES = BASE | {
    "networks": {"painter": {"type": "test_freeze.Two"}},
    "steps.painter.injectors.paint": toy.PAINT,
    "steps.painter.optimizer": {"type": "torch.optim.AdamW", "lr": 0.01, "weight_decay": 0.1},
    "train.ema": {"decay": 0.8, "warmup": True},
    "callbacks": {"freeze": FREEZE | {"until": 5, "modules": ["base"], "batch_norms_after": 7}},
}  # fmt: skip


NAMES = {f"painter.{name}" for name in Two().state_dict()}
BASE_NET = {name for name in NAMES if name.startswith("painter.base")}


def test_what_moves_and_when(run):
    running = {name for name in NAMES if "running" in name or "tracked" in name}
    learned = {"painter.head.0.weight", "painter.head.1.weight"}  # biases may have gradients of 0
    for iteration, names in enumerate(trained(run, CHANGES, kind=Recording).moved()):
        still = (BASE_NET if iteration < 5 else set()) | (running if iteration >= 7 else set())
        assert learned | (running - still) | ({"painter.base.0.weight"} - still) <= names <= NAMES - still, iteration


def test_what_is_frozen_depends_on_the_iteration_alone(run):
    trainer = Trainer(toy.checked(CHANGES), run)
    network, freeze = trainer.networks.live["painter"], trainer.callbacks["freeze"]
    network.base[0].bias.requires_grad_(False)  # by the network itself, for good
    for iteration, trains, follows in ((4, False, False), (5, True, True), (7, True, False), (4, False, False)):
        trainer.iteration = iteration
        freeze.before_iteration(trainer)
        assert network.base[0].weight.requires_grad == trains
        assert network.base[1].training == follows
        assert network.head[0].weight.requires_grad
        assert not network.base[0].bias.requires_grad


def test_a_whole_network_waits_while_another_learns(run):
    changes = BASE | {
        "networks.painter": {"type": "test_freeze.Two"},  # its BatchNorms would follow the other step's forwards
        "steps.painter.after": 6,
        "callbacks": {"freeze": FREEZE | {"until": 6}},
    }
    moved = trained(run, changes, toy.gan(), kind=Recording).moved()
    assert [any(name.startswith("painter.") for name in names) for names in moved] == [t >= 6 for t in range(11)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"until": 3}, "steps.painter: all that it trains is frozen; write `after: 3` there"),
        ({"until": 3, "modules": ["bas"]}, r"callbacks: network 'painter' has no module 'bas' \(did you mean 'base'"),
        ({"until": 3, "network": "idle"}, r"callbacks\.freeze\.network: unknown network 'idle'; allowed: painter"),
        ({}, "callbacks.freeze: .*until 0: an iteration above 0, or batch_norms_after, is needed"),
        ({"modules": ["base"], "batch_norms_after": 0}, "callbacks.freeze: .*one or more modules, and an iteration"),
        (
            {"until": 3, "modules": ["base"], "also": FREEZE | {"batch_norms_after": 0}},
            "two freeze the network 'painter'",
        ),
    ],
)
def test_what_cannot_be_frozen(run, arguments, said):
    entries = {"freeze": FREEZE | arguments}
    if also := entries["freeze"].pop("also", None):
        entries["also"] = also
    with pytest.raises(UserError, match=said):
        fit(run, CHANGES | {"callbacks": entries})


def test_the_recipe_of_a_model_of_an_earlier_version_is_read(tmp_path):
    recipe = toy.checked()
    content = parse_yaml(resolved(recipe), "recipe")
    content["networks"]["painter"] |= {"frozen": {"until": 3}, "freeze_batch_norm": None}
    content["steps"]["painter"] |= {"requires": []}
    content["train"] |= {"rate_scaling": None, "rollback": {"every": 500}}
    (tmp_path / "recipe.yaml").write_text(to_yaml(content))
    read, _ = trained_content(tmp_path)
    read |= {
        section: getattr(recipe, section).model_dump(by_alias=True) for section in ("evaluate", "metrics", "runtime")
    }
    assert check_recipe(read, recipe.path) == recipe


class ByHand(Recording):
    """The step by hand: its forward pass comes before `optimize`."""

    def train_step(self, batch, index):
        image = self.networks.live["painter"](batch["x"])["image"]
        off = (image - batch["y"]).flatten(1)
        losses = {"distance": off.abs().mean(dim=1), "square": off.square().mean(dim=1)}
        return {"painter": self.optimize("painter", {name: losses[name] for name in self.recipe.losses})}


def test_a_step_by_hand_is_frozen_from_its_first_forward_pass_on(run):
    moved = trained(run, CHANGES, kind=ByHand).moved()
    assert not set.union(*moved[:5]) & BASE_NET
    assert all({"painter.base.0.weight", "painter.base.1.running_mean"} <= names for names in moved[5:7])
