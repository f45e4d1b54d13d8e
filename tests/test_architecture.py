"""The house rules: imports point one way, and dvc.yaml names what each stage loads, no less and no more."""

import ast
import importlib
import json
import re
from functools import cache
from pathlib import Path

import pytest
from loading import CODE, modules_loaded_by

from models.base.yaml12 import read_yaml

ROOT = Path(__file__).parents[1]
FILES = sorted(path.relative_to(ROOT) for folder in (*CODE, "figura") for path in (ROOT / folder).rglob("*.py"))
# What a package may import beside itself; `data` is data.formats, the files that data comes in.
BELOW = {
    "base": set(),
    "interfaces": {"base"},
    "schedules": {"interfaces"},
    "ops": {"base", "interfaces"},
    "recipe": {"base", "interfaces", "ops"},
    "dump": {"base", "recipe"},
    "engine": {"base", "interfaces", "recipe"},
    "optimizers": set(),
    "training": {"base", "interfaces", "recipe", "engine"},
    "evaluation": {"base", "interfaces", "recipe", "engine", "dump"},
    "report": {"base", "recipe", "dump"},
    "prediction": {"base", "interfaces", "recipe", "engine", "dump", "report"},
    "show": {"base", "interfaces", "recipe", "engine"},
    "live": {"base", "interfaces", "recipe", "engine", "dump", "report", "evaluation", "show"},
}
SHARED = {"images": {"base", "interfaces", "data"}, "people": {"base", "interfaces", "data", "images"}}
SYSTEMS = sorted(
    path.name
    for path in (ROOT / "models").iterdir()
    if path.is_dir() and path.name not in {*BELOW, *SHARED, "__pycache__"}
)
# Deps that a stage names and not every recipe loads.
NOT_ALWAYS_LOADED = {
    "train": {"models/images/data", "models/optimizers"},  # vunet augments nothing; pix2pix takes an optimizer of torch
    "eval-dump": {"models/images/data", "models/images/losses", "models/images/networks"},
    "metrics": {"data/formats", "models/images/networks"},  # joints of people; networks that compare images
}
# What a stage loads and does not depend on.
WITHOUT_EFFECT = {"train": "models/live"}  # writes runs/*/live alone


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the dotted names of our modules that a file imports, anywhere in it, under TYPE_CHECKING too."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return frozenset(name for name in names if name.split(".")[0] in (*CODE, "bench", "tests"))


def package(dotted: str) -> str:
    """Return `training` for models.training.resume, `data` for data.formats.coco, `stages` for stages.train."""
    first, _, rest = dotted.partition(".")
    return rest.split(".")[0] if first == "models" else first


