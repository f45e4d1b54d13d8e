"""`figura replay`: an iteration is rebuilt bit for bit, and what was not finite first is named."""

import json

import numpy as np
import pytest
import torch
import toy
from safetensors.torch import load_file
from torch import nn
from trainings import QUIET, contents, history, trained

from figura.base.errors import UserError
from figura.base.raw_pictures import read_picture
from figura.base.yaml12 import read_yaml
from figura.commands.replay import main
from figura.commands.replayed import replayed
from figura.engine.data import epoch_order
from figura.interfaces import Callback, Loss, Operation

AT = 7  # the iteration that breaks
BROKEN = int(epoch_order(3, "ramps", 0, 40)[4 * (AT - 1) + 2])
"""The third example of iteration `AT`, of 40 examples."""
EACH = QUIET | {"runtime.resume_every": 4}
OWN = {"losses.own.inputs": {"image": "image", "target": "y"}, "losses.own.weight": 1.0, "losses.own.after": AT - 1}


def replay(run, step=AT, live="live"):
    return replayed(read_yaml(run / live / "recipe.yaml"), run / live, step)[0]


def first(lines):
    (line,) = (one for one in lines if one.startswith("not finite: "))
    return line.removeprefix("not finite: ")


# what breaks


class Plant(Callback):
    """Fills a tensor of a network, or its gradient, with a number, at iteration `AT`."""

    def __init__(self, network: str, tensor: str, value: float = torch.nan, when: str = "before", kind: str = "live"):
        self.network, self.tensor, self.value, self.when, self.kind = network, tensor, value, when, kind

    def _plant(self, trainer, when):
        if trainer.iteration == AT - 1 and when == self.when:
            network = getattr(trainer.networks, self.kind)[self.network]
            tensor = dict(network.state_dict(keep_vars=True))[self.tensor]
            with torch.no_grad():
                (tensor.grad if when == "gradient" else tensor).fill_(self.value)

    def before_iteration(self, trainer):
        self._plant(trainer, "before")

    def before_update(self, trainer, step):
        if self.network in trainer.steps[step].own:
            self._plant(trainer, "gradient")

    def after_update(self, trainer, step, report):
        if self.network in trainer.steps[step].own:
            self._plant(trainer, "after")


class Breaking(toy.Painter):
    """Gives infinite numbers from its call `AT` on in training, beyond its layers; a buffer counts them."""

    def __init__(self) -> None:
        super().__init__(2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, noise=0.0):
        self.calls += self.training
        image = super().forward(x, noise)["image"]
        return {"image": image / (self.calls < AT), "mean": image.mean()}


class Pictures(toy.Ramps):
    """Ramps with a number that is not finite in one name of one example."""

    def __init__(self, length: int, name: str, index: int) -> None:
        super().__init__(length)
        self.name, self.index = name, index

    def example(self, index, random):
        example = super().example(index, random)
        if index == self.index:
            example[self.name][0, 1, 2] = np.nan
        return example


class Logarithm(Operation):
    """The logarithm of a name, of which some are negative."""

    def compute(self, tensors, step):
        return [tensor.log() for tensor in tensors]


class Inner(nn.Module):
    def forward(self, x):
        return x.log()


