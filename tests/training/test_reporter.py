"""What a training tells while it goes on: where its settings stand, what it starts from, and to which trackers."""

import hashlib
from pathlib import Path

import pytest
import toy
import trainings
from accelerate import tracking
from accelerate.tracking import GeneralTracker
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.live import listeners
from figura.recipe.resolved import settings
from figura.training import reporter
from figura.training.trainer import Trainer

RUNTIME = toy.recipe()["runtime"]


def test_a_training_says_where_all_its_settings_stand_and_what_it_starts_from(run, tmp_path, capsys):
    recipe = toy.checked().read_from(Path("params.yaml"))
    Trainer(recipe, run).fit()
    said = capsys.readouterr().out
    assert f"params.yaml: {recipe.train.steps} steps of {recipe.data.batch_size} examples" in said
    assert f"with all defaults: {run}/live/recipe.yaml" in said
    assert read_yaml(run / "live/recipe.yaml") == read_yaml(run / "model/recipe.yaml")
    start = run / "model/painter.safetensors"
    Trainer(toy.checked({"networks.painter.weights": str(start)}), tmp_path / "again")
    digest = hashlib.sha256(start.read_bytes()).hexdigest()[:8]
    assert capsys.readouterr().out == f"network 'painter' starts from {start}, sha256 {digest}\n"


def test_trackers_that_are_not_installed_are_refused_with_the_command_that_installs_them(run, monkeypatch):
    monkeypatch.setattr(reporter, "get_available_trackers", lambda: ["dvclive"])
    recipe = toy.checked({"runtime": RUNTIME | {"trackers": ["wandb", "dvclive", "tensorboard"]}})
    with pytest.raises(UserError) as caught:
        Trainer(recipe.read_from(Path("params.yaml")), run)
    assert str(caught.value).splitlines() == [
        "params.yaml: runtime.trackers.0: 'wandb' is not installed; `pip install wandb`, or `trackers: []`",
        "params.yaml: runtime.trackers.2: 'tensorboard' is not installed; `pip install tensorboard`, or `trackers: []`",
    ]
    assert not run.exists()


@pytest.mark.filterwarnings("ignore:.*no supported trackers")
def test_the_default_tracker_may_be_missing(run, capsys, monkeypatch):
    for module in (reporter, tracking):
        monkeypatch.setattr(module, "get_available_trackers", list)
    runtime = {name: value for name, value in RUNTIME.items() if name != "trackers"}
    Trainer(toy.checked({"runtime": runtime}), run).fit()
    assert "DVCLive is not installed: this training has no tracker" in capsys.readouterr().out
    assert (run / "model/painter.safetensors").is_file()


def test_the_line_of_the_bar_adds_up(run, capsys):
    """Weight x loss of each; that one is below 0 is explained once."""
    scalars = {"train.total": -2.0, "train.a": 3.0, "weight.a": 0.5, "train.b": -7.0, "weight.b": 0.5, "train.b.c": 1.0}
    assert reporter.losses_text(scalars, ["a", "b", "late"]) == "total -2 (a 1.5, b -3.5)"
    trainer = Trainer(toy.checked({"losses.distance.weight": -1.0, "runtime.log_every": 2}), run)
    trainer.fit()
    line = "below 0, as losses of likelihoods and critics may be: distance; lower is better\n"
    assert capsys.readouterr().out.count(line) == 1


class Fake(GeneralTracker):
    """Keeps what it is told; fails at one kind of call."""

    requires_logging_directory = False

    def __init__(self, name: str, at: str = "") -> None:
        self.name, self.at, self.calls, self.configuration = name, at, list[str](), dict[str, object]()
        super().__init__()

    @property
    def tracker(self):
        return self

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.at:
            raise ConnectionError("nobody answers")

    def start(self):
        self._call("start")

    def store_init_configuration(self, values):
        self._call("store_init_configuration")
        self.configuration |= values

    def log(self, values, step, **kwargs):
        self._call("log")

    def finish(self):
        self._call("finish")


@pytest.mark.parametrize("at", ["start", "store_init_configuration", "log", "finish"])
def test_a_tracker_that_fails_is_left_out_and_ends_no_training(at, run, tmp_path, capsys):
    Trainer(toy.checked(), tmp_path / "without").fit()
    failing, fake = Fake("failing", at), Fake("fake")
    trainer = Trainer(toy.checked(), run)
    trainer.accelerator.log_with = [failing, fake]
    trainer.fit()
    said = "warning: the tracker failing failed, and gets nothing more: ConnectionError('nobody answers')"
    assert capsys.readouterr().out.count(said) == failing.calls.count(at) == 1
    assert fake.configuration == settings(toy.checked())  # the others go on
    assert trainings.outputs(run) == trainings.outputs(tmp_path / "without")


@pytest.mark.parametrize("blocked", ["live", "live/log.jsonl", "live/losses.csv", "live/samples"])
def test_a_live_folder_that_cannot_be_written_ends_no_training(blocked, run, tmp_path, capsys):
    recipe = toy.checked({"runtime.samples": {"names": ["x", "image"], "count": 2}})
    Trainer(recipe, tmp_path / "without", listeners=listeners(recipe)).fit()
    path = run / blocked
    if path.suffix:
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True)
        path.touch()
    capsys.readouterr()
    Trainer(recipe, run, listeners=listeners(recipe)).fit()
    assert f"warning: {path} cannot be written, and is left out: " in capsys.readouterr().out
    assert trainings.outputs(run) == trainings.outputs(tmp_path / "without")


def test_tensorboard_takes_the_configuration(run):
    Trainer(toy.checked({"runtime": RUNTIME | {"trackers": ["tensorboard"]}}), run).fit()
    folders = {path.parent for path in (run / "live").rglob("events.out.tfevents.*")}
    tags = {tag for one in folders for tag in EventAccumulator(str(one)).Reload().summary_metadata}
    assert "_hparams_/session_start_info" in tags


@pytest.mark.parametrize(("token", "read"), [("", False), ("a token", True)])
def test_dvclive_reads_its_rows_again_only_for_studio(token, read, run, monkeypatch):
    monkeypatch.setenv("DVC_STUDIO_TOKEN", token)
    monkeypatch.setenv("DVC_STUDIO_REPO_URL", "https://example.org/figura")
    monkeypatch.setattr("dvclive.live.post_to_studio", lambda *arguments: None)
    reads = []
    monkeypatch.setattr("dvclive.live.parse_metrics", lambda live: (reads.append(live), ({}, {}))[1])
    Trainer(toy.checked({"runtime": RUNTIME | {"trackers": ["dvclive"]}}), run).fit()
    assert bool(reads) == read
    assert (run / "live/dvclive/plots/metrics/train.total.tsv").is_file()
