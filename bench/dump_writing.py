"""How long eval-dump takes to write its files, one by one: encoding, writing, flushing each to disk, hashing.

Usage: python -m bench.dump_writing [--files 1000] [--side 64] [--folder FOLDER]

The pictures are noise, which compresses least. `now` is what eval-dump does; the other rows are what it could do.
"""

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch

from figura.base.files import write_bytes
from figura.base.pictures import Pixels, encode_png
from figura.dump import write_value

WAYS: dict[str, Callable[[Path, Pixels, bytes], object]] = {
    "encode": lambda path, pixels, content: encode_png(pixels),
    "hash": lambda path, pixels, content: hashlib.sha256(content).hexdigest(),
    "cv2.imwrite": lambda path, pixels, content: cv2.imwrite(str(path), pixels[..., ::-1]),
    "now": lambda path, pixels, content: write_value(path, torch.from_numpy(pixels.transpose(2, 0, 1) / 127.5 - 1)),
    "flush each": lambda path, pixels, content: write_bytes(path, encode_png(pixels)),
}


def main() -> None:
    """Time each way, and print milliseconds a file."""
    parser = argparse.ArgumentParser(prog="python -m bench.dump_writing", description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--side", type=int, default=64, help="pixels")
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    args = parser.parse_args()
    pixels = np.random.default_rng(0).integers(0, 256, (args.side, args.side, 3), np.uint8)
    content = encode_png(pixels)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for name, way in WAYS.items():
            start = time.perf_counter()
            for place in range(args.files):
                way(Path(folder) / f"{place:06d}.image.png", pixels, content)
            print(f"{name:12} {1000 * (time.perf_counter() - start) / args.files:8.3f} ms a file")
        start = time.perf_counter()
        os.sync()
        print(f"{'sync at last':12} {1000 * (time.perf_counter() - start) / args.files:8.3f} ms a file")


if __name__ == "__main__":
    main()
