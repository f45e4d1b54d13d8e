import shutil
from pathlib import Path

import pytest
from pipeline.project import Project, clone
from ruamel.yaml import YAML
from workflows.workflow import Host

SECRETS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny project with the recipe `vunet` alone, run, committed as main and pushed to a local DVC remote beside it."""
    folder = tmp_path_factory.mktemp("published") / "figura"
    folder.mkdir()
    project = clone(folder)
    keep_one_recipe(project, "vunet")
    project.run("dvc", "repro")
    project.run("git", "add", "-A")
    project.run("git", "commit", "-qm", "results")
    project.run("dvc", "remote", "add", "--local", "--default", "store", str(folder.parent / "remote"))
    project.run("dvc", "push")
    return project


def keep_one_recipe(project: Project, recipe: str) -> None:
    """Take the other recipes out of the DAG, for speed, with their metrics and the tolerances for these."""
    yaml = YAML()
    pipeline, rules = project.folder / "dvc.yaml", project.folder / "metrics/tolerances.yaml"
    dag, tolerances = yaml.load(pipeline), yaml.load(rules)
    for stage in dag["stages"].values():
        if isinstance(stage.get("foreach"), dict):
            for key in list(stage["foreach"]):
                if key != recipe:
                    del stage["foreach"][key]
                    (project.folder / f"metrics/{key}.json").unlink(missing_ok=True)
                    for pattern in [one for one in tolerances if one.startswith(f"{key}.")]:
                        del tolerances[pattern]
    yaml.dump(dag, pipeline)
    yaml.dump(tolerances, rules)


@pytest.fixture
def host(published: Project, tmp_path: Path) -> Host:
    """A host of a copy of the published project, with the DVC remote as a variable; no cache outlives a job on it."""
    repository = published.copy(tmp_path / "figura")
    remote = shutil.copytree(published.folder.parent / "remote", tmp_path / "remote")
    variables = {"DVC_REMOTE_URL": str(remote), "DVC_CACHE_FOLDER": str(tmp_path / "cache")}
    (tmp_path / "host").mkdir()
    return Host(tmp_path / "host", repository.folder, secrets=SECRETS, variables=variables)
