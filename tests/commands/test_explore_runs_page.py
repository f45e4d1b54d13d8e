"""The tab Runs in a real browser: two runs side by side, a training that goes on meanwhile, stopping, resuming."""

import json
import re
import shutil

import pytest
from explore_pages import NEEDS_BROWSER, SIZES, barriers, choose, opened, served
from test_explore_runs import fake_dvc, write_live, write_run

from figura.base.yaml12 import to_yaml

pytestmark = NEEDS_BROWSER

TRAINER = """
import json, signal, sys, time
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
        with (folder / "live/log.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "train.L1": 1 / step}) + "\\n")
        if step % 5 == 0:
            write_png(folder / f"live/samples/{step:08d}.png", np.full((8, 8, 3), step % 250, np.uint8))
"""


PIPELINE = to_yaml({"vars": [{"recipes": {"toy": {"params": "toy.yaml"}}}]})
IMAGE, SCRIPT = "<img src=x onerror=alert(1)>", "<script>alert(2)</script>"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a project with three runs that have ended; names and output of one of them are HTML."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "dvc.yaml").write_text(PIPELINE)
    odd = write_run(folder, IMAGE)
    for file in ("history/train.csv", "history/validation.csv"):
        (odd / file).write_text((odd / file).read_text().replace("L1.", f"{IMAGE}."))
    with (odd / "live/log.jsonl").open("a") as file:
        file.write(f"{json.dumps({'step': 50, f'train.{SCRIPT}': 1.0})}\n")
    (odd / "live/explore.log").write_text(f"{SCRIPT}\n")
    write_run(folder, "one")
    write_run(folder, "two", factor=3.0)
    shutil.copytree(folder / "runs/one/live/samples", folder / "plots/one/pictures")
    with served(folder) as address:
        yield address


def choose_run(page, side, name):
    """Choose a run, and wait until its state is there."""
    choose(page, f"Run, {side}", f"{name}: trained")


@pytest.mark.parametrize("size", SIZES)
def test_two_runs_side_by_side(address, size):
    with opened(address, "Runs", size) as page:
        page.get_by_text(re.compile("^trained; step 40 of 40; last written")).wait_for()  # the newest
        choose_run(page, "left", "one")
        choose_run(page, "right", "two")
        for title in ("left: one train.total, 0.05 at 40", "right: two train.total, 0.15 at 40"):  # in the legend
            page.get_by_text(title, exact=True).wait_for()
        page.get_by_role("img", name="left: one, iteration 40").wait_for()
        page.get_by_role("slider", name="iteration of the sample sheets").locator("[tabindex]").focus()
        page.keyboard.press("ArrowLeft")
        page.get_by_role("img", name="right: two, iteration 30").wait_for()
        page.get_by_role("switch", name="Log scale").click()
        page.get_by_role("button", name="enlarge left: one, iteration 30").click()
        page.get_by_role("dialog").get_by_role("img", name="left: one, iteration 30").wait_for()
        page.get_by_role("button", name="Close").click()
        choose(page, "Pictures", "00000010")
        page.get_by_role("img", name="left: one, 00000010").wait_for()
        page.get_by_text("right: none").wait_for()
        page.get_by_text("Output").click()
        assert barriers(page) == []


def test_a_training_is_started_followed_and_stopped(tmp_path):
    write_live(tmp_path / "runs/toy/live", 40)
    (tmp_path / "runs/toy/resume/0000000040").mkdir(parents=True)
    fake_dvc(tmp_path, f"import sys\nsys.argv[1:] = ['runs/toy']\nprint('DVC is here', flush=True)\n{TRAINER}")
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    with served(tmp_path) as address, opened(address, "Runs") as page:
        page.get_by_text(re.compile("^interrupted after iteration 40; step 40")).wait_for()
        stop = page.get_by_role("button", name="Stop").first
        assert stop.is_disabled()
        page.get_by_role("button", name="Train or resume").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Start").click()
        page.get_by_text(re.compile(r"^training \(process \d+ on .*step [4-9]\d of")).wait_for()
        page.get_by_role("combobox", name="Curves").click()
        page.get_by_role("option", name="train.L1").click()
        page.keyboard.press("Escape")
        first = page.get_by_text(re.compile(r"^left: toy train.L1, \S+ at \d+$")).text_content()
        page.get_by_role("img", name=re.compile("left: toy, iteration (4[5-9]|[5-9][05])")).wait_for()
        page.get_by_text(first, exact=True).wait_for(state="detached")  # it has grown
        page.get_by_text("Output").click()
        page.get_by_label("output, left").get_by_text("DVC is here").wait_for()
        for answer in ("Cancel", "Stop"):
            assert (tmp_path / "runs/toy/.lock").exists()
            stop.click()
            page.get_by_role("dialog").get_by_role("button", name=answer).click()
        page.get_by_text("dvc repro train@toy ended with status 75; see its output").wait_for()
    assert not (tmp_path / "runs/toy/.lock").exists()


def test_names_and_output_are_text(address):
    with opened(address, "Runs") as page:
        choose_run(page, "left", IMAGE)
        page.get_by_role("combobox", name="Curves").click()
        page.get_by_role("option", name=f"train.{IMAGE}").click()
        page.get_by_role("option", name=f"train.{SCRIPT}").click()
        page.keyboard.press("Escape")
        page.get_by_text(f"left: {IMAGE} train.{IMAGE}, 0.025 at 40", exact=True).wait_for()
        page.locator(".nicegui-echart").hover()  # the tooltip names the series
        page.get_by_text("Output").click()
        page.get_by_label("output, left").get_by_text(SCRIPT).wait_for()
        page.wait_for_timeout(500)
        assert page.evaluate("document.querySelectorAll('img[src=x], img[onerror]').length") == 0
