"""Networks and losses of other packages stand in a recipe by their own names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from safetensors.torch import load_file
from torch import Tensor, nn
from two_processes import run_in_two

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.dump import Dump
from figura.engine.build import build_losses
from figura.engine.package_parts import PackageLoss
from figura.evaluation.evaluate import Evaluation
from figura.interfaces import Loss
from figura.recipe.types import NETWORK, find_type
from figura.training.trainer import Trainer


def make(width: int, **more: Any) -> nn.Module:
    """A function that returns a network."""
    return toy.Painter(width, **more)


def made_of(width: int):
    return toy.Painter(width)


def no_module(width: int) -> nn.Module:
    return width  # type: ignore[return-value]


class Dice(nn.Module):
    """One number for all pixels of a batch, which is no mean over its examples."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return 1 - 2 * (x * y).abs().sum() / (x.abs().sum() + y.abs().sum())


class NoiseRatio(nn.Module):
    """Of the mean error of a batch: nearly the mean over examples, if these are alike."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x - y).square().mean().log()


class Features(nn.Module):
    """Differences of random features, (N, 2, 4, 4); noise in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Dropout(0.5))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.layers(x) - self.layers(y)).square()


def fit(changes: dict[str, Any], run: Path) -> Trainer:
    trainer = Trainer(toy.checked({"runtime.states": False} | changes), run)
    trainer.fit()
    return trainer


def refused(changes: dict[str, Any], run: Path) -> str:
    """Return the single line that a training with these changes is refused with, without the recipe's name."""
    with pytest.raises(UserError) as told:
        fit(changes, run)
    (line,) = str(told.value).splitlines()
    return line.partition(": ")[2]


MAKE = {"type": "test_package_parts.make", "width": 2}


def test_a_function_that_returns_a_network_stands_for_it(tmp_path):
    by_class = fit({}, tmp_path / "class")
    by_function = fit({"networks.painter": MAKE | {"dropout": 0.1}}, tmp_path / "function")
    weights = [one.networks.live["painter"].state_dict() for one in (by_class, by_function)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(one, weights[1][name]) for name, one in weights[0].items())
    model = (tmp_path / "function/model/painter.safetensors").read_bytes()
    assert model == (tmp_path / "class/model/painter.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (MAKE | {"width": "2"}, "networks.painter.width: found '2'; expected an integer"),
        (MAKE | {"droput": 0.1}, "networks.painter: test_package_parts.make: TypeError: Painter.__init__() got an"),
        (MAKE | {"type": "test_package_parts.no_module"}, "gives a int; a torch.nn.Module is needed"),
        (MAKE | {"type": "test_package_parts.made_of"}, "a function counts if it is annotated to return a torch.nn.M"),
        (MAKE | {"type": "test_package_parts.mak"}, "(did you mean 'test_package_parts.make'?)"),
    ],
)
def test_what_is_wrong_with_a_function_is_told_in_a_line(tmp_path, network, said):
    assert said in refused({"networks.painter": network}, tmp_path)


