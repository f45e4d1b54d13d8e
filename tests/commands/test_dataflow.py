"""The graph of a recipe, its dry run, its sizes and the lanes of its picture: against counts and sums by hand."""

import pytest
import torch
import toy
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.commands.describe.dataflow import mode_flow, training_flow
from figura.commands.describe.dry_run import meta_networks, run_mode, run_training
from figura.commands.describe.footprint import footprint, size_of
from figura.interfaces import Loss

PAINTER = 2 * 9 + 2 + 2 + 1  # parameters: a 3 x 3 convolution to two channels, a 1 x 1 convolution back
PAINT = 2 * 16 * (2 * 9 + 2)  # FLOPs for a picture of 4 x 4 pixels


class Picked(Loss):
    """Asks for values: the mean of the positive pixels."""

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        rows = (target > -2).nonzero()[:, 0]
        values = image[target > -2] ** 2
        return values.new_zeros(len(image)).index_add(0, rows, values)


class Broken(Loss):
    """Cannot be computed at all."""

    def forward(self, *, image: Tensor) -> Tensor:  # type: ignore[override]
        raise ArithmeticError("no such number")


class Shift(nn.Module):
    """Goes to the device of its input, and reads a value of its own, as augmentations of kornia do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.to(x.device).step.item()


class Seen(nn.Module):
    """Refuses to be built without values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 1, 1)
        self.gain = self.layer.weight.detach().abs().sum().item()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Stubborn(torch.optim.SGD):
    """Updates what the check tries, 2 x 2, and nothing else."""

    def step(self, closure=None):
        if self.param_groups[0]["params"][0].shape != (2, 2):
            raise ArithmeticError("no")


def costs_of(recipe, **options):
    return run_training(recipe, meta_networks(recipe), **options)


def test_a_gan_is_two_panels_that_share_the_fake():
    flow = training_flow(toy.checked(content=toy.gan()))
    assert flow.unread == ("index",)
    assert [[(box.title, box.network) for box in panel.boxes] for panel in flow.panels[1:]] == [
        [("paint", "painter"), ("real", "critic"), ("fake", "critic"), ("real", None), ("fake", None)],
        [("judge", "critic"), ("fool", None), ("distance", None)],
    ]
    assert flow.boxes["losses.distance"].inputs == (("image", "image"), ("target", "y"))


def test_a_network_learns_where_gradients_of_a_step_that_trains_it_arrive():
    def learns(changes):
        boxes = training_flow(toy.checked(changes, toy.gan())).boxes
        return {key.partition("injectors.")[2]: box.learns for key, box in boxes.items() if box.kind == "injector"}

    assert learns({}) == {"paint": ("painter",), "real": ("critic",), "fake": ("critic",), "judge": ()}
    assert learns({"steps.painter.detach": ["image"]})["paint"] == ()
    assert learns({"steps.critic.injectors.paint.grad": False})["paint"] == ()
    assert learns({"steps.critic.injectors.fake.weights": "ema"})["fake"] == ()
    # detached on entry to the critic's step, where it is made: no matter
    assert learns({"steps.critic.detach": ["x"]})["paint"] == ("painter",)


def test_a_loss_shows_its_weight_and_those_of_weight_zero_are_left_out():
    recipe = toy.checked({"losses.distance.weight": 0.0})
    (panel,) = training_flow(recipe).panels[1:]
    assert panel.off == ("distance",)
    (square,) = (box for box in panel.boxes if box.kind == "loss")
    assert (square.weight, square.lines[1]) == (0.5, "× Linear 0 → 1, 2–6")


def test_modes_end_in_what_they_save_and_unknown_ones_are_refused():
    flow = mode_flow(toy.checked(), "plain")
    assert [(box.kind, box.title, box.lines) for box in flow.panels[1].boxes] == [
        ("injector", "paint", ()),
        ("saved", "image", ("array",)),
    ]
    with pytest.raises(UserError, match=r"no mode 'plan' .did you mean 'plain'"):
        mode_flow(toy.checked(), "plan")


def test_shapes_operations_and_memory_of_a_step():
    recipe = toy.checked()
    costs = costs_of(recipe)
    assert (costs.shapes["x"], costs.shapes["image"], costs.shapes["index"]) == (("4×1×4×4",), ("4×1×4×4",), ("4",))
    assert costs.forward["steps.painter.injectors.paint"] == 4 * PAINT
    # backward: gradients of both kernels, and of the second convolution's input; x takes none
    assert costs.backward == {"painter": 4 * (2 * 16 * 2 * 9 + 2 * 2 * 16 * 2)}
    assert (costs.notes, costs.scaled) == ([], [])
    # what the graph must keep: at least x and what enters the second convolution; parameters do not count
    assert 4 * 4 * 16 * (1 + 2) <= costs.saved["painter"] <= costs.peak
    costs = run_mode(recipe, meta_networks(recipe), "plain", 5)  # a mode keeps nothing
    assert costs.forward == {"evaluate.modes.plain.injectors.paint": 5 * PAINT}
    assert (costs.backward, costs.saved, costs.shapes["image"]) == ({}, {}, ("5×1×4×4",))


