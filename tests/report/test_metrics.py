"""Scores and pictures that have nothing to judge are left out, with a line that says why."""

import json

import pandas as pd
import pytest
import toy

from models.base.errors import UserError
from models.dump import Dump
from models.report.interfaces import NotApplicableError, Picture, Score
from models.report.metrics import compute_metrics, draw_pictures

LACK = "no person is seen twice"
CHANGES = {
    "metrics.scores": {"plain": {"type": "test_metrics.Rows"}, "pairs": {"type": "test_metrics.Pairs"}},
    "metrics.pictures": {"plain": {"type": "test_metrics.Dot"}, "pairs": {"type": "test_metrics.NoPicture"}},
}


class Rows(Score):
    def __call__(self, dump, bootstrap):
        return {"rows": len(dump)}


class Pairs(Score):
    def __call__(self, dump, bootstrap):
        raise NotApplicableError(LACK)


class Dot(Picture):
    def __call__(self, dump, path):
        path.write_text(".")


class NoPicture(Picture):
    def __call__(self, dump, path):
        raise NotApplicableError(LACK)


class Faulty(Score):
    def __call__(self, dump, bootstrap):
        raise UserError("the dump is damaged")


@pytest.fixture
def dump(tmp_path):
    pd.DataFrame([{"mode": "m", "index": 0}]).to_csv(tmp_path / "examples.csv", index=False)
    return Dump(tmp_path)


def test_a_score_without_anything_to_judge_is_left_out(dump):
    said = []
    assert compute_metrics(toy.checked(CHANGES), dump, say=said.append) == {"plain": {"rows": 1}}
    assert said == [f"metrics.scores.pairs: left out: {LACK}"]


def test_a_picture_likewise(dump, tmp_path, capsys):
    draw_pictures(toy.checked(CHANGES), dump, tmp_path)
    assert (tmp_path / "plain.png").is_file()
    assert not (tmp_path / "pairs.png").exists()
    assert capsys.readouterr().out == f"metrics.pictures.pairs: left out: {LACK}\n"


def test_a_fault_is_a_fault(dump):
    with pytest.raises(UserError, match="damaged"):
        compute_metrics(toy.checked(CHANGES), dump, {"faulty": Faulty()})
    assert json.dumps(compute_metrics(toy.checked(CHANGES), dump, {})) == "{}"
