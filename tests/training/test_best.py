"""The best weights of a training, and an early end: exact after kills, in two processes, and from shared states."""

import json
import random

import pytest
import torch
import toy
from safetensors.torch import load_file
from trainings import BASE, assert_same, contents, history, iterations_of, killed, outputs
from trainings import fit as trained

from figura.base.errors import UserError
from figura.base.yaml12 import to_yaml
from figura.dump import Dump
from figura.interfaces import Callback, Row
from figura.recipe.schema import Keep, Stop, Train
from figura.training import states
from figura.training.best import early_end
from figura.training.trainer import Trainer
from stages import eval_dump

STEPS = 24
KEEP = {"metric": "distance", "better": "lower"}
EACH = BASE | {"train.evaluate_every": 1, "train.steps": STEPS, "steps.painter.optimizer.lr": 0.3, "train.keep": KEEP}
STOP = {"train.stop": {"patience": 3}}
"""With `EACH`, iteration 13 is the best of the first 16, and 17 the best of all (`test_the_best_...`)."""


def fit(run, changes=None, content=None, stop=None, **keywords):
    return trained(run, EACH | (changes or {}), content, stop, **keywords)


def model(run, folder="model"):
    return load_file(run / folder / "painter.safetensors")


def kept(run):
    return json.loads((run / "model/provenance.json").read_text())["kept"]


def test_the_best_weights_are_those_of_the_lowest_validation_loss(tmp_path):
    fit(tmp_path / "kept", {"train.keep": KEEP | {"best": 3}})
    fit(tmp_path / "plain", {"train.keep": None, "runtime.checkpoint_every": 1})
    rows = history(tmp_path / "kept", "validation")
    first, second, third, *_ = sorted(rows, key=lambda row: row["distance.raw"])
    assert first["step"] == 17
    kept_rows, plain_rows = (tmp_path / run / "history/validation.csv" for run in ("kept", "plain"))
    assert kept_rows.read_bytes() == plain_rows.read_bytes()  # training does not notice
    assert_same(model(tmp_path / "kept"), model(tmp_path / "plain", "checkpoints/step-000017"))
    names = [f"step-{round(one['step']):06d}" for one in (first, second, third, rows[-1])]
    assert sorted(path.name for path in (tmp_path / "kept/checkpoints").iterdir()) == sorted(set(names))
    for name in names:
        assert_same(*(model(tmp_path / run, f"checkpoints/{name}") for run in ("kept", "plain")))
    assert kept(tmp_path / "kept") == (
        f"iteration 17 of 24: the lowest distance of 24 evaluations, {first['distance.raw']:.6g}"
    )


class Wave(Callback):
    """Reports numbers that are highest at iterations 6 and 18; before iteration 4 none, at 5 one that is not finite."""

    def on_evaluation(self, trainer, row):
        at = trainer.iteration
        return None if at < 4 else {"height": torch.nan if at == 5 else 1.0 - abs(at % 12 - 6)}


class Squares(Callback):
    """Judges the validation data by a function of its own."""

    def on_evaluation(self, trainer, row):
        return trainer.validation.means(lambda batch: {"mean": trainer.eval_op(batch)["square"]})


OWN = {"callbacks": {"wave": {"type": f"{__name__}.Wave"}, "own": {"type": f"{__name__}.Squares"}}}


def test_the_highest_number_of_a_callback_and_the_first_of_equal_ones(tmp_path, capsys):
    fit(tmp_path, OWN | {"train.keep": {"metric": "wave.height", "better": "higher"}})
    told = "iteration 6 of 24: the highest wave.height of 21 evaluations, 1"
    assert kept(tmp_path) == told
    assert f"{tmp_path}/model has the weights of {told}\n" in capsys.readouterr().out
    assert all(row["own.mean"] == row["square.raw"] for row in history(tmp_path, "validation"))


def test_weights_that_are_not_finite_are_never_the_best(tmp_path):
    class Break(Callback):
        """An unused buffer is not finite at iteration 17."""

        def on_evaluation(self, trainer, row):
            trainer.networks.ema["painter"].unused.fill_(torch.inf if trainer.iteration == 17 else 0.0)

    trainer = Trainer(toy.checked(EACH), tmp_path, callbacks={"break": Break()})
    for network in (trainer.networks.live["painter"], trainer.networks.ema["painter"]):
        network.register_buffer("unused", torch.zeros(1))
    trainer.fit()
    assert kept(tmp_path).startswith("iteration 13 of 24")


