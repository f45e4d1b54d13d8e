"""Muon against NumPy; optimizers of torch.optim and of the extra `optimizers`, declared, checked and resumed."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
import toy
from accelerate import Accelerator
from torch import nn

from figura.engine.build import build_networks, build_steps
from figura.optimizers import Muon, orthogonalised
from figura.recipe.check import objection
from figura.training.warnings import empty_groups


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
    """Two weights of one shape do not mix, a tall one steps sqrt(64 / 36) as far, a thin one and biases go to Adam."""
    torch.manual_seed(1)
    shapes = [(32, 4, 3, 3), (32, 4, 3, 3), (64, 36), (3, 64), (32,), (16, 16)]
    parameters = [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    before = [parameter.detach().numpy().copy() for parameter in parameters]
    optimizer = Muon(parameters, lr=0.1, rest_lr=0.01, momentum=0.9)
    for parameter in parameters[:-1]:  # the last one has no gradient
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    for parameter, start, length in zip(parameters[:3], before, (1, 1, 4 / 3), strict=False):
        gradient = parameter.grad.numpy().reshape(len(start), 36)
        nesterov = gradient + 0.9 * (0.1 * gradient - gradient)
        x = nesterov / np.linalg.norm(nesterov)
        for _ in range(5):
            s = x @ x.T
            x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
        found = parameter.detach().numpy().reshape(len(start), 36)
        np.testing.assert_allclose(found, start.reshape(len(start), 36) - 0.1 * length * x, rtol=0, atol=1e-6)
    for parameter, start in zip(parameters[3:5], before[3:5], strict=True):
        step = 0.01 * np.sign(parameter.grad.numpy())  # Adam's first step is the rate, whatever the gradient
        np.testing.assert_allclose(parameter.detach().numpy(), start - step, atol=1e-6)
    assert (parameters[5].detach().numpy() == before[5]).all()


UNUSABLE = {"LBFGS", "SparseAdam"}
NAMES = sorted(n for n, v in vars(torch.optim).items() if isinstance(v, type) and n != "Optimizer")
needs_extra = pytest.mark.skipif(
    find_spec("pytorch_optimizer") is None, reason="needs pytorch-optimizer: pip install -e '.[optimizers]'"
)
OPTIMIZER = "steps.painter.optimizer"
LAMB = {"type": "pytorch_optimizer.Lamb", "lr": 0.01, "weight_decay": 0.1}
LARS = {"type": "pytorch_optimizer.LARS", "lr": 0.01, "weight_decay": 0.1, "trust_coefficient": 0.1}
BIASES = {"biases": {"pattern": "bias", "weight_decay": 0.0}}


def test_which_optimizers_a_step_cannot_use():
    assert "several times an update" in objection(torch.optim.LBFGS)
    assert "sparse gradients" in objection(torch.optim.SparseAdam)
    assert {n for n in NAMES if objection(getattr(torch.optim, n))} == UNUSABLE
    assert objection(Muon) is None


@needs_extra
@pytest.mark.parametrize("declared", [LAMB, LARS])
def test_a_group_of_those_of_the_extra_has_its_own_options(declared):
    recipe = toy.checked({OPTIMIZER: declared, "steps.painter.groups": BIASES})
    optimizer = build_steps(recipe, build_networks(recipe), Accelerator(cpu=True))["painter"].optimizer
    sizes = [({p.ndim for p in group["params"]}, group["weight_decay"]) for group in optimizer.param_groups]
    assert sizes == [({4}, 0.1), ({1}, 0.0)]
    assert objection(type(optimizer)) is None


def test_a_group_of_no_parameter_is_told():
    """Its options, such as another rate, would do nothing, in silence."""
    recipe = toy.checked({"steps.painter.groups": BIASES | {"late": {"pattern": "painter.bias", "lr": 1.0}}})
    steps = build_steps(recipe, build_networks(recipe), Accelerator(cpu=True))
    first = next(name for name, _ in steps["painter"].trains["painter"].named_parameters())
    assert empty_groups(recipe, steps) == [
        "steps.painter.groups.late: the pattern 'painter.bias' is in no parameter's name, such as painter." + first
    ]
