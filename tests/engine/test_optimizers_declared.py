"""Optimizers of torch.optim and of the extra `optimizers`, declared, checked, stepped and resumed."""

from importlib.util import find_spec

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
from figura.optimizers import Muon
from figura.recipe.check import objection

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
def test_a_group_without_decay_is_not_decayed():
    """At a rate of almost 0 decay alone moves a weight: `fixed_decay` does not multiply it by the rate."""

    def shrunk(groups):
        still, shorter = (
            updated({**LAMB, "lr": 1e-6, "weight_decay": decay, "fixed_decay": True}, groups)[1] for decay in (0.0, 0.1)
        )
        return {name for name, p in still.items() if not torch.allclose(p, shorter[name], rtol=1e-3, atol=1e-5)}

    assert shrunk({}) == {"layer.weight", "layer.bias", "last.weight", "last.bias"}
    assert shrunk(BIASES) == {"layer.weight", "last.weight"}


@needs_extra
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"{OPTIMIZER}.weight_decey": 0.1}, r"optimizer.weight_decey: unknown argument of Lamb .*mean 'weight_decay'"),
        ({"steps.painter.groups": {"b": {"pattern": "bias", "weight_decoy": 0.0}}}, "mean 'weight_decay'"),
    ],
)
def test_their_arguments_are_checked(changes, said):
    with pytest.raises(UserError, match=said):
        toy.checked({OPTIMIZER: LAMB} | changes)


@needs_extra
@pytest.mark.parametrize("declared", [LAMB, LARS])
def test_a_training_with_one_goes_on_where_it_was_killed(declared, run):
    changes = BASE | {OPTIMIZER: declared, "steps.painter.groups": BIASES}
    fit(run / "whole", changes)
    with pytest.raises(Killed):
        fit(run / "killed", changes, stop=9)
    assert fit(run / "killed", changes).done == [8, 9, 10, 11]
    assert outputs(run / "killed") == outputs(run / "whole")


def steps_of(make, shape, scale):
    """Yield each step's number, and what it did: the weights before, the gradient and the change, float64."""
    random = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.rand(shape, generator=random, dtype=torch.float64))
    optimizer = make([weight])
    for number in range(1, 5):
        before = weight.detach().clone()
        gradient = scale * torch.randn(shape, generator=random, dtype=torch.float64)
        weight.grad = gradient.clone()
        optimizer.step()
        yield number, before, gradient, weight.detach() - before


@needs_extra
@pytest.mark.parametrize("scale", [1e-2, 1e2])
def test_their_steps_are_as_long_as_the_documentation_says(scale):
    optimizers = pytest.importorskip("pytorch_optimizer")
    for number, before, _, change in steps_of(lambda p: optimizers.Lamb(p, lr=0.001), (4, 3), scale):
        assert change.norm() / before.norm() == pytest.approx(0.001 / (1 - 0.9**number), rel=1e-4)
    rates = {"lr": 0.5, "weight_decay": 0.1, "trust_coefficient": 0.01}
    _, w, g, change = next(steps_of(lambda p: optimizers.LARS(p, **rates), (4, 3), scale))
    ratio = 0.01 * w.norm() / (g.norm() + 0.1 * w.norm())
    torch.testing.assert_close(change, -0.5 * ratio * (g + 0.1 * w))
    _, w, g, change = next(steps_of(lambda p: optimizers.LARS(p, **rates), (5,), scale))
    torch.testing.assert_close(change, -0.5 * g)
