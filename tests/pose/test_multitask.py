"""Automatic weights of components: golden values, hand computation, and how they reach a loss in a step."""

import math

import numpy as np
import pytest
import torch

from figura.injectors.forward import Forward
from figura.interfaces import Networks, State
from models.pose.composite_losses import Composite
from models.pose.multitask import TaskWeights, task_weighted


def test_golden_total():
    """OpenPifPaf's six components of the standing person at 0.0, and their weighted sum before any training."""
    components = {"cif": (234.91653, 746.23718, 36.10083), "caf": (263.48322, 1399.02075, 57.06207)}
    log_sigmas = TaskWeights(heads=["cif", "caf"])()
    total = 0.0
    for head, values in components.items():
        values = {n: torch.tensor([v]) for n, v in zip(("confidence", "vector", "scale"), values, strict=True)}
        total += sum(task_weighted(values, log_sigmas[head]).values()).item()
    assert total == pytest.approx(2490.8467, abs=2e-4)


def test_values_and_optimum():
    tasks = TaskWeights(heads=["cif"])
    with torch.no_grad():
        tasks.unbounded["cif"].copy_(torch.tensor([0.9, -20.0]))
    values = {name: torch.tensor([2.0, 5.0]) for name in ("confidence", "vector", "scale")}
    found = task_weighted(values, tasks()["cif"])
    u, v = 3 * math.tanh(0.3), 3 * math.tanh(-20 / 3)
    np.testing.assert_allclose(
        found["confidence"].detach(), 0.919 + u + np.array([1, 2.5]) * math.exp(-2 * u), rtol=1e-6
    )
    np.testing.assert_allclose(found["scale"].detach(), 0.694 + v + np.array([2, 5]) * math.exp(-v), rtol=1e-6)
    assert found["vector"] is values["vector"]
    # the best sigma follows the values: u = ln(value) / 2 for the normal law, u = ln(value) for Laplace's
    best = torch.tensor([math.log(4) / 2, math.log(4)], requires_grad=True)
    sum(
        task_weighted({"confidence": torch.tensor([4.0]), "scale": torch.tensor([4.0])}, best).values()
    ).sum().backward()
    np.testing.assert_allclose(best.grad, [0, 0], atol=1e-6)


def test_they_reach_a_loss_through_the_state_and_are_trained():
    tasks, random = TaskWeights(heads=["boxes"]), torch.Generator().manual_seed(2)
    weigh = Forward(network="tasks", inputs={}, outputs={"boxes": "boxes_sigmas"})
    state = State({})
    weigh(state, Networks(live={"tasks": tasks}, ema={"tasks": tasks}), 0)
    fields = torch.randn(2, 3, 6, 4, 4, generator=random)
    target = torch.rand(2, 3, 7, 4, 4, generator=random) + 1
    plain = Composite(head="cifdet", confidence=1.0)(fields=fields, target=target)
    found = Composite(head="cifdet", confidence=3.0)(fields=fields, target=target, log_sigmas=state["boxes_sigmas"])
    np.testing.assert_allclose(found["confidence"].detach(), 3 * (0.919 + plain["confidence"] / 2), rtol=1e-5)
    np.testing.assert_array_equal(found["vector"].detach(), plain["vector"])
    found["confidence"].mean().backward()
    slope = 3 * (1 - plain["confidence"].mean().item())  # of u + value exp(-2 u) / 2 at u = 0; there are no scales
    np.testing.assert_allclose(tasks.unbounded["boxes"].grad, [slope, 0], rtol=1e-5)


@pytest.mark.parametrize("heads", [[], ["cif", "cif"]])
def test_wrong_heads(heads):
    with pytest.raises(ValueError, match="names of one or more different heads"):
        TaskWeights(heads=heads)
