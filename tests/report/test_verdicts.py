"""Verdicts on figures and curves: planted curves, and gains by hand."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy
from dumps_by_hand import sealed

from figura.dump import Dump
from figura.recipe.expansion import read_recipe
from figura.report.interfaces import Score
from figura.report.results import write_results
from figura.report.verdicts import judge_curves, losses_to_judge, verdict

ROOT = Path(__file__).parents[2]


class MeanOf(Score):
    def __init__(self, column: str) -> None:
        self.column = column

    def __call__(self, dump, bootstrap):
        return {"mean": bootstrap.estimate(dump.mode("m").table[self.column].to_numpy())}


@pytest.mark.parametrize(
    ("low", "high", "word"), [(0.1, 0.5, "better than"), (-0.5, -0.1, "worse than"), (-0.1, 0.5, "no better than"),
    (0.0, 0.0, "no better than"), (0.0, 0.5, "no better than")],
)  # fmt: skip
def test_the_verdict_is_the_side_of_0_on_which_the_interval_is(low, high, word):
    assert verdict({"value": (low + high) / 2, "low": low, "high": high}) == f"{word} the baseline"


OURS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
SHIFTS = [0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2]


@pytest.mark.parametrize(
    ("theirs", "better", "word"),
    [
        ([a - s for a, s in zip(OURS, SHIFTS, strict=True)], "higher", "better than the baseline"),  # paired alone
        ([a - s for a, s in zip(OURS, SHIFTS, strict=True)], "lower", "worse than the baseline"),
        ([2.0, 1.0, 4.0, 3.0, 6.0, 5.0, 8.0, 7.0], "lower", "no better than the baseline"),
    ],
)  # fmt: skip
def test_a_headline_is_judged_beside_its_baseline_pair_by_pair(tmp_path, capsys, theirs, better, word):
    full = judged(tmp_path, OURS, theirs, better)
    sign = 1 if better == "higher" else -1
    assert full["gain"]["it"]["value"] == pytest.approx(sign * float(np.mean(OURS) - np.mean(theirs)), abs=1e-12)
    assert f", baseline {np.mean(theirs):.4g}, {word}\n" in capsys.readouterr().out
    apart = full["ours"]["mean"]["low"], full["theirs"]["mean"]["high"]
    assert apart[0] < apart[1]  # intervals of both overlap, so that only pairs can tell


def test_five_examples_and_one_example_are_too_few_for_a_verdict(tmp_path, capsys):
    for count in (5, 1):
        assert "gain" not in judged(tmp_path / str(count), OURS[:count], [0.0] * count, "higher")
    assert "the baseline" not in capsys.readouterr().out


def judged(folder, ours, theirs, better):
    """Write the results of a dump with two columns; return the full figures."""
    folder.mkdir(exist_ok=True)
    rows = {"mode": "m", "index": range(len(ours)), "loss.ours": ours, "loss.theirs": theirs}
    pd.DataFrame(rows).to_csv(folder / "examples.csv", index=False)
    scores = {name: {"type": "test_verdicts.MeanOf", "column": f"loss.{name}"} for name in ("ours", "theirs")}
    summary = {"it": {"metric": "ours.mean", "beside": "theirs.mean", "better": better}}
    recipe = toy.checked({"metrics.scores": scores, "metrics.pictures": {}, "metrics.summary": summary})
    write_results(recipe, Dump(sealed(folder)), folder / "metrics/toy.json", folder / "plots", "")
    return json.loads((folder / "metrics/full/toy.json").read_text())


STEPS = np.arange(1, 41) * 10


def planted(train, validation=(), steps=STEPS, every=100, **others):
    """Return histories of the loss `a` of weight 1, and of others of weight 1."""
    columns = {"step": steps, "a.raw": train, "a.weight": 1.0}
    for name, values in others.items():
        columns |= {f"{name}.raw": values, f"{name}.weight": 1.0}
    at = np.arange(1, len(validation) + 1) * every
    return pd.DataFrame(columns), pd.DataFrame({"step": at, "a.raw": list(validation)})


DECAY = np.exp(-STEPS / 80)
NOISE = np.random.default_rng(0).normal(1, 0.05, 40)
OVERFITTED = (
    "a: validation rises from step 200 on (0.3 to 0.4), and training still falls: overfitted; keep the best "
    "(`train.keep`), or train fewer steps"
)
LINES = {
    "overfitted": (planted(DECAY, [0.5, 0.3, 0.35, 0.4]), [OVERFITTED]),
    "validation is flat from step 100 on": (
        planted(np.linspace(1, 0, 40), [0.9, 0.5, 0.505, 0.5, 0.498, 0.505, 0.503, 0.504], every=50),
        ["a: validation has not improved since step 100, and training still falls: train fewer steps, or add data"],
    ),
    "rises tenfold and more, and falls a little": (
        planted([4.5, 600, 5e4, 2e4, 5e3, 2e3, 600, 558], [40, 1800, 180], STEPS[:8], b=np.linspace(0.1, 1.5, 8)),
        ["a: rises from 4.5 to 579: diverged; lower the learning rate"],  # the mean of the last two
    ),
    "a smaller loss rises tenfold, as KL does": (planted(DECAY + 1, [1.3, 1.2, 1.1, 1], b=STEPS / 500), []),
    "both are flat from the middle on": (planted(DECAY, [0.5, 0.3, 0.3, 0.3]), []),
    "validation falls with training": (planted(DECAY, [0.5, 0.3, 0.2, 0.15]), []),
    "validation rises by less than 2 % of the fall": (planted(DECAY, [0.5, 0.3, 0.305, 0.31]), []),
    "validation rises, as training does": (planted([*DECAY[:20], *DECAY[:20] + 0.1], [0.5, 0.3, 0.35, 0.4]), []),
    "falls in a line to the end": (
        planted(np.linspace(1, 0, 40), [0.8, 0.5, 0.3, 0.1]),
        ["a: still falls at the end, in the last quarter by 29% of the whole fall: train more steps"],  # 10 / 34.5
    ),
    "stopped at a tenth, four rows": (
        planted([1.0, 0.8, 0.64, 0.5], steps=STEPS[:4]),
        ["a: still falls at the end, in the last quarter by 28% of the whole fall: train more steps"],
    ),
    "three rows say nothing": (planted([1.0, 0.8, 0.6], steps=STEPS[:3]), []),
    "flat with noise": (planted(NOISE), []),
    "rises": (planted(np.linspace(0, 1, 40), [0.1, 0.2, 0.3, 0.4]), []),
    "negative losses": (
        planted(DECAY - 5, [-4.5, -4.7, -4.65, -4.6]),
        [OVERFITTED.replace("0.3 to 0.4", "-4.7 to -4.6")],
    ),
    "another loss fell more": (planted(np.linspace(1, 0, 40), b=5 * DECAY), []),
    "a discriminator's loss fell more": (
        planted(np.linspace(1, 0, 40), D_fake=5 * DECAY),
        ["a: still falls at the end, in the last quarter by 29% of the whole fall: train more steps"],
    ),
    "no validation": (planted(DECAY), []),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_curves_are_judged_as_a_reader_would(case):
    histories, lines = LINES[case]
    assert judge_curves(*histories, {"a", "b"}) == lines


@pytest.mark.parametrize(
    ("path", "others"),
    {
        "params.yaml": set(),
        "recipes/pix2pix.yaml": {"D_real", "D_fake"},
        "recipes/super_resolution.yaml": {"D_real", "D_fake"},
        "recipes/photos/unpaired.yaml": {"D_real_y", "D_fake_y"},
    }.items(),
)
def test_losses_of_networks_that_are_not_evaluated_are_not_judged(path, others):
    recipe = read_recipe(ROOT / path)
    assert set(recipe["losses"]) - losses_to_judge(recipe) == others
