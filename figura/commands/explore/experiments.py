"""DVC's experiments, and the trainings that its cache has of them."""

import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.commands.explore.programs import run_program
from figura.commands.explore.project import Project
from figura.commands.explore.runs import METRICS, PLOTS, RUNS, TRAINED, Run, last_step, total_steps
from figura.commands.sweep_report import exp_show
from figura.commands.sweeps import MAIN, Estimate, Experiment, formatted, read_sweep

_fetching = threading.Lock()  # two sides, or two people, may want the same


@dataclass(frozen=True)
class ExperimentRun:
    """What an experiment of DVC, or the commit that experiments started from, has of a recipe.

    Attributes:
        recipe: of `dvc.yaml`.
        experiment: DVC's name for it; of a commit its branch, or the beginning of its hash.
        state: `baseline`, `done`, `failed`, `queued` or `running`.
        changed_params: the params that differ from the commit's, as text.
        metrics: by short name.
        revision: the hash of its commit.
    """

    recipe: str
    experiment: str
    state: str
    changed_params: Mapping[str, str]
    metrics: Mapping[str, Estimate]
    revision: str

    @property
    def name(self) -> str:
        """What the page calls it: `vunet @ kl-1`."""
        return f"{self.recipe} @ {self.experiment}"

    @property
    def has_results(self) -> bool:
        """Whether it has ended well."""
        return self.state in ("baseline", "done")


def experiments(project: Project) -> list[ExperimentRun]:
    """Return DVC's experiments, each after the commit that it started from; none if there is no repository of DVC.

    An experiment stands at each recipe whose params it changes, and at each recipe if it changes none. It takes
    seconds, and runs DVC as a program, which leaves no memory behind.

    Raises:
        UserError: DVC fails.
    """
    if not (project.root / ".dvc").is_dir():
        return []
    rows: list[ExperimentRun] = []
    for commit in _baselines(project.root):
        shown = exp_show(commit)
        baseline = _baseline(shown, commit)
        try:
            others = list(read_sweep(shown, commit).experiments)
        except UserError:  # no experiment started from it
            others = []
        for one in (*([baseline] if baseline else []), *others):
            rows += experiment_runs(project, one, baseline or one)
    return rows


def _baseline(shown: Any, commit: str) -> Experiment | None:
    """Return the commit itself, which `read_sweep` returns only if experiments started from it."""
    with suppress(TypeError, KeyError, IndexError):
        of_commit = [one | {"experiments": [{"revs": [one], "name": "-"}]} for one in shown if one["rev"] == commit]
        return read_sweep(of_commit, commit).baseline
    return None


def _baselines(root: Path) -> list[str]:
    """Return HEAD, which those in the queue started from, and the other commits with experiments, from their names."""

    def git(*arguments: str) -> list[str]:
        with suppress(OSError):  # no git here
            command = ["git", "-C", str(root), *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        return []

    head = git("rev-parse", "--verify", "--quiet", "HEAD")
    names = git("for-each-ref", "--format=%(refname)", "refs/exps")
    matches = [re.fullmatch("refs/exps/([0-9a-f]{2})/([0-9a-f]{38})/.+", one) for one in names]
    return list(dict.fromkeys([*head, *(match[1] + match[2] for match in matches if match)]))


def experiment_runs(project: Project, one: Experiment, baseline: Experiment) -> list[ExperimentRun]:
    """Return what an experiment has of each recipe that it concerns."""
    changed = {
        key: formatted(value)
        for key, value in one.params.items()
        if baseline.params and formatted(value) != formatted(baseline.value(key))
    }
    prefixes = {recipe: _prefix(project.params(recipe)) for recipe in project.recipes}
    of_recipe = {recipe: {k: v for k, v in changed.items() if _is_of(k, prefixes[recipe])} for recipe in prefixes}
    recipes = [recipe for recipe in prefixes if of_recipe[recipe]] or list(prefixes)
    return [
        ExperimentRun(recipe, one.name, one.state, of_recipe[recipe], _estimates(one, recipe), one.rev)
        for recipe in recipes
        if one.state != "baseline" or _estimates(one, recipe)
    ]


def _prefix(params: Path) -> str:
    """Return how names of params in a file begin; those of the main file have none."""
    return "" if str(params) == MAIN else f"{params}:"


def _is_of(key: str, prefix: str) -> bool:
    return key.startswith(prefix) if prefix else ":" not in key


def _estimates(one: Experiment, recipe: str) -> dict[str, Estimate]:
    stem = f"{METRICS}/{recipe}.json:"
    estimates = {}
    for key in one.metrics:
        if key.startswith(stem) and key.endswith(".value") and (estimate := one.estimate(key)) is not None:
            estimates[key.removeprefix(stem).removesuffix(".value")] = estimate
    return estimates


def fetch_run(project: Project, one: ExperimentRun, scratch: Path) -> Run:
    """Return the training of an experiment or a commit: its history, its resolved recipe, its result pictures.

    Args:
        project: the repository.
        one: the experiment, which has results.
        scratch: a folder; files appear below it, and are taken from there the next time.

    Raises:
        UserError: DVC's cache does not have them.
    """
    command = ["dvc", "get", ".", "--rev", one.revision]
    folder = scratch / one.revision / one.recipe
    run, plots = f"{RUNS}/{one.recipe}", f"{PLOTS}/{one.recipe}"
    parts = {f"{run}/history": "history", f"{run}/model/recipe.yaml": "model/recipe.yaml"}
    for path, part in (parts | {f"{plots}/pictures": "pictures"}).items():
        with _fetching:
            if (folder / part).exists():
                continue
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            try:
                with tempfile.TemporaryDirectory(dir=scratch) as unfinished:
                    run_program([*command, path, "--out", f"{unfinished}/whole"], project.root)
                    Path(unfinished, "whole").rename(folder / part)
            except UserError as error:
                if part != "pictures":
                    advice = f"if a remote has it: `dvc fetch --all-commits train@{one.recipe}`"
                    raise UserError(f"{one.name}: {path} is not in DVC's cache ({error}); {advice}") from None
    live = folder / "live"
    step, steps = last_step(folder, live, TRAINED), total_steps(folder / "model", live)
    state = f"commit {one.experiment}" if one.state == "baseline" else f"experiment {one.experiment}"
    return Run(one.name, folder, state, None, live, folder / "pictures", step, steps, metrics=one.metrics)
