"""LAMB and LARS against steps by hand in float64 NumPy; each of torch.optim's optimizers, declared and stepped."""

import numpy as np
import pytest
import torch
import toy
from accelerate import Accelerator
from torch import nn

from models.base.errors import UserError
from models.engine.build import build_networks, build_steps, parameter_groups
from models.engine.step import Stopwatch
from models.interfaces import Networks, State
from models.optimizers.muon import LAMB, LARS, objection
from models.recipe.schema import Group

SHAPES = [(4, 3, 2), (5,), (1,), (3, 3)]


def problem(seed, steps=5):
    random = np.random.default_rng(seed)
    weights = [random.normal(size=shape) for shape in SHAPES]
    weights[2][:] = 0  # a length of 0: the ratio is 1
    gradients = [[random.normal(size=shape) for shape in SHAPES] for _ in range(steps)]
    gradients[1][3][:] = 0
    return weights, gradients


def run(make, weights, gradients):
    parameters = [nn.Parameter(torch.from_numpy(w.copy())) for w in weights]
    optimizer = make(parameters)
    for each in gradients:
        for parameter, gradient in zip(parameters, each, strict=True):
            parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


def lamb(w, gradients, lr, betas, eps, decay, clip, adapt):
    w, m, v = w.copy(), 0.0, 0.0
    for t, g in enumerate(gradients, start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        u = m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps) + decay * w
        length, size = np.sqrt((w**2).sum()), np.sqrt((u**2).sum())
        ratio = min(length, clip) / size if adapt and length > 0 and size > 0 else 1.0
        w = w - lr * ratio * u
    return w


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 1.5])
@pytest.mark.parametrize("adapt", [True, False])
def test_lamb_against_numpy(decay, clip, adapt):
    weights, gradients = problem(0)
    found = run(
        lambda p: LAMB(p, lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=decay, clip=clip, adapt=adapt),
        weights, gradients,
    )  # fmt: skip
    for place, (one, start) in enumerate(zip(found, weights, strict=True)):
        expected = lamb(start, [g[place] for g in gradients], 0.02, (0.8, 0.95), 1e-3, decay, clip or np.inf, adapt)
        np.testing.assert_allclose(one, expected, rtol=1e-12, atol=1e-14)


def lars(w, gradients, lr, momentum, decay, trust, clip, adapt):
    w, v = w.copy(), 0.0
    for g in gradients:
        length, slope = np.sqrt((w**2).sum()), np.sqrt((g**2).sum())
        rate = lr
        if adapt and length > 0 and slope + decay * length > 0:
            own = trust * length / (slope + decay * length)
            rate = min(own, lr) if clip else lr * own
        v = momentum * v + rate * (g + decay * w)
        w = w - v
    return w


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("clip", "adapt"), [(False, True), (True, True), (False, False)])
def test_lars_against_numpy(decay, clip, adapt):
    weights, gradients = problem(1)
    options = {"lr": 0.3, "momentum": 0.8, "trust": 0.4, "clip": clip, "adapt": adapt}
    found = run(lambda p: LARS(p, weight_decay=decay, **options), weights, gradients)
    for place, (one, start) in enumerate(zip(found, weights, strict=True)):
        expected = lars(start, [g[place] for g in gradients], decay=decay, **options)
        np.testing.assert_allclose(one, expected, rtol=1e-12, atol=1e-14)


