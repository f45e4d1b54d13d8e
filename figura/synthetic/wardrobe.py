"""A fixed stock of clothes, skins and hair, with a label colour for each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import cv2
import numpy as np

from figura.synthetic.figure import WOOD
from figura.synthetic.head import EYE_RINGS
from figura.synthetic.identity import (
    HAIR_COLOURS,
    HAIRSTYLES,
    SLEEVES,
    TROUSERS,
    Body,
    Colour,
    Garment,
    Identity,
    clothes_colour,
    draw_garment,
    lip_colour,
    skin_colour,
)
from figura.synthetic.randomness import SPLITS, Stream, generator, pick
from figura.synthetic.settings import Items

Item = TypeVar("Item")

BLACK: Colour = (0, 0, 0)  # the wall
FLOOR: Colour = (102, 102, 102)
LAMP: Colour = (255, 255, 255)
LIPS: Colour = (70, 70, 210)
# Other content of a label map than the catalogue's items: the room, furniture, lips, and the whites and pupils of eyes.
RESERVED: tuple[Colour, ...] = (BLACK, FLOOR, LAMP, WOOD, LIPS, *((grey, grey, grey) for _, grey in EYE_RINGS))
CANDIDATES = 40  # per item; the one most different from earlier items is used
SKIRT_SHARE = 0.34
PERIODS = (0.13, 0.2)  # of the standing height; of patterns, coarse enough for small photos


@dataclass(frozen=True, slots=True)
class Top:
    """`tuck` is how far it reaches down the trunk, 1 at the hip joints."""

    garment: Garment
    tuck: float


@dataclass(frozen=True, slots=True)
class Bottom:
    """Trousers or a skirt."""

    garment: Garment
    skirt: bool


@dataclass(frozen=True, slots=True)
class Hair:
    """A style and its colour; a cap is treated as hair."""

    style: str
    colour: Colour


@dataclass(frozen=True, slots=True)
class Wardrobe:
    """All items, and their label colours in the same order."""

    tops: tuple[Top, ...]
    bottoms: tuple[Bottom, ...]
    skins: tuple[Colour, ...]
    hairs: tuple[Hair, ...]
    shoes: tuple[Colour, ...]
    labels: tuple[Colour, ...]  # all tops, then bottoms, skins, hairs, shoes

    def dress(self, outfit: Items, body: Body, *, beard: bool) -> Identity:
        """Return the person in an outfit; without a beard if it does not suit the hair or a skirt."""
        top, bottom, hair = self.tops[outfit.tops], self.bottoms[outfit.bottoms], self.hairs[outfit.hairs]
        skin = self.skins[outfit.skins]
        return Identity(
            stature=1.0,
            body=body,
            skin=skin,
            lips=lip_colour(skin),
            hair=hair.colour,
            hairstyle=hair.style,
            beard=beard and hair.style == "short" and not bottom.skirt,
            top=top.garment,
            bottom=bottom.garment,
            skirt=bottom.skirt,
            shoes=self.shoes[outfit.shoes],
            tuck=top.tuck,
        )

    def labelled(self, person: Identity, outfit: Items) -> Identity:
        """Return the same person with label colours in place of patterns, skin and hair."""
        kinds = (self.tops, self.bottoms, self.skins, self.hairs, self.shoes)
        starts = np.cumsum([0, *(len(kind) for kind in kinds)])
        top, bottom, skin, hair, shoes = (self.labels[a + b] for a, b in zip(starts[:-1], outfit, strict=True))
        return replace(
            person,
            skin=skin,
            lips=LIPS,
            hair=hair,
            shoes=shoes,
            top=replace(person.top, pattern="plain", colours=(top, top)),
            bottom=replace(person.bottom, pattern="plain", colours=(bottom, bottom)),
        )


@lru_cache(maxsize=1)
def draw_wardrobe(counts: Items, *, seed: int, backdrop: Colour) -> Wardrobe:
    """Draw the wardrobe of a seed; cached.

    The colours of items of one kind differ from each other and from the backdrop; skins go evenly from light to dark.
    Except for skins, a larger wardrobe starts with the items of a smaller one.
    """
    streams = [generator(seed, Stream.CATALOGUE, SPLITS[0], kind) for kind in range(4)]
    return Wardrobe(
        tops=_unlike(lambda _: _top(streams[0]), lambda top: top.garment.colours[0], counts.tops, backdrop),
        bottoms=_unlike(lambda _: _bottom(streams[1]), lambda item: item.garment.colours[0], counts.bottoms, backdrop),
        skins=tuple(skin_colour(float(darkness)) for darkness in np.linspace(0.0, 1.0, counts.skins)),
        hairs=_hairs(streams[2], counts.hairs, backdrop),
        shoes=_unlike(lambda _: clothes_colour(streams[3]), lambda colour: colour, counts.shoes, backdrop),
        labels=label_colours(sum(counts)),
    )


def label_colours(count: int) -> tuple[Colour, ...]:
    """Return colours far from each other and from the `RESERVED` ones.

    Each is the corner of the grid {0, 51, ..., 255}^3 whose distance to the nearest one already taken is largest
    (farthest-point sampling, Gonzalez 1985); ties use the first. They depend only on their number.
    """
    grid = 51.0 * np.indices((6, 6, 6)).reshape(3, -1).T
    nearest = np.linalg.norm(grid[:, None] - np.array(RESERVED, dtype=np.float64), axis=2).min(axis=1)
    chosen: list[Colour] = []
    for _ in range(count):
        blue, green, red = grid[int(nearest.argmax())].astype(int).tolist()
        chosen.append((blue, green, red))
        nearest = np.minimum(nearest, np.linalg.norm(grid - (blue, green, red), axis=1))
    return tuple(chosen)


def _top(random: np.random.Generator) -> Top:
    return Top(_garment(random, pick(random, SLEEVES)), tuck=float(random.uniform(0.78, 1.08)))


def _bottom(random: np.random.Generator) -> Bottom:
    skirt = bool(random.random() < SKIRT_SHARE)
    cover = float(random.uniform(0.42, 0.75)) if skirt else pick(random, TROUSERS)
    return Bottom(_garment(random, cover), skirt)


def _garment(random: np.random.Generator, cover: float) -> Garment:
    return replace(draw_garment(random, cover=cover), period=float(random.uniform(*PERIODS)))


def _hairs(random: np.random.Generator, count: int, backdrop: Colour) -> tuple[Hair, ...]:
    """Draw hair of every style in turn, so that shapes differ too."""
    styles = [str(style) for style in random.permutation(sorted(set(HAIRSTYLES) - {"bald"}))]

    def draw(number: int) -> Hair:
        style = styles[number % len(styles)]
        natural = HAIR_COLOURS[random.integers(len(HAIR_COLOURS))]
        return Hair(style, clothes_colour(random) if style == "cap" else natural)

    return _unlike(draw, lambda hair: hair.colour, count, backdrop)


def _unlike(
    draw: Callable[[int], Item], colour: Callable[[Item], Colour], count: int, backdrop: Colour
) -> tuple[Item, ...]:
    """Draw items by index, each the best of several candidates (Mitchell 1991, best-candidate sampling, in CIELAB)."""
    items: list[Item] = []
    taken = _lab([backdrop])
    for number in range(count):
        candidates = [draw(number) for _ in range(CANDIDATES)]
        places = _lab([colour(candidate) for candidate in candidates])
        best = int(np.linalg.norm(places[:, None] - taken, axis=2).min(axis=1).argmax())
        items.append(candidates[best])
        taken = np.concatenate([taken, places[best : best + 1]])
    return tuple(items)


def _lab(colours: Sequence[Colour]) -> np.ndarray:
    """CIELAB (n, 3) of colours, rounded: equal colours are equal on every processor, and the first is used."""
    pixels = np.array(colours, dtype=np.float32)[None] / 255.0
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2Lab)[0]).round(2)
