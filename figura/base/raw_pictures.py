"""Read raw pictures of any kind, as people see them."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Literal

import cv2
import numpy as np
from PIL import Image, ImageCms
from PIL.TiffImagePlugin import MM, OPEN_INFO, TiffImageFile

from figura.base.errors import UserError
from figura.base.file_kinds import HEAD, kind_of
from figura.base.files import open_regular, read_bytes
from figura.base.pictures import Pixels, decode_picture, encode_png

Orientation = Literal["upright", "stored"]

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""Formats that are read in process; for some others, Pillow starts programs. Of MPO, it reads the JPEG at the start."""

LARGEST = 1 << 30  # maximum bytes of a picture file
LARGEST_PIXELS = 1 << 28  # maximum pixels of a picture: 0.8 GB as RGB
LOW = 64  # 16 bits whose upper bytes are all below this are numbers of 14 bits or fewer

TURNED = "pictures turned upright by their EXIF orientation"
NOT_TURNED = "pictures stored without their EXIF orientation"
ON_WHITE = "transparent pictures composed on white"
DEEP = "pictures of 16 bits cut to the upper byte"
CONVERTED = "pictures of other colours (such as CMYK) converted to RGB"
FIRST = "animations or pages of which the first is used"
REWRITTEN = "pictures of GIF, TIFF or AVIF stored as PNG"
LOSSES = (ON_WHITE, DEEP, CONVERTED, FIRST)
"""What reading leaves out of a picture, which predictions tell, too."""
DARK = f"pictures of 16 bits end below {LOW * 256} of 65535, so they use a quarter of it or less; scale them up"
PROFILE = "pictures have a colour profile other than sRGB, and are read as sRGB; convert them if colours matter"
CONSTANT = "pictures have one colour all over"

_SRGB = (0.436, 0.222, 0.014), (0.385, 0.717, 0.097), (0.143, 0.061, 0.714)
"""X, Y and Z of sRGB's primaries in profiles, whose white is D50."""
_DIRECT = ("BMP", "JPEG", "MPO", "PNG", "WEBP")
_WIDTH, _HEIGHT, _BITS, _ORIENTATION = 0x0100, 0x0101, 0x0102, 0x0112  # tags of TIFF and EXIF
_PHOTOMETRIC, _PLANAR = 0x0106, 0x011C  # tags of TIFF
_DEEP_PLANES = "more than 8 bits, one channel after another (PlanarConfiguration 2): convert it to 8 bits"
_OTHER_FORM = "it is damaged, or has numbers or channels that are not read, as scientific TIFF: convert it to PNG"
_BACK = {6: 8, 8: 6}  # orientations whose turn another one takes back
_PNG_TAGS = ("exif", "Raw profile type exif", "xmp")

OPEN_INFO[MM, 0, (1,), 1, (16,), ()] = ("I;16B", "I;16B")  # 0 is white; Pillow has only the other order of bytes
Image.MAX_IMAGE_PIXELS = LARGEST_PIXELS  # Pillow would refuse pictures that OpenCV reads
warnings.filterwarnings("ignore", module=r"PIL\.")  # about damaged tags; damaged pixels raise errors


@dataclass(frozen=True)
class Facts:
    """What the header of a picture says.

    `stored` is (width, height), `orientation` EXIF's, from 1 to 8. `bits` are those of a channel. `alpha` is whether
    pixels can be transparent. `frames` are those of an animation, or pages; the further pictures of MPO do not count.
    `profile` is the name of an RGB profile other than sRGB, empty without one.
    """

    format: str
    mode: str
    bits: int
    stored: tuple[int, int]
    orientation: int
    alpha: bool
    frames: int
    profile: str

    @property
    def upright(self) -> tuple[int, int]:
        """Width and height of the picture turned by its orientation."""
        return self.stored[::-1] if self.orientation > 4 else self.stored

    @property
    def simple(self) -> bool:
        """Whether OpenCV reads the colours as they are meant, if all pixels are opaque."""
        direct = self.format in _DIRECT and self.mode in ("1", "L", "LA", "P", "RGB", "RGBA")
        return direct and self.bits <= 8 and self.frames == 1


@dataclass(frozen=True)
class Reading:
    """A picture: `pixels`, uint8 RGB (height, width, 3), and its `facts`.

    `done` are the kinds of changes that reading it took. If it is `plain`, every reader gets the same pixels from the
    file as it is.
    """

    pixels: Pixels
    facts: Facts
    done: tuple[str, ...]
    plain: bool

    @property
    def suspicions(self) -> dict[str, str]:
        """The kinds of what looks wrong in it, with a detail to add to its name."""
        first = self.pixels[0, 0]
        constant = (self.pixels[0] == first).all() and (self.pixels == first).all()
        return self._doubts | ({CONSTANT: ""} if constant else {})

    @property
    def told(self) -> dict[str, str]:
        """What a prediction tells of it: the kinds of what was left out or is doubted, with a detail."""
        return dict.fromkeys([kind for kind in self.done if kind in LOSSES], "") | self._doubts

    @property
    def _doubts(self) -> dict[str, str]:
        level = self.pixels.max() if self.facts.bits > 8 else LOW
        dark = {DARK: f": its maximum is {level} of 255"} if level < LOW else {}
        return dark | ({PROFILE: f": {self.facts.profile}"} if self.facts.profile else {})

    def stored(self, content: bytes) -> bytes:
        """Return what a prepared dataset has of the file: its content if that is plain, else the pixels as PNG."""
        return content if self.plain else encode_png(self.pixels)


