"""Reads a recipe and checks all of it before the first batch: types, arguments, and who provides which name to whom."""

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from models.engine.errors import UserError
from models.engine.examples import Examples
from models.engine.injectors import Forward, Injector
from models.engine.inputs import PhotoExamples
from models.engine.losses import Loss
from models.engine.problems import Problems, validated
from models.engine.schedules import Schedule
from models.engine.schema import Declaration, Group, Predict, Recipe, StepEntry
from models.engine.scores import Picture, Score
from models.engine.types import SCHEDULE, Slot, check_arguments, construct, find_type
from models.engine.yaml12 import read_yaml, to_yaml

DATASET = Slot("dataset", Examples)
PHOTOS = Slot("photos", PhotoExamples)
NETWORK = Slot("network", nn.Module)
LOSS = Slot("loss", Loss)
OPTIMIZER = Slot("optimizer", torch.optim.Optimizer, home="models.engine.optimizers")
INJECTOR = Slot("injector", Injector, home="models.engine.injectors")
SCORE = Slot("score", Score)
PICTURE = Slot("picture", Picture)

RESULT_SECTIONS = ("seed", "data", "networks", "losses", "steps", "train")


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe.

    Raises:
        UserError: everything that is wrong with it, a line each.
    """
    return check_recipe(read_yaml(path), path)


def check_recipe(content: dict[str, Any], path: Path) -> Recipe:
    """Check the content of a recipe; `path` is named in the messages. Raises as `load_recipe`."""
    problems = Problems(path)
    recipe = validated(Recipe, content, problems)
    if recipe is not None:
        _Check(recipe, problems).run()
    problems.raise_any()
    if recipe is None:
        raise UserError(f"{path}: not a recipe")
    return recipe


def resolved(recipe: Recipe) -> str:
    """Return the sections that training depends on as YAML, every default filled in."""
    return to_yaml(recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True))


def late_schedules(recipe: Recipe, steps: int) -> list[str]:
    """Name the schedules that are not over when training ends after `steps` iterations: likely forgotten."""
    entries = {f"losses.{name}.schedule": entry.schedule for name, entry in recipe.losses.items()}
    entries |= {f"steps.{name}.lr_schedule": entry.lr_schedule for name, entry in recipe.steps.items()}
    for name, step in recipe.steps.items():
        for injector, declared in step.injectors.items():
            for key, value in (declared.arguments.get("args") or {}).items():
                if isinstance(value, dict) and "type" in value:
                    entries[f"steps.{name}.injectors.{injector}.args.{key}"] = Declaration(**value)
    problems = Problems(Path())
    built = {key: build_schedule(entry, key, problems) for key, entry in entries.items() if entry}
    return [
        f"{key} goes on until step {s.last}, training ends at {steps}" for key, s in built.items() if s.last > steps
    ]


def batch_names(entries: Mapping[str, Declaration]) -> list[str]:
    """Return the names that every one of these datasets provides, in the order of the first."""
    provided = [_provided(entry) for entry in entries.values()]
    return [name for name in provided[0] if all(name in others for others in provided)]


def partial_names(recipe: Recipe) -> frozenset[str]:
    """Return the names that only some datasets of a split provide: a loss that reads one counts where it is there."""
    found: set[str] = set()
    for entries in (recipe.data.train, recipe.data.validation):
        provided = [set(_provided(entry)) for entry in entries.values()]
        found |= set[str]().union(*provided) - provided[0].intersection(*provided)
    return frozenset(found)


def _provided(entry: Declaration) -> tuple[str, ...]:
    kind: Any = find_type(entry.type, DATASET, "", Problems(Path()))
    return tuple(kind.provides(entry.arguments))


def build_schedule(entry: Declaration | None, key: str, problems: Problems) -> Schedule:
    """Construct a schedule; none means a constant 1."""
    if entry is None:
        return construct("Constant", {}, SCHEDULE, key, problems)
    return construct(entry.type, entry.arguments, SCHEDULE, key, problems)


class _Check:
    """The checks that need more than the form; each notes what it finds in `problems` and goes on."""

    def __init__(self, recipe: Recipe, problems: Problems) -> None:
        self.recipe, self.problems = recipe, problems
        self.networks: dict[str, type[nn.Module]] = {}
        self.forms: dict[str, str] = {}  # of names of the state, where the network that gives them says so
        self.wanted: dict[str, Mapping[str, str]] = {}  # by loss, the forms that its roles ask for
        self.names_known = True  # until a dataset or an injector cannot be read: what it would provide is then unknown

    def run(self) -> None:
        for name, network in self.recipe.networks.items():
            kind = self._declared(network, NETWORK, f"networks.{name}")
            if kind is not None:
                self.networks[name] = kind
        train, some_train = self._names("train")
        validation, some_validation = self._names("validation")
        self._training()
        self._losses_belong()
        final = self._dataflow(train & validation, some_train & some_validation)
        self._evaluation(validation)
        if self.recipe.predict is not None:
            self._prediction(self.recipe.predict)
        for name, score in self.recipe.metrics.scores.items():
            self._declared(score, SCORE, f"metrics.scores.{name}")
        for name, picture in self.recipe.metrics.pictures.items():
            self._declared(picture, PICTURE, f"metrics.pictures.{name}")
        if self.recipe.runtime.samples:
            self._known(self.recipe.runtime.samples.names, final, "runtime.samples.names")

    def _declared(self, entry: Declaration, slot: Slot, key: str, given: tuple[str, ...] = ()) -> Any:
        kind = find_type(entry.type, slot, f"{key}.type", self.problems)
        if kind is not None:
            beside = tuple(type(entry).model_fields)
            check_arguments(kind, entry.arguments, key, self.problems, given, beside)
        return kind

    def _names(self, split: str) -> tuple[set[str], set[str]]:
        """Return the names that every dataset of a split provides, and those that some do."""
        provided: list[set[str]] = []
        for name, entry in getattr(self.recipe.data, split).items():
            kind = self._declared(entry, DATASET, f"data.{split}.{name}")
            if kind is None:
                self.names_known = False
            else:
                provided.append(set(kind.provides(entry.arguments)))
        return (set.intersection(*provided), set.union(*provided)) if provided else (set(), set())

    def _training(self) -> None:
        trained = {name for step in self.recipe.steps.values() for name in step.trains}
        for name, step in self.recipe.steps.items():
            for network in set(step.trains) - self.recipe.networks.keys():
                self.problems.add_unknown(f"steps.{name}.trains", network, self.recipe.networks, "network")
            optimizer = self._declared(step.optimizer, OPTIMIZER, f"steps.{name}.optimizer", ("params",))
            for group, options in step.groups.items():
                self._group(optimizer, options, f"steps.{name}.groups.{group}")
            build_schedule(step.lr_schedule, f"steps.{name}.lr_schedule", self.problems)
        for name in self.recipe.networks:
            if name not in trained and name not in self.recipe.starts_from():
                self.problems.add(f"networks.{name}", "no step trains it and it loads no weights")
        self._start()

    def _group(self, optimizer: type[torch.optim.Optimizer] | None, group: Group, key: str) -> None:
        try:
            re.compile(group.pattern)
        except re.error as error:
            self.problems.add(f"{key}.pattern", f"found {group.pattern!r}; expected a regular expression ({error})")
        if optimizer is not None:  # what a group leaves out is the optimizer's
            options, parameters = group.model_extra or {}, inspect.signature(optimizer).parameters
            needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
            given = tuple(needed - options.keys() | {"params"})
            check_arguments(optimizer, options, key, self.problems, given, ("pattern", *needed - {"params"}))

    def _start(self) -> None:
        start = self.recipe.train.init_from
        for name in start.networks or () if start else ():
            if name not in self.recipe.networks:
                self.problems.add_unknown("train.init_from.networks", name, self.recipe.networks, "network")
        for name, entry in self.recipe.networks.items():
            if entry.weights is not None and start and name in (start.networks or self.recipe.networks):
                self.problems.add(f"networks.{name}.weights", "train.init_from gives this network its weights already")

    def _losses_belong(self) -> None:
        several = len(self.recipe.steps) > 1
        for name, loss in self.recipe.losses.items():
            key = f"losses.{name}"
            if loss.step is None and several:
                self.problems.add(f"{key}.step", f"missing; there are several steps: {', '.join(self.recipe.steps)}")
            elif loss.step is not None and loss.step not in self.recipe.steps:
                self.problems.add_unknown(f"{key}.step", loss.step, self.recipe.steps, "step")
            build_schedule(loss.schedule, f"{key}.schedule", self.problems)
            beside = tuple(type(loss).model_fields)
            built = construct(loss.type, loss.arguments, LOSS, key, self.problems, beside=beside)
            if built is not None:
                self._roles(type(built), loss.inputs, f"{key}.inputs", "role")
                self.wanted[name] = getattr(built, "forms", {})
        for name in self.recipe.steps:
            belonging = [loss for key, loss in self.recipe.losses.items() if self.recipe.loss_step(key) == name]
            if not any(loss.weight for loss in belonging):
                what = "every loss that belongs to it has weight 0" if belonging else "no loss belongs to it"
                self.problems.add(f"steps.{name}", f"{what}: it would train nothing")

    def _roles(self, kind: type[nn.Module], given: Mapping[str, Any], key: str, what: str) -> None:
        parameters = dict(list(inspect.signature(kind.forward).parameters.items())[1:])
        named = {n: p for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if len(named) < len(parameters):  # *args or **kwargs: nothing to hold the names against
            return
        for role in given.keys() - named.keys():
            self.problems.add_unknown(f"{key}.{role}", role, named, f"{what} of {kind.__name__}")
        for role, parameter in named.items():
            if parameter.default is parameter.empty and role not in given:
                self.problems.add(f"{key}.{role}", f"missing; {kind.__name__} needs it")

    def _dataflow(self, batch: set[str], partial: set[str]) -> set[str]:
        """Follow the names through the steps; return those there at the end of an iteration in which all steps run.

        `partial` names, which some datasets provide, can be read by losses alone.
        """
        visible: dict[str, StepEntry | None] = dict.fromkeys(batch)
        for name, step in self.recipe.steps.items():
            key = f"steps.{name}"
            names = {found for found, origin in visible.items() if origin is None or _covers(origin, step)}
            self._known(step.detach, names, f"{key}.detach")
            names = self._injectors(step.injectors, names, f"{key}.injectors", visible.keys() - names)
            for loss in (loss for loss in self.recipe.losses if self.recipe.loss_step(loss) == name):
                for role, wanted in self.recipe.losses[loss].inputs.items():
                    self._known([wanted], names | partial, f"losses.{loss}.inputs.{role}")
                    self._form(wanted, self.wanted.get(loss, {}).get(role), f"losses.{loss}.inputs.{role}")
            gate = None if _covers(step, StepEntry.model_construct()) else step
            visible |= {found: gate for found in names - visible.keys()}
        return set(visible)

    def _injectors(
        self, entries: Mapping[str, Declaration], names: set[str], key: str, hidden: Iterable[str] = ()
    ) -> set[str]:
        """Return `names` and what the injectors add; `hidden` names are taken, but not there in every iteration."""
        names, hidden = set(names), set(hidden)
        for name, entry in entries.items():
            injector = construct(entry.type, entry.arguments, INJECTOR, f"{key}.{name}", self.problems)
            if injector is None:
                self.names_known = False
                continue
            self._known(injector.reads, names, f"{key}.{name}")
            if isinstance(injector, Forward):
                self._forward(injector, f"{key}.{name}")
            for added in injector.adds:
                if added in names | hidden:
                    self.problems.add(
                        f"{key}.{name}", f"adds {added!r}, which is there already: a name is written once"
                    )
            names |= set(injector.adds)
        return names

    def _forward(self, injector: Forward, key: str) -> None:
        if injector.network not in self.recipe.networks:
            self.problems.add_unknown(f"{key}.network", injector.network, self.recipe.networks, "network")
        elif kind := self.networks.get(injector.network):
            self._roles(kind, {**injector.inputs, **injector.args}, key, "input")
            for both in injector.inputs.keys() & injector.args.keys():
                self.problems.add(f"{key}.args.{both}", f"{both!r} is among the inputs already")
            if hasattr(kind, "forms"):
                given = kind.forms(self.recipe.networks[injector.network].arguments)
                self.forms |= {injector.outputs[output]: given[output] for output in given.keys() & injector.outputs}
            outputs = getattr(kind, "outputs", injector.outputs)
            for output in injector.outputs:
                if output not in outputs:
                    self.problems.add_unknown(f"{key}.outputs", output, outputs, f"output of {kind.__name__}")

    def _form(self, name: str, wanted: str | None, key: str) -> None:
        """A loss may say what form a role has, and a network what form it gives; they agree where both do."""
        found = self.forms.get(name)
        if wanted and found and wanted != found:
            self.problems.add(key, f"{name!r} is of the form ({found}); the loss reads ({wanted})")

    def _known(self, wanted: Iterable[str], names: set[str], key: str) -> None:
        for name in wanted if self.names_known else ():
            if name not in names:
                self.problems.add_unknown(key, name, names, "name: nobody provides")

    def _evaluation(self, batch: set[str]) -> None:
        evaluate = self.recipe.evaluate
        self._known(evaluate.inputs, batch, "evaluate.inputs")
        for name, mode in evaluate.modes.items():
            names = self._injectors(mode.injectors, batch, f"evaluate.modes.{name}.injectors")
            self._known(mode.save, names, f"evaluate.modes.{name}.save")
        for name, cross in evaluate.crosses.items():
            key = f"evaluate.crosses.{name}"
            self._known([*cross.rows, *cross.columns], batch, key)
            for both in set(cross.rows) & set(cross.columns):
                self.problems.add(key, f"{both!r} is in rows and in columns")
            names = self._injectors(cross.injectors, {*cross.rows, *cross.columns}, f"{key}.injectors")
            self._known(cross.save, names, f"{key}.save")
        for name, average in evaluate.averages.items():
            self._known([average.of], batch, f"evaluate.averages.{name}.of")

    def _prediction(self, predict: Predict) -> None:
        kind = self._declared(predict.data, PHOTOS, "predict.data")
        if kind is None:
            return
        given, evaluate = set(kind.provides(predict.data.arguments)), self.recipe.evaluate
        if predict.mode not in evaluate.modes:
            self.problems.add_unknown("predict.mode", predict.mode, evaluate.modes, "mode")
            return
        names = set(given)
        for name, entry in evaluate.modes[predict.mode].injectors.items():
            elsewhere = Problems(self.problems.file)  # what is wrong with the injectors is said where they stand
            injector = construct(entry.type, entry.arguments, INJECTOR, name, elsewhere)
            if injector is None:
                return
            self._known(injector.reads, names, f"predict.mode: injector {name!r} of mode {predict.mode!r}")
            names |= set(injector.adds)
        names = self._injectors(predict.injectors, names, "predict.injectors")
        self._known(predict.save, names, "predict.save")
        if predict.cross is None:
            return
        if predict.cross not in evaluate.crosses:
            self.problems.add_unknown("predict.cross", predict.cross, evaluate.crosses, "cross")
        else:
            cross = evaluate.crosses[predict.cross]
            self._known([*cross.rows, *cross.columns], given, f"predict.cross: rows and columns of {predict.cross!r}")


def _covers(origin: StepEntry, reader: StepEntry) -> bool:
    """Whether `origin` runs in every iteration in which `reader` runs."""
    lasts = origin.before is None or (reader.before is not None and reader.before <= origin.before)
    in_phase = reader.every % origin.every == 0 and (reader.after - origin.after) % origin.every == 0
    return origin.after <= reader.after and lasts and in_phase
