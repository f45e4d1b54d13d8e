"""The tab Data in a real browser: the table, filters, epochs, data that are not prepared."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy_pairs
from explore_pages import NEEDS_BROWSER, SIZES, barriers, choose, opened, served

from figura.base.yaml12 import to_yaml

pytestmark = NEEDS_BROWSER


def write_project(root: Path) -> None:
    """Two recipes: one of pairs, and one whose data nobody has prepared."""
    toy_pairs.write_noise(root / "data/prepared/pairs", 12)
    (root / "data/prepared/pairs/manifest.json").write_text(json.dumps({"sha256": "by hand"}))
    for name, folder in (("pairs", "pairs"), ("missing", "elsewhere")):
        (root / f"{name}.yaml").write_text(to_yaml(toy_pairs.content_of_files(f"data/prepared/{folder}")))
    recipes = {name: {"params": f"{name}.yaml"} for name in ("pairs", "missing")}
    (root / "dvc.yaml").write_text(to_yaml({"vars": [{"recipes": recipes}]}))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("project")
    write_project(root)
    with served(root) as address:
        yield address


@pytest.fixture(params=SIZES)
def page(address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    with opened(address, "Data", request.param) as page:
        page.get_by_text("12 examples").wait_for()
        page.locator("figure img").first.wait_for()
        yield page


def after(page: Any, act: Any) -> str:
    """Do something that changes the picture, and return the new one."""
    before = page.locator("figure img").first.get_attribute("src")
    act()
    page.wait_for_function("before => document.querySelector('figure img')?.src !== before", arg=before)
    return str(page.locator("figure img").first.get_attribute("src"))


def test_the_tab_data(page: Any) -> None:
    # rows by mouse and keyboard
    second = after(page, lambda: page.locator(".ag-row[row-index='1'] .ag-cell").first.click())
    page.get_by_text("name: pair1", exact=True).wait_for()
    third = after(page, lambda: page.keyboard.press("ArrowDown"))
    page.get_by_text("name: pair10", exact=True).wait_for()
    assert third != second
    assert after(page, lambda: page.keyboard.press("ArrowUp")) == second
    assert barriers(page) == []
    # a filter leaves rows
    page.get_by_label("name Filter Input").fill("pair11")
    page.locator(".ag-row[row-index='1']").wait_for(state="detached")
    page.locator(".ag-row[row-index='0'] .ag-cell").first.click()
    page.get_by_text("name: pair11", exact=True).wait_for()
    assert page.locator(".ag-center-cols-container .ag-row").count() == 1
    page.get_by_label("name Filter Input").fill("")
    page.locator(".ag-row[row-index='1']").wait_for()
    # another epoch is cropped elsewhere; validation has none
    epoch = page.get_by_label("Epoch")
    third = after(page, lambda: epoch.fill("3"))
    first = after(page, lambda: epoch.fill("0"))
    assert after(page, lambda: epoch.fill("3")) == third != first
    after(page, lambda: choose(page, "Dataset", "pairs: validation, pairs"))
    assert not epoch.is_visible()
    # data that are not prepared tell the command
    choose(page, "Dataset", "missing: train, pairs")
    page.get_by_text("dvc repro prepare@elsewhere").first.wait_for()
    assert page.locator(".ag-row").count() == 0
    choose(page, "Dataset", "pairs: train, pairs")
    page.get_by_text("12 examples").wait_for()
