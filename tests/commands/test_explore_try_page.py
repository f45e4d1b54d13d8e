"""The tab Try in a real browser: joints are dragged, label maps painted, photos sent; what cannot be done is said."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from test_explore_trying import bomb
from trials_by_hand import ROOT, write_project

from figura.base.pictures import encode_png

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SIZES = {"desktop": (1280, 900, "light"), "phone": (375, 812, "dark")}
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]


def serve(folder: Path) -> Iterator[str]:
    """Yield the address of the page of a project, served by a process of its own."""
    pytest.importorskip("nicegui")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    for variable in [name for name in environment if name.startswith(("PYTEST", "NICEGUI"))]:
        del environment[variable]  # NiceGUI would take itself to be tested
    command = [sys.executable, "-m", "figura.commands.explore", "--port", address.rpartition(":")[2]]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(address, timeout=2).read()
                    break
                except (urllib.error.URLError, OSError):
                    assert process.poll() is None, (folder / "log.txt").read_text()
                    time.sleep(0.25)
            yield address
        finally:
            process.terminate()
            process.wait(30)
    assert "Traceback" not in (folder / "log.txt").read_text()


def made(folder: Path, **settings: Any) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project(folder, **settings)
    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from serve(made(tmp_path_factory.mktemp("page")))


@pytest.fixture(scope="module")
def bare_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A project in which only the painter is trained."""
    yield from serve(made(tmp_path_factory.mktemp("bare"), trained=("painter",)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens the tab Try of an address; at the end, no page has raised an error."""
    pages, errors = [], []

    def open_page(address: str, panel: str = "People", size: str = "desktop") -> Any:
        width, height, scheme = SIZES[size]
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        pages.append(page)
        page.goto(address)
        page.get_by_role("tab", name="Try").click()
        page.get_by_role("tab", name=panel).click()
        return page

    yield open_page
    for page in pages:
        page.close()
    assert errors == []


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


def scale(page: Any, image: Any, side: int) -> tuple[float, float, float]:
    """Return left, top and the size of a pixel of a picture of `side` pixels."""
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    return box["x"], box["y"], box["width"] / side


def test_a_dragged_joint_draws_another_person(address: str, opened: Callable[..., Any]) -> None:
    page = opened(address)
    person = source(page, "Generated person")
    read = source(page, "Read by the pose network (grey: asked for)")
    image = page.get_by_alt_text("Pose: a stickman whose joints can be dragged")
    left, top, pixel = scale(page, image, 32)
    x, y = (float(page.get_by_label(axis, exact=True).input_value()) for axis in "xy")  # the nose is chosen
    page.mouse.move(left + (x + 0.5) * pixel, top + (y + 0.5) * pixel)
    page.mouse.down()
    page.mouse.move(left + 5.5 * pixel, top + 20.5 * pixel, steps=10)
    start = time.perf_counter()
    page.mouse.up()
    page.wait_for_function("() => [...document.querySelectorAll('input[aria-label=y]')].some(one => one.value == 20)")
    dragged = wait_for_another(page, "Generated person", person)
    wait_for_another(page, "Read by the pose network (grey: asked for)", read)
    seconds = time.perf_counter() - start
    print(f"\ndrawn and read {seconds:.2f} s after the mouse was up")
    assert seconds < 5
    assert float(page.get_by_label("x", exact=True).input_value()) == pytest.approx(5, abs=0.2)
    page.get_by_role("button", name="Move the joint one pixel right").click()  # without a mouse
    nudged = wait_for_another(page, "Generated person", dragged)
    page.get_by_label("y", exact=True).fill("3")
    typed = wait_for_another(page, "Generated person", nudged)
    page.get_by_role("switch", name="there").click()
    wait_for_another(page, "Generated person", typed)
    page.get_by_label("Appearance, 0 to 2").fill("1")
    page.get_by_text("example 1", exact=True).wait_for()


def test_an_appearance_is_sent_and_a_person_downloaded(address: str, opened: Callable[..., Any]) -> None:
    page = opened(address)
    person = source(page, "Generated person")
    send(page, "Upload an appearance", "me.png", encode_png(PIXELS))
    page.get_by_text("all of the picture").wait_for()
    wait_for_another(page, "Generated person", person)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download: Generated person").click()
    assert download.value.suggested_filename == "person.png"
    assert cv2.imread(download.value.path()).shape == (32, 32, 3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.png", encode_png(PIXELS)[:200], "broken.png: no readable picture"),
        ("huge.png", bomb(10_000, 10_000), "huge.png: has 100 megapixels; at most 64 are allowed"),
        ("text.txt", b"hello", "text.txt: no picture by its name; images end in"),
    ],
)
def test_what_is_no_picture_is_told(
    address: str, opened: Callable[..., Any], name: str, content: bytes, message: str
) -> None:
    page = opened(address)
    person = source(page, "Generated person")
    send(page, "Upload an appearance", name, content)
    page.get_by_text(message).first.wait_for()
    assert source(page, "Generated person") == person


def test_a_painted_label_map_is_translated(address: str, opened: Callable[..., Any]) -> None:
    page = opened(address, "Label maps")
    before = source(page, "Picture made of it")
    canvas = page.get_by_alt_text("Label map to paint on")
    first = source(page, "Label map to paint on")
    page.get_by_role("radio").nth(1).click()
    left, top, pixel = scale(page, canvas, 32)
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


def choose_recipe(page: Any, name: str) -> None:
    page.get_by_label("Recipe").locator("visible=true").click()
    page.get_by_role("option", name=name, exact=True).click()


def test_a_photo_is_enlarged_and_magnified(address: str, opened: Callable[..., Any]) -> None:
    page = opened(address, "Photos")
    choose_recipe(page, "larger")
    page.get_by_label("Photo of the data").click()
    page.get_by_role("option", name="2.png").click()
    page.get_by_text("192 x 192 pixels").wait_for()
    part = source(page, "there in sr")
    image = page.get_by_alt_text("sr, to be magnified")
    left, top, pixel = scale(page, image, 192)
    page.mouse.move(left + 20 * pixel, top + 20 * pixel, steps=5)
    wait_for_another(page, "there in sr", part)
    assert source(page, "there in sr") != part
    choose_recipe(page, "reader")  # the same photo
    page.get_by_text("people:").wait_for()
    download = page.get_by_role("button", name="Download photo.people.json")
    download.wait_for()
    assert download.is_enabled()
    assert page.get_by_alt_text("sr, to be magnified").count() == 0


def test_what_is_not_trained_says_the_command(bare_address: str, opened: Callable[..., Any]) -> None:
    page = opened(bare_address)
    page.get_by_text("drawer is not trained yet: run dvc repro train@drawer").wait_for()
    page.get_by_role("tab", name="Photos").click()
    choose_recipe(page, "larger")
    page.get_by_text("larger is not trained yet: run dvc repro train@larger").wait_for()
    assert page.get_by_role("button", name="Run").is_disabled()


@pytest.mark.parametrize("size", SIZES)
def test_every_panel_fits_and_can_be_used_by_everybody(address: str, opened: Callable[..., Any], size: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = opened(address, size=size)
    source(page, "Read by the pose network (grey: asked for)")
    for panel, wanted in (("People", "Generated person"), ("Label maps", "Picture made of it"), ("Photos", "sr")):
        page.get_by_role("tab", name=panel).click()
        if panel == "Photos":
            choose_recipe(page, "larger")
            send(page, "Upload a photo", "me.png", encode_png(PIXELS))
        source(page, wanted)
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        # the frame of all tabs is tested elsewhere, and the bar above is Quasar's, while a file is sent
        axe = Axe().run(page, context={"exclude": [["header"], [".q-loading-bar"]]})
        serious = [one for one in axe.response["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
