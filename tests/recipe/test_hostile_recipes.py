"""Wrong files and recipes that nobody means well by: each ends in few, short, printable lines, at once."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toy

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import to_yaml
from figura.commands import predict, show, watch
from figura.commands.describe.command import main as describe
from figura.launch import process_count, run_here
from figura.recipe.assignments import overridden
from figura.recipe.gates import Gate
from figura.recipe.load import check_recipe
from figura.recipe.name_check import can_run, covers_every_iteration
from figura.recipe.schema_check import check_schema
from figura.recipe.types import NETWORK, construct, find_type
from models.pose import overfit as overfit_pose
from stages import eval_dump, metrics, prepare, train

TOY = to_yaml(toy.recipe())
LAUGHS = "l0: &l0 [x]\n" + "".join(f"l{i}: &l{i} [{', '.join(9 * [f'*l{i - 1}'])}]\n" for i in range(1, 12))
ESCAPES = '"\\e[31m\\nerror: \\u202e\\r\\0": 1\n'


def edited(changes: dict[str, Any]) -> str:
    return to_yaml(toy.changed(changes))


TEXTS: dict[str, tuple[str, str]] = {
    "depth": (f"{TOY}x: {5000 * '['}{5000 * ']'}\n", r"r\.yaml: nested more than 64 deep"),
    "laughs": (TOY + LAUGHS, r"r\.yaml:\d+:\d+: more than 100,000 values"),
    "a long value": (edited({"seed": 10**6 * "x"}), r"r\.yaml: seed: found 'x{70,80}\.\.\.; expected an integer"),
    "a long key": (edited({10**6 * "k": 1}), r"r\.yaml.*"),
    "escapes": (TOY + ESCAPES, r"r\.yaml: \\x1b\[31m\\nerror: \\u202e\\r\\x00: unknown key"),
    "a huge number": (edited({"train.steps": 10**400}), r"r\.yaml: train\.steps: found 10{70,80}\.\.\.; expected a n"),
    "workers": (edited({"runtime.workers": 10**6}), r"r\.yaml: runtime\.workers: found 1000000; expected .* 256"),
    "bytes": ("\x00\x01", r"r\.yaml: not valid YAML: unacceptable character #x0000"),
}
COMMANDS: dict[str, tuple[Callable[[list[str]], None], tuple[str, ...]]] = {
    "train": (train.main, ("r.yaml", "run")),
    "eval_dump": (eval_dump.main, ("r.yaml", "run")),
    "eval_dump of a model": (eval_dump.main, ("good.yaml", "bad")),
    "metrics": (metrics.main, ("r.yaml", "run", "m.json", "plots")),
    "describe": (describe, ("r.yaml",)),
    "show": (show.main, ("r.yaml", "--output", "o.png")),
    "predict": (predict.main, ("r.yaml", "run", "a.png", "--output", "o")),
    "predict with a model": (predict.main, ("good.yaml", "bad", "a.png", "--output", "o")),
    "watch": (watch.main, ("r.yaml", "run", "o")),
    "overfit_pose": (overfit_pose.main, ("r.yaml", "run")),
}
OF_MODELS = [name for name, (_, words) in COMMANDS.items() if "bad" in words]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good recipe and a run of it; tests write r.yaml and bad/model/recipe.yaml."""
    folder = tmp_path_factory.mktemp("hostile")
    for run_folder in ("run", "bad"):
        (folder / run_folder / "model").mkdir(parents=True)
    for path in ("good.yaml", "run/model/recipe.yaml"):
        (folder / path).write_text(TOY)
    return folder


