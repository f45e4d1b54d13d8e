"""Metrics of torchmetrics stand in `metrics.scores` by their own names."""

import numpy as np
import pytest
import torchmetrics
import toy

from figura.base.errors import UserError
from figura.dump import Dump
from figura.evaluation.evaluate import Evaluation
from figura.report.interfaces import Bootstrap
from figura.report.metrics import compute_metrics
from figura.training.trainer import Trainer

ROLES = {"mode": "plain", "inputs": {"preds": "image", "target": "y"}}


@pytest.fixture(scope="module", params=["array", "image"])
def dump(request, tmp_path_factory) -> Dump:
    """A dump of the toy recipe, of arrays or of pictures."""
    run = tmp_path_factory.mktemp("run")
    trainer = Trainer(toy.checked({"evaluate.modes.plain.save": dict.fromkeys(("image", "y"), request.param)}), run)
    Evaluation(trainer.recipe, trainer.networks.ema, run / "dump", trainer.accelerator).write()
    return Dump(run / "dump")


def score(entry, dump=None):
    recipe = toy.checked({"metrics.scores": {"it": entry}})
    return recipe if dump is None else compute_metrics(recipe, dump)["it"]


def errors(dump) -> list[float]:
    rows = dump.mode("plain")
    return [float(np.square(row["image"] - row["y"]).mean(dtype=np.float64)) for row in rows]


def test_a_mean_over_examples_has_an_interval(dump):
    found = score({"type": "torchmetrics.MeanSquaredError"} | ROLES, dump)
    assert found["value"]["value"] == pytest.approx(np.mean(errors(dump)), rel=1e-5)
    assert found["value"]["low"] < found["value"]["value"] < found["value"]["high"]
    assert found["examples"] == 6
    drawn = dump.rows(dump.table.assign(index=[0, 0, 1, 1, 2, 2]))  # two draws of each of three
    recipe = toy.checked()
    bootstrap = Bootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    expected = bootstrap.estimate(np.array(errors(dump)), groups="aabbcc")
    assert score({"type": "torchmetrics.MeanSquaredError"} | ROLES, drawn)["value"] == pytest.approx(expected, rel=1e-4)


def test_any_other_metric_is_a_number(dump):
    """The ratio of all pixels together, not the mean of the examples' ratios."""
    found = score({"type": "torchmetrics.image.PeakSignalNoiseRatio", "data_range": 2.0} | ROLES, dump)
    assert found["value"] == pytest.approx(10 * np.log10(4 / np.mean(errors(dump))), rel=1e-5)
    assert found["value"] != pytest.approx(np.mean(10 * np.log10(4 / np.array(errors(dump)))), rel=1e-5)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"type": "torchmetrics.MeanSquaredEror"}, "(did you mean 'torchmetrics.MeanSquaredError'?)"),
        ({"squard": True}, "(did you mean 'squared'?)"),
        ({"mode": "plane"}, "(did you mean 'plain'?)"),
        ({"inputs": {"preds": "image"}}, "metrics.scores.it.inputs.target: missing"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(entry, said):
    with pytest.raises(UserError) as told:
        score({"type": "torchmetrics.MeanSquaredError"} | ROLES | entry)
    assert said in str(told.value)


def test_what_the_metric_refuses_is_told_in_a_line(dump):
    with pytest.raises(UserError) as told:
        score({"type": "torchmetrics.classification.BinaryAccuracy"} | ROLES, dump)
    (line,) = str(told.value).splitlines()
    assert line.startswith(f"toy.yaml: metrics.scores.it: {dump.folder}: mode 'plain': ")


def test_a_package_that_a_metric_misses_is_told(dump, monkeypatch):
    """As torchvision of DeepImageStructureAndTextureSimilarity, which is loaded with the first picture."""

    def update(self, preds, target):
        raise ModuleNotFoundError("DISTS requires torchvision to be installed.")

    monkeypatch.setattr(torchmetrics.MeanSquaredError, "update", update)
    with pytest.raises(UserError, match="mode 'plain': DISTS requires torchvision to be installed"):
        score({"type": "torchmetrics.MeanSquaredError"} | ROLES, dump)
