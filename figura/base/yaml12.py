"""YAML 1.2's core schema, read as DVC reads it: `3e-4` is a number, `no` is text, and keys are unique text.

What DVC reads differently, such as `1_000` or `2020-01-01`, is rejected, so that no value differs from the one that DVC
tracks. So are tags, deep nesting, and aliases that expand to millions of values.
"""

import re
from pathlib import Path
from typing import Any, ClassVar, Never

import yaml

from figura.base.errors import UserError
from figura.base.files import read_text

LARGEST = 2**20
"""Maximum bytes of a file. A recipe has about 10,000."""
DEEPEST = 64
"""Maximum nesting of maps and lists. A recipe has about 8 levels."""
MOST = 100_000
"""Maximum number of values, with aliases expanded. A recipe has about 500."""
DIGITS = 1000
"""Maximum characters of a number."""
PREFIX = "tag:yaml.org,2002:"
TEXT, MERGE, DISPUTED = f"{PREFIX}str", f"{PREFIX}merge", "read in two ways"
NUMERIC = "+-.0123456789"
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
         ([ \t]*(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?
       | =)\Z""",
    re.VERBOSE,
)
# Tag, form and first characters of plain scalars that are not text; the first match wins.
FORMS = (
    (f"{PREFIX}null", re.compile(r"(~|null|Null|NULL)?\Z"), ["~", "n", "N", ""]),
    (f"{PREFIX}bool", re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")),
    (f"{PREFIX}int", INT, list(NUMERIC)),
    (f"{PREFIX}float", FLOAT, list(NUMERIC)),
    (MERGE, re.compile(r"<<\Z"), ["<"]),
    (DISPUTED, TWO_READINGS, list(NUMERIC + "=")),
)
UNPRINTABLE = r"[^\t\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
UNREADABLE = re.compile(rf"{UNPRINTABLE}|^%(?!YAML +1\.2\s)[A-Z]+", re.MULTILINE)
"""Characters and directives that YAML 1.1 and 1.2 read differently."""


class Refusal(yaml.MarkedYAMLError):
    """Valid YAML that is rejected here."""


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping of plain values.

    Raises:
        UserError: not a regular file of UTF-8 text, more than `LARGEST` bytes, no mapping at the top, or rejected by
            `parse_yaml`.
    """
    text = read_text(path, "a YAML file is needed", LARGEST).replace("\r\n", "\n").replace("\r", "\n")
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        found = "nothing" if content is None else type(content).__name__
        raise UserError(f"{path}: found {found}, expected a mapping of sections")
    return content


def parse_yaml(text: str, source: str, place: bool = True) -> Any:
    """Return the value of a YAML text of one document; None if it is empty.

    Messages start with `source`, such as a path, and with line and column if `place` is true.

    Raises:
        UserError: not YAML, a key that is duplicate or not text, a tag, an alias inside its own anchor, a scalar that
            DVC reads differently from YAML 1.2, more than `MOST` values, or nested more than `DEEPEST` deep.
    """
    try:
        if (found := UNREADABLE.search(text)) is not None:
            before = text[: found.start()]
            start = yaml.Mark("", 0, before.count("\n"), len(before) - before.rfind("\n") - 1, None, 0)
            cure = "leave it out" if found[0][0] == "%" else "write it as an escape, in double quotes"
            raise Refusal(problem=f"{found[0]!r} cannot be read here: {cure}", problem_mark=start)
        return yaml.load(text, _Loader)
    except (OverflowError, ValueError):  # an escape such as "\UFFFFFFFF"
        raise UserError(f"{source}: not valid YAML: an escape of a character that does not exist") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark and place else source
        what = "" if isinstance(error, Refusal) else "not valid YAML: "
        problem = ", ".join(part.splitlines()[0] for part in (error.context, error.problem) if part)
        raise UserError(f"{where}: {what}{problem}") from None


def to_yaml(content: dict[str, Any]) -> str:
    """Write plain values as YAML 1.2, block style, keys in their order."""
    text: str = yaml.dump(
        content, Dumper=Dumper, default_flow_style=False, sort_keys=False, width=120, allow_unicode=True
    )
    return text


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return tags and forms of plain scalars by first character, in PyYAML's format."""
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, form, characters in FORMS:
        for character in characters:
            resolvers.setdefault(character, []).append((tag, form))
    return resolvers


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.2. It checks limits and keys while it composes, before it follows any nesting.

    PyYAML's parser in C, libyaml, accepts texts that DVC rejects, and crashes on deep nesting.
    """

    yaml_implicit_resolvers = _resolvers()

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = self.values = 0
        self.sizes: dict[str, int] = {}  # number of values of each anchor

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node, and count its values and those of its aliases."""
        event: Any = self.peek_event()
        is_alias, is_collection = isinstance(event, yaml.AliasEvent), isinstance(event, yaml.CollectionStartEvent)
        before = self.values
        if is_alias and event.anchor in self.anchors and event.anchor not in self.sizes:
            raise Refusal(problem="an alias inside what it stands for", problem_mark=event.start_mark)
        if re.search("[\ud800-\udfff]", getattr(event, "value", "")):
            raise Refusal(problem="half a character, which no file can hold", problem_mark=event.start_mark)
        if getattr(event, "tag", None) not in (None, TEXT):
            raise Refusal(problem="a tag, which is not supported", problem_mark=event.start_mark)
        self.values += self.sizes.get(event.anchor, 0) if is_alias else 1
        self.depth += is_collection
        if self.depth > DEEPEST:
            raise Refusal(problem=f"nested more than {DEEPEST} deep", problem_mark=event.start_mark)
        if self.values > MOST:
            problem = f"more than {MOST:,} values, each alias counted as what it stands for"
            raise Refusal(problem=problem, problem_mark=event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= is_collection
        if event.anchor is not None:
            self.sizes.setdefault(event.anchor, self.values - before)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a map, whose keys must be text and unique: DVC cannot show params with others."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        names = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (TEXT, MERGE) or not key.value:
                found = f" {key.value}; write it in quotes" if isinstance(key, yaml.ScalarNode) and key.value else ""
                problem = f"a key that is no text, which DVC cannot show:{found}".removesuffix(":")
                raise Refusal(problem=problem, problem_mark=key.start_mark)
            if key.value in names:
                raise Refusal(problem=f"a key stands twice: {key.value}", problem_mark=key.start_mark)
            names.add(key.value)
        return node

    def number(self, node: yaml.ScalarNode) -> int | float:
        """Return the value of a number."""
        text = str(self.construct_scalar(node))
        if len(text) > DIGITS:
            raise Refusal(problem=f"a number of {len(text)} digits is too long", problem_mark=node.start_mark)
        if node.tag == f"{PREFIX}float":
            return float(re.sub(r"\.(?=[iInN])", "", text))
        return int(text, 0 if text.lstrip("+-")[:2] in ("0o", "0x") else 10)

    def refuse(self, node: yaml.ScalarNode) -> Never:
        """Raise `Refusal` for a scalar that DVC reads differently."""
        text = node.value
        problem = f"DVC and YAML 1.2 read {text} differently: write '{text}' in quotes, or a number in its plain form"
        raise Refusal(problem=problem, problem_mark=node.start_mark)

    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **{tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (TEXT, f"{PREFIX}seq", f"{PREFIX}map", None)},
        f"{PREFIX}null": lambda loader, node: None,
        f"{PREFIX}bool": lambda loader, node: node.value.lower() == "true",
        f"{PREFIX}int": number,
        f"{PREFIX}float": number,
        MERGE: refuse,
        DISPUTED: refuse,
    }


class Dumper(yaml.SafeDumper):
    """Writes YAML 1.2 without libyaml: DVC hashes resolved recipes, which must be equal on every machine."""

    yaml_implicit_resolvers = _resolvers()


def _write_float(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
    return dumper.represent_scalar(f"{PREFIX}float", re.sub("(?=inf|nan)", ".", repr(number)))


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(TEXT, text, style='"' if re.search(rf"\n|{UNPRINTABLE}", text) else None)


Dumper.add_representer(float, _write_float)
Dumper.add_representer(str, _write_text)
