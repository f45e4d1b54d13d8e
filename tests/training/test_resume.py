"""A killed training goes on to the same bytes, also in another number of ranks; one made otherwise begins again."""

import json
import os
import shutil
import signal
from importlib.util import find_spec
from itertools import groupby, pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
import test_freeze
import torch
import toy
from accelerate import Accelerator
from safetensors.torch import load_file
from trainings import BASE, Killed, Stopping, contents, fit, killed, outputs
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.base.yaml12 import to_yaml
from figura.training import provenance
from figura.training.trainer import Trainer
from stages import train

STEPS, EVERY = 12, 4
BROKEN = {"data.train.ramps.broken_from": 19, "train.max_nonfinite": 9}
OPTIMIZER = "steps.painter.optimizer"
RAMP = {"type": "Linear", "start": 2, "end": 8, "from": 0.0, "to": 3.0}
SCHEDULED = {"data.train.more": {"type": "toy.Ramps", "length": 9, "schedule": RAMP}}
RECIPES = {
    "plain": (BASE, None),
    "parts and skips": (BASE | BROKEN | {"train.accumulation": 3, "train.record_every": 5}, None),
    "two steps": (BASE | {"train.ema": {"decay": 0.8}, "steps.critic.every": 1, "steps.painter.after": 3}, toy.gan()),
    "scheduled data": (BASE | SCHEDULED, None),
    "short": (BASE | {"train.steps": 3, "runtime.resume_every": 1}, None),
    "epochs": (BASE | {"train.steps": ..., "train.epochs": 2, "train.evaluate_every": None}, None),
    "frozen parts": (test_freeze.CHANGES, None),
    "muon": (BASE | {"networks.painter.width": 8, OPTIMIZER: {"type": "Muon", "lr": 0.01, "rest_lr": 0.01}}, None),
    "lamb": (BASE | {OPTIMIZER: {"type": "pytorch_optimizer.Lamb", "lr": 0.01, "weight_decay": 0.1}}, None),
}
needs_extra = pytest.mark.skipif(find_spec("pytorch_optimizer") is None, reason="needs the extra `optimizers`")
KILLS = {
    "plain": (0, 3, 4, 5, 9, 11), "parts and skips": (5, 9, 11), "two steps": (5, 9, 11), "scheduled data": (5, 9, 11),
    "epochs": (9,), "frozen parts": (6, 9), "muon": (9,), "lamb": (9,),
}  # fmt: skip