def test_a_frozen_network_may_have_its_own_weights(tmp_path, capsys):
    said = refused({"networks.judge": MAKE}, tmp_path)
    assert said.startswith("networks.judge: no step trains it and it loads no weights; if its type brings its own,")
    trainer = fit({"networks.judge": MAKE | {"weights": "own"}}, tmp_path)
    assert "network 'judge' starts from the weights that its type gives it, digest " in capsys.readouterr().out
    assert not any(parameter.requires_grad for parameter in trainer.networks.live["judge"].parameters())
    kept = load_file(tmp_path / "model/judge.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in trainer.networks.live["judge"].state_dict().items())


def test_trusted_types_only_takes_no_functions(monkeypatch):
    monkeypatch.setenv("FIGURA_TRUSTED_TYPES_ONLY", "--trusted-types-only")
    errors = ErrorCollector(Path("p.yaml"))
    assert find_type("torch.nn.utils.parametrizations.orthogonal", NETWORK, "k", errors) is None
    (line,) = errors.lines
    assert "unknown network" in line
    monkeypatch.delenv("FIGURA_TRUSTED_TYPES_ONLY")
    assert find_type("torch.nn.utils.parametrizations.orthogonal", NETWORK, "k", errors) is not None


class Weighing(Loss):
    """Has an argument that no recipe can give it."""

    def __init__(self, weight: list[float]) -> None:
        super().__init__()


class Channels(nn.Module):
    """Weights of channels, in an attribute that is no buffer."""

    def __init__(self, weight: Tensor, also: list[float] | Tensor | None = None) -> None:
        super().__init__()
        self.weight, self.also = weight, also

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return ((input - target).square() * self.weight).mean()


def test_lists_are_tensors_of_a_packages_loss_and_follow_its_device():
    """Weights of classes against PyTorch's own; `args` has what is called as a key of figura's."""
    logits, labels = torch.randn(3, 4, 2, 2), torch.randint(4, (3, 2, 2))
    hot = nn.functional.one_hot(labels, 4).movedim(-1, 1).float()
    weights, ratios = [1, 2.0, 3, 0.5], [[[1]], [[2.0]], [[3]], [[4]]]
    given = {"type": "torch.nn.CrossEntropyLoss", "args": {"weight": weights}, "label_smoothing": 0.1}
    found = loss_of(given)(input=logits, target=labels).mean()
    assert found == nn.CrossEntropyLoss(torch.tensor(weights), label_smoothing=0.1)(logits, labels)
    found = loss_of({"type": "torch.nn.BCEWithLogitsLoss", "pos_weight": ratios})(input=logits, target=hot).mean()
    assert found == nn.BCEWithLogitsLoss(pos_weight=torch.tensor(ratios))(logits, hot)
    channels = loss_of({"type": "test_package_parts.Channels", "args": {"weight": 3}, "also": [1.0]}).to("meta").call
    assert channels.weight.is_meta
    assert channels.also == [1.0]


def loss_of(declared: dict[str, Any]) -> PackageLoss:
    recipe = toy.checked({"losses.distance": declared | ROLES})
    return build_losses(recipe, "painter", torch.device("cpu"))["distance"].loss


ROLES = {"inputs": {"input": "image", "target": "y"}, "weight": 2.0}
PAIR = {"inputs": {"x": "image", "y": "y"}, "weight": 2.0}
BINARY = {"type": "torch.nn.BCEWithLogitsLoss"} | ROLES
MEANS = [
    {"type": "torch.nn.L1Loss"},
    {"type": "torch.nn.L1Loss", "reduction": "none"},
    {"type": "torch.nn.functional.l1_loss"},
]


@pytest.mark.parametrize("loss", MEANS, ids=["one number", "values of each pixel", "function"])
@pytest.mark.parametrize("parts", [1, 2])
def test_the_loss_of_a_package_is_the_same_loss_of_figura(tmp_path, loss, parts):
    """In training, in parts of a batch, in validation (6 examples, 4 a batch), and for each example of a dump."""
    changes = {"train.accumulation": parts}
    ours = fit(changes, tmp_path / "ours")
    theirs = fit(changes | {"losses.distance": loss | ROLES}, tmp_path / "theirs")
    for split in ("train", "validation"):
        rows = [getattr(one.loss_log, split) for one in (ours, theirs)]
        assert len(rows[0]) == len(rows[1]) > 1
        for mine, other in zip(*rows, strict=True):
            assert other["distance.raw"] == pytest.approx(mine["distance.raw"], rel=1e-5)
    dumps = []
    for trainer, run in ((ours, "ours"), (theirs, "theirs")):
        Evaluation(trainer.recipe, trainer.networks.ema, tmp_path / run / "dump", trainer.accelerator).write()
        dumps.append(Dump(tmp_path / run / "dump").mode("plain").table["loss.distance"].to_numpy())
    assert np.ptp(dumps[0]) > 0.01
    np.testing.assert_allclose(dumps[1], dumps[0], rtol=1e-4)


def test_a_function_gets_its_other_arguments(tmp_path):
    loss = {"type": "torch.nn.functional.huber_loss", "delta": 0.1}
    image, target = torch.randn(3, 1, 4, 4), torch.randn(3, 1, 4, 4)
    built = build_losses(toy.checked({"losses.distance": loss | ROLES}), "painter", torch.device("cpu"))["distance"]
    error = (image - target).abs()
    expected = torch.where(error < 0.1, error.square() / 2, 0.1 * (error - 0.05)).mean(dim=(1, 2, 3))
    with torch.no_grad():
        torch.testing.assert_close(built.values("d", {"image": image, "y": target})["d"], expected)
    torch.testing.assert_close(built.values("d", {"image": image, "y": target})["d"], expected.mean().expand(3))


@pytest.mark.parametrize("changes", [{"train.accumulation": 2}, {"steps.painter.accumulation": 2}])
def test_a_loss_of_the_whole_batch_goes_in_one_part_alone(tmp_path, changes):
    loss = {"losses.distance": {"type": "test_package_parts.Dice"} | PAIR}
    fit(loss, tmp_path)
    line = refused(loss | changes, tmp_path)
    assert line.startswith(
        "losses.distance: its value of a batch is not the mean of the values of its examples, so cut"
    )


def test_two_processes_train_as_one_and_refuse_a_loss_of_the_whole_batch(tmp_path):
    """A rank's number is that of its shard."""
    loss = {"losses.distance": {"type": "torch.nn.L1Loss"} | ROLES, "networks.painter.dropout": 0.0}
    one = [row["distance.raw"] for row in fit(loss, tmp_path / "one").loss_log.train]
    whole = {"losses.distance": {"type": "test_package_parts.Dice"} | PAIR}

    def job():
        assert "its value of a batch is not the mean of the values of its examples" in refused(whole, tmp_path / "no")
        two = [row["distance.raw"] for row in fit(loss, tmp_path / "two").loss_log.train]
        assert two == pytest.approx(one, rel=1e-5)

    run_in_two(job)


def test_examples_that_are_alike_do_not_hide_a_loss_of_the_whole_batch():
    loss = PackageLoss(NoiseRatio())
    x = torch.randn(1, 3, 8, 8).repeat(2, 1, 1, 1)
    assert loss.of_each({"x": x, "y": -x}, loss.call(x=x, y=-x)) is not None
    assert not loss.is_mean({"x": x, "y": -x})
    assert PackageLoss(nn.MSELoss()).is_mean({"input": x, "target": -x})
    labels = torch.tensor([1, 2])
    assert PackageLoss(nn.CrossEntropyLoss()).is_mean({"input": torch.randn(2, 3), "target": labels})
    weighted = PackageLoss(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 5.0])))
    assert not weighted.is_mean({"input": torch.randn(2, 3), "target": labels})


