"""DeepFashion In-shop, as published."""

from figura.base.errors import UserError
from figura.preparation.identities import read_deepfashion
from figura.preparation.identity_sets import add_identities
from figura.preparation.people import Preparation
from figura.preparation.raw_folder import RawFolder
from figura.preparation.settings import DeepFashion

PREPARATION = Preparation


def add(preparation: Preparation, fashion: DeepFashion, source: RawFolder) -> list[str]:
    """Add DeepFashion In-shop; return lines to print."""
    images = source.directory(fashion.images, "images")
    partition = source.path(fashion.partition, "partition")
    if not partition.is_file():
        raise UserError(f"{source.key}.partition: no file {partition}")
    reading = read_deepfashion(partition, fashion.statuses, fashion.identity)
    return add_identities(preparation, fashion, reading, images, tuple(fashion.statuses), source)
