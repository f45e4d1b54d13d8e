"""Reading equals DVC's, scalar by scalar and file by file; what is written reads back as it was."""

import math
import random
import re
import subprocess
import warnings
from itertools import product
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml, read_yaml, to_yaml

ROOT = Path(__file__).parents[2]
ALPHABET = "0123456789_.+-eExobXaf:~=ynYN<"
PIECES = [
    "a", "b c", "word " * 30, "x" * 150, "é", "😀", "no", "null", "~", "true", "Yes", "1", ".", "e", "E", "0x",
    "+", "-", "- ", "10:30:00", ".inf", ".nan", " ", "  ", "\n", "\n\n", "\t", "\r",
    "\x00", "\x7f", "\x85", "\u2028", "\xa0", "\ufeff", ": ", ":", "#", " #", '"', "'", "\\", "%",
    "%YAML 1.1", "@", "`", "!",
    "!!str", "&a", "*a", "[", "]", "{", "}", ",", "?", "|", ">", "---", "...",
]  # fmt: skip
NUMBERS = [0, -5, 10**20, 1.0, -0.0, 0.1, 0.0003, 1e-05, 1e16, 1e22, 1e300, 5e-324, math.inf, -math.inf, math.nan]


def read_by_dvc(text):
    """Return what DVC's way of reading params gives, or the exception that it raises."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return YAML(typ="safe").load(text)
        except (YAMLError, ValueError, IndexError) as error:  # the latter two: int("") for `-_`, for instance
            return error


def read(text):
    try:
        return parse_yaml(text, "p.yaml")
    except UserError as error:
        return error


def same(one, other):
    """Whether values and types are equal, through lists and maps; and the order of keys."""
    return type(one) is type(other) and repr(one) == repr(other)


TABLE = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None, "nULL": "nULL", "true": True, "True": True,
    "TRUE": True, "tRUE": "tRUE", "false": False, "False": False, "FALSE": False, "yes": "yes", "no": "no", "No": "No",
    "on": "on", "off": "off", "y": "y", "N": "N", "0": 0, "-0": 0, "+1": 1, "-12": -12, "017": 17, "08": 8, "0o17": 15,
    "-0o17": -15, "0O17": "0O17", "0o8": "0o8", "0x1F": 31, "+0xf": 15, "0X1F": "0X1F", "0x": "0x", "1e3": 1000.0,
    "3e-4": 3e-4, "1E+3": 1000.0, "-1.5e-3": -0.0015, "1.": 1.0, "1.e3": 1000.0, ".5": 0.5, "-.5": -0.5, ".5e-3": 5e-4,
    ".5e+3": 500.0, "1.0": 1.0, "-0.0": -0.0, "1e999": math.inf, ".inf": math.inf, "-.Inf": -math.inf,
    "+.INF": math.inf, ".nan": math.nan, ".NaN": math.nan, "-.nan": "-.nan", "inf": "inf", "nan": "nan", ".": ".",
    "+": "+", "e3": "e3", "1e": "1e", "1.2.3": "1.2.3", "12:30": "12:30", "190:20:30": "190:20:30", "1:30.5": "1:30.5",
    "_1": "_1", "._e3": "._e3", "12a": "12a", "2020-1-1": "2020-1-1", "2020-01": "2020-01", "1-2": "1-2", "==": "==",
    "<": "<", "<<<": "<<<", "'1_000'": "1_000", '"2020-01-01"': "2020-01-01", "'='": "=",
    '"\\u2028"': "\u2028", "!!str 12": "12", "! 12": 12, "!!int '3'": 3, "0b2": "0b2",
}  # fmt: skip
APART = {  # YAML 1.2 has them as text and `.5e3` as a number, while DVC goes by YAML 1.1 or refuses them
    "1__": "1__", "1_000": "1_000", "-_1": "-_1", "0_": "0_", "1_0.5": "1_0.5", "._5": "._5", "0b11": "0b11",
    "0x_f": "0x_f", ".5e3": 500.0, "2020-01-01": "2020-01-01", "2020-13-45": "2020-13-45", "=": "=", "<<": "<<",
}  # fmt: skip
DIFFER = re.compile(r"[-+]?(.*_.*|0b[01]+|\.[0-9]+[eE][0-9]+)|[0-9]{4}-.*|=|<<")


@pytest.mark.parametrize("scalar", TABLE | APART)
def test_a_scalar_is_what_dvc_reads(scalar):
    value = read(f"a: {scalar}")
    assert same(value, {"a": (TABLE | APART)[scalar]})
    assert (scalar in TABLE) == same(value, read_by_dvc(f"a: {scalar}"))


def test_short_scalars_and_dates_are_what_dvc_reads():
    rng = random.Random(0)
    scalars = ["".join(letters) for length in (1, 2) for letters in product(ALPHABET, repeat=length)]
    scalars += ["".join(rng.choices(ALPHABET, k=rng.randint(3, 4))) for _ in range(600)]
    scalars += ["".join(rng.choices("01_.+-eE", k=rng.randint(3, 6))) for _ in range(600)]
    for scalar in dict.fromkeys(scalars):
        value, dvc = read(f"a: {scalar}"), read_by_dvc(f"a: {scalar}")
        if isinstance(value, UserError):
            assert isinstance(dvc, Exception), scalar
        else:
            assert same(value, dvc) or DIFFER.fullmatch(scalar), scalar


def test_every_file_of_the_repository():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    paths = [ROOT / name for name in names if name.endswith((".yaml", ".yml")) or name == "dvc.lock"]
    assert len(paths) > 10
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert same(parse_yaml(text, str(path)), read_by_dvc(text)), path


STRUCTURES = {
    "anchors": "a: &x {b: [1, 2]}\nc: *x\nd: [*x, *x]\n",
    "merge": "a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3, e: 4}\n",
    "merges": "a: &x {b: 1, c: 2}\nd: &y {c: 3, f: 4}\ne:\n  z: 0\n  <<: [*y, *x]\n",
    "a merge of a merge": "a: &x {<<: {p: 1, q: 2}, p: 3}\nb: {<<: *x, q: 5}\nc: *x\n",
    "a source that stands below": "d: {e: {f: &x {<<: {p: 1}, p: 2}}}\nb: {<<: *x}\n",
    "words as keys": "no: d\non: e\n'2': f\n",
    "block texts": "a: |\n  x\n   y\n\nb: >-\n  x\n  y\n\n  z\nc: 'it''s'\nd: \"\\/ \\t\"\n",
    "flow": "a: [b c, {d: e, f: [g]}, 'http://x:80/y', 'q': 1, {\"r\":2}]\n",
    "complex": "? a\n: b\n? 'c'\n",
    "tabs in text": 'a: "x\ty"\nb: 1 # c\td\n',
    "comment at a bar": "a: |\n  # no comment\nb: 1 # |#\n",
    "a mark of the order of bytes": "\ufeffa: 1\n",
    "version": "%YAML 1.2\n---\na: yes\n",
    "document": "---\na: 1\n...\n",
    "nothing but a comment": "# x\n",
    "exclamation": "a: b!\nc: '!d'\n# !e\n",
}


@pytest.mark.parametrize("text", STRUCTURES.values(), ids=STRUCTURES)
def test_a_structure_is_what_dvc_reads(text):
    assert same(read(text), read_by_dvc(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: x\0y", ": not valid YAML: unacceptable character #x0000: special characters are not allowed"),
        (r'a: "\UFFFFFFFF"', ": not valid YAML: "),
        (r'a: "\U00110000"', ": not valid YAML: "),
        ("a: !!bool 5", ": not valid YAML: "),
        (r'a: "\ud800"', ":1:4: half a character, which no file can hold"),
        ("a: {b: 1, 'b': 2}", ":1:11: a key stands twice: b"),
        ("<<: {a: 1}\n<<: {b: 1}", ":2:1: a key stands twice: <<"),
        ("a: [b, c\n", ":2:1: not valid YAML: while parsing a flow sequence"),
        ("a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> x\n", ":2: a conflict that git could not merge; keep one"),
        ("a:\n<<<<<<< HEAD\n  b: 1\n=======\n  b: 2\n>>>>>>> x\n", ":2: a conflict that git could not merge; keep"),
        ("a: 1\n---\nb: 1", ":2:1: not valid YAML: expected a single document"),
        ("a: *b", ":1:4: not valid YAML: found undefined alias"),
        ("<<: 1", ":1:5: not valid YAML: while constructing a mapping"),
        ("a: !!python/object/apply:os.system ['true']", ":1:4: a tag, which is not supported"),
        ("a: " + 5000 * "9", ":1:4: a number of 5000 digits is too long"),
        ("a: !!int 0x" + 5000 * "f", ":1:4: a number of 5002 digits is too long"),
        ("a: !!int [1]", ":1:4: not valid YAML: expected a scalar node"),
        ("? {a: 1}\n: 2", ":1:3: a key that is no text"),
        ("a: {1: x, b: y}", ":1:5: a key that is no text; write it in quotes"),
        ("a: {b: x, 1}", ":1:11: a key that is no text; write it in quotes"),
        ("a: {b: -0,05, c: 1}", ":1:11: a decimal comma; write -0.05"),
        ("a: {'': x}", ":1:5: a key that is no text"),
        ("a: &x\n  b: [*x]", ":2:6: more than 100,000 values"),
        ("a: &x {<<: *x}", ":1:4: more than 100,000 values"),
        ("a: " + 64 * "[" + 64 * "]", ":1:67: nested more than 64 deep"),
        ("a: " + 100_000 * "[" + 100_000 * "]", ": nested more than 64 deep"),
        ("".join(depth * " " + "a:\n" for depth in range(300)), ":65:65: nested more than 64 deep"),
    ],
)
def test_what_is_refused_and_where(tmp_path, text, said):
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(f"{path}{said}")
    assert "\n" not in str(caught.value)


def laughs(lists, form="[{}]"):
    """Return lists, each of nine aliases of the one before: 9 to the power of `lists` values."""
    rows = ["0: &l0 " + form.format("x: x" if "{{" in form else "x")]
    rows += [f"{i}: &l{i} " + form.format(", ".join(9 * [f"*l{i - 1}"])) for i in range(1, lists + 1)]
    return "\n".join(f"l{row}" for row in rows)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # 2, 19, 172, 1,549, 13,942, 125,479: each list and its text are values
        (laughs(6), 6),
        (laughs(50), 6),
        (laughs(50, "{{<<: [{}]}}").replace("<<: [x: x]", "x: x"), 6),
        ("a: &x [" + 400 * "0," + "]\nb: [\n" + 250 * "*x,\n" + "]", 2),
    ],
    ids=["short", "long", "merges", "shared many times"],
)
def test_aliases_count_as_what_they_stand_for(text, line):
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "p.yaml")
    assert re.fullmatch(
        rf"p\.yaml:{line}:\d+: more than 100,000 values, each alias counted as what it stands for", str(caught.value)
    )


def test_what_is_just_small_enough_is_read():
    deep = parse_yaml("a: " + 63 * "[" + 63 * "]", "p.yaml")
    for _ in range(62):
        deep = deep["a"] if isinstance(deep, dict) else deep[0]
    assert deep == [[]]
    aliases = parse_yaml("a: &x [" + 300 * "0," + "]\nb: [" + 300 * "*x," + "]", "p.yaml")  # 90,905 values
    assert sum(map(sum, aliases["b"])) == 0
    assert len(aliases["b"]) == 300


def check_written(content):
    text = to_yaml(content)
    assert same(read(text), content), text
    assert same(read_by_dvc(text), content), text


def test_whatever_is_written_reads_back():
    for scalar in TABLE:
        check_written({"a": scalar, "b": [scalar, {"c": scalar}]} | ({scalar: 1} if scalar else {}))
    rng = random.Random(0)

    def word():
        return "".join(rng.choices(PIECES, k=rng.randint(0, 4)))

    def value(depth):
        kind = rng.random()
        if kind < 0.15:
            return rng.choice([*NUMBERS, True, False, None])
        if kind < 0.6 or depth == 3:
            return word()
        if kind < 0.8:
            return [value(depth + 1) for _ in range(rng.randint(0, 3))]
        return {word() or "a": value(depth + 1) for _ in range(rng.randint(0, 3))}

    for _ in range(200):
        check_written({rng.choice(["a", "b", word() or "c"]): value(0) for _ in range(3)})
