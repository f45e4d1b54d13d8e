"""The page: three tabs, each built when somebody opens it. It is served to this machine alone.

NiceGUI (MIT) is what serves it: its pictures report the mouse, so that joints can be dragged, which Gradio's and
Streamlit's do not; it is a wheel of 8.5 MB beside Gradio's 31, and Streamlit brings pyarrow.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path

from nicegui import app, ui
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from figura.commands.explore.data_tab import DataTab
from figura.commands.explore.runs_tab import RunsTab
from figura.commands.explore.try_photos import photos_panel
from figura.commands.explore.trying import read_recipes
from figura.commands.explore.widgets import computed, paragraph, tabs
from figura.systems import modules_with

ADDRESS = "127.0.0.1"
OURS = ("127.0.0.1", "localhost")
UNFRAMED = (b"content-security-policy", b"frame-ancestors 'self'")
BLUE = "#1565c0"
"""Of buttons and the header: white on it has a contrast of 5.7."""
PATIENCE = 30.0
"""Seconds that a browser may be silent: beside a training on the same cores it is for some, and then loses its page."""


class OwnPagesOnly:
    """Refuses requests that a page of another site makes in the browser of whoever runs this one.

    Such a page can send requests to this machine: under its own name (`Host`, by DNS that points here), or from itself
    (`Origin`, `Sec-Fetch-Site`). It cannot show this page inside itself either, to catch clicks.
    """

    def __init__(self, wrapped: ASGIApp) -> None:
        self.wrapped = wrapped

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes from our own page."""

        async def send_unframed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), UNFRAMED]}
            await send(message)

        kind = scope["type"]
        if kind == "lifespan" or is_own({name: value.decode("latin-1") for name, value in scope["headers"]}):
            await self.wrapped(scope, receive, send_unframed)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await PlainTextResponse("only pages of this machine", status_code=403)(scope, receive, send)


def is_own(headers: Mapping[bytes, str]) -> bool:
    """Whether a request is to this machine by one of its own names, and from no page of another origin."""
    host = headers.get(b"host", "")
    own_origin = headers.get(b"origin") in (None, f"http://{host}")
    return host.partition(":")[0] in OURS and own_origin and headers.get(b"sec-fetch-site") != "cross-site"


def serve(params: Mapping[str, Path], port: int) -> None:
    """Serve the page for the recipes of these files, by name, at `port` of this machine until Ctrl-C."""
    app.add_middleware(OwnPagesOnly)

    @ui.page("/")
    async def page() -> None:
        ui.colors(primary=BLUE)
        with ui.header().classes("items-center"):
            ui.label("figura").classes("text-lg")
            bar = ui.tabs().props("dense")
        await tabs(bar, {"Data": DataTab, "Runs": RunsTab, "Try": try_tab}, params)

    print(f"http://{ADDRESS}:{port}  (Ctrl-C ends)", flush=True)
    ui.run(
        host=ADDRESS, port=port, title="figura", language="en-US", dark=None, reload=False, show=False,
        show_welcome_message=False, reconnect_timeout=PATIENCE,
    )  # fmt: skip


async def try_tab(params: Mapping[str, Path]) -> None:
    """Build the tab, for the recipes of the moment when it is opened."""
    recipes, faults = await computed(read_recipes, params) or ({}, [])
    for fault in faults:
        paragraph(fault)
    bar = ui.tabs().props("dense align=left no-caps")
    of_systems = {
        name.replace("_", " ").capitalize(): importlib.import_module(module).panel
        for name, module in modules_with("explore_", "panel").items()
    }
    await tabs(bar, {"Photos": photos_panel, **of_systems}, recipes)
