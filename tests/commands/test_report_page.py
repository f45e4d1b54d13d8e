"""The report in a real browser: nothing fails, nothing is fetched, axe finds nothing serious, pictures enlarge."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from figura.base.pictures import write_png
from figura.commands.report.page import Cards, Fold, Lines, Markdown, Page, Pictures, Rows, Section, Text, write_html
from figura.commands.report.pictures import picture_of

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SIZES = {"desktop": (1280, 900), "phone": (375, 812)}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]


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


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_the_page_in_a_browser(page_file: Path, size: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    width, height = SIZES[size]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        said, fetched = [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(page_file.as_uri())
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width  # tables and pictures scroll inside
        violations = Axe().run(page).response["violations"]
        serious = [one for one in violations if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
        page.locator(".enlarge").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("dialog img").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("dialog img").is_visible()
        browser.close()
    assert said == []
    assert [url for url in fetched if not url.startswith(("file:", "data:"))] == []
