"""`figura race`: which settings there are, which of them stop at a rung, and what is refused."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from dvc.utils.hydra import apply_overrides

from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml, read_yaml, to_yaml
from figura.commands.race import main
from figura.commands.rungs import on_validation, settings_of, standings
from figura.recipe.schema_check import check_schema
from figura.report.resampling import PairedBootstrap

ROOT = Path(__file__).parents[2]
POSE = Path("recipes/pose.yaml")
BOOTSTRAP = PairedBootstrap(400, 0.95, 5)
BASE = np.random.default_rng(3).normal(5, 1, 60)
EITHER = np.tile([0.1, -0.1], 30)  # differences of pairs of images whose mean is 0


def estimates(**away):
    """Return an estimate for each seed of each setting, from differences to `BASE`."""
    return {name: [BOOTSTRAP.estimate(BASE + one) for one in seeds] for name, seeds in away.items()}


def test_what_is_worse_and_not_in_the_better_half_stops():
    found = standings(
        estimates(worst=[0.3], best=[0.0], second=[0.1], third=[0.2], unsure=[EITHER + 0.015]), "lower", BOOTSTRAP, 0.0
    )
    assert list(found) == ["best", "unsure", "second", "third", "worst"]
    assert {name: (one.worse, one.goes_on) for name, one in found.items()} == {
        "best": (False, True),
        "unsure": (False, True),
        "second": (True, True),  # the third of five
        "third": (True, False),
        "worst": (True, False),
    }
    assert found["worst"].cells == (f"{BASE.mean() + 0.3:.4g}", "+0.3", "[+0.3, +0.3]", "stops")
    assert found["second"].cells[1:] == ("+0.1", "[+0.1, +0.1]", "worse, better half")
    assert found["unsure"].cells[1] == "+0.015"
    assert found["unsure"].cells[3] == "no worse"
    assert found["best"].cells[1:] == ("", "", "best")


def test_seeds_that_differ_more_than_settings_keep_them_in_the_race():
    alike = estimates(best=[-0.01, 0.01], other=[0.19, 0.21])  # 0.2 apart; seeds by 0.02
    assert not standings(alike, "lower", BOOTSTRAP, 0.0)["other"].goes_on
    apart = estimates(best=[-0.2, 0.2], other=[0.0, 0.4])
    other = standings(apart, "lower", BOOTSTRAP, 0.0)["other"]
    assert other.goes_on
    assert other.effect.difference == pytest.approx(0.2)
    # variances 0.08 of both, pooled over 2 degrees of freedom; Student's t has 4.303 there; images add none
    half = 4.303 * np.sqrt(0.08 * (1 / 2 + 1 / 2))
    assert other.effect.seeds == pytest.approx((0.2 - half, 0.2 + half), abs=1e-3)


def test_a_difference_below_the_margin_stops_nothing():
    away = {"best": [-0.01, 0.01], "other": [0.19, 0.21]}  # 0.2 [0.139, 0.261]
    for better, sign in (("lower", 1), ("higher", -1)):
        given = estimates(**{name: [sign * one for one in seeds] for name, seeds in away.items()})
        stops = {margin: not standings(given, better, BOOTSTRAP, margin)["other"].goes_on for margin in (0.1, 0.15)}
        assert stops == {0.1: True, 0.15: False}


def test_one_example_stops_nobody():
    one = {name: [BOOTSTRAP.estimate(np.array([value]))] for name, value in (("best", 1.0), ("other", 1.2))}
    with pytest.raises(UserError, match="a single example, or group of them, judges the settings"):
        standings(one, "lower", BOOTSTRAP, 0.1)


def test_intervals_hold_for_all_pairs_of_settings_at_once():
    """With six settings there are 15 pairs, and Student's t of 1 - 0.05 / 15 with 6 degrees of freedom is 4.698."""
    found = standings(estimates(**{str(n): [n - 0.1, n + 0.1] for n in range(6)}), "lower", BOOTSTRAP, 0.0)
    half = 4.698 * np.sqrt(0.02 * (1 / 2 + 1 / 2))
    assert found["5"].effect.seeds == pytest.approx((5 - half, 5 + half), abs=1e-3)


@pytest.mark.slow
def test_equal_settings_stop_in_no_more_races_than_the_confidence_says():
    """Of 6 settings with 3 seeds, the best and the worst of 200 grids; without the correction, 30 % of races."""
    random, stopped = np.random.default_rng(1), 0
    for _ in range(200):
        grid = {str(n): [random.normal() + random.normal(0, 0.1, 60) for _ in range(3)] for n in range(6)}
        stopped += any(not one.goes_on for one in standings(estimates(**grid), "lower", BOOTSTRAP, 0.0).values())
    assert stopped <= 0.08 * 200


def test_a_grid_is_crossed_and_seeds_belong_to_their_setting():
    grid = ["losses.caf.weight=1,2", "seed=1,2", "data/params.yaml:datasets.people.seed=3"]
    settings = settings_of(grid, "pose", POSE)
    assert list(settings) == [f"losses.caf.weight={n} data/params.yaml:datasets.people.seed=3" for n in (1, 2)]
    first = settings["losses.caf.weight=1 data/params.yaml:datasets.people.seed=3"]
    name = "race-pose-losses.caf.weight=1-seed={}-data_params.yaml_datasets.people.seed=3"
    assert first == {
        name.format(seed): [
            "recipes/pose.yaml:losses.caf.weight=1",
            f"recipes/pose.yaml:seed={seed}",
            "data/params.yaml:datasets.people.seed=3",
        ]
        for seed in (1, 2)
    }


