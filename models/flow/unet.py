"""The network of the flow: a U-Net on a pose that looks up the appearance by attention."""

import math
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from figura.base.errors import UserError

from ..images.argument_types import Count, Positive

FREQUENCIES = 32  # sines of the time embedding, and as many cosines; from 1 to 1000 radians per unit of time
HEAD = 32  # channels of an attention head
GROUPS = 8  # of the group norms
convolution = partial(nn.Conv2d, kernel_size=3, padding=1)


class Residual(nn.Module):
    """`x + conv(silu(a * norm(conv(silu(norm(x)))) + b))`; a and b are linear in the condition (N, condition)."""

    def __init__(self, channels: int, condition: int) -> None:
        super().__init__()
        self.norm, self.modulated = nn.GroupNorm(GROUPS, channels), nn.GroupNorm(GROUPS, channels, affine=False)
        self.first, self.second = convolution(channels, channels), convolution(channels, channels)
        self.modulation = nn.Linear(condition, 2 * channels)
        _zero(self.second)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.modulation(condition)[:, :, None, None].chunk(2, dim=1)
        h = self.modulated(self.first(F.silu(self.norm(x))))
        return x + self.second(F.silu(torch.addcmul(shift, h, 1 + scale)))


class Down(nn.Module):
    """Half the size: (N, a, H, W) -> (N, b, H/2, W/2)."""

    def __init__(self, a: int, b: int, condition: int) -> None:
        super().__init__()
        self.conv, self.residual = convolution(a, b, stride=2), Residual(b, condition)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        return self.residual(self.conv(x), condition)


class Up(nn.Module):
    """Twice the size: (N, a, H, W) -> (N, b, 2H, 2W), to which the map of the way down is added."""

    def __init__(self, a: int, b: int, condition: int) -> None:
        super().__init__()
        self.conv, self.residual = nn.Conv2d(a, 4 * b, 1), Residual(b, condition)

    def forward(self, x: Tensor, before: Tensor, condition: Tensor) -> Tensor:
        larger = F.pixel_shuffle(self.conv(x), 2).contiguous(memory_format=torch.channels_last)
        return self.residual(larger + before, condition)


class Attention(nn.Module):
    """Adds to each pixel what it finds among the pixels of its own map and of the appearance's."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.other_norm = nn.GroupNorm(GROUPS, channels), nn.GroupNorm(GROUPS, channels)
        self.query = nn.Linear(channels, channels)
        self.own, self.other = nn.Linear(channels, 2 * channels), nn.Linear(channels, 2 * channels)
        self.out = nn.Linear(channels, channels)
        _zero(self.out)

    def forward(self, x: Tensor, appearance: Tensor) -> Tensor:
        """(N, C, H, W) and the appearance's features (N, C, h, w) -> (N, C, H, W)."""
        own, other = _tokens(self.norm(x)), _tokens(self.other_norm(appearance))
        keys, values = torch.cat([self.own(own), self.other(other)], dim=1).chunk(2, dim=2)
        found = F.scaled_dot_product_attention(_heads(self.query(own)), _heads(keys), _heads(values))
        return x + self.out(found.transpose(1, 2).flatten(2)).transpose(1, 2).unflatten(2, x.shape[2:])


def _zero(layer: nn.Conv2d | nn.Linear) -> None:
    """Let a branch begin as nothing."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _tokens(maps: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H W, C)."""
    return maps.flatten(2).transpose(1, 2)


def _heads(tokens: Tensor) -> Tensor:
    """(N, length, C) -> (N, heads, length, C / heads)."""
    return tokens.unflatten(2, (-1, HEAD)).transpose(1, 2)


def folded(pictures: list[Tensor]) -> Tensor:
    """Pictures (N, c, H, W) -> (N, 4 sum of c + 2, H/2, W/2): 2 x 2 pixels as channels; x and y from -1 to 1."""
    folds = F.pixel_unshuffle(torch.cat(pictures, dim=1), 2)
    n, _, h, w = folds.shape
    x, y = (torch.linspace(-1, 1, side, dtype=folds.dtype, device=folds.device) for side in (w, h))
    places = torch.stack([x.expand(h, w), y[:, None].expand(h, w)]).expand(n, 2, h, w)
    return torch.cat([folds, places], dim=1).contiguous(memory_format=torch.channels_last)


