"""`figura check` finds before a training what would end it: rates, sizes, and data and weights that are not there."""

import json
import shutil
from pathlib import Path

import pytest
import toy
from trials_by_hand import write_project

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.check import main
from models.images.pairs import ImagePairs

STAGES = {
    "train": {
        "foreach": "${recipes}",
        "do": {"cmd": "x", "deps": ["data/prepared/pairs", "weights/${key}/start"], "outs": ["runs/${key}/model"]},
    },
    "prepare": {"cmd": "x", "outs": ["data/prepared/later"]},
}


class NoPairs(ImagePairs):
    """Pairs of which none is found."""

    def __len__(self):
        return 0


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Checks a recipe on image pairs, with values at dotted keys changed; returns the status and what is said of it."""
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, trained=())
    pipeline = {"vars": [{"recipes": {"painter": {"params": "painter.yaml"}}}], "stages": STAGES}
    Path("dvc.yaml").write_text(to_yaml(pipeline))
    content = read_yaml(Path("painter.yaml"))
    content["evaluate"]["data"]["pairs"]["split"] = "validation"
    content["steps"]["G"]["optimizer"] = {"type": "torch.optim.Adam", "lr": 0.001}
    content["data"]["batch_size"] = 2  # data of a few pictures

    def checked(changes):
        Path("painter.yaml").write_text(to_yaml(toy.changed(changes, content)))
        capsys.readouterr()
        status = run(main, [])
        told = capsys.readouterr()
        return status, (told.err or told.out).removeprefix("error: ").splitlines()

    return checked


OPTIMIZER = "steps.G.optimizer"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({f"{OPTIMIZER}.lr": -1.0}, f"{OPTIMIZER}: torch.optim.Adam: Invalid learning rate: -1.0"),
        ({f"{OPTIMIZER}.lr": 0}, f"{OPTIMIZER}.lr: found 0, by which the step learns nothing; a rate is above 0"),
        ({"steps.G.lr_schedule": {"type": "Linear", "start": 0, "end": 9, "from": 1.0, "to": -0.5}},
         "steps.G.lr_schedule: is -0.5 at step 9, by which losses grow; a rate is 0 or more"),
        ({"steps.G.lr_schedule": {"type": "Sine", "start": 0, "period": 400, "low": -1.0, "high": 1.0}},
         "steps.G.lr_schedule: is -1 at step 200, by which losses grow; a rate is 0 or more"),
        ({"steps.G.lr_schedule": {"type": "Constant", "value": 0.0}},
         "steps.G.lr_schedule: is 0 at all steps, by which the step learns nothing"),
        ({f"{OPTIMIZER}.betas": [0.9, 1.0]}, f"{OPTIMIZER}: torch.optim.Adam: Invalid beta parameter at index 1: 1.0"),
        ({"steps.G.groups": {"biases": {"pattern": "bias", "lr": -1.0}}},
         "steps.G.groups.biases: torch.optim.Adam: Invalid learning rate: -1.0"),
        ({f"{OPTIMIZER}.lr": 0, "steps.G.groups": {"biases": {"pattern": "bias", "weight_decay": 0.0}}},
         f"{OPTIMIZER}.lr: found 0, by which the step learns nothing; a rate is above 0"),
        ({OPTIMIZER: {"type": "Muon", "lr": 0.01, "rest_lr": 0.01}, "steps.G.groups": {"biases": {"pattern": "bias"}}},
         "steps.G.groups.biases: Muon: Muon sorts parameters itself; leave out `groups`"),
        ({"data.train.pairs.schedule": {"type": "Linear", "start": 0, "end": 2, "from": 1.0, "to": 0.0}},
         "data.train: at iteration 2, weights are {'pairs': 0.0}; numbers from 0, one above 0, are needed"),
        ({"data.batch_size": 500}, "data.train.pairs: 3 examples are fewer than one batch (data.batch_size: 500)"),
        ({"data.validation.pairs": {"extends": "data.common", "type": "test_check.NoPairs", "split": "train"}},
         "data.validation.pairs: has no examples"),
        ({"networks.generator.weights": "weights/painter/start/none.safetensors"},
         "networks.generator.weights: weights/painter/start/none.safetensors: no such file"),
        ({"losses.G_VGG.source": "weights/painter/losses/vgg.safetensors", "losses.G_VGG.weight": 1.0},
         "losses.G_VGG.source: weights/painter/losses/vgg.safetensors: no such file"),
        ({"data.train.pairs.load_size": 8, "data.common.crop_size": 16}, "data.train.pairs"),
        ({"data.common.root": "data/prepared/pears"}, "data.train.pairs: "),
    ],
)  # fmt: skip
def test_what_would_end_a_training_is_found_before(changes, told, check):
    assert check({})[0] == 0
    status, lines = check(changes)
    assert status == 1
    assert lines[0].startswith(f"painter.yaml: {told}")


@pytest.mark.parametrize("recipe", ["shared/people.yaml", "pose_consistency/vunet.yaml"])
def test_what_trains_nothing_is_told_in_one_line(recipe, capsys):
    path = f"{Path(__file__).parents[2]}/recipes/{recipe}"
    assert run(main, [path]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: trains nothing, it has evaluate, ")


def test_what_a_command_brings_is_no_fault(check):
    """The folder `later` is the output of a stage, and so is the model of the recipe."""
    start = "runs/painter/model/generator.safetensors"
    status, lines = check({"data.common.root": "data/prepared/later", "networks.generator.weights": start})
    assert status == 0
    assert lines[0].endswith(
        f"; {start} is not there yet: `dvc repro`; data/prepared/later is not there yet: `dvc repro prepare@later`"
    )


def test_what_a_training_ends_before_is_a_remark(check):
    status, lines = check({"train.steps": 9, "losses.G_L1.after": 9, "steps.G.lr_schedule.end": 10})
    assert status == 0
    assert lines[0].endswith(
        "; steps.G.lr_schedule goes on until step 10, training ends at 9; losses.G_L1 starts after step 9, training "
        "ends at 9"
    )


@pytest.mark.parametrize(("patience", "told"), [(2, ""), (3, "; train.stop ends it at step 8 at the earliest")])
def test_a_stop_that_comes_after_the_end_is_a_remark(patience, told, check):
    kept = {"metric": "G_L1", "better": "lower"}
    changes = {"steps": 8, "evaluate_every": 2, "keep": kept, "stop": {"patience": patience}}
    status, lines = check({f"train.{key}": value for key, value in changes.items()})
    assert status == 0
    assert ("train.stop" in lines[0]) == bool(told)
    assert told in lines[0]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, True),
        ({"train.steps": 5}, False),
        ({"steps.G.before": 5}, False),
        ({"steps.G.lr_schedule.to": 0.01}, False),
    ],
)
def test_a_rate_of_0_before_the_end_is_a_remark(changes, told, check):
    falls = {"type": "Linear", "start": 0, "end": 5, "from": 1.0, "to": 0.0}
    status, lines = check({"train.steps": 8, "steps.G.lr_schedule": falls, **changes})
    assert status == 0
    line = "; steps.G.lr_schedule is 0 from step 5 on, by which nothing is learned until 8"
    assert (line in lines[0]) == told
    assert ("lr_schedule is 0" in lines[0]) == told


def test_data_that_no_stage_depends_on(check):
    shutil.copytree("data/prepared/pairs", "data/prepared/own")
    status, lines = check({"data.common.root": "data/prepared/own"})
    assert status == 1
    assert lines[0].endswith(
        "data/prepared/own is no dependency in dvc.yaml of train@painter; write `data: own` into the "
        "entry 'painter' of its `recipes`"
    )


@pytest.mark.parametrize(
    ("train", "size"),
    [
        ({"sizes": {"256x256": 3, "40x40": 1}}, 256),
        ({"a": {"sizes": {"300x200": 2}}, "b": {"sizes": {"300x200": 2}}}, 128),
        ({"sizes": {"900x1200": 4}}, 256),
        ({"sizes": {"63x63": 4}}, None),
        ({"sizes": {"16x16": 4}}, None),  # 32 is the smallest that is proposed
        ({"image_width_quantiles": {"0.50": 640.0}}, None),
    ],
)
def test_pictures_much_larger_than_what_is_trained(train, size, check):
    """The recipe trains at 32 pixels."""
    Path("data/prepared/pairs/statistics.json").write_text(json.dumps({"train": train}))
    status, lines = check({})
    assert status == 0
    first = next(iter(train.get("sizes") or train.get("a", {}).get("sizes", {"": 0}))).replace("x", " x ")
    told = f"; {first} pictures, trained at 32: `-S painter.yaml:data.common.crop_size={size}`"
    assert lines[0].endswith(told) if size else "pictures, trained" not in lines[0]
