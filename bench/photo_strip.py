"""Draw docs/pictures/photos.webp: `python -m bench.photo_strip [photos_x2]`.

Parts of three photographs of scikit-image, made small, enlarged by bicubic interpolation and by a model of the zoo, and
as they are. chelsea (Stefan van der Walt) and coffee (Rachel Michetti) are CC0, astronaut (NASA) is in the public
domain.
"""

import argparse
from pathlib import Path

import numpy as np
import skimage

import figura
from figura.base.files import write_bytes
from figura.base.pictures import Pixels
from figura.commands.report.pictures import as_webp
from figura.report.sheets import side_by_side
from models.super_resolution.resampling import resample

PARTS = {"chelsea": (60, 130), "astronaut": (60, 170), "coffee": (130, 330)}  # top and left corner
SIDE, ZOOM = 96, 2  # of a part, pixels; each becomes a square of ZOOM pixels
TARGET = Path(__file__).parents[1] / "docs/pictures/photos.webp"


def row_of(photo: Pixels, corner: tuple[int, int], model: figura.Predictor, scale: int) -> list[Pixels]:
    """Return a part of a photo four times, (SIDE ZOOM, SIDE ZOOM, 3): small, bicubic, by the model, true."""
    height, width = (side - side % scale for side in photo.shape[:2])
    photo = photo[:height, :width]
    small = resample(photo, (height // scale, width // scale), "bicubic")
    bicubic, learned = resample(small, (height, width), "bicubic"), model.predict(small)[0].pictures["sr"]
    blocks = small.repeat(scale, axis=0).repeat(scale, axis=1)
    top, left = corner
    parts = (one[top : top + SIDE, left : left + SIDE] for one in (blocks, bicubic, learned, photo))
    return [part.repeat(ZOOM, axis=0).repeat(ZOOM, axis=1) for part in parts]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.photo_strip", description=__doc__)
    parser.add_argument("model", nargs="?", default="photos_x2", choices=("photos_x2", "photos_x3", "photos_x4"))
    name = parser.parse_args().model
    model = figura.load(name)
    scale = int(name.rpartition("x")[2])
    pictures = []
    for photo, corner in PARTS.items():
        pictures += row_of(np.asarray(getattr(skimage.data, photo)()), corner, model, scale)
    write_bytes(
        TARGET, as_webp(side_by_side([pictures], ["small", "bicubic", "figura", "true"] * len(PARTS), gap=4, cell=1))
    )


if __name__ == "__main__":
    main()
