"""Networks, losses and injectors of other packages by their own names: `timm.create_model`, `lpips.LPIPS`, `torch.cat`.

`figura.recipe.types` loads this module by name if a type is no class of figura's own kind. Each function here returns a
class that takes the arguments of the type, so that a recipe is checked as against a class of figura's.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from operator import or_
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, create_model
from torch import Tensor, nn

from figura.interfaces import Loss, Operation, batch_size, split_batch
from figura.recipe.schema import LossEntry
from figura.recipe.stand_ins import annotations, parameters, stand_in

ALIKE = 1e-4
"""Relative difference below which a value of a batch is the mean over its examples: float32 sums of a picture."""


@cache
def network_of(function: Any) -> type[nn.Module] | None:
    """Return a class whose constructor returns the module that a function makes; None for anything else.

    A function counts if its return annotation is `torch.nn.Module` or a subclass.
    """
    returns = annotations(function).get("return") if inspect.isfunction(function) else None
    if not (isinstance(returns, type) and issubclass(returns, nn.Module)):
        return None

    def new(_: type, *_args: Any, **arguments: Any) -> Any:
        made = function(**arguments)
        if not isinstance(made, nn.Module):
            raise TypeError(f"gives a {type(made).__name__}; a torch.nn.Module is needed")
        return made

    return stand_in(function, returns, {"__new__": new}, inspect.signature(function), annotations(function))


class PackageLoss(Loss):
    """A loss of another package: a module, which is frozen and in evaluation mode, or a function of tensors.

    Roles are the parameters of the module's `forward`, or the tensors among those of the function. The result may have
    a value for each example, (N,), or several, (N, ...), of which the mean counts. It may also be one number for the
    batch: without gradients, as in evaluations, each example then gets its own value, if their mean is that number.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call
        for module in list(self.modules()):
            for name, value in list(vars(module).items()):
                if isinstance(value, Tensor):  # as a buffer, it comes to the device of the others
                    delattr(module, name)
                    module.register_buffer(name, value, persistent=False)
        self.eval().requires_grad_(False)

    def forward(self, **roles: Any) -> Tensor:
        """Return (N,). Raises ValueError for any other number of values, TypeError for anything but a tensor."""
        count, value = batch_size(roles), self.call(**roles)
        if not isinstance(value, Tensor):
            raise TypeError(f"gives a {type(value).__name__}; a tensor is needed")
        if value.ndim == 0:
            own = None if torch.is_grad_enabled() else self.of_each(roles, value)
            return value.expand(count) if own is None else own
        if len(value) != count:
            raise ValueError(
                f"gives shape {tuple(value.shape)}; one number, or values of each of the {count} examples, are needed"
            )
        return value.flatten(1).mean(dim=1) if value.ndim > 1 else value

    @torch.no_grad()
    def of_each(self, roles: dict[str, Any], whole: Tensor) -> Tensor | None:
        """Return the mean value of each example alone, (N,), or None if `whole`, that of the batch, is not their mean.

        A loss of the whole batch, such as Dice's over all its pixels, is no mean over examples.
        """
        try:
            values = torch.stack([self.call(**one).mean() for one, _ in split_batch(roles, batch_size(roles))])
        except (ValueError, RuntimeError):  # a single example may be too few, as for a standard deviation
            return None
        return values if torch.isclose(values.mean(), whole.mean(), rtol=ALIKE, atol=1e-7, equal_nan=True) else None

    def is_mean(self, roles: dict[str, Any]) -> bool:
        """Whether the value of a batch is the mean of its examples' values, so that it may be computed in parts.

        Asked of the batch as it is and, because examples can be much alike, with the first tensor of roles fading from
        example to example.
        """
        first = next((role for role, one in roles.items() if one.is_floating_point()), None)
        if first is None:
            return self.of_each(roles, self.call(**roles)) is not None
        fading = torch.linspace(1, 0.25, len(roles[first])).to(roles[first]).view(-1, *(1,) * (roles[first].ndim - 1))
        faded = roles | {first: roles[first] * fading}
        return all(self.of_each(one, self.call(**one)) is not None for one in (roles, faded))


