"""VUNet: generates an image from a shape image and an appearance image (Esser, Sutter and Ommer, CVPR 2018).

Stage s = 1..S works at P / 2^(s-1) pixels with `min(nf_start 2^(s-1), nf_max)` channels, in the encoders and in the
decoder. S is the top stage (1 x 1, width c_top), S-1 the lower one (2 x 2, width c_low); both have a latent.
"""

from itertools import pairwise
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from figura.base.errors import UserError

from ..images.argument_types import Count, Rate
from .blocks import (
    Convolution,
    Convolve,
    NormalisedConvolution,
    Residual,
    SkipResidual,
    Up,
    depth_to_space,
    space_to_depth,
)

Mode = Literal["train", "appearance_transfer", "sample_appearance"]
Features = list[tuple[Tensor, Tensor]]  # outputs of the two blocks of each stage


class Encoder(nn.Module):
    """(N, channels, P, P) -> the outputs of both residual blocks of each stage."""

    def __init__(self, convolve: Convolve, channels: int, widths: list[int], dropout: float) -> None:
        super().__init__()
        self.stem = convolve(channels, widths[0], 1)
        self.downs = nn.ModuleList(convolve(a, b, 3, 2) for a, b in pairwise(widths))
        self.first = nn.ModuleList(Residual(convolve, c, dropout) for c in widths)
        self.second = nn.ModuleList(Residual(convolve, c, dropout) for c in widths)

    def forward(self, x: Tensor) -> Features:
        features: Features = []
        for down, first, second in zip([self.stem, *self.downs], self.first, self.second, strict=True):
            a = first(down(x))
            x = second(a)
            features.append((a, x))
        return features


class Posterior(nn.Module):
    """Maps appearance features to the means q_T (N, c_top, 1, 1) and q_L (N, 4 c_low, 1, 1), and draws latents."""

    def __init__(self, convolve: Convolve, c_top: int, c_low: int, dropout: float) -> None:
        super().__init__()
        self.stem = convolve(c_top, c_top, 1)
        self.top = SkipResidual(convolve, c_top, dropout)
        self.merge = convolve(2 * c_top, c_top, 1)
        self.merged = SkipResidual(convolve, c_top, dropout)
        self.up = Up(convolve, c_top, c_low)
        self.lower = SkipResidual(convolve, c_low, dropout)

    def forward(self, f: Features, noise_scale: float) -> tuple[list[Tensor], list[Tensor]]:
        """Return means and latents [top, lower], all 1 x 1. The lower mean depends on the top latent."""
        top = self.top(self.stem(f[-1][1]), f[-1][0])
        z_top = perturb(top, noise_scale)
        h = self.merged(top, self.merge(torch.cat([f[-1][0], z_top], dim=1)))
        lower = space_to_depth(self.lower(self.up(h), f[-2][0]))
        return [top, lower], [z_top, perturb(lower, noise_scale)]


