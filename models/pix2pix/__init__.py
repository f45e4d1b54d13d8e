"""Paired image translation with conditional adversarial networks (Isola, Zhu, Zhou and Efros, CVPR 2017)."""

from models.pix2pix.discriminator import PatchDiscriminator
from models.pix2pix.generator import UNetGenerator

__all__ = ["PatchDiscriminator", "UNetGenerator"]
