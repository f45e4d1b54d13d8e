"""The report of a sweep on what `dvc exp show --json` prints, written by hand."""

import math
from typing import Any

import cv2
import pandas as pd
import pytest

from figura.base.errors import UserError
from figura.commands import sweep_report
from figura.commands.sweep_report import main
from figura.commands.sweeps import read_sweep, table_of, with_files

L1, COUNT = "metrics/vunet.json:reconstruction.l1.value", "metrics/vunet.json:reconstruction.images"


def data(params: dict[str, Any], l1: float, other: float = 2.0) -> dict[str, Any]:
    """Return what DVC shows of a revision: parameters of two files, a metric with an interval and one without."""
    figures = {"reconstruction": {"l1": {"value": l1, "low": l1 - 0.01, "high": l1 + 0.02}, "images": 321}}
    return {
        "params": {
            "params.yaml": {"data": {"seed": 7, "betas": [0.9, 0.99], **params}},
            "recipes/pose.yaml": {"data": {"losses": {"caf": {"weight": other}}}},
            "data/params.yaml": {"error": {"type": "AttributeError", "msg": "not readable"}},
        },
        "metrics": {"metrics/vunet.json": {"data": figures}, "metrics/none.json": {}},
    }


def experiment(name: str, shown: dict[str, Any], state: str | None = "success", fault: str = "") -> dict[str, Any]:
    error = {"msg": fault, "type": ""} if fault else None
    revs = [{"rev": f"{name}00", "name": name, "error": error, "data": shown, "experiments": None}]
    return {"revs": revs, "name": name, "executor": state and {"state": state, "name": "dvc-task", "local": None}}


def weights(kl: Any, steps: int) -> dict[str, Any]:
    return {"losses": {"KL": {"weight": kl}}, "train": {"steps": steps}}


def shown(*experiments: dict[str, Any]) -> list[dict[str, Any]]:
    base = data(weights(1, 100), 0.5)
    return [
        {"rev": "workspace", "name": None, "error": None, "data": base, "experiments": None},
        {"rev": "3801b2ece7", "name": "main", "error": None, "data": base, "experiments": list(experiments)},
    ]


