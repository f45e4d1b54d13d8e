"""A training goes on in another number of processes; processes that no longer agree are stopped."""

import shutil

import pytest
import test_resume
import torch
from safetensors.torch import load_file
from two_processes import run_in_two

STOP = 9  # the resume point before it is that of iteration 8
CHANGES = test_resume.BASE | {"networks.painter.dropout": 0.3, "train.ema": {"decay": 0.8}, "train.accumulation": 2}
SCRIPT = """
import sys
from pathlib import Path
import torch, toy, test_resume
from test_processes_resume import CHANGES, STOP
from accelerate import Accelerator
from models.base.errors import UserError
from models.training.trainer import Trainer
Accelerator.end_training = lambda self: None  # several trainings, one group of processes
folder = Path(sys.argv[1])
trainer = test_resume.fit(folder / "one-then-two", CHANGES)
assert trainer.done[0] == 8, trainer.done
try:
    test_resume.fit(folder / "two-then-one", CHANGES, stop=STOP)
except test_resume.Killed:
    pass

def perturbing(trainer, batch):
    if trainer.accelerator.process_index == 1 and trainer.iteration == 2:
        with torch.no_grad():
            next(trainer.networks.live["painter"].parameters()).add_(1.0)
    return trainer.train_op(batch)

try:
    Trainer(toy.checked(CHANGES), folder / "apart", train_step=perturbing).fit()
except UserError as error:
    (folder / f"said-{trainer.accelerator.process_index}").write_text(str(error))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    with pytest.raises(test_resume.Killed):
        test_resume.fit(folder / "one-then-two", CHANGES, stop=STOP)
    run_in_two(SCRIPT, folder)
    return folder


@pytest.mark.parametrize("order", ["one-then-two", "two-then-one"])
def test_another_number_of_processes_goes_on_and_ends_in_the_same_weights(order, folder, tmp_path):
    run = shutil.copytree(folder / order, tmp_path / order)
    if order == "two-then-one":
        assert test_resume.fit(run, CHANGES).done[0] == 8
    test_resume.fit(tmp_path / "at once", CHANGES)
    for path in sorted((tmp_path / "at once/model").glob("*.safetensors")):
        expected, found = load_file(path), load_file(run / "model" / path.name)
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=1e-6, msg=f"{path.stem}.{key}")
    assert (run / "history/train.csv").read_text().count("\n") == (
        tmp_path / "at once/history/train.csv"
    ).read_text().count("\n")


def test_processes_with_different_weights_are_stopped(folder):
    for rank in range(2):
        said = (folder / f"said-{rank}").read_text()
        assert "after iteration 4, process 1 has other weights than process 0: network painter" in said
    assert not (folder / "apart/resume").exists()
    assert not (folder / "apart/model").exists()