def lines_of(
    main: Callable[[list[str]], None], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Run a command that refuses its recipe; return what it prints, which is bounded and printable."""
    capsys.readouterr()
    assert run(main, list(words)) == 1
    said = capsys.readouterr().err
    lines = said.removesuffix("\n").split("\n")
    assert len(lines) <= 22
    assert all(len(line) < 1100 and line.isprintable() for line in lines)
    assert [line.startswith("error: ") for line in lines] == [True] + [False] * (len(lines) - 1)
    return lines


ALL = [("train", name) for name in TEXTS] + [(command, "bytes") for command in COMMANDS if command != "train"]


@pytest.mark.parametrize(("command", "name"), ALL)
def test_every_command_refuses_a_hostile_recipe_in_printable_lines(command, name, folder, monkeypatch, capsys):
    """They share the reader and the check of the schema (test_start_up.py); the stage of training meets each text."""
    monkeypatch.chdir(folder)
    (main, words), (content, said) = COMMANDS[command], TEXTS[name]
    path = "bad/model/recipe.yaml" if command in OF_MODELS else "r.yaml"
    Path(path).write_text(content)
    started = time.monotonic()
    lines = lines_of(main, words, capsys)
    assert time.monotonic() - started < 10
    expected = said.replace(r"r\.yaml", re.escape(path))
    assert re.match(f"error: {expected}", lines[0]), lines[0]


def test_a_recipe_that_is_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("r.yaml")
    (line,) = lines_of(train.main, ("r.yaml", "run"), capsys)
    assert line.startswith("error: r.yaml: ")
    assert line.endswith("; a YAML file is needed")
    assert run_here("train", ["r.yaml", "run"]) == 1


def test_many_errors_are_counted_and_the_largest_numbers_pass():
    with pytest.raises(UserError) as caught:
        check_schema(toy.changed({f"key{i}": 1 for i in range(3000)}), Path("p.yaml"))
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[1] for line in lines[:20]] == [f"key{i}" for i in range(20)]
    assert lines[20] == "p.yaml: and 2,980 more"
    assert check_recipe(toy.changed({"seed": 2**63 - 1, "runtime.workers": 256}), Path("p.yaml")).seed == 2**63 - 1


@pytest.mark.parametrize("name", ["toy.(a+)+$", "toy.[", "toy.\nPainter", "toy.", ".Painter", "a..B", "x" * 201 + ".Y"])
def test_a_type_that_is_no_dotted_name(name):
    """Types once were part of a regular expression."""
    errors = ErrorCollector(Path("p.yaml"))
    assert find_type(name, NETWORK, "k", errors) is None
    (line,) = errors.lines
    assert "expected a dotted name" in line


@pytest.mark.parametrize(
    ("width", "asked"), [(10**12, "36000000000000 bytes"), (2**62, "sizes=[4611686018427387904, 1, 3, 3]")]
)
def test_a_network_larger_than_any_memory(width, asked):
    errors = ErrorCollector(Path("p.yaml"))
    assert construct("toy.Painter", {"width": width}, NETWORK, "networks.painter", errors) is None
    said = f"more memory is needed than there is: {asked} were asked for; make it smaller"
    assert errors.lines == [f"p.yaml: networks.painter: toy.Painter: {said}"]


def test_gates_of_any_length_are_judged_at_once():
    far = Gate(999_999_937, 5)
    assert covers_every_iteration((far,), [(Gate(999_999_937, 5), Gate())])
    assert not covers_every_iteration((Gate(),), [(far,), (Gate(999_999_929),)])
    assert can_run((far, Gate(999_999_929, 7)))  # coprime periods meet, though late
    assert not can_run((Gate(10**9, 5), Gate(10**9, 6)))
    assert not can_run((far, Gate(999_999_929, 7, before=10**9)))
    parts = [(Gate(2),), (Gate(4, 1),), (Gate(4, 3),)]
    assert covers_every_iteration((Gate(),), [*parts, (far,)])
    assert not covers_every_iteration((Gate(),), [*parts[:2], (far,)])


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("evaluate.x={1: 2}", "--set evaluate.x={1: 2}:1:2: a key that is no text"),
        (f"evaluate.x={100 * '['}{100 * ']'}", "nested more than 64 deep"),
        (f"evaluate{500 * '.x'}=1", "a key of 501 names; at most 64 are allowed"),
    ],
)
def test_values_of_the_command_line(assignment, said):
    with pytest.raises(UserError) as caught:
        overridden(toy.recipe(), [assignment], ("evaluate",), Path("recipe.yaml"))
    assert said in str(caught.value)


@pytest.mark.parametrize("asked", ["9" * 5000, "257", "0", "-1", "²", "x" * 10**6])
def test_numbers_of_processes(asked):
    with pytest.raises(UserError, match="expected an integer from 1 to 256, processes a machine"):
        process_count({"FIGURA_PROCESSES": asked}, 0)


LONELY = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 4, "height": 4}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}],
    "categories": [{"id": 1, "name": "person"}],
}
COCO = {"images": "images", "annotations": "a.json", "shares": {"validation": 0.5}}
DATASET = {"kind": "coco", "source": "raw", "seed": 1, "max_rejected": 0.0, "coco": COCO}
DATA = {"data/params.yaml": to_yaml({"datasets": {"mine": DATASET}}), "raw/a.json": json.dumps(LONELY)}
HUGE = {"data/params.yaml": to_yaml({"datasets": {"mine": DATASET | {"seed": 10**400}}})}
FILES: list[tuple[dict[str, str], tuple[Any, ...], str]] = [
    (DATA, (prepare.main, "mine"), "1 image file missing; the first: a.jpg. All are listed in data/prepared/"),
    (DATA, (prepare.main, "mien"), "datasets.mien: no such dataset (did you mean 'mine'?); there are mine"),
    (HUGE, (prepare.main, "mine"), "data/params.yaml: datasets.mine.seed: found 1000"),
    ({"data/params.yaml": "1: 2"}, (prepare.main, "mine"), "data/params.yaml:1:1: a key that is no text"),
    ({}, (eval_dump.main, "r.yaml", "runs/x"), "runs/x: no such folder; dvc checkout, dvc pull or dvc repro brings"),
    ({"r.yaml": TOY}, (metrics.main, "r.yaml", "runs/x", "m.json", "p"), "runs/x/dump/examples.csv: no such file; run"),
]


@pytest.mark.parametrize(("files", "call", "said"), FILES, ids=[said for *_, said in FILES])
def test_a_wrong_file_gives_this_line(files, call, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("raw/images").mkdir(parents=True)
    Path("data").mkdir()
    for name, content in files.items():
        Path(name).write_text(content)
    main, *arguments = call
    assert run(main, arguments) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert said in line
