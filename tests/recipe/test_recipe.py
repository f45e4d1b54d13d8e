"""Each kind of fault gives one line: file, dotted key, what was found, what is allowed, the nearest spelling."""

import pytest
import toy
from toy import Path

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.prediction.inputs import PhotoExamples
from figura.recipe.load import check_recipe, load_recipe
from figura.recipe.resolved import resolved

MUON = {"type": "Muon", "lr": 0.01, "rest_lr": 0.01}
GROUP = "steps.painter.groups.biases"
PAINT = "steps.painter.injectors.paint"
RAMP = {"type": "Linear", "start": 0, "end": 3, "from": 0.0, "to": 1.0}
PREDICT = {
    "mode": "plain",
    "save": {"image": "image"},
    "compare": {"image": {"type": "images.PictureComparison", "target": "y"}},
}


class Listed(toy.Ramps):
    """Ramps with names that an argument lists."""

    def __init__(self, columns: dict[str, str]) -> None:
        super().__init__(4)
        self.columns = columns

    @classmethod
    def provides(cls, arguments):
        return (*cls.names, *arguments["columns"].values())


class ListedPhotos(PhotoExamples):
    """Photos with names that an argument lists."""

    names = ("x", "index")

    def __init__(self, columns: dict[str, str]) -> None:
        self.columns = columns

    @classmethod
    def provides(cls, arguments):
        return (*cls.names, *arguments["columns"].values())


def faults(changes, content=None):
    with pytest.raises(UserError) as caught:
        check_recipe(toy.changed(changes, content), Path("params.yaml"))
    return str(caught.value).splitlines()