class Faulty(Loss):
    """A loss with a fault: its value, one of its components, a layer of it, or its gradient."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.inner = fault, Inner()

    def forward(self, *, image, target=None):
        value = image.flatten(1).mean(dim=1)
        return {
            "value": lambda: (value * 0 - 1).log(),
            "component": lambda: {"good": value, "bad": value / 0},
            "layer": lambda: self.inner(value * 0 - 1) + value,
            "gradient": lambda: (value * 0).sqrt(),
        }[self.fault]()


def plant(network, tensor, **more):
    return {"callbacks": {"plant": {"type": f"{__name__}.Plant", "network": network, "tensor": tensor, **more}}}


def loss(fault):
    return {"losses.own": {"type": f"{__name__}.Faulty", "fault": fault}} | OWN


def pictures(name):
    """A picture of the third example of iteration `AT` is broken, which is not met before."""
    return {"data.train.ramps": {"type": f"{__name__}.Pictures", "length": 40, "name": name, "index": BROKEN}}


PAINT = "steps.painter.injectors"
OF_EMA = {f"{PAINT}.again": toy.PAINT | {"weights": "ema", "outputs": {"image": "second"}}}
CASES = {
    "weight of the first layer": (None, plant("painter", "layer.weight"), "layer painter.layer (Conv2d, its weight)"),
    "too large a weight": (None, plant("painter", "layer.weight", value=3e38), "layer painter.layer (Conv2d)"),
    "an average": (None, OF_EMA | plant("painter", "last.weight", kind="ema"),
        "layer average of painter.last (Conv2d, its weight)"),
    "a norm": ("gan", plant("critic", "norm.weight"), "layer critic.norm (SharedBatchNorm, its weight)"),
    "running statistics": ("gan", plant("critic", "norm.running_mean"), "critic.norm.running_mean after the update"),
    "between layers": (None, {"networks.painter": {"type": f"{__name__}.Breaking"}}, "painter 'image' (Breaking)"),
    "an injector": (None, {f"{PAINT}.log": {"type": f"{__name__}.Logarithm", "reads": ["y"], "adds": ["log"],
        "after": AT - 1}}, "injector painter.log: 'log'"),
    "an input": (None, pictures("x"), f"'x' of example 2 of the batch (index {BROKEN})"),
    "a target": (None, pictures("y"), f"'y' of example 2 of the batch (index {BROKEN})"),
    "an input of a part": (None, pictures("x") | {"train.accumulation": 2},
        f"'x' of example 2 of the batch (index {BROKEN})"),
    "a loss": (None, loss("value"), "loss own (Faulty)"),
    "a component": (None, loss("component"), "loss own 'bad' (Faulty)"),
    "a layer of a loss": (None, loss("layer"), "loss own, layer inner (Inner)"),
    "a gradient": (None, loss("gradient"), "gradient of loss own, from layer painter.last backwards"),
    "the gradients of a callback": (None, plant("painter", "last.bias", when="gradient"),
        "gradient of painter before the update"),
    "the update": (None, plant("painter", "layer.bias", when="after"), "painter.layer.bias after the update"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "changes", "expected"), CASES.values(), ids=CASES.keys())
def test_what_breaks_is_named(kind, changes, expected, tmp_path):
    run = tmp_path / "run"
    changes = EACH | changes
    try:
        trained(run, changes, toy.gan() if kind else None)
    except UserError as error:
        assert "not finite" in str(error)  # noqa: PT017
    left = contents(run)
    lines = replay(run)
    assert first(lines).startswith(expected), lines
    assert lines[1].startswith("the losses of "), lines
    assert lines[1].endswith(" bit for bit"), lines
    assert first(replay(run, AT - 1)) == "nothing"
    assert contents(run) == left


class Known(toy.Distance):
    """The distance where the target is known."""

    def forward(self, *, image, target, mask=None):
        return super().forward(image=image, target=target.nan_to_num(), mask=target.isfinite())


def test_a_target_that_is_unknown_by_design_is_no_fault(tmp_path):
    own = {f"losses.{name}.type": f"{__name__}.Known" for name in ("distance", "square")}
    trained(tmp_path, EACH | pictures("y") | own)
    assert first(replay(tmp_path)) == "nothing"


# numbers


def table(lines, step, network):
    """Return the rows of a step's table by loss, as texts by column, and the line above it."""
    start = next(index for index, line in enumerate(lines) if line.startswith(f"step {step}, network {network}: "))
    head, *rows = [line.split() for line in lines[start + 1 : lines.index("", start + 1)]]
    head = " ".join(head).replace("in the log", "log").replace("cosine ", "cosine_").split()
    found = {row[0]: dict(zip(head[1:], row[1:], strict=False)) for row in rows[:-1]}
    return found | {"together": rows[-1]}, lines[start]


