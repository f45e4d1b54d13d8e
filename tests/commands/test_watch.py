"""Evaluations beyond the DAG: other checkpoints, other splits, and checkpoints that appear while one watches."""

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy

from figura.base.errors import UserError
from figura.base.exit_status import run as run_stage
from figura.base.lock import hold
from figura.base.yaml12 import to_yaml
from figura.commands.checkpoint_watch import append_row, draw_evaluations, read_evaluations
from figura.commands.watch import main as watch_main
from figura.training.trainer import Trainer
from stages import eval_dump

PNG = b"\x89PNG\r\n\x1a\n"
FIGURES = ["distance.mean", "distance.mean.low", "distance.mean.high"]


class SplitRamps(toy.Ramps):
    """Ramps in two splits of different lengths."""

    def __init__(self, split: str = "validation") -> None:
        if split not in ("validation", "test"):
            raise UserError(f"no split {split!r}; there are validation, test")
        super().__init__({"validation": 6, "test": 3}[split])


def trained(folder, changes):
    content = toy.changed({"runtime.samples": None, "train.evaluate_every": 12} | changes)
    (folder / "recipe.yaml").write_text(to_yaml(content))
    Trainer(toy.checked(content=content), folder / "run").fit()
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with recipe.yaml and run/ with three checkpoints."""
    return trained(tmp_path_factory.mktemp("project"), {"runtime.checkpoint_every": 4})


@pytest.fixture(scope="module")
def split_project(tmp_path_factory):
    """One whose validation dataset has splits, which the recipe leaves to it."""
    data = {"data.validation": {"ramps": {"type": "test_watch.SplitRamps"}}}
    return trained(tmp_path_factory.mktemp("split"), data)


def evaluate(project, *options):
    return run_stage(eval_dump.main, [str(project / "recipe.yaml"), str(project / "run"), *map(str, options)])


def watch(project, checkpoints, output, *options):
    return run_stage(watch_main, list(map(str, (project / "recipe.yaml", checkpoints, output, *options))))


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cut_off(source, target):
    """Copy a checkpoint as a slow writer leaves it: the first half of the weights and nothing else."""
    target.mkdir(parents=True)
    weights = (source / "painter.safetensors").read_bytes()
    (target / "painter.safetensors").write_bytes(weights[: len(weights) // 2])


def test_a_folder_of_checkpoints(project, tmp_path, capsys):
    assert watch(project, project / "run/checkpoints", tmp_path / "out") == 0
    table = pd.read_csv(tmp_path / "out/evaluations.csv")
    assert list(table) == ["checkpoint", "step", *FIGURES]
    assert table["checkpoint"].tolist() == ["step-000004", "step-000008", "step-000012"]
    assert table["step"].tolist() == [4, 8, 12]
    for row in table.itertuples(index=False):
        losses = pd.read_csv(tmp_path / "out" / row.checkpoint / "examples.csv")["loss.distance"]
        assert len(losses) == 6
        assert row[2] == pytest.approx(losses.mean())
        assert row[3] < row[2] < row[4]
    assert table["distance.mean"].is_unique
    assert (tmp_path / "out/evaluations.png").read_bytes().startswith(PNG)

    cut_off(project / "run/checkpoints/step-000004", tmp_path / "torn/step-000004")
    shutil.copytree(project / "run/checkpoints/step-000008", tmp_path / "torn/step-000008")
    shutil.copy(project / "run/model/recipe.yaml", tmp_path / "torn/step-000004")
    assert watch(project, tmp_path / "torn", tmp_path / "others") == 1  # after the others
    assert "step-000004/painter.safetensors: not a readable safetensors file" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "others/evaluations.csv")["checkpoint"].tolist() == ["step-000008"]

    before = contents(tmp_path / "out")
    capsys.readouterr()
    assert watch(project, project / "run/checkpoints", tmp_path / "out") == 0  # a second start has nothing to do
    assert "0 evaluated" in capsys.readouterr().out
    assert contents(tmp_path / "out") == before

    assert evaluate(project) == 0  # the last checkpoint is the model, and its dump that of the DAG
    assert contents(project / "run/dump") == contents(tmp_path / "out/step-000012")
    last = ("--checkpoint", project / "run/checkpoints/step-000012", "--output", tmp_path / "single")
    assert evaluate(project, *last) == 0
    assert contents(tmp_path / "single") == contents(project / "run/dump")


def forked_stage(main, words):
    """Start a stage as a child of this process, which has loaded its code; return its number and what it says."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
            sys.stdout = sys.stderr = os.fdopen(write, "w", buffering=1)
            code = run_stage(main, list(map(str, words)))
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(write)
    return child, os.fdopen(read)


def hold_until_killed(words):
    with hold(Path(words[0])):
        print("held", flush=True)
        signal.pause()


