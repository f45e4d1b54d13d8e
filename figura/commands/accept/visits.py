"""The parts of a training in which two versions of the code are compared: spans of iterations, and states.

A training begins to do something else at its knots: where a gate opens or closes, a schedule changes its formula, the
first evaluation or the second epoch comes. Each lies in a span; so do the first iterations, the last ones, and some
from the states that are there. Where no state lies before a knot, the nearest one takes its place, with the iteration
counted anew: two codes that do the same must do so from any state.
"""

import gc
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from accelerate.state import AcceleratorState

from figura.base.checksums import damage, write_sums
from figura.base.files import read_json, read_text, write_text
from figura.base.yaml12 import to_yaml
from figura.commands.replayed import RUNTIME
from figura.engine.weights import load_weights
from figura.interfaces import Row
from figura.recipe import trial
from figura.recipe.expansion import read_recipe
from figura.recipe.gates import iterations
from figura.recipe.load import check_recipe
from figura.recipe.prefix import Prefixes
from figura.recipe.resolved import settings
from figura.report.curves import read_histories
from figura.training.checkpoints import models_in, step_of
from figura.training.finished import link_or_copy
from figura.training.resume import TENSORS, TREE, ResumePoints, flatten, unflatten
from figura.training.state_store import STATE, SharedState, StateStore
from figura.training.states import KEPT
from figura.training.trainer import Trainer

FEW = 4  # states of which no knot is near that are visited
Span = tuple[int, int]


class Visit(NamedTuple):
    """A span of iterations, and the folder of the state that it begins with; None: the start."""

    start: int
    stop: int
    state: Path | None

    def folder(self, side: Path) -> Path:
        """Return the folder in which a side leaves what it did."""
        return side / f"{self.start:010d}"