class Bottleneck(nn.Module):
    """Maps shape features and latents to the prior's means p_T (N, c_top, 1, 1), p_L (N, 4 c_low, 1, 1), and to a map.

    The lower prior is autoregressive in four groups of `c_low` channels, the four pixels of the 2 x 2 latent: the mean
    of group i depends on the groups before it.
    """

    def __init__(self, convolve: Convolve, c_top: int, c_low: int, dropout: float, *, port: bool) -> None:
        super().__init__()
        self.port = port
        self.stem = convolve(c_top, c_top, 1)
        self.top = SkipResidual(convolve, c_top, dropout)
        self.merge_top = convolve(2 * c_top, c_top, 1)
        self.merged_top = SkipResidual(convolve, c_top, dropout)
        self.up = Up(convolve, c_top, c_low)
        self.lower = SkipResidual(convolve, c_low, dropout)
        self.auto_first = Residual(convolve, c_low, dropout)
        self.auto = nn.ModuleList(SkipResidual(convolve, c_low, dropout) for _ in range(3))
        self.auto_merge = convolve(4 * c_low, c_low, 1)
        self.merge_lower = convolve(2 * c_low, c_low, 1)
        self.merged_lower = SkipResidual(convolve, c_low, dropout)

    def forward(self, e: Features, latents: list[Tensor] | None, noise_scale: float) -> tuple[Tensor, list[Tensor]]:
        """Return the map (N, c_low, 2, 2) and the means [top, lower]; latents default to draws from the prior."""
        top = self.top(self.stem(e[-1][1]), e[-1][1])
        z_top = perturb(top, noise_scale) if latents is None else latents[0]
        h = self.merged_top(self.merge_top(torch.cat([top, z_top], dim=1)), e[-1][0])
        v = self.lower(self.up(h), e[-2][1])
        lower, z_lower = self._lower_prior(v, None if latents is None else latents[1], noise_scale)
        h = self.merge_lower(torch.cat([v, depth_to_space(z_lower)], dim=1))
        return self.merged_lower(h, e[-2][0]), [top, lower]

    def _lower_prior(self, v: Tensor, latent: Tensor | None, noise_scale: float) -> tuple[Tensor, Tensor]:
        """Return the means of the four groups and the latent (given or drawn), both (N, 4 c_low, 1, 1)."""
        groups = None if latent is None else latent.chunk(4, dim=1)
        mean = self.auto_merge(space_to_depth(self.auto_first(v)))
        means: list[Tensor] = []
        drawn: list[Tensor] = []
        for i in range(4):
            means.append(mean)
            drawn.append(perturb(mean, noise_scale) if groups is None else groups[i])
            if i < 3:
                mean = self._next_mean(i, mean, drawn[i])
        return torch.cat(means, dim=1), torch.cat(drawn, dim=1)

    def _next_mean(self, i: int, mean: Tensor, group: Tensor) -> Tensor:
        if not self.port:
            return self.auto[i](mean, group)
        # The port is off by one block: its first block has no skip, so group 0 is ignored; its last one is never
        # called.
        return self.auto_first(mean) if i == 0 else self.auto[i - 1](mean, group)


class Decoder(nn.Module):
    """Maps the bottleneck's output and the shape encoder's skips to an image, stage by stage from S-2 to 1."""

    def __init__(self, convolve: Convolve, widths: list[int], channels: int, dropout: float) -> None:
        super().__init__()
        stages = range(len(widths) - 3, -1, -1)
        self.ups = nn.ModuleList(Up(convolve, widths[s + 1], widths[s]) for s in stages)
        self.first = nn.ModuleList(SkipResidual(convolve, widths[s], dropout) for s in stages)
        self.second = nn.ModuleList(SkipResidual(convolve, widths[s], dropout) for s in stages)
        self.out = convolve(widths[0], channels, 1)

    def forward(self, h: Tensor, e: Features) -> Tensor:
        for up, first, second, (a, b) in zip(self.ups, self.first, self.second, e[-3::-1], strict=True):
            h = second(first(up(h), b), a)
        return self.out(h)


def perturb(mean: Tensor, scale: float) -> Tensor:
    """Draw from the normal distribution around `mean` with standard deviation `scale`; return `mean` itself for 0."""
    return mean + scale * torch.randn_like(mean) if scale else mean


