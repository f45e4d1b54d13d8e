"""Pictures of every kind that cameras, scanners and editors write, read to the pixels that a person sees."""

import io
import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms

from figura.base import raw_pictures
from figura.base.errors import UserError
from figura.base.pictures import decode_bgr, decode_picture, write_png
from figura.base.raw_pictures import decode_raw, picture_facts, read_picture, read_upright, store_picture

ROW = np.array([[[10, 20, 30], [40, 50, 60], [70, 80, 90]], [[1, 2, 3], [4, 5, 6], [7, 8, 9]]], np.uint8)
"""Two rows of three pixels."""
RED = np.arange(10, 250, 40, dtype=np.uint8).reshape(2, 3)  # 10 50 90 / 130 170 210
UPRIGHT = {  # what is shown of RED, by orientation: the sides that its first row and its first column are on
    1: [[10, 50, 90], [130, 170, 210]],  # top, left
    2: [[90, 50, 10], [210, 170, 130]],  # top, right
    3: [[210, 170, 130], [90, 50, 10]],  # bottom, right
    4: [[130, 170, 210], [10, 50, 90]],  # bottom, left
    5: [[10, 130], [50, 170], [90, 210]],  # left, top
    6: [[130, 10], [170, 50], [210, 90]],  # right, top
    7: [[210, 90], [170, 50], [130, 10]],  # right, bottom
    8: [[90, 210], [50, 170], [10, 130]],  # left, bottom
}
HERE = Path("here.png")


def encoded(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def png(rows, bits, colours, *chunks):
    """Return a PNG of rows of bytes, with chunks before its pixels."""
    height, width = rows.shape[:2]
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in ((b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b""))
    )


def turned(orientation, form, size=1):
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.repeat(np.repeat(np.dstack([RED] * 3), size, axis=0), size, axis=1)
    options = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True}, "AVIF": {"quality": 100}}.get(form, {})
    return encoded(Image.fromarray(pixels), form, exif=exif, **options)


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_orientation(orientation, form, tmp_path):
    content = turned(orientation, form, 16)  # blocks of JPEG have 8 pixels
    path = tmp_path / "a"
    path.write_bytes(content)
    facts = picture_facts(path)
    assert (facts.orientation, facts.stored) == (orientation, (48, 32))
    assert facts.upright == ((48, 32) if orientation < 5 else (32, 48))
    for asked, shown in (("upright", UPRIGHT[orientation]), ("stored", UPRIGHT[1])):
        reading = decode_raw(content, HERE, asked)
        middles = reading.pixels[8::16, 8::16].astype(int)
        assert np.abs(middles - np.array(shown)[..., None]).max() <= 2
        kind = raw_pictures.TURNED if asked == "upright" else raw_pictures.NOT_TURNED
        assert (kind in reading.done) == (orientation > 1)
        assert reading.plain == (orientation == 1 and form not in ("TIFF", "AVIF"))
    with Image.open(path) as image:
        assert np.array_equal(read_upright(image).pixels, read_picture(path))


