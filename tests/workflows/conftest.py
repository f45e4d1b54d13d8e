from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline import conftest
from pipeline.dag import consistency, recipes, stages_of
from pipeline.project import Project, made_once, shared_by_workers
from ruamel.yaml import YAML

finished = conftest.finished


@pytest.fixture(scope="session")
def published(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished project with one recipe alone, committed as main and pushed to a local DVC remote beside it."""

    def publish(folder: Path) -> Project:
        project = finished.copy(folder)
        leave_one_recipe(project, "vunet")
        project.run("dvc", "repro")
        project.commit("one recipe")
        project.run("dvc", "remote", "add", "--local", "--default", "store", str(folder.parent / "remote"))
        project.run("dvc", "push")
        return project

    return made_once(shared_by_workers(tmp_path_factory.getbasetemp()) / "published" / "figura", publish)


def leave_one_recipe(project: Project, recipe: str) -> None:
    """Take the other recipes, datasets that they alone read, and what is known of them out of the DAG, for speed."""
    entries = recipes(project.folder)
    stages = {f"prepare@{entries[recipe]['data']}", *stages_of(recipe)}
    yaml = YAML()

    def edit(file: str, change: Callable[[Any], None]) -> None:
        content = yaml.load(project.folder / file)
        change(content)
        yaml.dump(content, project.folder / file)

    def leave(part: Any, names: set[str]) -> None:
        for name in [one for one in part if one not in names]:
            del part[name]

    judged = [entry["metrics"] for entry in consistency(project.folder).values()]
    edit("dvc.yaml", lambda dag: [leave(one["recipes"], {recipe}) for one in dag["vars"] if "recipes" in one])
    edit("dvc.yaml", lambda dag: dag["stages"].pop("pose-consistency"))
    edit("data/params.yaml", lambda params: leave(params["datasets"], {entries[recipe]["data"]}))
    edit("dvc.lock", lambda lock: leave(lock["stages"], stages))
    others = (*(f"{name}." for name in entries if name != recipe), *judged)
    edit("metrics/tolerances.yaml", lambda rules: leave(rules, {one for one in rules if not one.startswith(others)}))
    for name in entries.keys() - {recipe} | {*judged}:
        for folder in ("metrics", "metrics/full"):
            (project.folder / f"{folder}/{name}.json").unlink()