def spans(last: int, count: int, knots: Collection[int], states: Collection[int]) -> list[Span]:
    """Return the spans to visit in a training of `last` iterations, at most `count` long.

    Args:
        last: the number of its iterations.
        count: iterations in a span, at least 4.
        knots: iterations at which something changes.
        states: iterations after which there is a state.
    """
    found = {(0, min(count, last)), (max(last - count, 0), last)}
    for knot in sorted(knots):
        if 0 < knot < last and not any(start < knot and min(knot + 2, last) <= stop for start, stop in found):
            near = max((one for one in states if knot - count + 2 <= one < knot), default=max(knot - count // 2, 0))
            found.add((near, min(near + count, last)))
    rest = [one for one in sorted(states) if one < last and not any(start <= one < stop for start, stop in found)]
    found |= {(one, min(one + count, last)) for one in rest[:: -(-len(rest) // FEW) or 1]}
    return sorted(found)


class Plan:
    """What to visit of a training, and the states to begin with, in folders below `scratch`.

    Args:
        path: of the recipe.
        run: folder of the run.
        count: iterations in a span.
        scratch: an empty folder on the same disk, for hard links.
    """

    def __init__(self, path: Path, run: Path, count: int, scratch: Path) -> None:
        self.content = read_recipe(path) | {"runtime": RUNTIME}
        recipe = check_recipe(self.content, path)
        self.scratch, self.run, self.inside = scratch, run, trial.scratch(Path(), recipe)
        self.processes = _processes(run / self.inside / "live/log.jsonl")
        AcceleratorState._reset_state(reset_partial_state=True)  # of another recipe's precision
        trainer = Trainer(recipe, scratch / "plan")
        store = StateStore.of_project()
        own = [] if store is None else store.states()
        self.shared: list[SharedState] = [
            one
            for one in own
            if (one.about.get("run"), one.about.get("recipe")) == (run.name, str(path))
            and one.about.get("settings") == settings(recipe)
        ]
        self.last = trainer.last
        states = dict(self._states(trainer))
        knots = {*_knots(trainer, self.content), *(int(rows["step"].max()) for rows in read_histories(run))}
        del trainer
        gc.collect()  # it holds memory of the GPU that both codes need
        torch.cuda.empty_cache()
        self.visits = [
            Visit(start, stop, self._state(start, states) if start else None)
            for start, stop in spans(self.last, count, knots, states)
        ]

    def _states(self, trainer: Trainer) -> Iterator[tuple[int, Path]]:
        """Yield the iteration and the folder of each state; one is made of the weights of each checkpoint and model."""
        models = {
            step: one
            for one in models_in(self.run / self.inside / "checkpoints")
            if (step := step_of(one.name)) is not None
        }
        chosen = sorted(models)[:: -(-len(models) // FEW) or 1]  # a state takes three times the disk of its model
        for iteration, folder in [(trainer.last, self.run / "model"), *((one, models[one]) for one in chosen)]:
            if damage(folder) is None:
                yield iteration, self._with_weights(trainer, iteration, folder)
        for one in self.shared:
            if damage(one.folder / STATE) is None:
                yield one.iteration, one.folder / STATE
        for point in ResumePoints(self.run / self.inside / "resume", {}).intact():
            yield point.iteration, point.folder

    def _with_weights(self, trainer: Trainer, iteration: int, model: Path) -> Path:
        """Write a state with the weights of a model and the history of the run, the optimizers as at the start."""
        state = trainer.state
        state.loss_log.train, state.loss_log.validation = map(_rows, read_histories(self.run))
        for average in trainer.averages.values():
            average.n_averaged.fill_(iteration)
        for name, network in trainer.networks.ema.items():
            load_weights(network, model / f"{name}.safetensors")
            plain = trainer.accelerator.unwrap_model(trainer.networks.live[name])
            plain.load_state_dict(network.state_dict())
        if trainer.recipe.train.keep:  # for a choice at the end, of evaluations whose weights are these
            weights = {name: dict(network.state_dict()) for name, network in trainer.networks.ema.items()}
            state.best.weights = {int(row["step"]): weights for row in state.loss_log.validation[-KEPT:]}
        points = ResumePoints(self.scratch / "weights" / f"{iteration}", {})
        points.save(iteration, state.state_dict())
        return points.latest_folder()

    def _state(self, iteration: int, states: Mapping[int, Path]) -> Path:
        """Return the folder of the state after `iteration`, or that of the nearest one, counted anew."""
        nearest = min(states, key=lambda one: abs(one - iteration))
        folder = self.scratch / "states" / f"{iteration:010d}"
        folder.mkdir(parents=True)
        link_or_copy(states[nearest] / TENSORS, folder / TENSORS)
        tree = read_json(states[nearest] / TREE)
        if nearest != iteration:
            tree["state"] = _counted_anew(tree["state"], iteration)
        write_text(folder / TREE, json.dumps(tree | {"iteration": iteration, "provenance": {}}))
        write_sums(folder)
        return folder

    def call(self, visit: Visit, side: Path, keep: bool) -> dict[str, Any]:
        """Return the call (probe.py) of a visit, with its folder below `side`."""
        folder = visit.folder(side)
        (folder / "run").mkdir(parents=True)
        recipe = self.scratch / "recipe.yaml"
        if not recipe.exists():
            write_text(recipe, to_yaml(self.content))
        if visit.state is not None:
            points = folder / "run" / self.inside / "resume"
            shutil.copytree(visit.state, points / visit.state.name, copy_function=link_or_copy)
        states = [one.iteration for one in self.shared] if visit.start == 0 else None
        arguments = [str(recipe), str(folder / "run")]
        return {"folder": str(folder), "arguments": arguments, "stop": visit.stop, "states": states, "keep": keep}


def _processes(log: Path) -> int:
    """Return in how many processes a training ran last; 1 if that is not known."""
    lines = read_text(log).splitlines() if log.is_file() else []
    counts = [json.loads(line)["processes"] for line in lines if '"processes"' in line]
    return int(counts[-1]) if counts else 1


def _rows(history: pd.DataFrame) -> list[Row]:
    return [
        {str(key): value for key, value in row.dropna().items()} | {"step": int(row["step"])}
        for _, row in history.iterrows()
    ]


def _knots(trainer: Trainer, content: Mapping[str, Any]) -> Iterator[int]:
    """Yield the iterations at which a training begins to do something else."""
    recipe = trainer.recipe
    yield from Prefixes(recipe, trainer.evaluate_every, trainer.callbacks).knots()
    gates = [(step.gate, one.gate) for step in recipe.steps.values() for one in step.injectors.values()]
    gates += [(recipe.steps[recipe.loss_step(name)].gate, loss.gate) for name, loss in recipe.losses.items()]
    for when in gates:
        if active := iterations(when):
            yield active.start + active.step  # the second time of what runs every so many iterations
    yield from (trainer.evaluate_every, trainer.batches_per_epoch)
    yield from _integers([content.get("callbacks"), [entry.get("lr_schedule") for entry in content["steps"].values()]])
    for entry in (*content["losses"].values(), *content["data"].get("train", {}).values()):
        yield from _integers(entry.get("schedule"))


def _integers(value: Any) -> Iterator[int]:
    """Yield the integers in nested maps and lists: the knots of callbacks and of schedules that name none."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _integers(part)


def _counted_anew(state: Any, iteration: int) -> Any:
    """Return a flattened state (resume.py) as if it came after `iteration`: without what its log has of later ones."""
    parts = dict(state["map"])
    log = unflatten(parts["loss_log"], {})
    kept = {key: [row for row in log[key] if row["step"] <= iteration] for key in ("train", "validation")}
    parts["loss_log"] = flatten(kept | {"window": []}, "", {})
    if "best" in parts:
        parts["best"] = {"map": [pair for pair in parts["best"]["map"] if int(pair[0]) <= iteration]}
    parts["nonfinite"] = {"map": []}
    parts.pop("begun", None)
    return {"map": [list(pair) for pair in parts.items()]}
