"""The files of a project of one's own: figura's pipeline for some of its recipes, and a loss to change."""

import io
import re
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from models.base.errors import UserError, nearest

PLACES = (Path(__file__).with_name("template"), Path(__file__).parents[1])
SOURCE = next(place for place in PLACES if (place / "dvc.yaml").is_file())
"""Where `dvc.yaml` and the recipes are: in the wheel beside this file, in the repository at its root."""
REQUIREMENTS = "requirements.txt"
CONFTEST = "conftest.py"
CODE = ("data/formats", "data/preparation", "data/synthetic", "models/", "stages/")
"""Deps that are figura's own code, which a project has as a version in `requirements.txt`."""
CODE_KEYS = ("shared", "networks", "train", "evaluate", "metrics")
"""Keys of a recipe's entry in `dvc.yaml` that name folders of figura's code."""
OWN_CODE = "models"
NOTE = "# All stages depend on this version. Install figura's wheel: on PyPI this name is another project's.\n"
HEADER = """\
# The DAG: prepare -> train -> eval-dump -> metrics. A dataset is an entry of data/params.yaml; a recipe is a params
# file and its entry in `recipes` below: `data` is the dataset it trains on, `judged_on` that of its `evaluate.data`,
# `start` what its training starts from (weights/README.md), `weights` the folder of what its losses and metrics read.
# figura's own code counts as the version in requirements.txt, the project's as the folder models.
"""
LOSSES: dict[str, dict[str, Any]] = {
    "vunet": {"inputs": {"image": "image"}},
    "pix2pix": {"inputs": {"image": "fake"}, "step": "G"},
    "super_resolution": {"inputs": {"image": "sr"}, "step": "G"},
    "pose": {"inputs": {"image": "cif"}},
}
"""What each recipe's own loss reads, and the step that it belongs to."""
LOSS = '''"""A loss of this project: `type: variation.Variation` in a recipe."""

from figura.models.interfaces import Loss
from torch import Tensor


class Variation(Loss):
    """Total variation: the mean absolute difference of neighbours (Rudin, Osher and Fatemi 1992, discretised)."""

    def forward(self, *, image: Tensor) -> Tensor:
        """Return one value an example (B,) of `image` (B, ..., H, W), float."""
        down = (image[..., 1:, :] - image[..., :-1, :]).abs().flatten(1).mean(1)
        right = (image[..., :, 1:] - image[..., :, :-1]).abs().flatten(1).mean(1)
        return down + right
'''
TEST = '''"""The loss of this project against values by hand: `pytest`."""

import torch

from models.variation import Variation


def test_a_step_between_two_columns() -> None:
    image = torch.zeros(2, 1, 2, 2)
    image[1, :, :, 1] = 3.0  # right neighbours differ by 3, lower ones do not
    assert Variation()(image=image).tolist() == [0.0, 3.0]
'''
IGNORED = """.venv
__pycache__/
/data/prepared/
/runs/
/plots/
/report.html
"""


def recipe_names() -> list[str]:
    """Return the recipes that a project can begin with."""
    return list(_read(SOURCE / "dvc.yaml")["vars"][-1]["recipes"])


def project_files(recipes: Collection[str]) -> dict[str, str]:
    """Return the texts of a project with these recipes of figura, by their paths in it.

    Raises:
        UserError: figura has no such recipe.
    """
    known = recipe_names()
    for name in recipes:
        if name not in known:
            raise UserError(
                f"--recipe {name!r}: figura has no such recipe{nearest(name, known)}; there are {', '.join(known)}"
            )
    pipeline = _read(SOURCE / "dvc.yaml")
    entries = {name: pipeline["vars"][-1]["recipes"][name] for name in recipes}
    params = {name: str(entry["params"]) for name, entry in entries.items()}
    files = {
        "README.md": _readme(params),
        "dvc.yaml": _pipeline(pipeline, recipes),
        "data/params.yaml": _datasets({str(entry[key]) for entry in entries.values() for key in ("data", "judged_on")}),
        "models/__init__.py": '"""Code of this project: a recipe finds it before figura\'s."""\n',
        "models/variation.py": LOSS,
        "tests/test_variation.py": TEST,
        CONFTEST: '"""Lets pytest find the folder `models`, which is beside this file."""\n',
        REQUIREMENTS: f"{NOTE}figura=={version('figura')}\n",
        ".gitignore": IGNORED,
        **{path: _text(path) for path in ("data/raw/README.md", "data/raw/.gitignore", "weights/README.md")},
        **{path: _text(path) for path in ("weights/.gitignore", ".dvcignore")},
        **{f".dvc/plots/{one.name}": one.read_text() for one in sorted((SOURCE / ".dvc/plots").glob("*.json"))},
    }
    for name, path in params.items():
        files[path] = _recipe(name, path)
        files |= {f"weights/{name}/{kind}/.gitkeep": "" for kind in ("start", "losses", "metrics")}
    return files


