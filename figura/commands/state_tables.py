"""The table of `figura states --queue`: what the queued experiments will train."""

from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from shutil import unpack_archive
from tempfile import TemporaryDirectory
from typing import Any

from figura.base.errors import EXPERIMENT, UserError
from figura.base.files import git
from figura.engine.build import build_callbacks, build_datasets
from figura.engine.data import Loaders
from figura.pipeline.calls import experiments
from figura.recipe.expansion import read_recipe
from figura.recipe.load import check_recipe
from figura.recipe.prefix import Prefixes, digest
from figura.recipe.schema import Recipe
from figura.training.states import kept_knots, thinned


def queued() -> dict[str, Recipe]:
    """Return the recipes of the queued experiments, by name, in their order. Raises UserError if there are none."""
    none: dict[str, Any] = {}  # in a new repository
    commit = next((one for one in experiments() if one["rev"] != "workspace"), none)
    queue = commit.get("experiments") or ()
    revisions = [commit, *(one["revs"][0] for one in queue)]
    shown = [known for one in revisions if (known := (one.get("data") or {}).get("params"))]
    last = shown[-1] if shown else {}
    files = [file for file in last if any(one.get(file) != last[file] for one in shown)]
    recipes = {}
    for one in queue:
        for file in files if (one["executor"] or {}).get("state") == "queued" else ():
            content = _content(one["revs"][0]["rev"], Path(file))
            if "train" in content:  # not data/params.yaml
                recipes[f"{one['name']} {file}"] = check_recipe(content, Path(file))
    if not recipes:
        raise UserError(f"no experiment queued at this commit changes a recipe: `{EXPERIMENT} --queue -S ...`")
    return recipes


def _content(revision: str, file: Path) -> dict[str, Any]:
    """Return the content of a params file in a revision, with what its entries extend there."""
    with TemporaryDirectory() as folder:
        git("archive", "--output", f"{folder}/files.tar", revision, "*.y*ml")
        unpack_archive(f"{folder}/files.tar", folder)
        with chdir(folder):
            return read_recipe(file)


def planned(recipes: Mapping[str, Recipe]) -> Iterator[tuple[str, str, str]]:
    """Yield the iterations of each recipe, and those that it trains after the recipes before it; then the sums."""
    known: dict[int, set[str]] = {}
    total = left = 0
    for name, recipe in recipes.items():
        batches = Loaders(recipe, build_datasets(recipe, "train"), {}, rank=0, ranks=1, pin=False).batches_per_epoch
        arguments = (recipe, recipe.train.evaluation_interval(batches), build_callbacks(recipe, {}))
        last = recipe.train.iterations(batches)
        between: list[int] = []
        for iteration in range(recipe.runtime.resume_every, last, recipe.runtime.resume_every):
            between = thinned([*between, iteration])
        gives = {*kept_knots(Prefixes(*arguments), last), *between, last}
        prefixes, begin = Prefixes(*arguments), 0
        for iteration in sorted(gives | {one for one in known if one <= last}):
            prefix = digest(prefixes.at(iteration))
            if prefix in known.get(iteration, ()):
                begin = iteration
            if iteration in gives:
                known.setdefault(iteration, set()).add(prefix)
        total, left = total + last, left + last - begin
        yield name, f"{last:,}", f"{last - begin:,}"
    yield "all", f"{total:,}", f"{left:,}"
