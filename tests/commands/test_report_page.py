"""The report in a real browser: nothing fails, nothing is fetched, axe finds nothing serious, pictures enlarge."""

from pathlib import Path

import numpy as np
import pytest
from explore_pages import NEEDS_BROWSER, SIZES, barriers, opened

from figura.base.pictures import write_png
from figura.commands.report.page import Cards, Fold, Lines, Markdown, Page, Pictures, Rows, Section, Text, write_html
from figura.commands.report.pictures import picture_of

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "toy/pictures"
    folder.mkdir(parents=True)
    picture = folder / "sheet.png"
    write_png(picture, np.random.default_rng(0).integers(0, 255, (300, 900, 3), dtype=np.uint8))
    sheet = picture_of(picture, "sheet", "Noise, as a sheet of results.")
    figures = [["figure", "value", "interval"], *([f"a.very.long.name.of_{n}", "1", "0 to 2"] for n in range(80))]
    blocks = [
        Text("left out: nothing", "warning"), Text("kl differs", "strong"), Lines(["seed: 7"]),
        Cards([["", "better", "value", "interval", "baseline"], ["psnr", "higher", "21", "20 to 22", "15"]]),
        Pictures([sheet, sheet]), Fold("all figures", [Rows("figures of toy", figures), Pictures([sheet])]),
    ]  # fmt: skip
    gate = Section("Reproduction gate", [Markdown("| metric | verdict |\n| --- | --- |\n| `a` | violated |")])
    write_html(Page("figura: toy", [("commit", "abc")], [gate, Section("toy", blocks)]), folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("size", SIZES)
def test_the_page_in_a_browser(page_file: Path, size: str) -> None:
    with opened(page_file.as_uri(), None, size) as page:
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]  # tables, pictures scroll inside
        assert barriers(page) == []
        page.locator(".enlarge").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("dialog img").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("dialog img").is_visible()
