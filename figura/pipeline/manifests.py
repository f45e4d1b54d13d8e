"""The manifests in `code/`: for each stage of each recipe, the hashes of the files that it imports.

A manifest also has what DVC does not see of a recipe: the order of its entries where a result depends on it
(`order.py`), as DVC compares maps; the sections that extend entries of other files, complete; and its `callbacks`,
which DVC cannot track as a section that may be missing.

Each stage of `dvc.yaml` that depends on `code/NAME.json` has such a file. Its command has the script
(`python -m stages.metrics ...`, `python -m figura.launch train ...`), the recipe (a word that ends in .yaml) and
perhaps a trained model (the output of another stage); the script's constants `READS` and `READS_OF_MODEL` list the
sections whose types it loads, and `KINDS` the package of the modules that the `kind` of its settings names. This module
has no slow imports: if no file has changed, it takes milliseconds.
"""

import ast
import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.dotted_keys import value_at

if TYPE_CHECKING:
    from figura.pipeline.dag import Instance

PIPELINE = Path("dvc.yaml")
FOLDER = Path("code")
RWLOCK = Path(".dvc/tmp/rwlock")
KEPT = Path(".dvc/tmp/figura")
"""A local cache: the inputs of the manifests, and the text of each, by its MD5 as in dvc.lock."""
INDEX = KEPT / "index.json"
CALLBACKS = "callbacks"


def refresh() -> list[Path]:
    """Write the manifests that differ from what is there; return their paths.

    Raises:
        UserError: a stage that reads a manifest is running, `dvc.yaml` cannot be read, a recipe has unknown keys or
            wrong values (`check_schema`), or code loads what cannot be followed (`closure.code_of`).
    """
    try:
        index = json.loads(INDEX.read_text())
        if index["seen"] == _seen(index["roots"], index["params"]):
            return []
    except (OSError, ValueError, LookupError, TypeError):
        pass  # none yet, or of another version of this module
    if (os.environ.get("DVC_STAGE") or "").rpartition(":")[2] != "code" and (readers := _readers()):
        from figura.base.errors import UserError

        # DVC records what a stage read when it ends: it would take the new manifest for that of the old code
        raise UserError(f"{', '.join(readers)} is being read by a running stage; try again when it has ended")
    _check_recipes()
    return _write_all()


def _check_recipes() -> None:
    """Refuse keys and values of recipes before a stage that would do so runs, whose outputs DVC removes first."""
    from figura.base.yaml12 import read_yaml
    from figura.pipeline.dag import entries
    from figura.recipe.schema_check import check_schema

    for path in dict.fromkeys(Path(entry["params"]) for entry in entries("recipes").values()):
        check_schema(read_yaml(path), path)


def _readers() -> list[str]:
    """Return the manifests that running stages read, as DVC's lock file says."""
    try:
        locks = json.loads(RWLOCK.read_text())
        folder = f"{FOLDER.absolute()}{os.sep}"
        return sorted(
            os.path.relpath(path) for path, lock in locks.items() if path.startswith(folder) and lock.get("read")
        )
    except (OSError, ValueError, AttributeError):
        return []


def _write_all() -> list[Path]:
    from figura.base.files import md5, write_text
    from figura.base.yaml12 import read_yaml
    from figura.pipeline.closure import SUFFIXES, top_of
    from figura.pipeline.dag import instances, variable_files

    pipeline = read_yaml(PIPELINE)
    contents, params, roots = dict[Path, str](), set(variable_files(pipeline)), set[Path]()
    found = list(instances(pipeline))
    for instance in found:
        if instance.manifest is not None and instance.script is not None:
            code = code_of_instance(instance, found, params)
            content = {"files": code.files, "packages": code.packages}
            if order := order_of(instance, params):
                content["order"] = order
            if settings := settings_of(instance, params):
                content["settings"] = settings
            contents[instance.manifest] = json.dumps(content, indent=0, sort_keys=True) + "\n"
            tops = {
                p: top_of(p, key) for key, p in code.sources.items() if p.name.endswith(SUFFIXES) and key[0] not in "/."
            }
            roots |= {tops.get(p, p) for p in code.sources.values()}
    KEPT.mkdir(parents=True, exist_ok=True)
    changed = [path for path, text in contents.items() if not path.is_file() or path.read_bytes() != text.encode()]
    for path in changed:
        path.parent.mkdir(exist_ok=True)
        write_text(path, contents[path])
        write_text(KEPT / md5(contents[path].encode()), contents[path])
    for folder in {dep for instance in found for dep in instance.deps if dep.startswith("weights/")}:
        if not os.path.exists(folder):  # of a new recipe without files
            os.makedirs(folder)
            Path(folder, ".gitkeep").touch()
    for path in FOLDER.glob("*.json"):
        if path not in contents and _is_manifest(path):  # of a removed stage
            path.unlink()
    names = sorted(map(str, roots)), sorted(map(str, params))
    write_text(INDEX, json.dumps({"roots": names[0], "params": names[1], "seen": _seen(*names)}))
    return changed