def test_orientations_that_mean_nothing():
    for orientation in (0, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        reading = decode_raw(encoded(Image.fromarray(ROW), exif=exif), HERE)
        assert (reading.pixels.tolist(), reading.done, reading.plain) == (ROW.tolist(), (), True)
    exif[0x0112] = 3
    whole = encoded(Image.fromarray(ROW), exif=exif)
    start = whole.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(whole[start : start + 4], "big")
    late = whole[:start] + whole[end:-12] + whole[start:end] + whole[-12:]  # behind the pixels, as PNG allows
    assert decode_raw(late, HERE).pixels.tolist() == ROW[::-1, ::-1].tolist()
    damaged = (b"eXIf", b"MM\0*\xff\xff\xff\xff\0\0")
    assert decode_raw(png(ROW, 8, 2, damaged), HERE).pixels.tolist() == ROW.tolist()


def png_of_width(content, width):
    """Return a PNG whose header says another width."""
    header = b"IHDR" + struct.pack(">I", width) + content[20:29]
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


def transparent(mode):
    """Return a picture of four pixels: black with alpha 0, 128 and 255, and grey 200 with alpha 51."""
    grey, alpha = np.array([[0, 0, 0, 200]], np.uint8), np.array([[0, 128, 255, 51]], np.uint8)
    return Image.merge(mode, [*[Image.fromarray(grey)] * (len(mode) - 1), Image.fromarray(alpha)])


def palette():
    image = Image.new("P", (3, 1))
    image.putdata([0, 1, 2])
    image.putpalette([0, 0, 0, 0, 0, 0, 9, 8, 7])
    return image


def deep(colours):
    """Return a PNG of 16 bits of `DEEP`, opaque."""
    channels = {0: 1, 2: 3, 4: 1, 6: 3}[colours]
    pixels = np.dstack([DEEP] * channels + [np.full_like(DEEP, 65535)] * (colours > 2))
    return png(pixels.astype(">u2"), 16, colours)


def inks(form, **options):
    """Return 16 x 16 pixels each of no ink, all black and cyan, which are 255 (1 - ink) (1 - black)."""
    image = np.array([[[0, 0, 0, 0], [0, 0, 0, 255], [255, 0, 0, 0]]], np.uint8)
    return encoded(Image.fromarray(image.repeat(16, axis=1).repeat(16, axis=0), "CMYK"), form, **options)


def frames(form, **options):
    red, blue = (Image.new("RGB", (4, 3), colour) for colour in ((255, 0, 0), (0, 0, 255)))
    return encoded(red, form, save_all=True, append_images=[blue], **options)


DEEP = np.array([[0, 255, 256, 40000, 65535]], np.uint16)  # upper bytes 0 0 1 156 255
KEYED = np.array([[256, 257, 512]], ">u2")  # of one upper byte, one of the two is transparent
HALF = np.array([[[0, 0, 0, 65535], [0, 0, 0, 0], [0, 0, 0, 0x8000]]], ">u2")
COMPOSED = [255, 127, 0, 244]  # 0 a + 255 (1 - a) for black, and 200 0.2 + 255 0.8
UPPER = [0, 0, 1, 156, 255]
INKS = [one for one in (255, 0, [0, 255, 255]) for _ in range(16)]
EXACT = {"lossless": True, "exact": True}
WHITE, DEPTH, PNG = raw_pictures.ON_WHITE, raw_pictures.DEEP, raw_pictures.REWRITTEN
KINDS = {  # the content, what a person sees of its first row, what was done, by how much a colour may be off
    "RGBA": (encoded(transparent("RGBA")), COMPOSED, [WHITE], 0),
    "grey and alpha": (encoded(transparent("LA")), COMPOSED, [WHITE], 0),
    "RGBA of WebP": (encoded(transparent("RGBA"), "WEBP", **EXACT), COMPOSED, [WHITE], 0),
    "RGBA of TIFF": (encoded(transparent("RGBA"), "TIFF"), COMPOSED, [WHITE, PNG], 0),
    "grey and alpha of TIFF": (encoded(transparent("LA"), "TIFF"), COMPOSED, [WHITE, PNG], 0),
    "palette with alpha": (encoded(palette(), transparency=bytes([0, 128, 255])), [255, 127, [9, 8, 7]], [WHITE], 0),
    "palette of GIF": (encoded(palette(), "GIF", transparency=0, optimize=False), [255, 0, [9, 8, 7]], [WHITE, PNG], 0),
    "opaque palette": (encoded(palette(), transparency=b"\xff"), [0, 0, [9, 8, 7]], [], 0),
    "transparent grey": (encoded(Image.fromarray(np.array([[5, 6]], np.uint8)), transparency=5), [255, 6], [WHITE], 0),
    "transparent colour": (encoded(Image.fromarray(ROW[:1]), transparency=(40, 50, 60)),
        [[10, 20, 30], 255, [70, 80, 90]], [WHITE], 0),
    "opaque RGBA": (encoded(Image.fromarray(ROW).convert("RGBA")), ROW[0].tolist(), [], 0),
    "16 bits of grey": (deep(0), UPPER, [DEPTH], 0),
    "16 bits of RGB": (deep(2), UPPER, [DEPTH], 0),
    "16 bits of grey and alpha": (deep(4), UPPER, [DEPTH], 0),
    "16 bits of RGBA": (deep(6), UPPER, [DEPTH], 0),
    "16 bits of TIFF, grey": (cv2.imencode(".tif", DEEP)[1].tobytes(), UPPER, [DEPTH, PNG], 0),
    "16 bits of TIFF, RGB": (cv2.imencode(".tif", np.dstack([DEEP] * 3))[1].tobytes(), UPPER, [DEPTH, PNG], 0),
    "16 bits of TIFF, 0 is white": (encoded(Image.fromarray(DEEP), "TIFF", tiffinfo={0x0106: 0}),
        [255, 255, 254, 99, 0], [DEPTH, PNG], 0),
    "16 bits of TIFF, 0 is white, big-endian": (
        encoded(Image.fromarray(DEEP.astype(">u2")), "TIFF", tiffinfo={0x0106: 0}),
        [255, 255, 254, 99, 0], [DEPTH, PNG], 0),
    "16 bits, transparent": (png(HALF, 16, 6), [0, 255, 127], [WHITE, DEPTH], 0),
    "16 bits, transparent grey": (png(KEYED, 16, 0, (b"tRNS", b"\1\1")), [1, 255, 2], [WHITE, DEPTH], 0),
    "16 bits, transparent colour": (png(np.dstack([KEYED] * 3).astype(">u2"), 16, 2, (b"tRNS", b"\1\1" * 3)),
        [1, 255, 2], [WHITE, DEPTH], 0),
    "1 bit": (encoded(Image.fromarray(np.array([[True, False]]))), [255, 0], [], 0),
    "2 bits": (png_of_width(png(np.array([[0b00011011]], np.uint8), 2, 0), 4), [0, 85, 170, 255], [], 0),
    "CMYK": (inks("JPEG", quality=100, subsampling=0), INKS, [raw_pictures.CONVERTED], 4),
    "CMYK of TIFF": (inks("TIFF"), INKS, [raw_pictures.CONVERTED, PNG], 4),
    "GIF of two": (frames("GIF"), [[255, 0, 0]] * 4, [raw_pictures.FIRST, PNG], 2),
    "PNG of two": (frames("PNG"), [[255, 0, 0]] * 4, [raw_pictures.FIRST], 2),
    "WebP of two": (frames("WEBP", lossless=True), [[255, 0, 0]] * 4, [raw_pictures.FIRST], 2),
    "TIFF of two": (frames("TIFF"), [[255, 0, 0]] * 4, [raw_pictures.FIRST, PNG], 2),
    "MPO of two": (frames("MPO"), [[255, 0, 0]] * 4, [], 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_to_what_a_person_sees(kind):
    content, row, done, off = KINDS[kind]
    reading = decode_raw(content, HERE)
    expected = np.array([[one] * 3 if isinstance(one, int) else one for one in row])
    assert np.abs(reading.pixels[0].astype(int) - expected).max() <= off
    assert (reading.done, reading.plain) == (tuple(done), done == [])
    if WHITE in done and DEPTH not in done:
        opened = read_upright(Image.open(io.BytesIO(content)))
        assert np.array_equal(opened.pixels, reading.pixels)
        assert opened.told == reading.told == {WHITE: ""}


@pytest.mark.parametrize(("last", "level"), [(1000, 3), (9860, 38), (16383, 63), (16384, None), (65535, None)])
def test_sixteen_bits_of_low_values_are_doubted(last, level):
    for content in (encoded(Image.fromarray(np.array([[0, last]], np.uint16))),
                    cv2.imencode(".tif", np.array([[[0] * 3, [last] * 3]], np.uint16))[1].tobytes()):  # fmt: skip
        suspicions = {} if level is None else {raw_pictures.DARK: f": its maximum is {level} of 255"}
        assert decode_raw(content, HERE).suspicions == suspicions


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
SRGB_RED, P3_RED = ((0.43604, 0.22249, 0.01392), (0.51512, 0.24120, -0.00105))  # X, Y, Z where white is D50


def profile(name, red=SRGB_RED):
    """Return sRGB's profile with another name, of 13 letters at most, and another red."""
    content = SRGB.replace("sRGB built-in".encode("utf-16-be"), name.ljust(13).encode("utf-16-be"))
    tag = content.index(b"rXYZ")
    place = int.from_bytes(content[tag + 4 : tag + 8], "big") + 8
    return content[:place] + struct.pack(">3i", *(round(65536 * one) for one in red)) + content[place + 12 :]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize(
    ("embedded", "name"),
    [
        (profile("Display P3", P3_RED), "Display P3"),
        (profile("Linear sRGB"), "Linear sRGB"),
        (SRGB, ""),
        (profile("c2"), ""),  # sRGB by its primaries
        (profile("sRGB v4", P3_RED), ""),
        (SRGB[:200], ""),
        (profile("Grey", P3_RED).replace(b"RGB XYZ ", b"GRAYXYZ "), ""),
    ],
    ids=["P3", "linear", "sRGB", "primaries", "description", "cut", "grey"],
)
def test_other_colour_profiles_are_told_and_change_no_pixel(form, embedded, name):
    image = Image.fromarray(np.repeat(ROW, 9, axis=1))
    content = encoded(image, form, icc_profile=embedded)
    reading = decode_raw(content, HERE)
    assert reading.suspicions == reading.told == ({raw_pictures.PROFILE: f": {name}"} if name else {})
    assert read_upright(Image.open(io.BytesIO(content))).told == reading.told
    assert np.array_equal(reading.pixels, decode_raw(encoded(image, form), HERE).pixels)
    assert reading.plain == (form not in ("TIFF", "AVIF"))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "BMP"])
def test_plain_pictures_are_read_as_opencv_does(form):
    content = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)), form)
    reading = decode_raw(content, HERE)
    assert np.array_equal(reading.pixels, decode_picture(content, HERE))
    assert (reading.done, reading.suspicions, reading.plain) == ((), {}, True)
    assert reading.stored(content) is content


