"""How the modes of a recipe call the trained networks on real examples: what is exported, and with which inputs."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count as counted
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.base.modes import evaluating
from figura.base.seeding import seed_here
from figura.commands.export.noise import Recorder, Replay
from figura.engine.build import build_datasets
from figura.engine.data import Mixture, ValidationBatches, load_batches
from figura.engine.inference import named_injectors
from figura.interfaces import Networks, State
from figura.prediction.inputs import Photo, PhotoExamples
from figura.prediction.runner import needed
from figura.prediction.streaming import batch_by_shape, collated_with_photos
from figura.recipe.schema import Predict, Recipe
from figura.recipe.types import PHOTOS, build

SEVERAL = 4  # examples in a batch
Resize = Callable[[Tensor], Tensor]  # returns pictures (N, C, H, W) in another size


@dataclass(frozen=True, eq=False)
class Call:
    """A network, called by a mode.

    Attributes:
        name: of the network in the recipe.
        mode: the first mode that calls it like this.
        network: in evaluation mode.
        inputs: tensors (N, ...) of real examples by parameter of the network's forward.
        names: the parameter's name in the mode, where the tensor has one.
        arguments: plain values by parameter.
        results: by the network's result (as `flat` names it), its name in the mode, where it has one.
    """

    name: str
    mode: str
    network: nn.Module
    inputs: dict[str, Tensor]
    names: dict[str, str]
    arguments: dict[str, Any]
    results: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What makes a call a file of its own."""
        return json.dumps([self.name, sorted(self.inputs), self.arguments], sort_keys=True, default=str)


@dataclass
class Calls:
    """The calls to export, by name of their file without suffix; a line for each that cannot be; networks called."""

    files: dict[str, Call] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)


def calls_of(recipe: Recipe, networks: Mapping[str, nn.Module], pictures: Sequence[Path] = ()) -> Calls:
    """Run the modes of `evaluate` on one batch; return how they call networks. The mode of `predict` comes first.

    The batch is of `pictures`, if any: it is made as `predict` makes it, for its mode alone.

    Raises:
        UserError: the data or a picture cannot be read, or no mode calls a network.
    """
    predict = recipe.predict
    first = predict.mode if predict else None
    modes, predicted = sorted(recipe.evaluate.modes, key=lambda name: name != first), None
    if not pictures:
        batch = _batch(recipe)
    elif predict is None:
        raise UserError(f"{recipe.path}: predict: missing, so pictures become no examples; leave out --pictures")
    else:
        batch, modes, predicted = _batch_of(pictures, recipe, predict), [predict.mode], predict
    calls, seen = Calls(), set[tuple[str, str]]()
    for mode in modes:
        for call, fault in _of_mode(recipe, mode, networks, batch, predicted):
            if (call.key, fault) in seen:
                continue
            seen.add((call.key, fault))
            calls.called.add(call.name)
            try:
                if fault:
                    raise UserError(fault)
                example_of(call, 1)
                calls.files[_free(call, calls.files)] = call
            except UserError as error:
                calls.faults.append(f"{call.name}, as mode {mode} calls it, is not exported: {error}")
    return calls


def _free(call: Call, taken: Mapping[str, Call]) -> str:
    """Return a name for the file of a call."""
    names = (call.name, f"{call.name}.{call.mode}", *(f"{call.name}.{call.mode}.{n}" for n in range(2, 10**6)))
    return next(name for name in names if name not in taken)


def _batch(recipe: Recipe) -> dict[str, Any]:
    """Return the first full batch of `evaluate.data`, or the largest that there is."""
    try:
        data = build_datasets(recipe, "evaluate")
    except UserError as error:
        raise UserError(f"{error}; or check the files on pictures of yours: --pictures my.jpg") from None
    sampler = ValidationBatches(data, SEVERAL)
    if not len(sampler):
        raise UserError(f"{recipe.path}: evaluate.data has no example; at least one is needed")
    sampler.batches = [max(sampler.batches, key=len)]
    batch: dict[str, Any] = next(iter(load_batches(Mixture(data, recipe.seed), sampler, workers=0)))
    return batch


def _batch_of(pictures: Sequence[Path], recipe: Recipe, predict: Predict) -> dict[str, Any]:
    """Return what `predict` makes of pictures, as a batch of at most `SEVERAL` examples that have one shape."""
    photos: PhotoExamples = build(predict.data, PHOTOS, "predict.data", recipe.path)
    files = (Photo(path, path.stem, number) for number, path in enumerate(pictures, 1))
    batch = next(batch_by_shape((example for one in files for example in photos.examples(one)), SEVERAL), None)
    if batch is None:
        raise UserError(f"{', '.join(map(str, pictures))}: predict.data makes no example of it")
    return collated_with_photos(batch)


def _of_mode(
    recipe: Recipe, mode: str, networks: Mapping[str, nn.Module], batch: Mapping[str, Any], predict: Predict | None
) -> list[tuple[Call, str]]:
    """Run a mode on a batch; return its calls of networks, each with what keeps it from being exported, or ''.

    With `predict`, only what it saves is computed: photos have no annotations.
    """
    state, made = State(batch), list[Made]()
    injectors = named_injectors(recipe.evaluate.modes[mode].injectors, f"evaluate.modes.{mode}")
    if predict is not None:
        injectors = needed(injectors | named_injectors(predict.injectors, "predict.injectors"), predict.save)[0]
    seed_here(recipe.seed, "export", mode)
    with evaluating(*networks.values()), _watched(networks, made):
        for injector in injectors.values():
            injector(state, Networks(networks, networks), recipe.train.steps or 2**62)
    return [(_call(one, mode, networks[one.name], state), _fault(one.arguments, one.training)) for one in made]


