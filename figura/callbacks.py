"""A callback for any recipe, and an example of the extension point: `{type: figura.callbacks.Freeze, ...}`."""

import math

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from figura.base.errors import UserError, nearest
from figura.interfaces import Callback, Training


class Freeze(Callback):
    """Keeps a network or some of its modules as they are until an iteration; fixes running statistics after another.

    A frozen module gets no gradients, hence no update, and its BatchNorms normalise by their running statistics. From
    `batch_norms_after` on, all BatchNorms of the network do that too, while their gains and offsets train. What is
    frozen depends on the iteration alone, so resume points need no state of it. A parameter that the network itself
    froze is never unfrozen. A `Forward` with `mode: train` updates running statistics nevertheless.

    Args:
        network: name of an entry of `networks`, which a step trains.
        until: the first iteration in which the modules train.
        modules: their dotted names, as in `named_modules`, such as `base_net`; default: the whole network.
        batch_norms_after: the first iteration with fixed running statistics; 0: always; default: never.

    Raises:
        UserError: before the first update: there is no such network or module, no step trains the network, or a step
            has nothing to train.
    """

    def __init__(
        self, network: str, until: int = 0, modules: list[str] | None = None, batch_norms_after: int | None = None
    ) -> None:
        if until < 1 and batch_norms_after is None:
            raise ValueError(f"until {until}: an iteration above 0, or batch_norms_after, is needed")
        self.network, self.until, self.modules = network, until, modules
        self.norms_end = math.inf if batch_norms_after is None else batch_norms_after
        self.parameters: list[nn.Parameter] = []
        self.norms: dict[nn.Module, int] = {}  # the iteration from which a BatchNorm updates its statistics

    def before_step(self, trainer: Training, step: str) -> None:
        if not self.norms and not self.parameters:
            self._find(trainer)
        for parameter in self.parameters:
            parameter.requires_grad_(trainer.iteration >= self.until)
        for norm, start in self.norms.items():
            norm.training = start <= trainer.iteration < self.norms_end
        if not any(parameter.requires_grad for parameter in trainer.steps[step].parameters):
            raise UserError(f"steps.{step}: all that it trains is frozen; write `after: {self.until}` there")

    def _find(self, trainer: Training) -> None:
        trained = {name: network for step in trainer.steps.values() for name, network in step.trains.items()}
        if self.network not in trained:
            raise UserError(f"callbacks: no step trains a network {self.network!r}{nearest(self.network, trained)}")
        network = trainer.accelerator.unwrap_model(trained[self.network])
        known = dict(network.named_modules())
        for name in self.modules or ():
            if name not in known:
                raise UserError(f"callbacks: {type(network).__name__} has no module {name!r}{nearest(name, known)}")
        frozen = [network] if self.modules is None else [known[name] for name in self.modules]
        if self.until:
            self.parameters = [p for module in frozen for p in module.parameters() if p.requires_grad]
        if math.isfinite(self.norms_end):
            self.norms = dict.fromkeys(_batch_norms(network), 0)
        if self.until:
            self.norms |= {norm: self.until for module in frozen for norm in _batch_norms(module)}


def _batch_norms(module: nn.Module) -> list[nn.Module]:
    return [one for one in module.modules() if isinstance(one, _BatchNorm)]
