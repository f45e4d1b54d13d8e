"""Image pairs in folders."""

from figura.preparation.folders import add_folders
from figura.preparation.pairs import PairPreparation

PREPARATION = PairPreparation
add = add_folders
