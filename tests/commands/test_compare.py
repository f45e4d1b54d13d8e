"""Comparing revisions: statistics against NumPy and SciPy, rows that match, and the tool on dumps in DVC's cache."""

import re
import shutil
import subprocess
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
import toy
from cached_dumps import Repository
from dumps_by_hand import sealed
from scipy import stats

from figura.base.errors import UserError
from figura.base.yaml12 import to_yaml
from figura.commands.compare.command import main
from figura.commands.compare.comparison import Comparison, Side, compare_revisions, estimate
from figura.commands.compare.drawing import draw_changed
from figura.commands.compare.matching import check_inputs, matched
from figura.dump import Dump, write_value
from figura.pipeline.revisions import Files, Revision, changes, settings_of
from figura.report.resampling import PairedBootstrap, Spread, effect_of, half_width, spread_of, t_quantile

RANDOM = np.random.default_rng(4)
NO_SEEDS = Spread(float("nan"), 0)
PERSONS, IMAGES = 30, 60


def means(*columns, groups=None, samples=2000, confidence=0.95):
    bootstrap = PairedBootstrap(samples, confidence, 5)
    return bootstrap, [bootstrap.estimate(column, groups=groups) for column in columns]


def test_shares_of_two_revisions_are_compared_by_their_images():
    """Each share has Wilson's interval, and their difference that of the differences of images."""
    first, second = np.tile([1.0, 1.0, 1.0, 0.0], 50), np.tile([1.0, 1.0, 0.0, 0.0], 50)
    bootstrap = PairedBootstrap(2000, 0.95, 5)
    one, other = (bootstrap.share(column, np.ones(200)) for column in (first, second))
    wilson = stats.binomtest(150, 200).proportion_ci(0.95, method="wilson")
    assert (one["low"], one["high"]) == pytest.approx((wilson.low, wilson.high), abs=1e-9)
    effect = effect_of([one], [other], "higher", NO_SEEDS, bootstrap)
    away = second - first
    half = 1.97 * np.std(away) / np.sqrt(200)
    assert (effect.low, effect.high) == pytest.approx((-0.25 - half, -0.25 + half), abs=0.2 * half)


def test_the_interval_of_a_paired_difference_is_that_of_the_differences():
    first = RANDOM.normal(5, 3, 300)
    second = first + RANDOM.normal(0.1, 0.4, 300)
    bootstrap, (one, other) = means(first, second)
    effect = effect_of([one], [other], "higher", NO_SEEDS, bootstrap)
    away = second - first
    low, high = stats.t.interval(0.95, 299, away.mean(), stats.sem(away))
    assert effect.difference == pytest.approx(away.mean(), rel=1e-9)
    assert (effect.low, effect.high) == pytest.approx((low, high), abs=0.06 * (high - low))
    assert effect.probability == pytest.approx(stats.norm.cdf(away.mean() / stats.sem(away)), abs=0.02)
    assert effect.beyond_images
    assert not effect.beyond_seeds  # of seeds nothing is known
    alone = np.std(first) * np.sqrt(2 / 300)  # standard error if the images were not the same
    assert high - low < 0.3 * (2 * 1.96 * alone)


@pytest.mark.parametrize(("difference", "told"), [(8e-8, "no"), (8e-5, "better")])
def test_a_difference_of_rounding_is_none(difference, told):
    first = RANDOM.normal(0.89, 0.01, 40)
    bootstrap, (one, other) = means(first, first + difference)  # in all examples
    effect = effect_of([one], [other], "higher", NO_SEEDS, bootstrap)
    assert effect.beyond_images
    old, new = (Side([Revision(name, Path(), 1, {}, {})]) for name in ("old", "new"))
    compared = Comparison(old, new, {"psnr": effect}, one_setting=False)
    assert compared.verdict("psnr") == told
    assert ("no difference" in compared.sentence) == (told == "no")


