"""`figura accept`: a planted change that has an effect is never accepted, one that has none nearly always."""

import math
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import toy
from pipeline.preloaded import preloaded
from trainings import QUIET, trained

from figura.base.errors import UserError
from figura.base.pictures import encode_png
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.accept.command import _accept
from figura.commands.accept.differences import in_folders, in_tensors, in_values
from figura.commands.accept.samples import _small_project, run_sample
from figura.commands.accept.sides import Side, Worktrees
from figura.commands.accept.trainings import difference, run_visits
from figura.commands.accept.visits import Plan, spans
from figura.evaluation.trained import write_dump
from figura.pipeline.dag import Instance

ROOT = Path(__file__).parents[2]
STEPS, COUNT = 60, 6
FREEZE = {"type": "figura.callbacks.Freeze", "network": "painter", "until": 35, "modules": ["last"]}
FADING = {"type": "Step", "at": [45], "values": [0.1, 0.0]}
CHANGES = QUIET | {
    "data.train": {
        "ramps": {"type": "toy.Ramps", "length": 42, "jitter": 0.1},
        "more": {"type": "toy.Ramps", "length": 22, "jitter": 0.2, "weight": 0.5},
    },
    "networks.painter": {"type": "toy.Painter", "width": 8, "dropout": 0.1},
    "losses.square.schedule": {"type": "Linear", "start": 12, "end": 22, "from": 0.0, "to": 1.0},
    "losses.late": {"type": "images.L1", "inputs": {"image": "image", "target": "y"}, "weight": 1.0, "after": 30},
    "losses.seldom": {"type": "images.Sobel", "inputs": {"image": "image", "target": "y"}, "weight": 0.1, "every": 9},
    "steps.painter.optimizer": {"type": "Muon", "lr": 0.01, "rest_lr": 0.002},
    "steps.painter.lr_schedule": {
        "type": "WarmUp", "steps": 8, "then": {"type": "Decay", "at": [50], "factor": 0.5, "over": 0},
    },
    "steps.painter.injectors": {
        "noise": {"type": "Noise", "output": "drawn", "like": "x", "scale": 0.1},
        "noisy": {"type": "Sum", "output": "noisy", "terms": {"x": 1.0, "drawn": 1.0}},
        "paint": toy.PAINT | {"inputs": {"x": "noisy"}, "args": {"noise": FADING}},
    },
    "callbacks": {"freeze": FREEZE},
    "train.steps": STEPS, "train.evaluate_every": 26, "train.record_every": 7, "train.accumulation": 2,
    "train.keep": {"metric": "distance", "better": "lower"},
    "evaluate.modes.plain.repeat": 2,
    "evaluate.modes.plain.injectors.paint.args": {"noise": 0.1},
    "evaluate.modes.plain.save": {"image": "image"},
    "metrics.scores.rounded": {"type": "toy.Mean", "column": "loss.square"},
}  # fmt: skip


CASES = {
    name: (one, kind == "with an effect")
    for kind, changes in read_yaml(Path(__file__).with_name("planted_changes.yaml")).items()
    for name, one in changes.items()
}
QUICK = ("a gate's boundary", "a schedule's last value", "digits of the history", "a metric's rounding", "a message")


