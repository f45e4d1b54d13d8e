"""Temporarily frozen parts of a network: `networks.<name>.frozen` and `networks.<name>.freeze_batch_norm`."""

import math
from collections.abc import Mapping

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from figura.base.errors import UserError
from figura.engine.module_names import modules_named
from figura.recipe.schema import Recipe


class Freezing:
    """Sets, before each iteration, which parameters get gradients and which BatchNorms update their statistics.

    A frozen module gets no gradients, hence no update, and its BatchNorms use their running statistics without updating
    them. A parameter that the network itself froze is never unfrozen.

    Args:
        recipe: a checked recipe.
        networks: its networks by name, unwrapped.

    Raises:
        UserError: a module does not exist, no step trains the network, or a step would have nothing to train.
    """

    def __init__(self, recipe: Recipe, networks: Mapping[str, nn.Module]) -> None:
        trained = {name for step in recipe.steps.values() for name in step.trains}
        self.starts: dict[nn.Parameter, int] = {}  # the iteration from which a parameter trains
        self.norms: dict[nn.Module, tuple[int, float]] = {}  # iterations [from, to) in which a BatchNorm updates
        for name, entry in recipe.networks.items():
            for key in ("frozen", "freeze_batch_norm"):
                if getattr(entry, key) is not None and name not in trained:
                    raise UserError(f"networks.{name}.{key}: no step trains this network: all of it is frozen already")
            if (frozen := entry.frozen) is not None:
                self._freeze(networks[name], frozen.until, frozen.modules, f"networks.{name}.frozen.modules")
            if entry.freeze_batch_norm is not None:
                for norm in _norms(networks[name]):
                    self.norms[norm] = (self.norms.get(norm, (0, 0))[0], entry.freeze_batch_norm.after)
        for step, declared in recipe.steps.items():
            parameters = [p for n in declared.trains for p in networks[n].parameters() if p.requires_grad]
            until = min((self.starts.get(p, 0) for p in parameters), default=0)
            if until > declared.after:
                raise UserError(
                    f"steps.{step}: all that it trains is frozen until iteration {until}; write `after: {until}` there"
                )

    def _freeze(self, network: nn.Module, until: int, names: list[str] | None, key: str) -> None:
        for module in [network] if names is None else modules_named(network, names, key).values():
            self.starts |= {p: until for p in module.parameters() if p.requires_grad}
            self.norms |= {norm: (until, math.inf) for norm in _norms(module)}

    def apply(self, iteration: int) -> None:
        """Freeze and unfreeze for an iteration; may be earlier than the previous one (rollback)."""
        for parameter, start in self.starts.items():
            parameter.requires_grad_(iteration >= start)
        for norm, (start, end) in self.norms.items():
            norm.training = start <= iteration < end


def _norms(module: nn.Module) -> list[nn.Module]:
    return [one for one in module.modules() if isinstance(one, _BatchNorm)]
