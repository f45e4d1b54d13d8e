"""The entries of docs/recipes/unpaired.md add both recipes to the DAG, where their figures stand beside baselines."""

import json
import re

import pytest

from figura.base.yaml12 import parse_yaml
from pipeline.dag import ROOT, recipes, stages_of
from pipeline.project import Project
from pipeline.test_dag import ran
from pipeline.tiny_settings import tiny

pytestmark = pytest.mark.slow


def add_entries(project: Project) -> None:
    """Add the page's entries, and those of CUT as it says, to data/params.yaml and dvc.yaml."""
    page = (ROOT / "docs/recipes/unpaired.md").read_text(encoding="utf-8")
    (data,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    entry = parse_yaml(data, "page")["datasets"]["day_night"]
    project.set("data/params.yaml", {"datasets.day_night": entry})
    blocks = dict(re.findall(r"^    # in dvc.yaml, (\w+)\n((?:    .*\n)+)", page, re.MULTILINE))
    both = {name: block + block.replace("cyclegan", "cut") for name, block in blocks.items()}
    path = project.folder / "dvc.yaml"
    text = path.read_text()
    for name, after in (("recipes", "  - pose_consistency:\n"), ("pose_consistency", "\nstages:\n")):
        text = text.replace(after, re.sub("(?m)^(?=.)", "  ", both[name]) + after, 1)
    path.write_text(text)


def test_the_page_adds_both_recipes_to_the_dag(project: Project) -> None:
    add_entries(project)
    settings = tiny(project.folder)
    for file in ("data/params.yaml", *(recipes(project.folder)[name]["params"] for name in ("cyclegan", "cut"))):
        project.set(file, settings[file])
    new = stages_of("cyclegan") | stages_of("cut")
    new |= {"prepare@day_night", "pose-consistency@cyclegan", "pose-consistency@cut"}
    assert ran(project.run("dvc", "repro").stdout) == new
    for name in ("cyclegan", "cut"):
        summary = json.loads((project.folder / f"metrics/{name}.json").read_text())
        assert {*summary} == {"frechet", "psnr"}
        assert all("baseline" in figure for figure in summary.values())
        # a judge of twelve iterations finds nobody by day, and skips the comparison
        assert (project.folder / f"metrics/full/pose_consistency_{name}.json").is_file()
