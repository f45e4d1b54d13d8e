"""What the first iterations of a training depend on, so that trainings that are equal so far can share a state.

Schedules, weights, learning rates and gates count by their values in these iterations. What has not run yet is left
out, and so are the number of iterations and every setting that changes no result. If this content, code, data, packages
and machine are equal for two recipes after s iterations, so are their states: random numbers depend on seed and
iteration alone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figura.base.error_collector import ErrorCollector
from figura.injectors.forward import Forward
from figura.interfaces import Callback, Operation, Schedule
from figura.recipe.gates import END, Gate, When, iterations
from figura.recipe.schema import RESULT_SECTIONS, InjectorEntry, LossEntry, Recipe, StepEntry
from figura.recipe.types import INJECTOR, build_schedule, check_arguments, find_type
from figura.schedules import Constant, Product

CHUNK = 2**16  # iterations whose values are in memory at a time
GATE = {"every", "after", "before"}


class Pass:
    """The iterations in which something runs, and the values of its schedules there, as running digests.

    Args:
        when: its gates, nested.
        schedules: functions of the iteration.
        every: iterations between evaluations; None: of training. Evaluations ignore `every` of a gate, and see the
            number of the iteration that comes next.
    """

    def __init__(self, when: When, schedules: Sequence[Schedule], every: int | None = None) -> None:
        gates = when if every is None else tuple(Gate(1, gate.after, gate.before) for gate in when)
        self.active, self.schedules, self.every = iterations(gates), list(schedules), every
        self.ran = False
        self._sums = [sha256() for _ in range(1 + len(self.schedules))]

    def advance(self, start: int, stop: int) -> None:
        """Add the iterations start <= t < stop."""
        first = max(self.active.start, start)
        first += (self.active.start - first) % self.active.step
        ran = np.arange(first, min(self.active.stop, stop), self.active.step, dtype=np.int64)
        if self.every is not None:
            ran = ran[(ran > 0) & (ran % self.every == 0)]
        if len(ran):
            self.ran = True
            for total, values in zip(self._sums, (ran, *(_values(one, ran) for one in self.schedules)), strict=True):
                total.update(values.tobytes())

    def digest(self) -> str:
        """Return a digest of everything added."""
        return sha256(b"".join(total.digest() for total in self._sums)).hexdigest()


def _values(schedule: Schedule, at: NDArray[np.int64]) -> NDArray[np.float64]:
    if isinstance(schedule, Constant):
        return np.full(len(at), schedule.value, np.float64)
    return np.fromiter(map(schedule, at.tolist()), np.float64, len(at))


class Entry:
    """A step, an injector or a loss: its content without what counts by effect, and the passes in which it runs."""

    def __init__(self, content: Mapping[str, Any], passes: Sequence[Pass]) -> None:
        self.content, self.passes = dict(content), list(passes)

    @property
    def ran(self) -> bool:
        """Whether it has run in any pass so far."""
        return any(one.ran for one in self.passes)

    def so_far(self) -> dict[str, Any]:
        """Return its content, with digests of the iterations in which it ran."""
        return self.content | {"ran": [one.digest() for one in self.passes]}


class Prefixes:
    """The prefixes of one recipe, for rising numbers of iterations.

    Args:
        recipe: a checked recipe.
        evaluate_every: iterations between evaluations (`train.evaluate_every`, or those of an epoch).
        callbacks: the recipe's, built.
    """

    def __init__(self, recipe: Recipe, evaluate_every: int, callbacks: Mapping[str, Callback]) -> None:
        self.recipe, self.every, self.callbacks = recipe, evaluate_every, callbacks
        self.done = 0
        self.datasets = {
            name: Pass((), [_schedule(entry.schedule, f"data.train.{name}.schedule", entry.weight)])
            for name, entry in recipe.data.train.items()
            if entry.schedule is not None
        }
        self.steps = {name: self._step(name, entry) for name, entry in recipe.steps.items()}
        self.injectors = {
            name: {key: self._injector(name, key, one) for key, one in entry.injectors.items()}
            for name, entry in recipe.steps.items()
        }
        self.losses: dict[str, dict[str, Entry]] = {name: {} for name in recipe.steps}
        for name, loss in recipe.losses.items():
            if loss.weight != 0:
                step = recipe.loss_step(name)
                self.losses[step][name] = self._loss(name, loss, recipe.steps[step])

    def _step(self, name: str, entry: StepEntry) -> Entry:
        rate = _schedule(entry.lr_schedule, f"steps.{name}.lr_schedule")
        content = entry.model_dump(exclude=GATE | {"lr_schedule", "injectors"})
        content["accumulation"] = self.recipe.parts(name)
        return Entry(content, [Pass((entry.gate,), [rate]), Pass((entry.gate,), [], self.every)])

    def _injector(self, step: str, name: str, entry: InjectorEntry) -> Entry:
        key, errors = f"steps.{step}.injectors.{name}", ErrorCollector(self.recipe.path)
        kind = find_type(entry.type, INJECTOR, key, errors)
        assert kind is not None  # the recipe is checked
        schedules: list[Schedule] = []
        built = check_arguments(kind, entry.arguments, key, errors)
        arguments = {
            argument: _without_schedules(value, built.get(argument, built.get(f"{argument}_")), schedules)
            for argument, value in entry.arguments.items()
        }
        when = (self.recipe.steps[step].gate, entry.gate)
        passes = [Pass(when, schedules)] if entry.only != "evaluation" else []
        passes += [Pass(when, schedules, self.every)] if entry.only != "training" else []
        return Entry({"type": entry.type, "arguments": arguments, "networks": _networks(kind, entry)}, passes)

    def _loss(self, name: str, entry: LossEntry, step: StepEntry) -> Entry:
        weight, when = _schedule(entry.schedule, f"losses.{name}.schedule", entry.weight), (step.gate, entry.gate)
        content = entry.model_dump(exclude=GATE | {"schedule", "weight", "step"})
        return Entry(content, [Pass(when, [weight]), Pass(when, [], self.every)])

    def knots(self) -> list[int]:
        """Return the iterations at which something begins, ends or changes its formula: where recipes tend to part."""
        passes = list(self._passes())
        found = {knot for one in passes for schedule in one.schedules for knot in schedule.knots}
        found |= {bound for one in passes for bound in (one.active.start, one.active.stop)}
        return sorted(found - {0, END})

    def _entries(self) -> Iterator[Entry]:
        yield from self.steps.values()
        for groups in (self.injectors, self.losses):
            for group in groups.values():
                yield from group.values()

    def _passes(self) -> Iterator[Pass]:
        yield from self.datasets.values()
        for entry in self._entries():
            yield from entry.passes

    def at(self, done: int) -> dict[str, Any]:
        """Return what the first `done` iterations depend on, as plain values; `done` never falls from call to call.

        The order of the entries of a map counts. `recipe`, if it is there, is all of it, for a callback that may read
        and change anything.
        """
        for start in range(self.done, done, CHUNK):
            for one in self._passes():
                one.advance(start, min(start + CHUNK, done))
        self.done = done
        content: dict[str, Any] = {
            "seed": self.recipe.seed, "facts": self.recipe.facts, "data": self._data(), "train": self._train(),
            "steps": {
                name: entry.so_far()
                | {"injectors": _that_ran(self.injectors[name]), "losses": _that_ran(self.losses[name])}
                for name, entry in self.steps.items()
                if entry.ran
            },
        }  # fmt: skip
        content["networks"] = self._used_networks(content["steps"])
        return content | self._callbacks(done)

    def _data(self) -> dict[str, Any]:
        data = self.recipe.model_dump(include={"data"}, by_alias=True)["data"]
        for name, weight in self.datasets.items():
            data["train"][name] |= {"weight": weight.digest(), "schedule": None}
        return {key: value for key, value in data.items() if key != "validation" or self.done > self.every}

    def _train(self) -> dict[str, Any]:
        train = self.recipe.train
        content = train.model_dump(by_alias=True, exclude={"steps", "epochs", "evaluate_every", "accumulation", "stop"})
        if self.done <= self.every:
            del content["evaluate_limit"], content["keep"]
        if self.done < train.record_every:
            del content["record_every"]
        return content | ({"evaluate_every": self.every} if self.done > self.every else {})

    def _used_networks(self, steps: Mapping[str, Any]) -> dict[str, Any]:
        """Return the networks that the steps train or call; `frozen` are those that no step trains at any time."""
        used = {network for step in steps.values() for network in step["trains"]}
        for step in steps.values():
            for injector in step["injectors"].values():
                used |= set(self.recipe.networks if injector["networks"] is None else injector["networks"])
        trained = {network for entry in self.recipe.steps.values() for network in entry.trains}
        return {
            name: entry.model_dump(by_alias=True) | {"frozen": name not in trained}
            for name, entry in self.recipe.networks.items()
            if name in used
        }

    def _callbacks(self, done: int) -> dict[str, Any]:
        says = {name: callback.depends_on(done) for name, callback in self.callbacks.items()}
        whole = self.recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True)
        return {
            "callbacks": {name: {"type": self.recipe.callbacks[name].type, "depends on": says[name]} for name in says},
            **({"recipe": whole} if None in says.values() else {}),
        }


def digest(content: Mapping[str, Any]) -> str:
    """Return a digest of plain values; the order of the entries of maps counts."""
    return sha256(json.dumps(content).encode()).hexdigest()[:32]


def _that_ran(entries: Mapping[str, Entry]) -> dict[str, Any]:
    return {name: entry.so_far() for name, entry in entries.items() if entry.ran}


def _schedule(entry: Any, key: str, weight: float = 1.0) -> Schedule:
    """Return `weight` times a schedule; without one, `weight`."""
    if entry is None:
        return Constant(weight)
    return Product({"weight": Constant(weight), "schedule": build_schedule(entry, key, ErrorCollector(Path()))})


def _without_schedules(value: Any, built: Any, schedules: list[Schedule]) -> Any:
    """Return a recipe's value with a number in place of each schedule that was built, which goes to `schedules`."""
    if isinstance(built, Schedule):
        schedules.append(built)
        return {"schedule": len(schedules), "gives": type(built(0)).__name__}
    if isinstance(value, Mapping) and isinstance(built, Mapping):
        return {key: _without_schedules(part, built.get(key), schedules) for key, part in value.items()}
    return value


def _networks(kind: type, entry: InjectorEntry) -> list[str] | None:
    """Return the networks that an injector can call, or None if its code may call any."""
    if kind is Forward:
        return [entry.arguments["network"]]
    return [] if issubclass(kind, Operation) and kind.__call__ is Operation.__call__ else None
