"""Drawn people."""

from figura.preparation.people import Preparation, Raw
from figura.preparation.raw_folder import RawFolder
from figura.synthetic.randomness import SPLITS
from figura.synthetic.settings import SyntheticSettings
from figura.synthetic.writer import write_synthetic

PREPARATION = Preparation


def add(preparation: Preparation, settings: SyntheticSettings, source: RawFolder) -> list[str]:
    """Draw people, with their images at the final paths, and add them."""
    folder = preparation.folder
    write_synthetic(settings, source.seed, folder, preparation.progress)
    for split in SPLITS:
        preparation.add(Raw(folder / f"{split}.json", folder / "images", folder, (split,), in_place=True))
    return []
