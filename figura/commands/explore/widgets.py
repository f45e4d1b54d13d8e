"""What all tabs show in one way: pictures, and what cannot be done."""

import base64
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import cv2
import numpy as np
from nicegui import run, ui

from figura.base.errors import UserError, printable
from figura.base.exit_status import refusal
from figura.base.pictures import Pixels, encode_png

P = ParamSpec("P")
T = TypeVar("T")


def data_url(pixels: Pixels) -> str:
    """Return pixels (H, W, 3) as the text that a page shows as a picture: no request names a file."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(pixels)).decode()}"


def enlarged(pixels: Pixels, least: int) -> Pixels:
    """Enlarge pixels by a whole factor until the longer side has at least `least`, each to a square."""
    factor = max(1, -(-least // max(pixels.shape[:2])))
    return np.asarray(cv2.resize(pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_NEAREST), dtype=np.uint8)


def picture(pixels: Pixels, title: str, text: str = "", width: int = 192) -> None:
    """Show a picture with its title, and small text below; `title` is read to those who cannot see it."""
    with ui.element("figure").classes("m-0"):
        ui.label(title).classes("text-sm")
        shown = f'<img alt="" src="{data_url(pixels)}" width="{width}" style="image-rendering: pixelated">'
        image = ui.html(shown, sanitize=False)
        image.props["role"], image.props["aria-label"] = "img", title
        if text:
            ui.label(text).classes("text-xs").style("opacity: .75")


def tell(error: Exception) -> None:
    """Show why something cannot be done, for as long as it takes to read."""
    actions = [{"label": "OK", "color": "white"}]
    ui.notify(printable(str(error)), type="negative", multi_line=True, timeout=10_000, actions=actions)


async def computed(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what `act` returns, run in a thread while the page answers; tell bad input, and return None."""
    try:
        return await run.io_bound(act, *args, **kwargs)
    except UserError as error:
        tell(error)
    except Exception as error:
        if (message := refusal(error)) is None:
            tell(UserError(f"unexpected: {error!r}"))
            raise
        tell(UserError(message))
    return None
