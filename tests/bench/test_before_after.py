"""The bench of two checkouts: whose code and whose recipes it takes, and what it computes of the measurements."""

import sys
from pathlib import Path

import pytest

from bench import before_after
from bench.cell import CASES, Forward, Loading, Step

ROOT = Path(__file__).parents[2]


@pytest.fixture
def earlier(tmp_path):
    """A checkout with this one's packages, in another folder."""
    for name in ("figura", "models", "stages"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def rounds(*values):
    return [{"seconds": seconds, "peak": peak} for seconds, peak in values]


def test_a_row_has_medians_and_the_median_of_the_ratios_of_rounds():
    found = {"before": rounds((1.0, 300.2), (4.0, 301.0), (2.0, 300.0)), "after": rounds((2.0, 1), (2.0, 9), (1.0, 5))}
    row = before_after.row("case", found, madds=6e9, fastest=4e9)
    # ratios 2, 0.5 and 0.5; 6 Gmadd in 2 s are 3 of the 4 that the machine does in a second
    assert row == ["case", 2000.0, 2000.0, "0.500", 0.5, "0.75", "0.75", 301, 9]
    assert before_after.row("case", found, madds=0.0, fastest=0.0)[5:7] == ["", ""]


@pytest.mark.slow
def test_both_sides_measure_each_with_its_own_code(earlier, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["before_after", str(earlier), "--cases", "encoder", "--rounds", "2", "--seconds", "0.01"],
    )  # fmt: skip
    before_after.main()
    _, _, row, *rest = capsys.readouterr().out.splitlines()
    assert row.split()[:5] == ["encoder,", "5", "persons,", "193", "px"]
    assert not "".join(rest)


def test_other_code_than_that_of_the_checkout_is_refused(earlier):
    (earlier / "models").unlink()
    with (
        pytest.raises(before_after.CaseError, match=rf"before ended with 1: .* not of {earlier}"),
        before_after.worker("before", "decoder", earlier, code=earlier, recipes=earlier),
    ):
        pass


@pytest.mark.parametrize("case", [name for name, one in CASES.items() if isinstance(one, Step | Loading | Forward)])
def test_every_case_is_a_valid_recipe(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without data
    asked = CASES[case]
    recipe = asked.case.recipe(checkout=ROOT)
    assert not isinstance(asked, Forward) or asked.injectors(recipe)
