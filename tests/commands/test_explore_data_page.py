"""The tab Data in a real browser: table, search, steps, epochs, what is left out, data that are not prepared."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import toy
import toy_pairs

from figura.base.yaml12 import to_yaml
from figura.data.preparation.manifest import write_rejected

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SIZES = {"desktop": (1280, 900), "phone": (375, 812)}
CODE = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]


def write_project(root: Path) -> None:
    """Two recipes: one of pairs, of which some were left out, and one whose data nobody has prepared."""
    prepared = root / "data/prepared/pairs"
    for split in ("train", "validation"):
        (prepared / split).mkdir(parents=True)
        for place in range(12):
            sides = np.random.default_rng(place).integers(0, 256, (16, 32, 3), np.uint8)
            cv2.imwrite(str(prepared / split / f"pair{place}.png"), sides)
    (prepared / "statistics.json").write_text(json.dumps({"train": {"pairs": 1234}, "validation": {"pairs": 12}}))
    (prepared / "manifest.json").write_text(json.dumps({"sha256": "by hand"}))
    write_rejected(prepared / "rejected.csv", ("file", "reason"), [("<b>odd</b>.png", "no partner")])
    for name, folder in (("pairs", "pairs"), ("missing", "elsewhere")):
        arguments = {"type": "images.ImagePairs", "root": f"data/prepared/{folder}", "direction": "a_to_b"}
        changes = {
            "data.common": {**arguments, "crop_size": 12},
            "data.train": {"pairs": {"split": "train", "load_size": 16}},
            "data.validation": {"pairs": {"split": "validation"}},
        }
        (root / f"{name}.yaml").write_text(to_yaml(toy.changed({}, toy_pairs.content(changes))))
    recipes = {name: {"params": f"{name}.yaml"} for name in ("pairs", "missing")}
    (root / "dvc.yaml").write_text(to_yaml({"vars": [{"recipes": recipes}]}))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("project")
    write_project(root)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "NICEGUI"))}
    server = subprocess.Popen(
        [sys.executable, "-m", "figura.commands.explore", "--port", str(port)],
        cwd=root, env=environment | {"PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        for _ in range(600):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(params=SIZES)
def page(address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The opened page; nothing may be said on its console, and nothing fetched from elsewhere."""
    from playwright.sync_api import sync_playwright

    width, height = SIZES[request.param]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        errors, fetched = [], []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda one: fetched.append(one.url))
        page.goto(address)
        page.get_by_text("12 of 12 examples").wait_for()
        page.locator("figure img").first.wait_for()
        yield page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert errors == []
    assert [url for url in fetched if not url.startswith((address, address.replace("http", "ws"), "data:"))] == []


def shown(page: Any) -> str:
    """Return the first picture on the page."""
    return str(page.locator("figure img").first.get_attribute("src"))


def after(page: Any, act: Any) -> str:
    """Do something that changes the picture, and return the new one."""
    before = shown(page)
    act()
    page.wait_for_function("before => document.querySelector('figure img')?.src !== before", arg=before)
    return shown(page)


def choose(page: Any, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_stepping_through_examples(page: Any) -> None:
    first = shown(page)
    second = after(page, lambda: page.get_by_role("button", name="Next").click())
    page.get_by_text("2 of 12, index 1", exact=True).wait_for()
    assert after(page, lambda: page.get_by_role("button", name="Previous").click()) == first
    assert after(page, lambda: page.locator(".ag-row[row-id='1']").click()) == second
    page.get_by_text("2 of 12, index 1", exact=True).wait_for()
    page.get_by_text("name: pair1", exact=True).wait_for()


def test_another_epoch_crops_elsewhere_and_validation_has_none(page: Any) -> None:
    first, epoch = shown(page), page.get_by_label("Epoch")
    pictures = {first, after(page, lambda: epoch.fill("3"))}
    assert len(pictures) == 2
    assert after(page, lambda: epoch.fill("0")) == first
    after(page, lambda: choose(page, "Split", "validation"))
    assert not epoch.is_visible()


def test_search_leaves_rows_and_the_buttons_step_through_them(page: Any) -> None:
    page.get_by_label("Search").fill("pair11")
    page.get_by_text("1 of 12 examples", exact=True).wait_for()
    page.locator(".ag-row[row-id='0']").wait_for(state="detached")
    (name,) = [one.inner_text() for one in page.locator(".ag-center-cols-container [col-id=name]").all()]
    assert name == "pair11"
    page.get_by_text(f"name: {name}", exact=True).wait_for()
    page.get_by_label("Search").fill("nothing is called so")
    page.get_by_text("0 of 12 examples", exact=True).wait_for()
    page.locator(".ag-center-cols-container .ag-row").first.wait_for(state="detached")
    assert page.locator(".ag-center-cols-container .ag-row").count() == 0


def test_a_filter_that_is_removed_gives_all_examples_back(page: Any) -> None:
    column = page.get_by_label("name Filter Input")
    column.fill("pair1")
    page.get_by_text("3 of 12 examples", exact=True).wait_for()  # pair1, pair10, pair11
    column.fill("")
    page.get_by_text("12 of 12 examples", exact=True).wait_for()
    indices = set()
    for _ in range(12):
        after(page, lambda: page.get_by_role("button", name="Next").click())
        indices.add(page.get_by_text(" of 12, index ").inner_text().rpartition(" ")[2])
    assert indices == {str(index) for index in range(12)}


def test_what_is_told_about_the_data(page: Any) -> None:
    page.get_by_text("Statistics of data/prepared/pairs").click()
    page.get_by_text("1,234", exact=True).wait_for()
    page.get_by_text("Left out of data/prepared/pairs").click()
    page.get_by_text("1 records: 1 no partner", exact=True).wait_for()
    page.get_by_text("<b>odd</b>.png", exact=True).wait_for()
    assert page.locator("b", has_text="odd").count() == 0  # it is a text
    page.get_by_text("All names").click()
    page.get_by_role("cell", name="(3, 12, 12)").first.wait_for()


def test_data_that_are_not_prepared_tell_the_command(page: Any) -> None:
    choose(page, "Recipe", "missing")
    page.get_by_text("dvc repro prepare@elsewhere").first.wait_for()
    assert page.locator(".ag-row").count() == 0
    choose(page, "Recipe", "pairs")
    page.get_by_text("12 of 12 examples").wait_for()


def test_accessibility(page: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    # from the last to the first, so that what unfolds moves nothing that is clicked next
    for title, content in (("Left out of", "odd"), ("Statistics of", "1,234"), ("All names", "(3, 12, 12)")):
        page.get_by_text(title).first.click()
        page.get_by_text(content).first.wait_for()
    violations = Axe().run(page).response["violations"]
    serious = [one for one in violations if one["impact"] in ("serious", "critical")]
    assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
