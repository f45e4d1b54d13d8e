"""What a training ends before: schedules that go on, gates that do not open, a `train.stop` that comes later.

And the other way round: rates that are 0 long before it ends.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figura.base.error_collector import ErrorCollector
from figura.interfaces import Schedule
from figura.recipe.schema import Recipe
from figura.recipe.types import INJECTOR, build_schedule, check_arguments, find_type


def late_parts(recipe: Recipe, steps: int | None) -> list[str]:
    """Return a line for each schedule, gate and `train.stop` that a training of `steps` iterations ends before.

    And for each step whose rates are 0 before that.

    None without a number of iterations, and of a try, which always ends before them.
    """
    if steps is None or recipe.train.try_:
        return []
    late = late_schedules(recipe, steps) + late_gates(recipe, steps) + late_stop(recipe, steps)
    return late + ended_rates(recipe, steps)


def late_schedules(recipe: Recipe, steps: int) -> list[str]:
    """Return a line for each schedule that is unfinished after `steps` iterations."""
    entries = {f"losses.{name}.schedule": entry.schedule for name, entry in recipe.losses.items()}
    entries |= {f"steps.{name}.lr_schedule": entry.lr_schedule for name, entry in recipe.steps.items()}
    entries |= {f"data.train.{name}.schedule": entry.schedule for name, entry in recipe.data.train.items()}
    errors = ErrorCollector(Path())
    built = {key: build_schedule(entry, key, errors) for key, entry in entries.items() if entry}
    for name, step in recipe.steps.items():
        for injector, declared in step.injectors.items():
            key = f"steps.{name}.injectors.{injector}"
            if (kind := find_type(declared.type, INJECTOR, key, errors)) is not None:
                built |= _schedules(check_arguments(kind, declared.arguments, key, errors), key)
    return [
        f"{key} goes on until step {s.last}, training ends at {steps}" for key, s in built.items() if s.last > steps
    ]


def _schedules(value: Any, key: str) -> dict[str, Schedule]:
    """Return the schedules in an argument, or in the maps in it, by dotted key."""
    if isinstance(value, Schedule):
        return {key: value}
    parts = value.items() if isinstance(value, Mapping) else ()
    return {inner: one for name, part in parts for inner, one in _schedules(part, f"{key}.{name}").items()}


def late_gates(recipe: Recipe, steps: int) -> list[str]:
    """Return a line for each gate that does not open within `steps` iterations."""
    gated = {f"steps.{name}": step for name, step in recipe.steps.items()} | {
        f"losses.{name}": loss for name, loss in recipe.losses.items()
    }
    starts = {key: entry.after for key, entry in gated.items()}
    for name, step in recipe.steps.items():
        starts |= {f"steps.{name}.injectors.{key}": entry.after for key, entry in step.injectors.items()}
    return [
        f"{key} starts after step {after}, training ends at {steps}" for key, after in starts.items() if after >= steps
    ]


def late_stop(recipe: Recipe, steps: int) -> list[str]:
    """Return a line if `train.stop` cannot end a training of `steps` earlier, be its first evaluation the best one."""
    stop, every = recipe.train.stop, recipe.train.evaluate_every
    if stop is None or every is None or (first := every * (1 + stop.patience)) < steps:
        return []
    return [f"train.stop ends it at step {first} at the earliest, training ends at {steps}"]


def ended_rates(recipe: Recipe, steps: int) -> list[str]:
    """Return a line for each step whose rates are 0 from some iteration on, until it or the training ends."""
    lines = []
    for name, step in recipe.steps.items():
        key, end = f"steps.{name}.lr_schedule", min(step.before or steps, steps)
        rate = build_schedule(step.lr_schedule, key, ErrorCollector(Path())) if step.lr_schedule else None
        if (
            rate is not None
            and rate.last < end
            and not any(rate(t) for t in range(rate.last, end, (end - rate.last) // 1000 + 1))
        ):
            lines.append(f"{key} is 0 from step {rate.last} on, by which nothing is learned until {end}")
    return lines