def test_a_resumed_training_asks_again(tmp_path, monkeypatch):
    """Its first part may have run in one process."""
    loss = {"losses.distance": {"type": "test_package_parts.Dice"} | PAIR, "runtime.states": False}
    fit(loss | {"train.steps": 4}, tmp_path)
    trainer = Trainer(toy.checked(loss | {"train.steps": 8}), tmp_path)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UserError, match="is not the mean of the values of its examples"):
        trainer.fit()


def test_the_network_of_a_loss_stays_as_it_is(tmp_path):
    trainer = fit({"losses.distance": {"type": "test_package_parts.Features"} | PAIR}, tmp_path)
    (step,) = trainer.steps.values()
    loss = step.losses["distance"].loss
    assert not any(parameter.requires_grad for parameter in loss.parameters())
    assert not any(module.training for module in loss.modules())
    own = {id(parameter) for parameter in loss.parameters()}
    assert own.isdisjoint(id(p) for group in step.optimizer.param_groups for p in group["params"])
    assert [path.name for path in (tmp_path / "model").glob("*.safetensors")] == ["painter.safetensors"]


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ({"type": "torch.nn.L1Loss", "reductoin": "sum"} | ROLES, "(did you mean 'reduction'?)"),
        ({"type": "torch.nn.functional.l1_los"} | ROLES, "(did you mean 'torch.nn.functional.l1_loss'?)"),
        (BINARY | {"pos_weight": ["a"]}, "losses.distance: torch.nn.BCEWithLogitsLoss: "),
        (
            BINARY | {"args": {"weigt": [1.0]}},
            "losses.distance.args.weigt: unknown key 'weigt' (did you mean 'weight'?)",
        ),
        (BINARY | {"weight": [1.0]}, "found [1.0]; expected a number; those of classes go below `args`"),
        ({"type": "test_package_parts.Channels"} | ROLES, "losses.distance.args: missing; Channels needs it"),
        ({"type": "test_package_parts.Weighing"} | ROLES, "the entry's own, so the argument needs another name"),
        ({"type": "torch.nn.L1Loss", "reduction": "men"} | ROLES, "men is not a valid value for reduction"),
        ({"type": "toy.Painter", "inputs": {"x": "image"}, "weight": 1.0}, "gives a dict; a tensor is needed"),
        ({"type": "test_package_parts.make", "inputs": {}, "weight": 1.0}, "annotated to return a torch.Tensor"),
        ({"type": "torch.nn.Flatten", "start_dim": 0, "inputs": {"input": "image"}, "weight": 1.0}, "shape (32,)"),
    ],
)
def test_what_is_wrong_with_a_loss_is_told_in_a_line(tmp_path, loss, said):
    assert said in refused({"losses.distance": loss}, tmp_path)
