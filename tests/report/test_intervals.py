"""Confidence intervals, against formulas by hand and SciPy's bootstrap."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from figura.dump import Dump
from figura.report.interfaces import Bootstrap, groups_of
from figura.report.intervals import bca, draw_groups, leave_out, ratio, share


@pytest.fixture
def random() -> np.random.Generator:
    """The same numbers for each test, whichever ran before."""
    return np.random.default_rng(5)


@pytest.mark.parametrize("size", [4, 5, 12])
def test_a_studentised_interval_by_hand(size, random):
    """Of 400 resamples of 4 or 5 groups, some draw one group alone: they have no error to divide by."""
    values, draws = random.lognormal(size=size), draw_groups(400, size, seed=1)
    assert (draws.max(axis=1) == size).any() == (size < 12)
    scores = []
    for counts in draws[draws.max(axis=1) < size].astype(int):
        resample = np.repeat(values, counts)
        error = resample.std(ddof=1) / np.sqrt(size)
        scores.append((resample.mean() - values.mean()) / error)
    low, high = np.quantile(scores, [0.05, 0.95])
    error = values.std(ddof=1) / np.sqrt(size)
    expected = values.mean() - high * error, values.mean() - low * error
    assert ratio(values, np.ones(size), draws, 0.9) == pytest.approx(expected, rel=1e-9)


def test_each_group_is_left_out_once_in_at_most_so_many_blocks():
    np.testing.assert_array_equal(leave_out(3, 10), 1 - np.eye(3))
    np.testing.assert_array_equal((1 - leave_out(10, 4)).sum(axis=0), np.ones(10))


def test_three_groups_have_plain_percentiles():
    """A ninth of their resamples draws one group alone, more than a tail."""
    values, draws = np.array([1.0, 2.0, 4.0]), draw_groups(400, 3, seed=1)
    expected = np.quantile(draws @ values / 3, [0.025, 0.975])
    assert ratio(values, np.ones(3), draws, 0.95) == pytest.approx(expected)


def test_the_error_of_a_ratio_is_the_delta_methods(random):
    below = random.integers(1, 9, 3000).astype(float)
    above = 2.0 * below + random.normal(size=3000)
    value = above.sum() / below.sum()
    error = np.sqrt(((above - value * below) ** 2).sum()) / below.sum()  # of large samples
    low, high = ratio(above, below, draw_groups(4000, 3000, seed=1), 0.9)
    assert low == pytest.approx(value - 1.6449 * error, abs=0.08 * error)
    assert high == pytest.approx(value + 1.6449 * error, abs=0.08 * error)


def test_bca_is_scipys(random):
    values = random.exponential(size=25)
    theirs = stats.bootstrap(
        (values,), np.var, confidence_level=0.9, n_resamples=20000, method="BCa", rng=np.random.default_rng(3)
    ).confidence_interval
    ours = Bootstrap(20000, 0.9, 4).estimate(values, np.var)
    plain = np.quantile([np.var(random.choice(values, 25)) for _ in range(4000)], [0.05, 0.95])
    width = theirs.high - theirs.low
    assert ours["low"] == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours["high"] == pytest.approx(theirs.high, abs=0.03 * width)
    assert plain[1] < ours["high"] - 0.1 * width  # the percentile interval is another


def test_pictures_of_a_person_are_resampled_together(random):
    person = random.normal(size=30)
    together = Bootstrap(400, 0.9, 1).estimate(np.repeat(person, 4), groups=np.repeat(np.arange(30), 4).tolist())
    assert together == pytest.approx(Bootstrap(400, 0.9, 1).estimate(person), rel=1e-9)
    apart = Bootstrap(400, 0.9, 1).estimate(np.repeat(person, 4))
    assert apart["high"] - apart["low"] < 0.6 * (together["high"] - together["low"])


@pytest.mark.parametrize(("hits", "trials"), [(321, 321), (0, 12), (7, 31), (1, 1)])
def test_the_interval_of_a_share_is_scipys(hits, trials):
    values = np.arange(trials) < hits
    low, high = share(values.astype(float), np.ones(trials), 0.95)
    expected = stats.binomtest(hits, trials).proportion_ci(0.95, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_trials_of_a_group_that_agree_count_once():
    """Four images of 10 people, all or none of them found: as wide as 2 of 4; if no variance is seen, 4."""
    above, below = np.array([10.0, 10.0, 0.0, 0.0]), np.full(4, 10.0)
    assert share(above, below, 0.95) == pytest.approx(share(above / 10, below / 10, 0.95), abs=1e-12)
    low, high = share(below, below, 0.95)
    assert (low, high) == pytest.approx((4 / (4 + 1.959964**2), 1), abs=1e-6)  # n / (n + z^2)
    spread = share(np.array([5.0, 5.0, 5.0, 5.0]), below, 0.95)  # no variance is seen: 4 groups
    half = 1.959964 * np.sqrt(0.25 / 4 + 1.959964**2 / 64) / (1 + 1.959964**2 / 4)
    assert spread == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


VALUES = np.random.default_rng(1).normal(3.0, 2.0, 400)


def test_interval_of_a_mean_is_the_normal_one():
    found = Bootstrap(4000, 0.9, 7).estimate(VALUES)
    half = 1.6449 * VALUES.std() / np.sqrt(len(VALUES))
    assert found["value"] == pytest.approx(VALUES.mean(), rel=1e-12)
    assert found["low"] == pytest.approx(VALUES.mean() - half, abs=0.1 * half)
    assert found["high"] == pytest.approx(VALUES.mean() + half, abs=0.1 * half)
    assert found == Bootstrap(4000, 0.9, 7).estimate(VALUES) != Bootstrap(4000, 0.9, 8).estimate(VALUES)


def test_nearly_equal_values_have_a_finite_interval():
    values = np.zeros(40)
    values[3] = 1.0  # a third of all resamples miss it, so their spread is 0
    found = Bootstrap(300, 0.95, 1).estimate(values)
    assert 0 <= found["low"] < found["value"] < found["high"] < 0.3
    for alike in (np.ones(5), np.array([1.0])):
        assert Bootstrap(300, 0.95, 1).estimate(alike) == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert bca(1.0, np.ones(10), np.ones(3), 0.9) == (1.0, 1.0)


def test_the_interval_covers_as_often_as_it_says():
    random = np.random.default_rng(3)
    covers = []
    for seed in range(200):
        found = Bootstrap(200, 0.8, seed).estimate(random.normal(1.0, 1.0, 60))
        covers.append(found["low"] <= 1.0 <= found["high"])
    assert np.mean(covers) == pytest.approx(0.8, abs=0.09)  # three standard errors of 200 trials


def test_rows_are_resampled_whole():
    x = np.arange(50.0)
    rows = np.stack([x, 2 * x + 1], axis=1)

    def correlation(table):
        return np.corrcoef(table[:, 0], table[:, 1])[0, 1]

    found = Bootstrap(50, 0.9, 0).estimate(rows, correlation)
    assert found == pytest.approx({"value": 1.0, "low": 1.0, "high": 1.0})
    assert Bootstrap(50, 0.9, 0).estimate(rows)["value"] == pytest.approx(rows.mean())


def test_groups_are_of_one_dataset():
    table = pd.DataFrame({"person_id": [7, 7, 8, np.nan, np.nan, 8], "dataset": ["a", "b", "a", "a", "a", "a"]})
    assert groups_of(Dump(Path("dump"), table), "plain", "person_id").tolist() == [0, 1, 2, 3, 4, 2]
    alone = Dump(Path("dump"), table[["person_id"]])
    assert groups_of(alone, "plain", "person_id").tolist() == [0, 0, 1, 2, 3, 1]
    assert groups_of(alone, "plain", None).tolist() == [0, 1, 2, 3, 4, 5]
    drawn = Dump(Path("dump"), alone.table.assign(index=[0, 1, 2, 3, 3, 4]))  # 3 has two draws
    assert groups_of(drawn, "plain", None).tolist() == [0, 1, 2, 3, 3, 4]
    assert groups_of(drawn, "plain", "person_id").tolist() == [0, 0, 1, 2, 2, 1]
    texts = Dump(Path("dump"), pd.DataFrame({"who": ["x", "x", "y", np.nan, np.nan, "y"]}))
    assert groups_of(texts, "plain", "who").tolist() == [0, 0, 1, 2, 3, 1]
