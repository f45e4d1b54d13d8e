"""People: skeletons, stickman, COCO reading and preparing, drawn people, person pairs."""

from typing import TYPE_CHECKING

from models.engine.exports import on_demand

if TYPE_CHECKING:
    from models.people.pairs import PersonPairs as PersonPairs
    from models.people.person_photos import PersonPhotos as PersonPhotos

__all__, __getattr__ = on_demand(__name__, {"pairs": ("PersonPairs",), "person_photos": ("PersonPhotos",)})
