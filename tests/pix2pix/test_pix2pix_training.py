"""The recipe pix2pix on the engine: who moves when, what is computed, what a kill changes."""

import os
import shutil
import signal

import pytest
import torch
import toy
import toy_pairs
from safetensors.torch import load_file
from trainings import assert_same, outputs, weights
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.training.trainer import Trainer
from recipes import pix2pix_by_hand


def fit(run, changes=None, **hooks):
    trainer = Trainer(toy_pairs.recipe(changes), run, **hooks)
    trainer.fit()
    return trainer


def test_the_gradient_penalty_trains(run):
    changes = {f"losses.{name}.kind": "wgan" for name in ("D_real", "D_fake", "G_GAN")}
    changes["losses.D_penalty"] = {
        "type": "images.GradientPenalty", "inputs": {"points": "between", "logits": "between_logits"},
        "weight": 10.0, "step": "D",
    }  # fmt: skip
    injectors = toy_pairs.content()["steps"]["D"]["injectors"]
    changes["steps.D.injectors"] = injectors | {
        "mix": {"type": "Interpolate", "a": "y", "b": "fake", "output": "between"},
        "judge_between": {
            "type": "Forward", "network": "discriminator", "inputs": {"x": "x", "y": "between"},
            "outputs": {"logits": "between_logits"},
        },
    }  # fmt: skip
    trainer = fit(run, changes)
    history = trainer.loss_log.history()
    assert history["raw"].notna().all()
    assert set(history["loss"]) == set(trainer.loss_log.tags)
    assert "D_penalty" in trainer.loss_log.tags
    validation = trainer.loss_log.validation[-1]
    assert "D_penalty.raw" not in validation  # evaluations keep no gradients
    assert "G_L1.raw" in validation


def test_a_step_written_by_hand_reaches_the_same_numbers(run):
    changes = toy_pairs.GRADIENT_DESCENT
    declared = fit(run / "declared", changes)
    by_hand = fit(
        run / "hand", changes, train_step=pix2pix_by_hand.train_step, on_epoch_start=pix2pix_by_hand.announce,
        hook_kwargs={"on_epoch_start": {"word": "at"}},
    )  # fmt: skip
    for row, other in zip(by_hand.loss_log.train, declared.loss_log.train, strict=True):
        assert row == pytest.approx(other, rel=1e-3)
    found, start = weights(by_hand), weights(Trainer(toy_pairs.recipe(changes), run / "start"))
    assert_same(found, weights(declared), atol=2e-6)
    assert max((found[name] - start[name]).abs().max() for name in start) > 1e-3


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ({"G_GAN": torch.ones(4)}, r"the loss 'G_L1' has weight 100 and no value was given for it"),
        ({"G_GAN": torch.ones(4), "G_l1": torch.ones(4)}, r"no loss 'G_l1' \(did you mean 'G_L1'\?\)"),
    ],
)
def test_losses_by_hand_are_those_of_the_step(losses, said, run):
    with pytest.raises(UserError, match=said):
        Trainer(toy_pairs.recipe(), run).optimize("G", losses)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    run = tmp_path_factory.mktemp("pix2pix") / "run"
    fit(run)
    return outputs(run)


@pytest.mark.parametrize("point", [40, 110])
def test_kill_9_and_go_on(point, run, uninterrupted):
    """Both networks, optimizers and schedules; killed in the middle of an iteration or of writing a resume point."""
    child = os.fork()
    if child == 0:
        watched = toy.killed_at(point)
        for name in ("fsync", "rename", "replace", "mkdir"):
            setattr(os, name, watched(getattr(os, name)))
        torch.Tensor.backward = watched(torch.Tensor.backward)
        Trainer.train_op = watched(Trainer.train_op)
        try:
            fit(run)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        for folder in ("model", "history"):
            shutil.rmtree(run / folder, ignore_errors=True)
    fit(run)
    assert outputs(run) == uninterrupted


def test_two_ranks_with_half_the_batch_each_give_the_same_update(tmp_path):
    """Without dropout, whose noise is each rank's own."""
    changes = toy_pairs.GRADIENT_DESCENT | {
        "networks.generator.dropout": 0.0, "train.steps": 4, "runtime.samples": None,
        "networks.generator.norm": "instance", "networks.discriminator.norm": "instance",
    }  # fmt: skip
    run_in_two(lambda: Trainer(toy_pairs.recipe(changes), tmp_path / "two").fit())
    one = Trainer(toy_pairs.recipe(changes), tmp_path / "one")
    one.fit()
    for name in ("generator", "discriminator"):
        shared = load_file(tmp_path / "two/model" / f"{name}.safetensors")
        for key, value in load_file(tmp_path / "one/model" / f"{name}.safetensors").items():
            torch.testing.assert_close(shared[key], value, rtol=0, atol=1e-5, msg=f"{name}.{key}")
    ours, theirs = ((tmp_path / n / "live/losses.csv").read_text().splitlines() for n in ("one", "two"))
    for row, other in zip(ours[1:], theirs[1:], strict=True):  # means over all ranks
        assert row.split(",")[:2] == other.split(",")[:2]
        assert float(row.split(",")[2]) == pytest.approx(float(other.split(",")[2]), rel=1e-4)
