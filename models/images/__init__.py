"""What image recipes share: losses, scores, pictures."""

from models.images.losses import L1, L2, Gradient
from models.images.perceptual import Perceptual
from models.images.pictures import CrossGrid, Draws, Extremes, Sheet
from models.images.scores import Fidelity

__all__ = ["L1", "L2", "CrossGrid", "Draws", "Extremes", "Fidelity", "Gradient", "Perceptual", "Sheet"]