@cache
def loss_of(kind: Any) -> type[PackageLoss] | None:
    """Return a class of losses that call `kind`, a module or a function that returns a tensor; None for others."""
    if isinstance(kind, type) and issubclass(kind, nn.Module) and kind is not nn.Module:
        arguments, roles = inspect.signature(kind), inspect.Signature(parameters(kind.forward, without=1))
        hints = annotations(kind.__init__)
        shown = {name: _of_numbers(hint) for name, hint in hints.items()}
        arguments, shown = _with_args(arguments, shown)
    elif inspect.isfunction(kind) and (hints := annotations(kind)).get("return") is Tensor:
        every = inspect.signature(kind)
        tensors = {name for name, hint in hints.items() if hint is Tensor or Tensor in typing.get_args(hint)}
        arguments = every.replace(parameters=[p for p in every.parameters.values() if p.name not in tensors])
        roles = every.replace(parameters=[p for p in every.parameters.values() if p.name in tensors])
        shown = hints
    else:
        return None

    def init(self: PackageLoss, **given: Any) -> None:
        if isinstance(args := given.get("args"), BaseModel):
            given = {**given, **{name: getattr(args, name) for name in args.model_fields_set}}
            del given["args"]
        given = {name: _as_tensor(value, hints.get(name)) for name, value in given.items()}
        PackageLoss.__init__(self, kind(**given) if isinstance(kind, type) else partial(kind, **given))

    def forward(self: PackageLoss, **given: Any) -> Tensor:
        return PackageLoss.forward(self, **given)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    forward.__signature__ = roles.replace(parameters=[own, *roles.parameters.values()])  # type: ignore[attr-defined]
    return stand_in(kind, PackageLoss, {"__init__": init, "forward": forward}, arguments, shown)


def _of_numbers(hint: Any) -> Any:
    """Return an annotation with what a recipe writes for a tensor: a number, or nested lists of numbers."""
    if hint is Tensor:
        return float | list[Any]
    kinds = typing.get_args(hint)
    return reduce(or_, map(_of_numbers, kinds)) if Tensor in kinds else hint


def _as_tensor(value: Any, hint: Any) -> Any:
    """Return numbers as a float tensor where an annotation takes a tensor, but not these numbers."""
    kinds = typing.get_args(hint) or (hint,)
    others = {typing.get_origin(one) or one for one in kinds}
    alike = {list, tuple, Sequence} if isinstance(value, list) else {float, int, bool}
    taken = Tensor in kinds and isinstance(value, list | int | float) and not others & alike
    return torch.tensor(value, dtype=torch.float32) if taken else value


