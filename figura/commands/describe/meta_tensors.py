"""Stand-ins of a dry run: resized values, networks built when needed, and the attention of a GPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from figura.engine.build import build_networks
from figura.recipe.schema import Recipe


class NetworksNeeded(Exception):  # noqa: N818  # a request, not an error
    """A call on the CPU needs networks with weights, which are not built yet."""


class OnCPU(Mapping[str, nn.Module]):
    """Networks with weights on the CPU. Reading one before `build` raises `NetworksNeeded`."""

    def __init__(self) -> None:
        self.built: dict[str, nn.Module] = {}

    def build(self, recipe: Recipe, like: Mapping[str, nn.Module]) -> None:
        """Construct all networks, each in the training or evaluation mode of its namesake in `like`."""
        self.built = {name: network.train(like[name].training) for name, network in build_networks(recipe).items()}

    def __getitem__(self, name: str) -> nn.Module:
        if not self.built:
            raise NetworksNeeded
        return self.built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.built)

    def __len__(self) -> int:
        return len(self.built)


def resized(value: Any, old: int, new: int, device: torch.device) -> Any:
    """Return zeros for `new` examples, shaped like a value for `old` examples; `requires_grad` is that of the value.

    A first dimension that is not a multiple of `old` stays. Strings, numbers and records are repeated in turn.
    """
    if isinstance(value, Tensor):
        first = [value.shape[0] // old * new] if value.ndim and value.shape[0] % old == 0 else list(value.shape[:1])
        zeros = torch.zeros([*first, *value.shape[1:]], dtype=value.dtype, device=device)
        return zeros.requires_grad_(value.requires_grad)
    if isinstance(value, Mapping):
        return {key: resized(part, old, new, device) for key, part in value.items()}
    if isinstance(value, list | tuple) and value and isinstance(value[0], Tensor | Mapping):
        return [resized(part, old, new, device) for part in value]
    return list(islice(cycle(value), new)) if isinstance(value, list | tuple) else value


def shape_lines(value: Any) -> Iterator[str]:
    """Yield a line for each tensor of a value, `8×3×64×64` or `s7: 4×32×1×1`; other values yield their kind."""
    if isinstance(value, Tensor):
        yield "×".join(map(str, value.shape)) or "a number"
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from (f"{key}: {line}" for line in shape_lines(part))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
        for index, part in enumerate(value):
            yield from (f"{index}: {line}" for line in shape_lines(part))
    elif isinstance(value, list | tuple):
        yield "texts" if value and isinstance(value[0], str) else "records"
    else:
        yield "nothing" if value is None else type(value).__name__


def linked(value: Any, sources: list[Tensor]) -> Any:
    """Connect `value` to `sources` in the autograd graph, as the call that it replaces does."""
    if isinstance(value, Mapping):
        return {key: linked(part, sources) for key, part in value.items()}
    if isinstance(value, list):
        return [linked(part, sources) for part in value]
    if isinstance(value, Tensor) and value.requires_grad and sources:
        return value.detach() + sum(source.sum() for source in sources)
    return value


@contextmanager
def fused_attention() -> Iterator[None]:
    """Let attention on the meta device save what the kernel of a GPU saves; PyTorch computes its whole matrix there.

    That kernel takes queries, keys and values (N, heads, tokens, channels). With a mask or grouped heads, the matrix
    stays, which is then an upper bound.
    """
    plain, kernel = F.scaled_dot_product_attention, torch.ops.aten._scaled_dot_product_efficient_attention

    def attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        if not query.is_meta or query.ndim != 4 or attn_mask is not None or enable_gqa:
            return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        found: Tensor = kernel(query, key, value, None, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale)[0]
        return found

    with patch.object(F, "scaled_dot_product_attention", attention):
        yield
