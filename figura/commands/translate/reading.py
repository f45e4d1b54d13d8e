"""Read what people have: a YAML or JSON file, or a command line in quotes. Nothing in it is run."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from figura.base.dotted_keys import leaves
from figura.base.error_collector import shown
from figura.base.errors import UserError
from figura.base.files import read_json, read_text
from figura.base.yaml12 import LARGEST, parse_yaml

TAG = re.compile(r"!!(?:float|int|bool|str)\b")  # YAML 1.1 needs one for `1e-4`, YAML 1.2 does not
NUMBER = re.compile(r"-\.?\d")


class System(NamedTuple):
    """What is known of another trainer's sources; `SYSTEM` of a module `models/SYSTEM/translate_*.py`.

    Its function `translate(translation)` writes the recipe; beside the module lies its table.
    """

    name: str
    marks: frozenset[str] = frozenset()
    """Top-level keys that each file of it has, and no other trainer's."""
    program: str = "(?!)"
    """Pattern of the word that starts it on a command line."""
    files: frozenset[str] = frozenset()
    """Options that name configuration files; later ones replace top-level keys of earlier ones."""
    several: frozenset[str] = frozenset()
    """Options with any number of values, up to the next option."""
    assigns: frozenset[str] = frozenset()
    """Those of them whose values change keys of the files: `a:b=value`."""
    overrides: bool = False
    """Whether options that are not in the table change keys of the files: `--a/b value`."""
    row: Callable[[str], str] = str
    """A key's name in the table."""


class Command(NamedTuple):
    """The words in front of a program, the program, and what follows it."""

    before: list[str]
    program: str
    words: list[str]


def read_file(path: Path) -> dict[str, Any]:
    """Read a configuration. Raises UserError if it is no map of JSON or YAML."""
    if path.suffix == ".toml":
        raise UserError(f"{path}: TOML is not read; write it as YAML, with traiNNer-redux' keys where neosr's differ")
    if path.suffix == ".json":
        content = read_json(path, "a JSON file is needed", LARGEST)
    else:
        content = parse_yaml(TAG.sub("", read_text(path, "a YAML file is needed", LARGEST)), str(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: found {shown(content)}, expected a map of settings")
    if list(content) == ["config"] and isinstance(content["config"], dict):
        content = content["config"]
    return {str(key): value for key, value in content.items()}


def command_of(source: str, systems: Mapping[str, System]) -> tuple[str, Command]:
    """Return which system's program a command line starts, and its parts.

    Raises:
        UserError: it starts none or several, or names no configuration for it.
    """
    try:
        words = shlex.split(source.strip().replace("\\\n", " ").replace("\n", " ; "))
    except ValueError as error:
        raise UserError(f"{shown(source)}: not a command line: {error}") from None
    given, lacking = {word.partition("=")[0] for word in words}, set[str]()
    for place, word in enumerate(words):
        for kind, system in systems.items():  # several have a train.py; what follows tells
            if re.fullmatch(system.program, word):
                own = words[place : words.index("|", place)] if "|" in words[place:] else words[place:]  # `| tee log`
                if any(re.fullmatch(r".*;|&&?|\|\|", one) for one in own[:-1]):  # `&` at the end
                    raise UserError(f"{shown(source)}: several commands; give one")
                if not system.files or system.files & given:
                    return kind, Command(words[:place], word, [one for one in own[1:] if one != "2>&1"])
                lacking |= system.files
    if lacking:
        raise UserError(f"{shown(source)}: names no configuration; expected {' or '.join(sorted(lacking))}")
    raise UserError(
        f"{shown(source)}: no file, and no command that figura knows: there are edflow, nectargan-train-paired, "
        "openpifpaf.train, .eval and .predict, train.py and test.py"
    )


def options(words: list[str], is_switch: Callable[[str], bool], several: Collection[str]) -> dict[str, Any]:
    """Return the values of a command line, by option; what belongs to none is at `arguments`.

    Args:
        words: behind the program.
        is_switch: whether an option has no value.
        several: options with any number of values, up to the next option.
    """
    found: dict[str, Any] = {}
    rest: list[str] = []
    option = ""
    for word in words:
        if word.startswith("-") and len(word) > 1 and not NUMBER.match(word):
            option, equals, text = word.partition("=")
            found[option] = value_of(text) if equals else True
            if option in several:
                found[option] = [found[option]] if equals else []
            option = "" if equals or is_switch(option) else option
        elif not option:
            rest.append(word)
        elif option in several:
            found[option].append(value_of(word))
        else:
            found[option], option = value_of(word), ""
    return found | ({"arguments": rest} if rest else {})


def value_of(text: str) -> Any:
    """Return what a word of a command line is: a number, a flag, or a text."""
    try:
        value = parse_yaml(text, text)
    except UserError:
        return text
    return text if value is None else value


def flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of nested maps by dotted key; a list that holds maps is one of its places."""
    found: dict[str, Any] = {}
    for key, value in leaves(content):
        places = isinstance(value, list) and any(isinstance(one, dict) for one in value)
        found |= flat({f"{key}.{place}": one for place, one in enumerate(value)}) if places else {key: value}
    return found


def overrides(given: Mapping[str, Any], content: dict[str, Any], own: Collection[str]) -> dict[str, Any]:
    """Return the options of a command beside what its file says, as flat keys; `--a/b value` changes key `a.b`.

    Args:
        given: the command's options.
        content: of the file, or several that are merged.
        own: options that are no keys of the file.
    """
    found = flat(content)
    for option, value in given.items():
        key = option.removeprefix("--").replace("/", ".")
        found = {name: one for name, one in found.items() if option in own or not f"{name}.".startswith(f"{key}.")}
        found |= {option: value} if option in own else flat({key: value})
    return found


def assigned(words: Iterable[Any]) -> dict[str, Any]:
    """Return what words such as `a:b=value` say, as flat keys. Raises UserError for another form."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = str(word).partition("=")
        if not equals:
            raise UserError(f"{shown(word)}: expected `key:key=value`")
        found |= flat({key.replace(":", "."): value_of(text)})
    return found
