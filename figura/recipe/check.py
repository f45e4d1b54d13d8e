"""Checks of a recipe beyond its schema: types and their arguments, references between sections, names of the state."""

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from figura.base.error_collector import ErrorCollector
from figura.base.errors import one_line
from figura.injectors.forward import Forward
from figura.interfaces import Callback, Injector, Schedule
from figura.recipe.name_check import NameCheck
from figura.recipe.schema import OWN, DatasetEntry, Declaration, Evaluate, Group, Predict, Recipe, StepEntry
from figura.recipe.stand_ins import annotations
from figura.recipe.types import (
    CALLBACK,
    COMPARISON,
    DATASET,
    INJECTOR,
    LOSS,
    NETWORK,
    OPTIMIZER,
    PHOTOS,
    Slot,
    batch_names,
    build_schedule,
    check_arguments,
    check_declaration,
    construct,
)

HOOKS = [name for name in vars(Callback) if name.startswith(("before_", "after_", "on_"))]
COLUMNS = ("mode", "index", "draw", "dataset")  # of the rows of a dump, beside the numbers that are saved


class RecipeCheck:
    """Runs all checks; each adds its errors to `errors` and continues."""

    def __init__(self, recipe: Recipe, errors: ErrorCollector) -> None:
        self.recipe, self.errors = recipe, errors
        self.networks: dict[str, type[nn.Module]] = {}
        self.forms: dict[str, str] = {}  # form of each state name, if the network that outputs it declares one
        self.training_only: set[str] = set()  # losses
        self.modes: dict[str, dict[str, Injector]] = {}
        self.names = NameCheck(errors)

    def run(self, parts: Collection[str]) -> None:
        """Check `parts` (`load.PARTS`), except `metrics`."""
        for name, network in self.recipe.networks.items():
            kind: Any = check_declaration(network, NETWORK, f"networks.{name}", self.errors)
            if kind is not None and self._are_names(kind, "outputs", getattr(kind, "outputs", ()), f"networks.{name}"):
                self.networks[name] = kind
        data, judged = self.recipe.data, self.recipe.evaluate.data
        train = self._provided(data.train, "data.train")
        validation = self._provided(data.validation, "data.validation")
        if "train" in parts:
            self._train(train, validation)
        if "evaluate" in parts:
            if judged not in ({}, data.validation):
                validation = self._provided(judged, "evaluate.data")
            self._evaluation(set[str].intersection(*validation) if validation else set[str]())
        if "predict" in parts and self.recipe.predict is not None:
            self._prediction(self.recipe.predict)

    def _train(self, train: Sequence[set[str]], validation: Sequence[set[str]]) -> None:
        self._training()
        injectors = {
            name: self._injectors(step.injectors, f"steps.{name}.injectors") for name, step in self.recipe.steps.items()
        }
        self._losses()
        names = self.names.steps(self.recipe, injectors, self.training_only, train, validation)
        if (samples := self.recipe.runtime.samples) is not None:
            batch = set[str]() if samples.split == "validation" else set[str].intersection(*train or [set()])
            self.names.known(samples.names, names | batch, "runtime.samples.names")
        if (keep := self.recipe.train.keep) is not None:
            judged = {name for name, loss in self.recipe.losses.items() if loss.weight} - self.training_only
            known = {*judged, *self.recipe.callbacks}
            head, _, rest = keep.metric.partition(".")
            if head not in known:
                self.errors.add_unknown("train.keep.metric", keep.metric, known, "loss or callback")
            elif rest == ("raw" if head in judged else ""):
                forms = "a loss (caf), a component of one (caf.vector) or a callback's number (mine.accuracy)"
                self.errors.add("train.keep.metric", f"found {keep.metric!r}; expected {forms}")
        for name, callback in self.recipe.callbacks.items():
            built = construct(callback.type, callback.arguments, CALLBACK, f"callbacks.{name}", self.errors)
            if built is not None and all(getattr(type(built), hook) is getattr(Callback, hook) for hook in HOOKS):
                has = f"{type(built).__name__} has none of {', '.join(HOOKS)}"
                self.errors.add(f"callbacks.{name}.type", f"{has}: it would do nothing")
            network = callback.arguments.get("network")
            if isinstance(network, str) and network not in self.recipe.networks:
                self.errors.add_unknown(f"callbacks.{name}.network", network, self.recipe.networks, "network")

    def _provided(self, entries: Mapping[str, Declaration], key: str) -> list[set[str]]:
        kinds = {name: self._providing(entry, DATASET, f"{key}.{name}") for name, entry in entries.items()}
        return [set(kind.provides(entries[name].arguments)) for name, kind in kinds.items() if kind is not None]

    def _providing(self, entry: Declaration, slot: Slot, key: str) -> Any:
        """Return the class of an entry that provides names; None after an error: the names are then unknown."""
        before = self.errors.count
        kind: Any = check_declaration(entry, slot, key, self.errors)
        if self.errors.count == before and self._are_names(kind, "names", kind.provides(entry.arguments), key):
            return kind
        self.names.on = False
        return None

    def _are_names(self, kind: type, attribute: str, names: Any, key: str) -> bool:
        """Add an error, and return False, if the names that a class declares are one text: its letters would count."""
        if isinstance(names, str):
            said = f"{kind.__name__}.{attribute} is the text {names!r}"
            self.errors.add(f"{key}.type", f"{said}; a tuple is needed, with a comma: ({names!r},)")
        return not isinstance(names, str)

    def _training(self) -> None:
        self._mixture()
        trained = {name for step in self.recipe.steps.values() for name in step.trains}
        for name, step in self.recipe.steps.items():
            for network in set(step.trains) - self.recipe.networks.keys():
                self.errors.add_unknown(f"steps.{name}.trains", network, self.recipe.networks, "network")
            before = self.errors.count
            optimizer, sound = self._optimizer(step, f"steps.{name}.optimizer"), self.errors.count == before
            for group, options in step.groups.items():
                self._group(optimizer, step.optimizer if sound else None, options, f"steps.{name}.groups.{group}")
            if step.lr_schedule is not None:
                self._rates(step.lr_schedule, f"steps.{name}.lr_schedule")
        for name, entry in self.recipe.networks.items():
            if name not in trained and name not in self.recipe.starts_from() and entry.weights != OWN:
                remedy = f"if its type brings its own, write `weights: {OWN}`"
                self.errors.add(f"networks.{name}", f"no step trains it and it loads no weights; {remedy}")
        self._start()

    def _mixture(self) -> None:
        """Check the schedules of training datasets: at each iteration, weights are 0 or more, and one is above 0."""
        entries, last = self.recipe.data.train, self.recipe.train.steps or 0
        built: dict[str, Schedule | None] = {
            name: build_schedule(entry.schedule, f"data.train.{name}.schedule", self.errors)
            for name, entry in entries.items()
            if entry.schedule is not None
        }
        schedules = {name: one for name, one in built.items() if one is not None}
        if not schedules or len(schedules) < len(built):
            return
        knots = {knot for one in schedules.values() for knot in one.knots if knot < last}
        for step in sorted({0, *knots, *range(0, last, last // 1000 + 1)}):
            weights = {n: e.weight * (schedules[n](step) if n in schedules else 1) for n, e in entries.items()}
            if min(weights.values()) < 0 or sum(weights.values()) == 0:
                said = f"at iteration {step}, weights are {weights}; numbers from 0, one above 0, are needed"
                self.errors.add("data.train", said)
                return

    def _optimizer(self, step: StepEntry, key: str) -> Any:
        """Return the class of a step's optimizer, or None; construct it, because only that judges rates and betas."""
        entry, before = step.optimizer, self.errors.count
        kind: Any = check_declaration(entry, OPTIMIZER, key, self.errors, ("params",))
        if kind is not None and (why := objection(kind)):
            self.errors.add(f"{key}.type", why)
        elif self.errors.count == before:
            self._judge(entry.type, entry.arguments, key)
            own = any((group.model_extra or {}).get("lr") for group in step.groups.values())
            if entry.arguments.get("lr") == 0 and not own:
                self.errors.add(f"{key}.lr", "found 0, by which the step learns nothing; a rate is above 0")
        return kind

    def _judge(self, kind: str, arguments: Mapping[str, Any], key: str, *, grouped: bool = False) -> None:
        """Construct an optimizer of one parameter, alone or as a group."""
        some, base = nn.Parameter(torch.zeros(2, 2)), torch.optim.Optimizer
        plain = inspect.unwrap(base.add_param_group)  # as PyTorch wraps it, it imports the compiler: 2 s
        with patch.object(base, "add_param_group", plain):
            params: list[Any] = [{"params": [some]}] if grouped else [some]
            try:
                built = construct(kind, arguments, OPTIMIZER, key, self.errors, params=params)
            except RuntimeError as error:  # by which PyTorch refuses options that exclude each other
                self.errors.add(key, one_line(f"{kind}: {error}"))
                return
        if built is not None and (why := failure(built, some)):
            self.errors.add(key, one_line(f"{kind}: {why}"))

    def _rates(self, entry: Declaration, key: str) -> None:
        schedule, last = build_schedule(entry, key, self.errors), self.recipe.train.steps or 0
        if schedule is None:
            return
        factors = {step: schedule(step) for step in (0, *schedule.knots, *range(0, last, last // 1000 + 1))}
        lowest = min(factors, key=factors.__getitem__)
        if factors[lowest] < 0:
            self.errors.add(key, f"is {factors[lowest]:g} at step {lowest}, by which losses grow; a rate is 0 or more")
        elif not any(factors.values()):
            self.errors.add(key, "is 0 at all steps, by which the step learns nothing")

    def _group(
        self, optimizer: type[torch.optim.Optimizer] | None, sound: Declaration | None, group: Group, key: str
    ) -> None:
        """Check a group of an optimizer, whose entry is `sound` unless that has errors itself."""
        before = self.errors.count
        try:
            re.compile(group.pattern)
        except re.error as error:
            self.errors.add(f"{key}.pattern", f"found {group.pattern!r}; expected a regular expression ({error})")
        if optimizer is not None:  # a group inherits missing arguments
            options, parameters = group.model_extra or {}, inspect.signature(optimizer).parameters
            needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
            inherited = tuple(needed - options.keys() | {"params"})
            check_arguments(optimizer, options, key, self.errors, inherited, ("pattern", *needed - {"params"}))
            if sound is not None and self.errors.count == before:
                self._judge(sound.type, sound.arguments | options, key, grouped=True)

    def _start(self) -> None:
        start = self.recipe.train.init_from
        for name in start.networks or () if start else ():
            if name not in self.recipe.networks:
                self.errors.add_unknown("train.init_from.networks", name, self.recipe.networks, "network")
        for name, entry in self.recipe.networks.items():
            if entry.weights is not None and start and name in (start.networks or self.recipe.networks):
                self.errors.add(f"networks.{name}.weights", "train.init_from gives this network its weights already")

    def _losses(self) -> None:
        several = len(self.recipe.steps) > 1
        for name, loss in self.recipe.losses.items():
            key = f"losses.{name}"
            if loss.step is None and several:
                self.errors.add(f"{key}.step", f"missing; there are several steps: {', '.join(self.recipe.steps)}")
            elif loss.step is not None and loss.step not in self.recipe.steps:
                self.errors.add_unknown(f"{key}.step", loss.step, self.recipe.steps, "step")
            if loss.schedule is not None:
                build_schedule(loss.schedule, f"{key}.schedule", self.errors)
            beside = tuple(type(loss).model_fields)
            built = construct(loss.type, loss.arguments, LOSS, key, self.errors, beside=beside)
            if built is not None:
                self._roles(type(built), loss.inputs, f"{key}.inputs", "role")
                self._form(loss.inputs, getattr(built, "forms", {}), f"{key}.inputs")
                self.training_only |= {name} if built.training_only else set()
        for name in self.recipe.steps:
            belonging = [loss for key, loss in self.recipe.losses.items() if self.recipe.loss_step(key) == name]
            if not any(loss.weight for loss in belonging):
                what = "every loss that belongs to it has weight 0" if belonging else "no loss belongs to it"
                self.errors.add(f"steps.{name}", f"{what}: it would train nothing")

    def _roles(self, kind: type[nn.Module], inputs: Mapping[str, Any], key: str, what: str) -> None:
        parameters = dict(list(inspect.signature(kind.forward).parameters.items())[1:])
        named = {n: p for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if len(named) < len(parameters):  # *args or **kwargs: any name may be valid
            return
        for role in inputs.keys() - named.keys():
            self.errors.add_unknown(f"{key}.{role}", role, named, f"{what} of {kind.__name__}")
        for role, parameter in named.items():
            if parameter.default is parameter.empty and role not in inputs:
                self.errors.add(f"{key}.{role}", f"missing; {kind.__name__} needs it")

    def _injectors(self, entries: Mapping[str, Declaration], key: str) -> dict[str, Injector]:
        """Construct injectors; check each call of a network against its inputs and outputs."""
        injectors: dict[str, Injector] = {}
        for name, entry in entries.items():
            beside = tuple(type(entry).model_fields)
            built = construct(entry.type, entry.arguments, INJECTOR, f"{key}.{name}", self.errors, beside=beside)
            if built is None or not all(
                self._are_names(type(built), one, getattr(built, one), f"{key}.{name}") for one in ("reads", "adds")
            ):
                self.names.on = False
                continue
            injectors[name] = built
            if isinstance(built, Forward):
                self._forward(built, f"{key}.{name}")
        return injectors

    def _mode_injectors(self, name: str) -> dict[str, Injector]:
        """Return the injectors of a mode, constructed once."""
        if name not in self.modes:
            entries = self.recipe.evaluate.modes[name].injectors
            self.modes[name] = self._injectors(entries, f"evaluate.modes.{name}.injectors")
        return self.modes[name]

    def _forward(self, injector: Forward, key: str) -> None:
        if injector.network not in self.recipe.networks:
            self.errors.add_unknown(f"{key}.network", injector.network, self.recipe.networks, "network")
        elif kind := self.networks.get(injector.network):
            self._roles(kind, {**injector.inputs, **injector.args}, key, "input")
            for both in injector.inputs.keys() & injector.args.keys():
                self.errors.add(f"{key}.args.{both}", f"{both!r} is among the inputs already")
            if hasattr(kind, "forms"):
                forms = kind.forms(self.recipe.networks[injector.network].arguments)
                self.forms |= {injector.outputs[output]: forms[output] for output in forms.keys() & injector.outputs}
            one = annotations(kind.forward).get("return") is torch.Tensor  # which is called `output`
            outputs = getattr(kind, "outputs", ["output"] if one else injector.outputs)
            for output in injector.outputs:
                if output not in outputs:
                    self.errors.add_unknown(f"{key}.outputs", output, outputs, f"output of {kind.__name__}")

    def _form(self, inputs: Mapping[str, str], wanted: Mapping[str, str], key: str) -> None:
        """Check that a loss reads the form that a network outputs, if both declare one."""
        for role, name in inputs.items():
            expected, form = wanted.get(role), self.forms.get(name)
            if expected and form and expected != form:
                self.errors.add(f"{key}.{role}", f"{name!r} is of the form ({form}); the loss reads ({expected})")

    def _evaluation(self, batch: set[str]) -> None:
        evaluate = self.recipe.evaluate
        self.names.known(evaluate.inputs, batch, "evaluate.inputs")
        for name, mode in evaluate.modes.items():
            names = self.names.chain(self._mode_injectors(name), batch, f"evaluate.modes.{name}.injectors")
            self.names.known(mode.save, names, f"evaluate.modes.{name}.save")
        for name, grid in evaluate.grids.items():
            key = f"evaluate.grids.{name}"
            self.names.known([*grid.rows, *grid.columns], batch, key)
            for both in set(grid.rows) & set(grid.columns):
                self.errors.add(key, f"{both!r} is in rows and in columns")
            injectors = self._injectors(grid.injectors, f"{key}.injectors")
            names = self.names.chain(injectors, {*grid.rows, *grid.columns}, f"{key}.injectors")
            self.names.known(grid.save, names, f"{key}.save")
        for name, average in evaluate.averages.items():
            self.names.known([average.of], self._averaged(), f"evaluate.averages.{name}.of")
        self._files(evaluate)

    def _files(self, evaluate: Evaluate) -> None:
        """Check that no two parts of a dump would write the same files or columns (`Evaluation._save`)."""
        for part, names in (("modes", evaluate.modes), ("grids", evaluate.grids)):
            if "inputs" in names:
                self.errors.add(f"evaluate.{part}.inputs", "`evaluate.inputs` has files of this name; choose another")
        for name in evaluate.modes.keys() & evaluate.grids.keys():
            mode, grid = evaluate.modes[name], evaluate.grids[name]
            for one in [one for one in grid.save if one in mode.save]:
                if mode.repeat > 1 or "records" in (mode.save[one], grid.save[one]):
                    told = f"the mode {name!r} has files of this name, too; give the grid another name"
                    self.errors.add(f"evaluate.grids.{name}.save.{one}", told)
        forms = {"inputs": evaluate.inputs} | {f"modes.{name}.save": mode.save for name, mode in evaluate.modes.items()}
        for key, saved in forms.items():
            for one in [one for one in COLUMNS if saved.get(one) == "number"]:
                self.errors.add(f"evaluate.{key}.{one}", f"a dump has a column {one!r} of its own; save another name")

    def _averaged(self) -> list[str]:
        """Return the names of the dataset that averages are of (`schema.Average`); none if datasets have errors."""
        (name, entry), *_ = self.recipe.data.train.items()
        judged = self.recipe.evaluate.data.get(name)
        read: DatasetEntry = entry
        if judged is not None and "split" in judged.arguments.keys() & entry.arguments.keys():
            read = judged
        return batch_names({name: read}) if self.names.on else []

    def _prediction(self, predict: Predict) -> None:
        kind, evaluate = self._providing(predict.data, PHOTOS, "predict.data"), self.recipe.evaluate
        provided = set[str]() if kind is None else set[str](kind.provides(predict.data.arguments))
        if predict.mode not in evaluate.modes:
            self.errors.add_unknown("predict.mode", predict.mode, evaluate.modes, "mode")
            return
        own = self._injectors(predict.injectors, "predict.injectors")
        names = self.names.chain(own, self._of_mode(predict, provided, own), "predict.injectors")
        self.names.known(predict.save, names, "predict.save")
        self._comparisons(predict, provided if kind is None else {*provided, *kind.optional})
        if predict.grid is None:
            return
        if predict.grid not in evaluate.grids:
            self.errors.add_unknown("predict.grid", predict.grid, evaluate.grids, "grid")
        else:
            grid = evaluate.grids[predict.grid]
            self.names.known(
                [*grid.rows, *grid.columns], provided, f"predict.grid: rows and columns of {predict.grid!r}"
            )

    def _of_mode(self, predict: Predict, provided: set[str], own: Mapping[str, Injector]) -> set[str]:
        """Return `provided` and the names that injectors of the mode add; `own` are those of `predict`.

        Only injectors needed by `save` and by `own` must be able to run.
        """
        names, mode = set(provided), self._mode_injectors(predict.mode)
        wanted = {*predict.save, *(read for injector in own.values() for read in injector.reads)}
        for injector in reversed([*mode.values(), *own.values()]):
            wanted |= set(injector.reads) if wanted & set(injector.adds) else set()
        for name, injector in mode.items():
            if wanted & set(injector.adds):
                self.names.known(injector.reads, names, f"predict.mode: injector {name!r} of mode {predict.mode!r}")
            elif not names.issuperset(injector.reads):
                continue
            names |= set(injector.adds)
        return names

    def _comparisons(self, predict: Predict, names: set[str]) -> None:
        pictures = [name for name, form in predict.save.items() if form == "image"]
        for name, entry in predict.compare.items():
            key = f"predict.compare.{name}"
            if name not in pictures:
                self.errors.add_unknown(key, name, pictures, "image of predict.save")
            comparison = construct(entry.type, entry.arguments, COMPARISON, key, self.errors)
            if comparison is not None:
                self.names.known([comparison.target, *comparison.inputs], names, key)


def objection(kind: type[torch.optim.Optimizer]) -> str | None:
    """Return why a step, which computes dense gradients once per update, cannot use an optimizer, or None."""
    closure = inspect.signature(kind.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        return f"{kind.__name__} computes the losses several times an update; a step computes them once"
    if issubclass(kind, torch.optim.SparseAdam):
        return "SparseAdam takes sparse gradients alone, and networks here give dense ones; write torch.optim.Adam"
    return None


def failure(optimizer: torch.optim.Optimizer, some: nn.Parameter) -> str | None:
    """Return why a step cannot use an optimizer, alone with a parameter that it then updates, or None.

    PyTorch's and figura's are not tried: their updates work, and import the compiler.
    """
    if any("lr" not in group for group in optimizer.param_groups):
        return "its groups have no rate `lr`, which a step sets; another optimizer is needed"
    if type(optimizer).__module__.startswith(("torch.", "figura.")):
        return None
    some.grad = torch.ones_like(some)
    try:
        optimizer.step()
    except Exception as error:  # noqa: BLE001  # users' code may raise anything
        return (
            f"an update of one parameter fails ({type(error).__name__}: {error}); a step calls `backward()` and "
            "`step()` alone: there are no closures and no second derivatives"
        )
    return None
