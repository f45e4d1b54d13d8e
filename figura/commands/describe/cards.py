"""Compute how long an iteration takes at least on a GPU, by its data sheet (a roofline)."""

from typing import NamedTuple


class Card(NamedTuple):
    """Operations a second in float32, or in TF32 where it has it, and in 16 bits (dense); bytes a second.

    Of float32, PyTorch computes convolutions in TF32 by default.
    """

    float32: float
    bits16: float
    bandwidth: float


CARDS = {
    "t4": Card(8.1e12, 65e12, 320e9),
    "v100": Card(15.7e12, 125e12, 900e9),
    "l4": Card(60e12, 121e12, 300e9),
    "rtx3090": Card(35.6e12, 71e12, 936e9),
    "rtx4090": Card(82.6e12, 165e12, 1008e9),
    "a100": Card(156e12, 312e12, 2039e9),
    "h100": Card(495e12, 989e12, 3350e9),
    "h200": Card(495e12, 989e12, 4800e9),
}
"""Nvidia's data sheets; of V100 to H200 those with NVLink (SXM)."""


def least_seconds(flops: float, state: float, activations: float, card: Card) -> tuple[float, float]:
    """Return the seconds of an iteration in float32, and with networks in 16 bits: the longer of computing and moving.

    Source: Williams et al., "Roofline: an insightful visual performance model", CACM 2009. `state` is the bytes of
    weights, averages, gradients and optimizers, read and written once; `activations` those kept for the backward pass,
    written, then read.
    """
    moved = (2 * (state + activations), 2 * (state + activations / 2))
    peaks = (card.float32, card.bits16)
    first, second = (max(flops / peak, one / card.bandwidth) for peak, one in zip(peaks, moved, strict=True))
    return first, second
