"""Figures in pages are those of the metrics, and each has a source."""

import re

import pytest

from bench.figures import FIGURE, ROOT, main, metrics, pages, renewed
from figura.base.errors import UserError

KNOWN = {"a.psnr": {"value": 24.5123, "low": 24.3, "high": 24.749}, "a.ssim": 0.7385, "a.r": -0.0171}
RESULTS = [ROOT / "README.md", ROOT / "docs/recipes.md", ROOT / "docs/pose_consistency.md"]
RESULTS += sorted((ROOT / "docs/recipes").glob("*.md"))
MEASURED = re.compile(r"(?<![\w.])(?:\d*\.\d{2,}|\d{2,}\.\d)")  # settings have fewer digits
SOURCE = re.compile(r"<!-- figures: [^>]+ -->")


@pytest.mark.usefixtures("pages_of_the_metrics")
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_of_a_page_are_those_of_the_metrics(page):
    text = page.read_text(encoding="utf-8")
    assert renewed(text, metrics()) == text, "python -m bench.figures writes them anew"


def test_the_headlines_are_compared():
    names = {match["name"] for page in pages() for match in FIGURE.finditer(page.read_text(encoding="utf-8"))}
    assert {"vunet.transfer.l1_person", "pix2pix.translation.psnr", "pose.keypoints.AP"} <= names
    assert len(names) > 30


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_figure_in_a_table_has_a_source(page):
    """Measured ones outside of code, in tables without a line that says where they are from."""
    blocks = re.split(r"\n\n+", page.read_text(encoding="utf-8"))
    for before, table in zip(["", *blocks], blocks, strict=False):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        if not SOURCE.fullmatch(before):
            unnamed = FIGURE.sub("", re.sub(r"`[^`]*`|\]\([^)]*\)", "", "\n".join(lines)))
            assert MEASURED.findall(unnamed) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.0 [0.9, 1.1]<!-- a.psnr -->", "24.5 [24.3, 24.7]<!-- a.psnr -->"),
        ("| .12<!-- a.ssim --> | 0.123<!-- a.ssim --> |", "| .74<!-- a.ssim --> | 0.739<!-- a.ssim --> |"),
        ("-.1<!-- a.r -->", "-.0<!-- a.r -->"),
        ("??.?<!-- a.psnr -->", "24.5<!-- a.psnr -->"),
        ("?.??<!-- a.mae -->", "?.??<!-- a.mae -->"),
        ("1.0 and <!-- a.psnr -->", "1.0 and <!-- a.psnr -->"),
    ],
)
def test_a_figure_is_written_as_before(text, expected):
    assert renewed(text, KNOWN) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5<!-- a.mae -->", "metrics/full has no value of a.mae"),
        ("0.5 [0.4, 0.6]<!-- a.ssim -->", "metrics/full has no low and no high of a.ssim"),
    ],
)
def test_a_figure_without_a_metric_is_an_error(text, message):
    with pytest.raises(UserError, match=message):
        renewed(text, KNOWN)


def test_help_writes_nothing(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["figures", "--help"])
    monkeypatch.setattr("bench.figures.pages", lambda: pytest.fail("it reads the pages"))
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "Write the figures" in capsys.readouterr().out