def time_embedding(time: Tensor) -> Tensor:
    """(N,) -> (N, 2 FREQUENCIES): sines and cosines at frequencies evenly spaced in their logarithm."""
    steps = torch.arange(FREQUENCIES, dtype=time.dtype, device=time.device) / (FREQUENCIES - 1)
    angles = time[:, None] * torch.exp(math.log(1000) * steps)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class FlowUNet(nn.Module):
    """The velocity of a rectified flow from noise to a picture, given a pose and an appearance.

    The first level of `channels` works at half the size of the pictures, each further one at half of that. The
    appearance enters in three ways: its picture stands beside the point and the pose; the lowest `attention` levels
    look up its features, from a second network like the way down; and their mean is part of the condition of all
    residual blocks, beside the time. An appearance of zeros stands for none.

    Layers see and give values of unit variance if pictures and noise both have the standard deviation `scale`: with
    `s^2 = t^2 + (1 - t)^2`, the velocity is `scale / s F(point / (scale s)) + (2 t - 1) / s^2 point`, whose second term
    is the best linear guess (the preconditioning of Karras et al., NeurIPS 2022, for this path).

    Channels of all but the first level are multiples of 32, those of the first of 8.
    """

    outputs: ClassVar[tuple[str, ...]] = ("velocity", "image")

    def __init__(
        self,
        *,
        channels: list[Count],
        attention: Count,
        scale: Positive,
        image_channels: Count = 3,
        pose_channels: Count = 3,
    ) -> None:
        super().__init__()
        if len(channels) < 2 or channels[0] % GROUPS or any(c % HEAD for c in channels[1:]):
            raise ValueError(f"channels {channels}: two levels or more, multiples of {GROUPS}, then of {HEAD}")
        if attention >= len(channels):
            raise ValueError(
                f"attention {attention}: from 1 to {len(channels) - 1} levels, all but the first, can look up"
            )
        self.scale, self.attention, self.multiple = scale, attention, 2 ** len(channels)
        condition = 4 * channels[0]
        self.time = nn.Sequential(nn.Linear(2 * FREQUENCIES, condition), nn.SiLU(), nn.Linear(condition, condition))
        self.pooled = nn.Linear(channels[-1], condition)
        levels = list(pairwise(channels))
        self.appearance_stem = convolution(4 * image_channels + 2, channels[0])
        self.appearance_downs = nn.ModuleList(Down(a, b, condition) for a, b in levels)
        self.stem = convolution(4 * (2 * image_channels + pose_channels) + 2, channels[0])
        self.downs = nn.ModuleList(Down(a, b, condition) for a, b in levels)
        self.look_ups = nn.ModuleList(Attention(c) for c in channels[-attention:])
        self.middle = Residual(channels[-1], condition)
        self.ups = nn.ModuleList(Up(b, a, condition) for a, b in reversed(levels))
        self.further_look_ups = nn.ModuleList(Attention(c) for c in channels[-attention:-1][::-1])
        self.norm, self.out = nn.GroupNorm(GROUPS, channels[0]), convolution(channels[0], 4 * image_channels)
        _zero(self.out)

    def forward(self, point: Tensor, time: Tensor, pose: Tensor, appearance: Tensor) -> dict[str, Tensor]:
        """Return the velocity at a point of the flow, and the picture at which it aims.

        point (N, image_channels, H, W), time (N,) in [0, 1], pose (N, pose_channels, H, W) in [-1, 1], appearance
        (N, image_channels, H, W) in [-1, 1] -> `velocity` and `image`, both like `point`.

        Raises:
            UserError: sides that cannot be halved once a level.
        """
        if point.shape[2] % self.multiple or point.shape[3] % self.multiple:
            raise UserError(
                f"pictures for FlowUNet: found {point.shape[2]} x {point.shape[3]} pixels; with {len(self.downs) + 1} "
                f"levels of `channels`, sides are multiples of {self.multiple}"
            )
        t = time[:, None, None, None]
        spread = (t.square() + (1 - t).square()).sqrt()
        condition = self.time(time_embedding(time))
        features = self._features(appearance, F.silu(condition))
        condition = F.silu(condition + self.pooled(features[-1].mean(dim=(2, 3))))
        seen = [point / (self.scale * spread), pose, appearance / self.scale]
        guess = self._guess(seen, features[-self.attention :], condition)
        velocity = self.scale / spread * guess + (2 * t - 1) / spread.square() * point
        return {"velocity": velocity, "image": point + (1 - t) * velocity}

    def _features(self, appearance: Tensor, condition: Tensor) -> list[Tensor]:
        """Return the appearance's features at all levels but the first."""
        x, features = self.appearance_stem(folded([appearance])), []
        for down in self.appearance_downs:
            x = down(x, condition)
            features.append(x)
        return features

    def _guess(self, seen: list[Tensor], features: list[Tensor], condition: Tensor) -> Tensor:
        maps = [self.stem(folded(seen))]
        first = len(self.downs) - self.attention
        for level, down in enumerate(self.downs):
            h = down(maps[-1], condition)
            maps.append(self.look_ups[level - first](h, features[level - first]) if level >= first else h)
        h = self.middle(maps.pop(), condition)
        for index, up in enumerate(self.ups):
            h = up(h, maps.pop(), condition)
            if index < len(self.further_look_ups):
                h = self.further_look_ups[index](h, features[-2 - index])
        return F.pixel_shuffle(self.out(F.silu(self.norm(h))), 2).contiguous()
