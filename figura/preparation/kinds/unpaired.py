"""Two sets of pictures in folders, without pairs."""

from figura.preparation.folders import add_folders
from figura.preparation.unpaired import UnpairedPreparation

PREPARATION = UnpairedPreparation
add = add_folders