def store_picture(path: Path, place: Path | None, orientation: Orientation = "upright") -> Reading:
    """Read a raw picture and write it to `place`, if any, such that everybody reads the same pixels from it.

    A plain file is copied byte by byte. Any other becomes a PNG, whatever its suffix: records keep their names.

    Raises:
        UserError: like `decode_raw`, or it is no regular file of at most `LARGEST` bytes.
    """
    content = read_bytes(path, most=LARGEST)
    reading = decode_raw(content, path, orientation)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(reading.stored(content))
    return reading


def picture_facts(path: Path, content: bytes | None = None) -> Facts:
    """Return what the header of a picture file, or of its content, says. Raises UserError like `store_picture`."""
    with open_regular(path) if content is None else BytesIO(content) as file, _opened(file, path) as (_, facts):
        return facts


def read_picture(path: Path, advice: str = "") -> Pixels:
    """Return the upright pixels of a picture file. Raises UserError like `store_picture`, with the advice."""
    return decode_raw(read_bytes(path, advice, LARGEST), path, advice=advice).pixels


def decode_raw(
    content: bytes, path: Path, orientation: Orientation = "upright", advice: str = "", most: int = LARGEST_PIXELS
) -> Reading:
    """Read a picture of any of `FORMATS`; `path` and `advice` are for messages.

    It is turned upright by its EXIF orientation, unless asked for as stored. Transparency is composed on white. Of 16
    bits a channel, the upper byte counts; palettes, grey and CMYK become RGB; of several frames, the first counts.

    Raises:
        UserError: more than `most` pixels, 32 bits a channel, planes of more than 8 bits, or no picture that can be
            read to its end.
    """
    with _opened(BytesIO(content), path, advice, most) as (image, facts):
        transparent = False
        if facts.simple and not facts.alpha:
            flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
            pixels = decode_picture(content, path, flags, advice)
        elif facts.mode in ("F", "I"):
            raise _unreadable(path, f"numbers of {facts.bits} bits without a range: convert it to 8 bits", advice)
        elif _in_deep_planes(image):
            raise _unreadable(path, _DEEP_PLANES, advice)
        else:
            try:
                pixels, transparent = _converted(image, content, facts.bits)
            except Exception as error:  # noqa: BLE001  # of damaged files, Pillow raises whatever its readers meet
                raise _unreadable(path, f"damaged {facts.format}: {error}", advice) from None
            if facts.format == "TIFF":  # Pillow has turned it
                pixels = _turned(pixels, _BACK.get(facts.orientation, facts.orientation))
    if orientation == "upright":
        pixels = _turned(pixels, facts.orientation)
    return _reading(pixels, facts, transparent, orientation)


def _reading(pixels: Pixels, facts: Facts, transparent: bool, orientation: Orientation) -> Reading:
    kinds = {
        TURNED: facts.orientation > 1 and orientation == "upright",
        NOT_TURNED: facts.orientation > 1 and orientation == "stored",
        ON_WHITE: transparent,
        DEEP: facts.bits > 8,
        CONVERTED: facts.mode in ("CMYK", "LAB", "YCbCr"),
        FIRST: facts.frames > 1,
        REWRITTEN: facts.format not in _DIRECT,
    }
    done = tuple(kind for kind, found in kinds.items() if found)
    return Reading(pixels, facts, done, facts.simple and not transparent and facts.orientation == 1)


def read_upright(image: Image.Image) -> Reading:
    """Return a picture of Pillow as if read from a file by `decode_raw`; of 8 or 16 bits a channel.

    Raises ValueError for planes of more than 8 bits.
    """
    if _in_deep_planes(image):
        raise ValueError(_DEEP_PLANES)
    image.load()  # which turns TIFF
    turn, bits = _orientation(image), 16 if image.mode.startswith("I;16") else 8
    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    alpha, profile = image.has_transparency_data, _profile(image)
    facts = Facts(image.format or "", image.mode, bits, image.size, turn, alpha, frames, profile)
    pixels, transparent = _converted(image, b"", bits)
    return _reading(_turned(pixels, turn), facts, transparent, "upright")


@contextlib.contextmanager
def _opened(
    file: IO[bytes], path: Path, advice: str = "", most: int = LARGEST_PIXELS
) -> Iterator[tuple[Image.Image, Facts]]:
    """Open a picture by its header; raises UserError if it is none, or too large."""
    with contextlib.ExitStack() as stack:
        try:
            image = stack.enter_context(Image.open(file, formats=FORMATS))
            facts = _facts(image, file) if image.width * image.height <= most else None
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            facts = None
        except Exception:  # noqa: BLE001  # of damaged headers, Pillow raises whatever its readers meet
            file.seek(0)
            kind = kind_of(file.read(HEAD), path) or "it is empty, damaged or of another kind"
            raise _unreadable(path, _OTHER_FORM if kind == "it is a picture" else kind, advice) from None
        if facts is None:
            raise _unreadable(path, f"it has more than {most / 1e6:.0f} megapixels: make it smaller", advice)
        yield image, facts


