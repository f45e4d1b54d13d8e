"""Tensors made, combined and arranged, against NumPy."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.injectors.tensors import (
    Choose,
    Clamp,
    Concatenate,
    Constant,
    Detach,
    Interpolate,
    Multiply,
    Noise,
    Roll,
    Select,
    Stack,
    Sum,
)
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


# arithmetic


def test_a_weighted_sum():
    a, b = array(2, 3, 4, 4), array(2, 3, 4, 4)
    (found,) = run(Sum("s", {"a": 0.5, "b": -1.0}, constant=0.25), a=a, b=b)
    np.testing.assert_allclose(found, 0.5 * a - b + 0.25, atol=1e-12)


def test_weights_may_follow_schedules():
    injector, wrong = declared(
        "Sum",
        output="s",
        terms={"a": {"type": "Linear", "start": 0, "end": 10, "from": 0.0, "to": 1.0}, "b": 2},
    )
    assert wrong == []
    a, b = array(2, 3), array(2, 3)
    np.testing.assert_allclose(run(injector, step=5, a=a, b=b)[0], 0.5 * a + 2 * b, atol=1e-12)


def test_a_wrong_weight_beside_a_schedule_is_found():
    ramp = {"type": "Linear", "start": 0, "end": 10, "from": 0.0, "to": 1.0}
    _, wrong = declared("Sum", output="s", terms={"a": ramp, "b": "much"})
    assert len(wrong) == 1
    assert wrong[0].startswith(".terms.b: found 'much'; expected a number")


def test_a_wrong_schedule_is_found_under_its_own_key():
    _, wrong = declared("Sum", output="s", terms={"a": {"type": "Liner"}})
    assert len(wrong) == 1
    assert wrong[0].startswith(".terms.a.type: unknown schedule 'Liner' (did you mean 'Linear'?)")


def test_a_product_repeats_sizes_of_one():
    image, mask = array(2, 3, 4, 4), array(2, 1, 4, 4)
    (found,) = run(Multiply("p", ["image", "mask", "mask"], scale=2.0), image=image, mask=mask)
    np.testing.assert_allclose(found, 2 * image * mask**2, atol=1e-12)


@pytest.mark.parametrize("injector", [Sum("s", {"a": 1.0, "b": 1.0}), Multiply("s", ["a", "b"])])
def test_instances_are_not_matched_with_columns(injector):
    with pytest.raises(UserError, match=re.escape("of 'a' (4,), 'b' (4, 1, 4, 4): equal numbers of dimensions")):
        run(injector, a=array(4), b=array(4, 1, 4, 4))


def test_gradients_of_a_sum_and_a_product():
    a, b = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    state = State({"a": a, "b": b})
    Sum("s", {"a": 0.5, "b": -1.0})(state, Networks({}, {}), 0)
    Multiply("p", ["s", "b"])(state, Networks({}, {}), 0)
    state["p"].backward()  # p = (a / 2 - b) b
    assert (a.grad.item(), b.grad.item()) == (1.5, -5.0)


# constants, noise, points between


def test_constants_of_a_given_shape():
    x = array(2, 3, 4, 4).astype(np.float32)
    like, one, pictures = (run(Constant("c", "x", 0.5, shape=shape), x=x)[0] for shape in (None, (), (1, 8, 8)))
    assert (like.shape, one.shape, pictures.shape) == ((2, 3, 4, 4), (2,), (2, 1, 8, 8))
    assert {float(v) for c in (like, one, pictures) for v in c.flat} == {0.5}
    assert run(Constant("c", "x", Linear(0, 4, 0.0, 1.0)), step=1, x=x)[0].mean() == 0.25


def test_a_constant_like_labels_holds_fractions():
    (found,) = run(Constant("c", "labels", 0.5), labels=np.zeros((2, 3), np.int64))
    assert found.dtype == np.float32
    assert found.min() == 0.5


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
    assert not run(noise, step=0, x=x)[0].any()


@pytest.mark.parametrize(("share", "step"), [(0.25, 0), (Linear(0, 100, 0.0, 1.0), 25)])
def test_points_at_a_given_share(share, step):
    a, b = array(3, 2, 4), array(3, 2, 4)
    (found,) = run(Interpolate("a", "b", "p", share=share), step=step, a=a, b=b)
    np.testing.assert_allclose(found, 0.25 * a + 0.75 * b, atol=1e-12)


# gradients cut, values held


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


def test_clamp():
    x = array(2, 3)
    np.testing.assert_array_equal(run(Clamp({"x": "y"}, -0.5, 0.5), x=x)[0], np.clip(x, -0.5, 0.5))
    np.testing.assert_array_equal(run(Clamp({"x": "y"}, low=0.0), x=x)[0], np.maximum(x, 0))


# arrangement


def test_joining():
    a, b = array(2, 3, 4), array(2, 1, 4)
    np.testing.assert_array_equal(run(Concatenate("c", ["a", "b"]), a=a, b=b)[0], np.concatenate([a, b], 1))
    np.testing.assert_array_equal(run(Stack("s", ["a", "a"], dim=2), a=a)[0], np.stack([a, a], 2))
    with pytest.raises(UserError, match=re.escape("Stack of 'a' (2, 3, 4), 'b' (2, 1, 4): stack expects")):
        run(Stack("s", ["a", "b"]), a=a, b=b)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"index": 2}, np.s_[:, 2]),
        ({"index": -1}, np.s_[:, -1]),
        ({"index": [2, 0]}, np.s_[:, [2, 0]]),
        ({"start": 1}, np.s_[:, 1:]),
        ({"stop": -1}, np.s_[:, :-1]),
        ({"start": 1, "stop": 3}, np.s_[:, 1:3]),
    ],
)
def test_select(arguments, expected):
    injector, wrong = declared("Select", names={"x": "y"}, dim=1, **arguments)
    assert wrong == []
    x = array(2, 4, 3)
    np.testing.assert_array_equal(run(injector, x=x)[0], x[expected])


@pytest.mark.parametrize(("arguments", "message"), [({"index": 9}, "out of range"), ({"start": 4}, "nothing from 4")])
def test_what_is_not_there_cannot_be_selected(arguments, message):
    with pytest.raises(UserError, match=message):
        run(Select({"x": "y"}, 1, **arguments), x=array(2, 4, 3))


def test_roll_makes_pairs_that_do_not_match():
    x, y = array(3, 2), array(3, 2)
    found = run(Roll({"x": "x_other", "y": "y_other"}), x=x, y=y)
    np.testing.assert_array_equal(found, [x[[2, 0, 1]], y[[2, 0, 1]]])


def test_choose_says_what_it_took():
    a, b = array(200, 2), array(200, 2)
    mixed, index = run(Choose(["a", "b"], "mixed", "which"), a=a, b=b)
    np.testing.assert_array_equal(mixed, np.where(index[:, None] == 0, a, b))
    assert 70 < index.sum() < 130  # 100, deviation 7


# what is refused when a recipe is read


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Sum", {"output": "s", "terms": {}}, "terms: at least one"),
        ("Multiply", {"output": "p", "factors": ["a"]}, "factors ['a']: two or more"),
        ("Constant", {"output": "c", "like": "x", "value": 0.0, "shape": [3, 0]}, "shape [3, 0]: sizes of 1 or more"),
        ("Noise", {"output": "n", "like": "x", "scale": -1.0}, "scale -1.0: 0 or more"),
        ("Interpolate", {"a": "a", "b": "b", "output": "p", "share": 1.5}, "share 1.5: a number from 0 to 1"),
        ("Detach", {"names": {}}, "names: at least one"),
        ("Detach", {"names": {"a": "c", "b": "c"}}, "adds 'c' twice"),
        ("Clamp", {"names": {"x": "y"}}, "low None, high None"),
        ("Clamp", {"names": {"x": "y"}, "low": 1.0, "high": 0.0}, "low 1.0, high 0.0"),
        ("Concatenate", {"output": "c", "inputs": []}, "at least one is needed"),
        ("Stack", {"output": "c", "inputs": ["a"], "dim": 0}, "dim 0: the batch"),
        ("Select", {"names": {"x": "y"}, "dim": 1}, "write index, or start or stop"),
        ("Select", {"names": {"x": "y"}, "dim": 1, "index": 0, "start": 1}, "write index, or start or stop"),
        ("Select", {"names": {"x": "y"}, "dim": 0, "index": 0}, "dim 0: the batch"),
        ("Choose", {"inputs": ["a"], "output": "m", "index": "i"}, "inputs ['a']: two or more"),
        ("Roll", {"names": {"x": "y"}, "by": 0}, "by 0"),
        ("Noise", {"output": "n", "like": "x", "distribution": "cauchy"}, "expected 'normal' or 'uniform'"),
        ("Noise", {"output": "n", "like": "x", "std": 1.0}, "unknown argument of Noise 'std'"),
        ("Roll", {"names": {"x": "y"}, "by": "one"}, "expected an integer"),
        ("Summ", {}, "unknown injector 'Summ' (did you mean 'Sum'?)"),
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

    with pytest.raises(torch.OutOfMemoryError):  # which `train.find_batch_size` waits for
        Greedy(["a"], ["b"])(State({"a": torch.zeros(2)}), Networks({}, {}), 0)