@pytest.mark.parametrize("orientation", ["upright", "stored"])
def test_what_is_stored_is_read_alike_by_everybody(orientation, tmp_path):
    content = {
        "plain.jpg": encoded(Image.fromarray(np.repeat(ROW, 9, axis=1)), "JPEG"),
        "turned.jpg": turned(6, "JPEG"), "turned.png": turned(5, "PNG"), "turned.tif": turned(8, "TIFF"),
        "clear.png": encoded(transparent("RGBA")), "deep.png": encoded(Image.fromarray(DEEP)),
        "ink.jpg": encoded(Image.new("CMYK", (8, 8), (9, 50, 99, 0)), "JPEG"),
    }  # fmt: skip
    for name, file in content.items():
        (tmp_path / name).write_bytes(file)
        place = tmp_path / "stored" / name
        reading = store_picture(tmp_path / name, place, orientation)
        assert (place.read_bytes() == file) == (name == "plain.jpg")
        for flags in (cv2.IMREAD_COLOR, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION):
            assert np.array_equal(cv2.imread(str(place), flags)[..., ::-1], reading.pixels)
        with Image.open(place) as image:
            assert np.abs(np.asarray(image.convert("RGB")).astype(int) - reading.pixels).max() <= 1
        again = decode_raw(place.read_bytes(), place)
        assert (again.done, again.plain) == ((), True)


