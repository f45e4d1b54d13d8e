from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from figura.dump import Dump
from figura.report.interfaces import Bootstrap, Picture, Score, groups_of

VALUES = np.random.default_rng(1).normal(3.0, 2.0, 400)


def test_value_is_the_statistic_and_lies_inside():
    found = Bootstrap(300, 0.95, 7).estimate(VALUES)
    assert found["value"] == pytest.approx(VALUES.mean(), rel=1e-12)
    assert found["low"] < found["value"] < found["high"]


def test_interval_of_a_mean_is_the_normal_one():
    found = Bootstrap(4000, 0.9, 7).estimate(VALUES)
    half = 1.6449 * VALUES.std() / np.sqrt(len(VALUES))
    assert found["low"] == pytest.approx(VALUES.mean() - half, abs=0.1 * half)
    assert found["high"] == pytest.approx(VALUES.mean() + half, abs=0.1 * half)


def test_the_interval_covers_as_often_as_it_says():
    random = np.random.default_rng(3)
    covers = []
    for seed in range(200):
        found = Bootstrap(200, 0.8, seed).estimate(random.normal(1.0, 1.0, 60))
        covers.append(found["low"] <= 1.0 <= found["high"])
    assert np.mean(covers) == pytest.approx(0.8, abs=0.09)  # three standard errors of 200 trials


def test_more_confidence_is_wider_and_seeds_repeat():
    wide, narrow, again = (Bootstrap(300, c, 7).estimate(VALUES) for c in (0.99, 0.5, 0.99))
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]
    assert wide == again != Bootstrap(300, 0.99, 8).estimate(VALUES)


def test_rows_are_resampled_whole():
    x = np.arange(50.0)
    rows = np.stack([x, 2 * x + 1], axis=1)

    def correlation(table):
        return np.corrcoef(table[:, 0], table[:, 1])[0, 1]

    found = Bootstrap(50, 0.9, 0).estimate(rows, correlation)
    assert found == pytest.approx({"value": 1.0, "low": 1.0, "high": 1.0})
    assert Bootstrap(50, 0.9, 0).estimate(rows)["value"] == pytest.approx(rows.mean())


def test_one_instance_has_no_spread():
    assert Bootstrap(10, 0.9, 0).estimate(np.array([2.5])) == {"value": 2.5, "low": 2.5, "high": 2.5}


def test_groups_are_of_one_dataset():
    table = pd.DataFrame({"person_id": [7, 7, 8, np.nan, np.nan, 8], "dataset": ["a", "b", "a", "a", "a", "a"]})
    assert groups_of(Dump(Path("dump"), table), "plain", "person_id").tolist() == [0, 1, 2, 3, 4, 2]
    alone = Dump(Path("dump"), table[["person_id"]])
    assert groups_of(alone, "plain", "person_id").tolist() == [0, 0, 1, 2, 3, 1]
    assert groups_of(alone, "plain", None).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("base", [Score, Picture])
def test_the_bases_do_nothing(base, tmp_path):
    with pytest.raises(TypeError, match=base.__name__):
        base()(None, None)
