"""Which decoder reads photos fastest, and what does it cost to let JPEG shrink them while it decodes (draft mode)?

Milliseconds of the processor a picture, the best of some rounds, over the photos of a folder. For pictures that were
shrunk by 2 or 4, `difference` is how far they are from those decoded whole, after both are averaged down to the longer
side given: mean over pixels, in levels of 255. `pictures` counts those that are still large enough for this side.

`python -m bench.decoders [--folder shared/data/coco_keypoints_real/images] [--sides 97 193]`
"""

import argparse
import io
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bench.table import show

Pixels = NDArray[np.uint8]
ROUNDS = 3
FLAGS = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4}


def by_opencv(content: bytes, shrink: int) -> Pixels:
    """Decode with OpenCV, BGR."""
    flags = FLAGS[shrink] | cv2.IMREAD_IGNORE_ORIENTATION
    return np.asarray(cv2.imdecode(np.frombuffer(content, np.uint8), flags), dtype=np.uint8)


def by_pillow(content: bytes, shrink: int) -> Pixels:
    """Decode with Pillow, BGR."""
    with Image.open(io.BytesIO(content)) as image:
        if shrink > 1:
            image.draft("RGB", (image.width // shrink, image.height // shrink))
        return np.asarray(image.convert("RGB"))[..., ::-1]


def milliseconds(decode: Callable[[bytes], Pixels], files: list[bytes]) -> float:
    """Return the time of the processor for a picture."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for content in files:
            decode(content)
        times.append(time.process_time() - start)
    return 1e3 * min(times) / len(files)


def differences(decode: Callable[[bytes], Pixels], files: list[bytes], side: int) -> list[float]:
    """Return the mean difference from pictures decoded whole, of each picture that is at least `side` pixels long."""
    levels = []
    for content in files:
        pixels, whole = decode(content), by_opencv(content, 1)
        height, width = (max(1, round(length * side / max(whole.shape[:2]))) for length in whole.shape[:2])
        if max(pixels.shape[:2]) >= side:
            small = (cv2.resize(one, (width, height), interpolation=cv2.INTER_AREA) for one in (pixels, whole))
            levels.append(float(cv2.absdiff(*small).mean()))
    return levels


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.decoders")
    parser.add_argument("--folder", type=Path, default=Path("shared/data/coco_keypoints_real/images"))
    parser.add_argument("--sides", type=int, nargs="+", default=[97, 193])
    args = parser.parse_args()
    cv2.setNumThreads(0)
    files = [path.read_bytes() for path in sorted(args.folder.glob("*.jpg"))]
    heads = [text for side in args.sides for text in (f"difference at {side} px", "pictures")]
    rows: list[list[object]] = [["decoder", "shrunk by", "ms/picture", *heads]]
    for name, function in (("OpenCV", by_opencv), ("Pillow", by_pillow)):
        for shrink in FLAGS:
            decode = partial(function, shrink=shrink)
            row: list[object] = [name, shrink, milliseconds(decode, files)]
            for side in args.sides:
                levels = differences(decode, files, side)
                row += [float(np.mean(levels)) if levels else "", len(levels)]
            rows.append(row)
    show(rows)


if __name__ == "__main__":
    main()
