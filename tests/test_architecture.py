"""The house rules: imports point one way, the library names no system, systems are flat."""

import ast
import importlib
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from figura.base.yaml12 import read_yaml

ROOT = Path(__file__).parents[1]
CODE = ("figura", "models", "stages")
FILES = sorted(path.relative_to(ROOT) for folder in CODE for path in (ROOT / folder).rglob("*.py"))
BELOW = {
    "base": set(),
    "systems": set(),
    "models": {"systems"},
    "formats": {"base"},
    "synthetic": {"base", "formats"},
    "preparation": {"base", "formats", "synthetic"},
    "interfaces": {"base"},
    "schedules": {"interfaces"},
    "injectors": {"base", "interfaces"},
    "callbacks": {"base", "interfaces"},
    "optimizers": set(),
    "recipe": {"base", "interfaces", "injectors", "schedules", "systems"},
    "launch": {"base", "recipe"},
    "pipeline": {"base", "recipe", "systems"},
    "dump": {"base", "recipe"},
    "engine": {"base", "interfaces", "recipe", "schedules"},
    "training": {"base", "interfaces", "recipe", "engine", "pipeline"},
    "evaluation": {"base", "interfaces", "recipe", "engine", "dump"},
    "report": {"base", "recipe", "dump"},
    "prediction": {
        "base",
        "interfaces",
        "recipe",
        "engine",
        "dump",
        "report",
        "evaluation",
        "systems",
        "pipeline",
        "formats",
    },
    "show": {"base", "interfaces", "recipe", "engine", "report"},
    "live": {"base", "interfaces", "recipe", "engine", "dump", "report", "evaluation", "show", "pipeline"},
}
"""What a room of `figura` may import beside itself. `command`, `commands` and `__init__` import all of it.

The lowest come first: no room imports one below it here.
"""
OF_SYSTEMS = {"base", "interfaces", "recipe", "report", "dump", "prediction", "show", "engine", "formats"}
"""What systems may import of `figura`; their own commands may import all of it."""
SHARED = {"images": set(), "people": {"images"}}
SYSTEMS = sorted(path.name for path in (ROOT / "models").iterdir() if (path / "__init__.py").is_file())


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the dotted names of our modules that a file imports, anywhere in it, under TYPE_CHECKING too."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom):
            above = path.parts[: len(path.parts) - node.level] if node.level else ()
            home = ".".join([*above, *filter(None, [node.module])])
            names |= {home, *(f"{home}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return frozenset(name for name in names if name.split(".")[0] in (*CODE, "bench", "tests"))


def room(dotted: str) -> str:
    """Return `training` for figura.training.resume, `vunet` for models.vunet.losses, `stages`."""
    first, *rest = dotted.split(".")
    return first if first not in ("figura", "models") else rest[0] if rest else ""


def module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        top, own = path.parts[0], room(module(path))
        if top == "stages" or (top == "figura" and own in ("", "__main__", "command", "commands")):
            allowed = {*BELOW, "command", "commands"}
        elif top == "figura":
            allowed = BELOW[own]
        else:
            allowed = {*OF_SYSTEMS, *SHARED.get(own, SHARED)}
            commands = ("import_", "translate_", "explore_", "overfitting")
            if "\ndef main(" in (ROOT / path).read_text() or path.stem.startswith(commands):
                allowed |= {*BELOW, "commands"}
        wrong += [f"{path}: {name}" for name in imported(path) if room(name) not in {own, "", *allowed}]
    assert not wrong, "\n".join(wrong)


def test_no_room_imports_a_higher_one() -> None:
    floors = list(BELOW)
    assert {path.parts[1].removesuffix(".py") for path in FILES if path.parts[0] == "figura"} == {
        *floors, "__init__", "__main__", "command", "commands"
    }  # fmt: skip
    assert [(room, one) for room in floors for one in BELOW[room] if floors.index(one) >= floors.index(room)] == []


def test_one_room_knows_dvc() -> None:
    """Elsewhere: the constants that messages name, the cache below `base`, trackers, help, and what starts projects."""
    names = [path for path in FILES if path.parts[0] == "figura" and path.parts[1] != "pipeline"]
    naming = [path.as_posix() for path in names if "dvc" in (ROOT / path).read_text().lower()]
    assert len(naming) <= 12, naming
    imports = re.compile(r"^\s*(from|import) dvc\b", re.MULTILINE)
    assert [path for path in naming if imports.search((ROOT / path).read_text())] == []


def test_systems_are_flat() -> None:
    """`ls models` shows them; only the decoder of poses has a folder of its own."""
    folders = {path.parent.relative_to(ROOT / "models").as_posix() for path in (ROOT / "models").rglob("*.py")}
    assert folders == {".", *SYSTEMS, "pose/decode"}
    assert set(SYSTEMS) == {"vunet", "flow", "pix2pix", "super_resolution", "pose", *SHARED}


def test_the_root_has_few_entries() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git repository")
    entries = {path.partition("/")[0] for path in listed.stdout.splitlines()}
    assert len(entries) <= 30, sorted(entries)


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
    names = [module(path) for path in FILES if path.name != "__main__.py" and path != Path("figura/models.py")]
    assert [name for name in names if not importlib.import_module(name).__doc__] == []


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


def test_the_library_names_no_system() -> None:
    """Commands may, in examples of their help. `default_flow_style` is a word of PyYAML."""
    recipes = {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    names = "|".join(sorted({*SYSTEMS, *recipes} - {"images", "people", "pose", "detection"}))
    pattern = re.compile(rf"(?<![a-z])({names}|models\.[a-z])(?![a-z])", re.IGNORECASE)
    files = [path for path in FILES if path.parts[0] == "figura" and room(module(path)) != "commands"]
    words = [(str(file), word) for file in files for word in words_of(ROOT / file) if word != "default_flow_style"]
    assert [(file, word) for file, word in words if pattern.search(word)] == []


def names_loaded(tree: ast.Module) -> list[str]:
    """Return the texts of a file, and the package of each text in a call that loads: `load people` for "people.x"."""
    nodes = list(ast.walk(tree))
    loading = ("import_module", "full_name", "find_spec", "__import__")
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(loading)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    inside = [part.value for call in calls for part in ast.walk(call) if isinstance(part, ast.Constant)]
    return texts + [f"load {text.partition('.')[0]}" for text in inside if isinstance(text, str)]


def test_the_library_loads_no_system_by_its_name() -> None:
    """Commands included: no text is the name of a system's module or class, no call that loads names a system."""
    modules = "|".join(sorted({path.stem for path in (ROOT / "models").rglob("*.py")}))
    pattern = re.compile(
        rf"((figura\.)?models\.)?({'|'.join(SYSTEMS)})\.({modules}|[A-Z]\w*)|load ({'|'.join(SYSTEMS)})"
    )
    for code in ('load("people.pairs")', 'find_type("images.L1")', 'x = import_module(full_name(f"people.{name}"))'):
        assert any(map(pattern.fullmatch, names_loaded(ast.parse(code)))), code
    library = [file for file in FILES if file.parts[0] == "figura"]
    words = [(str(file), word) for file in library for word in names_loaded(ast.parse((ROOT / file).read_text()))]
    assert [(file, word) for file, word in words if pattern.fullmatch(word)] == []


def test_each_recipe_has_its_model_to_release():
    models = {name: entry["path"] for name, entry in read_yaml(ROOT / "dvc.yaml")["artifacts"].items()}
    (recipes,) = (one["recipes"] for one in read_yaml(ROOT / "dvc.yaml")["vars"] if "recipes" in one)
    assert models == {name: f"runs/{name}/model" for name in recipes}


def test_ten_files_show_figura_whole() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    files = re.findall(r"^\d+\. `([\w./]+)`:", page, re.MULTILINE)
    assert len(files) == 10
    assert sum(len((ROOT / file).read_text().splitlines()) for file in files) <= 1500
