"""Identities: body, skin, hair and clothes of a person, the same in every scene."""

import colorsys
from dataclasses import dataclass

import numpy as np

from figura.synthetic.randomness import pick

Colour = tuple[int, int, int]  # blue, green, red; 0 to 255

PATTERNS = {"plain": 0.30, "stripes": 0.15, "bars": 0.10, "checks": 0.15, "dots": 0.12, "logo": 0.18}
HAIRSTYLES = {"short": 0.34, "bob": 0.14, "long": 0.22, "bun": 0.10, "curls": 0.08, "bald": 0.05, "cap": 0.07}
SLEEVES = {0.1: 0.15, 0.32: 0.45, 0.62: 0.10, 1.0: 0.30}  # covered fraction of the arm -> probability
TROUSERS = {0.42: 0.25, 0.75: 0.10, 1.0: 0.65}  # covered fraction of the leg -> probability
NEUTRALS: tuple[Colour, ...] = ((240, 240, 240), (40, 38, 38), (128, 128, 128), (110, 60, 35), (170, 200, 222))
HAIR_COLOURS: tuple[Colour, ...] = (
    (28, 24, 26), (30, 45, 75), (35, 70, 120), (70, 130, 190), (110, 190, 225), (40, 80, 180), (170, 170, 175),
)  # fmt: skip
SKIN_LIGHT, SKIN_DARK = np.array([190.0, 212.0, 245.0]), np.array([38.0, 58.0, 92.0])


@dataclass(frozen=True, slots=True)
class Body:
    """Lengths and radii in units of the standing height.

    `arm` and `leg` are the radii at shoulder, elbow, wrist and at hip, knee, ankle. `trunk` holds, from neck to hips,
    rows of (fraction of the distance to the hips, half-width, half-depth). `shoulders` and `hips` are half the distance
    of the joints, `head` is half its height.
    """

    head: float
    neck: float
    spine: float
    shoulders: float
    hips: float
    arm_lengths: tuple[float, float]
    leg_lengths: tuple[float, float]
    sole: float
    arm: tuple[float, float, float]
    leg: tuple[float, float, float]
    trunk: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Garment:
    """A pattern in two colours; `cover` is the covered fraction of arm or leg, `period` that of the standing height."""

    pattern: str
    colours: tuple[Colour, Colour]
    period: float
    phase: float
    cover: float


@dataclass(frozen=True, slots=True)
class Identity:
    """One person. `tuck` is how far the top reaches down the trunk, 1 at the hip joints."""

    stature: float
    body: Body
    skin: Colour
    lips: Colour
    hair: Colour
    hairstyle: str
    beard: bool
    top: Garment
    bottom: Garment
    skirt: bool
    shoes: Colour
    tuck: float


def draw_identity(random: np.random.Generator, *, limb_thickness: float, head_size: float) -> Identity:
    """Draw a random person."""
    skirt = bool(random.random() < 0.25)
    hairstyle = pick(random, HAIRSTYLES)
    skin = skin_colour(random.random() ** 1.4)
    cap = hairstyle == "cap"
    return Identity(
        stature=float(random.uniform(0.9, 1.0)),
        body=draw_body(random, limb_thickness=limb_thickness, head_size=head_size),
        skin=skin,
        lips=lip_colour(skin),
        hair=clothes_colour(random) if cap else HAIR_COLOURS[random.integers(len(HAIR_COLOURS))],
        hairstyle=hairstyle,
        beard=bool(random.random() < 0.3) and hairstyle in ("short", "bald") and not skirt,
        top=draw_garment(random, cover=pick(random, SLEEVES)),
        bottom=draw_garment(random, cover=float(random.uniform(0.42, 0.75)) if skirt else pick(random, TROUSERS)),
        skirt=skirt,
        shoes=clothes_colour(random),
        tuck=float(random.uniform(0.78, 1.08)),
    )


def draw_body(random: np.random.Generator, *, limb_thickness: float, head_size: float) -> Body:
    """Vary adult proportions (Drillis and Contini 1966, segment lengths over height) and normalise their sum to 1."""
    bulk, broad, wide, legs = random.uniform([0.85, 0.92, 0.9, 0.93], [1.22, 1.1, 1.12, 1.05])
    head, neck, spine, thigh, shin, sole = 0.067 * head_size, 0.034, 0.288, 0.245 * legs, 0.246 * legs, 0.039
    total = 2 * head + neck + spine + thigh + shin + sole
    thick = limb_thickness * np.sqrt(bulk) / total
    shoulders, hips = 0.108 * broad / total, 0.062 * wide / total
    return Body(
        head=head / total,
        neck=neck / total,
        spine=spine / total,
        shoulders=shoulders,
        hips=hips,
        arm_lengths=(0.178 / total, 0.152 / total),
        leg_lengths=(thigh / total, shin / total),
        sole=sole / total,
        arm=(0.027 * thick, 0.021 * thick, 0.0155 * thick),
        leg=(0.044 * thick, 0.030 * thick, 0.019 * thick),
        trunk=(
            (-0.06, 0.034, 0.030),
            (0.05, shoulders * 0.88, 0.045 * bulk),
            (0.22, shoulders * 1.02, 0.066 * bulk),
            (0.62, 0.088 * bulk**0.8, 0.060 * bulk),
            (0.92, 0.036 + hips * 0.95 * bulk**0.5, 0.070 * bulk),
            (1.10, 0.030 + hips * 0.95 * bulk**0.5, 0.064 * bulk),
        ),
    )


def draw_garment(random: np.random.Generator, *, cover: float) -> Garment:
    """A garment whose second colour differs clearly from its first."""
    first = clothes_colour(random)
    second = clothes_colour(random)
    while max(abs(a - b) for a, b in zip(first, second, strict=True)) < 90:
        second = clothes_colour(random)
    return Garment(
        pattern=pick(random, PATTERNS),
        colours=(first, second),
        period=float(random.uniform(0.055, 0.085)),
        phase=float(random.random()),
        cover=float(cover),
    )


def skin_colour(darkness: float) -> Colour:
    """Skin from the lightest (0) to the darkest (1)."""
    blue, green, red = SKIN_LIGHT + (SKIN_DARK - SKIN_LIGHT) * darkness
    return int(blue), int(green), int(red)


def lip_colour(skin: Colour) -> Colour:
    """Darker and redder than the skin."""
    blue, green, red = skin
    return int(0.62 * blue), int(0.55 * green), int(0.8 * red)


def clothes_colour(random: np.random.Generator) -> Colour:
    """Mostly a saturated colour of any hue, else a neutral one."""
    if random.random() < 0.18:
        return NEUTRALS[random.integers(len(NEUTRALS))]
    hue, saturation, value = random.uniform([0.0, 0.55, 0.42], [1.0, 0.98, 0.96])
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return int(255 * blue), int(255 * green), int(255 * red)
