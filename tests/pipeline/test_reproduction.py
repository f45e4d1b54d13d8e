"""The reproduction gate in the real pipeline: an honest rerun passes, an altered metric does not."""

import json
from pathlib import Path

import pytest

from pipeline.project import Project

pytestmark = pytest.mark.slow
GATE = ("figura", "gate", "--markdown", "gate.md")


def test_an_honest_rerun_passes_and_an_altered_metric_fails(project: Project) -> None:
    threads = ("env", "OMP_NUM_THREADS=2")  # other machines add in another order
    done = project.run(*threads, "dvc", "repro", "--force", "--single-item", "train@pix2pix")
    assert "Running stage 'train@pix2pix'" in done.stdout
    project.run(*threads, "dvc", "repro", "metrics@pix2pix")
    table = project.run(*GATE).stdout.splitlines()
    assert " 0 violated, " in table[-1]
    assert all(
        path in "\n".join(table) for path in ("data/prepared/people", "data/prepared/pairs", "vunet.transfer.l1")
    )

    file = project.folder / "metrics/full/pix2pix.json"
    metrics = json.loads(file.read_text())
    l1 = metrics["translation"]["l1"]
    l1["value"] += l1["high"] - l1["low"]  # twice as far as the interval reaches to each side
    file.write_text(json.dumps(metrics))
    done = project.run(*GATE, code=1)
    assert done.stderr.strip().endswith("error: not reproduced: pix2pix.translation.l1")
    assert "| `pix2pix.translation.l1` |" in (project.folder / "gate.md").read_text().partition("<details>")[0]


def test_other_data_fail(project: Project) -> None:
    project.set("data/params.yaml", {"datasets.people.seed": 12345})
    project.run("dvc", "repro", "prepare@people")
    assert "not reproduced: data/prepared/people" in project.run(*GATE, code=1).stderr
    assert Path(project.folder / "gate.md").read_text().startswith("**Reproduction: failed**")
