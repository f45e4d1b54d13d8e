"""YAML 1.2, as DVC reads it: `3e-4` is a number, `no` is a string, and keys are unique.

Scalars that DVC reads differently from YAML 1.2, such as `1_000` and `2020-01-01`, are rejected. So are constructs that
no recipe needs and some programs cannot handle: deep nesting, and aliases that expand to millions of values.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Never

import yaml

from figura.base.errors import UserError
from figura.base.files import read_text

LARGEST = 2**20
"""Maximum bytes of a file. A recipe has about 10,000."""
DEEPEST = 64
"""Maximum nesting of maps and lists. A recipe has about 8 levels."""
MOST = 100_000
"""Maximum number of values, with aliases expanded. A recipe has about 500."""
DIGITS = 4300  # of a number, like Python's limit
PREFIX = "tag:yaml.org,2002:"
TEXT, LIST, MAP = f"{PREFIX}str", f"{PREFIX}seq", f"{PREFIX}map"
MERGE, VALUE = f"{PREFIX}merge", f"{PREFIX}value"
DISPUTED = "read in two ways"  # an internal tag that files cannot contain
NUMERIC = "+-.0123456789"
NULL = re.compile(r"(~|null|Null|NULL)?\Z")
BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)\Z")
INT = re.compile(r"[-+]?([0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
FLOAT = re.compile(
    r"""([-+]?( [0-9]+ (\.[0-9]*)? ([eE][-+]?[0-9]+)?
              | \.[0-9]+ ([eE][-+][0-9]+)?
              | \.(inf|Inf|INF))
       | \.(nan|NaN|NAN))\Z""",
    re.VERBOSE,
)
TWO_READINGS = re.compile(
    r"""([-+]?( [0-9_]+ | 0b[01_]+ | 0o[0-7_]+ | 0x[0-9a-fA-F_]+
              | [0-9][0-9_]* (\.[0-9_]*)? ([eE][-+]?[0-9]+)?
              | \.[0-9_]+ ([eE][-+][0-9]+)?
              | \.[0-9]+ [eE][0-9]+)
       | [0-9]{4}-[0-9]{2}-[0-9]{2}
       | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2} ([Tt]|[ \t]+) [0-9]{1,2}:[0-9]{2}:[0-9]{2} (\.[0-9]*)?
         ([ \t]*(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?)\Z""",
    re.VERBOSE,
)
# Tag, form and first characters of plain scalars that are not strings; the first match wins.
FORMS = (
    (f"{PREFIX}null", NULL, ["~", "n", "N", ""]),
    (f"{PREFIX}bool", BOOL, list("tTfF")),
    (f"{PREFIX}int", INT, list(NUMERIC)),
    (f"{PREFIX}float", FLOAT, list(NUMERIC)),
    (MERGE, re.compile(r"<<\Z"), ["<"]),
    (VALUE, re.compile(r"=\Z"), ["="]),
    (DISPUTED, TWO_READINGS, list(NUMERIC)),
)
UNPRINTABLE = r"[^\t\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
UNREADABLE = re.compile(rf"{UNPRINTABLE}|^%YAML(?![ ]+1\.2\s).*", re.MULTILINE)
LAX = re.compile(r"[\t\ufeff!]|[|>]\S{0,9}#")  # accepted by libyaml but rejected by DVC, or read differently


class Refusal(yaml.MarkedYAMLError):
    """Valid YAML that is rejected here."""


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping of plain values (no tags, no objects) with string keys.

    Raises:
        UserError: not a regular file of UTF-8 text, more than `LARGEST` bytes, no mapping at the top, or rejected by
            `parse_yaml`.
    """
    text = read_text(path, "a YAML file is needed", LARGEST).replace("\r\n", "\n").replace("\r", "\n")
    content = parse_yaml(text, str(path), text_keys=True)
    if not isinstance(content, dict):
        found = "nothing" if content is None else type(content).__name__
        raise UserError(f"{path}: found {found}, expected a mapping of sections")
    return content


def parse_yaml(text: str, source: str, place: bool = True, text_keys: bool = False) -> Any:
    """Return the value of a YAML text; None if it is empty.

    Args:
        text: one document.
        source: its origin, such as a path; the start of messages.
        place: whether messages include line and column.
        text_keys: whether to reject keys that are numbers, booleans, null or empty: DVC cannot read them in params.

    Raises:
        UserError: not YAML, a duplicate key, a key that is not a scalar, an alias inside its own anchor, a scalar that
            DVC reads differently from YAML 1.2, more than `MOST` values, or nested more than `DEEPEST` deep.
    """
    try:
        return _value(text, text_keys)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark if place else None
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        what = "" if isinstance(error, Refusal) else "not valid YAML: "
        problem = ", ".join(part.splitlines()[0] for part in (error.context, error.problem) if part)
        raise UserError(f"{where}: {what}{problem}") from None


def to_yaml(content: dict[str, Any]) -> str:
    """Write plain values as YAML 1.2, block style, keys in their order."""
    text: str = yaml.dump(
        content, Dumper=Dumper, default_flow_style=False, sort_keys=False, width=120, allow_unicode=True
    )
    return text


def _value(text: str, text_keys: bool) -> Any:
    _check_characters(text)
    kind = StrictLoader if LAX.search(text) else FastLoader
    _check_size(yaml.parse(text, kind))
    loader = kind(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_node(loader, node, text_keys, set(), set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_characters(text: str) -> None:
    """Raise `Refusal` for characters that YAML 1.1 and 1.2 read differently, and for `%YAML` of another version."""
    match = UNREADABLE.search(text)
    if match is None:
        return
    start = match.start()
    mark = yaml.Mark("", start, text.count("\n", 0, start), start - text.rfind("\n", 0, start) - 1, None, 0)
    if match[0].startswith("%"):
        raise Refusal(problem=f"{match[0]}: expected YAML 1.2", problem_mark=mark)
    escape = f'"\\u{ord(match[0]):04X}"'
    raise Refusal(problem=f"a character that cannot be read: write {escape}, in double quotes", problem_mark=mark)


def _check_size(events: Iterable[Any]) -> None:
    """Raise `Refusal` if maps and lists are nested too deeply, or there are too many values with aliases expanded.

    Works on the parser's events, before any recursion: libyaml's loader crashes on 30,000 nested lists.
    """
    values, sizes, opened = 0, dict[str | None, int](), list[tuple[str | None, int]]()
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = values - before
        elif isinstance(event, yaml.AliasEvent):
            values += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, values))
            values += 1
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
        if len(opened) > DEEPEST:
            raise Refusal(problem=f"nested more than {DEEPEST} deep", problem_mark=event.start_mark)
        if values > MOST:
            counted = "more than {:,} values, each alias counted as what it stands for"
            raise Refusal(problem=counted.format(MOST), problem_mark=event.start_mark)


def _check_node(
    loader: yaml.SafeLoader, node: yaml.Node, text_keys: bool, nodes: set[yaml.Node], ancestors: set[yaml.Node]
) -> None:
    """Raise `Refusal` for keys rejected by `_check_keys`, and for an alias inside its own anchor.

    `nodes` are the nodes visited so far: aliases lead to the same node again.
    """
    if node in ancestors:
        raise Refusal(problem="an alias inside what it stands for", problem_mark=node.start_mark)
    if isinstance(node, yaml.ScalarNode) or node in nodes:
        return
    nodes.add(node)
    values = node.value
    if isinstance(node, yaml.MappingNode):
        _check_keys(loader, node, text_keys)
        values = [value for _, value in node.value]
    ancestors.add(node)
    for value in values:
        _check_node(loader, value, text_keys, nodes, ancestors)
    ancestors.remove(node)


def _check_keys(loader: yaml.SafeLoader, node: yaml.MappingNode, text_keys: bool) -> None:
    """Raise `Refusal` for a duplicate key, a key that is not a scalar, or with `text_keys` not a string."""
    names, others = set(), list[yaml.ScalarNode]()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag in (LIST, MAP):
            raise Refusal(problem="a key that is no plain text", problem_mark=key.start_mark)
        name = key.value if key.tag in (MERGE, VALUE) else loader.construct_object(key)
        if name in names:
            raise Refusal(problem=f"a key stands twice: {key.value}", problem_mark=key.start_mark)
        names.add(name)
        if not isinstance(name, str) or not name:
            others.append(key)
    if text_keys and others:
        found, quoted = (", ".join(form.format(key.value) for key in others) for form in ("{}", "'{}'"))
        advice = f"{found}: write {quoted} in quotes" if all(key.value for key in others) else "or empty: write a name"
        problem = f"DVC cannot show params with keys that are not text, {advice}"
        raise Refusal(problem=problem, problem_mark=others[0].start_mark)


def _refuse(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Never:
    """Raise `Refusal` for a scalar with two readings; the message has both, and what to write instead."""
    text = node.value
    quotes = f"'{text}' in quotes"
    try:
        number = _written(_number(text.replace("_", "")))
    except ValueError:
        number = ""
    if re.match(r"[0-9]{4}-", text):
        problem = f"DVC takes {text} for a date, YAML 1.2 for text: write {quotes}"
    elif not number:
        problem = f"DVC cannot read {text}, which is text in YAML 1.2: write {quotes}"
    elif re.match(r"[-+]?\.[0-9]+[eE][0-9]", text):
        problem = f"DVC reads {text} as text, YAML 1.2 as {number}: write {number}, or {quotes}"
    else:
        problem = f"DVC reads {text} as {number}, YAML 1.2 as text: write {number}, or {quotes}"
    raise Refusal(problem=problem, problem_mark=node.start_mark)


def _number(text: str) -> int | float:
    """Parse a number without underscores.

    Raises:
        ValueError: it is not a number, or has more than `DIGITS` digits.
    """
    if len(text) > DIGITS:
        raise ValueError
    digits = text.lstrip("+-")
    if digits[:2] in ("0b", "0o", "0x"):
        return int(text, 0)
    return int(text) if digits.isdigit() else float(re.sub(r"\.(?=[iInN])", "", text))


def _constructor(form: re.Pattern[str], convert: Callable[[str], Any]) -> Callable[[Any, yaml.ScalarNode], Any]:
    """Return a constructor for scalar nodes. It checks the form again, because the file may set the tag."""

    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
        text = str(loader.construct_scalar(node))
        if not form.match(text):
            raise Refusal(problem=f"{text!r} is no {node.tag.removeprefix(PREFIX)}", problem_mark=node.start_mark)
        try:
            return convert(text)
        except ValueError:
            raise Refusal(problem=f"a number of {len(text)} digits is too long", problem_mark=node.start_mark) from None

    return construct


def _loader(base: type[yaml.SafeLoader]) -> type[yaml.SafeLoader]:
    """Return a YAML 1.2 loader with the parser of `base`."""
    constructors = {tag: base.yaml_constructors[tag] for tag in (TEXT, LIST, MAP, None)} | {
        f"{PREFIX}null": _constructor(NULL, lambda _: None),
        f"{PREFIX}bool": _constructor(BOOL, lambda text: text.lower() == "true"),
        f"{PREFIX}int": _constructor(INT, _number),
        f"{PREFIX}float": _constructor(FLOAT, lambda text: float(_number(text))),
        **dict.fromkeys((MERGE, VALUE, DISPUTED), _refuse),
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": _resolvers(), "yaml_constructors": constructors})


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return tags and forms of plain scalars by first character, in PyYAML's format."""
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, form, characters in FORMS:
        for character in characters:
            resolvers.setdefault(character, []).append((tag, form))
    return resolvers


def _written(number: float) -> str:
    return re.sub("(?=inf|nan)", ".", repr(number))


def _write_float(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
    return dumper.represent_scalar(f"{PREFIX}float", _written(number))


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(TEXT, text, style='"' if re.search(rf"\n|{UNPRINTABLE}", text) else None)


class Dumper(yaml.SafeDumper):
    """Writes YAML 1.2 without libyaml: DVC hashes resolved recipes, which must be equal on every machine."""

    yaml_implicit_resolvers = _resolvers()


Dumper.add_representer(float, _write_float)
Dumper.add_representer(str, _write_text)
StrictLoader = _loader(yaml.SafeLoader)
FastLoader = _loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # libyaml if PyYAML was built with it
