"""Parts of a network that stand still until an iteration, and BatchNorms that stop following from one on."""

from collections.abc import Mapping
from itertools import pairwise

import pytest
import torch
import toy
from torch import Tensor, nn
from trainings import BASE, Killed, Stopping, fit, outputs

from figura.base.errors import UserError
from figura.training.trainer import Trainer
from figura.training.warnings import late_gates


class Two(nn.Module):
    outputs = ("image",)

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2))
        self.head = nn.Sequential(nn.Conv2d(2, 1, 1), nn.BatchNorm2d(1))

    def forward(self, x: Tensor) -> Mapping[str, Tensor]:
        return {"image": self.head(self.base(x))}


CHANGES = BASE | {
    "networks": {"painter": {"type": "test_freezing.Two"}},
    "steps.painter.injectors.paint": {
        "type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "image"}
    },
    "steps.painter.optimizer": {"type": "torch.optim.AdamW", "lr": 0.01, "weight_decay": 0.1},
    "train.ema": {"decay": 0.8, "warmup": True},
}  # fmt: skip
FROZEN = {"networks.painter.frozen": {"until": 5, "modules": ["base"]}}
STOPS = {"networks.painter.freeze_batch_norm": {"after": 7}}


class Watching(Stopping):
    """Notes all tensors of the network before each iteration."""

    def train_step(self, batch, index):
        if not hasattr(self, "seen"):
            self.seen = []
        self.seen.append({n: t.clone() for n, t in self.networks.live["painter"].state_dict().items()})
        return super().train_step(batch, index)


def changes_by_iteration(run, changes):
    """For each iteration but the last, the names of what it changed."""
    trainer = Watching(toy.checked(CHANGES | changes), run)
    trainer.fit()
    pairs = zip(trainer.seen, trainer.seen[1:], strict=False)
    return [{name for name in a if not torch.equal(a[name], b[name])} for a, b in pairs]


def test_what_moves_and_when(run):
    moved = changes_by_iteration(run, FROZEN | STOPS)
    everything = set(Two().state_dict())
    base = {name for name in everything if name.startswith("base")}
    running = {name for name in everything if "running" in name or "tracked" in name}
    learned = {"head.0.weight", "head.1.weight"}  # biases may have gradients of 0
    for iteration, names in enumerate(moved):
        still = (base if iteration < 5 else set()) | (running if iteration >= 7 else set())
        assert learned | (running - still) | ({"base.0.weight"} - still) <= names <= everything - still, iteration


@pytest.mark.parametrize("stop", [3, 5, 6, 9])
def test_resumes_to_the_same_bytes(run, tmp_path, stop):
    changes = CHANGES | FROZEN | STOPS
    fit(tmp_path / "whole", changes)
    with pytest.raises(Killed):
        fit(run, changes, stop=stop)
    fit(run, changes)
    assert outputs(run) == outputs(tmp_path / "whole")


def test_a_rollback_freezes_again(run):
    trainer = Trainer(toy.checked(CHANGES | FROZEN | STOPS), run)
    base, norm = trainer.networks.live["painter"].base, trainer.networks.live["painter"].base[1]
    for iteration, trains, follows in ((4, False, False), (5, True, True), (7, True, False), (4, False, False)):
        trainer.freezing.apply(iteration)
        assert base[0].weight.requires_grad == trains
        assert norm.training == follows
    assert trainer.networks.live["painter"].head[0].weight.requires_grad


def test_a_whole_network_waits_while_another_learns(run):
    two = {"type": "test_freezing.Two", "frozen": {"until": 6}}  # its BatchNorms would follow the other step's forwards
    trainer = Watching(toy.checked(BASE | {"networks.painter": two, "steps.painter.after": 6}, toy.gan()), run)
    trainer.fit()
    for iteration, (a, b) in enumerate(pairwise(trainer.seen)):
        assert all(torch.equal(a[name], b[name]) for name in a) == (iteration < 6), iteration


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"networks.painter.frozen": {"until": 3}}, r"steps.painter: all that it trains is frozen until iteration 3"),
        (
            {"networks.painter.frozen": {"until": 3, "modules": ["bas"]}},
            r"frozen.modules: Two has no module 'bas'",
        ),
        (
            {"networks.painter.frozen": {"until": 3, "modules": ["base", "head"]}},
            r"steps.painter: all that it trains is frozen until iteration 3; write `after: 3` there",
        ),
    ],
)
def test_what_cannot_be_frozen(run, changes, said):
    with pytest.raises(UserError, match=said):
        Trainer(toy.checked(CHANGES | changes), run)


def test_a_network_that_nobody_trains_is_frozen_already(run, tmp_path):
    fit(tmp_path / "earlier", CHANGES)
    idle = {"type": "test_freezing.Two", "weights": str(tmp_path / "earlier/model/painter.safetensors")}
    networks = {"painter": CHANGES["networks"]["painter"], "idle": {**idle, "freeze_batch_norm": {"after": 0}}}
    with pytest.raises(UserError, match=r"networks.idle.freeze_batch_norm: no step trains this network"):
        Trainer(toy.checked(CHANGES | {"networks": networks}), run)


@pytest.mark.parametrize("rule", [FROZEN, STOPS])
def test_a_step_does_not_undo_it(rule):
    paint = CHANGES["steps.painter.injectors.paint"]
    for mode in ("inherit", "eval"):
        toy.checked(CHANGES | rule | {"steps.painter.injectors.paint": paint | {"mode": mode}})
    (key,) = rule
    with pytest.raises(UserError, match=rf"injectors.paint.mode: found 'train'; {key} keeps BatchNorms still"):
        toy.checked(CHANGES | rule | {"steps.painter.injectors.paint": paint | {"mode": "train"}})


def test_the_earlier_form_is_refused():
    with pytest.raises(UserError, match=r"networks.painter.freeze_batch_norm: .*is now \{after: 0\}"):
        toy.checked(CHANGES | {"networks.painter.freeze_batch_norm": True})


def test_warns_of_what_never_happens():
    changes = {"networks.painter.frozen": {"until": 12, "modules": ["base"]},
               "networks.painter.freeze_batch_norm": {"after": 12}}  # fmt: skip
    assert late_gates(toy.checked(CHANGES | changes), 12) == [
        "networks.painter.freeze_batch_norm starts after step 12, training ends at 12",
        "networks.painter.frozen lasts until step 12, training ends at 12",
    ]
    assert late_gates(toy.checked(CHANGES | changes), 13) == []
