"""Injectors without networks, against NumPy; alone and in a training."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from trainings import Recording, assert_same, trained, weights

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.injectors.tensors import Constant, Detach, Interpolate, Noise, Resize, Sum
from figura.interfaces import Networks, Operation, State
from figura.recipe.types import INJECTOR, construct
from figura.schedules import Linear

RANDOM = np.random.default_rng(0)


def array(*shape):
    return RANDOM.standard_normal(shape)


def run(injector, step=0, **batch):
    """Return what an injector adds, as NumPy arrays, in the order of `adds`."""
    state = State({name: torch.as_tensor(value) for name, value in batch.items()})
    injector(state, Networks({}, {}), step)
    assert list(state)[len(batch) :] == list(injector.adds)
    return [state[name].detach().numpy() for name in injector.adds]


def declared(name, **arguments):
    """Construct from a declaration; return the injector and what was wrong."""
    errors = ErrorCollector(Path("recipe"))
    built = construct(name, arguments, INJECTOR, "steps.G.injectors.x", errors)
    return built, [line.removeprefix("recipe: steps.G.injectors.x") for line in errors.lines]


RAMP = {"type": "Linear", "start": 0, "end": 10, "from": 0.0, "to": 1.0}


def test_a_weighted_sum_whose_weights_may_follow_schedules():
    a, b = array(2, 3, 4, 4), array(2, 3, 4, 4)
    (found,) = run(Sum("s", {"a": 0.5, "b": -1.0}, constant=0.25), a=a, b=b)
    np.testing.assert_allclose(found, 0.5 * a - b + 0.25, atol=1e-12)
    injector, wrong = declared("Sum", output="s", terms={"a": RAMP, "b": 2})
    assert wrong == []
    np.testing.assert_allclose(run(injector, step=5, a=a, b=b)[0], 0.5 * a + 2 * b, atol=1e-12)


def test_constants_of_a_given_shape():
    x = array(2, 3, 4, 4).astype(np.float32)
    like, one, pictures = (run(Constant("c", "x", 0.5, shape=shape), x=x)[0] for shape in (None, (), (1, 8, 8)))
    assert (like.shape, one.shape, pictures.shape) == ((2, 3, 4, 4), (2,), (2, 1, 8, 8))
    assert {float(v) for c in (like, one, pictures) for v in c.flat} == {0.5}
    assert run(Constant("c", "x", Linear(0, 4, 0.0, 1.0)), step=1, x=x)[0].mean() == 0.25
    (of_labels,) = run(Constant("c", "labels", 0.5), labels=np.zeros((2, 3), np.int64))
    assert (of_labels.dtype, of_labels.min()) == (np.float32, 0.5)


def test_noise_has_the_moments_asked_for():
    x = np.zeros((4, 1, 100, 100), np.float32)
    (normal,) = run(Noise("n", "x", scale=2.0), x=x)
    (uniform,) = run(Noise("n", "x", distribution="uniform", scale=3.0), x=x)
    # standard errors with 40 000 draws: of the mean 0.01, of the deviation 0.007
    assert abs(normal.mean()) < 0.05
    assert abs(normal.std() - 2.0) < 0.05
    assert abs(uniform.mean()) < 0.05
    assert abs(uniform.std() - 3.0 / np.sqrt(3)) < 0.05
    assert -3 <= uniform.min() < -2.99
    assert 2.99 < uniform.max() <= 3


def test_noise_repeats_with_the_seed_and_follows_a_schedule():
    x, noise = np.zeros((2, 5), np.float32), Noise("n", "x", scale=Linear(0, 10, 0.0, 1.0), shape=(7,))
    torch.manual_seed(3)
    (late,) = run(noise, step=10, x=x)
    torch.manual_seed(3)
    (early,) = run(noise, step=5, x=x)
    assert late.shape == (2, 7)
    np.testing.assert_allclose(early, late / 2)


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


def test_detach_cuts_trees_and_makes_leaves():
    x = torch.ones(2, requires_grad=True)
    state = State({"x": 2 * x, "list": [3 * x, {"y": 4 * x}]})
    Detach({"x": "x_cut", "list": "list_cut"})(state, Networks({}, {}), 0)
    Detach({"x": "x_leaf"}, requires_grad=True)(state, Networks({}, {}), 0)
    assert not state["x_cut"].requires_grad
    assert not state["list_cut"][1]["y"].requires_grad
    assert state["list_cut"][1]["y"].tolist() == [4.0, 4.0]
    assert state["x_leaf"].is_leaf
    assert state["x_leaf"].requires_grad
    assert state["x"].requires_grad


def triangle(x):
    return np.maximum(0, 1 - np.abs(x))


def cubic(x, a=-0.75):  # Keys 1981, with PyTorch's a
    x = np.abs(x)
    near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def sampling(old, new, kernel, widened=1.0):
    """The matrix (new, old) that samples a line at pixel centres; beyond its ends it goes on as it ends."""
    reach = int(np.ceil(2 * widened)) + 1
    matrix = np.zeros((new, old))
    for row in range(new):
        centre = (row + 0.5) * old / new - 0.5
        for index in range(int(np.floor(centre)) - reach, int(np.floor(centre)) + reach + 1):
            inside = 0 <= index < old
            if inside or widened == 1:  # a widened kernel is cut at the ends, and its weights sum to 1
                matrix[row, min(max(index, 0), old - 1)] += kernel((index - centre) / widened)
    return matrix / matrix.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("mode", "kernel"), [("bilinear", triangle), ("bicubic", cubic)])
@pytest.mark.parametrize("size", [(12, 20), (5, 3)])
def test_resize_samples_at_pixel_centres(mode, kernel, size):
    x = array(2, 3, 6, 10)
    rows, columns = sampling(6, size[0], kernel), sampling(10, size[1], kernel)
    (found,) = run(Resize({"x": "y"}, size=size, mode=mode), x=x)
    np.testing.assert_allclose(found, rows @ x @ columns.T, atol=1e-6)


def test_resize_with_antialias_widens_the_kernel():
    x = array(1, 1, 12, 9)
    rows, columns = sampling(12, 4, triangle, widened=3.0), sampling(9, 3, triangle, widened=3.0)
    (found,) = run(Resize({"x": "y"}, factor=1 / 3, antialias=True), x=x)
    np.testing.assert_allclose(found, rows @ x @ columns.T, atol=1e-6)


def test_resize_by_whole_factors():
    x = array(2, 3, 4, 6)
    up, same = run(Resize({"x": "up", "z": "same"}, like="big", mode="nearest"), x=x, z=x, big=array(1, 1, 8, 12))
    np.testing.assert_array_equal(up, x.repeat(2, axis=2).repeat(2, axis=3))
    np.testing.assert_array_equal(same, up)
    (down,) = run(Resize({"x": "y"}, factor=0.5, mode="area"), x=x)
    np.testing.assert_allclose(down, x.reshape(2, 3, 2, 2, 3, 2).mean(axis=(3, 5)), atol=1e-12)


@pytest.mark.parametrize(
    ("injector", "message"),
    [
        (Sum("s", {"row": 1.0, "x": 1.0}), "of 'row' (2,), 'x' (2, 3, 8, 8): equal numbers of dimensions"),
        (Interpolate("x", "wide", "p"), "Interpolate of 'x' (2, 3, 8, 8), 'wide' (2, 3, 8, 16): equal shapes"),
        (Resize({"row": "y"}, factor=2.0), "pictures (N, C, H, W) are needed"),
    ],
)
def test_tensors_that_do_not_fit(injector, message):
    batch = {"x": (2, 3, 8, 8), "row": (2,), "wide": (2, 3, 8, 16)}
    with pytest.raises(UserError, match=re.escape(message)):
        run(injector, **{name: array(*batch[name]) for name in injector.reads})


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Sum", {"output": "s", "terms": {}}, "terms: at least one"),
        ("Constant", {"output": "c", "like": "x", "value": 0.0, "shape": [3, 0]}, "shape [3, 0]: sizes of 1 or more"),
        ("Noise", {"output": "n", "like": "x", "scale": -1.0}, "scale -1.0: 0 or more"),
        ("Detach", {"names": {}}, "names: at least one"),
        ("Detach", {"names": {"a": "c", "b": "c"}}, "adds 'c' twice"),
        ("Resize", {"names": {}, "size": 4}, "at least one is needed"),
        ("Resize", {"names": {"x": "y"}, "size": 4, "factor": 2.0}, "write one of size, factor, like"),
        ("Resize", {"names": {"x": "y"}, "size": [4, 0]}, "size (4, 0): 1 or more"),
        ("Resize", {"names": {"x": "y"}, "factor": 0.0}, "factor 0.0: a number above 0"),
        ("Resize", {"names": {"x": "y"}, "size": 4, "mode": "area", "antialias": True}, "antialias with mode area"),
    ],
)
def test_wrong_arguments(name, arguments, message):
    built, wrong = declared(name, **arguments)
    assert built is None
    assert len(wrong) == 1
    assert message in wrong[0]


def test_a_list_is_no_tensor():
    with pytest.raises(UserError, match="Sum: 'a' is a list; a tensor is needed"):
        Sum("s", {"a": 1.0})(State({"a": [torch.zeros(2)]}), Networks({}, {}), 0)


def test_memory_that_runs_out_is_no_fault_of_the_tensors():
    class Greedy(Operation):
        def compute(self, tensors, step):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        Greedy(["a"], ["b"])(State({"a": torch.zeros(2)}), Networks({}, {}), 0)


PAINT = {"type": "Forward", "network": "painter", "outputs": {"image": "image"}, "taps": {"layer": "low"}}
INJECTORS = {
    "noise": {"type": "Noise", "output": "noise", "like": "x", "scale": 0.1},
    "noisy": {"type": "Sum", "output": "seen", "terms": {"x": 1.0, "noise": 0.5}, "only": "training"},
    "plain": {"type": "Detach", "names": {"x": "seen"}, "only": "evaluation"},
    "paint": PAINT | {"inputs": {"x": "seen"}},
}


def test_a_training_with_random_injectors_repeats(run):
    changes = {"steps.painter.injectors": INJECTORS, "train.steps": 4}
    first, second = (trained(run / name, changes, kind=Recording) for name in ("first", "second"))
    assert_same(weights(first), weights(second))
    assert all(name in first.moved()[0] for name in weights(first))
