"""A network's mean answer to a picture in its eight orientations."""

from typing import Literal

import torch
from torch import Tensor

from figura.injectors.forward import Forward
from figura.interfaces import Networks, State

ORIENTATIONS = tuple((turns, flipped) for flipped in (False, True) for turns in range(4))


class SelfEnsemble(Forward):
    """Calls a network eight times, and averages: a picture turned by 0, 90, 180 and 270 degrees, as it is and mirrored.

    Each output is turned back before the mean. Training pays for eight calls, too. Figures reached by it are published
    with a plus beside the network's name. The arguments are described in `Forward`.

    Inputs and outputs are pictures `(N, C, H, W)`.

    Source: Lim et al., "Enhanced Deep Residual Networks for Single Image Super-Resolution" (2017), section 3.4.
    """

    def __init__(
        self, network: str, inputs: dict[str, str], outputs: dict[str, str], weights: Literal["live", "ema"] = "live"
    ) -> None:
        super().__init__(network, inputs, outputs, weights=weights)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        """Add the mean of each output."""
        answers: dict[str, list[Tensor]] = {name: [] for name in self.adds}
        for turns, flipped in ORIENTATIONS:
            images = {name: state[name].flip(-1) if flipped else state[name] for name in self.reads}
            turned = State({name: torch.rot90(image, turns, (-2, -1)) for name, image in images.items()})
            super().__call__(turned, networks, step)
            for name, its in answers.items():
                back = torch.rot90(turned[name], -turns, (-2, -1))
                its.append(back.flip(-1) if flipped else back)
        for name, its in answers.items():
            state.add(name, torch.stack(its).mean(0))