class VUNet(nn.Module):
    """p(image | shape, appearance) with Gaussian latents of unit covariance at 1 x 1 and 2 x 2 pixels.

    `image_size` P is a power of two, at least 4 (ValueError otherwise); a recipe takes it from the training data.
    Widths double with each stage from `nf_start` to `nf_max`. `convolution` is "plain" or "normalised" (see
    `NormalisedConvolution`). `autoregression` "port" is the off-by-one wiring of the PyTorch port, whose last block
    gets no gradient; it is for comparison only. `initialisation` "default" is PyTorch's, uniform within
    1/sqrt(fan_in). "fan_in" draws the weights of all convolutions outside residual blocks from a normal distribution of
    variance 1/fan_in, with zero bias, and multiplies the output convolution's weights by 0.3.
    """

    outputs: ClassVar[tuple[str, ...]] = ("image", "q_means", "p_means")
    from_data: ClassVar[tuple[str, ...]] = ("image_size",)

    def __init__(
        self,
        *,
        nf_start: Count,
        nf_max: Count,
        image_size: int = 256,
        image_channels: Count = 3,
        pose_channels: Count = 3,
        appearance_channels: Count = 3,
        convolution: Literal["plain", "normalised"] = "plain",
        output: Literal["tanh", "linear"] = "tanh",
        dropout: Rate = 0.0,
        autoregression: Literal["intended", "port"] = "intended",
        initialisation: Literal["default", "fan_in"] = "default",
    ) -> None:
        super().__init__()
        if image_size < 4 or image_size & (image_size - 1):
            raise ValueError(f"image_size is {image_size}, expected a power of two, at least 4")
        self.image_size, self.pose_channels, self.appearance_channels = image_size, pose_channels, appearance_channels
        stages = image_size.bit_length()
        widths = [min(nf_start << stage, nf_max) for stage in range(stages)]
        convolve = NormalisedConvolution if convolution == "normalised" else Convolution
        self.latents = (f"s{stages}", f"s{stages - 1}")
        self.final = nn.Tanh() if output == "tanh" else nn.Identity()
        self.shape_encoder = Encoder(convolve, pose_channels, widths, dropout)
        self.appearance_encoder = Encoder(convolve, appearance_channels, widths, dropout)
        self.posterior = Posterior(convolve, widths[-1], widths[-2], dropout)
        self.bottleneck = Bottleneck(convolve, widths[-1], widths[-2], dropout, port=autoregression == "port")
        self.decoder = Decoder(convolve, widths, image_channels, dropout)
        if initialisation == "fan_in":
            self._initialise_fan_in()

    def forward(
        self, pose: Tensor, appearance: Tensor | None = None, mode: Mode = "train", noise_scale: float = 1.0
    ) -> dict[str, Any]:
        """Map pose (N, pose_channels, P, P) and appearance (N, appearance_channels, P, P) in [-1, 1] to an image.

        Returns `image` (N, image_channels, P, P), in [-1, 1] with tanh, and the means of posterior and prior, `q_means`
        and `p_means`: maps of the latents' names (for P = 64: s7, s6) to (N, c_top, 1, 1) and (N, 4 c_low, 1, 1).

        Mode "train" draws the latents around the posterior's means. "appearance_transfer" uses the means themselves and
        is deterministic. "sample_appearance" draws from the prior, needs no appearance, and returns None for `q_means`.
        `noise_scale` multiplies the standard deviation of all draws, which is 1 in the model. An unknown mode or a
        missing appearance is a ValueError.

        Raises:
            UserError: wrong channels, sides that are not multiples of P, or inputs of different sizes.
        """
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}, expected one of {', '.join(get_args(Mode))}")
        self._check_input("pose", pose, self.pose_channels)
        e = self.shape_encoder(pose.contiguous(memory_format=torch.channels_last))
        q, z = None, None
        if mode != "sample_appearance":
            if appearance is None:
                raise ValueError(f"mode {mode!r} needs an appearance")
            self._check_input("appearance", appearance, self.appearance_channels)
            if appearance.shape[2:] != pose.shape[2:]:
                sizes = " and ".join(f"{one.shape[2]} x {one.shape[3]}" for one in (pose, appearance))
                raise UserError(f"pose and appearance for VUNet: found {sizes} pixels; both need the same size")
            f = self.appearance_encoder(appearance.contiguous(memory_format=torch.channels_last))
            q, z = self.posterior(f, noise_scale if mode == "train" else 0.0)
        h, p = self.bottleneck(e, z, noise_scale)
        return {
            "image": self.final(self.decoder(h, e)).contiguous(),
            "q_means": None if q is None else dict(zip(self.latents, q, strict=True)),
            "p_means": dict(zip(self.latents, p, strict=True)),
        }

    def _check_input(self, name: str, images: Tensor, channels: int) -> None:
        if images.shape[1] != channels or images.shape[2] % self.image_size or images.shape[3] % self.image_size:
            raise UserError(
                f"{name} for VUNet: found {images.shape[1]} channels and {images.shape[2]} x {images.shape[3]} pixels; "
                f"needed are {channels} channels ({name}_channels) and sides that are multiples of {self.image_size} "
                "(image_size): give the network the `image_size` of the data"
            )

    def _initialise_fan_in(self) -> None:
        inside = {c for block in self.modules() if isinstance(block, Residual | SkipResidual) for c in block.modules()}
        for module in self.modules():
            if isinstance(module, Convolution) and module not in inside:
                module.initialise_fan_in()
        self.decoder.out.initialise_fan_in(gain=0.3)