def test_large_pictures_by_one_limit(tmp_path):
    large = Image.new("1", (14_000, 13_000))  # 182 megapixels: more than Pillow reads unless told
    (tmp_path / "large.png").write_bytes(encoded(large))
    assert picture_facts(tmp_path / "large.png").upright == (14_000, 13_000)
    for width in (20_000, 60_000):
        content = png_of_width(encoded(Image.new("1", (8, 14_000))), width)
        with pytest.raises(
            UserError, match=r"here\.png: no readable picture: it has more than 268 megapixels: make it smaller"
        ):
            decode_raw(content, HERE)


PLANAR = struct.pack("<HHI", 284, 3, 1)  # an entry of a TIFF: its tag, its type, the count of its values
IN_PLANES = cv2.imencode(".tif", np.dstack([DEEP] * 3))[1].tobytes().replace(PLANAR + b"\1", PLANAR + b"\2")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (encoded(Image.new("F", (2, 2)), "TIFF"), "numbers of 32 bits without a range"),
        (encoded(Image.new("I", (2, 2)), "TIFF"), "numbers of 32 bits without a range"),
        (IN_PLANES, "more than 8 bits, one channel after another .*: convert it to 8 bits"),
        (cv2.imencode(".tif", np.zeros((2, 2, 3), np.float32))[1].tobytes(), "channels that are not read, .*TIFF: con"),
        (b"", "it is empty, damaged or of another kind"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "of another kind"),
        (encoded(Image.fromarray(ROW).convert("RGBA"))[:-30], "damaged PNG"),
        (encoded(Image.fromarray(ROW), "TIFF")[:-3], "damaged|of another kind"),
        (encoded(Image.fromarray(ROW), "JPEG")[:-3], "damaged"),
    ],
    ids=["float", "32 bits", "planes", "float RGB", "empty", "PostScript", "cut PNG", "cut TIFF", "cut JPEG"],
)
def test_what_cannot_be_read_is_one_line(content, reason):
    with pytest.raises(UserError, match=rf"^here\.png: no readable picture: .*({reason}).*; mend it$"):
        decode_raw(content, HERE, advice="mend it")


def test_pictures_of_pillow_in_deep_planes_are_refused():
    with pytest.raises(ValueError, match="more than 8 bits, one channel after another"):
        read_upright(Image.open(io.BytesIO(IN_PLANES)))


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


def test_sixteen_bits_are_not_cut_to_eight(tmp_path):
    Image.fromarray(np.full((2, 3), 256 + 7, np.uint16)).save(tmp_path / "deep.png")
    content = (tmp_path / "deep.png").read_bytes()
    with pytest.raises(UserError, match=r"deep\.png: values of uint16: a picture of 8 bits is needed; convert it"):
        decode_picture(content, tmp_path / "deep.png", cv2.IMREAD_UNCHANGED, "convert it")
