"""Image pairs of drawn people: a label map and the photo of the same person.

Every item of clothing has its own label colour and always has the same fabric. A person stands in a room that a lamp
lights: what a pixel shows also follows from where it is on the garment, how far it is from the lamp and from the edge
of the floor, and whether the person's shadow falls on it. The label map shows all of these, but only by its shapes. It
thus determines the photo, though no colour of it determines a colour of the photo.
"""

from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from figura.base.pictures import encode_png
from figura.synthetic.canvas import OVERSAMPLING, Canvas, Piece, disc, extent
from figura.synthetic.figure import Figure, build
from figura.synthetic.identity import Colour, Identity, draw_body
from figura.synthetic.pose import Pose, draw_pose, draw_turn
from figura.synthetic.processes import in_processes
from figura.synthetic.randomness import SPLITS, Split, Stream, generator, pick
from figura.synthetic.settings import CatalogueSettings, Items
from figura.synthetic.wardrobe import BLACK, FLOOR, LAMP, Wardrobe, draw_wardrobe

WALL: Colour = (190, 203, 208)
BOARDS: tuple[Colour, Colour] = ((92, 126, 160), (138, 168, 196))
BOARD = 0.12  # of the side: height of a board of the floor, of either colour
EDGES = (0.6, 0.8)  # of the side: upper edge of the floor
BULB: Colour = (170, 225, 255)
BULB_RADIUS = 0.045  # of the side
LAMPS = ((0.16, 0.34), (0.16, 0.3))  # of the side: from the nearer border, and from the top
REACH = 0.4  # of the side: there, the lamp lights half as much as at the lamp itself
AMBIENT, DIRECT = 0.4, 0.85  # light far from the lamp, and what the lamp adds to it at most
SHADOW = 0.55  # light in a shadow, as a fraction
SHADOW_SIZE = 1.15  # of a shadow on the wall, times the person; it grows away from the lamp
MARGIN = 0.02  # of the side, free around a figure
SHIFT = 0.04  # of the side: maximum distance of a person from the centre
BEARDS = 0.3


def write_catalogue(
    settings: CatalogueSettings, seed: int, folder: Path, progress: bool, *, workers: int | None = None
) -> None:
    """Write `folder/<split>/000001.png` and so on: the label map on the left, the photo on the right, lossless.

    The same settings and seed give the same bytes, for any number of `workers` (processes; by default one per core).
    Raises `FileExistsError` if the folder has files of an earlier run.
    """
    for split in SPLITS:
        (folder / split).mkdir(parents=True)
    for _, written in in_processes(partial(_write, settings, seed, folder), settings.pairs, progress, workers):
        deque(written, maxlen=0)


@dataclass(frozen=True)
class Staged:
    """A person before a wall, and the lamp that may light them; lengths are pixels of a canvas of `side`."""

    wardrobe: Wardrobe
    outfit: Items
    person: Identity
    pose: Pose
    turn: float
    side: int
    scale: float
    offset: np.ndarray
    lamp: np.ndarray
    edge: int  # the floor's upper one

    @property
    def lamp_side(self) -> float:
        """-1 if the lamp is on the left, else 1."""
        return -1.0 if self.lamp[0] < self.side / 2 else 1.0

    def label_map(self) -> np.ndarray:
        """Draw the person's labels on black, uint8 (side, side, 3)."""
        labels = build(self.wardrobe.labelled(self.person, self.outfit), self.pose, turn=self.turn, light=None)
        return self._paint(np.full((self.side, self.side, 3), BLACK, dtype=np.uint8), labels)

    def photo(self, room: np.ndarray, light: float, bulb: Colour) -> np.ndarray:
        """Draw the person, lit from the side `light` in [-1, 1], and the lamp's bulb on a `room` (side, side, 3)."""
        photo = self._paint(room, build(self.person, self.pose, turn=self.turn, light=light))
        return self.with_bulb(photo, bulb)

    def with_bulb(self, picture: np.ndarray, bulb: Colour) -> np.ndarray:
        """Draw the lamp's bulb on a picture (side, side, 3), in place."""
        piece = Piece((disc(self.lamp, BULB_RADIUS * self.side),), 0.0, np.array([[bulb]], dtype=np.uint8))
        Canvas(picture).paint([piece], 1)
        return picture

    def _paint(self, picture: np.ndarray, figure: Figure) -> np.ndarray:
        Canvas(picture).paint((piece.moved(self.scale, self.offset) for piece in figure.pieces), 1)
        return picture


