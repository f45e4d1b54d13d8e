"""Sanity check before training: run two examples through every step, mode and loss; report shape errors by key.

The recipe check (`recipe/check.py`) knows names but no shapes. This check finds a mask where three channels are
expected, heads whose fields do not match the targets, a picture too small for the depth, a loss that depends on no
trained parameter, a mode that would fail hours later. It costs one small forward of each injector and loss, restores
buffers and random states, and leaves no gradients.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from figura.base.error_collector import ErrorCollector
from figura.base.modes import evaluating
from figura.engine.build import build_injectors, build_losses
from figura.engine.data import Mixture, collated
from figura.engine.package_parts import PackageLoss, PackageOperation
from figura.engine.step import Step
from figura.engine.weights import to_device
from figura.interfaces import ExampleDataset, Injector, Networks, Records, State
from figura.recipe.schema import Declaration, Format, Recipe

EXAMPLES = 2  # batch norm needs more than one

Values = dict[str, Any]


def sanity_check(
    recipe: Recipe, networks: Mapping[str, nn.Module], train: Mapping[str, ExampleDataset],
    validation: Mapping[str, ExampleDataset], errors: ErrorCollector,
) -> None:  # fmt: skip
    """Run every step on two examples of each training dataset; every mode and grid on two of each validation dataset.

    All gates are open. An injector or loss is skipped if an input is missing because the dataset lacks it or an earlier
    injector failed, so each error is reported once. It changes buffers and random states: call it in `modes.unchanged`.

    Args:
        recipe: a checked recipe.
        networks: its networks by name, unwrapped.
        train: its training datasets by name.
        validation: its validation datasets by name.
        errors: collects the errors.
    """
    torch.manual_seed(0)
    _SanityCheck(recipe, networks, errors).run(train, validation)


def depends_on_ranks(steps: Mapping[str, Step]) -> bool:
    """Whether a resumed training is checked again: a package's part may need one process, and there may be more now."""
    return any(
        any(isinstance(one.loss, PackageLoss) for one in step.losses.values())
        or any(isinstance(one.injector, PackageOperation) for one in step.injectors.values())
        for step in steps.values()
    )


