"""What image recipes share: datasets of pairs, losses, scores, pictures."""

from typing import TYPE_CHECKING

from models.engine.exports import on_demand

if TYPE_CHECKING:
    from models.images.adversarial import Adversarial as Adversarial
    from models.images.adversarial import GradientPenalty as GradientPenalty
    from models.images.edges import Laplacian as Laplacian
    from models.images.edges import Sobel as Sobel
    from models.images.frechet import FrechetDistance as FrechetDistance
    from models.images.losses import L1 as L1
    from models.images.losses import L2 as L2
    from models.images.losses import Gradient as Gradient
    from models.images.pairs import ImagePairs as ImagePairs
    from models.images.perceptual import Perceptual as Perceptual
    from models.images.photos import Photos as Photos
    from models.images.pictures import CrossGrid as CrossGrid
    from models.images.pictures import Draws as Draws
    from models.images.pictures import Extremes as Extremes
    from models.images.pictures import Sheet as Sheet
    from models.images.scores import Fidelity as Fidelity
    from models.images.scores import Times as Times

__all__, __getattr__ = on_demand(
    __name__,
    {
        "adversarial": ("Adversarial", "GradientPenalty"),
        "edges": ("Laplacian", "Sobel"),
        "frechet": ("FrechetDistance",),
        "losses": ("L1", "L2", "Gradient"),
        "pairs": ("ImagePairs",),
        "perceptual": ("Perceptual",),
        "photos": ("Photos",),
        "pictures": ("CrossGrid", "Draws", "Extremes", "Sheet"),
        "scores": ("Fidelity", "Times"),
    },
)
