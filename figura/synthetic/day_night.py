"""People in a room by day and by night: A has day pictures of some people, B night pictures of others.

By day, a window lights the room evenly, and the lamp is off. By night, the window is dark, and the lamp lights what is
near it and casts the person's shadow. A day picture determines the night picture of the same scene, but no colour of
one determines a colour of the other. Scenes differ between A and B, and between splits. The folder `truth` has the
night pictures of A's scenes, by which networks are judged and no recipe trains.
"""

from collections import deque
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from figura.synthetic.canvas import OVERSAMPLING
from figura.synthetic.catalogue import BULB, draw_room, fall_off, lit, save, stage
from figura.synthetic.identity import Colour
from figura.synthetic.processes import in_processes
from figura.synthetic.randomness import SPLITS, Split, Stream, generator
from figura.synthetic.settings import CatalogueSettings, Counts

OFF: Colour = (246, 248, 248)  # the lamp's bulb by day
FRAME: Colour = (225, 228, 230)
SKY: Colour = (205, 160, 105)
DARK_SKY: Colour = (80, 40, 25)
WINDOW = ((0.2, 0.3), (0.24, 0.36))  # of the side: width and height
WINDOW_LEFT, WINDOW_TOP = (0.02, 0.1), (0.04, 0.2)  # of the side: from the border that is further from the lamp
PANE = 0.02  # of the side: width of the frame
MOONLIGHT = np.array([0.42, 0.32, 0.28])  # light far from the lamp: blue, green, red
LAMPLIGHT = np.array([0.5, 0.78, 0.9])  # what the lamp adds to it at most


def write_day_night(
    settings: CatalogueSettings, seed: int, folder: Path, progress: bool, *, workers: int | None = None
) -> None:
    """Write `folder/<split>/a/000001.png` and so on, as many in `b` and in `truth`.

    `pairs` of the settings is the number of pictures of each side. Files of the same name show the same scene: those of
    `b` are numbered on after those of `a`, and those of `truth` have the numbers of `a`. The same settings and seed
    give the same bytes, for any number of `workers` (processes; by default one per core).
    """
    for split in SPLITS:
        for side in ("a", "b", "truth"):
            (folder / split / side).mkdir(parents=True)
    scenes = Counts(**{split: 2 * count for split, count in settings.pairs.model_dump().items()})
    for _, written in in_processes(partial(_write, settings, seed, folder), scenes, progress, workers):
        deque(written, maxlen=0)


def draw_day_night(
    settings: CatalogueSettings, *, seed: int, split: Split, index: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw scene `index` by day and by night, uint8 (side, side, 3) BGR; always the same for the same arguments."""
    random = generator(settings.seed_of(split, seed), Stream.DAY_NIGHT, split, index)
    staged = stage(settings, random, seed)
    window = _window(random, staged.side, staged.lamp_side)
    silhouette = staged.label_map().max(axis=2) > 0
    pictures = []
    for sky, bulb, light in ((SKY, OFF, -staged.lamp_side), (DARK_SKY, BULB, staged.lamp_side)):
        casts = silhouette if bulb == BULB else np.zeros_like(silhouette)
        room = draw_room(casts, staged.edge, staged.lamp)
        cv2.rectangle(room, *window[0], FRAME, cv2.FILLED)
        cv2.rectangle(room, *window[1], sky, cv2.FILLED)
        photo = staged.photo(room, light, bulb)
        pictures.append(cv2.resize(photo, (settings.image_size,) * 2, interpolation=cv2.INTER_AREA))
    near = 1.0 / fall_off(settings.image_size, staged.lamp / OVERSAMPLING)
    return pictures[0], lit(pictures[1], MOONLIGHT + LAMPLIGHT * near)


def _window(
    random: np.random.Generator, side: int, lamp_side: float
) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Return the corners of the window's frame and of its pane, (x, y) each."""
    wide, high = (int(random.uniform(*limits) * side) for limits in WINDOW)
    aside, top = (int(random.uniform(*limits) * side) for limits in (WINDOW_LEFT, WINDOW_TOP))
    left, frame = (aside if lamp_side > 0 else side - aside - wide), round(PANE * side)
    right, bottom = left + wide, top + high
    return ((left, top), (right, bottom)), ((left + frame, top + frame), (right - frame, bottom - frame))


def _write(settings: CatalogueSettings, seed: int, folder: Path, split: Split, index: int) -> None:
    day, night = draw_day_night(settings, seed=seed, split=split, index=index)
    name = f"{index + 1:06d}.png"
    if index >= getattr(settings.pairs, split):
        save(folder / split / "b" / name, night)
        return
    save(folder / split / "a" / name, day)
    save(folder / split / "truth" / name, night)