class Compared:
    """A trained recipe, and for each stage what today's code did of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.recipe, self.run = folder, folder / "recipe.yaml", folder / "run"
        content = toy.changed(CHANGES)
        (folder / "base.yaml").write_text(to_yaml(content))
        inherited = {name: {"extends": f"base.yaml#{name}"} for name in ("losses", "steps", "evaluate")}
        self.recipe.write_text(to_yaml(content | inherited))
        trainer = trained(self.run, CHANGES)
        write_dump(trainer.recipe, dict(trainer.networks.ema), self.run / "dump")
        self.plan = Plan(self.recipe, self.run, COUNT, folder / "plan")
        self.old = {
            stage: self.done(stage, side(ROOT), folder / "old" / stage) for stage in ("train", "eval_dump", "metrics")
        }

    def done(self, stage: str, side: Side, folder: Path) -> Path:
        """Run a stage, or parts of it, with the code of a side; return the folder of what it did."""
        folder.mkdir(parents=True)
        if stage == "train":
            run_visits(self.plan, self.plan.visits, side, folder)
            return folder
        words = ["metrics.json", "plots"] if stage == "metrics" else []
        command = ("python", "-m", f"stages.{stage}", str(self.recipe), str(self.run), *words)
        return run_sample(Instance(f"{stage}@toy", command, (), ()), side, folder)

    def difference(self, stage: str, new: Path) -> str | None:
        if stage != "train":
            return in_folders(self.old[stage], new)
        found = (difference(one, self.old[stage], new) for one in self.plan.visits)
        return next((one[1] for one in found if one), None)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("accept")
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(ROOT / "tests"))
        yield Compared(folder)


def side(folder: Path) -> Side:
    """Return the code in a folder, run in processes that need not load PyTorch anew."""
    return Side(folder, f"{preloaded()}/python", "the code")


def planted(change: dict[str, str], folder: Path) -> Side:
    """Return the code with a change."""
    for name in ("figura", "models", "stages"):
        shutil.copytree(ROOT / name, folder / name)  # with what Python compiled, which has the times of the sources
    file = folder / change["file"]
    text = file.read_text()
    assert text.count(change["old"]) == 1
    file.write_text(text.replace(change["old"], change["new"]))
    return side(folder)


@pytest.mark.parametrize(
    ("change", "effect"),
    [pytest.param(*case, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, case in CASES.items()],
)
def test_a_planted_change(change, effect, compared, tmp_path):
    stage = change.get("stage", "train")
    new = compared.done(stage, planted(change, tmp_path / "code"), tmp_path / "new")
    found = compared.difference(stage, new)
    assert (found is not None) == effect, found


@pytest.mark.slow
def test_several_processes_are_compared_with_as_many(compared, tmp_path):
    folders = [tmp_path / name for name in ("one", "other")]
    compared.plan.processes = 2
    visits = [compared.plan.visits[0], compared.plan.visits[-1]]
    for folder in folders:
        folder.mkdir()
        run_visits(compared.plan, visits, side(ROOT), folder)
    compared.plan.processes = 1
    assert [difference(one, *folders) for one in visits] == [None, None]
    assert difference(visits[0], compared.old["train"], folders[0]) is not None  # which rounds otherwise


def test_there_are_enough_planted_changes():
    effects = [effect for _, effect in CASES.values()]
    assert sum(effects) >= 20
    assert effects.count(False) >= 10


@pytest.mark.parametrize(
    ("last", "knots", "states", "expected"),
    [
        (5, [3], [], [(0, 5)]),
        (60, [], [], [(0, 6), (54, 60)]),
        (60, [0, 3, 57, 60, 99], [], [(0, 6), (54, 60)]),
        (60, [30], [], [(0, 6), (27, 33), (54, 60)]),  # three before, three from it on
        (60, [30], [12, 28, 30], [(0, 6), (12, 18), (28, 34), (54, 60)]),  # the nearest state before it
        (60, [30, 32], [26], [(0, 6), (26, 32), (29, 35), (54, 60)]),  # the second one is not seen beyond
        (60, [6, 54, 59], [], [(0, 6), (3, 9), (51, 57), (54, 60)]),
        (1000, [], range(100, 1000, 100), [(0, 6), (100, 106), (400, 406), (700, 706), (994, 1000)]),
    ],
)
def test_spans_cross_each_knot(last, knots, states, expected):
    found = spans(last, 6, knots, states)
    assert found == expected
    assert all(any(a < one < b for a, b in found) for one in knots if 0 < one < last - 1)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": {"b": [1.0, 2.5]}}, {"a": {"b": [1.0, 2.0]}}, "a.b.1 2.5, now 2.0, by 0.5"),
        ({"a": math.nan}, {"a": math.nan}, None),
        ({"a": math.nan}, {"a": 1.0}, "a nan, now 1.0"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "losses is in another order"),
        ({"a": 1}, {}, "a is missing"),
        ({"a": "0" * 64}, {"a": "1" * 64}, "a"),  # digests say nothing
        ({"a": [1]}, {"a": [1, 2]}, "a.1 is new"),
    ],
)
def test_the_first_difference_is_named(old, new, expected):
    found = in_values({"losses": old}, {"losses": new})
    assert found == (expected and (expected if expected.startswith("losses") else f"losses.{expected}"))


def test_a_bit_of_a_tensor_counts():
    one = torch.tensor([0.0, 1.0, math.nan])
    assert in_tensors({"a": one}, {"a": one.clone()}) is None
    assert in_tensors({"a": one}, {"a": torch.tensor([-0.0, 1.0, math.nan])}) is not None
    assert in_tensors({"a": one[:2]}, {"a": torch.tensor([0.0, 1.5])}) == "a by at most 0.5"
    assert in_tensors({"a": one}, {"a": one.double()}) is not None


def test_archives_differ_in_a_member(tmp_path):
    for side, level in (("old", 4), ("new", 7)):
        pixels = np.full((2, 3, 3), 4, np.uint8)
        pixels[1, 2] = level
        (tmp_path / side).mkdir()
        with zipfile.ZipFile(tmp_path / side / "a.zip", "w") as archive:
            archive.writestr("same.txt", "")
            archive.writestr("a/1.png", encode_png(pixels))
    expected = "a.zip: a/1.png: 1 of 6 pixels, by at most 3"
    assert in_folders(tmp_path / "old", tmp_path / "new") == expected


@pytest.mark.parametrize("source", ["data/raw/mine", "../outside", "outside, absolute"])
def test_raw_data_may_lie_outside_of_the_project(source, tmp_path, monkeypatch):
    project, outside = tmp_path / "project", tmp_path / "outside"
    for folder in (project / "data/prepared/mine", project / "data/raw/mine", outside):
        folder.mkdir(parents=True)
    monkeypatch.chdir(project)
    source = source.replace("outside, absolute", str(outside))
    Path("data/params.yaml").write_text(to_yaml({"datasets": {"mine": {"kind": "images", "source": source}}}))
    Path("data/prepared/mine/manifest.json").write_text('{"files": 3}')
    for side in (Path("scratch/old"), Path("scratch/new")):
        _small_project("mine", side)
        written = read_yaml(side / "data/params.yaml")["datasets"]["mine"]["source"]
        assert (side / written).resolve() == Path(source).resolve()
    assert sorted(path.name for path in Path("scratch").iterdir()) == ["new", "old"]


def test_settings_that_change_meanwhile_are_not_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    manifest, recorded = Path("code/metrics-toy.json"), list[str]()
    manifest.parent.mkdir()
    manifest.write_text("{}")
    stage = Instance("metrics@toy", ("python", "-m", "stages.metrics"), (str(manifest),), ())
    said = {str(manifest): "modified", "toy.yaml": {"metrics": "modified"}}
    for name, result in (
        ("refresh", list),
        ("read_lock", lambda: {stage.name: {"deps": [{"path": str(manifest), "md5": "a"}]}}),
        ("status", lambda names: {key: [{"changed deps": said}] for key in names}),
        ("record", recorded.append),
    ):
        monkeypatch.setattr(f"figura.commands.accept.command.{name}", result)
    monkeypatch.setattr("figura.commands.accept.samples.compare_samples", lambda *_: "9 rows")
    monkeypatch.setattr(Worktrees, "code_of", lambda *_: (side(ROOT), "abc"))
    with pytest.raises(UserError, match="settings or data have changed meanwhile"):
        _accept(stage, 4, Worktrees(tmp_path, ""))
    assert recorded == []