def test_git_takes_the_names_of_experiments():
    for grid in ("losses.caf.weight=1.,2.", "networks.network.backbone.file=../a..b,c"):
        for seeds in settings_of([grid], "pose", POSE).values():
            for name in seeds:
                subprocess.run(["git", "check-ref-format", f"refs/exps/{name}"], check=True)


@pytest.mark.parametrize("file", ["params.yaml", "recipes/pix2pix.yaml", "recipes/super_resolution.yaml", str(POSE)])
def test_rungs_of_our_recipes_are_judged_on_validation(file):
    recipe = check_schema(read_yaml(ROOT / file), ROOT / file)
    (dataset,) = recipe.evaluate.data
    assert on_validation(recipe) == [f"++evaluate.data.{dataset}.split=validation"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--recipe": "vnet"}, "--recipe vnet: dvc.yaml has no such recipe"),
        ({"--metric": "psnr"}, "--metric psnr: metrics.summary of params.yaml has l1_person"),
        ({"--rungs": "200,2200"}, "--rungs 200,2200: expected rising iterations below train.steps, 2,200"),
        ({"--rungs": "half"}, "--rungs half: expected rising iterations"),
        ({"-S": "seed=1,2"}, "-S: one setting"),
        ({"-S": "losses.KL.weight=1,1"}, "-S: losses.KL.weight=1 stands twice"),
        ({"-S": "losses.KL.weight=1,(2"}, "-S: Error parsing override"),
        ({"-S": "train.steps=100,200"}, "-S train.steps: the race sets it"),
        ({}, "--margin: with one seed a setting, nothing says how much l1_person differs between equal trainings"),
        ({"--margin": "-1"}, "--margin -1: expected 0 or more, in the unit of l1_person"),
        ({"--margin": "nan"}, "--margin nan: expected 0 or more"),
    ],
)
def test_what_cannot_be_raced_is_refused(changes, message, monkeypatch):
    monkeypatch.chdir(ROOT)
    options = {"--recipe": "vunet", "--metric": "l1_person", "--rungs": "200", "-S": "losses.KL.weight=1,2"}
    with pytest.raises(UserError) as refused:
        main([word for option in (options | changes).items() for word in option])
    assert str(refused.value).startswith(message)


def test_a_cache_with_which_dvc_makes_no_copies_is_refused_with_the_cure(tmp_path, monkeypatch):
    folder = tmp_path / "für mich"
    (folder / ".dvc").mkdir(parents=True)
    (folder / "dvc.yaml").write_text("vars: [{recipes: {pose: {params: pose.yaml}}}]\n")
    (folder / "pose.yaml").write_text((ROOT / POSE).read_text())
    shutil.copytree(ROOT / "recipes/shared", folder / "recipes/shared")  # which it extends
    monkeypatch.chdir(folder)
    race = ["--recipe", "pose", "--metric", "AP", "--rungs", "1", "-S", "seed=1,2"]
    with pytest.raises(UserError, match=r"für mich/\.dvc/cache: has letters beyond ASCII.*`dvc cache dir --local"):
        main(race)


def test_a_rung_sets_what_the_recipe_takes_from_another(tmp_path, monkeypatch):
    """`-S` refuses a key that the file lacks, unless it begins with ++."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "recipes/pix2pix.yaml").read_text()
    shutil.copytree(ROOT / "recipes/shared", "recipes/shared")
    content = parse_yaml(text, "base.yaml")
    ((dataset, _),) = content["evaluate"]["data"].items()
    content["train"] = {"extends": "base.yaml#train"}
    content["evaluate"]["data"] = {dataset: {"extends": f"base.yaml#evaluate.data.{dataset}"}}
    for name, written in (("base.yaml", text), ("own.yaml", to_yaml(content))):
        Path(name).write_text(written)
    Path("dvc.yaml").write_text("vars: [{recipes: {own: {params: own.yaml}}}]\n")

    def first(runs, *_):
        ((overrides,), *_) = (list(seeds.values()) for seeds in runs.values())
        apply_overrides("own.yaml", [one.removeprefix("own.yaml:") for one in overrides])
        raise UserError("seen")

    monkeypatch.setattr("figura.commands.race._experiments", first)
    with pytest.raises(UserError, match="seen"):
        main(["--recipe", "own", "--metric", "psnr", "--rungs", "5", "--margin", "1", "-S", "data.batch_size=1,2"])
    recipe, whole = (check_schema(read_yaml(Path(file)), Path(file)) for file in ("own.yaml", "base.yaml"))
    assert recipe.train == whole.train.model_copy(update={"steps": 5, "shares_of": whole.train.steps})
    (judged,) = recipe.evaluate.data.values()
    (other,) = whole.evaluate.data.values()
    assert judged.arguments == other.arguments | {"split": "validation"}
