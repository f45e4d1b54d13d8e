"""Learnt loss weights (Kendall, Gal and Cipolla, CVPR 2018)."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn, zeros

TASKS = ("confidence", "scale")  # vectors already have a log-scale per cell


class TaskWeights(nn.Module):
    """A network of learnt log sigmas u, two per head: u = 3 tanh(a / 3), where a is the parameter and starts at 0.

    A recipe lists it under `networks`, trains it in the step, and calls it with a `Forward` without inputs and with one
    output per head. Each head's loss reads its output as `log_sigmas`. The parameters are float32. Put them into an
    optimizer group without weight decay, because decay would pull every sigma towards 1.

    Args:
        heads: names of the heads; they become the outputs.

    Raises:
        ValueError: an empty list or a repeated name.
    """

    def __init__(self, *, heads: Sequence[str]) -> None:
        super().__init__()
        if not heads or len(set(heads)) < len(heads):
            raise ValueError(f"heads {list(heads)}: names of one or more different heads are needed")
        self.unbounded = nn.ParameterDict({head: nn.Parameter(zeros(len(TASKS))) for head in heads})

    def forward(self) -> dict[str, Tensor]:
        """Return head -> log sigmas of `confidence` and `scale`, float32 (2,), within (-3, 3)."""
        return {head: 3 * (a / 3).tanh() for head, a in self.unbounded.items()}


def task_weighted(values: Mapping[str, Tensor], log_sigmas: Tensor) -> dict[str, Tensor]:
    """Weight the components (B,) of a head by its log sigmas u (2,) from `TaskWeights`.

    Confidence follows a normal distribution, u + value exp(-2 u) / 2 + ln(2 pi) / 2; scale follows a Laplace
    distribution, u + value exp(-u) + ln 2. Vectors do not change.
    """
    weighted = dict(values)
    confidence, scale = log_sigmas.unbind()
    # constants with OpenPifPaf's digits, so that logged values match; they have no gradient
    if "confidence" in values:
        weighted["confidence"] = 0.919 + confidence + values["confidence"] * (-2 * confidence).exp() / 2
    if "scale" in values:
        weighted["scale"] = 0.694 + scale + values["scale"] * (-scale).exp()
    return weighted