def left(run):
    """The outputs of a training, and its log of losses."""
    return outputs(run) | {"live/losses.csv": (run / "live/losses.csv").read_bytes()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The outputs of each recipe, made once."""
    made = {}

    def outputs_of(name):
        if name not in made:
            run = tmp_path_factory.mktemp("whole") / "run"
            fit(run, *RECIPES[name])
            made[name] = left(run)
        return made[name]

    return outputs_of


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        pytest.param(name, stop, marks=needs_extra if name == "lamb" else ())
        for name, stops in KILLS.items()
        for stop in stops
    ],
)
def test_goes_on_where_it_was_killed(name, stop, run, uninterrupted, capsys):
    killed(run, *RECIPES[name], stop=stop)
    assert not (run / "model").exists()
    saved = stop // EVERY * EVERY
    trainer = fit(run, *RECIPES[name])
    assert trainer.done == list(range(saved, 10 if name == "epochs" else STEPS))  # 22 examples in batches of 4
    assert (f"resumed after iteration {saved}" in capsys.readouterr().out) == (saved > 0)
    assert left(run) == uninterrupted(name)
    assert not (run / "resume").exists()


def test_the_count_of_skipped_updates_goes_on(run):
    nothing_but_nan = BASE | {"data.train.ramps.broken_from": 0, "train.max_nonfinite": 6}
    killed(run, nothing_but_nan, stop=5)
    with pytest.raises(UserError, match=r"6 updates in a row were not finite .* in iteration 6\. .* in iteration 1: "):
        fit(run, nothing_but_nan)


def test_killed_again_and_again(run, uninterrupted):
    for stop in (5, 7, 8, 10):
        killed(run, *RECIPES["plain"], stop=stop)
    assert fit(run, *RECIPES["plain"]).done == [8, 9, 10, 11]
    assert left(run) == uninterrupted("plain")


def test_killed_while_it_looks_at_validation(run, uninterrupted, monkeypatch):
    def die(*arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Stopping, "eval_op", die)
        with pytest.raises(Killed):
            fit(run, *RECIPES["plain"])
    assert fit(run, *RECIPES["plain"]).done == list(range(4, 12))
    assert left(run) == uninterrupted("plain")


def test_a_finished_run_begins_again(run, uninterrupted):
    for _ in range(2):
        assert fit(run, *RECIPES["plain"]).done == list(range(STEPS))
        assert left(run) == uninterrupted("plain")


WATCHED = ("fsync", "unlink", "rmdir", "rename", "replace", "mkdir")


def watch(patch, watched):
    """Wrap whatever changes the disk."""
    for name in WATCHED:
        patch.setattr(os, name, watched(getattr(os, name)))
    patch.setattr(Path, "write_text", watched(Path.write_text))


def different_moments(run, monkeypatch):
    """Train; return the numbers of the calls that find the disk changed since the call before them."""
    seen = []

    def watched(call):
        def wrapper(*arguments, **keywords):
            seen.append({str(path): path.read_bytes() if path.is_file() else None for path in run.rglob("*")})
            return call(*arguments, **keywords)

        return wrapper

    with monkeypatch.context() as patch:
        watch(patch, watched)
        fit(run, *RECIPES["short"])
    return [number for number, (before, now) in enumerate(pairwise([None, *seen]), start=1) if now != before]


def status_of_killed_child(run, point):
    """In a child process: train, killed at call number `point` of whatever changes the disk."""
    child = os.fork()
    if child == 0:
        try:
            watch(pytest.MonkeyPatch(), toy.killed_at(point))
            fit(run, *RECIPES["short"])
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.slow
def test_kill_9_at_any_change_of_the_disk(run, uninterrupted, monkeypatch):
    """The later the kill, the later it goes on: no state is lost until the outputs are whole."""
    expected = uninterrupted("short")  # before calls are counted: the first training of a process makes some more
    moments, went_on = different_moments(run, monkeypatch), []
    for point in moments:
        shutil.rmtree(run)
        assert status_of_killed_child(run, point) == signal.SIGKILL
        for folder in ("model", "history"):  # as DVC does before it runs the stage again
            shutil.rmtree(run / folder, ignore_errors=True)
        went_on.append(fit(run, *RECIPES["short"]).done[0])
        assert left(run) == expected, f"killed at call {point}"
        assert not (run / "resume").exists()
    assert [one for one, _ in groupby(went_on)] in ([0, 1, 2], [0, 1, 2, 0])


def stored(folder, content="1"):
    """A recipe whose data come from a prepared folder."""
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"sha256": content}))
    train = {"ramps": {"type": "toy.Stored", "length": 22, "root": str(folder)}}
    return BASE | {"data.train": train}


def change(what, changes, data, monkeypatch):
    """Return the changes of a recipe after something that its training depends on is another."""
    if what == "recipe":
        return changes | {"losses.square.weight": 0.75}
    if what == "code":
        monkeypatch.setattr(provenance, "code_version", lambda modules, content: "changed")
    elif what == "packages":
        monkeypatch.setattr(provenance, "package_versions", lambda: {"torch": "0.1"})
    elif what == "environment":
        here = os.environ.get("OPENBLAS_CORETYPE")  # some machines set it
        monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem" if here == "Haswell" else "Haswell")
    elif what == "data":
        stored(data, "2")
    return changes


@pytest.mark.parametrize("what", ["recipe", "code", "packages", "data", "environment"])
def test_refused_after_a_change_set_aside_and_begun_again(what, run, tmp_path, monkeypatch, capsys):
    changes = stored(tmp_path / "data")
    killed(run, changes, stop=9)
    state = {name: content for name, content in contents(run / "resume").items() if name.startswith("0000000008")}
    changes = change(what, changes, tmp_path / "data", monkeypatch)
    trainer = fit(run, changes)
    assert trainer.done == list(range(STEPS))
    assert (
        f"not resumed, training starts afresh: the state of iteration 8 was made by another {what}. It is kept in "
        f"{run / 'resume-refused' / '0000000008'}; to go on from it anyway, stop this training and run "
        "`FIGURA_RESUME_ANYWAY=1 dvc repro`\n" in capsys.readouterr().out
    )
    assert contents(run / "resume-refused") == state
    assert not (run / "resume").exists()
    fit(tmp_path / "other", changes)
    assert left(run) == left(tmp_path / "other")
    assert "resumed" not in json.loads((run / "model/provenance.json").read_text())


def made_otherwise(run, monkeypatch, stop=9):
    """Kill a training of which only the text of its provenance differs from the next ones."""
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "code_version", lambda modules, content: "changed")
        killed(run, BASE, stop=stop)


def test_the_environment_asks_for_a_state_of_other_code(run, tmp_path, monkeypatch, capsys):
    made_otherwise(run, monkeypatch)
    (tmp_path / "toy.yaml").write_text(to_yaml(toy.changed(BASE)))
    monkeypatch.setenv("FIGURA_RESUME_ANYWAY", "1")
    train.main([str(tmp_path / "toy.yaml"), str(run)])
    assert "resumed after iteration 8, made by another code: taken anyway\n" in capsys.readouterr().out


@pytest.mark.parametrize("younger", [False, True], ids=["alone", "beside a younger one of a fresh training"])
def test_a_state_of_other_code_is_taken_when_asked(younger, run, uninterrupted, monkeypatch, capsys):
    made_otherwise(run, monkeypatch)
    if younger:
        killed(run, BASE, stop=6)
        assert [path.name for path in (run / "resume").iterdir()] == ["0000000004"]
    trainer, whole = fit(run, BASE, resume_anyway=True), dict(uninterrupted("plain"))
    assert trainer.done == [8, 9, 10, 11]
    assert "resumed after iteration 8, made by another code: taken anyway\n" in capsys.readouterr().out
    own = left(run)
    record = json.loads(own.pop("model/provenance.json"))
    assert record.pop("resumed") == "iteration 8, made by another code"
    assert record == json.loads(whole.pop("model/provenance.json"))
    if younger:  # it ended the log after 6 iterations
        assert own.pop("live/losses.csv") != whole.pop("live/losses.csv")
    assert own == whole
    assert not (run / "resume").exists()
    assert not any((run / "resume-refused").glob("*"))


def test_a_training_that_took_a_refused_state_and_was_killed_goes_on_by_itself(run, uninterrupted, monkeypatch):
    made_otherwise(run, monkeypatch, stop=6)
    killed(run, BASE, stop=10, resume_anyway=True)
    assert fit(run, BASE).done == [8, 9, 10, 11]
    own = left(run)
    assert json.loads(own["model/provenance.json"])["resumed"] == "iteration 4, made by another code"
    assert own["model/painter.safetensors"] == uninterrupted("plain")["model/painter.safetensors"]


def test_a_lower_rate_goes_on_from_a_state(run):
    killed(run, BASE, stop=9)
    trainer = fit(run, BASE | {"steps.painter.optimizer.lr": 0.005}, resume_anyway=True)
    assert trainer.done == [8, 9, 10, 11]
    assert trainer.loss_log.train[-1]["painter.lr"] == 0.005


def test_other_options_of_an_optimizer_go_on_from_a_state(run):
    sgd = {"type": "torch.optim.SGD", "lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}
    killed(run, BASE | {OPTIMIZER: sgd}, stop=9)
    other = {"type": "torch.optim.SGD", "lr": 0.01, "momentum": 0.5}
    trainer = fit(run, BASE | {OPTIMIZER: other}, resume_anyway=True)
    (group,) = trainer.steps["painter"].optimizer.param_groups
    assert (group["momentum"], group["weight_decay"]) == (0.5, 0)


def test_asking_where_nothing_was_refused_changes_nothing(run, uninterrupted):
    killed(run, BASE, stop=9, resume_anyway=True)
    assert fit(run, BASE, resume_anyway=True).done == [8, 9, 10, 11]
    assert left(run) == uninterrupted("plain")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"networks.painter.width": 3}, "size mismatch for layer.weight"),
        ({"networks.second": {"type": "toy.Painter"}, "steps.painter.trains": ["painter", "second"]}, "second"),
        ({"steps.painter.groups": {"last": {"pattern": "last", "lr": 0.1}}}, "parameter group"),
    ],
)
def test_a_state_that_does_not_fit_is_told_and_stays(run, other, said):
    killed(run, BASE, stop=9)
    state = contents(run / "resume")
    with pytest.raises(UserError, match=r"resume/0000000008: does not fit this recipe: ") as caught:
        fit(run, BASE | other, resume_anyway=True)
    assert said in str(caught.value)
    assert contents(run / "resume") == state


def test_what_may_not_change_a_result_does_not_stop_a_resume(run, uninterrupted):
    killed(run, *RECIPES["plain"], stop=9)
    changes = {"runtime.log_every": 1, "runtime.resume_every": 3, "runtime.workers": 1, "metrics.bootstrap": 3}
    assert fit(run, BASE | changes).done == [8, 9, 10, 11]
    assert left(run) == uninterrupted("plain")


STOP = 9  # the resume point before it is that of iteration 8
CHANGES = BASE | SCHEDULED | {
    "networks.painter.dropout": 0.3, "train.ema": {"decay": 0.8}, "train.accumulation": 2,
    "train.evaluate_every": 3, "train.keep": {"metric": "distance", "better": "lower"},
}  # fmt: skip


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
        killed(folder / "two-then-one", CHANGES, stop=STOP)
        with pytest.raises(UserError) as caught:
            Trainer(toy.checked(CHANGES), folder / "apart", train_step=perturbing).fit()
        (folder / f"said-{trainer.accelerator.process_index}").write_text(str(caught.value))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    killed(folder / "one-then-two", CHANGES, stop=STOP)
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
