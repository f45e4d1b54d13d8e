"""What image recipes share: datasets of pairs, losses, scores, pictures."""

from typing import TYPE_CHECKING

from models.engine.exports import on_demand

if TYPE_CHECKING:
    from models.images.adversarial import Adversarial as Adversarial
    from models.images.adversarial import GradientPenalty as GradientPenalty
    from models.images.classification_losses import BinaryCrossEntropy as BinaryCrossEntropy
    from models.images.classification_losses import CrossEntropy as CrossEntropy
    from models.images.classification_losses import Distillation as Distillation
    from models.images.edges import Laplacian as Laplacian
    from models.images.edges import Sobel as Sobel
    from models.images.frechet import FrechetDistance as FrechetDistance
    from models.images.frequency import FocalFrequency as FocalFrequency
    from models.images.kernel_distance import KernelDistance as KernelDistance
    from models.images.losses import L1 as L1
    from models.images.losses import L2 as L2
    from models.images.losses import Charbonnier as Charbonnier
    from models.images.losses import Cosine as Cosine
    from models.images.losses import Gradient as Gradient
    from models.images.losses import SmoothL1 as SmoothL1
    from models.images.pairs import ImagePairs as ImagePairs
    from models.images.penalties import Direct as Direct
    from models.images.penalties import TotalVariation as TotalVariation
    from models.images.perceptual import Perceptual as Perceptual
    from models.images.perceptual_distance import PerceptualDistance as PerceptualDistance
    from models.images.photos import Photos as Photos
    from models.images.pictures import CrossGrid as CrossGrid
    from models.images.pictures import Draws as Draws
    from models.images.pictures import Extremes as Extremes
    from models.images.pictures import Sheet as Sheet
    from models.images.scores import Fidelity as Fidelity
    from models.images.scores import MeanLosses as MeanLosses
    from models.images.scores import Times as Times

__all__, __getattr__ = on_demand(
    __name__,
    {
        "adversarial": ("Adversarial", "GradientPenalty"),
        "classification_losses": ("BinaryCrossEntropy", "CrossEntropy", "Distillation"),
        "edges": ("Laplacian", "Sobel"),
        "frechet": ("FrechetDistance",),
        "kernel_distance": ("KernelDistance",),
        "frequency": ("FocalFrequency",),
        "losses": ("L1", "L2", "Charbonnier", "Cosine", "Gradient", "SmoothL1"),
        "pairs": ("ImagePairs",),
        "penalties": ("Direct", "TotalVariation"),
        "perceptual": ("Perceptual",),
        "perceptual_distance": ("PerceptualDistance",),
        "photos": ("Photos",),
        "pictures": ("CrossGrid", "Draws", "Extremes", "Sheet"),
        "scores": ("Fidelity", "MeanLosses", "Times"),
    },
)