def test_lamb_without_adaptation_and_decay_is_adam():
    weights, gradients = problem(2)
    ours = run(lambda p: LAMB(p, lr=0.01, eps=1e-6, adapt=False), weights, gradients)
    adam = run(lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-6), weights, gradients)
    for a, b in zip(ours, adam, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_lars_without_adaptation_is_momentum():
    weights, gradients = problem(3)
    ours = run(lambda p: LARS(p, lr=0.01, weight_decay=0.1, adapt=False), weights, gradients)
    sgd = run(lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1), weights, gradients)
    for a, b in zip(ours, sgd, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("kind", [LAMB, LARS])
def test_groups_missing_gradients_and_state(kind):
    """A group has its own options; what has no gradient stays and counts no step; a state goes on exactly."""

    def trained(reload_at=None):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        rest = {"rest": Group.model_validate({"pattern": "bias", "adapt": False, "weight_decay": 0.0})}

        def made():
            return kind(parameter_groups({"n": network}, rest), lr=0.05, weight_decay=0.1)

        optimizer = made()
        assert [(group["adapt"], group["weight_decay"]) for group in optimizer.param_groups] == [
            (True, 0.1),
            (False, 0.0),
        ]
        still = network[1].weight.clone()
        for step in range(5):
            if step == reload_at:
                state = optimizer.state_dict()
                optimizer = made()
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            network(torch.randn(6, 3)).square().mean().backward()
            if step < 2:
                network[1].weight.grad = None
            optimizer.step()
            if step == 1:
                assert torch.equal(network[1].weight, still)
        return [p.detach() for p in network.parameters()]

    for a, b in zip(trained(), trained(3), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: LAMB(p, lr=0.0), "lr > 0"),
        (lambda p: LAMB(p, lr=0.1, betas=(0.9, 1.0)), "0 <= beta < 1"),
        (lambda p: LAMB(p, lr=0.1, clip=0.0), "clip 0.0"),
        (lambda p: LARS(p, lr=0.1, weight_decay=-1.0), "weight_decay >= 0"),
        (lambda p: LARS(p, lr=0.1, trust=0.0), "trust > 0"),
    ],
)
def test_settings_that_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make([nn.Parameter(torch.zeros(2))])


UNUSABLE = {"LBFGS", "SparseAdam"}
NAMES = sorted(n for n, v in vars(torch.optim).items() if isinstance(v, type) and n != "Optimizer")


def updated(declared):
    """Return the weights of a toy network before and after two updates by a declared optimizer."""
    recipe = toy.checked({"steps.painter.optimizer": declared, "steps.painter.clip": ...})
    networks = build_networks(recipe)
    before = [p.detach().clone() for p in networks["painter"].parameters()]
    step = build_steps(recipe, networks, Accelerator(cpu=True))["painter"]
    x = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    for iteration in range(2):
        state = State({"x": x, "y": 0.5 * x - 0.1})
        report = step.update([(state, 1.0)], Networks(networks, networks), iteration, Accelerator(cpu=True), Stopwatch(on=False))  # fmt: skip
        assert not report.skipped
    return before, [p.detach() for p in networks["painter"].parameters()]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in UNUSABLE | {"Muon"}])
def test_an_optimizer_of_torch_is_declared_by_its_name(name):
    before, after = updated({"type": f"torch.optim.{name}", "lr": 0.01})
    assert all(not torch.equal(a, b) and b.isfinite().all() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("declared", [{"type": "LAMB", "clip": None}, {"type": "LARS", "trust": 0.1, "clip": True}])
def test_ours_are_declared_by_their_bare_names(declared):
    before, after = updated({**declared, "lr": 0.01, "weight_decay": 0.01})
    assert all(not torch.equal(a, b) and b.isfinite().all() for a, b in zip(before, after, strict=True))


def test_which_optimizers_a_step_cannot_use():
    assert "several times an update" in objection(torch.optim.LBFGS)
    assert "sparse gradients" in objection(torch.optim.SparseAdam)
    assert {n for n in NAMES if objection(getattr(torch.optim, n))} == UNUSABLE
    assert objection(LAMB) is None


@pytest.mark.parametrize("name", sorted(UNUSABLE))
def test_a_recipe_with_one_is_refused(name):
    with pytest.raises(UserError, match=rf"steps.painter.optimizer.type: {name} "):
        toy.checked({"steps.painter.optimizer": {"type": f"torch.optim.{name}", "lr": 0.01}})


def test_one_that_refuses_the_parameters_is_named_with_its_key():
    with pytest.raises(UserError, match=r"steps.painter.optimizer: torch.optim.Muon: Muon only supports 2D"):
        updated({"type": "torch.optim.Muon", "lr": 0.01})