def test_the_toy_recipes_are_right():
    assert toy.checked().losses["distance"].weight == 2.0
    assert list(toy.checked(content=toy.gan()).steps) == ["critic", "painter"]


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"los": 1}, "los", "unknown key 'los' (did you mean 'losses'?); allowed: callbacks, data, evaluate, losses"),
        ({"train.precison": "no"}, "train.precison", "unknown key 'precison' (did you mean 'precision'?)"),
        ({"losses.distance.wieght": 2.0}, "losses.distance.wieght", "'wieght' (did you mean 'weight'?); allowed:"),
        (
            {"networks.painter.widht": 3}, "networks.painter.widht",
            "argument of Painter 'widht' (did you mean 'width'?)",
        ),
        ({"steps.painter.optimizer.lrr": 1.0}, "steps.painter.optimizer.lrr", "of Adam 'lrr' (did you mean 'lr'?)"),
        ({"metrics.scores.distance.colum": "x"}, "metrics.scores.distance.colum", "(did you mean 'column'?)"),
        ({f"{PAINT}.args": {"nois": 0.1}}, f"{PAINT}.nois", "input of Painter 'nois' (did you mean 'noise'?)"),
        ({"data": ...}, "data", "missing; it has no default"),
        ({"data": None}, "data", "found None; expected a map"),
        ({"data.train.ramps.length": ...}, "data.train.ramps.length", "missing; Ramps needs it"),
        (
            {"data.train": {"listed": {"type": "test_recipe.Listed", "columns": None}}},
            "data.train.listed.columns",
            "found None; expected a map",
        ),
        (
            {"predict": {**PREDICT, "data": {"type": "test_recipe.ListedPhotos", "columns": [[None]]}}},
            "predict.data.columns",
            "found [[None]]; expected a map",
        ),
        ({"metrics.scores.distance.column": ...}, "metrics.scores.distance.column", "missing; Mean needs it"),
        (
            {"metrics.scores.error": {"type": "toy.Mean", "column": "loss.distance"}},
            "metrics.scores.error",
            "DVC takes metrics with a key 'error' for unreadable; use another name",
        ),
        (
            {"metrics.summary": {"d": {"metric": "distence.mean", "better": "lower"}}},
            "metrics.summary.d.metric",
            "unknown score 'distence' (did you mean 'distance'?); allowed: distance",
        ),
        (
            {"metrics.summary": {"d": {"metric": "distance", "better": "lower"}}},
            "metrics.summary.d.metric",
            "found 'distance'; expected the score and its metric, such as 'distance.l1'",
        ),
        (
            {"metrics.summary": {"error": {"metric": "distance.mean", "better": "lower"}}},
            "metrics.summary.error",
            "DVC takes metrics with a key 'error' for unreadable; use another name",
        ),
        (
            {"metrics.summary": {"d": {"metric": "distance.mean", "better": "smaller"}}},
            "metrics.summary.d.better",
            "found 'smaller'; expected 'lower' or 'higher'",
        ),
        ({"seed": "7"}, "seed", "found '7'; expected an integer"),
        ({"seed": -1}, "seed", "found -1; expected greater than or equal to 0"),
        ({"seed": True}, "seed", "found True; expected an integer"),
        ({"data.batch_size": 4.5}, "data.batch_size", "found 4.5; expected an integer"),
        ({"losses.distance.weight": "2"}, "losses.distance.weight", "found '2'; expected a number"),
        ({"losses.distance.weight": True}, "losses.distance.weight", "found True; expected a number"),
        ({"losses.distance.weight": float("nan")}, "losses.distance.weight", "found nan; expected a finite number"),
        ({"losses.square.power": True}, "losses.square.power", "found True; expected a number"),
        ({"networks.painter.width": 3.0}, "networks.painter.width", "found 3.0; expected an integer"),
        ({"train.precision": False}, "train.precision", "found False; expected 'no', 'fp16', 'bf16' or 'fp8'"),
        ({"train.ema": {"decay": 1.0}}, "train.ema.decay", "found 1.0; expected less than 1"),
        ({"train.epochs": 2}, "train", "write either steps or epochs"),
        ({"train.steps": ...}, "train", "write either steps or epochs"),
        ({"steps.painter.trains": []}, "steps.painter.trains", "found []; expected a list of at least 1 item"),
        ({"losses.a-b": toy.recipe()["losses"]["square"]}, "losses.a-b", "a name of letters, digits and underscores"),
        (
            {"data.train.ramps.type": "toy.Rampz"}, "data.train.ramps.type",
            "dataset 'toy.Rampz' (did you mean 'toy.Ramps'?)",
        ),
        ({"data.train.ramps.type": "Ramps"}, "data.train.ramps.type", "found 'Ramps'; expected a dotted name"),
        ({"networks.painter.type": "nowhere.Net"}, "networks.painter.type", "there is no module 'nowhere'"),
        ({"networks.painter.type": "..toy.Painter"}, "networks.painter.type", "expected a dotted name, such as 'image"),
        ({"losses.square.type": "torch.nn.L1Loss"}, "losses.square.type", "'torch.nn.L1Loss' is no loss"),
        ({"losses.square.type": "os.system"}, "losses.square.type", "unknown loss 'os.system'"),
        ({"networks.painter.type": "torch.optim.Adam"}, "networks.painter.type", "is no network"),
        (
            {"losses.square.schedule": {**RAMP, "type": "Liner"}}, "losses.square.schedule.type",
            "(did you mean 'Linear'?)",
        ),
        ({"losses.square.schedule": {**RAMP, "start": 9}}, "losses.square.schedule", "0 <= start <= end is needed"),
        ({"losses.square.schedule": {**RAMP, "form": 1.0}}, "losses.square.schedule.form", "(did you mean 'from'?)"),
        ({"losses.square.schedule": [1]}, "losses.square.schedule", "found [1]; expected a map"),
        (
            {"steps.painter.lr_schedule": {"type": "WarmUp", "steps": 3, "then": {**RAMP, "end": "3"}}},
            "steps.painter.lr_schedule.then.end",
            "found '3'; expected an integer",
        ),
        ({f"{PAINT}.args": {"noise": {**RAMP, "end": -1}}}, f"{PAINT}.args.noise", "0 <= start <= end is needed"),
        ({"steps.painter.optimizer.betas": [0.5]}, "steps.painter.optimizer.betas", "found [0.5]; expected"),
        (
            {"steps.painter.optimizer.betas": ["a", 0.9]}, "steps.painter.optimizer.betas.0",
            "found 'a'; expected a number",
        ),
        (
            {"steps.painter.groups": {"biases": {"pattern": "bias", "weight_decai": 0.0}}}, f"{GROUP}.weight_decai",
            "argument of Adam 'weight_decai' (did you mean 'weight_decay'?)",
        ),
        (
            {"steps.painter.groups": {"biases": {"pattern": "bias", "eps": "small"}}}, f"{GROUP}.eps",
            "found 'small'; expected a number",
        ),
        (
            {"steps.painter.groups": {"biases": {"pattern": "bias", "params": []}}}, f"{GROUP}.params",
            "unknown argument of Adam 'params'",
        ),
        (
            {"steps.painter.groups": {"biases": {"pattern": "bias("}}}, f"{GROUP}.pattern",
            "found 'bias('; expected a regular expression",
        ),
        (
            {"steps.painter.groups": {"biases": {"pattern": "x", "rest_lrr": 1.0}}, "steps.painter.optimizer": MUON},
            f"{GROUP}.rest_lrr",
            "(did you mean 'rest_lr'?)",
        ),
        (
            {"losses.square.inputs.image": "imge"}, "losses.square.inputs.image",
            "'imge' (did you mean 'image'?); allowed:",
        ),
        ({"losses.square.inputs.target": ...}, "losses.square.inputs.target", "missing; Distance needs it"),
        (
            {"losses.square.inputs.masks": "y"}, "losses.square.inputs.masks",
            "role of Distance 'masks' (did you mean 'mask'?)",
        ),
        ({f"{PAINT}.inputs.x": "z"}, PAINT, "nobody provides 'z'; allowed: index, x, y"),
        ({f"{PAINT}.inputs": {}}, f"{PAINT}.x", "missing; Painter needs it"),
        ({f"{PAINT}.network": "paintr"}, f"{PAINT}.network", "network 'paintr' (did you mean 'painter'?)"),
        ({f"{PAINT}.outputs": {"image": "image", "meen": "m"}}, f"{PAINT}.outputs", "(did you mean 'mean'?)"),
        ({f"{PAINT}.outputs.mean": "y"}, PAINT, "adds 'y', which is there already: a name is written once"),
        ({f"{PAINT}.args": {"x": 1}}, f"{PAINT}.args.x", "'x' is among the inputs already"),
        ({f"{PAINT}.type": "Backward"}, f"{PAINT}.type", "unknown injector 'Backward'"),
        ({f"{PAINT}.weights": "best"}, f"{PAINT}.weights", "found 'best'; expected 'live' or 'ema'"),
        ({"steps.painter.detach": ["image"]}, "steps.painter.detach", "nobody provides 'image'"),
        ({"steps.painter.before": 3, "steps.painter.after": 3}, "steps.painter", "it would never run"),
        ({"losses.square.step": "paint"}, "losses.square.step", "step 'paint' (did you mean 'painter'?)"),
        ({"networks.other": {"type": "toy.Painter"}}, "networks.other", "no step trains it and it loads no weights"),
        ({"losses.distance.weight": 0, "losses.square.weight": 0.0}, "steps.painter", "it would train nothing"),
        ({"evaluate.inputs.z": "image"}, "evaluate.inputs", "nobody provides 'z'"),
        (
            {"evaluate.inputs.x": "picture"}, "evaluate.inputs.x",
            "expected 'image', 'mask', 'array', 'number' or 'records'",
        ),
        ({"evaluate.modes.plain.save": {"q": "array"}}, "evaluate.modes.plain.save", "nobody provides 'q'"),
        (
            {"evaluate.averages": {"mean": {"of": "q", "examples": 3}}}, "evaluate.averages.mean.of",
            "nobody provides 'q'",
        ),
        ({"runtime.samples.names": ["x", "imag"]}, "runtime.samples.names", "(did you mean 'image'?)"),
        ({"runtime.trackers": ["mlflow"]}, "runtime.trackers.0", "expected 'dvclive', 'tensorboard' or 'wandb'"),
    ],
)  # fmt: skip
def test_one_fault_gives_one_line(changes, key, said):
    (line,) = faults(changes)
    assert line.startswith(f"params.yaml: {key}: ")
    assert said in line


