"""The house rules: imports point one way, and dvc.yaml names what each stage really imports."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
MODULES = sorted(path.relative_to(ROOT) for room in ("models", "stages") for path in (ROOT / room).rglob("*.py"))
ROOMS = ("engine", "images", "people")  # each may import itself and those before it; a system, all of them and itself
SYSTEMS = sorted(p.name for p in (ROOT / "models").iterdir() if p.is_dir() and p.name not in (*ROOMS, "__pycache__"))


def imported(path: Path) -> set[str]:
    """Return the dotted names of our modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("models", "stages", "bench", "tests")}


def room(dotted: str) -> str:
    """Return `engine` for models.interfaces, `stages` for stages.train."""
    first, _, rest = dotted.partition(".")
    return rest.split(".")[0] if first == "models" else first


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.parts[0] == "models" and len(path.parts) > 2], ids=str
)
def test_imports_point_one_way(path: Path) -> None:
    own = path.parts[1]
    allowed = set(ROOMS[: ROOMS.index(own) + 1]) if own in ROOMS else {*ROOMS, own}
    assert {room(name) for name in imported(path)} - {""} <= allowed


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_every_module_imports_and_says_what_it_is(path: Path) -> None:
    parts = path.with_suffix("").parts
    module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    assert module.__doc__


def stages() -> dict[str, dict]:
    """Return the stages of dvc.yaml with `${key}` and `${item...}` filled in, by name."""
    content = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    datasets = YAML(typ="safe").load(ROOT / "data/params.yaml")["datasets"]
    found = {}
    for name, entry in content.items():
        items = datasets if entry["foreach"] == "${datasets}" else entry["foreach"]
        for key, item in items.items():
            text = repr(entry["do"]).replace("${key}", key)
            for field, value in item.items():
                text = text.replace("${item." + field + "}", str(value))
            found[f"{name}@{key}"] = ast.literal_eval(text)
    return found


def files_used(code: str) -> set[str]:
    """Return our files that are loaded once `code` has run in a fresh process."""
    tail = "\nimport sys; print(*[m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)], sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code + tail], cwd=ROOT, check=True, capture_output=True, text=True, env=os.environ
    )
    paths = [Path(line) for line in done.stdout.splitlines() if line.startswith(str(ROOT))]
    return {
        p.relative_to(ROOT).as_posix()
        for p in paths
        if p.is_relative_to(ROOT / "models") or p.is_relative_to(ROOT / "stages")
    }


@pytest.mark.parametrize("name", stages())
def test_deps_cover_what_a_stage_imports(name: str) -> None:
    """DVC does not follow imports: a module that is missing from `deps` means a stale result that claims to be fresh."""
    stage = stages()[name]
    words = stage["cmd"].split()
    module = words[2] if words[2] != "stages.launch" else f"stages.{words[3]}"
    code = f"import importlib; importlib.import_module({module!r})"
    if module == "stages.prepare":
        # imported when such a dataset is drawn or read
        code += "\nimport data.preparation.pairs, data.synthetic.catalogue, data.synthetic"
    else:  # a recipe's types are imported when it is checked
        recipe = next(word for word in words if word.endswith(".yaml"))
        code += f"\nfrom pathlib import Path; from models.recipe.load import load_recipe; load_recipe(Path({recipe!r}))"
    if "stages.launch" in words:
        code += "\nimport stages.launch, stages.launch.processes, stages.launch.slurm"
    used = files_used(code)
    package_roots = {"models/__init__.py", "stages/__init__.py"}  # docstrings
    uncovered = {
        f for f in used - package_roots if not any(f == dep or f.startswith(f"{dep}/") for dep in stage["deps"])
    }
    assert uncovered == set()


def test_declared_deps_exist() -> None:
    code = [dep for stage in stages().values() for dep in stage["deps"] if dep.startswith(("models", "stages"))]
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


@pytest.mark.parametrize("name", sorted({"people", *SYSTEMS, *(p.stem for p in (ROOT / "recipes").glob("*.yaml"))}))
def test_the_engine_names_no_system(name: str) -> None:
    found = re.compile(rf"(?<![a-z]){name}(?![a-z])", re.IGNORECASE)
    words = {path.name: words_of(path) for path in (ROOT / "models/engine").rglob("*.py")}
    assert [(file, word) for file, own in words.items() for word in own if found.search(word)] == []
