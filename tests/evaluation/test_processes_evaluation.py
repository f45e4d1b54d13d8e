"""Two ranks evaluate: each its share, and together the same bytes as one."""

import ast
import csv
import json
import os
import re
import time
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import toy
from accelerate import Accelerator
from toy import PAINT
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.commands.checkpoint_watch import CheckpointWatch
from figura.engine.build import build_networks
from figura.evaluation.evaluate import Evaluation
from figura.evaluation.trained import refuse_foreign, write_dump
from figura.interfaces import Records
from figura.live import listeners
from figura.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
JUDGE = {"type": "Forward", "network": "critic", "inputs": {"image": "image"}, "outputs": {"score": "score"}}
NOISY = {**PAINT, "args": {"noise": 0.5}}


class Kinds(toy.Ramps):
    """Ramps of two groups, with texts, a flag, a number that may be missing, and records."""

    names = (*toy.Ramps.names, "word", "raw", "flag", "size", "found")

    def group(self, index):
        return index % 3 == 0

    def example(self, index, random):
        own = {
            "word": f'"{index}", ü', "raw": bytes([index]), "flag": index % 2 == 0,
            "size": np.nan if index == 4 else index / 3,
            "found": Records({"id": 10 * index + n, "box": (0.1 * n, 1e-17)} for n in range(index % 3)),
        }  # fmt: skip
        return super().example(index, random) | own


class Failing(Kinds):
    """Kinds in one group, slow to read; one cannot be read: bad input or a fault of the program. Counts reads."""

    def __init__(self, length, at, kind="UserError"):
        super().__init__(length)
        self.at, self.kind, self.read = at, kind, 0

    def group(self, index):
        return None

    def example(self, index, random):
        self.read += 1
        time.sleep(0.02)
        if index == self.at:
            raise {"UserError": UserError, "ValueError": ValueError}[self.kind](f"example {index} is cut off")
        return super().example(index, random)


def validation(**datasets):
    return {"data.validation": {name: {"type": f"test_processes_evaluation.{kind}", "length": length, **arguments}
                                for name, (kind, length, arguments) in datasets.items()}}  # fmt: skip


FULL = validation(kinds=("Kinds", 13, {})) | {  # groups of 8 and 5: batches of 3, 3, 2 and 3, 2
    "evaluate.batch_size": 3,
    "evaluate.inputs": {"x": "image", "y": "array", "found": "records"},
    "evaluate.modes": {
        "plain": {"injectors": {"paint": PAINT, "judge": JUDGE}, "save": {"image": "image", "score": "number"}},
        "noisy": {"injectors": {"paint": NOISY}, "save": {"image": "array", "found": "records"}, "repeat": 3},
    },
    "evaluate.grids": {
        name: {"rows": ["x"], "columns": ["y", "found"], "size": size, "injectors": {"paint": NOISY},
               "save": {"image": "array", "y": "mask", "found": "records"}}
        for name, size in {"three": 3, "two": 2}.items()
    },
    "evaluate.averages": {"mean_x": {"of": "x", "examples": 5}, "mean_y": {"of": "y", "examples": 3}},
}  # fmt: skip
FEW = {"data.validation": {"named": {"type": "toy.Named", "length": 2}}, "evaluate.batch_size": 4}
LATE = {  # the second batch, which is the other process', brings a column
    "data.validation": {"ramps": {"type": "toy.Ramps", "length": 4}, "named": {"type": "toy.Named", "length": 3}},
    "evaluate.batch_size": 4,
    "evaluate.modes.means": {
        "injectors": {"paint": {**PAINT, "outputs": {"mean": "mean"}}},
        "save": {"mean": "number"},
    },
}
DUMPS = {"full": FULL, "few": FEW, "late": LATE}
STILL = validation(kinds=("Kinds", 9, {})) | {  # weights that stay: whatever differs comes from the evaluation
    "data.batch_size": 2,
    "steps.painter.optimizer.lr": 1.0e-30,
    "train.steps": 4, "train.evaluate_every": 2,
    "evaluate.batch_size": 2,
    "evaluate.modes": {
        "plain": {"injectors": {"paint": PAINT}, "save": {"image": "array"}},
        "noisy": {"injectors": {"paint": NOISY}, "save": {"found": "records"}, "repeat": 2},
    },
    "evaluate.averages": {"mean_y": {"of": "y", "examples": 5}},
    "metrics.scores": {
        "distance": {"type": "toy.Mean", "column": "loss.distance"},
        "failed": {"type": "toy.Failing", "mode": "plain"},
    },
    "runtime.samples": None, "runtime.scores": {"names": ["failed", "distance"], "limit": 7},
}  # fmt: skip
# batches of 2 examples: the first of the second process holds the one that fails
BROKEN = {kind: validation(ramps=("Failing", 60, {"at": 2, "kind": kind})) for kind in ("UserError", "ValueError")}


def checked(name):
    return toy.checked(DUMPS[name], toy.gan() if name == "full" else None)


def dumped(name, folder):
    recipe = checked(name)
    write_dump(recipe, build_networks(recipe), folder / name)


