"""Model folders that a training leaves behind: when, with which weights, whole, and for how long."""

import pytest
from trainings import BASE, Killed, contents
from trainings import fit as trained

from figura.training.checkpoints import models_in, step_of


def fit(run, changes, stop=None):
    trained(run, BASE | {"runtime.log_every": 100, "train.evaluate_every": 12} | changes, stop=stop)


def names(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_what_would_be_evaluated_then(tmp_path):
    fit(tmp_path / "saved", {"runtime.checkpoint_every": 5})
    fit(tmp_path / "plain", {})
    fit(tmp_path / "short", {"train.steps": 5})
    assert names(tmp_path / "saved") == ["step-000005", "step-000010", "step-000012"]
    assert not (tmp_path / "plain/checkpoints").exists()
    for folder in ("model", "history"):  # training does not notice
        assert contents(tmp_path / "saved" / folder) == contents(tmp_path / "plain" / folder)
    at_five = contents(tmp_path / "saved/checkpoints/step-000005")
    assert at_five["painter.safetensors"] == contents(tmp_path / "short/model")["painter.safetensors"]
    assert contents(tmp_path / "saved/checkpoints/step-000012") == contents(tmp_path / "saved/model")
    assert at_five["recipe.yaml"] == contents(tmp_path / "saved/model")["recipe.yaml"]


def test_a_resumed_training_keeps_them_and_a_new_one_does_not(run):
    every = {"runtime.checkpoint_every": 3, "runtime.resume_every": 4}
    with pytest.raises(Killed):
        fit(run, every, stop=8)
    (run / "checkpoints/step-000003/mark").touch()
    (run / "checkpoints/.step-000009.partial").mkdir()
    fit(run, every)
    assert names(run) == ["step-000003", "step-000006", "step-000009", "step-000012"]
    assert (run / "checkpoints/step-000003/mark").exists()
    fit(run, {"runtime.checkpoint_every": 12})
    assert names(run) == ["step-000012"]
    fit(run, {})
    assert not (run / "checkpoints").exists()


def test_order_is_that_of_the_iterations(tmp_path):
    for name in ("step-1000000", "step-000900", "final", ".step-000001.partial", "step-001000"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-000001").touch()  # a file
    names = [path.name for path in models_in(tmp_path)]
    assert names == ["step-000900", "step-001000", "step-1000000", "final"]
    assert [step_of(name) for name in names] == [900, 1000, 1000000, None]
    assert models_in(tmp_path / "missing") == []
