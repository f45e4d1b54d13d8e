"""The page of `figura explore` in a real browser, for tests."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SIZES = {"desktop": (1280, 900, "light"), "phone": (375, 812, "dark")}
ROOT = Path(__file__).parents[2]

NEEDS_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the page of a project by a process of its own, which raises no error; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "NICEGUI"))}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "figura", "explore", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "server.log").read_text()
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(30)
    assert "Traceback" not in (folder / "server.log").read_text()


@contextmanager
def opened(address: str, tab: str | None, size: str = "desktop") -> Iterator[Any]:
    """Open a page at a tab. It fits the screen, no script of it fails, and nothing comes from elsewhere."""
    from playwright.sync_api import sync_playwright

    width, height, scheme = SIZES[size]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.set_default_timeout(60_000)  # only a page that fails needs it
        said, fetched = [], []
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda one: fetched.append(one.url))
        page.goto(address)
        if tab:
            page.get_by_role("tab", name=tab).click()
        yield page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert said == [], said
    assert [
        url for url in fetched if not url.startswith((address, address.replace("http", "ws"), "data:", "blob:"))
    ] == []


def choose(page: Any, label: str, option: str, exact: bool = True) -> None:
    page.get_by_role("combobox", name=label).locator("visible=true").click()
    page.get_by_role("option", name=option, exact=exact).click()
    page.locator(".q-menu").first.wait_for(state="detached")  # it fades


def barriers(page: Any) -> list[tuple[str, str]]:
    """Return what somebody who cannot see, or uses no mouse, cannot use of what is shown: the rule, and an element."""
    from axe_playwright_python.sync_playwright import Axe

    page.wait_for_timeout(500)  # until sections are open
    # the bar above is Quasar's, while a file is sent
    violations = Axe().run(page, context={"exclude": [[".q-loading-bar"]]}).response["violations"]
    serious = [one for one in violations if one["impact"] in ("serious", "critical")]
    return [(one["id"], one["nodes"][0]["html"]) for one in serious]
