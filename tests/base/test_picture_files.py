import os
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from figura.base.errors import UserError
from figura.base.pictures import decode_bgr, decode_picture, read_picture, write_png

COLOURS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


@pytest.mark.parametrize("name", [b"a.png", "ü 空.png".encode(), b"caf\xe9.png"], ids=["plain", "utf-8", "latin-1"])
def test_pictures_come_back_as_pillow_reads_them(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    write_png(path, COLOURS)
    with open(path, "rb") as file, Image.open(file) as image:
        assert np.array_equal(np.asarray(image), COLOURS)
    assert np.array_equal(read_picture(path), COLOURS)


def test_channels_keep_their_order(tmp_path):
    transparent = np.dstack([COLOURS, COLOURS[..., :1]])
    Image.fromarray(transparent).save(tmp_path / "rgba.png")
    content = (tmp_path / "rgba.png").read_bytes()
    assert np.array_equal(decode_picture(content, tmp_path, cv2.IMREAD_UNCHANGED), transparent)
    assert np.array_equal(decode_bgr(content, tmp_path), COLOURS[..., ::-1])
    assert np.array_equal(decode_bgr(content, tmp_path, cv2.IMREAD_UNCHANGED), transparent[..., [2, 1, 0, 3]])
    write_png(tmp_path / "grey.png", COLOURS[..., :1])
    content = (tmp_path / "grey.png").read_bytes()
    assert np.array_equal(decode_picture(content, tmp_path, cv2.IMREAD_UNCHANGED), COLOURS[..., 0])


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@pytest.mark.parametrize("content", [b"", b"text", "huge", "half"], ids=["empty", "text", "huge", "half"])
def test_no_picture_is_an_error_with_advice(tmp_path, content):
    path = tmp_path / "a.png"
    if content == "huge":
        header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
        content = (
            b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")
        )
    elif content == "half":
        write_png(path, COLOURS)
        content = path.read_bytes()[:30]
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.png: no readable picture: .*; run it again$"):
        read_picture(path, advice="run it again")


def test_sixteen_bits_are_not_cut_to_eight(tmp_path):
    Image.fromarray(np.full((2, 3), 256 + 7, np.uint16)).save(tmp_path / "deep.png")
    content = (tmp_path / "deep.png").read_bytes()
    with pytest.raises(UserError, match=r"deep\.png: values of uint16: a picture of 8 bits is needed; convert it"):
        decode_picture(content, tmp_path / "deep.png", cv2.IMREAD_UNCHANGED, "convert it")