def test_a_difference_of_other_statistics_is_scipys_paired_bootstrap():
    first = RANDOM.exponential(size=80)
    second = first + RANDOM.exponential(0.2, size=80)
    bootstrap = PairedBootstrap(8000, 0.9, 5)
    one, other = (bootstrap.estimate(column, np.var) for column in (first, second))
    both = bootstrap.combine([(-1.0, one), (1.0, other)])
    drawn = [np.repeat(np.arange(80), row.astype(int)) for row in bootstrap.draws(80)[:50]]
    expected = [np.var(second[places]) - np.var(first[places]) for places in drawn]
    np.testing.assert_allclose(both.samples[:50], expected)
    theirs = stats.bootstrap(
        (first, second), lambda a, b: np.var(b) - np.var(a), paired=True, vectorized=False, confidence_level=0.9,
        n_resamples=8000, method="BCa", rng=np.random.default_rng(3),
    ).confidence_interval  # fmt: skip
    width = theirs.high - theirs.low
    assert (both["low"], both["high"]) == pytest.approx((theirs.low, theirs.high), abs=0.05 * width)


def test_ratios_with_other_denominators_are_subtracted_draw_by_draw():
    above, below = RANDOM.uniform(1, 2, (2, 50)), RANDOM.integers(1, 9, (2, 50)).astype(float)
    bootstrap = PairedBootstrap(300, 0.9, 5)
    one, other = (bootstrap.ratio(a, b) for a, b in zip(above, below, strict=True))
    both = bootstrap.combine([(-1.0, one), (1.0, other)])
    draws = bootstrap.draws(50)
    np.testing.assert_allclose(
        both.samples, draws @ above[1] / (draws @ below[1]) - draws @ above[0] / (draws @ below[0])
    )
    assert both["value"] == pytest.approx(above[1].sum() / below[1].sum() - above[0].sum() / below[0].sum())
    assert both["low"] < both["value"] < both["high"]


@pytest.mark.parametrize("freedom", [1, 1.7, 4, 30.5, 2000])
@pytest.mark.parametrize("share", [0.9, 0.975])
def test_quantiles_of_t_are_scipys(share, freedom):
    assert t_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-4)


def test_a_sum_of_variances_has_welchs_interval():
    ours, theirs = RANDOM.normal(0, 1, 4), RANDOM.normal(0, 5, 7)
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    parts = [(one.var(ddof=1) / len(one), len(one) - 1) for one in (ours, theirs)]
    assert half_width(parts, 0.95) == pytest.approx((interval.high - interval.low) / 2, rel=1e-4)
    assert half_width([(0.0, 3), (0.0, 9)], 0.95) == 0


def test_one_seed_is_judged_by_the_spread_of_the_others():
    spread = spread_of([[1.0, 2.0, 3.0], [9.0], [4.0, 6.0]])
    assert spread == Spread((2 + 0 + 2) / 3, 3)
    assert spread_of([[1.0], [2.0]]).freedom == 0
    bootstrap, estimates = means(*(np.full(20, value) for value in (1.0, 2.0, 3.0, 9.0)))
    effect = effect_of(estimates[:3], estimates[3:], "higher", spread, bootstrap)
    half = stats.t.ppf(0.975, 3) * np.sqrt(4 / 3 * (1 / 3 + 1))
    assert effect.seeds == pytest.approx((7 - half, 7 + half), rel=1e-3)
    assert effect.beyond_seeds
    assert effect.word == "better"


def test_false_positives_with_seeds_and_images_are_no_more_than_allowed():
    random, images, seeds = np.random.default_rng(8), 0, 0
    bootstrap = PairedBootstrap(200, 0.95, 5)
    for _ in range(200):
        hard = random.normal(0, 1, 40)  # of each image
        trainings = random.normal(0, 0.2, (6, 1)) + hard + random.normal(0, 0.3, (6, 40))
        estimates = [bootstrap.estimate(one) for one in trainings]
        spread = spread_of([[one["value"] for one in side] for side in (estimates[:3], estimates[3:])])
        effect = effect_of(estimates[:3], estimates[3:], "lower", spread, bootstrap)
        images, seeds = images + effect.beyond_images, seeds + effect.beyond_seeds
    assert images > 80  # far more than 0.05 of 200
    assert seeds <= 20  # 0.05 of 200 and three standard errors