def test_gradients_cosines_and_updates_are_those_of_the_training(tmp_path):
    same = {"type": "toy.Distance", "inputs": {"image": "image", "target": "y"}}
    changes = EACH | {
        "losses": {"one": same | {"weight": 2.0}, "thrice": same | {"weight": 6.0}, "against": same | {"weight": -1.0},
            "square": same | {"power": 2.0, "weight": 0.5}},
        "steps.painter.optimizer": {"type": "torch.optim.SGD", "lr": 0.1},
        "steps.painter.clip": None,
        "train.ema": None,
        "train.record_every": 1,
        "runtime.checkpoint_every": 1,
    }  # fmt: skip
    trained(tmp_path, changes)
    rows, title = table(replay(tmp_path), "painter", "painter")
    recorded = history(tmp_path)[AT - 1]
    one, thrice, against, square = (rows[name] for name in ("one", "thrice", "against", "square"))
    for name in ("one", "thrice", "against", "square"):
        assert rows[name]["log"] == "equal"
        assert float(rows[name]["value"]) == pytest.approx(recorded[f"{name}.raw"], rel=1e-5)
    assert float(thrice["gradient"]) == pytest.approx(3 * float(one["gradient"]), rel=1e-3)
    assert float(against["gradient"]) == pytest.approx(0.5 * float(one["gradient"]), rel=1e-3)
    assert (thrice["cosine_one"], against["cosine_one"], against["cosine_thrice"]) == ("+1.000", "-1.000", "-1.000")
    whole = float(rows["together"][1])
    assert whole == pytest.approx(recorded["painter.grad_norm"], rel=1e-3)
    a, b = 3.5 * float(one["gradient"]), float(square["gradient"])  # 2 + 6 - 1 is 3.5 times 2
    assert whole**2 == pytest.approx(a * a + b * b + 2 * a * b * float(square["cosine_one"]), rel=2e-3)
    before, after = (load_file(tmp_path / f"checkpoints/step-{at:06d}/painter.safetensors") for at in (AT - 1, AT))
    moved = sum(float(((after[name] - before[name]) ** 2).sum()) for name in before) ** 0.5
    size = sum(float((value**2).sum()) for value in before.values()) ** 0.5
    assert moved == pytest.approx(0.1 * whole, rel=1e-3)
    assert float(title.split("update ")[1].split()[0]) == pytest.approx(moved / size, rel=3e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train.accumulation": 3},
        {"train.try": True},
        {"train.keep": {"metric": "distance", "better": "lower"}, "train.stop": {"patience": 1}},
        {"steps.painter.every": 3},
    ],
)
def test_every_loss_is_computed_again_bit_for_bit(changes, tmp_path):
    trained(tmp_path, EACH | changes)
    live = "try/live" if "train.try" in changes else "live"
    lines = replay(tmp_path, 10, live)
    ran = 4 if "steps.painter.every" in changes else 10
    assert lines[0].startswith("iteration 10 of 1")
    assert "from the start" in lines[0]
    assert lines[1] == f"the losses of {ran} iterations are those of {tmp_path}/{live}/losses.csv, bit for bit"
    assert len([line for line in lines if " equal " in line]) == 2
    with pytest.raises(UserError, match=r"--step 13: the training has 1\d iterations"):
        replay(tmp_path, 13, live)
    if ran == 4:
        with pytest.raises(UserError, match="--step 2: no step of the recipe runs in this iteration"):
            replay(tmp_path, 2)


def test_it_goes_on_from_a_state_that_trainings_share(tmp_path, monkeypatch):
    monkeypatch.setenv("FIGURA_STATES", str(tmp_path / "states"))
    trained(tmp_path / "first", EACH | {"train.steps": 7})
    trained(tmp_path / "second", EACH)
    lines = replay(tmp_path / "second", 9)
    assert "from iteration 8 of second (state " in lines[0]
    assert lines[1].startswith("the losses of 1 iterations are")
    lines = replay(tmp_path / "second", 6)
    assert "from iteration 4 of first (state " in lines[0]
    assert first(lines) == "nothing"


def test_the_command_prints_one_page_and_draws_the_batch(tmp_path, capsys):
    run = tmp_path / "run"
    trained(run, EACH | pictures("x"))
    main([str(run), "--step", str(AT), "--output", str(tmp_path / "batch.png")])
    said = capsys.readouterr().out
    assert f"\nnot finite: 'x' of example 2 of the batch (index {BROKEN})\nthen: layer painter.layer (Conv2d); " in said
    assert "update skipped, as something is not finite" in said
    assert (np.asarray(read_picture(tmp_path / "batch.png")) == (255, 0, 255)).all(axis=2).any()


def test_what_has_changed_is_told(tmp_path):
    trained(tmp_path, EACH)
    log = tmp_path / "live/log.jsonl"
    begun, *rest = log.read_text().splitlines()
    log.write_text("\n".join([json.dumps(json.loads(begun) | {"code": "{}", "processes": 2}), *rest]))
    table = (tmp_path / "live/losses.csv").read_text()
    (tmp_path / "live/losses.csv").write_text(table.replace("\n3,distance,0.", "\n3,distance,1."))
    lines = replay(tmp_path)
    assert lines[1].startswith(f"other losses than in {tmp_path}/live/losses.csv from iteration 3 on: distance 0.")
    assert lines[2:4] == [
        "it was trained in 2 processes, whose rounding differs from that of one", "its code has changed since"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--step", "0"], "--step 0: expected 1 or more"),
        (["run", "--step", "3", "--output", "a.jpg"], "--output a.jpg: expected a file that ends in .png"),
        (["run", "--step", "3"], "run: no training has begun here"),
    ],
)
def test_wrong_arguments(arguments, told):
    with pytest.raises(UserError, match=told):
        main(arguments)


def test_a_run_whose_outputs_alone_are_here(tmp_path):
    (tmp_path / "toy/model").mkdir(parents=True)
    with pytest.raises(UserError, match=r"was trained elsewhere; copy .*/toy/live from .* --force train@toy"):
        main([str(tmp_path / "toy"), "--step", "3"])