def test_all_faults_at_once():
    lines = faults(
        {
            "los": 1,
            "train.precison": "no",
            "losses.distance.wieght": 3,
            "losses.square.type": "toy.Distanc",
            "networks.painter.width": "3",
            "steps.painter.optimizer.lrr": 3,
            f"{PAINT}.network": "paintr",
            "metrics.scores.distance.type": "toy.Maen",
        }
    )
    assert [line.split(": ")[1] for line in sorted(lines)] == sorted(
        ["los", "train.precison", "losses.distance.wieght", "losses.square.type", "networks.painter.width",
         "steps.painter.optimizer.lrr", f"{PAINT}.network", "metrics.scores.distance.type"]
    )  # fmt: skip


def test_all_faults_of_form_at_once():
    lines = faults({"seed": "x", "data.batch_size": 0, "train.steps": None, "runtime.log_evry": 3, "networks": {}})
    assert [line.split(": ")[1] for line in sorted(lines)] == [
        "data.batch_size", "networks", "runtime.log_evry", "seed", "train",
    ]  # fmt: skip


def test_a_step_that_trains_no_network_of_the_recipe():
    assert faults({"steps.painter.trains": ["paintr"]}) == [
        "params.yaml: steps.painter.trains: unknown network 'paintr' (did you mean 'painter'?); allowed: painter",
        "params.yaml: networks.painter: no step trains it and it loads no weights",
    ]


