"""A comment in a file makes stale what runs the file, with the real `dvc status`: bench/stale_stages.py."""

import re

import pytest

from bench.stale_stages import FILES
from pipeline.dag import consistency, recipes
from pipeline.project import Project

pytestmark = pytest.mark.slow


def of_all(*stages: str) -> set[str]:
    """Return the instances of stages for all recipes."""
    return {f"{stage}@{recipe}" for stage in stages for recipe in recipes()}


JUDGED = {f"pose-consistency@{name}" for name in consistency()}
EXPECTED = {
    "tools/describe/diagram.py": set(),
    "tools/sweeps.py": set(),
    "tools/predict.py": set(),
    "ci/check_reproduction.py": set(),
    "models/live/samples.py": set(),
    "models/report/sheets.py": JUDGED | of_all("metrics"),
    "models/images/report/scores.py": of_all("metrics"),
    "models/pose/report/plots.py": JUDGED | {"metrics@pose"},
    "models/pose/decode/cifcaf.py": JUDGED | {"eval-dump@pose"},
    "models/pose/train/encoders.py": JUDGED | {"train@pose", "eval-dump@pose"},
    "models/vunet/train/blocks.py": {"train@vunet", "eval-dump@vunet"},
    "models/images/losses/pixel.py": JUDGED | of_all("train", "eval-dump"),
    "models/training/trainer.py": of_all("train"),
    "stages/metrics.py": of_all("metrics"),
}


def test_a_comment_makes_stale_exactly_what_runs_its_file(project: Project) -> None:
    printed = project.run("python", "-m", "bench.stale_stages").stdout
    rows = dict(re.findall(r"^\| (\S+\.py) \| (.*) \|$", printed, re.MULTILINE))
    stale = {file: set() if stages == "nothing" else set(stages.split(", ")) for file, stages in rows.items()}
    assert list(stale) == list(FILES)
    assert stale == EXPECTED
