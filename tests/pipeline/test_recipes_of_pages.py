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


def test_the_page_of_unpaired_translation(project: Project) -> None:
    add_entries(project, "unpaired.md", "cyclegan", "cut")
    new = stages_of("cyclegan") | stages_of("cut")
    new |= {"prepare@day_night", "pose-consistency@cyclegan", "pose-consistency@cut"}
    assert ran(project.run("dvc", "repro").stdout) == new
    for name in ("cyclegan", "cut"):
        summary = json.loads((project.folder / f"metrics/{name}.json").read_text())
        assert {*summary} == {"frechet", "psnr"}
        assert all("baseline" in figure for figure in summary.values())
        # a judge of twelve iterations finds nobody by day, and skips the comparison
        assert (project.folder / f"metrics/full/pose_consistency_{name}.json").is_file()


def test_the_page_of_flow_matching(project: Project) -> None:
    add_entries(project, "flow.md", "flow")
    assert ran(project.run("dvc", "repro").stdout) == stages_of("flow") | {"pose-consistency@flow"}
    summary = json.loads((project.folder / "metrics/flow.json").read_text())
    assert {*summary} == {"l1_person", "frechet"}
    assert all("baseline" in figure for figure in summary.values())
    judged = json.loads((project.folder / "metrics/full/pose_consistency_flow.json").read_text())
    assert {"reconstruction", "transfer", "foreign", "prior"} <= judged.keys()