def wide(batch):
    """Return values of which some batches have one more."""
    values = {"all": 10.0 ** (3 * batch["index"].double()) / 7}
    return values | ({"some": values["all"]} if 4 in batch["index"] else {})


def scored(run):
    """Train, with scores; score again while an example cannot be read, then again; sums that rounding tells apart."""
    recipe = toy.checked(STILL)
    scores, _ = chosen = listeners(recipe)
    trainer = Trainer(recipe, run, listeners=chosen)
    trainer.fit()
    means = trainer.validation.means(wide)
    (run / f"wide.{trainer.accelerator.process_index}").write_text(repr(means))
    for iteration, data in {6: {"kinds": Failing(9, at=2)}, 8: scores.data}.items():
        scores.data, scores.evaluation = data, None
        scores.score(iteration)


def broken(kind, folder):
    """Try to evaluate; return what is raised, and how many examples were read."""
    recipe = toy.checked(BROKEN[kind] | {"evaluate.batch_size": 2})
    evaluation = Evaluation(recipe, build_networks(recipe), folder / kind, Accelerator())
    with pytest.raises((UserError, ValueError, RuntimeError)) as caught:
        evaluation.write()
    return f"{caught.type.__name__}: {caught.value}", evaluation.data["ramps"].read


def all_of_it(folder):
    """What each of two ranks does; what it says goes into `said.<rank>`."""
    rank = os.environ["RANK"]
    with (folder / f"said.{rank}").open("w") as said, redirect_stdout(said):
        with patch.object(Accelerator, "end_training"):  # one group of processes for all
            scored(folder / "still")
            (folder / f"fates.{rank}.json").write_text(json.dumps({kind: broken(kind, folder) for kind in BROKEN}))
            for name in DUMPS:
                if name != "full":
                    dumped(name, folder)
        assert torch.distributed.is_initialized()
        dumped("full", folder)
        assert not torch.distributed.is_initialized()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    run_in_two(lambda: all_of_it(folder))
    return folder


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", DUMPS)
def test_a_dump_of_two_is_that_of_one(name, two, tmp_path):
    dumped(name, tmp_path)
    ours, theirs = files(tmp_path / name), files(two / name)
    assert ours.keys() == theirs.keys()
    assert [path for path in ours if ours[path] != theirs[path]] == []
    with (two / name / "examples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == {"full": 13 * (1 + 3), "few": 2, "late": 7 * 2}[name]  # each once
    assert len({(row["mode"], row["index"], row["draw"]) for row in rows}) == len(rows)
    if name == "full":
        assert {"averages/mean_x.npy", "averages/mean_y.npy", "grids.csv"} <= ours.keys()
        expected = {f"{part}/found.json" for part in ("inputs", "noisy", "three", "two")}
        assert {path for path in ours if path.endswith(".json")} == expected
        assert len(json.loads(ours["inputs/found.json"])) == sum(index % 3 for index in range(13))
        assert len(json.loads(ours["noisy/found.json"])) == 3 * sum(index % 3 for index in range(13))


def test_history_and_scores_while_training(two, run):
    scored(run)
    ours, theirs = ((folder / "history/validation.csv").read_text() for folder in (run, two / "still"))
    assert ours == theirs
    assert len(ours.splitlines()) == 1 + 2
    ours, theirs = ((folder / "live/scores.csv").read_text() for folder in (run, two / "still"))
    assert ours == theirs
    assert [line.split(",")[0] for line in ours.splitlines()] == ["step", "2", "4", "8"]
    own = {(folder / f"wide.{rank}").read_text() for folder, rank in ((run, 0), (two / "still", 0), (two / "still", 1))}
    assert len(own) == 1
    assert ast.literal_eval(own.pop()).keys() == {"all", "some"}
    said = (two / "said.0").read_text()
    for warning in ("2: toy.yaml: metrics.scores.failed: there is nothing to judge", "6: example 2 is cut off"):
        assert said.count(f"warning: runtime.scores at step {warning}") == 1
    times = re.findall(r"^(\w+): ms an image: paint [\d.]+", said, re.MULTILINE)
    assert sorted(times) == sorted(["plain", "plain", "means", "plain", "noisy"])  # a line a mode of each dump
    assert (two / "said.1").read_text() == ""  # one alone prints


@pytest.mark.parametrize(("kind", "other"), [("UserError", ""), ("ValueError", "RuntimeError: rank 1 failed: ")])
def test_where_one_fails_all_fail_soon(kind, other, two):
    first, second = (json.loads((two / f"fates.{rank}.json").read_text())[kind] for rank in (0, 1))
    assert second == [f"{kind}: example 2 is cut off", 1]
    assert first[0] == (f"{other}ValueError('example 2 is cut off')" if other else second[0])
    assert first[1] < 30  # its share of 60 is not read to the end
    assert not (two / kind / "examples.csv").exists()
    refuse_foreign(two / kind)  # a dump that failed may be replaced


def test_checkpoints_are_for_one_process(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="evaluated by one process, found 2"):
        CheckpointWatch(tmp_path, tmp_path / "out", toy.checked())
