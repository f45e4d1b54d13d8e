"""Super-resolution: small pictures enlarged, with detail (Wang et al., *ESRGAN*, ECCVW 2018; *Real-ESRGAN*, ICCVW 2021)."""

from typing import TYPE_CHECKING

from models.engine.exports import on_demand

if TYPE_CHECKING:
    from models.super_resolution.discriminators import UNetDiscriminator as UNetDiscriminator
    from models.super_resolution.discriminators import VGGDiscriminator as VGGDiscriminator
    from models.super_resolution.patches import Patches as Patches
    from models.super_resolution.photos import Photos as Photos
    from models.super_resolution.rrdb import RRDBGenerator as RRDBGenerator

__all__, __getattr__ = on_demand(
    __name__,
    {
        "discriminators": ("UNetDiscriminator", "VGGDiscriminator"),
        "patches": ("Patches",),
        "photos": ("Photos",),
        "rrdb": ("RRDBGenerator",),
    },
)