class _SanityCheck:
    def __init__(self, recipe: Recipe, networks: Mapping[str, nn.Module], errors: ErrorCollector) -> None:
        self.recipe, self.networks, self.errors = recipe, Networks(networks, networks), errors
        self.device = next((p.device for n in networks.values() for p in n.parameters()), torch.device("cpu"))
        self.last = (recipe.train.steps or 1) - 1
        self.said = set[str]()  # names of pictures in bytes
        self.failed: dict[str, list[tuple[str, str]]] = {}  # by exception message: the keys and the inputs

    def run(self, train: Mapping[str, ExampleDataset], validation: Mapping[str, ExampleDataset]) -> None:
        for name in train:
            if (batch := self._batch(train, name, f"data.train.{name}", _first)) is not None:
                self._steps(batch)
        with evaluating(*self.networks.live.values()):
            for name in validation:
                if (batch := self._batch(validation, name, f"data.validation.{name}", _of_one_group)) is not None:
                    self._evaluation(batch)
        for said, ((key, read), *others) in self.failed.items():
            also = ", ".join(dict.fromkeys(other for other, _ in others if other != key))
            self.errors.add(key, f"{said}{read}{f'; also at {also}' if also else ''}")

    def _batch(
        self,
        datasets: Mapping[str, ExampleDataset],
        name: str,
        key: str,
        chosen: Callable[[ExampleDataset], Sequence[int]],
    ) -> Values | None:
        if not len(datasets[name]):
            self.errors.add(key, "has no examples")
            return None
        mixture = Mixture(dict(datasets), self.recipe.seed)
        batch = self._tried(key, lambda: collated([mixture[(name, 0, index)] for index in chosen(datasets[name])]), {})
        if batch is None:
            return None
        for one in [one for one, value in batch.items() if in_bytes(value) and one not in self.said]:
            self.said.add(one)
            if not dist.is_initialized() or dist.get_rank() == 0:
                cure = "figura's pictures are in [-1, 1]: return `value / 127.5 - 1` as float32"
                print(f"warning: {key}: {one!r} seems to be a picture of values up to 255; {cure}", flush=True)
        return to_device(batch, self.device)

    def _steps(self, batch: Values) -> None:
        state = dict(batch)
        for name, step in self.recipe.steps.items():
            view = dict(State(state).detached(step.detach))
            entries = {key: e for key, e in step.injectors.items() if getattr(e, "only", None) != "evaluation"}
            before = view.keys() | set()
            self._inject(entries, f"steps.{name}.injectors", view, self._in_parts(name))
            state |= {key: value for key, value in view.items() if key not in before}
            self._learn(name, view)

    def _learn(self, name: str, view: Values) -> None:
        """Compute the losses of a step and the gradient of their sum, which frees the graph as in training."""
        trains = self.recipe.steps[name].trains
        trained = [p for n in trains for p in self.networks.live[n].parameters() if p.requires_grad]
        learned: list[Tensor] = []
        for loss, weighted in build_losses(self.recipe, name, self.device).items():
            if weighted.weight == 0 or not set(weighted.inputs.values()) <= view.keys():
                continue
            key, read = f"losses.{loss}", {k: view[k] for k in weighted.inputs.values()}
            values = self._tried(key, lambda: weighted.values(loss, view), read) or {}  # noqa: B023
            self._kept(loss, values)
            mean: Any = self._tried(key, lambda: values[loss].mean(), read) if values else None  # noqa: B023
            if mean is not None and self._in_parts(name) and isinstance(weighted.loss, PackageLoss):
                self._is_mean(weighted.loss, {role: view[one] for role, one in weighted.inputs.items()}, key)
            reaches = None if mean is None else self._tried(key, lambda: _reaches(mean, trained), read)  # noqa: B023
            if reaches:
                learned.append(mean)
            elif reaches is not None:
                self.errors.add(key, f"depends on nothing that its step {name!r} trains ({', '.join(trains)})")
        if learned:
            torch.autograd.grad(torch.stack(learned).sum(), trained, allow_unused=True)

    def _kept(self, loss: str, values: Values) -> None:
        """Add an error if `train.keep` names a component that a loss does not have: the first evaluation comes late."""
        keep = self.recipe.train.keep
        if keep is not None and values and keep.metric.partition(".")[0] == loss and keep.metric not in values:
            self.errors.add_unknown("train.keep.metric", keep.metric, values, "component")

    def _in_parts(self, step: str) -> bool:
        """Whether a step computes a batch in parts: by accumulation, or in several processes."""
        return self.recipe.parts(step) > 1 or (dist.is_initialized() and dist.get_world_size() > 1)

    def _is_mean(self, loss: PackageLoss, roles: Values, key: str) -> None:
        """Add an error unless the loss of a batch is the mean of the losses of its parts."""
        if self._tried(key, lambda: loss.is_mean(roles), roles) is False:
            self.errors.add(
                key,
                "its value of a batch is not the mean of the values of its examples, so cut into parts (accumulation, "
                "several processes) a batch would give another loss; train in one part and one process, or write a "
                "loss of one value an example",
            )

    def _evaluation(self, batch: Values) -> None:
        evaluate = self.recipe.evaluate
        self._formats(evaluate.inputs, batch, "evaluate.inputs")
        for name, mode in evaluate.modes.items():
            view = dict(batch)
            self._inject(mode.injectors, f"evaluate.modes.{name}.injectors", view)
            self._formats(mode.save, view, f"evaluate.modes.{name}.save")
        for name, grid in evaluate.grids.items():
            view = {key: value for key, value in batch.items() if key in (*grid.rows, *grid.columns)}
            self._inject(grid.injectors, f"evaluate.grids.{name}.injectors", view)
            self._formats(grid.save, view, f"evaluate.grids.{name}.save")

    def _inject(self, entries: Mapping[str, Declaration], key: str, view: Values, in_parts: bool = False) -> None:
        """Run injectors on `view`, and add their outputs to it."""
        for name, injector in zip(entries, build_injectors(dict(entries), key), strict=True):
            if not set(injector.reads) <= view.keys():
                continue
            # another injector may add the same name in other iterations
            state = State({k: v for k, v in view.items() if k not in injector.adds})
            read = {k: view[k] for k in injector.reads}
            before = set(state)
            if self._tried(f"{key}.{name}", lambda: self._called(injector, state), read) is not None:  # noqa: B023
                self._declared(injector, state.keys() - before, f"{key}.{name}")
                view |= {added: state[added] for added in injector.adds if added in state}
                if in_parts and isinstance(injector, PackageOperation):
                    self._is_separate(injector, [read[one] for one in injector.reads], f"{key}.{name}")

    def _is_separate(self, injector: PackageOperation, tensors: list[Tensor], key: str) -> None:
        """Add an error unless each example has results of its own."""
        if self._tried(key, lambda: injector.is_separate(tensors), {}) is False:
            self.errors.add(
                key,
                "what it makes of an example depends on the others of the batch, so parts of a batch (accumulation, "
                "several processes) would give other results; train in one part and one process",
            )

    def _called(self, injector: Injector, state: State) -> bool:
        injector(state, self.networks, self.last)
        return True

    def _declared(self, injector: Injector, added: set[str], key: str) -> None:
        """Add an error for each name that an injector adds and does not declare in `adds`, or the other way round."""
        kind = type(injector).__name__
        for name in sorted(added - set(injector.adds)):
            self.errors.add(key, f"{kind} adds {name!r}, which its `adds` does not have")
        for name in sorted(set(injector.adds) - added):
            self.errors.add(key, f"{kind} does not add {name!r}, which its `adds` has")

    def _formats(self, formats: Mapping[str, Format], values: Mapping[str, Any], key: str) -> None:
        for name, form in formats.items():
            if name in values and (wanted := _misfit(values[name], form)):
                self.errors.add(
                    f"{key}.{name}", f"{described(values[name])} cannot be saved as {form!r}: {wanted} is needed"
                )

    def _tried(self, key: str, call: Callable[[], Any], read: Mapping[str, Any]) -> Any:
        """Return the result of a call; on failure, add an error with the shapes of its inputs and return None."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  # users' code may raise anything
            shapes = ", ".join(f"{name!r} {described(value)}" for name, value in read.items())
            said = "; ".join(line.strip() for line in str(error).splitlines() if line.strip()) or type(error).__name__
            self.failed.setdefault(said, []).append((key, f"; it read {shapes}" if shapes else ""))
            return None


def in_bytes(value: Any) -> bool:
    """Whether a value is a batch of colour pictures, (N, 3, H, W), in the range of bytes."""
    if not isinstance(value, Tensor) or value.ndim != 4 or value.shape[1] != 3:
        return False
    low, high = value.min().item(), value.max().item()
    return value.dtype == torch.uint8 or (value.is_floating_point() and low >= 0 and 16 < high <= 255)


def described(value: Any) -> str:
    """Return the shape of a value of the state, such as (2, 3, 64, 64), or its type."""
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {described(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple) and value and isinstance(value[0], Records):
        return "records"
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, list | tuple) else type(value).__name__


def _misfit(value: Any, form: Format) -> str | None:
    """Return the requirement of a format that a batch of values does not meet, or None."""
    if form == "records":
        good = isinstance(value, list | tuple) and all(isinstance(one, list) for one in value)
        return None if good else "a list of records for each example"
    if form == "number":
        good = value.numel() == len(value) if isinstance(value, Tensor) and value.ndim else isinstance(value, list)
        return None if good else "one number for each example"
    if isinstance(value, list) and all(one is None or isinstance(one, Tensor) for one in value):
        misfits = [_misfit(one[None], form) for one in value if one is not None]  # None is not saved
        return next((misfit for misfit in misfits if misfit), None)
    if not isinstance(value, Tensor) or value.ndim == 0:
        return "a tensor (batch, ...)"
    channels = {"image": (1, 3), "mask": (1,)}.get(form)
    if channels and (value.ndim != 4 or value.shape[1] not in channels):
        return f"(batch, {' or '.join(map(str, channels))}, height, width)"
    return None


def _reaches(loss: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether a loss has a gradient for at least one of the parameters."""
    if not loss.requires_grad:
        return False
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return any(gradient is not None for gradient in gradients)


def _first(data: ExampleDataset) -> list[int]:
    """Return the first examples; a single example is repeated."""
    return [index % len(data) for index in range(EXAMPLES)]


def _of_one_group(data: ExampleDataset) -> list[int]:
    """Return the first examples of the first example's group, which may share a batch; a single one is repeated."""
    group = data.group(0)
    same = list(islice((index for index in range(len(data)) if data.group(index) == group), EXAMPLES))
    return [same[place % len(same)] for place in range(EXAMPLES)]
