"""Variational U-Net: people from a pose and an appearance (Esser, Sutter and Ommer, CVPR 2018)."""

from models.vunet.losses import LatentKL
from models.vunet.networks import VUNet
from models.vunet.scores import ClothesColour

__all__ = ["ClothesColour", "LatentKL", "VUNet"]