def stage(settings: CatalogueSettings, random: np.random.Generator, seed: int) -> Staged:
    """Draw a person of the wardrobe of `seed`, a pose, and their place in a room."""
    wardrobe = draw_wardrobe(settings.items, seed=seed, backdrop=WALL)
    outfit = Items(*(int(random.integers(count)) for count in settings.items))
    body = draw_body(random, limb_thickness=settings.limb_thickness, head_size=settings.head_size)
    person = wardrobe.dress(outfit, body, beard=bool(random.random() < BEARDS))
    pose, turn = draw_pose(random, pick(random, settings.poses)), draw_turn(random, pick(random, settings.views))
    on_left = bool(random.random() < 0.5)
    side = settings.image_size * OVERSAMPLING
    scale, offset = _place(random, build(person, pose, turn=turn, light=None), side, settings.height_range)
    aside, down = (float(random.uniform(*limits)) * side for limits in LAMPS)
    lamp = np.array([aside if on_left else side - aside, down])
    edge = int(random.uniform(*EDGES) * side)
    return Staged(wardrobe, outfit, person, pose, turn, side, scale, offset, lamp, edge)


def draw_pair(settings: CatalogueSettings, *, seed: int, split: Split, index: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw label map and photo of pair `index`, uint8 (side, side, 3) BGR; always the same for the same arguments.

    The label map has sharp edges: each pixel has one label's colour exactly. The photo's edges are smooth.
    """
    staged = stage(settings, generator(settings.seed_of(split, seed), Stream.PAIR, split, index), seed)
    label_map, edge = staged.label_map(), staged.edge
    silhouette = label_map.max(axis=2) > 0
    label_map[edge:][~silhouette[edge:]] = FLOOR
    staged.with_bulb(label_map, LAMP)
    photo = staged.photo(draw_room(silhouette, edge, staged.lamp), staged.lamp_side, BULB)
    reduced = cv2.resize(photo, (settings.image_size,) * 2, interpolation=cv2.INTER_AREA)
    level = AMBIENT + DIRECT / fall_off(settings.image_size, staged.lamp / OVERSAMPLING)
    return label_map[1::OVERSAMPLING, 1::OVERSAMPLING], lit(reduced, level)


def _place(
    random: np.random.Generator, figure: Figure, side: int, heights: tuple[float, float]
) -> tuple[float, np.ndarray]:
    """Return scale and offset that place a complete figure near the centre of a canvas."""
    low, high = np.split(extent(figure.pieces), 2)
    room = side * (1.0 - 2.0 * MARGIN)
    # Raised arms may need more room than available.
    scale = min(float(random.uniform(*heights)) * side, room / float((high - low).max()))
    free = 0.5 * (room - scale * (high - low))
    shift = np.clip(random.uniform(-SHIFT, SHIFT, 2) * side, -free, free)
    return scale, 0.5 * side + shift - 0.5 * scale * (low + high)


def draw_room(silhouette: np.ndarray, edge: int, lamp: np.ndarray) -> np.ndarray:
    """Draw the room, uint8 (side, side, 3): a wall, from row `edge` on a floor of boards, and a shadow on both.

    A `silhouette` (side, side) casts the shadow from the lamp at (x, y).
    """
    rows = np.arange(len(silhouette))
    photo = np.full((*silhouette.shape, 3), WALL, dtype=np.float32)
    number = np.floor((rows[edge:] - edge) / (BOARD * len(rows))).astype(int)
    photo[edge:] = np.array(BOARDS, dtype=np.float32)[number % 2][:, None]
    x, y = (np.floor(place + (rows - place) / SHADOW_SIZE).astype(int) for place in lamp)
    photo[silhouette[y][:, x]] *= SHADOW
    return photo.astype(np.uint8)


def fall_off(side: int, lamp: np.ndarray) -> np.ndarray:
    """Return how much darker a lamp at (x, y) is at each pixel than at itself, (side, side, 1)."""
    places = np.arange(side) + 0.5
    squares = (places - lamp[0]) ** 2 + ((places - lamp[1]) ** 2)[:, None]
    return (1.0 + squares / (REACH * side) ** 2)[..., None]


def lit(photo: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return a photo, uint8 (side, side, 3), times the light at each pixel."""
    return np.clip(np.rint(photo * level), 0.0, 255.0).astype(np.uint8)


def save(path: Path, picture: np.ndarray) -> None:
    """Write a picture, uint8 (h, w, 3) BGR, as PNG."""
    path.write_bytes(encode_png(picture[..., ::-1]))


def _write(settings: CatalogueSettings, seed: int, folder: Path, split: Split, index: int) -> None:
    pair = draw_pair(settings, seed=seed, split=split, index=index)
    save(folder / split / f"{index + 1:06d}.png", np.hstack(pair))
