"""What a step does before its losses: injectors read names of the state and add names to it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from models.engine.schedules import Schedule
from models.engine.state import State


@dataclass(frozen=True)
class Networks:
    """What injectors may call: `live` networks, as they are trained, and `ema`, their averages (the same where none)."""

    live: Mapping[str, nn.Module]
    ema: Mapping[str, nn.Module]


class Injector:
    """The base of every `injectors` entry; `reads` and `adds` let a recipe be checked and drawn without running it."""

    reads: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        """Read names of `state`, add names to it; `step` counts optimizer updates and feeds schedules."""
        raise TypeError(f"{type(self).__name__} injects nothing")


class Forward(Injector):
    """Calls a network: `inputs` maps its parameters to names of the state, `outputs` its outputs to names.

    A network gives a dictionary, whose keys are its outputs, or one tensor, the output `output`.

    Args:
        network: name of an entry of `networks`.
        inputs: parameter of the network's forward -> name in the state.
        outputs: output of the network -> name in the state; outputs left out are dropped.
        args: literal arguments of the forward; a number may be a schedule, `{type: Linear, ...}`.
        grad: whether gradients flow through this call.
        weights: `live`, or `ema` for the averaged weights.
    """

    def __init__(
        self,
        network: str,
        inputs: dict[str, str],
        outputs: dict[str, str],
        args: dict[str, Any] | None = None,
        grad: bool = True,
        weights: Literal["live", "ema"] = "live",
    ) -> None:
        self.network, self.inputs, self.outputs, self.args = network, inputs, outputs, args or {}
        self.grad, self.weights = grad, weights
        self.reads, self.adds = tuple(inputs.values()), tuple(outputs.values())

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        network = (networks.ema if self.weights == "ema" else networks.live)[self.network]
        inputs = {parameter: state[name] for parameter, name in self.inputs.items()}
        args = {key: value(step) if isinstance(value, Schedule) else value for key, value in self.args.items()}
        gradients: AbstractContextManager[Any] = nullcontext() if self.grad else torch.no_grad()
        with gradients:
            result = network(**inputs, **args)
        found = result if isinstance(result, Mapping) else {"output": result}
        for output, name in self.outputs.items():
            if output not in found:
                raise KeyError(f"network {self.network!r} gives {sorted(found)}, not {output!r}")
            state.add(name, found[output])


class Interpolate(Injector):
    """Adds points between `a` and `b`, `u a + (1 - u) b` with one u in [0, 1] an instance, that gradients can be taken at.

    For gradient penalties (Gulrajani et al. 2017, algorithm 1, lines 4 to 6). The points' own history is cut off.

    Args:
        a: name of a tensor (N, ...).
        b: name of another of the same shape.
        output: name of the points, (N, ...).
    """

    def __init__(self, a: str, b: str, output: str) -> None:
        self.a, self.b, self.output = a, b, output
        self.reads, self.adds = (a, b), (output,)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        a: Tensor = state[self.a].detach()
        share = torch.rand(len(a), *(1,) * (a.ndim - 1), dtype=a.dtype, device=a.device)
        state.add(self.output, torch.lerp(state[self.b].detach(), a, share).requires_grad_())