def test_with_several_steps_a_loss_names_its_own():
    (line, *_) = faults({"losses.real.step": ...}, toy.gan())
    assert line.startswith("params.yaml: losses.real.step: missing; there are several steps: critic, painter")


def test_a_step_without_losses():
    (line,) = faults({"losses.fool": ..., "losses.distance": ...}, toy.gan())
    assert line == "params.yaml: steps.painter: no loss belongs to it: it would train nothing"


@pytest.mark.parametrize(
    ("maker", "reader", "fits"),
    [
        ({"every": 2}, {}, False),
        ({"every": 2}, {"every": 2}, True),
        ({"every": 2}, {"every": 4}, True),
        ({"every": 2}, {"every": 4, "after": 1}, False),
        ({"every": 2, "after": 1}, {"every": 4, "after": 3}, True),
        ({"every": 3}, {"every": 2}, False),
        ({"after": 5}, {}, False),
        ({"after": 5}, {"after": 5}, True),
        ({"before": 5}, {}, False),
        ({"before": 5}, {"before": 5}, True),
        ({"before": 5}, {"before": 4}, True),
        ({"before": 5}, {"before": 6}, False),
        ({}, {"every": 2, "after": 3, "before": 9}, True),
    ],
)
def test_a_name_is_visible_where_its_step_always_runs(maker, reader, fits):
    changes = {f"steps.critic.{key}": value for key, value in maker.items()}
    changes |= {f"steps.painter.{key}": value for key, value in reader.items()}
    if fits:
        toy.checked(changes, toy.gan())
    else:
        assert any("'image' is not there in every iteration" in line for line in faults(changes, toy.gan()))


def test_a_name_is_written_once_also_by_steps_that_rarely_run():
    late = toy.gan()["steps"]["critic"]["injectors"]["paint"]
    lines = faults({"steps.critic.every": 2, "steps.painter.injectors": {"paint": late}}, toy.gan())
    assert any(line.startswith("params.yaml: steps.painter.injectors.paint: adds 'image'") for line in lines)


def test_mixed_datasets_provide_what_all_of_them_provide():
    named = {"type": "toy.Named", "length": 8}
    content = toy.changed({f"{PAINT}.inputs": {"x": "word"}})
    both = {"ramps": toy.recipe()["data"]["train"]["ramps"], "named": named}
    (line, *_) = faults({"data.train": both, "data.validation": {"named": named}}, content)
    assert "'word' comes from some datasets only; a step that reads it says `requires: [word]`" in line
    toy.checked({"data.train": {"named": named}, "data.validation": {"named": named}}, content)


def test_lists_become_the_tuples_that_a_type_asks_for():
    from torch import nn

    from figura.base.error_collector import ErrorCollector
    from figura.recipe.types import OPTIMIZER, construct

    errors = ErrorCollector(Path("p"))
    adam = construct(
        "torch.optim.Adam",
        {"lr": 1, "betas": [0.5, 0.9]},
        OPTIMIZER,
        "o",
        errors,
        params=nn.Linear(1, 1).parameters(),
    )
    assert not errors.lines
    assert adam.defaults["betas"] == (0.5, 0.9)


def test_resolved_is_a_recipe_again(tmp_path):
    recipe = toy.checked({"steps.painter.optimizer.lr": 3e-7, "steps.painter.optimizer.eps": 1e-30})
    text = resolved(recipe)
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    content = read_yaml(path)
    assert list(content) == ["seed", "data", "networks", "losses", "steps", "train", "callbacks"]
    assert content["losses"]["square"]["schedule"] == {"type": "Linear", "start": 2, "end": 6, "from": 0.0, "to": 1.0}
    assert content["steps"]["painter"]["every"] == 1  # defaults filled in
    assert content["train"]["precision"] == "no"
    rest = {section: toy.recipe()[section] for section in ("evaluate", "metrics", "runtime")}
    again = check_recipe(content | rest, path)
    assert again.read_from(recipe.path) == recipe
    assert resolved(again) == text


def test_missing_and_undecodable_files(tmp_path):
    with pytest.raises(UserError, match=r"p\.yaml: no such file"):
        load_recipe(tmp_path / "p.yaml")
    (tmp_path / "p.yaml").write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(UserError, match=r"byte 3 is no UTF-8"):
        load_recipe(tmp_path / "p.yaml")
