"""The PatchGAN discriminator: is this patch of y real, given x? (Isola et al., CVPR 2017, section 3.2.2.)"""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from figura.base.errors import UserError

from ..images.argument_types import Count
from ..images.norms import Initialisation, Normalisation, initialise, normalise
from .blocks import Biases, Convolution, Padding, has_bias


class PatchDiscriminator(nn.Module):
    """A convolutional discriminator: one logit for each overlapping patch of the pair (x, y), without sigmoid.

    It has `n_layers` + 1 convolutions of 4 x 4. All have stride 2, except the last two (with `n_layers` 1, the last),
    which have stride 1. Widths double from `features` to `max_features`:

    | n_layers | receptive field | logits at 256 x 256 | parameters (3 + 3 channels, 64 features) |
    | --- | --- | --- | --- |
    | 1 | 10 | 127 x 127 | 7,233 |
    | 2 | 16 | 126 x 126 | 139,329 |
    | 3 | 34 | 62 x 62 | 665,665 |
    | 4 | 70 | 30 x 30 | 2,766,913 |
    | 5 | 142 | 14 x 14 | 6,961,217 |
    | 6 | 286 | 6 x 6 | 11,155,521 |

    4 is the paper's 70 x 70 PatchGAN. Activations are leaky ReLU of slope 0.2. All convolutions except the first and
    the last are followed by `norm`; those two have a bias instead. With `instance`, an example's logits are independent
    of the rest of the batch; with `batch` they are not. With `padding` zeros and `biases` with_instance_norm it is the
    discriminator `n_layers` of pytorch-CycleGAN-and-pix2pix, whose number of layers is one less.

    With `in_channels` 0 it judges y alone, as unpaired translation does; there is no x then.

    Args:
        in_channels: channels of x; 0: y alone.
        out_channels: channels of y.
        features: width of the first layer.
        n_layers: see above.
        max_features: largest width.
        norm: see above.
        padding: one pixel, `reflect` or `zeros`.
        biases: of the convolutions between the first and the last: `without_norm` if `norm` is none,
            `with_instance_norm` if it is instance.
        initialisation: `normal` is N(0, 0.02) with zero bias (the paper's); `default` is PyTorch's.
    """

    outputs: ClassVar[tuple[str, ...]] = ("logits", "fake_logits")

    def __init__(
        self,
        *,
        in_channels: Annotated[int, Field(ge=0)] = 3,
        out_channels: Count = 3,
        features: Count = 64,
        n_layers: Count = 4,
        max_features: Count = 512,
        norm: Normalisation = "instance",
        padding: Padding = "reflect",
        biases: Biases = "without_norm",
        initialisation: Initialisation = "normal",
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        widths = [min(features * 2**i, max_features) for i in range(n_layers)]
        layers: list[nn.Module] = [
            Convolution(in_channels + out_channels, widths[0], bias=True, padding=padding),
            nn.LeakyReLU(0.2, inplace=True),
        ]
        for i in range(1, n_layers):
            stride = 1 if i == n_layers - 1 else 2
            bias = has_bias(biases, norm, norm)
            convolution = Convolution(widths[i - 1], widths[i], stride=stride, bias=bias, padding=padding)
            layers += [convolution, normalise(norm, widths[i]), nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*layers, Convolution(widths[-1], 1, stride=1, bias=True, padding=padding))
        self.strides = [layer.stride[0] for layer in self.layers if isinstance(layer, Convolution)]
        initialise(self, initialisation)

    def forward(
        self, x: Tensor | None = None, y: Tensor | None = None, fake: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Discriminate y and, in the same pass, `fake`: one pass is cheaper than two.

        (N, in_channels, H, W) and (N, out_channels, H, W) in [-1, 1] -> `logits` (N, 1, h, w), h about H / 2^(n_layers
        - 1). With a `fake` of y's shape also `fake_logits`, which equal those of a separate call, unless `norm` is
        `batch`.

        Raises:
            UserError: y is missing, channels or sizes do not match, or images are too small for the depth.
        """
        if y is None:
            raise UserError("images for PatchDiscriminator: y is missing, the pictures to judge")
        x = y[:, :0] if x is None else x
        if (x.shape[1], y.shape[1]) != (self.in_channels, self.out_channels) or x.shape[2:] != y.shape[2:]:
            raise UserError(
                f"images for PatchDiscriminator: found x {tuple(x.shape)} and y {tuple(y.shape)}; needed are "
                f"{self.in_channels} channels (in_channels), {self.out_channels} (out_channels), and equal sizes"
            )
        if fake is not None and fake.shape != y.shape:
            raise UserError(f"images for PatchDiscriminator: found fake {tuple(fake.shape)} and y {tuple(y.shape)}")
        if min(x.shape[2:]) < self.smallest:
            raise UserError(
                f"images for PatchDiscriminator: found {x.shape[2]} x {x.shape[3]} pixels; {len(self.strides) - 1} "
                f"layers need at least {self.smallest} a side: use larger images or lower n_layers"
            )
        if fake is None:
            return {"logits": self.layers(torch.cat([x, y], dim=1))}
        both = self.layers(torch.cat([torch.cat([x, x]), torch.cat([y, fake])], dim=1))
        return {"logits": both[: len(x)], "fake_logits": both[len(x) :]}

    @property
    def smallest(self) -> int:
        """Side of the smallest image: the reflection padding of each convolution needs 2 pixels."""
        side = 2
        for stride in reversed(self.strides[:-1]):
            side = (side - 1) * stride + 2
        return side