@pytest.mark.parametrize(("groups", "real"), [(1, False), (5, False), (6, True)])
def test_few_groups_that_all_agree_show_no_difference(groups, real):
    """Signs of 5 fair coins agree in 1 of 16 tries, more than the 5 % allowed; a single one always does."""
    bootstrap, (one, other) = means(np.arange(12.0), np.arange(12.0) + 1, groups=np.arange(12) % groups)
    effect = effect_of([one], [other], "higher", Spread(1e-9, 4), bootstrap)
    assert (effect.beyond_images, effect.beyond_seeds) == (real, real)


def revision(name, seed, **made_of):
    return Revision(name, Path(), seed, made_of, {})


def test_revisions_that_differ_in_seed_alone_are_one_setting():
    ones = [
        revision("a", 1, weight=1),
        revision("b", 1, weight=2),
        revision("c", 2, weight=1),
        revision("d", 2, weight=1),
    ]
    assert [[one.name for one in setting] for setting in settings_of(ones)] == [["a", "c"], ["b"]]
    first, second = Revision("a", Path(), 1, {"x.y": 1}, {"models/a": "1"}), Revision("b", Path(), 1, {"z": "t"}, {})
    assert changes(first, second) == ["x.y 1 -> -", 'z - -> "t"', "models/a"]


def table(**columns):
    return pd.DataFrame({"mode": "plain", "draw": 0, "index": range(4), "dataset": "d", **columns})


def dumps(folder, *tables):
    return {f"r{index}": Dump(folder, one) for index, one in enumerate(tables)}


def test_rows_match_in_whatever_order(tmp_path):
    other = table(value=[9, 8, 7, 6], person_id=[1, 1, 2, 2]).iloc[[2, 0, 3, 1]]
    extra = pd.concat([other, other.assign(mode="further")])
    found = matched(dumps(tmp_path, table(value=[1, 2, 3, 4], person_id=[1, 1, 2, 2]), extra))
    assert found["r1"].table["value"].tolist() == [9, 8, 7, 6]
    drawn = {"file.appearance": "inputs/a.png"}
    matched(dumps(tmp_path, table(appearance_id=1, **drawn), table(appearance_id=2, **drawn)))  # of what a seed draws
    with pytest.raises(UserError, match=r"r0 and r1 were judged on different examples: 3 of 4 and 3 rows match"):
        matched(dumps(tmp_path, table(), table().iloc[:3]))
    with pytest.raises(UserError, match=r"person_id differs in 1 of 4 rows, at index 2 it is 2 and 5"):
        matched(dumps(tmp_path, table(person_id=[1, 1, 2, 2]), table(person_id=[1, 1, 5, 2])))


def write_dump(folder, shift, spoilt=(), target=0.0):
    """Write a dump of persons with pictures of 16 x 16; `shift` is their distance from the target, by row."""
    random, rows = np.random.default_rng(2), []
    for index in range(IMAGES):
        truth = torch.tensor(random.uniform(-0.4, 0.4, (1, 16, 16)), dtype=torch.float32)
        files = {"image": (truth + shift[index]).clamp(-1, 1), "y": truth + target}
        names = {"image": f"plain/{index}.image.png", "y": f"inputs/{index}.y.image.png"}
        for name, value in files.items():
            write_value(folder / names[name], value)
        row = {"mode": "plain", "draw": 0, "index": index, "dataset": "ramps", "person_id": index % PERSONS}
        rows.append(row | {"loss.distance": abs(shift[index])} | {f"file.{n}": path for n, path in names.items()})
    pd.DataFrame(rows).to_csv(folder / "examples.csv", index=False)
    return sealed(folder)


