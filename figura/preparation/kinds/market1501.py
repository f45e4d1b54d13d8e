"""Market-1501, as published."""

from figura.preparation.identities import read_market1501
from figura.preparation.identity_sets import add_identities
from figura.preparation.people import Preparation
from figura.preparation.raw_folder import RawFolder
from figura.preparation.settings import Market1501

PREPARATION = Preparation


def add(preparation: Preparation, market: Market1501, source: RawFolder) -> list[str]:
    """Add Market-1501; return lines to print."""
    for split, folders in market.folders.items():
        for folder in folders:
            source.directory(folder, f"folders.{split}")
    reading = read_market1501(source.folder, market.folders)
    return add_identities(preparation, market, reading, source.folder.resolve(), tuple(market.folders), source)
