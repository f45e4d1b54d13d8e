"""The injector that calls networks."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from figura.base.errors import UserError, nearest
from figura.base.modes import in_mode
from figura.interfaces import Injector, Networks, Schedule, State, added_once


class Forward(Injector):
    """Calls a network: `inputs` maps its parameters to names of the state, `outputs` its outputs to names.

    A network returns a dictionary (its keys name the outputs), a list or tuple (outputs `0`, `1`, ...), or one tensor
    (output `output`). `taps` add outputs of submodules, cloned because later layers may overwrite them. With taps and a
    pairwise loss, any network can be used for a feature loss.

    Args:
        network: name of an entry of `networks`.
        inputs: parameter of the network's forward -> name in the state.
        outputs: output of the network -> name in the state; other outputs are dropped.
        args: literal arguments of the forward; a number may be a schedule, `{type: Linear, ...}`.
        grad: whether gradients flow through this call.
        weights: `live`, or `ema` for the averaged weights.
        mode: of the network in this call. `inherit` keeps the current mode (train in training, eval in evaluations and
            for a network that no step trains); `train` in an evaluation updates no running statistics.
        taps: submodule (as in `named_modules`) that the forward calls once -> name in the state. Several submodules
            with the same name add a dictionary; a pairwise loss compares every item.
    """

    def __init__(
        self,
        network: str,
        inputs: dict[str, str],
        outputs: dict[str, str] | None = None,
        args: dict[str, Any] | None = None,
        grad: bool = True,
        weights: Literal["live", "ema"] = "live",
        mode: Literal["inherit", "train", "eval"] = "inherit",
        taps: dict[str, str] | None = None,
    ) -> None:
        self.network, self.inputs, self.outputs, self.args = network, inputs, outputs or {}, args or {}
        self.grad, self.weights, self.mode, self.taps = grad, weights, mode, taps or {}
        if outputs is None and not self.taps:
            raise ValueError("outputs: missing; a call without taps needs them")
        self.reads = tuple(inputs.values())
        self.adds = added_once([*self.outputs.values(), *dict.fromkeys(self.taps.values())])

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        network = (networks.ema if self.weights == "ema" else networks.live)[self.network]
        inputs = {parameter: state[name] for parameter, name in self.inputs.items()}
        args = {key: value(step) if isinstance(value, Schedule) else value for key, value in self.args.items()}
        gradients: AbstractContextManager[Any] = nullcontext() if self.grad else torch.no_grad()
        mode = nullcontext() if self.mode == "inherit" else in_mode(network, training=self.mode == "train")
        with mode, gradients, _Tapped(network, self.taps) as tapped:
            result = network(**inputs, **args)
        outputs = _outputs(result)
        for output, name in self.outputs.items():
            if output not in outputs:
                raise KeyError(f"network {self.network!r} gives {sorted(outputs)}, not {output!r}")
            state.add(name, outputs[output])
        for submodule, calls in tapped.items():
            if len(calls) != 1:
                raise UserError(f"tap {submodule!r} of network {self.network!r} is called {len(calls)} times, not once")
        for name in dict.fromkeys(self.taps.values()):
            features = {submodule: tapped[submodule][0] for submodule, its in self.taps.items() if its == name}
            state.add(name, features if len(features) > 1 else next(iter(features.values())))


def _outputs(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return result
    if isinstance(result, (list, tuple)):
        return {str(index): one for index, one in enumerate(result)}
    return {"output": result}


class _Tapped:
    """Records the outputs of submodules in the block: a list for each, with one entry per call."""

    def __init__(self, network: nn.Module, submodules: Mapping[str, str]) -> None:
        self.submodules: dict[str, nn.Module] = {}
        if submodules:
            inner = network.module if isinstance(network, DistributedDataParallel) else network
            known = dict(inner.named_modules())
            for name in submodules:
                if name not in known:
                    raise UserError(f"{type(inner).__name__} has no submodule {name!r} to tap{nearest(name, known)}")
                self.submodules[name] = known[name]

    def __enter__(self) -> dict[str, list[Any]]:
        calls: dict[str, list[Any]] = {name: [] for name in self.submodules}

        def record(name: str) -> Any:
            return lambda _module, _inputs, output: calls[name].append(
                output.clone() if isinstance(output, Tensor) else output
            )

        self.handles = [module.register_forward_hook(record(name)) for name, module in self.submodules.items()]
        return calls

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()