def module(path: Path) -> str:
    """Return the dotted name of a file."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        own = package(module(path))
        if path.parts[0] in ("stages", "tools", "ci", "figura") or own == "":
            continue
        if path.parts[0] == "data":
            allowed = {"base", "data"}
        elif own in BELOW:
            allowed = BELOW[own]
        elif own in SHARED:
            allowed = SHARED[own]
        else:
            allowed = {*SHARED, "base", "interfaces", "data"}
        if own not in BELOW and path.parts[0] == "models":
            # a folder of a system is cut by what loads it: reports read dumps; photos.py and comparison.py are for
            # predictions, drawing.py draws examples
            part = path.parts[2] if len(path.parts) > 3 else path.stem
            further = {"report": {"report", "dump"}, "photos": {"prediction"}, "comparison": {"prediction"}}
            further |= {"consistency": {"report", "dump"}}
            allowed = allowed | (further | {"drawing": {"show"}}).get(part, {"recipe"})
            allowed = allowed | ({"recipe", "prediction"} if part == "decode" else set())
        wrong += [f"{path}: {name}" for name in imported(path) if package(name) not in {own, "", *allowed}]
    assert not wrong, "\n".join(wrong)


def test_train_loads_neither_decode_nor_report() -> None:
    order = {"train": {"train", "networks"}, "data": {"data"}, "losses": {"losses", "networks"},
             "networks": {"networks"}, "decode": {"train", "networks", "decode"},
             "consistency": {"train", "decode", "report", "consistency"},
             "report": {"report", "networks", "losses", "train"}}  # fmt: skip
    wrong = []
    for path in FILES:
        if path.parts[0] == "models" and len(path.parts) > 3 and path.parts[2] in order:
            for name in imported(path):
                parts = name.split(".")
                if parts[:2] == ["models", path.parts[1]] and len(parts) > 2 and parts[2] not in order[path.parts[2]]:
                    wrong.append(f"{path}: {name}")
    assert not wrong, "\n".join(wrong)


def dependencies() -> dict[str, set[str]]:
    """Return, by module, our modules that it imports."""
    modules = {module(path): path for path in FILES}
    return {name: {one for one in imported(path) if one in modules and one != name} for name, path in modules.items()}


def test_no_module_imports_itself_through_others() -> None:
    graph, state, circles = dependencies(), dict[str, str](), []

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if state.get(name) == "open":
            circles.append(" > ".join((*trail[trail.index(name) :], name)))
        if name in state:
            return
        state[name] = "open"
        for one in sorted(graph[name]):
            # a package's __init__ is loaded with each of its modules: an import of the package itself is no circle
            if not name.startswith(f"{one}."):
                visit(one, (*trail, name))
        state[name] = "done"

    for name in graph:
        visit(name, ())
    assert not circles, "\n".join(circles)


def longest_chain(start: str) -> list[str]:
    """Return the longest chain of imports that begins with a module."""
    graph = dependencies()

    @cache
    def below(name: str) -> tuple[str, ...]:
        chains = [below(one) for one in sorted(graph[name]) if not name.startswith(f"{one}.")]
        return (name, *max(chains, key=len, default=()))

    return list(below(start))


def test_the_longest_import_chain_of_a_training_is_short() -> None:
    chain = longest_chain("stages.train")
    print(f"{len(chain)} modules: {' > '.join(chain)}")
    assert len(chain) <= 10


def test_every_module_imports_and_says_what_it_is() -> None:
    names = [module(path) for path in FILES if path.name != "__main__.py"]
    assert [name for name in names if not importlib.import_module(name).__doc__] == []


@cache
def stages() -> dict[str, dict]:
    """Return the stages of dvc.yaml with `${key}` and `${item...}` filled in, by name."""
    content = read_yaml(ROOT / "dvc.yaml")
    maps = {f"${{{name}}}": items for one in content["vars"] if isinstance(one, dict) for name, items in one.items()}
    datasets = read_yaml(ROOT / "data/params.yaml")["datasets"]
    filled = {}
    for name, entry in content["stages"].items():
        items = (maps | {"${datasets}": datasets})[entry["foreach"]]
        for key, item in items.items():
            text = json.dumps(entry["do"]).replace("${key}", key)
            for field, value in item.items():
                text = text.replace("${item." + field + "}", str(value))
            filled[f"{name}@{key}"] = json.loads(text)
    return filled


def loading(stage: dict) -> str:
    """Return code that loads what a stage loads."""
    words = stage["cmd"].split()
    name = words[3] if words[2] == "stages.launch" else words[2].removeprefix("stages.")
    tree = ast.parse((ROOT / f"stages/{name}.py").read_text())  # with imports inside of functions
    lines = [f"import stages.{name}"]
    lines += [ast.unparse(one) for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    if name == "judge":  # of the network that DVC trains
        lines += [
            "from pathlib import Path; from models.base.yaml12 import read_yaml",
            "from models.recipe.load import check_recipe",
            f"trained, own = read_yaml(Path('recipes/pose.yaml')), read_yaml(Path({words[4]!r}))",
            "common, facts = trained['data'].pop('common'), {'stride': 8, 'side': 161}",
            "for split in ('train', 'validation'):  # as in a model folder, where nothing is in common",
            "    trained['data'][split] = {n: common | one for n, one in trained['data'][split].items()}",
            "own['evaluate']['data']['people']['dump'] = 'runs/vunet/dump'",
            "recipe = check_recipe(trained | own, Path('judge'), ['evaluate', 'metrics'], facts)",
            "import torch; from models.engine.build import build_losses",
            "for step in recipe.steps: build_losses(recipe, step, torch.device('cpu'))",
        ]
    elif name != "prepare":
        part = {"train": "train", "eval_dump": "evaluate", "metrics": "metrics"}[name]
        recipe = next(word for word in words if word.endswith(".yaml"))
        facts = {"stride": 8} if name == "metrics" else None  # those of a dump; other stages read them from the data
        lines += [
            "from pathlib import Path; from models.recipe.load import load_recipe",
            f"recipe = load_recipe(Path({recipe!r}), [{part!r}], {facts})",
        ]
    if name == "eval_dump":
        lines += [
            "import torch; from models.engine.build import build_losses",
            "for step in recipe.steps: build_losses(recipe, step, torch.device('cpu'))",
        ]
    if words[2] == "stages.launch":
        lines += ["import stages.launch.processes"]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """Our files that each stage loads."""
    files = {}
    for name, stage in stages().items():
        own = (Path(file) for file in modules_loaded_by(loading(stage)).values() if file)
        files[name] = {file.relative_to(ROOT).as_posix() for file in own}
    return files


def covers(dep: str, file: str) -> bool:
    """Whether a dep is a file, or a folder above it."""
    return file == dep or file.startswith(f"{dep}/")


def is_docstring(file: str) -> bool:
    """Whether a file is the `__init__.py` of a package that has nothing but a docstring."""
    return file.endswith("__init__.py") and len(ast.parse((ROOT / file).read_text()).body) == 1


def test_deps_cover_what_a_stage_loads(loaded: dict[str, set[str]]) -> None:
    """DVC does not follow imports: a module missing from `deps` means a stale result that claims to be fresh."""
    uncovered = []
    for name, stage in stages().items():
        without_effect = WITHOUT_EFFECT.get(name.split("@")[0], "nothing")
        for file in loaded[name]:
            if not is_docstring(file) and not any(covers(dep, file) for dep in [*stage["deps"], without_effect]):
                uncovered.append(f"{name}: {file}")
    assert not uncovered, "\n".join(uncovered)


def test_a_stage_loads_something_of_every_dep(loaded: dict[str, set[str]]) -> None:
    """A dep that a stage does not load reruns it for nothing."""
    loose = []
    for name, stage in stages().items():
        for dep in stage["deps"]:
            code = dep.split("/")[0] in CODE and not dep.startswith(("data/raw", "data/prepared"))
            if (
                code
                and dep not in NOT_ALWAYS_LOADED.get(name.split("@")[0], ())
                and not any(covers(dep, file) and not is_docstring(file) for file in loaded[name])
            ):
                loose.append(f"{name}: {dep}")
    assert not loose, "\n".join(loose)


def test_what_is_not_always_loaded_is_loaded_by_some(loaded: dict[str, set[str]]) -> None:
    for stage, deps in NOT_ALWAYS_LOADED.items():
        files = set().union(*(own for name, own in loaded.items() if name.startswith(f"{stage}@")))
        assert [dep for dep in deps if not any(covers(dep, file) for file in files)] == []


def test_declared_deps_exist() -> None:
    code = [
        dep for stage in stages().values() for dep in stage["deps"] if not dep.startswith(("data/prepared", "runs"))
    ]
    assert [dep for dep in code if not (ROOT / dep).exists()] == []


def words_of(path: Path) -> list[str]:
    """Return the identifiers and texts of a file's code; docstrings, which may give examples, are left out."""
    tree = ast.parse(path.read_text())
    statements = [
        node.body[0] for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list) and node.body
    ]
    examples = {id(one.value) for one in statements if isinstance(one, ast.Expr)}
    nodes = [node for node in ast.walk(tree) if id(node) not in examples]
    fields = [
        getattr(node, field, None) for node in nodes for field in ("id", "attr", "arg", "name", "module", "value")
    ]
    return [word for word in fields if isinstance(word, str)]


def test_what_systems_share_names_no_system() -> None:
    names = "|".join(sorted({"people", *SYSTEMS, *(path.stem for path in (ROOT / "recipes").glob("*.yaml"))}))
    pattern = re.compile(rf"(?<![a-z])({names})(?![a-z])", re.IGNORECASE)
    files = [path for path in FILES if path.parts[0] == "models" and package(module(path)) in BELOW]
    assert [(str(file), word) for file in files for word in words_of(ROOT / file) if pattern.search(word)] == []


def test_each_recipe_has_its_model_to_release():
    models = {name: entry["path"] for name, entry in read_yaml(ROOT / "dvc.yaml")["artifacts"].items()}
    (recipes,) = (one["recipes"] for one in read_yaml(ROOT / "dvc.yaml")["vars"] if "recipes" in one)
    assert models == {name: f"runs/{name}/model" for name in recipes}