def test_the_best_weights_are_judged_on_other_data_than_those_that_chose_them(tmp_path, capsys):
    split = {"type": "toy.Split", "length": 22, "jitter": 0.1}
    changes = {
        "data.train.ramps": split | {"split": "train"},
        "data.validation.ramps": split | {"split": "validation", "length": 6},
        "evaluate.data": {"ramps": {"split": "test"}},
    }
    fit(tmp_path / "run", changes)
    recipe = tmp_path / "toy.yaml"
    recipe.write_text(to_yaml(toy.changed(EACH | changes)))
    best, *_, last = sorted((tmp_path / "run/checkpoints").iterdir())
    assert best != last
    eval_dump.main([str(recipe), str(tmp_path / "run")])
    assert f"run/model has the weights of {kept(tmp_path / 'run')}\n" in capsys.readouterr().out
    losses = {"model": Dump(tmp_path / "run/dump").table["loss.distance"].tolist()}
    for model in (best, last):
        options = ["--checkpoint", str(model), "--output", str(tmp_path / model.name)]
        eval_dump.main([str(recipe), str(tmp_path / "run"), *options])
        losses[model.name] = Dump(tmp_path / model.name).table["loss.distance"].tolist()
    assert losses["model"] == losses[best.name]
    assert losses["model"] != losses[last.name]


@pytest.mark.parametrize(
    ("values", "patience", "end"),
    [
        ([3, 2, 1], 1, None),
        ([3, 4], 1, 2),
        ([3, 3], 1, 2),  # not better
        ([3, 4, 2, 3, 4], 2, 5),
        ([3, float("nan"), 4], 2, 3),
        ([float("nan"), float("inf"), None, None, 3, 2], 1, None),  # before the first number
        ([3, None, None, 4], 2, None),  # without the loss
        ([3, 4, 4, 1], 2, 3),
    ],
)
def test_patience(values, patience, end):
    rows: list[Row] = [
        {"step": step, **({} if value is None else {"G.raw": value})} for step, value in enumerate(values, 1)
    ]
    settings = {"steps": 9, "precision": "no", "record_every": 1, "max_nonfinite": 1}
    for better, sign in (("lower", 1), ("higher", -1)):
        train = Train(**settings, keep=Keep(metric="G", better=better), stop=Stop(patience=patience))
        turned = [{key: value if key == "step" else sign * value for key, value in row.items()} for row in rows]
        assert early_end(train, turned) == end


def test_an_early_end_is_that_of_a_training_of_so_many_steps(tmp_path, capsys):
    assert fit(tmp_path / "early", STOP).done == list(range(16))
    assert "train.stop: ends after iteration 16 of 24\n" in capsys.readouterr().out
    fit(tmp_path / "short", {"train.steps": 16})
    early, short = outputs(tmp_path / "early"), outputs(tmp_path / "short")
    assert early.pop("model/recipe.yaml") != short.pop("model/recipe.yaml")
    assert early == short
    for run in ("early", "short"):
        steps = [json.loads(line).get("step") for line in (tmp_path / run / "live/log.jsonl").read_text().splitlines()]
        assert steps[-1] == 16


@pytest.mark.parametrize("at", [1, 13, 14, 15])
def test_killed_and_resumed(at, tmp_path):
    every = STOP | {"runtime.resume_every": 1, "train.keep": KEEP | {"best": 2}}
    killed(tmp_path / "killed", EACH | every, stop=at)
    assert fit(tmp_path / "killed", every).done == list(range(at, 16))
    fit(tmp_path / "whole", every)
    assert outputs(tmp_path / "killed") == outputs(tmp_path / "whole")
    assert contents(tmp_path / "killed/checkpoints") == contents(tmp_path / "whole/checkpoints")


def test_killed_after_its_early_end(tmp_path, monkeypatch):
    fit(tmp_path / "whole", STOP)
    with monkeypatch.context() as patch:
        patch.setattr("figura.training.run_folder.RunFolder.write_outputs", lambda folder, at: folder.nothing)
        patch.setattr(Trainer, "_save", lambda trainer: trainer.folder.write_resume_point(trainer.iteration))
        with pytest.raises(AttributeError):
            fit(tmp_path / "killed", STOP)
    assert fit(tmp_path / "killed", STOP).done == []
    assert outputs(tmp_path / "killed") == outputs(tmp_path / "whole")


