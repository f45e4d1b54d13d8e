"""Label maps that somebody paints, and the pictures that a trained network makes of them."""

import numpy as np

from figura.base.errors import UserError
from figura.base.pictures import Pixels
from figura.base.seeding import generator
from figura.commands.explore.project import Project
from figura.commands.explore.trying import CACHE, Trained, drawing_from, files_of, trained, validation_dataset
from figura.data.formats.pair_files import with_channels
from figura.report.sheets import as_pixels
from models.images.pairs import ImagePairs, normalised, resized

Colour = tuple[int, int, int]

EXAMPLES = 24
"""Examples whose colours make the palette."""
MOST_COLOURS = 24
LEAST_SHARE = 2e-4
"""Of the pixels of these examples, that a colour of the palette has."""
APART = 24
"""How far colours of a palette lie apart in one channel at least; between them are blurred borders."""


class LabelTranslator:
    """Makes pictures of label maps, and takes label maps from the validation examples.

    Attributes:
        size: height and width of the label maps, pixels.
        palette: the colours of the examples' label maps, the most frequent first.
    """

    def __init__(self, model: Trained) -> None:
        self.trial = model.trial
        self._seed = model.recipe.seed
        self._drawing = drawing_from(model, ("x",))
        self._examples = validation_dataset(model.recipe, ImagePairs)
        self.size = self._examples.crop_size
        count = min(EXAMPLES, len(self))
        self.palette = palette_of([self.example(index) for index in range(count)])

    def __len__(self) -> int:
        return len(self._examples)

    def example(self, index: int) -> Pixels:
        """Return the label map (H, W, 3) of a validation example. Raises UserError if there is no such example."""
        if not 0 <= index < len(self):
            raise UserError(f"example {index}: allowed are 0 to {len(self) - 1}")
        example = self._examples.example(index, generator(self._seed, "explore", index))
        return as_pixels(np.asarray(example["x"])[None])[0]

    def fitted(self, pixels: Pixels) -> Pixels:
        """Return a picture (h, w, 3) as a label map of the network's size, resized as those of the examples are."""
        return resized(pixels, self.size, nearest="x" in self._examples.label_maps)

    def picture(self, label_map: Pixels) -> Pixels:
        """Return the picture (H, W, 3) that the network makes of a label map (H, W, 3) of its size."""
        x = normalised(with_channels(label_map, self._examples.channels["x"]))
        return self._drawing.picture({"x": x, "name": "label map"})


def label_translator(project: Project, recipe: str) -> LabelTranslator:
    """Return the translator of a recipe, made once. Raises UserError if it is not trained, or has no data."""
    model = trained(project, recipe)
    return CACHE.get(("translator", recipe), files_of(project, recipe, model), lambda: LabelTranslator(model))


def palette_of(label_maps: list[Pixels]) -> list[Colour]:
    """Return the colours of label maps (H, W, 3), the most frequent first, but rare ones and those close to another.

    Of pictures without frequent colours, such as photos, it returns black and white.
    """
    colours, counts = np.unique(np.concatenate([one.reshape(-1, 3) for one in label_maps]), axis=0, return_counts=True)
    palette: list[Colour] = []
    for place in np.argsort(-counts, kind="stable"):
        colour = colours[place].astype(int)
        if counts[place] < LEAST_SHARE * counts.sum() or len(palette) == MOST_COLOURS:
            break
        if all(np.abs(colour - other).max() >= APART for other in palette):
            palette.append((int(colour[0]), int(colour[1]), int(colour[2])))
    return palette or [(0, 0, 0), (255, 255, 255)]


def painted(
    label_map: Pixels, start: tuple[float, float], end: tuple[float, float], width: int, colour: Colour
) -> Pixels:
    """Return a label map with a stroke between two places (x, y; 0 is the edge of the first pixel), `width` pixels.

    OpenCV's lines are wider than asked for. The ends of the stroke are round.
    """
    first, last = (np.floor(place) + 0.5 if width % 2 else np.rint(place) for place in (start, end))
    rows, columns = np.indices(label_map.shape[:2]) + 0.5
    (x, y), (along, down) = first, last - first
    share = ((columns - x) * along + (rows - y) * down) / max(along**2 + down**2, 1e-9)  # 0 at the start, 1 at the end
    share = np.clip(share, 0, 1)
    away = np.hypot(columns - x - share * along, rows - y - share * down)
    canvas = label_map.copy()
    canvas[away < width / 2] = colour
    return canvas


def hexadecimal(colour: Colour) -> str:
    """Return a colour as pages write it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
