"""The tab Runs in a real browser: two runs side by side, a training that goes on meanwhile, stopping, resuming."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_explore_runs import fake_dvc, training, write_live, write_run

from figura.base.yaml12 import read_yaml, to_yaml

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SIZES = {"desktop": (1280, 900), "phone": (375, 812)}
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]

SERVER = """
import sys
from pathlib import Path
from nicegui import ui
from figura.commands.explore.project import Project
from figura.commands.explore.runs_tab import runs_tab

@ui.page("/")
def page():
    ui.query("html").props('lang="en"')
    with ui.tabs() as tabs:
        ui.tab("Runs")
        ui.tab("Other")
    with ui.tab_panels(tabs, value="Runs", animated=False, keep_alive=True).classes("w-full"):
        with ui.tab_panel("Runs"):
            runs_tab(Project(Path.cwd(), {"toy": {"params": "toy.yaml"}}, {}))
        with ui.tab_panel("Other"):
            ui.label("elsewhere")

ui.run(host="127.0.0.1", port=int(sys.argv[1]), title="runs", dark=None, reload=False, show=False)
"""

TRAINER = """
import signal, sys, time
from pathlib import Path
import numpy as np
from figura.base.lock import hold
from figura.base.pictures import write_png

def stop(*_):
    sys.exit(75)

signal.signal(signal.SIGTERM, stop)
folder = Path(sys.argv[1])
(folder / "live/samples").mkdir(parents=True, exist_ok=True)
with hold(folder):
    print("held", flush=True)
    for step in range(41, 2000):
        time.sleep(0.2)
        with (folder / "live/losses.csv").open("a") as file:
            file.write(f"{step},L1,{1 / step},2.0,{2 / step}\\n")
        if step % 5 == 0:
            write_png(folder / f"live/samples/{step:08d}.png", np.full((8, 8, 3), step % 250, np.uint8))
