"""Scores during a training: the figures of eval-dump and metrics, and nothing else changed by them."""

import csv
import errno
import os

import numpy as np
import pytest
import toy
from trainings import outputs
from two_processes import run_in_two

from figura.base.sampling import evenly_spaced
from figura.dump import Dump
from figura.engine.data import ValidationBatches
from figura.evaluation.evaluate import Evaluation
from figura.evaluation.trained import load_trained, write_dump
from figura.live import listeners
from figura.live.scores import OnlineScores
from figura.report.interfaces import NotApplicableError, Score
from figura.report.metrics import compute_metrics, flattened
from figura.training.trainer import Trainer

PAINT = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "image"}}
CHANGES = {
    "runtime.samples": None,
    "runtime.timing": False,
    "evaluate.modes": {
        "plain": {"injectors": {"paint": PAINT}, "save": {"image": "array"}},
        "noisy": {"injectors": {"paint": {**PAINT, "args": {"noise": 0.5}}}, "save": {"image": "array"}, "repeat": 2},
    },
    "evaluate.averages": {"mean_y": {"of": "y", "examples": 5}},
    "metrics.scores": {
        "deviation": {"type": "test_online_scores.Error", "mode": "noisy", "target": "y"},
        "baseline": {"type": "test_online_scores.Error", "mode": "plain", "target": "y", "average": "mean_y"},
        "distance": {"type": "toy.Mean", "column": "loss.distance"},
        "broken": {"type": "toy.Failing", "mode": "plain"},
        "absent": {"type": "test_online_scores.Absent", "mode": "plain"},
        "faulty": {"type": "test_online_scores.Faulty", "mode": "plain"},
    },
}
ALL = ["deviation", "baseline", "distance"]


class Error(Score):
    """Mean absolute error of images, or of a mean over training examples; also how many there were."""

    def __init__(self, mode: str, target: str, image: str = "image", average: str | None = None) -> None:
        self.mode, self.target, self.image, self.average = mode, target, image, average

    def __call__(self, dump, bootstrap):
        rows = dump.mode(self.mode)
        images = [rows.average(self.average) if self.average else row[self.image] for row in rows]
        errors = [np.abs(a - row[self.target]).mean() for a, row in zip(images, rows, strict=True)]
        return {"l1": bootstrap.estimate(np.array(errors)), "images": len(rows)}


class Faulty(toy.Failing):
    def __call__(self, dump, bootstrap):
        return {"share": 0 / 0}


class Absent(toy.Failing):
    def __call__(self, dump, bootstrap):
        raise NotApplicableError("nobody is in two pictures")


def trained(run, names=None, content=None, **scores):
    asked = {"runtime.scores": {"names": names, **scores}} if names else {}
    recipe = toy.checked(CHANGES | asked, content)
    trainer = Trainer(recipe, run, listeners=listeners(recipe))
    trainer.fit()
    return trainer


def rows(run):
    with (run / "live" / "scores.csv").open() as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


def test_training_ends_in_the_same_bytes_with_and_without(tmp_path):
    trained(tmp_path / "with", [*ALL, "broken"], every=1)
    trained(tmp_path / "without")
    assert len(rows(tmp_path / "with")) == 12
    assert outputs(tmp_path / "with") == outputs(tmp_path / "without")
    scored = tmp_path / "with/live/scored"
    assert [path.relative_to(scored).as_posix() for path in scored.rglob("*.*")] == ["averages/mean_y.npy"]
    assert not (tmp_path / "without" / "live" / "scores.csv").exists()


def test_test_data_are_not_looked_at(tmp_path):
    """With `evaluate.data` of the split test, scores are those of validation, also with other arguments and names."""
    kind = {"type": "toy.Split", "length": 6}
    test = {"split": "test"}
    for index, judged in enumerate(({"ramps": test}, {"ramps": {**test, "length": 5}}, {"others": {**kind, **test}})):
        content = toy.changed({
            "data.train": {"ramps": {**kind, "split": "train"}},
            "data.validation": {"ramps": {**kind, "split": "validation"}},
            "evaluate.data": judged,
        })  # fmt: skip
        trained(tmp_path / str(index), ["baseline"], content=content)
        length = judged.get("ramps", kind).get("length", 6)
        targets, training = (
            np.array([toy.Split(length, split).example(i, np.random.default_rng(0))["y"] for i in range(length)])
            for split in ("validation", "train")
        )
        error = np.abs(targets - training[evenly_spaced(length, 5)].mean(axis=0)).mean()
        assert rows(tmp_path / str(index))[0]["baseline.l1"] == pytest.approx(error, abs=1e-6)