def test_costs_are_proportional_to_the_batch_and_cut_by_accumulation():
    recipe = toy.checked(content=toy.gan())
    one, two = costs_of(recipe, batch_size=3), costs_of(recipe, batch_size=6)
    assert {key: 2 * flops for key, flops in one.forward.items()} == two.forward
    assert {key: 2 * flops for key, flops in one.backward.items()} == two.backward
    cut = costs_of(toy.checked({"train.accumulation": 2}, toy.gan()), batch_size=6)
    assert (cut.part, cut.forward, cut.backward, cut.peak) == (3, two.forward, two.backward, one.peak)


def test_the_second_step_of_a_gan_goes_back_through_the_first_ones_fake():
    costs = costs_of(toy.checked(content=toy.gan()))
    # the critic's one convolution and its layer: gradients of its weights, of two calls
    critic = 4 * (2 * 16 * 2 * 9 + 2 * 2)
    assert costs.forward["steps.critic.injectors.real"] == critic
    assert costs.backward["critic"] == 2 * (critic + 4 * 2 * 2)  # and of what enters the layer
    through = 4 * (2 * 16 * 2 * 9 + 2 * 2)  # inputs of the critic's convolution and layer
    assert costs.backward["painter"] == through + 4 * (2 * 16 * 2 * 9 + 2 * 2 * 16 * 2)


def test_what_asks_for_values_is_scaled_and_gradients_still_flow():
    plain = costs_of(toy.checked())
    recipe = toy.checked({"losses.distance.type": "test_dataflow.Picked", "losses.distance.weight": 1.0})
    costs = costs_of(recipe)
    assert costs.scaled == ["losses.distance"]
    assert costs.notes == []
    assert costs.backward == plain.backward


def test_a_module_that_moves_to_the_device_of_its_input_is_run_on_the_cpu():
    shift = {"type": "test_dataflow.Shift", "inputs": {"x": "image"}, "output": "shifted"}
    costs = costs_of(toy.checked({"steps.painter.injectors.shift": shift}))
    assert (costs.notes, costs.scaled) == ([], ["steps.painter.injectors.shift"])
    assert costs.shapes["shifted"] == ("4×1×4×4",)


def test_what_cannot_be_carried_out_is_said_and_the_rest_goes_on():
    changes = {"losses.distance.type": "test_dataflow.Broken", "losses.distance.inputs": {"image": "image"}}
    costs = costs_of(toy.checked(changes))
    assert costs.notes == ["losses.distance could not be carried out: ArithmeticError: no such number"]
    assert costs.shapes["image"] == ("4×1×4×4",)
    assert costs.forward["steps.painter.injectors.paint"] == 4 * PAINT
    assert costs.backward == {}


def test_networks_whose_constructor_needs_values_are_built_on_the_cpu_first():
    recipe = toy.checked(
        {"networks.painter": {"type": "test_dataflow.Seen"}, "steps.painter.injectors.paint": {
            "type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"output": "image"},
        }, "evaluate.modes.plain.injectors.paint.outputs": {"output": "image"}}
    )  # fmt: skip
    (network,) = meta_networks(recipe).values()
    assert {p.device.type for p in network.parameters()} == {"meta"}
    assert costs_of(recipe).shapes["image"] == ("4×1×4×4",)


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [
        ({"type": "torch.optim.Adam", "lr": 0.1}, 2 * 4 * PAINTER + 4 * 4),  # two means, and a count a tensor
        ({"type": "torch.optim.Adam", "lr": 0.1, "fused": True}, 2 * 4 * PAINTER + 4 * 4),  # wants values
        ({"type": "torch.optim.SGD", "lr": 0.1}, 0),
        ({"type": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9}, 4 * PAINTER),
        ({"type": "test_dataflow.Stubborn"}, None),
    ],
)
def test_footprint(optimizer, state):
    recipe = toy.checked({"steps.painter.optimizer": optimizer})
    networks = meta_networks(recipe)
    size = size_of(networks["painter"])
    assert (size.parameters, size.trained, size.bytes, size.buffer_bytes) == (PAINTER, PAINTER, 4 * PAINTER, 0)
    taken = footprint(recipe, networks)
    assert taken.optimizers == {"painter": state}
    assert taken.total == 3 * 4 * PAINTER + (state or 0)  # weights, gradients, averages
    size = size_of(meta_networks(toy.checked(content=toy.gan()))["critic"])
    assert size.parameters == (2 * 9 + 2) + (2 + 2) + (2 + 1)
    assert size.buffer_bytes == 2 * 2 * 4 + 8  # running mean and variance, an int64 count
