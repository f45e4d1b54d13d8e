"""YAML 1.2's core schema: `3e-4` is a number, `no` is text, and keys are unique text."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml

from figura.base.errors import REPRO, UserError
from figura.base.files import read_text

LARGEST = 2**20  # bytes of a file; a recipe has about 10,000
DEEPEST = 64  # nested maps and lists; a recipe has about 8
DIGITS = 1000  # of a number
MOST = 100_000  # values, with aliases expanded; a recipe has about 500
NULL, BOOL, INT, FLOAT, MERGE, TEXT, LIST, MAP = (
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "merge", "str", "seq", "map")
)
FORMS = {  # of plain scalars that are not text: YAML 1.2.2, section 10.3.2, and the merge key of YAML 1.1
    NULL: r"~|null|Null|NULL|",
    BOOL: r"true|True|TRUE|false|False|FALSE",
    INT: r"[-+]?([0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)",
    FLOAT: r"[-+]?((\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
    MERGE: "<<",
}
RESOLVERS = {None: [(tag, re.compile(rf"({form})\Z")) for tag, form in FORMS.items()]}  # None: any first character


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping of plain values.

    Raises:
        UserError: not a regular file of UTF-8 text, more than `LARGEST` bytes, no mapping at the top, or rejected by
            `parse_yaml`.
    """
    content = parse_yaml(read_text(path, "a YAML file is needed", LARGEST), str(path))
    if not isinstance(content, dict):
        found = "nothing" if content is None else type(content).__name__
        raise UserError(f"{path}: found {found}, expected a mapping of sections")
    return content


def parse_yaml(text: str, source: str) -> Any:
    """Return the value of a YAML text of one document; None if it is empty.

    Raises:
        UserError: not YAML, conflicts of a merge, a tag, a key that is duplicate or not text, more than `MOST` values,
            or nested more than `DEEPEST` deep. The message starts with `source`, such as a path.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, 1, {})
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        refuse_conflicts(text, source)
        mark = error.problem_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        what = "" if type(error) is yaml.MarkedYAMLError else "not valid YAML: "
        problem = ", ".join(part.splitlines()[0] for part in (error.context, error.problem) if part)
        raise UserError(f"{where}: {what}{problem}") from None
    except RecursionError:
        raise UserError(f"{source}: nested more than {DEEPEST} deep") from None
    except (yaml.YAMLError, OverflowError, ValueError, LookupError) as error:  # `"\UFFFFFFFF"`, `!!bool 5`
        raise UserError(f"{source}: not valid YAML: {str(error).splitlines()[0]}") from None


def refuse_conflicts(text: str, source: str) -> None:
    """Raise UserError with the line if a text has the markers of conflicts that `git merge` left."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("<<<<<<< "):
            raise UserError(
                f"{source}:{number}: a conflict that git could not merge; keep one side of each (of a lock file, "
                f"either), remove the lines <<<<<<<, ======= and >>>>>>>, then run `{REPRO}`"
            )


class _Loader(yaml.SafeLoader):
    """libyaml, PyYAML's parser in C, would crash on deep nesting."""

    yaml_implicit_resolvers = RESOLVERS

    def integer(self, node: yaml.ScalarNode) -> int:
        """Return the value of an integer; `017` is 17."""
        text = str(self.construct_scalar(node))
        return int(text, 0 if text.lstrip("+-")[:2] in ("0o", "0x") else 10)

    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **{tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (NULL, BOOL, FLOAT, TEXT, LIST, MAP)},
        INT: integer,
    }


def _count(node: yaml.Node, depth: int, counts: dict[int, int]) -> int:
    """Return how many values a node stands for, aliases expanded. Raises MarkedYAMLError for `_faults`."""
    if id(node) in counts:
        return counts[id(node)]
    counts[id(node)] = MOST  # until it is known: an alias inside its own anchor makes too many
    for place, problem in _faults(node, depth):
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)
    parts = node.value if isinstance(node, yaml.SequenceNode) else []
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else parts
    counts[id(node)] = 1 + sum(_count(part, depth + 1, counts) for part in parts)
    if counts[id(node)] > MOST:
        problem = f"more than {MOST:,} values, each alias counted as what it stands for"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    return counts[id(node)]


def _faults(node: yaml.Node, depth: int) -> Iterator[tuple[yaml.Node, str]]:
    if node.tag not in (*FORMS, TEXT, LIST, MAP):
        yield node, "a tag, which is not supported"
    if isinstance(node, yaml.ScalarNode):
        if node.tag in (INT, FLOAT) and len(node.value) > DIGITS:
            yield node, f"a number of {len(node.value)} digits is too long"
        if re.search("[\ud800-\udfff]", node.value):
            yield node, "half a character, which no file can hold"
    elif depth > DEEPEST:
        yield node, f"nested more than {DEEPEST} deep"
    names = set[str]()
    before = ""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.tag not in (TEXT, MERGE) or not key.value:
            comma = value.value == "" and f"{before}{key.value}".lstrip("+-").isdecimal()
            quotes = "a key that is no text; write it in quotes"
            yield key, f"a decimal comma; write {before}.{key.value}" if before and comma else quotes
        before = value.value if isinstance(value, yaml.ScalarNode) else ""
        if key.value in names:
            yield key, f"a key stands twice: {key.value}"
        names.add(key.value)


class _Dumper(yaml.SafeDumper):
    """Not libyaml's: resolved recipes are hashed, which must be equal on every machine."""

    yaml_implicit_resolvers = RESOLVERS


_Dumper.add_representer(
    float, lambda dumper, number: dumper.represent_scalar(FLOAT, re.sub("(?=inf|nan)", ".", repr(number)))
)
_Dumper.add_representer(  # PyYAML takes \x85 for a line break when it reads text that is not in double quotes
    str,
    lambda dumper, text: dumper.represent_scalar(TEXT, text, style='"' if re.search("[\n\x85\u2028]", text) else None),
)


def to_yaml(content: dict[str, Any]) -> str:
    """Write plain values as YAML 1.2, block style, keys in their order."""
    options: dict[str, Any] = {"default_flow_style": False, "sort_keys": False, "width": 120, "allow_unicode": True}
    return str(yaml.dump(content, Dumper=_Dumper, **options))


def in_one_line(value: Any) -> str:
    """Write a plain value as YAML 1.2 in one line, flow style."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=10**9, allow_unicode=True)
    return str(text).removesuffix("\n...\n").strip()
