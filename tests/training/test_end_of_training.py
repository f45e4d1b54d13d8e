"""How a training ends: weights that are not finite, full disks, kills after the last iteration, DVC's lock."""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
import toy
from dvc_data.hashfile.build import build
from dvc_data.hashfile.db.local import LocalHashFileDB
from dvc_objects.fs.local import LocalFileSystem
from trainings import BASE, Killed, fit, outputs

from figura.base.errors import UserError
from figura.base.yaml12 import to_yaml
from figura.interfaces import Callback
from figura.pipeline.lock import folder_md5
from figura.training import checkpoints, resume, run_folder


def fails(run, changes, content=None, **keywords):
    """Return the error line of a training, which leaves neither a model nor half of one."""
    with pytest.raises(UserError) as caught:
        fit(run, BASE | changes, content, **keywords)
    assert not any((run / name).exists() for name in ("model", "history", ".model.partial"))
    return str(caught.value)


class Break(Callback):
    """Makes a tensor of a network infinite after the update of iteration 2."""

    def __init__(self, network, tensor):
        self.network, self.tensor = network, tensor

    def after_update(self, trainer, step, report):
        if trainer.iteration == 1:
            trainer.networks.live[self.network].state_dict()[self.tensor].view(-1)[0] = torch.inf


PATIENT = {"train.max_nonfinite": 50, "runtime.resume_every": 100}


@pytest.mark.parametrize(
    ("changes", "content", "broken", "told"),
    [
        ({}, None, ("painter", "layer.weight"), "network 'painter': layer.weight is not finite after iteration 12, an"),
        ({"runtime.resume_every": 4}, None, ("painter", "layer.weight"), "network 'painter': .* after iteration 4,"),
        ({}, toy.gan(), ("critic", "norm.running_mean"), "network 'critic': norm.running_mean is not finite after it"),
        (
            {"steps.painter.optimizer.lr": 1e30, "steps.painter.clip": ...}, None, None,
            "step 'painter': the last 11 updates .* from iteration 2 on; .*validation is not finite for distance, squ",
        ),
        (  # step critic is as it should be, and learns from what step painter makes
            {"steps.painter.optimizer.lr": 1e30}, toy.gan(), None,
            r".* is the loss '.*' of step '.*', in iteration 2: `.*/run --step 2` .*\(critic 0\.01, painter 1e\+30\)",
        ),
        (
            {"data.train.ramps.broken_from": 0, "data.validation.ramps.broken_from": 0}, None, None,
            ".* is the loss 'distance' of step 'painter', in iteration 1: .* --step 1` .* No update came before it",
        ),
        (  # 3 updates, in iterations 1, 5 and 9
            {"data.train.ramps.broken_from": 0, "data.validation.ramps.broken_from": 0, "steps.painter.every": 4},
            None, None,
            "step 'painter': the last 3 updates .* from iteration 1 on; .* in iteration 1: .* No update came before it",
        ),
    ],
)  # fmt: skip
def test_what_is_not_finite_is_not_written(changes, content, broken, told, run):
    said = fails(run, PATIENT | changes, content, callbacks={"break": Break(*broken)} if broken else {})
    assert re.match(rf"toy.yaml: {told}", said)
    assert not (run / "resume").exists()


def test_skipped_updates_at_the_end_are_a_warning_where_validation_is_finite(run, capsys):
    changes = {"data.train.ramps": {"type": "toy.Ramps", "length": 4, "broken_from": 3}, "data.batch_size": 4}
    changes |= {"train.steps": 2, "train.max_nonfinite": 3}
    fit(run, BASE | changes)
    assert (
        "warning: step 'painter': the last 2 updates were not finite, from iteration 1 on; the weights are finite, and "
        "are written\n" in capsys.readouterr().out
    )
    assert (run / "model/SHA256SUMS").is_file()


@pytest.mark.parametrize(("what", "at"), [("model", 8), ("history", 8), ("resume", 4)])
def test_a_full_disk_ends_a_training_with_one_line_and_it_goes_on_from_its_state(what, at, run, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), None)

    write_state = resume.save_tensors
    with monkeypatch.context() as patch:
        if what == "resume":
            later = iter([write_state, full])
            patch.setattr(resume, "save_tensors", lambda *arguments: next(later)(*arguments))
        else:
            patch.setattr(*((checkpoints, "save_weights") if what == "model" else (run_folder, "end_judged")), full)
        said = fails(run, {})
    assert "cannot be written: No space left on device" in said
    assert f"the state of iteration {at} stays, and `dvc repro` goes on from it" in said
    assert "writing" not in {path.name for path in (run / "resume").iterdir()}
    assert fit(run, BASE).done[0] == at
    fit(tmp_path / "whole", BASE)
    assert outputs(run) == outputs(tmp_path / "whole")


