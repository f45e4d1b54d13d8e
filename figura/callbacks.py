"""A callback for any recipe, and an example of the extension point: `{type: figura.callbacks.Freeze, ...}`."""

import math
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from figura.base.errors import UserError, nearest
from figura.interfaces import Callback, Training


class Freeze(Callback):
    """Keeps a network or some of its modules as they are until an iteration; fixes running statistics after another.

    A frozen module gets no gradients, hence no update, and its BatchNorms normalise by their running statistics. From
    `batch_norms_after` on, all BatchNorms of the network do that too, while their gains and offsets train. What is
    frozen depends on the iteration alone, so resume points need no state of it. A parameter that the network itself
    froze is never unfrozen. A `Forward` with `mode: train` updates running statistics nevertheless. A network has one
    `Freeze`, which takes all arguments together.

    Args:
        network: name of an entry of `networks`, which a step trains.
        until: the first iteration in which the modules train.
        modules: their dotted names, as in `named_modules`, such as `base_net`; default: the whole network.
        batch_norms_after: the first iteration with fixed running statistics; 0: always; default: never.

    Raises:
        ValueError: neither `until` nor `batch_norms_after` is given, or `modules` without `until` or empty.
        UserError: before the first iteration: there is no such network or module, no step trains the network, another
            `Freeze` has it, or a step has nothing to train.
    """

    def __init__(
        self, network: str, until: int = 0, modules: list[str] | None = None, batch_norms_after: int | None = None
    ) -> None:
        if until < 1 and batch_norms_after is None:
            raise ValueError(f"until {until}: an iteration above 0, or batch_norms_after, is needed")
        if modules is not None and (until < 1 or not modules):
            raise ValueError(f"modules {modules} until {until}: one or more modules, and an iteration above 0")
        self.network, self.until, self.modules = network, until, modules
        self.norms_end = math.inf if batch_norms_after is None else batch_norms_after
        self.found = False
        self.parameters: list[nn.Parameter] = []
        self.norms: dict[nn.Module, int] = {}  # the iteration from which a BatchNorm updates its statistics

    def before_iteration(self, trainer: Training) -> None:
        if not self.found:
            self._find(trainer)
            self.found = True
        for parameter in self.parameters:
            parameter.requires_grad_(trainer.iteration >= self.until)
        for norm, start in self.norms.items():
            norm.training = start <= trainer.iteration < self.norms_end

    def depends_on(self, iterations: int) -> Any:
        frozen, trained = min(self.until, iterations), min(self.norms_end, iterations)
        return [self.network, self.modules, frozen, trained]

    def _find(self, trainer: Training) -> None:
        trained = {name: network for step in trainer.steps.values() for name, network in step.trains.items()}
        if self.network not in trained:
            raise UserError(f"callbacks: no step trains a network {self.network!r}{nearest(self.network, trained)}")
        others = [one for one in trainer.callbacks.values() if isinstance(one, Freeze) and one is not self]
        if any(one.network == self.network for one in others):
            raise UserError(f"callbacks: two freeze the network {self.network!r}; one takes all arguments together")
        network = trainer.accelerator.unwrap_model(trained[self.network])
        known = dict(network.named_modules())
        for name in self.modules or ():
            if name not in known:
                raise UserError(f"callbacks: network {self.network!r} has no module {name!r}{nearest(name, known)}")
        if math.isfinite(self.norms_end):
            self.norms = dict.fromkeys(_batch_norms(network), 0)
        if not self.until:
            return
        frozen = [network] if self.modules is None else [known[name] for name in self.modules]
        self.parameters = [p for module in frozen for p in module.parameters() if p.requires_grad]
        self.norms |= {norm: self.until for module in frozen for norm in _batch_norms(module)}
        still = {id(parameter) for one in (self, *others) for parameter in one.parameters}
        for name, step in trainer.steps.items():
            if step.gate.after < self.until and {id(parameter) for parameter in step.parameters} <= still:
                raise UserError(f"steps.{name}: all that it trains is frozen; write `after: {self.until}` there")


def _batch_norms(module: nn.Module) -> list[nn.Module]:
    return [one for one in module.modules() if isinstance(one, _BatchNorm)]
