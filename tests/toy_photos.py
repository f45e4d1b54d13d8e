"""Photos as the toy recipe's input, and a painter that gives back what it sees, so that results are known exactly."""

import json
import struct
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest
import torch
import toy

from figura.base.errors import UserError
from figura.base.yaml12 import to_yaml
from figura.engine.build import build_networks
from figura.interfaces import Example, Injector, Networks, Records, State
from figura.prediction.inputs import Photo, PhotoExamples
from figura.training.checkpoints import write_model

PREDICT: dict[str, Any] = {"data": {"type": "toy_photos.Reds"}, "mode": "plain", "save": {"image": "image"}}


class Reds(PhotoExamples):
    """The red channel `x` (1, H, W) of a photo, `pieces` times; `y` = -x; `facts`, its number and size."""

    names: ClassVar[tuple[str, ...]] = ("x", "y", "name", "facts")

    def __init__(self, pieces: int = 1) -> None:
        self.pieces = pieces

    def examples(self, photo: Photo) -> list[Example]:
        red = photo.pixels()[..., 0]
        if red.max() == 13:
            raise UserError(f"{photo.path}: unlucky")
        x = red[None].astype(np.float32) / 127.5 - 1
        facts = Records([{"number": photo.number, "size": list(red.shape)}])
        name = photo.name
        return [
            {"x": x, "y": -x, "name": name if self.pieces == 1 else f"{name}-{piece}", "facts": facts}
            for piece in range(self.pieces)
        ]


class Broken(Injector):
    """Adds `broken`, but cannot run."""

    adds = ("broken",)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        raise AssertionError("nobody asked for this")


def write_video(
    path: Path, frames: int, size: tuple[int, int] = (32, 48), rate: float = 12.5, codec: str = "MJPG"
) -> Path:
    """Write a video whose frame n is grey of level 20 n; skip the test if OpenCV cannot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*codec), rate, size[::-1])
    if not writer.isOpened():
        pytest.skip(f"OpenCV cannot write {codec} here")
    for number in range(frames):
        writer.write(np.full((*size, 3), 20 * number, np.uint8))
    writer.release()
    return path


def write_mkv(path: Path, times: list[int], size: tuple[int, int] = (32, 48)) -> Path:
    """Write a Matroska video (RFC 9559) of MJPEG whose frame n is grey of level 5 n and shown at `times[n]`, in ms."""

    def element(code: str, content: bytes) -> bytes:
        return bytes.fromhex(code) + (1 << 56 | len(content)).to_bytes(8, "big") + content

    def number(value: int) -> bytes:
        return value.to_bytes(4, "big")

    info = element("2AD7B1", number(1_000_000)) + element("4489", struct.pack(">d", times[-1] + 33.0))
    track = b"".join(element(code, number(1)) for code in ("D7", "73C5", "83")) + element("86", b"V_MJPEG")
    track += element("E0", element("B0", number(size[1])) + element("BA", number(size[0])))
    body = element("1549A966", info) + element("1654AE6B", element("AE", track))
    for place, time in enumerate(times):
        frame = cv2.imencode(".jpg", np.full((*size, 3), 5 * place, np.uint8))[1].tobytes()
        body += element("1F43B675", element("E7", number(time)) + element("A3", b"\x81\0\0\x80" + frame))
    path.write_bytes(element("1A45DFA3", element("4282", b"matroska")) + element("18538067", body))
    return path


def write_run(folder: Path, changes: dict[str, Any] | None = None) -> tuple[str, str]:
    """Write a recipe with `predict`, and a run in which the painter gives back its input; return the paths of both."""
    content = toy.changed({"predict": json.loads(json.dumps(PREDICT)), "networks.painter.width": 1} | (changes or {}))
    recipe = toy.checked(content=content)
    networks = build_networks(recipe)
    with torch.no_grad():
        for parameter in networks["painter"].parameters():
            parameter.zero_()
        networks["painter"].layer.weight[0, 0, 1, 1] = 1.0
        networks["painter"].last.weight.fill_(1.0)
    write_model(folder / "run/model", networks, recipe, {})
    (folder / "recipe.yaml").write_text(to_yaml(content))
    return str(folder / "recipe.yaml"), str(folder / "run")
