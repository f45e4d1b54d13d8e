"""The parts of a Python file that can change results: syntax tree, imported modules, data files beside it."""

import ast
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # fields with nested statements
WITHOUT_EFFECT = {"ctx", "kind", "type_comment", "type_ignores"}  # fields of nodes
BY_NAME = {"import_module": 0, "__import__": 0, "run_module": 0, "run_path": 0, "spec_from_file_location": 1, "exec": 0}
"""Functions that load a module or a file, and which argument names it."""
BESIDE = {"__file__", "__path__", "__spec__", "files", "get_data", "read_text", "read_binary", "open_text", "contents"}
"""Names used to find files beside the code (`importlib.resources` and `pkgutil` included)."""
ABOVE = {"parents", "parent.parent", "dirname.dirname", "files", "get_data", "read_binary", "open_text", "contents"}
"""Those that may find files anywhere in the package."""
DIGITS = 16  # of a hash
IMPORTED_FOR = "IMPORTED_FOR"
"""A constant of a module: other modules, as an import names them (`.resnet`), each with words of a recipe.

The module imports them inside of functions, and for these words alone, so that they do not count for other recipes.
"""


@dataclass(frozen=True)
class Source:
    """The analysis of a Python file.

    Attributes:
        digest: hash of the syntax tree without comments, docstrings and positions; equal in Python 3.11 to 3.14.
        imports: dotted names that may be modules, including imports inside functions, except those under
            `if TYPE_CHECKING`.
        on_request: names imported lazily by a module-level `__getattr__`.
        names: names defined or imported at the top level.
        imported_for: modules that it imports for words of a recipe alone, and the words (`IMPORTED_FOR`).
        unknown: lines that load a module or a file by a non-constant name.
        reads_beside: whether the code may read files beside it.
        reads_above: whether these may be anywhere in its package.
        texts: string constants that may be paths; `Path("a") / "b"` and `os.path.join("a", "b")` are joined.
    """

    digest: str
    imports: tuple[str, ...]
    on_request: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    imported_for: tuple[tuple[str, frozenset[str]], ...] = ()
    unknown: tuple[int, ...] = ()
    reads_beside: bool = False
    reads_above: bool = False
    texts: tuple[str, ...] = ()


def read_source(code: bytes, package: str) -> Source:
    """Analyse the code of a module in `package`. Code that does not parse is hashed as bytes."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return Source(hashlib.sha256(code).hexdigest()[:DIGITS], ())
    lazy = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"]
    eager = ast.Module([node for node in tree.body if node not in lazy], [])
    called, unknown = _loaded_by_name(tree)
    nodes = list(ast.walk(tree))
    used = {_name(node) for node in nodes} | {_twice(node) for node in nodes}
    return Source(
        digest(tree),
        tuple(dict.fromkeys([*_imports(eager, package), *called])),
        tuple(dict.fromkeys(name for node in lazy for name in _imports(node, package))),
        tuple(_top_level_names(tree)),
        tuple(_imported_for(tree, package)),
        unknown,
        not BESIDE.isdisjoint(used),
        not ABOVE.isdisjoint(used),
        tuple(dict.fromkeys(text for node in nodes if (text := _path(node)) and len(text) < 256 and "\n" not in text)),
    )


def digest(tree: ast.AST) -> str:
    """Return the hash of a syntax tree without positions and string statements (docstrings)."""
    total = hashlib.sha256()
    for text in _tokens(tree):
        total.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return total.hexdigest()[:DIGITS]


def _tokens(node: object) -> Iterator[str]:
    if isinstance(node, list):
        yield "["
        for item in node:
            if not _is_text_statement(item):
                yield from _tokens(item)
        yield "]"
    elif isinstance(node, ast.AST):
        yield type(node).__name__
        for field in node._fields:
            value = getattr(node, field, None)
            # fields added by newer versions of Python are empty for old code
            if field not in WITHOUT_EFFECT and value is not None and value != []:
                yield field
                yield from _tokens(value)
    else:
        yield f"{type(node).__name__} {node!r}"


def _is_text_statement(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


EMPTY = {digest(ast.parse(text)) for text in ("", "''")}
"""Digests of files of docstrings and comments alone, such as most `__init__.py`."""


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    for node in (one for block in BLOCKS for one in getattr(tree, block, ())):  # expressions import nothing
        if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
            yield from _imports(ast.Module(node.orelse, []), package)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node.module or "", node.level, package)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node, package)


def _absolute(module: str, level: int, package: str) -> str:
    """Return the full name of what `from ..module import` names in a module of `package`; `level` counts the dots."""
    parts = package.split(".")
    above = ".".join(parts[: len(parts) - level + 1]) if level else ""
    return ".".join(filter(None, (above, module)))


def _imported_for(tree: ast.Module, package: str) -> Iterator[tuple[str, frozenset[str]]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [_name(one) for one in node.targets] == [IMPORTED_FOR]:
            with suppress(ValueError):  # no literal: every import counts
                for module, words in ast.literal_eval(node.value).items():
                    name = module.lstrip(".")
                    yield _absolute(name, len(module) - len(name), package), frozenset(words)


def _loaded_by_name(tree: ast.AST) -> tuple[list[str], tuple[int, ...]]:
    """Return the modules loaded by constant names, and the lines of calls with other names."""
    names, unknown = [], []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or (name := _name(node.func)) not in BY_NAME:
            continue
        given = [*node.args, *(one.value for one in node.keywords if one.arg in ("name", "location", "path_name"))]
        loaded = given[BY_NAME[name]] if len(given) > BY_NAME[name] else None
        if name in ("import_module", "__import__", "run_module") and isinstance(loaded, ast.Constant):
            names.append(str(loaded.value))
        elif name == "exec" and isinstance(loaded, ast.Constant | ast.JoinedStr):
            continue  # its code stands here
        elif name not in ("exec", "run_path", "spec_from_file_location") or not _names_a_file(loaded):
            unknown.append(node.lineno)
    return names, tuple(unknown)


def _names_a_file(node: ast.AST | None) -> bool:
    parts = () if node is None else ast.walk(node)
    return any(isinstance(one, ast.Constant) and isinstance(one.value, str) and "." in one.value for one in parts)


def _path(node: ast.AST) -> str:
    """Return the path that an expression of constants gives, or an empty string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and _name(node.func) in ("Path", "PurePath", "join", "joinpath"):
        of = [node.func.value] if isinstance(node.func, ast.Attribute) and node.func.attr == "joinpath" else []
        parts = [*of, *node.args]
    texts = [_path(part) for part in parts]
    return "/".join(texts) if all(texts) else ""


def _twice(node: ast.AST) -> str:
    """Return `parent.parent` and the like for an attribute of an attribute, or a call in a call, of one name."""
    outer, inner = node, node.value if isinstance(node, ast.Attribute) else None
    if isinstance(node, ast.Call) and node.args and isinstance(first := node.args[0], ast.Call):
        outer, inner = node.func, first.func
    name = _name(outer)
    return f"{name}.{name}" if inner is not None and name and _name(inner) == name else ""


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _top_level_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
