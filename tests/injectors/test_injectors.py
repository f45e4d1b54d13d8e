import pytest
import torch
from torch import nn

from figura.injectors.forward import Forward
from figura.injectors.tensors import Interpolate
from figura.interfaces import Injector, Networks, State
from figura.schedules import Linear


class Affine(nn.Module):
    """Says what it was called with."""

    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x, shift=0.0):
        return {"sum": self.factor * x + shift, "mean": (self.factor * x).mean()}


class Plain(nn.Module):
    def forward(self, x):
        return x + 1


def run(injector, networks=None, step=0, **batch):
    state = State(batch)
    live = networks or {"n": Affine(2.0)}
    injector(state, Networks(live, live), step)
    return state


def test_inputs_and_outputs_go_by_name_and_the_rest_is_dropped():
    forward = Forward("n", {"x": "picture"}, {"sum": "twice"}, args={"shift": 1.0})
    assert forward.reads == ("picture",)
    assert forward.adds == ("twice",)
    state = run(forward, picture=torch.tensor([1.0, 2.0]))
    assert state["twice"].tolist() == [3.0, 5.0]
    assert list(state) == ["picture", "twice"]


def test_one_tensor_is_the_output_output():
    state = run(Forward("n", {"x": "x"}, {"output": "y"}), {"n": Plain()}, x=torch.zeros(2))
    assert state["y"].tolist() == [1.0, 1.0]


def test_an_output_that_the_network_does_not_give():
    with pytest.raises(KeyError, match=r"network 'n' gives \['mean', 'sum'\], not 'total'"):
        run(Forward("n", {"x": "x"}, {"total": "y"}), x=torch.zeros(2))


@pytest.mark.parametrize(("step", "shift"), [(0, 0.0), (5, 0.5), (10, 1.0), (99, 1.0)])
def test_an_argument_may_follow_a_schedule(step, shift):
    forward = Forward("n", {"x": "x"}, {"sum": "y"}, args={"shift": Linear(0, 10, 0.0, 1.0)})
    assert run(forward, step=step, x=torch.zeros(1))["y"].item() == pytest.approx(shift)


@pytest.mark.parametrize("grad", [True, False])
def test_gradients_are_a_choice(grad):
    assert run(Forward("n", {"x": "x"}, {"sum": "y"}, grad=grad), x=torch.ones(1))["y"].requires_grad is grad


def test_live_or_averaged_weights():
    networks = Networks({"n": Affine(2.0)}, {"n": Affine(5.0)})
    for weights, value in (("live", 2.0), ("ema", 5.0)):
        state = State({"x": torch.ones(1)})
        Forward("n", {"x": "x"}, {"sum": "y"}, weights=weights)(state, networks, 0)
        assert state["y"].item() == value


def test_the_base_injects_nothing():
    with pytest.raises(TypeError, match="Injector injects nothing"):
        Injector()(State({}), Networks({}, {}), 0)


def test_interpolate_gives_points_that_gradients_can_be_taken_at():
    a, b = torch.rand(6, 2, 3, 3, requires_grad=True), torch.rand(6, 2, 3, 3) + 2
    state = State({"a": a * 1, "b": b})
    Interpolate("a", "b", "between")(state, Networks({}, {}), 0)
    points = state["between"]
    assert points.requires_grad
    assert points.is_leaf  # nothing reaches what made a or b
    share = (points - b).detach().double() / (a - b).detach().double()
    assert torch.allclose(share, share[:, :1, :1, :1].expand_as(share), atol=1e-5)  # one number an instance
    assert share.min() >= 0
    assert share.max() <= 1
    assert share[:, 0, 0, 0].unique().numel() == 6