def recorded(run, names=("model", "history")):
    """Write `dvc.lock` as DVC does after a training."""
    outs = [{"path": str(run / name), "md5": folder_md5(run / name)} for name in names]
    Path("dvc.lock").write_text(to_yaml({"schema": "2.0", "stages": {"train@toy": {"outs": outs}}}))


@pytest.fixture
def in_dvc(tmp_path, monkeypatch):
    """A stage of DVC, which removes outputs before it runs a stage; its run's folder, relative as in `dvc.yaml`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_STAGE", "train@toy")
    return Path("runs/toy")


def removed_by_dvc(run):
    for name in ("model", "history"):
        shutil.rmtree(run / name, ignore_errors=True)


def test_a_training_that_ended_before_dvc_recorded_it_is_not_repeated(in_dvc, capsys):
    fit(in_dvc, BASE)
    expected = outputs(in_dvc)
    assert not (in_dvc / "resume").exists()
    removed_by_dvc(in_dvc)
    assert fit(in_dvc, BASE).done == []
    assert outputs(in_dvc) == expected
    assert "runs/toy: this training, of the same recipe, data and code, had ended" in capsys.readouterr().out
    recorded(in_dvc)
    removed_by_dvc(in_dvc)
    assert fit(in_dvc, BASE).done == list(range(12))  # dvc repro --force
    assert outputs(in_dvc) == expected


@pytest.mark.parametrize("other", ["an earlier training of equal outputs", "another stage"])
def test_a_lock_that_records_something_else_does_not_count(other, in_dvc):
    fit(in_dvc, BASE)
    if other == "another stage":
        recorded(in_dvc, ["model"])
    else:
        recorded(in_dvc)
        os.utime("dvc.lock", (0, 0))
    removed_by_dvc(in_dvc)
    assert fit(in_dvc, BASE).done == []


def test_what_ended_is_not_taken_for_another_recipe_nor_if_damaged_nor_by_hand(in_dvc, monkeypatch):
    fit(in_dvc, BASE)
    assert fit(in_dvc, BASE | {"losses.square.weight": 0.75}).done == list(range(12))
    (in_dvc / "finished/history/train.csv").write_text("step\n")
    assert fit(in_dvc, BASE | {"losses.square.weight": 0.75}).done == list(range(12))
    monkeypatch.delenv("DVC_STAGE")
    assert fit(in_dvc, BASE | {"losses.square.weight": 0.75}).done == list(range(12))
    assert not (in_dvc / "finished").exists()


def test_a_kill_between_the_model_and_its_record_costs_no_iteration_before_the_last_state(in_dvc, monkeypatch):
    def die(folder):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("figura.training.finished.UnrecordedOutputs.stash", die)
        with pytest.raises(Killed):
            fit(in_dvc, BASE)
    expected = outputs(in_dvc)
    removed_by_dvc(in_dvc)
    assert fit(in_dvc, BASE).done == [8, 9, 10, 11]
    assert outputs(in_dvc) == expected


def test_a_kill_before_the_last_states_are_removed_leaves_none_of_them(in_dvc, monkeypatch):
    def die(points, resumed_from):
        (points.folder / "removing").mkdir()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("figura.training.resume.ResumePoints.clear", die)
        with pytest.raises(Killed):
            fit(in_dvc, BASE)
    expected, losses = outputs(in_dvc), (in_dvc / "live/losses.csv").read_bytes()
    removed_by_dvc(in_dvc)
    assert fit(in_dvc, BASE).done == []
    assert outputs(in_dvc) == expected
    assert (in_dvc / "live/losses.csv").read_bytes() == losses
    assert not (in_dvc / "resume").exists()


def test_a_folder_has_the_sum_that_dvc_gives_it(tmp_path):
    (tmp_path / "data/more").mkdir(parents=True)
    for name in ("b.txt", "a", "more/ü"):
        (tmp_path / "data" / name).write_text(name)
    fs = LocalFileSystem()
    database = LocalHashFileDB(fs, str(tmp_path / "cache"))
    _, _, tree = build(database, str(tmp_path / "data"), fs, "md5")
    assert folder_md5(tmp_path / "data") == tree.hash_info.value