# states that trainings share


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Train with a store of this test, or without one; return the iterations that were done."""
    monkeypatch.setattr(states, "KEPT", 1000)
    every = {"runtime.resume_every": 1, "runtime.log_every": 100}

    def train(name, changes, store="states"):
        monkeypatch.setenv("FIGURA_STATES", str(tmp_path / store) if store else "off")
        return iterations_of(Trainer(toy.checked(EACH | every | changes), tmp_path / name))

    return train


def same(left, right):
    assert outputs(left) == outputs(right)
    for run in (left, right):
        names = sorted(path.name for path in (run / "checkpoints").iterdir())
        assert names == sorted(path.name for path in (left / "checkpoints").iterdir())
    assert contents(left / "checkpoints") == contents(right / "checkpoints")


def test_no_state_is_taken_from_behind_the_early_end(shared, tmp_path):
    assert shared("whole", {}) == list(range(STEPS))
    assert shared("early", STOP) == []  # it begins, and ends, with the state of iteration 16
    shared("early whole", STOP, store=None)
    same(tmp_path / "early", tmp_path / "early whole")
    assert kept(tmp_path / "early").startswith("iteration 13 of 16")


def test_an_evaluation_that_a_longer_training_lacks_is_forgotten(shared, tmp_path):
    changes = {"train.evaluate_every": 13}
    shared("short", changes | {"train.steps": 17})  # its end is better than 13, which is the best of the longer one
    assert kept(tmp_path / "short").startswith("iteration 17 of 17")
    assert shared("longer", changes) == list(range(17, STEPS))
    shared("whole", changes, store=None)
    same(tmp_path / "longer", tmp_path / "whole")
    assert kept(tmp_path / "longer").startswith("iteration 13 of 24")


def test_a_network_that_had_not_run_keeps_its_first_weights(shared, tmp_path):
    shared("first", {})
    assert kept(tmp_path / "first").startswith("iteration 17 of 24")
    judge = {"type": "Forward", "network": "judge", "inputs": {"image": "image"}, "outputs": {"score": "score"}}
    adam = {"type": "torch.optim.Adam", "lr": 0.01}
    changes = {
        "networks.judge": {"type": "toy.Critic"},
        "steps.judge": {"trains": ["judge"], "optimizer": adam, "injectors": {"judge": judge}, "after": 19},
        "losses.late": {"type": "toy.Aim", "at": 0.0, "inputs": {"score": "score"}, "weight": 1.0, "step": "judge"},
        "losses.distance.step": "painter",
        "losses.square.step": "painter",
    }
    assert shared("second", changes) == list(range(19, STEPS))
    shared("whole", changes, store=None)
    same(tmp_path / "second", tmp_path / "whole")
    assert kept(tmp_path / "second").startswith("iteration 17 of 24")


@pytest.mark.slow
def test_pairs_of_trainings_that_differ_later(shared, tmp_path):
    draw, saved = random.Random(4), 0
    for number in range(5):
        common = {"train.evaluate_every": draw.choice([1, 2, 3, 5]), "train.keep": KEEP | {"best": draw.choice([1, 2])}}
        for name in ("first", "second"):
            changes = common | {"train.steps": draw.randrange(8, STEPS + 1)}
            changes["train.stop"] = draw.choice([None, {"patience": draw.choice([1, 2, 3])}])
            if draw.random() < 0.5:
                at = draw.randrange(2, STEPS)
                changes["losses.distance.schedule"] = {"type": "Step", "at": [at], "values": [1.0, draw.random()]}
            else:
                changes["losses.distance.schedule"] = {"type": "Constant"}
            done = shared(f"{number} {name}", changes, f"states {number}")
        whole = shared(f"{number} whole", changes, store=None)
        assert done == whole[len(whole) - len(done) :]
        saved += len(whole) - len(done)
        same(tmp_path / f"{number} second", tmp_path / f"{number} whole")
    assert saved > 20


# checkpoints


def test_the_newest_checkpoints_stay(tmp_path):
    changes = {"runtime.checkpoint_every": 3, "runtime.checkpoints_kept": 2, "train.keep": KEEP | {"best": 2}}
    fit(tmp_path, changes)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-000013", "step-000017", "step-000021", "step-000024",
    ]  # fmt: skip
    fit(tmp_path, changes | {"train.keep": None})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000021", "step-000024"]


def test_a_number_that_an_evaluation_lacks_ends_it_at_once(tmp_path):
    with pytest.raises(
        UserError, match=r"no 'wave.hight' \(did you mean 'wave.height'\?\); of wave it has wave.height"
    ):
        fit(tmp_path, OWN | {"train.keep": {"metric": "wave.hight", "better": "higher"}})
