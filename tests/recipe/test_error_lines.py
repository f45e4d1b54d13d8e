"""Wrong files: a stage ends with one line that names the file and says what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toy

from figura.base.exit_status import run
from figura.base.yaml12 import to_yaml
from figura.commands import predict
from stages import eval_dump, metrics, prepare, train

COCO = {
    "kind": "coco",
    "source": "raw",
    "seed": 1,
    "max_rejected": 0.0,
    "coco": {"images": "images", "annotations": "a.json", "shares": {"validation": 0.5}},
}


def dataset(changes: dict[str, Any], annotations: str | None = None) -> Callable[[], None]:
    """Return what writes data/params.yaml with a dataset `mine`, and its annotations."""

    def write() -> None:
        Path("raw/images").mkdir(parents=True)
        Path("data").mkdir()
        Path("data/params.yaml").write_text(to_yaml({"datasets": {"mine": toy.changed(changes, COCO)}}))
        if annotations is not None:
            Path("raw/a.json").write_text(annotations)

    return write


def text(file: str, content: str) -> Callable[[], Any]:
    """Return what writes a file."""
    return lambda: Path(file).write_text(content)


def nothing() -> None:
    """Leave the folder empty."""


LONELY = {"images": [{"id": 1, "file_name": "a.jpg", "width": 4, "height": 4}], "annotations": []}
LONELY["categories"] = [{"id": 1, "name": "person"}]
FILES: list[tuple[str, Callable[[], Any], tuple[Any, ...], str]] = [
    ("no recipe", nothing, (train.main, "r.yaml", "runs/x"), "r.yaml: no such file"),
    ("a folder", nothing, (train.main, ".", "runs/x"), ".: no regular file; a YAML file is needed"),
    (
        "an empty recipe",
        text("r.yaml", ""),
        (train.main, "r.yaml", "runs/x"),
        "r.yaml: found nothing, expected a mapping",
    ),
    (
        "a bracket",
        text("r.yaml", "data:\n  train: [1, 2\nseed: 3\n"),
        (train.main, "r.yaml", "runs/x"),
        "r.yaml:3:5: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got ':'",
    ),
    (
        "a key twice",
        text("r.yaml", "seed: 3\nseed: 4\n"),
        (train.main, "r.yaml", "runs/x"),
        "r.yaml:2:1: a key stands twice: seed",
    ),
    ("no annotations", dataset({}), (prepare.main, "mine"), "raw/a.json: no such file"),
    (
        "broken JSON",
        dataset({}, '{"images": ['),
        (prepare.main, "mine"),
        "raw/a.json: not valid JSON at character 12: found no",
    ),
    (
        "no image",
        dataset({}, json.dumps(LONELY)),
        (prepare.main, "mine"),
        "1 image file missing. All are listed in data/prepared/",
    ),
    (
        "a misspelt dataset",
        dataset({}),
        (prepare.main, "mien"),
        "data/params.yaml: datasets.mien: no such dataset (did you mean 'mine'?); there are mine",
    ),
    (
        "a kind",
        dataset({"kind": "cocoo"}),
        (prepare.main, "mine"),
        "data/params.yaml: datasets.mine.kind: found 'cocoo'; expected 'synthetic', 'coco', ",
    ),
    (
        "no section",
        dataset({"coco": ...}),
        (prepare.main, "mine"),
        "datasets.mine: kind is 'coco', so there must be a section 'coco'",
    ),
    (
        "no source",
        dataset({"source": "nowhere"}),
        (prepare.main, "mine"),
        "data/params.yaml: datasets.mine.source: no folder nowhere; bring the raw data there (see data/raw/README.md)",
    ),
    (
        "a share",
        dataset({"coco.shares.validation": 1.2}),
        (prepare.main, "mine"),
        "data/params.yaml: datasets.mine.coco.shares.validation: found 1.2; expected less than 1",
    ),
    (
        "no run to evaluate",
        nothing,
        (eval_dump.main, "r.yaml", "runs/x"),
        "runs/x: no such folder; dvc repro, or dvc pull, makes",
    ),
    (
        "no run to predict with",
        text("r.yaml", "predict: {}"),
        (predict.main, "r.yaml", "runs/x", "a.png", "--output", "o"),
        "runs/x: no such folder; dvc repro, or dvc pull, makes runs/*",
    ),
    (
        "no dump",
        lambda: Path("r.yaml").write_text(to_yaml(toy.recipe())),
        (metrics.main, "r.yaml", "runs/x", "m.json", "p"),
        "runs/x/dump/examples.csv: no such file; run the eval-dump stage first",
    ),
]


@pytest.mark.parametrize(("write", "call", "said"), [one[1:] for one in FILES], ids=[one[0] for one in FILES])
def test_a_wrong_file_gives_this_line(write, call, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write()
    main, *arguments = call
    assert run(main, arguments) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert said in lines[0]
