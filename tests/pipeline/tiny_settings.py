"""Settings with which a recipe or a dataset takes seconds.

Steps, gates, schedules, batches and what is written when follow rules, for any recipe. What only a system or a dataset
knows, such as the sides of its pictures, may stand in tiny.yaml.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from figura import schedules
from figura.base.error_collector import ErrorCollector
from figura.base.yaml12 import read_yaml
from figura.interfaces import Schedule
from figura.recipe.shares import in_iterations
from pipeline.dag import ROOT, datasets, recipes

OWN = read_yaml(Path(__file__).with_name("tiny.yaml"))
STEPS = 12
TYPES = {name for name, one in vars(schedules).items() if isinstance(one, type) and issubclass(one, Schedule)}
GATES = ("after", "before")
ALWAYS = {
    "data.batch_size": 4,
    "train.steps": STEPS,
    "train.evaluate_every": 6,
    "train.record_every": 4,
    "evaluate.batch_size": 4,
    "metrics.bootstrap": 20,
    "metrics.confidence": 0.95,
    "runtime.resume_every": 3,
    "runtime.log_every": 5,
    "runtime.progress": False,
    "runtime.trackers": [],
}


def tiny(folder: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Return, for each params file of a project, dotted keys and their tiny values."""
    of_data: dict[str, Any] = {}
    for name in datasets(folder):
        of_data |= {f"datasets.{name}.{key}": value for key, value in own(f"datasets/{name}", "settings").items()}
    of_recipes = {
        entry["params"]: ALWAYS | dict(by_rule(counted(folder / entry["params"]))) | own(name, "settings")
        for name, entry in recipes(folder).items()
    }
    return {"data/params.yaml": of_data} | of_recipes


def own(name: str, section: str) -> dict[str, Any]:
    """Return what tiny.yaml says of a recipe or dataset, nothing where it does not."""
    return dict(OWN.get(name, {}).get(section, {}))


def counted(path: Path) -> dict[str, Any]:
    """Return a recipe with counts in place of shares, so that a longer training shares what a shorter one began."""
    return in_iterations(read_yaml(path), ErrorCollector(path))


def by_rule(recipe: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and tiny values of what counts steps, and of what would read many examples."""
    share = STEPS / recipe["train"]["steps"]
    for section in ("losses", "steps"):
        for key, value in steps_in(recipe.get(section, {}), section):
            yield key, value and max(2, round(value * share))  # in the same order as before
    evaluate = recipe.get("evaluate", {})
    for name in evaluate.get("grids", {}):
        yield f"evaluate.grids.{name}.size", 2
    for name in evaluate.get("averages", {}):
        yield f"evaluate.averages.{name}.examples", 8
    if recipe.get("runtime", {}).get("scores"):
        yield "runtime.scores.every", STEPS // 2


def steps_in(tree: Any, path: str) -> Iterator[tuple[str, int]]:
    """Yield the dotted keys and values of gates, and of the arguments of schedules that count steps."""
    if not isinstance(tree, Mapping):
        return
    for key, value in tree.items():
        if isinstance(value, int) and (key in GATES or tree.get("type") in TYPES) and not isinstance(value, bool):
            yield f"{path}.{key}", value
        yield from steps_in(value, f"{path}.{key}")
