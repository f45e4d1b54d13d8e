"""What the gate says about the examples and files behind a failing row."""

import hashlib
from pathlib import Path

import pandas as pd
import pytest
from dumps_by_hand import sealed

from figura.base.errors import UserError
from figura.commands.ci import check_reproduction
from figura.commands.ci.instances import compare_examples, differing_examples, differing_files
from figura.commands.compare.revisions import Files

DVC_YAML = """
vars:
  - recipes:
      toy: {params: toy.yaml}
"""
RECIPE = """
metrics:
  scores:
    drawing: {type: images.Fidelity, mode: plain}
    other: {type: toy.Mean, column: loss.l1}
"""
LOCK = """
stages:
  prepare@people: {cmd: p, outs: [{path: data/prepared/people, hash: md5, md5: 1.dir}]}
  eval-dump@toy: {cmd: e, outs: [{path: runs/toy/dump, hash: md5, md5: 2.dir}]}
"""


class Revision(Files):
    """The files of a revision, by path."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.name, self.files, self.lost = "HEAD", files, False

    def read(self, path):
        if self.lost:
            raise UserError(f"HEAD: {path} is neither whole in DVC's cache nor on a remote")
        return self.files.get(path)

    def hashes(self, folder):
        hashed = {path: hashlib.md5(content).hexdigest() for path, content in self.files.items()}
        return {path: md5 for path, md5 in hashed.items() if path.startswith(f"{folder}/")}


def table(**columns):
    """Ten rows of the mode `plain` and two of `other`, whose losses are 0.1, 0.2, ..."""
    rows = [
        {"mode": mode, "draw": 0, "index": i, "dataset": "people", "image_id": 100 + i, "loss.l1": 0.1 * (i + 1)}
        for mode, count in (("plain", 10), ("other", 2))
        for i in range(count)
    ]
    return pd.DataFrame(rows).assign(**{"ms.network": 1.0, "people": 3.0}).assign(**columns)


def written(frame):
    return frame.to_csv(index=False).encode()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder: a recipe, a dump whose examples 3 and 7 of `plain` differ, and prepared data."""
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text(DVC_YAML)
    Path("toy.yaml").write_text(RECIPE)
    now = table(**{"ms.network": 5.0})
    now.loc[3, "loss.l1"], now.loc[7, "people"] = 1.0, 4.0
    Path("runs/toy/dump").mkdir(parents=True)
    Path("runs/toy/dump/examples.csv").write_bytes(written(now))
    sealed(Path("runs/toy/dump"))
    Path("data/prepared/people").mkdir(parents=True)
    for name in ("same", "other", "new"):
        Path("data/prepared/people", name).write_text(name)


REVISION = Revision(
    {
        "runs/toy/dump/examples.csv": written(table()),
        "data/prepared/people/same": b"same",
        "data/prepared/people/other": b"before",
        "data/prepared/people/gone": b"gone",
        "dvc.lock": LOCK.encode(),
    }
)
# the losses of `plain` have a standard deviation of 0.303; `people` is constant
SAME = "the dump is the same, and metrics are computed from it differently"
LINES = [
    "runs/toy/dump, mode plain: 2 of 10 examples differ",
    "  index 3, image_id 103: loss.l1 0.4 -> 1, 2 sd",
    "  index 7, image_id 107: people 3 -> 4, 1 sd",
]


def test_examples_that_differ_most_are_named_with_their_ids():
    assert differing_examples(REVISION, "toy", ["drawing"]) == LINES


def test_a_score_that_names_no_mode_is_of_all_modes():
    assert differing_examples(REVISION, "toy", ["other"]) == [
        *LINES,
        f"runs/toy/dump, mode other: 0 of 2 examples differ: {SAME}",
    ]


def test_rows_that_one_side_lacks_are_counted():
    (line,) = compare_examples(table()[:10], table()[2:9], "d")
    assert line == "d: 0 of 10 examples differ; 3 are missing, 0 are new"


def test_files_of_data_that_differ_are_named():
    assert differing_files(REVISION, "data/prepared/people") == [
        "data/prepared/people: 3 of 4 files differ",
        "  data/prepared/people/gone: missing",
        "  data/prepared/people/new: new",
        "  data/prepared/people/other",
    ]


def test_what_is_not_in_the_cache_is_said():
    """As in a fresh clone whose pipeline ran, where no remote has what the other revision computed."""
    table = "runs/toy/dump/examples.csv"
    assert differing_examples(Revision({}), "toy", ["drawing"]) == [f"HEAD: it has no {table}, so nothing is named"]
    revision = Revision({})
    revision.lost = True
    (line,) = differing_examples(revision, "toy", ["drawing"])
    assert line == f"HEAD: {table} is neither whole in DVC's cache nor on a remote; so nothing is named"


def test_metrics_and_data_that_fail_lead_to_their_instances():
    named = check_reproduction.differing_instances
    assert named(["toy.drawing.l1", "toy.drawing.psnr.x", "elsewhere.score.l1"], REVISION) == LINES
    assert named(["data/prepared/people"], REVISION)[0] == "data/prepared/people: 3 of 4 files differ"
    assert named([], REVISION) == []
