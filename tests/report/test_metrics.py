"""Scores and pictures that have nothing to judge are left out, with a line that says why."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from dumps_by_hand import sealed

from figura.base.errors import UserError
from figura.dump import Dump
from figura.report.interfaces import NotApplicableError, Picture, Score, rows_where
from figura.report.metrics import compute_metrics, draw_pictures, summarize
from figura.report.results import write_results

ROOT = Path(__file__).parents[2]
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


THIRD = {"share": {"value": 0.5, "low": 0.25, "high": 0.75}}


class Third(Score):
    def __call__(self, dump, bootstrap):
        return THIRD


class BrokenPicture(Picture):
    def __call__(self, dump, path):
        raise UserError("no picture")


class Wrong(Score):
    def __call__(self, dump, bootstrap):
        return {"head": {"error": 0.5, "errors": 1}, "error": {"value": 1.0, "low": 0.5, "high": 2.0}}


@pytest.fixture
def dump(tmp_path):
    pd.DataFrame([{"mode": "m", "index": 0}]).to_csv(tmp_path / "examples.csv", index=False)
    return Dump(sealed(tmp_path))


def test_what_has_nothing_to_judge_is_left_out(dump, tmp_path, capsys):
    assert compute_metrics(toy.checked(CHANGES), dump) == {"plain": {"rows": 1}}
    draw_pictures(toy.checked(CHANGES), dump, tmp_path)
    assert (tmp_path / "plain.png").is_file()
    assert not (tmp_path / "pairs.png").exists()
    said = [f"metrics.{kind}.pairs: left out: {LACK}" for kind in ("scores", "pictures")]
    assert capsys.readouterr().out.splitlines() == said
    draw_pictures(toy.checked({**CHANGES, "metrics.pictures.plain": ...}), dump, tmp_path / "plots/pictures")
    assert list((tmp_path / "plots/pictures").iterdir()) == []


class Failing(Score):
    def __call__(self, dump, bootstrap):
        raise UserError("cannot judge this")


class Endless(Score):
    def __call__(self, dump, bootstrap):
        return {"mean": float("inf")}


class OfNumpy(Score):
    def __call__(self, dump, bootstrap):
        return {"mean": np.float32(0.5), "nested": {"sum": torch.ones(())}}


class Bare(Score):
    def __call__(self, dump, bootstrap):
        return 0.5


class Vector(Score):
    def __call__(self, dump, bootstrap):
        return {"mean": np.ones(3)}


def test_scores_that_json_cannot_hold_are_errors(dump):
    types = {"bare": "Bare", "vector": "Vector"}
    changes = {**CHANGES, "metrics.scores": {name: {"type": f"test_metrics.{kind}"} for name, kind in types.items()}}
    recipe = toy.checked(changes)
    with pytest.raises(UserError) as caught:
        compute_metrics(recipe, dump)
    assert str(caught.value).splitlines() == [
        f"{recipe.path}: metrics.scores.bare: gives a float; a score gives a map of numbers by their names",
        f"{recipe.path}: metrics.scores.vector: its metric 'mean' is a ndarray; expected a number",
    ]


def test_numbers_of_numpy_and_pytorch_are_numbers(dump):
    recipe = toy.checked({**CHANGES, "metrics.scores": {"of_numpy": {"type": "test_metrics.OfNumpy"}}})
    found = json.dumps(compute_metrics(recipe, dump))
    assert found == '{"of_numpy": {"mean": 0.5, "nested": {"sum": 1.0}}}'


def test_what_fails_takes_nothing_else_with_it(dump, tmp_path, capsys):
    types = {"broken": "Failing", "endless": "Endless", "pairs": "Pairs", "plain": "Rows", "third": "Third"}
    changes = {**CHANGES, "metrics.scores": {name: {"type": f"test_metrics.{kind}"} for name, kind in types.items()}}
    changes["metrics.pictures"] = {"plain": {"type": "test_metrics.BrokenPicture"}}
    changes["metrics.summary"] = {"it": {"metric": "pairs.rows", "better": "lower"}}
    recipe = toy.checked(changes)
    with pytest.raises(UserError) as caught:
        write_results(recipe, dump, tmp_path / "metrics/toy.json", tmp_path / "plots", "")
    assert str(caught.value).splitlines() == [
        f"{recipe.path}: metrics.scores.broken: cannot judge this",
        f"{recipe.path}: metrics.scores.endless: its metric 'mean' is inf; a score leaves out what it cannot compute",
        f"{recipe.path}: metrics.pictures.plain: no picture",
    ]
    assert json.loads((tmp_path / "metrics/full/toy.json").read_text()) == {"plain": {"rows": 1}, "third": THIRD}
    assert json.loads((tmp_path / "metrics/toy.json").read_text()) == {}
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"metrics.summary: none of its metrics could be computed; {tmp_path}/metrics/full/toy.json has others, such as "
        "third.share 0.5"
    )


def test_a_key_with_which_dvc_takes_metrics_for_unreadable_is_refused(dump):
    recipe = toy.checked(CHANGES)
    with pytest.raises(UserError) as caught:
        compute_metrics(recipe, dump, {"wrong": Wrong(), "plain": Rows()})
    reason = "a metrics file with a key 'error' counts as unreadable: rename it"
    assert str(caught.value).splitlines() == [
        f"{recipe.path}: metrics.scores.wrong: it writes the metric {metric!r}; {reason}"
        for metric in ("head.error", "error")
    ]


FULL = {
    "new": {"l1": {"value": 0.5, "low": 0.4, "high": 0.6}, "parts": {"nose": 2}, "count": 7},
    "old": {"l1": {"value": 0.8, "low": 0.7, "high": 0.9}},
}


def summary_of(entries, metrics, say=print):
    """Summarize by a recipe whose scores are `new`, `old` and `absent`."""
    score = {"type": "toy.Mean", "column": "loss.distance"}
    scores = dict.fromkeys(("distance", "new", "old", "absent"), score)
    summary = {name: {"better": "lower", **entry} for name, entry in entries.items()}
    return summarize(toy.checked({"metrics.scores": scores, "metrics.summary": summary}), metrics, say)


def test_a_summary_has_few_numbers_and_what_they_are_beside():
    entries = {
        "l1": {"metric": "new.l1", "beside": "old.l1"},
        "alone": {"metric": "new.l1"},
        "nose": {"metric": "new.parts.nose", "beside": "new.count"},
        "gone": {"metric": "absent.l1"},
        "lone": {"metric": "new.l1", "beside": "absent.l1"},
    }
    said = []
    assert summary_of(entries, FULL, said.append) == {
        "l1": {"value": 0.5, "low": 0.4, "high": 0.6, "baseline": 0.8},
        "alone": {"value": 0.5, "low": 0.4, "high": 0.6},
        "nose": {"value": 2, "baseline": 7},
        "lone": {"value": 0.5, "low": 0.4, "high": 0.6},
    }
    assert said == ["metrics.summary.gone: left out, as its score is"]


def test_the_recipes_show_at_most_six_numbers_each():
    files = ["params.yaml", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "recipes").rglob("*.yaml"))]
    for file in (file for file in files if not file.startswith("recipes/shared/")):
        summary = toy.shipped(file)["metrics"]["summary"]
        plain = [entry["metric"].endswith(".value") for entry in summary.values()]  # a number without an interval
        numbers = [(1 if one else 3) + ("beside" in e) for one, e in zip(plain, summary.values(), strict=True)]
        assert 1 <= sum(numbers) <= 6, file


def test_rows_where_a_number_is_not_zero(tmp_path):
    table = pd.DataFrame({"mode": "m", "index": range(5), "seen": [1, 0, None, 2, 0], "never": 0})
    rows = Dump(tmp_path, table, "m")
    assert rows_where(rows, "m", "seen").table["index"].tolist() == [0, 3]
    assert rows_where(rows, "m", "seen").part == "m"
    assert rows_where(rows, "m", None) is rows
    with pytest.raises(NotApplicableError, match=r"^never holds for none of the 5 examples of mode 'm'$"):
        rows_where(rows, "m", "never")
    with pytest.raises(UserError, match=r"has no number 'sen' \(did you mean 'seen'\?\)") as raised:
        rows_where(rows, "m", "sen")
    assert not isinstance(raised.value, NotApplicableError)