"""


@contextmanager
def served(folder):
    """Serve the tab on the runs of a folder; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "serve.py").write_text(SERVER)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST", "NICEGUI"))}
    command = [sys.executable, "serve.py", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        limit = time.monotonic() + 30
        while time.monotonic() < limit and process.poll() is None:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
        assert "Traceback" not in (folder / "server.log").read_text()
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def opened(address, size="desktop", scheme="light"):
    """Open the page in a browser; no script of it may fail."""
    from playwright.sync_api import sync_playwright

    width, height = SIZES[size]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.set_default_timeout(60_000)  # only a page that fails needs it
        said = []
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.goto(address)
        yield page
        browser.close()
    assert said == []


def show(page, name, side):
    """Choose a run in the list, and wait until it is there."""
    page.get_by_role("button", name=f"show {name} {side}", exact=True).click()
    page.get_by_role("combobox", name=f"Run, {side}").locator("..").get_by_text(name, exact=True).wait_for()


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_two_runs_side_by_side(tmp_path, size, scheme):
    from axe_playwright_python.sync_playwright import Axe

    write_run(tmp_path, "one")
    write_run(tmp_path, "two", factor=3.0)
    shutil.copytree(tmp_path / "runs/one/live/samples", tmp_path / "plots/one/pictures")
    with served(tmp_path) as address, opened(address, size, scheme) as page:
        show(page, "one", "left")
        show(page, "two", "right")
        newest = page.get_by_label("newest values").get_by_role("row", name="train.total")
        newest.get_by_text("0.05 at 40").wait_for()
        newest.get_by_text("0.15 at 40").wait_for()
        page.get_by_text("right: two train.total", exact=True).wait_for()  # in the legend
        page.get_by_role("img", name="left: one, iteration 40").wait_for()
        page.get_by_role("slider", name="iteration of the sample sheets").locator("[tabindex]").focus()
        page.keyboard.press("ArrowLeft")
        page.get_by_role("img", name="right: two, iteration 30").wait_for()
        page.get_by_role("switch", name="Log scale").click()
        page.get_by_role("img", name="left: one, 00000010").wait_for()  # a result picture
        page.get_by_text("right: no such picture").wait_for()
        for section in ("Settings that differ", "Flow of an iteration", "Logs"):
            page.get_by_text(section).click()
        page.get_by_label("settings that differ").get_by_role("row", name="losses.L1.weight 1 3").wait_for()
        page.get_by_label("log, left").get_by_text("step 40: total 0.1, 12.5 images/s").wait_for()
        page.wait_for_timeout(500)  # until sections are open
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        violations = Axe().run(page, context="[aria-label=runs], .q-tab-panel").response["violations"]
        serious = [one for one in violations if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
        page.get_by_role("button", name="enlarge left: one, iteration 30").click()
        page.get_by_role("dialog").get_by_role("img", name="left: one, iteration 30").wait_for()


def test_a_training_is_followed_and_stopped(tmp_path):
    folder = tmp_path / "runs/toy"
    write_live(folder / "live", 40)
    with served(tmp_path) as address, opened(address) as page:
        page.get_by_text(re.compile("^ended without a model; step 40 of 40")).wait_for()
        stop = page.get_by_role("button", name="Stop").first
        assert stop.is_disabled()
        with training(folder, TRAINER) as process:
            page.get_by_text(re.compile(rf"^training \(process {process.pid} on .*step 4[1-9] of")).wait_for()
            page.get_by_role("combobox", name="Curves").click()
            page.get_by_role("option", name="train.L1").click()
            page.keyboard.press("Escape")
            newest = page.get_by_label("newest values").get_by_role("row", name="train.L1")
            first = int(newest.text_content().rpartition(" ")[2])
            page.get_by_role("img", name=re.compile("left: toy, iteration (4[5-9]|[5-9][05])")).wait_for()
            page.wait_for_function(
                "step => [...document.querySelectorAll('[aria-label=\"newest values\"] tr')]"
                ".some(one => Number(one.textContent.split(' ').pop()) > step + 4)",
                arg=first,
            )
            stop.click()
            page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
            assert process.poll() is None
            stop.click()
            page.get_by_role("dialog").get_by_role("button", name="Stop").click()
            assert process.wait(10) == 75
            page.get_by_text(re.compile("^ended without a model; step")).wait_for()


def test_resuming_starts_dvc(tmp_path):
    write_live(tmp_path / "runs/toy/live", 40)
    (tmp_path / "runs/toy/resume/0000000040").mkdir(parents=True)
    fake_dvc(tmp_path, f"import sys\nsys.argv[1:] = ['runs/toy']\nprint('DVC is here', flush=True)\n{TRAINER}")
    with served(tmp_path) as address, opened(address) as page:
        page.get_by_text(re.compile("^interrupted after iteration 40; step 40")).wait_for()
        page.get_by_role("button", name="Train or resume").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Start").click()
        page.get_by_text(re.compile(r"^training \(process \d+ on ")).wait_for()
        page.get_by_text("Logs").click()
        page.get_by_label("log, left").get_by_text("DVC is here").wait_for()
        page.get_by_role("button", name="Stop").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        page.get_by_text("dvc repro train@toy ended with status 75; see its output").wait_for()
    assert "DVC is here" in (tmp_path / "runs/toy/live/explore.log").read_text()
    assert not (tmp_path / "runs/toy/.lock").exists()


def test_names_and_settings_are_text(tmp_path):
    image, script = "<img src=x onerror=alert(1)>", "<script>alert(2)</script>"
    for name in (image, "plain"):
        write_run(tmp_path, name)
    folder = tmp_path / "runs" / image
    for file in ("history/train.csv", "history/validation.csv"):
        (folder / file).write_text((folder / file).read_text().replace("L1.", f"{image}."))
    recipe = read_yaml(folder / "model/recipe.yaml")
    (folder / "model/recipe.yaml").write_text(to_yaml(recipe | {":kind": script, image: script}))
    metrics = {script: {"value": 1.0}}
    (tmp_path / "metrics" / f"{image}.json").write_text(json.dumps(metrics))
    record = {"step": 50, f"train.{script}": 1.0, "images_per_second": 1.0}
    with (folder / "live/log.jsonl").open("a") as file:
        file.write(f"{json.dumps(record)}\n")
    with served(tmp_path) as address, opened(address) as page:
        show(page, image, "left")
        show(page, "plain", "right")
        page.get_by_label("runs", exact=True).get_by_text(f"{script} 1", exact=True).wait_for()
        page.get_by_role("combobox", name="Curves").click()
        page.get_by_role("option", name=f"train.{image}").click()
        page.keyboard.press("Escape")
        page.get_by_text(f"left: {image} train.{image}", exact=True).wait_for()
        page.locator(".nicegui-echart").hover()  # the tooltip names the series
        page.get_by_text("Settings that differ").click()
        page.get_by_text("Logs").click()
        page.get_by_label("settings that differ").get_by_text(script).first.wait_for()
        page.get_by_label("log, left").get_by_text(script).wait_for()
        page.wait_for_timeout(500)
        assert page.evaluate("document.querySelectorAll('img[src=x], img[onerror]').length") == 0