def _facts(image: Image.Image, file: IO[bytes]) -> Facts:
    kind, bits, stored, has_tags = str(image.format), 8, image.size, True
    if kind == "PNG":
        bits, exif = _png_header(file)
        has_tags = exif or any(name in image.info for name in _PNG_TAGS)  # Pillow decodes all of a PNG to find none
    elif isinstance(image, TiffImageFile):
        tags = image.tag_v2
        bits, stored = max(tags.get(_BITS, (1,))), (tags[_WIDTH], tags[_HEIGHT])
    frames = 1 if kind == "MPO" else getattr(image, "n_frames", 1)
    alpha = image.has_transparency_data
    return Facts(kind, image.mode, bits, stored, _orientation(image) if has_tags else 1, alpha, frames, _profile(image))


def _png_header(file: IO[bytes]) -> tuple[int, bool]:
    """Return the bits of a channel, and whether there is a chunk of EXIF, perhaps after the pixels."""
    place = file.tell()
    file.seek(24)
    bits, exif = file.read(1)[0], False
    file.seek(8)
    while len(head := file.read(8)) == 8 and not exif:
        exif = head[4:] == b"eXIf"
        file.seek(int.from_bytes(head[:4], "big") + 4, os.SEEK_CUR)
    file.seek(place)
    return bits, exif


def _orientation(image: Image.Image) -> int:
    """Return the orientation of EXIF, 1 if there is none."""
    try:
        found = image.getexif().get(_ORIENTATION)
    except Exception:  # noqa: BLE001  # of damaged EXIF, Pillow raises whatever its reader meets; the pixels are whole
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _profile(image: Image.Image) -> str:
    """Return the name of an embedded RGB profile; empty for none, sRGB, and one that cannot be read. 20 microseconds.

    A profile is sRGB by its name or its primaries, unless it is linear.
    """
    if not (content := image.info.get("icc_profile")):
        return ""
    try:
        profile = ImageCms.ImageCmsProfile(BytesIO(content)).profile
        name = " ".join((profile.profile_description or "without a name").split())
        colours = profile.red_colorant, profile.green_colorant, profile.blue_colorant
    except Exception:  # noqa: BLE001  # of damaged profiles, as of damaged files; other readers ignore all profiles
        return ""
    primaries = [one[0] for one in colours if one]
    near = len(primaries) == len(_SRGB) and np.allclose(primaries, _SRGB, atol=0.01)
    is_srgb = ("srgb" in name.lower() or near) and "linear" not in name.lower()
    return "" if is_srgb or profile.xcolor_space.strip() != "RGB" else name


def _in_deep_planes(image: Image.Image) -> bool:
    """Whether a TIFF has more than 8 bits, one channel after another, which Pillow and OpenCV misread."""
    tags = image.tag_v2 if isinstance(image, TiffImageFile) else {}
    return tags.get(_PLANAR) == 2 and max(tags.get(_BITS, (1,))) > 8


def _turned(pixels: Pixels, orientation: int) -> Pixels:
    """Return the pixels as a picture with this orientation is shown (EXIF 2.3, table of Orientation)."""
    if orientation > 4:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _converted(image: Image.Image, content: bytes, bits: int) -> tuple[Pixels, bool]:
    """Return RGB pixels as stored, and whether some are transparent; of several frames, the first."""
    key: int | tuple[int, ...] | bytes | None = image.info.get("transparency")
    if image.mode.startswith("I;16"):
        deep = np.asarray(image)
        if isinstance(image, TiffImageFile) and image.tag_v2.get(_PHOTOMETRIC) == 0:
            deep = ~deep  # 0 is white; Pillow knows that of 8 bits only
        alpha = np.where(deep == key, 0, 255) if isinstance(key, int) else np.full_like(deep, 255)
        grey = deep >> (bits - 8)
        pixels = np.dstack([grey, grey, grey, alpha]).astype(np.uint8)
    elif bits == 16 and isinstance(key, tuple):  # Pillow would compare the upper bytes alone
        flags = cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION
        deep = np.asarray(cv2.imdecode(np.frombuffer(content, np.uint8), flags))
        pixels = np.asarray(cv2.cvtColor(deep, cv2.COLOR_BGRA2RGBA) >> 8, dtype=np.uint8)
    elif not image.has_transparency_data:
        return np.array(image.convert("RGB")), False
    else:
        pixels = np.array(image.convert("RGBA"))
    alpha = pixels[..., 3:].astype(np.uint16)
    if alpha.min() == 255:
        return np.ascontiguousarray(pixels[..., :3]), False
    return ((pixels[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8), True


def _unreadable(path: Path, reason: str, advice: str) -> UserError:
    return UserError(f"{path}: no readable picture: {reason}" + (f"; {advice}" if advice else ""))
