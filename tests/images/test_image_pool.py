"""The pool of earlier images: what it gives by hand, and that it is part of the state on any number of ranks."""

import re

import pytest
import torch
import toy
from safetensors.torch import load_file
from trainings import fit, outputs
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.interfaces import Networks, State
from figura.training.trainer import Trainer
from models.images.image_pool import ImagePool

NOTHING = Networks({}, {})


def given(pool, values, name="fake"):
    """Return what a pool gives for a batch of images (1,) with these values."""
    state = State({name: torch.tensor(values, requires_grad=True)[:, None]})
    pool(state, NOTHING, 0)
    assert not state["pooled"].requires_grad
    return state["pooled"][:, 0].tolist()


def drawn(monkeypatch, *draws):
    """Let the pool draw these pairs of a choice and a place."""
    left = iter(draws)
    monkeypatch.setattr(torch, "rand", lambda n, two, device: torch.tensor([next(left) for _ in range(n)]))


def test_a_pool_by_hand(monkeypatch):
    """Full after two images; then below 0.5 an image is exchanged, in the order of the batch, 4 for 1 and 6 for 4."""
    pool = ImagePool({"fake": "pooled"}, size=2)
    drawn(monkeypatch, (0.1, 0.1), (0.2, 0.9), (0.7, 0.2), (0.4, 0.49), (0.5, 0.0), (0.0, 0.2), (0.3, 0.99))
    assert given(pool, [1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]
    assert given(pool, [4.0, 5.0, 6.0, 7.0]) == [1.0, 5.0, 4.0, 2.0]
    assert pool.state_dict()["fake"].tolist() == [[6.0], [7.0]]
    other = ImagePool({"fake": "pooled"}, size=2)
    other.load_state_dict(pool.state_dict())
    drawn(monkeypatch, (0.0, 0.9))
    assert given(other, [8.0]) == [7.0]
    other.load_state_dict({})
    assert other.state_dict() == {}


def test_half_of_the_images_are_earlier_ones_and_evaluations_change_nothing():
    """Of 4000 images, 0.5 +- 4 standard deviations are exchanged; a pool of size 0 and no gradients exchange none."""
    pool, same = ImagePool({"fake": "pooled"}, size=10), 0
    torch.manual_seed(0)
    for step in range(1001):
        images = [4.0 * step + index for index in range(4)]
        same += sum(a == b for a, b in zip(given(pool, images), images, strict=True))
    assert abs(same - 10 - 0.5 * 3994) < 4 * 0.5 * 3994**0.5
    before = pool.state_dict()["fake"].clone()
    with torch.no_grad():
        assert given(pool, [1.0, 2.0]) == [1.0, 2.0]
    assert torch.equal(pool.state_dict()["fake"], before)
    assert given(ImagePool({"fake": "pooled"}, size=0), [1.0]) == [1.0]


def test_names_have_pools_of_their_own():
    pool = ImagePool({"a": "pooled_a", "b": "pooled_b"}, size=1, chance=1.0)
    for value in (1.0, 2.0):
        state = State({"a": torch.full((1, 1), value), "b": torch.full((1, 2), -value)})
        pool(state, NOTHING, 0)
    assert (state["pooled_a"].tolist(), state["pooled_b"].tolist()) == ([[1.0]], [[-1.0, -1.0]])


def test_wrong_use_in_one_line():
    pool = ImagePool({"fake": "pooled"})
    given(pool, [1.0])
    said = "ImagePool of 'fake' (2, 3): the pool holds images of shape (1,); all images of a name have one"
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        pool(State({"fake": torch.zeros(2, 3)}), NOTHING, 0)


POOL = {
    "steps.critic.injectors.fake.inputs.image": "pooled",
    "steps.critic.injectors.pool": {"type": "images.ImagePool", "names": {"image": "pooled"}, "size": 6},
    "data.batch_size": 4,
    "train.steps": 8,
    "runtime.resume_every": 4,
    "runtime.samples": None,
    "runtime.timing": False,
}


def pooled(changes=None):
    """Return the content of the critic's recipe with a pool before the call that reads it."""
    content = toy.changed(POOL | (changes or {}), toy.gan())
    injectors = content["steps"]["critic"]["injectors"]
    content["steps"]["critic"]["injectors"] = {
        name: injectors[name] for name in ("paint", "pool", "real", "fake") if name in injectors
    }
    return content


def test_two_ranks_have_the_pool_of_one(run):
    """Every rank has the whole pool, in the order of the batch; weights are equal up to rounding."""
    # batch norm is shared, and the order of sums differs: weights agree to the tolerance of the other tests of ranks
    changes = {"steps.critic.accumulation": 2, "steps.painter.accumulation": 2, "runtime.resume_every": 7}
    sgd = {"type": "torch.optim.SGD", "lr": 0.02}
    steady = changes | {"steps.critic.optimizer": sgd, "steps.painter.optimizer": sgd}

    def train():
        trainer = fit(run / "two", steady, pooled())
        own = trainer.steps["critic"].injectors["pool"].injector.state_dict()["image"]
        torch.save(own, run / f"pool-{trainer.accelerator.process_index}.pt")

    run.mkdir()
    run_in_two(train)
    one = fit(run / "one", steady, pooled())
    pool = one.steps["critic"].injectors["pool"].injector.state_dict()["image"]
    ranks = [torch.load(run / f"pool-{rank}.pt", weights_only=True) for rank in range(2)]
    assert torch.equal(*ranks)
    torch.testing.assert_close(ranks[0], pool, rtol=0, atol=1e-6)
    for name in ("critic", "painter"):
        two = load_file(run / "two/model" / f"{name}.safetensors")
        for key, value in load_file(run / "one/model" / f"{name}.safetensors").items():
            torch.testing.assert_close(two[key], value, rtol=0, atol=1e-6)


def test_a_training_that_takes_the_state_of_a_shorter_one_takes_its_pool(run, tmp_path, monkeypatch, capsys):
    def train(name, steps):
        Trainer(toy.checked({"train.steps": steps, "runtime.resume_every": 1}, pooled()), run / name).fit()
        return capsys.readouterr().out

    monkeypatch.setenv("FIGURA_STATES", "off")
    train("whole", 8)
    monkeypatch.setenv("FIGURA_STATES", str(tmp_path / "states"))
    train("short", 5)
    assert "5 of 8 iterations" in train("longer", 8)
    assert outputs(run / "longer") == outputs(run / "whole")