def test_watching(project, tmp_path):
    source, checkpoints, out = project / "run/checkpoints", tmp_path / "checkpoints", tmp_path / "out"
    words = [project / "recipe.yaml", checkpoints, out, "--every", "0.05"]
    process, output = forked_stage(watch_main, words)
    limit = threading.Timer(25, os.kill, (process, signal.SIGKILL))
    limit.start()
    said = []

    def wait_for(text):
        while text not in (said[-1] if said else ""):
            line = output.readline()
            assert line, f"ended before {text!r}: {said}"
            said.append(line)

    try:
        wait_for("watching")  # a folder that is not there yet
        cut_off(source / "step-000008", checkpoints / "step-000008")
        wait_for("step-000008: not complete yet")
        cut_off(source / "step-000012", checkpoints / ".step-000012.partial")
        shutil.copytree(source / "step-000004", tmp_path / "step-000004")
        (tmp_path / "step-000004").rename(checkpoints / "step-000004")
        wait_for("step-000004: distance.mean")
        assert [row["checkpoint"] for row in read_evaluations(out / "evaluations.csv")] == ["step-000004"]
        for path in (source / "step-000008").iterdir():
            shutil.copy(path, checkpoints / "step-000008")
        wait_for("step-000008: distance.mean")
        os.kill(process, signal.SIGINT)
        rest = output.read()
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
    finally:
        limit.cancel()
        _, status = os.waitpid(process, 0)
    assert status == 0, rest
    assert "2 evaluated" in rest
    assert sum("not complete" in line for line in [*said, rest]) == 1
    table = pd.read_csv(out / "evaluations.csv")
    assert table["checkpoint"].tolist() == ["step-000004", "step-000008"]
    losses = [pd.read_csv(out / name / "examples.csv")["loss.distance"].mean() for name in table["checkpoint"]]
    np.testing.assert_allclose(table["distance.mean"], losses)


def test_another_split(split_project, tmp_path, capsys):
    for split, length in (("validation", 6), ("test", 3)):
        assert evaluate(split_project, "--split", split, "--output", tmp_path / split) == 0
        assert len(pd.read_csv(tmp_path / split / "examples.csv")) == length
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(split_project / "run/model", checkpoints / "final")
    assert watch(split_project, checkpoints, tmp_path / "both", "--split", "test") == 0
    (row,) = read_evaluations(tmp_path / "both/evaluations.csv")
    assert (row["checkpoint"], row["step"]) == ("final", "")
    assert len(pd.read_csv(tmp_path / "both/final/examples.csv")) == 3
    assert not (tmp_path / "both/evaluations.png").exists()  # nothing has a step
    capsys.readouterr()
    wrong = (tmp_path / "wrong", "--split", "train", "--every", 1)
    assert watch(split_project, checkpoints, *wrong) == 1  # no wait would help
    assert "no split 'train'; there are validation, test" in capsys.readouterr().err


def test_a_table_grows_and_keeps_what_it_has(tmp_path):
    path = tmp_path / "table.csv"
    append_row(path, {"checkpoint": "step-000002", "step": 2, "a.AP": 0.1})
    append_row(path, {"checkpoint": "last", "step": None, "b": float("nan")})
    append_row(path, {"checkpoint": "step-000001", "step": 1, "a.AP": 1 / 3, "a.AP.low": 0.25, "a.AP.high": 0.5})
    assert path.read_text().splitlines() == [
        "checkpoint,step,a.AP,b,a.AP.low,a.AP.high",
        "step-000002,2,0.1,,,",
        "last,,,nan,,",
        "step-000001,1,0.3333333333333333,,0.25,0.5",
    ]
    draw_evaluations(path, tmp_path / "table.png")
    assert (tmp_path / "table.png").read_bytes().startswith(PNG)
    path.write_text("name\nx\n")
    with pytest.raises(UserError, match="no column 'checkpoint'"):
        read_evaluations(path)
    path.write_text("checkpoint,step,a\nlast,ten,1\n")
    with pytest.raises(UserError, match=r"table\.csv: no table of evaluations: "):
        draw_evaluations(path, tmp_path / "table.png")


@pytest.mark.parametrize(
    ("main", "words", "message"),
    [
        (eval_dump.main, ("run", "--output", "run/dump"), "this folder is DVC's"),
        (eval_dump.main, ("run", "--output", "run"), "something else than a dump"),
        (eval_dump.main, ("run", "--checkpoint", "run/model", "--output", "run/model/out"), "lies in the model folder"),
        (eval_dump.main, ("run/model",), "--output: missing; run/model is a model folder, where no dump belongs"),
        (watch_main, ("run/checkpoints", "run/checkpoints/out"), "lies in the folder of the checkpoints"),
        (watch_main, ("run/model", "out"), "is a model folder"),
        (
            watch_main,
            ("run/none", "out"),
            "run/none: no such folder; a training with `runtime.checkpoint_every` writes",
        ),
        (watch_main, ("run/checkpoints", "out", "--every", "inf"), "--every inf: expected a number of seconds above 0"),
    ],
)
def test_folders_that_are_something_else_stay(project, monkeypatch, capsys, main, words, message):
    monkeypatch.chdir(project)
    before = contents(project)
    assert run_stage(main, ["recipe.yaml", *words]) == 1
    assert message in capsys.readouterr().err
    assert contents(project) == before


def test_one_process_at_a_time_writes_a_dump_or_watches(project, tmp_path, capsys):
    process, output = forked_stage(hold_until_killed, [tmp_path / "out"])
    assert output.readline() == "held\n"
    assert watch(project, project / "run/checkpoints", tmp_path / "out") == 1
    assert evaluate(project, "--output", tmp_path / "out") == 1
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    for said in capsys.readouterr().err.splitlines():
        assert said.startswith(f"error: {tmp_path}/out: process ")
        assert said.endswith(" is at work there; wait for it, or stop it")
    assert os.listdir(tmp_path / "out") == [".lock"]
