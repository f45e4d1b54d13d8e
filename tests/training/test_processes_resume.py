"""A training goes on in another number of ranks; ranks that no longer agree are stopped."""

import shutil
from unittest.mock import patch

import pytest
import torch
import toy
from accelerate import Accelerator
from safetensors.torch import load_file
from trainings import BASE, Killed, fit
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.training.trainer import Trainer

STOP = 9  # the resume point before it is that of iteration 8
CHANGES = BASE | {"networks.painter.dropout": 0.3, "train.ema": {"decay": 0.8}, "train.accumulation": 2}


def perturbing(trainer, batch):
    if trainer.accelerator.process_index == 1 and trainer.iteration == 2:
        with torch.no_grad():
            next(trainer.networks.live["painter"].parameters()).add_(1.0)
    return trainer.train_op(batch)


def trainings(folder):
    """What each of two ranks does."""
    with patch.object(Accelerator, "end_training"):  # several trainings, one group of processes
        trainer = fit(folder / "one-then-two", CHANGES)
        assert trainer.done[0] == 8, trainer.done
        with pytest.raises(Killed):
            fit(folder / "two-then-one", CHANGES, stop=STOP)
        with pytest.raises(UserError) as caught:
            Trainer(toy.checked(CHANGES), folder / "apart", train_step=perturbing).fit()
        (folder / f"said-{trainer.accelerator.process_index}").write_text(str(caught.value))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    with pytest.raises(Killed):
        fit(folder / "one-then-two", CHANGES, stop=STOP)
    run_in_two(lambda: trainings(folder))
    return folder


@pytest.mark.parametrize("order", ["one-then-two", "two-then-one"])
def test_another_number_of_ranks_goes_on_and_ends_in_the_same_weights(order, folder, tmp_path):
    run = shutil.copytree(folder / order, tmp_path / order)
    if order == "two-then-one":
        assert fit(run, CHANGES).done[0] == 8
    fit(tmp_path / "at once", CHANGES)
    for path in sorted((tmp_path / "at once/model").glob("*.safetensors")):
        expected, resumed = load_file(path), load_file(run / "model" / path.name)
        for key, value in expected.items():
            torch.testing.assert_close(resumed[key], value, rtol=0, atol=1e-6, msg=f"{path.stem}.{key}")
    assert (run / "history/train.csv").read_text().count("\n") == (
        tmp_path / "at once/history/train.csv"
    ).read_text().count("\n")


def test_ranks_with_different_weights_are_stopped(folder):
    for rank in range(2):
        said = (folder / f"said-{rank}").read_text()
        assert "after iteration 4, rank 1 has other weights than rank 0: network painter" in said
    assert not (folder / "apart/resume").exists()
    assert not (folder / "apart/model").exists()
