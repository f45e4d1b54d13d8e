"""The report on revisions: what differs in settings, figures, pictures and trainings; the rest is only named."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import test_compare
import toy
from cached_dumps import Repository

from figura.base.pictures import write_png
from figura.commands.report.command import main
from figura.commands.report.contents import Entry
from figura.commands.report.differences import recipe_differences
from figura.commands.report.page import Fold
from figura.pipeline.revisions import WORKSPACE, Files

ENTRY = Entry("toy", Path("params.yaml"), "ramps")
HISTORY = {"distance.raw": 3.0, "distance.weight": 1.0, "distance.weighted": 3.0, "painter.lr": 0.1}


def write_results(folder: Path, loss: float, level: int) -> dict[str, Path]:
    """Write the history of a loss, and two pictures, one of which has the grey level `level`."""
    (folder / "history").mkdir(parents=True)
    for split in ("train", "validation"):
        rows = [{"step": step, **HISTORY, "distance.raw": loss / step} for step in (1, 2, 3)]
        pd.DataFrame(rows).to_csv(folder / f"history/{split}.csv", index=False)
    for name, grey in (("same", 9), ("worst", level)):
        write_png(folder / f"pictures/{name}.png", np.full((30, 40, 3), grey, np.uint8))
    return {name: folder / name for name in ("history", "pictures")}


def write_metrics(folder: Path, psnr: float, key: str | None = None) -> None:
    """Write the metrics of the recipe, those of a try below `key`."""
    figures = {"pixels": {"psnr": {"value": psnr, "low": psnr - 1, "high": psnr + 1}, "images": 60}}
    summary = {"psnr": figures["pixels"]["psnr"]}
    for path, content in (("metrics/toy.json", summary), ("metrics/full/toy.json", figures)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps({key: content} if key else content))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two commits that differ in everything; the second is the workspace."""
    base = tmp_path_factory.mktemp("results")
    repository = Repository(base / "repository", test_compare.RECIPE)
    for name, shift, weight, psnr in (("before", 0.0, 1.0, 20.0), ("after", 0.08, 2.0, 18.5)):
        repository.write_recipe(toy.changed({"losses.distance.weight": weight}, test_compare.RECIPE))
        write_metrics(repository.folder, psnr)
        dump = test_compare.write_dump(base / f"{name}-dump", test_compare.SHIFT + shift)
        results = write_results(base / name, weight, int(100 * weight))
        repository.commit(name, dump, weight=weight, results=results)
    return repository.folder


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "repository", symlinks=True)
    monkeypatch.chdir(tmp_path / "repository")
    return tmp_path / "repository"


def test_everything_that_differs_is_shown_once(project, capsys):
    Path("gate.md").write_text("a row of the gate\n" * 5000)
    main(["before", "--markdown", "md", "--gate", "gate.md"])
    text = Path("md/report.md").read_text()
    assert text.startswith("# figura: workspace against before\n")
    assert "more lines" in text.partition("## What differs")[0]  # a long part leaves room for what follows
    assert "| `params.yaml` | losses.distance.weight | 1 | 2 |" in text
    assert re.search(r"\*\*workspace differs from before on these images: distance is worse by", text)
    assert "| `distance` | lower | " in text
    assert "| `pixels.psnr` | 20 | 18.5 |" in text
    assert "pixels.images" not in text  # it does not differ
    assert "1 pictures of toy differ, 1 do not" in text
    shown = cv2.imread("md/toy--differing--worst.webp")
    assert shown.shape[1] == 2 * (40 + 12)
    assert [int(shown[-20, x, 0]) for x in (20, 72)] == pytest.approx([100, 200], abs=3)
    for name in ("toy--compared--effects", "toy--compared--changed_in_psnr", "toy--trainings--losses"):
        assert cv2.imread(f"md/{name}.webp").shape[1] > 300
    assert all(Path("md", name).is_file() for name in re.findall(r"!\[[^\n]+\]\(\./([^)]+)\)", text))
    assert "losses of before" not in capsys.readouterr().out
    page = Path("report.html").read_text()
    assert page.count("<figure>") > text.count("![")  # the page also has the workspace as it is
    assert "as it is here" in page
    assert "as it is here" not in text


@pytest.mark.parametrize(("gate", "said"), [("| `toy.l1` | violated |\n", "toy.l1"), (None, "It did not run")])
def test_where_nothing_differs_the_recipe_is_only_named(project, gate, said):
    if gate:
        Path("gate.md").write_text(gate)
    main(["after", "--gate", "gate.md", "--markdown", "md"])
    text = Path("md/report.md").read_text()
    assert said in text.partition("## What differs")[0]
    assert said in Path("report.html").read_text()
    assert "No setting of workspace differs from after." in text
    assert "Nothing differs in toy." in text
    assert "![" not in text


def test_what_is_not_in_the_cache_is_said_and_the_rest_is_shown(project, capsys):
    shutil.rmtree(".dvc/cache")
    write_metrics(project, 30.0, "try")
    main(["before", "--markdown", "md"])
    said = capsys.readouterr().out
    for path in ("runs/toy/dump", "runs/toy/history", "plots/toy/pictures"):
        assert f"toy: not compared: before: {path} is neither whole in DVC's cache nor on a remote" in said
    section = Path("md/report.md").read_text().partition("## toy")[2]
    assert "**A try: its figures are no result.**" in section.partition("<details>")[0]
    main(["after", "before", "--markdown", "md"])  # without the workspace
    assert "| `pixels.psnr` | 18.5 | 20 |" in Path("md/report.md").read_text()


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("metrics/full/toy.json", "{", "metrics/full/toy.json of workspace: not JSON: "),
        ("metrics/full/toy.json", "[1]", "metrics/full/toy.json of workspace: found list, expected a map of "),
        ("plots/toy/pictures/worst.png", "no picture", "plots/toy/pictures/worst.png: no readable picture"),
    ],
)
def test_damaged_results_are_said_and_the_rest_is_shown(project, path, content, said):
    Path(path).write_text(content)
    blocks = recipe_differences(ENTRY, [Files("before"), Files(WORKSPACE)])
    assert any(f"not compared: {said}" in getattr(block, "text", "") for block in blocks)
    assert any(isinstance(block, Fold) and block.title == "Trainings of toy" for block in blocks)


def test_a_new_training_is_drawn_alone(project):
    subprocess.run(["git", "rm", "-q", "dvc.lock"], check=True)
    subprocess.run(["git", "commit", "-qm", "never trained"], check=True)
    subprocess.run(["git", "restore", "--source", "HEAD~1", "dvc.lock"], check=True)
    blocks = recipe_differences(ENTRY, [Files("HEAD"), Files(WORKSPACE)])
    assert any(isinstance(block, Fold) and block.title == "Trainings of toy" for block in blocks)


def test_params_that_dvc_cannot_read_are_listed(project):
    pipeline = Path("dvc.yaml").read_text()
    Path("dvc.yaml").write_text(pipeline.replace("      params:\n", "      params:\n        - mine.yaml: [data]\n"))
    Path("mine.yaml").write_text("data: {shares: {1: 0.5, more: 1}}\n")
    main(["before", "--markdown", "md", "--recipe", "toy"])
    text = " ".join(Path("md/report.md").read_text().replace("\\", "").split())
    assert "this is incomplete:** - mine.yaml of workspace: AttributeError: 'dict' object has no attribute" in text
