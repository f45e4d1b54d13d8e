"""The entries of the pages of recipes outside the DAG add them to it, where their figures stand beside baselines."""

import json
import re

import pytest

from figura.base.yaml12 import parse_yaml
from pipeline.dag import ROOT, recipes, stages_of
from pipeline.project import Project
from pipeline.test_dag import ran
from pipeline.tiny_settings import tiny

pytestmark = pytest.mark.slow


def add_entries(project: Project, page: str, *names: str) -> None:
    """Add the entries of a page of docs/recipes to data/params.yaml and dvc.yaml, also for recipes beside the first."""
    text = (ROOT / "docs/recipes" / page).read_text(encoding="utf-8")
    for data in re.findall(r"^```yaml\n(# in data/params.yaml\n.*?)^```", text, re.MULTILINE | re.DOTALL):
        for name, entry in parse_yaml(data, "page")["datasets"].items():
            project.set("data/params.yaml", {f"datasets.{name}": entry})
    blocks = dict(re.findall(r"^    # in dvc.yaml, (\w+)\n((?:    .*\n)+)", text, re.MULTILINE))
    every = {key: "".join(block.replace(names[0], name) for name in names) for key, block in blocks.items()}
    path = project.folder / "dvc.yaml"
    text = path.read_text()
    for key, after in (("recipes", "  - pose_consistency:\n"), ("pose_consistency", "\nstages:\n")):
        text = text.replace(after, re.sub("(?m)^(?=.)", "  ", every[key]) + after, 1)
    path.write_text(text)
    settings = tiny(project.folder)
    for file in ("data/params.yaml", *(recipes(project.folder)[name]["params"] for name in names)):
        project.set(file, settings[file])


def test_they_join_the_dag_and_their_figures_stand_beside_baselines(project: Project) -> None:
    add_entries(project, "unpaired.md", "cyclegan", "cut")
    add_entries(project, "flow.md", "flow")
    figures = {"cyclegan": {"frechet", "psnr"}, "cut": {"frechet", "psnr"}, "flow": {"l1_person", "frechet"}}
    new = [stages_of(name) | {f"pose-consistency@{name}"} for name in figures]
    assert ran(project.run("dvc", "repro").stdout) == {"prepare@day_night"}.union(*new)
    for name, expected in figures.items():
        summary = json.loads((project.folder / f"metrics/{name}.json").read_text())
        assert summary.keys() == expected
        assert all("baseline" in figure for figure in summary.values())
        # a judge of twelve iterations finds nobody by day, and skips the comparison
        judged = json.loads((project.folder / f"metrics/full/pose_consistency_{name}.json").read_text())
        assert name != "flow" or {"reconstruction", "transfer", "foreign", "prior"} <= judged.keys()