GRID = shown(
    experiment("late", data(weights(2.0, 200), 0.3)),
    experiment("early", data(weights(0, 100), 0.4), None),
    experiment("middle", data(weights(2, 100), 0.45)),
    experiment("first", data(weights(0, 200), 0.35)),
    experiment("broken", data(weights(-1, 100), 0.5), "failed", "Experiment run failed"),
    experiment("waiting", data(weights(4, 100), 0.5), "queued"),
    experiment("now", data(weights(3, 100), 0.5), "running"),
)


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Return a function that reports on what `dvc exp show --json` gives, and returns the table."""

    def reported(content: Any, *arguments: str) -> pd.DataFrame:
        monkeypatch.setattr(sweep_report, "exp_show", lambda rev: content)
        main(["--output", str(tmp_path / "out"), *arguments])
        return pd.read_csv(tmp_path / "out/sweep.csv")

    return reported


def test_metrics_that_dvc_does_not_show_come_from_the_commits():
    files = {
        ("3801b2ece7", "full.json"): '{"psnr": {"value": 30.5, "low": 30, "high": 31}, "name": "x"}',
        ("late00", "full.json"): '{"psnr": {"value": 32.5, "low": 32, "high": 33}}',
    }
    asked = []

    def read(rev, path):
        asked.append(rev)
        return files.get((rev, path))

    sweep = with_files(read_sweep(GRID), ["full.json"], read)
    table = table_of(sweep, ["full.json:psnr.value", L1]).set_index("name")
    assert table.loc["late", "full:psnr.change"] == pytest.approx(2.0)
    assert table.loc["main", "full:psnr.low"] == 30
    assert table["full:psnr"].notna().sum() == 2  # the others have no such file, or no results
    assert sorted(asked) == ["3801b2ece7", "early00", "first00", "late00", "middle00"]
    assert table.loc["late", "vunet:reconstruction.l1"] == pytest.approx(0.3)
    for text, reason in (("# figura", "not JSON"), ("[1]", "found list; expected a map of metrics")):
        with pytest.raises(UserError, match=f"--metric README.md: {reason}"):
            with_files(read_sweep(GRID), ["README.md"], lambda rev, path, text=text: text)


def test_a_row_an_experiment_with_what_differs_and_its_distance_from_the_baseline(report, capsys):
    table = report(GRID, "--metric", L1, "--metric", COUNT)
    assert list(table) == [
        "name", "state", "losses.KL.weight", "train.steps",
        "reconstruction.l1", "reconstruction.l1.low", "reconstruction.l1.high", "reconstruction.l1.change",
        "reconstruction.images", "reconstruction.images.change",
    ]  # fmt: skip
    assert list(table["name"]) == ["main", "broken", "early", "first", "middle", "late", "now", "waiting"]
    assert list(table["state"]) == ["baseline", "failed", "done", "done", "done", "done", "running", "queued"]
    by_name = table.set_index("name")
    assert by_name.loc["late", "reconstruction.l1.change"] == pytest.approx(0.3 - 0.5)
    assert by_name.loc["late", "reconstruction.l1.high"] == pytest.approx(0.32)
    assert by_name.loc["late", "reconstruction.images.change"] == 0
    # what is not done shows the figures of the commit it started from: they are not its own
    assert by_name.loc[["broken", "now", "waiting"], "reconstruction.l1"].isna().all()
    said = capsys.readouterr().out
    assert "0.3 [0.29, 0.32]" in said
    assert "reconstruction.l1: lowest 0.3 (late), highest 0.45 (middle)" in said
    assert "broken failed: Experiment run failed (dvc queue logs broken)" in said


def pixels(tmp_path):
    return cv2.imread(str(tmp_path / "out/sweep.png"))


def test_parameters_that_change_together_are_one_axis():
    kinds = [
        experiment(k, data({"losses": {n: {"kind": k} for n in ("D_real", "D_fake", "G_GAN")}}, 0.1)) for k in "ab"
    ]
    sweep = read_sweep(shown(*kinds))
    assert sweep.varied == ["losses.D_real.kind", "losses.D_fake.kind", "losses.G_GAN.kind"]
    assert sweep.axes == ["losses.D_real.kind"]


def test_one_experiment_is_compared_with_the_baseline(report):
    table = report(shown(experiment("one", data(weights(3, 100), 0.4))), "--metric", L1)
    assert list(table)[:3] == ["name", "state", "losses.KL.weight"]
    assert list(table["losses.KL.weight"]) == [1, 3]


def test_parameters_of_other_files_lists_words_and_what_was_removed(report):
    found = [
        experiment("a", data({"betas": [0.5, 0.9], "kind": "hinge"}, 0.1, other=3.0)),
        experiment("b", data({"kind": True, "more": {"x": 1}}, 0.2, other=3.5)),
        experiment("c", data({"kind": None}, math.nan, other=4.0)),
    ]
    table = report(shown(*found), "--metric", L1).set_index("name")
    assert list(table)[1:5] == ["betas", "kind", "recipes/pose.yaml:losses.caf.weight", "more.x"]
    assert table.loc["a", "betas"] == "[0.5, 0.9]"
    assert table.loc["a", "more.x"] == "-"
    assert math.isnan(table.loc["c", "reconstruction.l1"])  # a figure that is no number is listed and not drawn


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_picture_of_any_number_of_parameters(report, tmp_path, count):
    keys = ["a", "b", "c"][:count]
    drawn = [experiment(f"e{i}", data({k: 10.0 ** (i * (n + 1) % 5) for n, k in enumerate(keys)}, i)) for i in range(5)]
    report(shown(*drawn), "--metric", L1, "--metric", COUNT)
    assert pixels(tmp_path).shape[0] > 600


def test_a_sweep_that_has_not_begun_has_a_table_and_no_picture(report, tmp_path, capsys):
    table = report(shown(experiment("one", data(weights(3, 100), 0.5), "queued")), "--metric", L1)
    assert list(table["state"]) == ["baseline", "queued"]
    assert not (tmp_path / "out/sweep.png").exists()
    assert "no picture" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", [[], {"a": 1}, [{"rev": "x"}], 3, [{"rev": "main", "name": "m", "experiments": [{}]}]]
)
def test_what_is_no_output_of_dvc(report, content):
    with pytest.raises(UserError):
        report(content, "--metric", L1)


def test_some_experiments_of_a_commit_by_name_or_hash():
    table = table_of(read_sweep(GRID, rev="3801b", only="*l*"), [L1])
    assert list(table["name"]) == ["main", "early", "middle", "late"]
    assert table["reconstruction.l1.change"].iloc[3] == pytest.approx(0.3 - 0.5)  # of the value, not of the bounds
    with pytest.raises(UserError, match="--rev dev: no such commit in what `dvc exp show` gave; there are main"):
        read_sweep(GRID, rev="dev")


def test_a_try_is_named_and_has_no_numbers(report, capsys):
    quick = data({"losses": {"KL": {"weight": 9}}, "train": {"steps": 100, "try": True}}, 0.9)
    figures = quick["metrics"]["metrics/vunet.json"]
    figures["data"] = {"try": figures["data"]}
    table = report(shown(experiment("late", data(weights(2.0, 200), 0.3)), experiment("quick", quick)), "--metric", L1)
    assert table.set_index("name")["reconstruction.l1"].isna().to_dict() == {
        "main": False,
        "late": False,
        "quick": True,
    }
    assert "quick: metrics/vunet.json is that of a try, no result" in capsys.readouterr().out