RECIPE = toy.changed(
    {
        "evaluate.inputs": {"y": "image"},
        "evaluate.modes.plain.save": {"image": "image"},
        "metrics.bootstrap": 200,
        "metrics.confidence": 0.95,
        "metrics.scores": {
            "losses": {"type": "images.MeanLosses", "mode": "plain", "groups": "person_id"},
            "pixels": {"type": "images.Fidelity", "mode": "plain", "image": "image", "target": "y"},
        },
        "metrics.summary": {
            "distance": {"metric": "losses.distance", "better": "lower"},
            "psnr": {"metric": "pixels.psnr", "better": "higher"},
        },
    }
)
SHIFT = 0.2 + np.random.default_rng(1).uniform(-0.02, 0.02, IMAGES)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three seeds of a recipe, one of which has another order of rows; a worse setting with two seeds; other data."""
    base = tmp_path_factory.mktemp("dumps")
    repository = Repository(base / "repository", RECIPE)
    for seed, away in ((1, 0.0), (2, 0.006), (3, -0.004)):
        repository.commit(f"seed{seed}", write_dump(base / f"s{seed}", SHIFT + away), seed)
    worse = SHIFT + 0.08
    worse[7] += 0.3  # one changes most
    for seed, away in ((1, 0.0), (2, 0.005)):
        repository.commit(f"worse{seed}", write_dump(base / f"w{seed}", worse + away), seed, weight=2.0)
    repository.commit("elsewhere", write_dump(base / "e", SHIFT, target=0.1), 1, weight=3.0)
    repository.commit("comment", base / "s1", 1, code="b")
    return repository


@pytest.fixture
def repository(made, tmp_path, monkeypatch):
    shutil.copytree(made.folder, tmp_path / "repository", symlinks=True)
    monkeypatch.chdir(tmp_path / "repository")
    return tmp_path / "repository"


def compared(capsys, *arguments):
    main([*arguments, "--recipe", "toy"])
    return capsys.readouterr().out


def test_a_worse_recipe_is_called_worse_and_another_seed_is_not(repository, capsys):
    same = compared(capsys, "seed1", "seed2")
    assert "60 rows match: 60 of plain" in same
    assert same.splitlines()[-1].startswith("seed2 and seed1: no difference beyond seeds")
    assert "judged by images alone, distance and psnr would differ" in same
    out = compared(capsys, "seed1", "seed2", "seed3", "worse1", "worse2")
    last = out.splitlines()[-1]
    assert "losses.distance.weight 1.0 -> 2.0" in out
    assert last.startswith(
        "worse1 (2 seeds) differs from seed1 (3 seeds) beyond images and seeds: distance is worse by"
    )
    seeds = [SHIFT.mean() + away for away in (0.0, 0.006, -0.004)]
    others = [SHIFT.mean() + 0.08 + 0.3 / IMAGES + away for away in (0.0, 0.005)]
    assert f"distance is worse by {np.mean(others) - np.mean(seeds):.3g}" in last
    spread = np.sqrt((2 * np.var(seeds, ddof=1) + np.var(others, ddof=1)) / 3)
    (row,) = [line for line in out.splitlines() if line.split()[:1] == ["distance"]]
    assert f" {spread:.2g} " in row


def test_one_seed_a_side_says_what_is_not_known(repository, capsys):
    last = compared(capsys, "seed1", "worse1").splitlines()[-1]
    assert "worse1 differs from seed1 on these images: distance is worse by" in last
    assert "whether another seed does as much is not known" in last
    same = compared(capsys, "seed1", "comment")
    assert "comment: code; seed 1" in same
    assert same.splitlines()[-1] == "comment and seed1: no difference beyond these images"
    Path("params.yaml").write_text(to_yaml(toy.changed({"losses.distance.weight": 9.0}, RECIPE)))  # not trained yet
    left_out, _, last = compared(capsys, "comment", "workspace").splitlines()
    assert left_out.startswith("workspace: by dvc.lock trained with the recipe, seed, code and data of another")
    assert last == "no difference: there is one training"


def test_a_metric_of_one_group_of_images_is_named(repository, capsys):
    Path("params.yaml").write_text(to_yaml(toy.changed({"metrics.scores.losses.groups": "dataset"}, RECIPE)))
    out = compared(capsys, "seed1", "worse1")
    assert "distance: independent examples, or groups of them: 1; with fewer than 6, no difference counts" in out
    assert "worse1 differs from seed1 on these images: psnr is worse by" in out.splitlines()[-1]


def test_a_metric_that_is_not_finite_is_left_out(monkeypatch):
    """NaN is beyond every interval."""
    bootstrap = PairedBootstrap(50, 0.95, 5)
    scores = {
        "losses": lambda dump, _: {"distance": bootstrap.estimate(np.full(9, dump))},
        "pixels": lambda dump, _: {"psnr": bootstrap.estimate(np.arange(9.0))},
    }
    monkeypatch.setattr("figura.commands.compare.comparison.build_scores", lambda _: scores)
    found, lines = estimate(toy.checked({}, RECIPE), {"one": 1.0, "other": np.nan}, bootstrap)
    assert list(found) == ["psnr"]
    assert lines == ["metrics.summary.distance: left out: losses.distance is not finite in other"]


def test_a_project_below_the_folder_of_git(tmp_path, monkeypatch, capsys):
    project = Repository(tmp_path / "all/ml/mine", RECIPE, tmp_path / "all")
    for seed, away in ((1, 0.0), (2, 0.006)):
        project.commit(f"seed{seed}", write_dump(tmp_path / f"s{seed}", SHIFT + away), seed)
    monkeypatch.chdir(project.folder)
    assert compared(capsys, "seed1", "seed2").splitlines()[-1].startswith("seed2 and seed1: no difference")
    assert refused("nobody", "seed1").startswith("nobody: not readable as a revision or experiment")


def test_the_sheet_shows_what_changed_most(repository, tmp_path):
    result = compare_revisions([Files("seed1"), Files("worse1")], "toy", Path("params.yaml"), tmp_path / "scratch")
    draw_changed(result, "psnr", 1, Path("s.png"))
    one = cv2.imread("s.png")
    draw_changed(result, "distance", 2, Path("s.png"))  # by a loss, which reads no image
    assert cv2.imread("s.png").shape[0] > one.shape[0]
    tiles = one[-194:-2, :, 0]  # the picture of index 7: target, first, second
    truth = cv2.imread("runs/toy/dump/inputs/7.y.image.png")[..., 0]
    np.testing.assert_array_equal(tiles[::12, :192:12], truth)
    brightness = [tiles[:, x : x + 192].mean() for x in (0, 194, 388)]
    assert brightness[1] - brightness[0] == pytest.approx(127.5 * SHIFT[7], abs=1.5)
    assert brightness[2] - brightness[0] == pytest.approx(127.5 * (SHIFT[7] + 0.38), abs=3)


def test_where_nothing_changed_there_is_no_sheet(repository, tmp_path):
    result = compare_revisions([Files("seed1"), Files("comment")], "toy", Path("params.yaml"), tmp_path / "scratch")
    with pytest.raises(UserError, match="no example changed in psnr"):
        draw_changed(result, "psnr", 1, Path("s.png"))


def test_an_output_that_one_dump_lacks_is_not_drawn(repository, tmp_path):
    result = compare_revisions([Files("seed1"), Files("worse1")], "toy", Path("params.yaml"), tmp_path / "scratch")
    first, second = (result.dumps[name].table for name in ("seed1", "worse1"))
    first["file.more"] = first["file.image"]
    draw_changed(result, "distance", 2, Path("s.png"))
    assert cv2.imread("s.png").shape[1] == 2 * 194  # `image` of both
    second["file.image"] = None
    with pytest.raises(UserError, match="no example of mode 'plain' has image in all dumps"):
        draw_changed(result, "distance", 2, Path("s.png"))


def refused(*arguments):
    with pytest.raises(UserError) as error:
        main([*arguments, "--recipe", "toy"])
    return str(error.value)


def test_what_cannot_be_compared_is_one_line(repository):
    assert refused("nobody", "seed1").startswith("nobody: not readable as a revision or experiment")
    assert "'y' of the examples differs in 60 of its files" in refused("seed1", "elsewhere")
    assert refused("workspace").startswith("REVISION: name the revision")
    lock = Path("dvc.lock").read_text()
    Path("dvc.lock").write_text(re.sub(r"( *)seed: ", r"\1train: {try: true}\n\1seed: ", lock))
    said = refused("seed1", "workspace")
    assert said == "workspace: toy is a try there (train.try), no result to compare"
    Path("params.yaml").write_text(to_yaml(toy.changed({"metrics.summary": ...}, RECIPE)))
    assert refused("seed1", "worse1") == "params.yaml: metrics.summary: missing; it names the metrics to compare"


def test_a_dump_that_is_nowhere_says_what_to_run(repository):
    for path in Path(".dvc/cache/files/md5").glob("*/*"):
        if not path.name.endswith(".dir"):
            path.unlink()
    message = refused("seed1", "worse1")
    assert message.startswith("seed1: runs/toy/dump is neither whole in DVC's cache nor on a remote")
    assert "dvc fetch --all-commits" in message
    assert "\n" not in message
    shutil.rmtree(".dvc/cache")
    assert "neither whole in DVC's cache" in refused("seed1", "worse1")


def test_an_input_that_the_first_example_lacks_is_compared(tmp_path):
    for index, level in enumerate((0.0, 0.5)):
        write_value(tmp_path / f"{index}/inputs/1.image.png", torch.full((1, 4, 4), level))
    files = {"file.target": [None, "inputs/1.image.png", None, None]}
    one, other = (Dump(sealed(tmp_path / f"{index}"), table(**files)) for index in range(2))
    assert check_inputs({"r0": one, "r1": one}, {"mode": "plain", "target": "target"}) == []
    with pytest.raises(UserError, match="'target' of the examples differs in 1 of its files"):
        check_inputs({"r0": one, "r1": other}, {"mode": "plain", "target": "target"})


def test_inputs_drawn_with_the_seed_are_reported(tmp_path):
    for index, level in enumerate((0.0, 0.5)):
        write_value(tmp_path / f"{index}/inputs/0.image.png", torch.full((1, 4, 4), level))
    both = {
        f"r{index}": Dump(
            sealed(tmp_path / str(index)), table(appearance_id=index, **{"file.appearance": "inputs/0.image.png"})
        )
        for index in range(2)
    }
    lines = check_inputs(both, {"mode": "plain", "appearance": "appearance"})
    assert lines == ["appearance was drawn with the seed: r1 has another in 4 of 4 rows"]
    damaged = tmp_path / "1/inputs/0.image.png"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"1/inputs/0\.image\.png: damaged: its checksum differs; run eval-dump again"):
        check_inputs(both, {"mode": "plain", "appearance": "appearance"})


def test_branches_may_differ_in_a_slash(repository, capsys):
    for branch, tag in (("fast/one", "seed1"), ("fast_one", "seed2")):
        subprocess.run(["git", "branch", branch, tag], check=True)
    last, same = (compared(capsys, *names).splitlines()[-1] for names in (("fast/one", "fast_one"), ("seed1", "seed2")))
    assert last == same.replace("seed2 and seed1", "fast_one and fast/one")
