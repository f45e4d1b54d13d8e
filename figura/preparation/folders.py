"""Folders of image pairs, or of two sets of pictures, that are drawn or read."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from figura.preparation.raw_folder import RawFolder
from figura.preparation.settings import Folders
from figura.preparation.splits import TRAIN, drawn_split, in_order
from figura.synthetic.randomness import SPLITS
from figura.synthetic.settings import CatalogueSettings

if TYPE_CHECKING:
    from figura.preparation.pairs import PairPreparation
    from figura.preparation.unpaired import UnpairedPreparation


def add_drawn(
    write: Callable[..., None],
    preparation: "PairPreparation | UnpairedPreparation",
    settings: CatalogueSettings,
    source: RawFolder,
) -> list[str]:
    """Draw people in rooms by `write`, and add them."""
    folder = preparation.folder
    write(settings, source.seed, folder, preparation.progress)
    for split in SPLITS:
        preparation.add((split,), folder / split, folder, split, partial(drawn_split, 0, {}, rest=split))
    return []


def add_folders(preparation: "PairPreparation | UnpairedPreparation", folders: Folders, source: RawFolder) -> list[str]:
    """Add the folders of image pairs, or of two sets of pictures, split by split."""
    for split in in_order(folders.splits):
        shares = folders.shares if split == TRAIN else {}
        split_of = partial(drawn_split, source.seed, shares, rest=split)
        folder, key = source.path(folders.splits[split], split), f"{source.key}.{split}"
        preparation.add((split, *in_order(shares)), folder, source.folder, key, split_of)
    return []
