"""Times, points and velocities of the flow, conditions left out, and pictures drawn, against numbers by hand."""

import math

import numpy as np
import pytest
import torch

from figura.base.distributed import sharded
from figura.base.errors import UserError
from figura.engine.rank_invariant_rng import rank_invariant_noise
from figura.interfaces import Networks, State
from models.flow.path import LeaveOut, Path, Sample, Times

PICTURE, NOISE = torch.tensor([[2.0, -1.0], [0.0, 4.0]]), torch.tensor([[1.0, 3.0], [8.0, 0.0]])


def test_points_and_velocities_by_hand():
    """At a quarter of the way: 0.25 * 2 + 0.75 * 1 = 1.25 and -0.25 + 0.75 * 3 = 2; at the end, the picture."""
    path = Path("picture", "noise", "time", "point", "velocity")
    point, velocity = path.compute([PICTURE, NOISE, torch.tensor([0.25, 1.0])], 0)
    assert point.tolist() == [[1.25, 2.0], [0.0, 4.0]]
    assert velocity.tolist() == [[1.0, -4.0], [-8.0, 4.0]]
    assert path.adds == ("point", "velocity")


def test_pictures_and_noise_of_other_shapes_are_refused():
    state = State({"picture": PICTURE, "noise": NOISE[:, :1], "time": torch.zeros(2)})
    with pytest.raises(UserError, match=r"Path of 'picture' \(2, 2\).*: equal shapes of picture and noise"):
        Path("picture", "noise", "time", "point", "velocity")(state, Networks({}, {}), 0)


def test_times_are_logit_normal():
    """Shares of a normal distribution: half lie below the location, 0.8413 below one scale more."""
    like = torch.zeros(100_000, 1)
    torch.manual_seed(3)
    (times,) = Times("time", "like", location=0.5, scale=2.0).compute([like], 0)
    for edge, share in ((0.5, 0.5), (2.5, 0.8413447), (-3.5, 0.0227501)):
        found = float((times < 1 / (1 + math.exp(-edge))).float().mean())
        assert found == pytest.approx(share, abs=0.005)
    torch.manual_seed(3)
    np.testing.assert_array_equal(Times("time", "like", 0.5, 2.0).compute([like], 0)[0], times)


def drawn(injector, batch):
    state = State(batch)
    injector(state, Networks({}, {}), 0)
    return [state[name] for name in injector.adds]


@pytest.mark.parametrize("injector", [Times("a", "x"), LeaveOut({"x": "a"}, 0.5)], ids=["times", "left out"])
def test_two_ranks_draw_the_numbers_of_one(injector):
    x = torch.arange(1.0, 9).reshape(8, 1)
    torch.manual_seed(5)
    (whole,) = drawn(injector, {"x": x})
    parts = []
    for rank in range(2):
        with sharded(rank, 2), rank_invariant_noise(5, {4}):
            parts += drawn(injector, {"x": x[rank::2]})
    assert len(whole.unique()) > 3
    np.testing.assert_array_equal(torch.stack(parts, dim=1).flatten(0, 1), whole)


def test_examples_are_left_out_as_a_whole():
    a, b = torch.ones(1000, 2, 3), torch.full((1000, 4), 2.0)
    torch.manual_seed(0)
    first, second = LeaveOut({"a": "less_a", "b": "less_b"}, 0.25).compute([a, b], 0)
    kept = first[:, 0, 0] == 1
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.05)
    np.testing.assert_array_equal(first, kept[:, None, None].expand(1000, 2, 3).float())
    np.testing.assert_array_equal(second, 2 * kept[:, None].expand(1000, 4).float())
    for chance, value in ((0.0, a), (1.0, torch.zeros_like(a))):
        np.testing.assert_array_equal(LeaveOut({"a": "b"}, chance).compute([a], 0)[0], value)


def sampled(velocity, start, conditions=None, names=None, **settings):
    """Follow `velocity(point, time, ...)` from `start`; return the pictures and the times of the calls."""
    times = []

    def network(point, time, **given):
        assert time.shape == (len(point),)
        times.append(time[0].item())
        return {"velocity": velocity(point, time[:, None], **given)}

    asked = {"network": "net", "noise": "noise", "inputs": names or {}, "output": "image", **settings}
    state = State({"noise": torch.tensor(start, dtype=torch.float64), **(conditions or {})})
    Sample(**asked)(state, Networks({"net": network}, {}), 0)
    return state["image"].flatten().tolist(), times


START = [[0.1], [-0.2]]


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_linear_equation_by_hand(steps):
    """dx/dt = a x: each step multiplies by 1 + a h (Euler), by 1 + a h + (a h)^2 / 2 (Heun)."""
    a, h = 1.5, 1 / steps
    euler, times = sampled(lambda x, t: a * x, START, steps=steps, method="euler")
    assert euler == pytest.approx([x * (1 + a * h) ** steps for (x,) in START], rel=1e-12)
    assert times == pytest.approx([k * h for k in range(steps)])
    heun, times = sampled(lambda x, t: a * x, START, steps=steps, method="heun")
    assert heun == pytest.approx([x * (1 + a * h + (a * h) ** 2 / 2) ** steps for (x,) in START], rel=1e-12)
    assert times == pytest.approx([(k + end) * h for k in range(steps) for end in (0, 1)])


def test_time_by_hand():
    """dx/dt = 2 t / 10 from 0 to 1 adds 0.1, which the trapezoid rule gets exactly; Euler adds 0.1 (n - 1) / n."""
    assert sampled(lambda x, t: 0.2 * t, START, steps=4)[0] == pytest.approx([0.2, -0.1], rel=1e-12)
    found, _ = sampled(lambda x, t: 0.2 * t, START, steps=4, method="euler")
    assert found == pytest.approx([0.175, -0.125], rel=1e-12)


def test_guidance_by_hand():
    """With the condition 0.3 the velocity is 0.2 + 0.3, without it 0.2: guided by 2, 0.2 + 2 * 0.3 = 0.8."""
    inputs = {"pose": torch.full((2, 1), 0.2), "look": torch.full((2, 1), 0.3)}
    asked = {"names": {"pose": "pose", "look": "look"}, "steps": 2, "left_out": ("look",)}

    def velocity(x, t, pose, look):
        return (pose + look).double()

    for guidance, added, calls in ((1.0, 0.5, 4), (2.0, 0.8, 8), (0.0, 0.2, 8)):
        found, times = sampled(velocity, START, inputs, guidance=guidance, **asked)
        assert found == pytest.approx([0.1 + added, -0.2 + added], abs=1e-7)
        assert len(times) == calls


def test_pictures_are_clipped_and_have_no_gradients():
    found, _ = sampled(lambda x, t: 30 * x, START, steps=1)
    assert found == [1.0, -1.0]
    state = State({"noise": torch.zeros(1, 1)})
    weight = torch.ones(1, requires_grad=True)
    networks = Networks({"net": lambda point, time: {"velocity": point + weight}}, {})
    Sample("net", "noise", {}, "image", steps=2)(state, networks, 0)
    assert not state["image"].requires_grad
