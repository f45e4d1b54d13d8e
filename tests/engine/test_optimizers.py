"""Muon against NumPy; optimizers of torch.optim and of the extra `optimizers`, declared, checked and resumed."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
import toy
from accelerate import Accelerator
from torch import nn
from trainings import BASE, Killed, fit, outputs

from figura.base.errors import UserError
from figura.engine.build import build_networks, build_steps
from figura.engine.step import Stopwatch
from figura.interfaces import Networks, State
from figura.optimizers import Muon, orthogonalised
from figura.recipe.check import objection


@pytest.mark.parametrize("shape", [(3, 12, 20), (2, 20, 12), (1, 16, 16)])
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(0)
    matrices = torch.randn(shape, generator=random, dtype=torch.float64)
    found = orthogonalised(matrices)
    for before, after in zip(matrices.numpy(), found.numpy(), strict=True):
        u, _, v = np.linalg.svd(before, full_matrices=False)
        inside = u.T @ after @ v.T  # in the basis of the singular vectors the result is diagonal
        assert np.abs(inside - np.diag(np.diag(inside))).max() < 1e-9
        assert (np.diag(inside) > 0.5).all()
        assert (np.diag(inside) < 1.3).all()


def test_one_step_against_numpy() -> None:
    torch.manual_seed(1)
    layer = nn.Conv2d(4, 32, 3).double()  # as a matrix 32 x 36
    weight, bias = layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()
    optimizer = Muon(layer.parameters(), lr=0.1, rest_lr=0.01, momentum=0.9)
    layer.weight.grad = torch.randn_like(layer.weight)
    layer.bias.grad = torch.randn_like(layer.bias)
    gradient = layer.weight.grad.numpy().reshape(32, 36)
    optimizer.step()
    nesterov = gradient + 0.9 * (0.1 * gradient - gradient)
    x = nesterov / np.linalg.norm(nesterov)
    for _ in range(5):
        s = x @ x.T
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    np.testing.assert_allclose(
        layer.weight.detach().numpy().reshape(32, 36), weight.reshape(32, 36) - 0.1 * x, rtol=0, atol=1e-6
    )
    step = 0.01 * np.sign(layer.bias.grad.numpy())  # Adam's first step is the rate, whatever the gradient
    np.testing.assert_allclose(layer.bias.detach().numpy(), bias - step, atol=1e-6)


def test_tall_matrices_take_longer_steps_and_thin_ones_go_to_adam() -> None:
    torch.manual_seed(2)
    tall, thin = nn.Parameter(torch.zeros(64, 16)), nn.Parameter(torch.zeros(3, 64))
    optimizer = Muon([tall, thin], lr=0.1, rest_lr=0.01)
    tall.grad, thin.grad = torch.randn(64, 16), torch.randn(3, 64)
    optimizer.step()
    singular = np.linalg.svd(tall.detach().numpy(), compute_uv=False)
    assert ((singular > 0.1 * 2 * 0.5) & (singular < 0.1 * 2 * 1.3)).all()  # sqrt(64 / 16) = 2
    np.testing.assert_allclose(thin.detach().abs().numpy(), 0.01, rtol=1e-4)


def test_weights_of_one_shape_do_not_mix_and_a_missing_gradient_is_left_alone() -> None:
    torch.manual_seed(3)
    start = [torch.randn(16, 16) for _ in range(3)]
    gradients = [torch.randn(16, 16) for _ in range(3)]

    def after(chosen: list[int]) -> list[torch.Tensor]:
        parameters = [nn.Parameter(tensor.clone()) for tensor in start]
        optimizer = Muon(parameters, lr=0.1, rest_lr=0.1)
        for place in chosen:
            parameters[place].grad = gradients[place].clone()
        optimizer.step()
        return [parameter.detach() for parameter in parameters]

    everything, two = after([0, 1, 2]), after([0, 2])
    torch.testing.assert_close(everything[0], two[0])
    torch.testing.assert_close(everything[2], two[2])
    assert torch.equal(two[1], start[1])


def test_its_state_goes_on_exactly() -> None:
    def run(reload_at: int | None) -> list[torch.Tensor]:
        torch.manual_seed(4)
        network = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 3, 1))
        optimizer = Muon(network.parameters(), lr=0.01, rest_lr=0.01)
        for step in range(6):
            if step == reload_at:
                state = optimizer.state_dict()
                optimizer = Muon(network.parameters(), lr=0.01, rest_lr=0.01)
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            network(torch.randn(2, 8, 9, 9)).square().mean().backward()
            optimizer.step()
        return [p.detach() for p in network.parameters()]

    for a, b in zip(run(None), run(3), strict=True):
        assert torch.equal(a, b)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="rates > 0"):
        Muon([nn.Parameter(torch.zeros(8, 8))], lr=0.0, rest_lr=0.1)


UNUSABLE = {"LBFGS", "SparseAdam"}
NAMES = sorted(n for n, v in vars(torch.optim).items() if isinstance(v, type) and n != "Optimizer")
needs_extra = pytest.mark.skipif(
    find_spec("pytorch_optimizer") is None, reason="needs pytorch-optimizer: pip install -e '.[optimizers]'"
)
OPTIMIZER = "steps.painter.optimizer"
LAMB = {"type": "pytorch_optimizer.Lamb", "lr": 0.01, "weight_decay": 0.1}
LARS = {"type": "pytorch_optimizer.LARS", "lr": 0.01, "weight_decay": 0.1, "trust_coefficient": 0.1}
BIASES = {"biases": {"pattern": "bias", "weight_decay": 0.0}}


def updated(declared, groups=None):
    """Return the weights of a toy network, by name, before and after two updates by a declared optimizer."""
    recipe = toy.checked({OPTIMIZER: declared, "steps.painter.clip": ..., "steps.painter.groups": groups or {}})
    torch.manual_seed(0)
    networks = build_networks(recipe)
    before = {name: p.detach().clone() for name, p in networks["painter"].named_parameters()}
    step = build_steps(recipe, networks, Accelerator(cpu=True))["painter"]
    x = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    for iteration in range(2):
        state = State({"x": x, "y": 0.5 * x - 0.1})
        both, accelerator = Networks(networks, networks), Accelerator(cpu=True)
        report = step.update([(state, 1.0)], both, iteration, accelerator, Stopwatch(on=False))
        assert not report.skipped
    return before, {name: p.detach() for name, p in networks["painter"].named_parameters()}


def moved(before, after):
    return all(not torch.equal(before[name], p) and p.isfinite().all() for name, p in after.items())


@pytest.mark.parametrize("name", [n for n in NAMES if n not in UNUSABLE | {"Muon"}])
def test_an_optimizer_of_torch_is_declared_by_its_name(name):
    assert moved(*updated({"type": f"torch.optim.{name}", "lr": 0.01}))


def test_which_optimizers_a_step_cannot_use():
    assert "several times an update" in objection(torch.optim.LBFGS)
    assert "sparse gradients" in objection(torch.optim.SparseAdam)
    assert {n for n in NAMES if objection(getattr(torch.optim, n))} == UNUSABLE
    assert objection(Muon) is None


def test_a_recipe_with_one_is_refused():
    with pytest.raises(UserError, match=r"steps.painter.optimizer.type: LBFGS "):
        toy.checked({OPTIMIZER: {"type": "torch.optim.LBFGS", "lr": 0.01}})


def test_one_that_refuses_the_parameters_is_named_with_its_key():
    with pytest.raises(UserError, match=r"steps.painter.optimizer: torch.optim.Muon: Muon only supports 2D"):
        updated({"type": "torch.optim.Muon", "lr": 0.01})


@needs_extra
@pytest.mark.parametrize("declared", [LAMB, LARS])
def test_those_of_the_extra_train_and_a_group_has_its_own_options(declared):
    before, after = updated(declared, BIASES)
    assert moved(before, after)
    recipe = toy.checked({OPTIMIZER: declared, "steps.painter.groups": BIASES})
    optimizer = build_steps(recipe, build_networks(recipe), Accelerator(cpu=True))["painter"].optimizer
    sizes = [({p.ndim for p in group["params"]}, group["weight_decay"]) for group in optimizer.param_groups]
    assert sizes == [({4}, 0.1), ({1}, 0.0)]
    assert objection(type(optimizer)) is None


@needs_extra
@pytest.mark.parametrize("declared", [LAMB, LARS])
def test_a_training_with_one_goes_on_where_it_was_killed(declared, run):
    changes = BASE | {OPTIMIZER: declared, "steps.painter.groups": BIASES}
    fit(run / "whole", changes)
    with pytest.raises(Killed):
        fit(run / "killed", changes, stop=9)
    assert fit(run / "killed", changes).done == [8, 9, 10, 11]
    assert outputs(run / "killed") == outputs(run / "whole")
