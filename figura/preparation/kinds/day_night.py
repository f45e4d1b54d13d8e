"""Drawn pictures by day and by night, without pairs."""

from functools import partial

from figura.preparation.folders import add_drawn
from figura.preparation.unpaired import UnpairedPreparation
from figura.synthetic.day_night import write_day_night

PREPARATION = UnpairedPreparation
add = partial(add_drawn, write_day_night)
