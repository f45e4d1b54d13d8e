"""The tab Try in a real browser: joints are dragged, label maps painted, photos sent; what cannot be done is said."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from explore_pages import NEEDS_BROWSER, SIZES, barriers, choose, opened, served
from trials_by_hand import write_project

from figura.base.pictures import encode_png

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)

pytestmark = NEEDS_BROWSER


def made(folder: Path, **settings: Any) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project(folder, **settings)
    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(made(tmp_path_factory.mktemp("page"))) as address:
        yield address


@pytest.fixture
def page(address: str) -> Iterator[Any]:
    with opened(address, "Try") as page:
        yield page


def source(page: Any, title: str) -> str:
    """Return what a picture shows, as soon as it shows something."""
    page.wait_for_function("title => document.querySelector(`img[alt='${title}']`)?.src", arg=title)
    return str(page.get_by_alt_text(title, exact=True).get_attribute("src"))


def wait_for_another(page: Any, title: str, before: str) -> str:
    """Return what a picture shows when that is no longer what it was."""
    script = "([title, before]) => document.querySelector(`img[alt='${title}']`).src !== before"
    page.wait_for_function(script, arg=[title, before])
    return source(page, title)


def send(page: Any, button: str, name: str, content: bytes) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=button).click()
    chooser.value.set_files({"name": name, "mimeType": "application/octet-stream", "buffer": content})


def scale(image: Any, side: int) -> tuple[float, float, float]:
    """Return left, top and the size of a pixel of a picture of `side` pixels, once all is laid out."""
    image.page.get_by_text("loading ...").wait_for(state="detached")
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    return box["x"], box["y"], box["width"] / side


def test_a_dragged_joint_draws_another_person(page: Any) -> None:
    page.get_by_role("tab", name="People").click()
    person = source(page, "Generated person")
    source(page, "Read by the pose network")
    left, top, pixel = scale(page.get_by_alt_text("Pose: a stickman whose joints can be dragged"), 32)
    x, y = (float(page.get_by_label(axis, exact=True).input_value()) for axis in "xy")  # the nose is chosen
    page.mouse.move(left + (x + 0.5) * pixel, top + (y + 0.5) * pixel)
    page.mouse.down()
    page.mouse.move(left + 5.5 * pixel, top + 20.5 * pixel, steps=10)
    page.mouse.up()
    page.wait_for_function("() => [...document.querySelectorAll('input[aria-label=y]')].some(one => one.value == 20)")
    dragged = wait_for_another(page, "Generated person", person)
    assert float(page.get_by_label("x", exact=True).input_value()) == pytest.approx(5, abs=0.2)
    page.get_by_label("y", exact=True).press("ArrowUp")  # without a mouse
    typed = wait_for_another(page, "Generated person", dragged)
    page.get_by_role("switch", name="there").click()
    wait_for_another(page, "Generated person", typed)
    page.get_by_label("Appearance, 0 to 2").fill("1")
    page.get_by_text("example 1", exact=True).wait_for()
    send(page, "Upload an appearance", "me.png", encode_png(PIXELS))
    page.get_by_text("the whole picture").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download: Generated person").click()
    assert download.value.suggested_filename == "person.png"
    assert cv2.imread(download.value.path()).shape == (32, 32, 3)


def test_a_painted_label_map_is_translated(page: Any) -> None:
    page.get_by_role("tab", name="Label maps").click()
    before = source(page, "Picture made of it")
    first = source(page, "Label map to paint on")
    page.get_by_role("radio").nth(1).click()
    left, top, pixel = scale(page.get_by_alt_text("Label map to paint on"), 32)
    page.mouse.move(left + 2 * pixel, top + 2 * pixel)
    page.mouse.down()
    page.mouse.move(left + 28 * pixel, top + 6 * pixel, steps=10)
    page.mouse.up()
    after = wait_for_another(page, "Picture made of it", before)
    page.get_by_role("button", name="Undo").click()
    assert wait_for_another(page, "Picture made of it", after) == before
    page.wait_for_function("one => document.querySelector(`img[alt='Label map to paint on']`).src === one", arg=first)
    send(page, "Upload a label map", "map.png", encode_png(PIXELS))
    wait_for_another(page, "Picture made of it", before)


@pytest.mark.parametrize("size", SIZES)
def test_every_panel_fits_and_can_be_used_by_everybody(address: str, size: str) -> None:
    with opened(address, "Try", size) as page:
        for panel, wanted in (
            ("People", "Read by the pose network"),
            ("Label maps", "Picture made of it"),
            ("Photos", "sr"),
        ):
            page.get_by_role("tab", name=panel).click()
            if panel == "Photos":
                choose(page, "Recipe", "reader")
                send(page, "Upload a photo", "me.png", encode_png(PIXELS))
                page.get_by_text("people:").wait_for()
                with page.expect_download() as download:
                    page.get_by_role("button", name="Download photo.people.json").click()
                assert Path(download.value.path()).read_bytes().startswith(b"[")
                choose(page, "Recipe", "larger")  # the same photo
                page.get_by_text("80 x 80 pixels").wait_for()
            source(page, wanted)
            assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
            assert barriers(page) == []