def _is_manifest(path: Path) -> bool:
    """Whether a file is a manifest: a project may have had a folder `code` before."""
    try:
        return {"files", "packages"} <= json.loads(path.read_bytes()).keys()
    except (ValueError, AttributeError):
        return False


def code_of_instance(instance: "Instance", others: list["Instance"], params: set[Path]) -> Any:
    """Return the code (`closure.Code`) that an instance runs; add the params files that determine it to `params`."""
    from figura.pipeline.closure import code_of, declared_types, find, words_of

    assert instance.script is not None
    script = find(instance.script)
    reads = {} if script is None else constants(script.path.read_bytes())
    recipes = [(path, reads.get("READS", ())) for path in instance.recipes]
    models = [word for word in instance.command if word.endswith("/model")]
    makers = [one for one in others if set(models) & set(one.outs)]
    recipes += [(path, reads.get("READS_OF_MODEL", ())) for maker in makers for path in maker.recipes]
    read = [_params(path).get(section) for path, sections in recipes for section in sections]
    params.update(path for path, _ in recipes)
    settings = [value_at(_params(path), key) for path, key in _tracked(instance, params)]
    kinds = [
        f"{one}.{value['kind']}"
        for one in reads.get("KINDS", ())
        for value in settings
        if isinstance(value, dict) and "kind" in value
    ]
    types = [name for section in read for _, name in declared_types(section)]
    return code_of([instance.script, *kinds], types, set(words_of([*read, *settings])))


def order_of(instance: "Instance", params: set[Path]) -> dict[str, list[str]]:
    """Return the order of the entries that count in the settings of an instance; add their files to `params`."""
    from figura.pipeline.order import orders

    found = dict[str, list[str]]()
    for path, key in _tracked(instance, params):
        found |= {f"{path}: {where}": names for where, names in orders(value_at(_params(path), key), key)}
    return found


def settings_of(instance: "Instance", params: set[Path]) -> dict[str, Any]:
    """Return the settings of an instance that DVC does not see, by file and section; add their files to `params`."""
    from figura.base.yaml12 import read_yaml
    from figura.recipe.expansion import extended_files

    found, read = dict[str, Any](), cache(read_yaml)  # a file has several settings
    for path, key in _tracked(instance, params):
        files = extended_files(read(path).get(key))
        params |= files
        if files or (key == CALLBACKS and CALLBACKS in _params(path)):
            found[f"{path}: {key}"] = _params(path)[key]
    return found


def _tracked(instance: "Instance", params: set[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the settings of an instance: a params file and a dotted key; add the files to `params`."""
    settings = [(Path(name), key) for name, key in instance.params]
    trained = [path for path, key in settings if key == "steps"]
    for path, key in dict.fromkeys([*settings, *((path, CALLBACKS) for path in trained)]):
        if path.suffix in (".yaml", ".yml") and path.is_file():
            params.add(path)
            yield path, key


@cache
def _params(path: Path) -> dict[str, Any]:
    from figura.recipe.expansion import read_recipe

    return read_recipe(path)


def constants(code: bytes) -> dict[str, tuple[str, ...]]:
    """Return the constants `READS`, `READS_OF_MODEL` and `KINDS` of a stage's script, which must be literals."""
    return {
        node.targets[0].id: tuple(ast.literal_eval(node.value))
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("READS", "READS_OF_MODEL", "KINDS")
    }


def _seen(roots: list[str], params: list[str]) -> list[Any]:
    """Return what the manifests depend on: sizes and times of all files below `roots`, and of params files.

    A new file beside them may shadow a module, a new installed package may have another version. The folder of the
    command that asks, which Python puts on its path, does not count: `figura` and `python -m stages.code` have others.
    """
    files = [str(PIPELINE), "data/params.yaml", *params, *sorted(map(str, FOLDER.glob("*.json")))]
    for root in roots:
        files += [root] if os.path.isfile(root) else sorted(_files(root))
    stats = [os.stat(file) for file in files if os.path.exists(file)]
    beside = sorted(name for name in os.listdir() if name[0] != ".")
    script = getattr(sys.modules["__main__"], "__file__", None) or "."
    own = {os.getcwd(), os.path.dirname(os.path.realpath(script))}
    paths = (path for path in sys.path if os.path.isdir(path) and os.path.realpath(path) not in own)
    site = [os.stat(path).st_mtime_ns for path in paths]
    return [sys.version, beside, site, files, [[one.st_size, one.st_mtime_ns, one.st_ctime_ns] for one in stats]]


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__" and entry.name[0] != ".":
                    yield from _files(entry.path)
            elif entry.name != "dvc.lock":  # DVC writes it after each stage
                yield entry.path
