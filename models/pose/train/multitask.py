"""Weights that a training finds for its components itself (Kendall, Gal and Cipolla, CVPR 2018)."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn, zeros

TASKS = ("confidence", "scale")  # the vectors have a spread of their own in every cell already


class TaskWeights(nn.Module):
    """The log spreads u of the components of some heads, trained like a network: u = 3 tanh(a / 3), a = 0 at first.

    A recipe lists it under `networks`, trains it in the step, calls it with a `Forward` that has no inputs and has one
    output a head, and gives each head's loss the name of that output as `log_spreads`. Its parameters are float32 and
    belong in a group of an optimizer without weight decay: decay pulls every sigma towards 1.

    Args:
        heads: their names, which become the outputs.

    Raises:
        ValueError: for no heads, or the same twice.
    """

    def __init__(self, *, heads: Sequence[str]) -> None:
        super().__init__()
        if not heads or len(set(heads)) < len(heads):
            raise ValueError(f"heads {list(heads)}: names of one or more different heads are needed")
        self.unbounded = nn.ParameterDict({head: nn.Parameter(zeros(len(TASKS))) for head in heads})

    def forward(self) -> dict[str, Tensor]:
        """Return head -> log spreads of `confidence` and `scale`, float32 (2,), within (-3, 3)."""
        return {head: 3 * (a / 3).tanh() for head, a in self.unbounded.items()}


def task_weighted(values: Mapping[str, Tensor], log_spreads: Tensor) -> dict[str, Tensor]:
    """Components (B,) of a head under the spreads that `TaskWeights` gives for it, (2,).

    Confidence as under a normal law, u + value exp(-2 u) / 2 + ln(2 pi) / 2; scale as under a Laplace law,
    u + value exp(-u) + ln 2; vectors unchanged.
    """
    weighted = dict(values)
    confidence, scale = log_spreads.unbind()
    # the constants move nothing; their digits are the reference's, whose logs then agree with ours
    if "confidence" in values:
        weighted["confidence"] = 0.919 + confidence + values["confidence"] * (-2 * confidence).exp() / 2
    if "scale" in values:
        weighted["scale"] = 0.694 + scale + values["scale"] * (-scale).exp()
    return weighted
