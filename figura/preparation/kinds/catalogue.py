"""Drawn image pairs."""

from functools import partial

from figura.preparation.folders import add_drawn
from figura.preparation.pairs import PairPreparation
from figura.synthetic.catalogue import write_catalogue

PREPARATION = PairPreparation
add = partial(add_drawn, write_catalogue)