def test_figures_are_those_of_eval_dump_and_metrics(run, capsys):
    """Of the averaged weights; the last row is what the stages say of the written ones. One that fails is a warning."""
    trainer = trained(run, [*ALL, "broken", "faulty"], limit=None)
    said = capsys.readouterr().out
    assert "there is nothing to judge" in said
    assert "warning: runtime.scores at step 5: metrics.scores.faulty: ZeroDivisionError('division by zero')" in said
    recipe, networks = load_trained(run / "model", trainer.recipe)
    write_dump(recipe, networks, run / "dump")
    content = recipe.model_copy(update={"metrics": recipe.metrics.model_copy(update={"scores": {
        name: recipe.metrics.scores[name] for name in ALL
    }})})  # fmt: skip
    expected = flattened(compute_metrics(content, Dump(run / "dump")))
    *_, last = rows(run)
    assert [row["step"] for row in rows(run)] == [5, 10, 12]
    assert last == {"step": 12, **expected}
    assert last["deviation.images"] == 12
    assert rows(run)[0]["deviation.l1"] != last["deviation.l1"]
    assert rows(run)[0]["baseline.l1"] == last["baseline.l1"]


def test_a_limit_takes_instances_evenly(run):
    trainer = trained(run, ["deviation"], limit=4)
    assert rows(run)[-1]["deviation.images"] == 8  # two draws of each
    trainer.listeners[0].evaluation.write()
    assert sorted(set(Dump(run / "live/scored").table["index"])) == [0, 1, 3, 4]  # of 6
    data = {"first": toy.Ramps(4), "second": toy.Ramps(6)}
    assert list(ValidationBatches(data, 2, 5)) == [
        [("first", 0, 0), ("first", 0, 2)],
        [("second", 0, 0), ("second", 0, 2)],
        [("second", 0, 4)],
    ]
    assert list(ValidationBatches(data, 2, 10)) == list(ValidationBatches(data, 2))


def failing(monkeypatch, kind, name, at):
    """Let the method of a class raise OSError in rank `at`, in one process always."""
    real = getattr(kind, name)

    def method(self, *arguments, **keywords):
        if int(os.environ.get("RANK", at)) == at:
            raise OSError(errno.EIO, "Input/output error", f"part.{at}")
        return real(self, *arguments, **keywords)

    monkeypatch.setattr(kind, name, method)


@pytest.mark.parametrize(
    ("kind", "name", "at", "ranks"),
    [(Evaluation, "_examples", 1, 2), (OnlineScores, "_clear", 0, 2), (Dump, "read", 0, 1)],
)
def test_a_disk_that_fails_is_a_warning_on_every_rank(run, monkeypatch, capfd, kind, name, at, ranks):
    failing(monkeypatch, kind, name, at)
    if ranks == 2:
        run_in_two(lambda: trained(run, ["deviation"]))
    else:
        trained(run, ["deviation"])
    said = capfd.readouterr().out
    assert said.count(f"warning: runtime.scores at step 5: [Errno 5] Input/output error: 'part.{at}'") == 1
    assert (run / "model/recipe.yaml").is_file()
    assert not (run / "live/scores.csv").exists()


def test_rows_of_iterations_that_are_taken_again_are_cut_off(run):
    """An earlier training wrote rows; a new one begins without them."""
    (run / "live").mkdir(parents=True)
    (run / "live" / "scores.csv").write_text("step,old.figure\n0,1.0\n3,2.0\n7,3.0\n")
    trained(run, ["deviation"]).listeners[0].score(10)  # training went back
    assert [row["step"] for row in rows(run)] == [0, 5, 10]  # `done` was 0


@pytest.mark.parametrize("content", [b"\xff\n", b"step,a\n5,1\nten,2\n"])
def test_a_damaged_table_is_kept_under_another_name(run, content, capsys):
    (run / "live").mkdir(parents=True)
    (run / "live/scores.csv").write_bytes(content)
    trained(run, ["deviation"])
    assert [row["step"] for row in rows(run)] == [5, 10, 12]
    assert (run / "live/scores.damaged").read_bytes() == content
    assert "; it is now scores.damaged, and the table begins anew" in capsys.readouterr().out