@dataclass(frozen=True)
class Made:
    """A call of a network as it was made: arguments by parameter, whether in training mode, and what it returned."""

    name: str
    arguments: dict[str, Any]
    training: bool
    result: Any


@contextmanager
def _watched(networks: Mapping[str, nn.Module], made: list[Made]) -> Iterator[None]:
    """Inside, add each call of a network to `made`."""

    def watch(name: str) -> Any:
        def after(network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
            bound = inspect.signature(network.forward).bind(*args, **kwargs)
            made.append(Made(name, dict(bound.arguments), network.training, result))

        return after

    with ExitStack() as hooks:
        for name, network in networks.items():
            hooks.enter_context(network.register_forward_hook(watch(name), with_kwargs=True))
        yield


def _call(made: Made, mode: str, network: nn.Module, state: State) -> Call:
    parameters = inspect.signature(network.forward).parameters
    inputs = {key: value for key, value in made.arguments.items() if isinstance(value, Tensor)}
    plain = {
        key: value
        for key, value in made.arguments.items()
        if key not in inputs and not (value is None and parameters[key].default is None)
    }
    ids = {id(value): label for label, value in state.items()}
    names, results = (
        {key: ids[id(value)] for key, value in one.items() if id(value) in ids} for one in (inputs, flat(made.result))
    )
    return Call(made.name, mode, network, inputs, names, plain, results)


def _fault(arguments: Mapping[str, Any], training: bool) -> str:
    """Return why a call cannot be exported, or ''."""
    if training:
        return "it runs in training mode there"
    for key, value in arguments.items():
        if not isinstance(value, Tensor | bool | int | float | str | None):
            return f"{key} is a {type(value).__name__}; a tensor, a number or a text is needed"
    return "" if any(isinstance(value, Tensor) for value in arguments.values()) else "it gets no tensor"


class Exportable(nn.Module):
    """A call as a module whose inputs and outputs are tensors by name; the inputs `noise_0`, ... are what it draws.

    Its forward has a parameter for each of `names`, because `torch.export` names inputs by the signature.
    """

    def __init__(self, call: Call, names: Sequence[str]) -> None:
        super().__init__()
        self.network, self.parameter_names, self.arguments = call.network, tuple(call.inputs), call.arguments
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])

        def forward(*args: Tensor, **kwargs: Tensor) -> dict[str, Tensor]:
            return self.results(signature.bind(*args, **kwargs).arguments)

        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward
        self.eval()

    def results(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the network's results by name, parts of an output `q_means` as `q_means.s7`."""
        noise = [tensor for name, tensor in tensors.items() if name not in self.parameter_names]
        inputs = {name: tensors[name] for name in self.parameter_names}
        with Replay(noise) if noise else nullcontext():
            result = self.network(**inputs, **self.arguments)
        return {output_name(name, tensors): value for name, value in flat(result).items()}


def output_name(result: str, inputs: Mapping[str, Any]) -> str:
    """Return the name in a file of a network's result, which may be that of an input."""
    return f"{result}_out" if result in inputs else result


def flat(result: Any, name: str = "") -> dict[str, Tensor]:
    """Return the tensors in a network's result, by their place in it: `image`, `means.top`, `0`; alone: `output`."""
    if isinstance(result, Tensor):
        return {name or "output": result}
    if isinstance(result, Mapping):
        parts = [(str(key), value) for key, value in result.items()]
    elif isinstance(result, list | tuple):
        parts = [(str(index), value) for index, value in enumerate(result)]
    else:
        return {}
    return {n: v for key, value in parts for n, v in flat(value, f"{name}.{key}" if name else key).items()}


@dataclass(frozen=True, eq=False)
class Example:
    """Inputs of an `Exportable` by name, noise included; and by name of the noise, what it was drawn from."""

    tensors: dict[str, Tensor]
    distributions: dict[str, str]


def wide(pictures: Tensor) -> Tensor:
    """Return pictures (N, C, 2 H, 3 W): the same one several times."""
    return pictures.repeat(1, 1, 2, 3)


def high_and_odd(pictures: Tensor) -> Tensor:
    """Return pictures whose sides are odd, about (N, C, 3 H, 2 W): what branches on a side often asks whether it is."""
    height, width = ((times * side - 1) | 1 for times, side in zip((3, 2), pictures.shape[2:], strict=True))
    return pictures.repeat(1, 1, 3, 2)[:, :, :height, :width].contiguous()


def example_of(call: Call, count: int, resize: Resize | None = None) -> Example:
    """Return the inputs of the first `count` examples (the batch is repeated if it has fewer), with noise.

    Pictures get another size by `resize`.

    Raises:
        UserError: given back, the noise does not lead to the same results (a NaN counts as the same as a NaN).
    """
    inputs = {name: _repeated(value, count, resize) for name, value in call.inputs.items()}
    with evaluating(call.network), Recorder() as recorder:
        seed_here(0, "export", call.name)
        results = flat(call.network(**inputs, **call.arguments))
    free = (name for name in map("noise_{}".format, counted()) if name not in inputs)
    names = list(islice(free, len(recorder.noise)))
    tensors = inputs | dict(zip(names, recorder.noise, strict=True))
    module = Exportable(call, list(tensors))
    with evaluating(module):
        again = module(**tensors)
    if any(not _same(a, b) for a, b in zip(results.values(), again.values(), strict=True)):
        seen = "those of torch.randn, rand and randint, and of dropout,"
        raise UserError(f"it draws random numbers that cannot become inputs; {seen} can")
    return Example(tensors, dict(zip(names, recorder.distributions, strict=True)))


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _repeated(value: Tensor, count: int, resize: Resize | None) -> Tensor:
    value = torch.cat([value] * -(-count // len(value)))[:count]
    return resize(value) if resize is not None and value.ndim == 4 else value
