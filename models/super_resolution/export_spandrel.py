"""Networks as files that spandrel, and programs that use it, read: spandrel's own classes, and ESRGAN's generator."""

import torch
from torch import Tensor, nn

from figura.base.errors import UserError

from .import_esrgan import BASICSR, places_of
from .import_spandrel import recognised, type_of
from .rrdb import RRDBGenerator

SIDE = 32  # of the pictures that both networks are compared on
CLOSE = 1e-4  # of values in [0, 1]: float32


def exported(network: nn.Module) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a file, and a line about it, after spandrel read them and computed the same.

    Raises:
        UserError: spandrel has no such network, or computes something else.
    """
    if isinstance(network, RRDBGenerator):
        tensors, channels = _renamed(network), network.in_channels
    elif type(network).__module__.partition(".")[0] == "spandrel":
        tensors, channels = dict(network.state_dict()), 0
    else:
        raise UserError(f"spandrel has no architecture of {type(network).__name__}")
    theirs = recognised(tensors).eval()
    if channels:  # names were changed: its own classes keep theirs
        difference = _difference(network, theirs, channels)
        if difference > CLOSE:
            raise UserError(f"spandrel computes other pictures of it: they differ by {difference:.1e}")
    elif type(theirs) is not type(network) or theirs.state_dict().keys() != tensors.keys():
        raise UserError(f"spandrel takes its file for {type_of(theirs)}")
    return tensors, f"{type_of(theirs)}; pictures in [0, 1]"


def _renamed(network: RRDBGenerator) -> dict[str, Tensor]:
    """Return a generator's tensors by BasicSR's names. Raises UserError for settings that ESRGAN has not."""
    if network.pixels != "unit" or network.bicubic_skip:
        raise UserError("ESRGAN's network has `pixels: unit` and `bicubic_skip: false`; train with these")
    places = places_of(BASICSR, len(network.trunk) - 1, len(network.ups))
    own = network.state_dict()
    return {there: own[here] for there, here in places.items() if here in own}


@torch.no_grad()
def _difference(network: nn.Module, theirs: nn.Module, channels: int) -> float:
    x = torch.rand(1, channels, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    ours = (network.eval()(2 * x - 1)["image"] + 1) / 2
    return (ours - theirs(x)).abs().max().item()