def _pipeline(content: Any, recipes: Collection[str]) -> str:
    """Return `dvc.yaml` for some recipes, whose code is figura's installed version and the project's own."""
    variables = content["vars"]
    variables[-1].ca.items.clear()  # the header says it
    variables[-1]["recipes"].ca.comment = None
    del variables[1]  # `consistency`, of a stage that reads one recipe's results with another's network
    del content["stages"]["pose-consistency"]
    for name in list(variables[-1]["recipes"]):
        if name not in recipes:
            del variables[-1]["recipes"][name]
            del content["artifacts"][name]
    for entry in variables[-1]["recipes"].values():
        for key in CODE_KEYS:
            del entry[key]
    for name, stage in content["stages"].items():
        body = stage["do"]
        body["cmd"] = body["cmd"].replace("python -m stages.", "python -m figura.stages.")
        own = [] if name == "prepare" else [OWN_CODE]
        body["deps"] = [dep for dep in body["deps"] if not _is_code(dep)] + own + [REQUIREMENTS]
    return _written(content, HEADER)


def _is_code(dep: str) -> bool:
    return dep.startswith(CODE) or dep in [f"${{item.{key}}}" for key in CODE_KEYS]


def _recipe(name: str, path: str) -> str:
    """Return a recipe of figura with the project's loss."""
    text = _text(path)
    place = text.index("\n\nsteps:\n")
    loss = {"variation": {"type": "variation.Variation"} | LOSSES[name] | {"weight": 0.01}}
    lines = _written(loss, "").rstrip().splitlines()
    lines[0] += "                        # of this project: models/variation.py"
    return text[:place] + "\n" + "\n".join(f"  {line}" for line in lines) + text[place:]


def _datasets(names: Collection[str]) -> str:
    content = _read(SOURCE / "data/params.yaml")
    for name in list(content["datasets"]):
        if name not in names:
            del content["datasets"][name]
        else:
            content["datasets"][name]["source"] = REQUIREMENTS
    return _written(content, "").replace("drawing code, or a folder", "figura's version, or a folder")


def _readme(params: Mapping[str, str]) -> str:
    name, path = next(iter(params.items()))
    prefix = "" if path == "params.yaml" else f"{path}:"
    commands = {
        f"pip install figura-{version('figura')}-py3-none-any.whl": "the file: PyPI's figura is another project",
        "dvc repro": "minutes on a laptop, with drawn data",
        "dvc metrics show": f"pictures: plots/{name}/pictures",
        'git add . && git commit -m "First results"': "",
        f"dvc exp run -S {prefix}losses.variation.weight=0.1": "what does this number do?",
        "dvc exp show --only-changed": "",
        "pip install pytest && pytest": "tests of the project's own code",
    }
    width = max(map(len, commands)) + 3
    lines = "\n".join(f"{command:{width}}# {note}" if note else command for command, note in commands.items())
    return f"""# An image model, trained with figura

`dvc repro` prepares data, trains, evaluates and computes metrics.

```shell
{lines}
```

- `{path}`: the recipe. `figura check` says what is wrong with it, `figura describe {path}` what it does.
- `models/`: code of this project; `variation.Variation` in a recipe is the class in `models/variation.py`.
- `data/params.yaml`: the datasets. `data/raw/README.md` says how to bring your own data.
- `figura --help`: all commands.
"""


def _text(path: str) -> str:
    """Return the text of one of figura's files, with names that hold in a project."""
    text = (SOURCE / path).read_text(encoding="utf-8").replace("tools/predict.py", "`figura predict`")
    return re.sub(r"(?<!figura's )\bdocs/", "figura's docs/", re.sub(r"python -m tools\.(?=predict)", "figura ", text))


def _yaml() -> YAML:
    yaml = YAML()  # keeps comments
    yaml.preserve_quotes = True
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _read(path: Path) -> Any:
    return _yaml().load(path.read_text(encoding="utf-8"))


def _written(content: Any, header: str) -> str:
    stream = io.StringIO()
    _yaml().dump(content, stream)
    text = stream.getvalue()
    return header + text[text.index("vars:") :] if header else text