def _with_args(arguments: inspect.Signature, hints: dict[str, Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """Return arguments and their annotations with those that are called as keys of the entry, `weight`, in `args`."""
    every = [one for one in arguments.parameters.values() if one.kind is not one.VAR_POSITIONAL]
    if not (taken := [one for one in every if one.name in LossEntry.model_fields]):
        return arguments, hints
    fields: Any = {p.name: (hints.get(p.name, Any), ... if p.default is p.empty else p.default) for p in taken}
    model = create_model("args", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **fields)
    needed = any(one.default is one.empty for one in taken)
    args = inspect.Parameter(
        "args", inspect.Parameter.KEYWORD_ONLY, default=inspect.Parameter.empty if needed else None
    )
    left = [one for one in every if one not in taken]
    more = [one for one in left if one.kind is one.VAR_KEYWORD]
    return inspect.Signature([*(one for one in left if one not in more), args, *more]), {**hints, "args": model}


class PackageOperation(Operation):
    """An injector of another package: a function, or a module without parameters, that makes tensors of tensors.

    Args:
        call: the function or module.
        inputs: the tensors by parameter, or in a list, in their order; a parameter that takes several has a list.
        output: name of the result, or those of a list or tuple of tensors, in their order.
    """

    def __init__(
        self, call: Callable[..., Any], inputs: dict[str, str | list[str]] | list[str | list[str]],
        output: str | list[str],
    ) -> None:  # fmt: skip
        self.inputs = list(inputs.values() if isinstance(inputs, dict) else inputs)
        self.parameters = list(inputs) if isinstance(inputs, dict) else None
        reads = [name for one in self.inputs for name in ([one] if isinstance(one, str) else one)]
        super().__init__(reads, [output] if isinstance(output, str) else output)
        if isinstance(call, nn.Module) and any(True for _ in call.parameters()):
            raise ValueError("it has parameters; declare it in `networks`, and call it by Forward")
        self.call = call

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        """Return the results; raises ValueError unless they are as many tensors as `output` has names."""
        if isinstance(self.call, nn.Module):
            self.call.to(tensors[0].device)
        source, versions = iter(tensors), [one._version for one in tensors]
        given = [next(source) if isinstance(one, str) else [next(source) for _ in one] for one in self.inputs]
        if self.parameters is None:
            made = self.call(*given)
        else:
            made = self.call(**dict(zip(self.parameters, given, strict=True)))
        if versions != [one._version for one in tensors]:
            raise ValueError("it changes its input, which others read, too; one that returns a new tensor is needed")
        results = list(made) if isinstance(made, list | tuple) else [made]
        if len(results) != len(self.adds) or not all(isinstance(one, Tensor) for one in results):
            kinds = ", ".join(type(one).__name__ for one in results)
            raise ValueError(f"gives {kinds}; {len(self.adds)} tensors are needed, one for each name of `output`")
        return results

    def is_separate(self, tensors: list[Tensor]) -> bool:
        """Whether the results of an example do not depend on the others of a batch; True for random ones."""
        before = torch.random.get_rng_state()
        whole = self.compute(tensors, 0)
        if not torch.equal(before, torch.random.get_rng_state()):
            return True  # they cannot be compared
        try:
            each = [self.compute([one[i : i + 1] for one in tensors], 0) for i in range(len(tensors[0]))]
            return all(
                all(len(part) == 1 for part in parts) and torch.allclose(torch.cat(parts), one, ALIKE, 1e-6, True)
                for one, parts in zip(whole, zip(*each, strict=True), strict=True)
            )
        except (RuntimeError, ValueError, IndexError, TypeError):
            return False


@cache
def injector_of(part: Any) -> type[PackageOperation] | None:
    """Return a class of injectors that call `part`, a function or a module; None for others, as of Python's library."""
    if (getattr(part, "__module__", None) or "builtins").partition(".")[0] in sys.stdlib_module_names:
        return None
    is_module = isinstance(part, type) and issubclass(part, nn.Module) and part is not nn.Module
    if not is_module and not inspect.isroutine(part):
        return None
    try:
        known = list(inspect.signature(part).parameters.values())
    except ValueError:  # PyTorch's own functions in C++ say nothing about their arguments
        known = [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]
    more = [one for one in known if one.kind is one.VAR_KEYWORD]
    named = [one for one in known if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    named = [one.replace(kind=one.KEYWORD_ONLY) for one in named]
    if not is_module:  # which of a function's parameters are inputs, the recipe says
        named = [one.replace(default=None) for one in named]
    own = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters(PackageOperation.__init__, without=2)]
    hints = {one.name: one.annotation for one in own} | (annotations(part.__init__) if is_module else {})

    def init(self: PackageOperation, *, inputs: Any, output: Any, **given: Any) -> None:
        if not is_module:  # PyTorch's take tuples for lists, kornia's take no lists
            given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        PackageOperation.__init__(self, part(**given) if is_module else partial(part, **given), inputs, output)

    return stand_in(part, PackageOperation, {"__init__": init}, inspect.Signature([*own, *named, *more]), hints)
