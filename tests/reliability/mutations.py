"""Strategies of hypothesis: real files with something hostile in them, as text of JSON or YAML and as bytes."""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

CANARY = "canary-of-figura"  # a file that the code in hostile input would make in the current folder

JSON_FRAGMENTS = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e300", "1" + "0" * 400, "1" + "0" * 5000, "0.1e-400", "-0",
    "1e9", "1e5",
    "null", "true", "[]", "{}", '""', "[[[]]]", "[" * 3000 + "]" * 3000, '{"a":' * 2000 + "1" + "}" * 2000, '"\\ud800"',
    '"\\u0000"', '"../../../../etc/passwd"', '"/etc/passwd"', '"' + "x" * 70_000 + '"', "-1", "0", "1.5", "99999999999",
    '"a\\nb"', "[1, 2", "[NaN, NaN, NaN, NaN]", "[0, 0, 1e9, 1e9]", "[0, 0, -5, -5]",
    '{"size": [1000000, 1000000], "counts": "0"}',
    '{"size": [48, 64], "counts": "~~~~"}', '{"size": [1, 1], "counts": [1000000000000]}',
)  # fmt: skip
YAML_FRAGMENTS = (
    ".nan", ".inf", "-.inf", "1e400", "1" + "0" * 400, "1" + "0" * 5000, "0x1F", "0o17", "1_000",
    "2026-01-01", "12:30:45",
    "~", "null", "yes", "no", "[]", "{}", '""', "'unclosed", "[1, 2", "{a: 1", "[" * 600 + "]" * 600, "[" * 20_000,
    f"!!python/object/apply:os.system ['touch {CANARY}']", f"!!python/object/new:os.system [touch {CANARY}]",
    "!!binary aGk=",
    "!!set {a, b}", "!!timestamp 2026", "!own tag", "&a [*a]", "*missing", "&b {<<: *b}", "{<<: {x: 1}}",
    "{1: 2}", "{null: 3}",
    "{[1, 2]: 3}", "{true: 1, 'true': 2}", "? x", "- x", "|", ">", "%YAML 1.1", "---", "...", "@x", "`x`", "\tx", "# x",
    '"\\ud800"', '"\\0"', '"\\uFFFF"', "\u2028", "'" + "x" * 70_000 + "'", "-1", "0", "1.5", "1e9", "1000000000000",
    "[&c [x, x, x], &d [*c, *c, *c, *c], &e [*d, *d, *d, *d], &f [*e, *e, *e, *e], [*f, *f, *f, *f]]",
    "{type: torch.optim.Adam}", "{type: os.system}", "{type: builtins.eval}", "{type: this}",
    "torch.nn.Linear", "toy.Painter",
    "{type: posixpath.join}", "../../../../etc/passwd", "/dev/zero", "a.b.c.d", "''", "{type: [1]}", "{type: {a: 1}}",
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(), st.integers(-3, 300), st.floats(), st.sampled_from([2**31, 2**63, 2**64, 10**12, -(2**31), 10**400])
)
TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(["", ".", "..", "/", "a/b", "type", "x" * 300, "\x00", "é", "名"])
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    LEAVES, lambda one: st.lists(one, max_size=4) | st.dictionaries(TEXTS, one, max_size=4), max_leaves=8
)


@st.composite
def mutated_tree(draw: st.DrawFn, base: Any, fragments: tuple[str, ...]) -> str:
    """Return `base` as JSON with up to three places replaced, removed, renamed, copied, or made fragments of text."""
    tree = json.loads(json.dumps(base))
    raw: dict[str, str] = {}
    for number in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        places = list(_places(tree))
        holder, key = draw(st.sampled_from(places))
        action = draw(st.sampled_from(["fragment", "like", "like", "value", "remove", "rename", "copy"]))
        if action == "fragment":
            mark = f"raw-{number}-fragment"
            raw[f'"{mark}"'] = draw(st.sampled_from(fragments))
            holder[key] = mark
        elif action == "value":
            holder[key] = draw(VALUES)
        elif action == "like":
            holder[key] = draw(like(holder[key]))
        elif action == "remove":
            del holder[key]
        elif action == "rename" and isinstance(holder, dict):
            holder[draw(TEXTS)] = holder.pop(key)
        else:
            other, there = draw(st.sampled_from(places))
            if (isinstance(other, dict) and there in other) or (isinstance(other, list) and there < len(other)):
                holder[key] = json.loads(json.dumps(other[there]))
        if not isinstance(tree, dict | list) or not tree:
            break
    text = json.dumps(tree)
    for mark, fragment in raw.items():
        text = text.replace(mark, fragment)
    return text


def like(value: Any) -> st.SearchStrategy[Any]:
    """Return values of the same kind, which more often pass the first check and meet the later ones."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.one_of(st.integers(0, 20), st.integers())
    if isinstance(value, float):
        return st.one_of(st.floats(0, 1), st.floats())
    if isinstance(value, str):
        return st.one_of(st.just(value.upper()), st.just(value[:-1]), st.just(f"{value}.{value}"), TEXTS)
    if isinstance(value, list):
        return st.integers(0, 3).map(lambda times: value * times)
    return VALUES


def _places(tree: Any) -> Any:
    """Yield every mapping or list below, with each of its keys or indices."""
    if isinstance(tree, Mapping):
        for key in tree:
            yield tree, key
            yield from _places(tree[key])
    elif isinstance(tree, list):
        for index in range(len(tree)):
            yield tree, index
            yield from _places(tree[index])


@st.composite
def mutated_bytes(draw: st.DrawFn, base: bytes) -> bytes:
    """Return bytes with ranges changed, removed, repeated or appended; now and then other bytes altogether."""
    if draw(st.integers(0, 20)) == 0:
        return draw(st.binary(max_size=200))
    content = bytearray(base)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.one_of(st.integers(0, len(content)), st.integers(0, min(len(content), 200))))
        action = draw(st.sampled_from(["flip", "flip", "put", "cut", "insert", "repeat", "number"]))
        if action == "flip" and place < len(content):
            content[place] ^= 1 << draw(st.integers(0, 7))
        elif action == "put":
            content[place : place + 4] = draw(st.binary(min_size=1, max_size=4))
        elif action == "cut":
            end = len(content) if draw(st.booleans()) else place + draw(st.integers(1, 64))
            del content[place:end]
        elif action == "insert":
            content[place:place] = draw(st.binary(max_size=40))
        elif action == "repeat":
            content[place:place] = content[place : place + 30] * draw(st.integers(1, 50))
        else:
            size = draw(st.sampled_from([2, 4, 8]))
            number = draw(st.sampled_from([0, 1, (1 << 8 * size) - 1, 1 << (8 * size - 1), 65_500, 30_000]))
            content[place : place + size] = (number % (1 << 8 * size)).to_bytes(
                size, draw(st.sampled_from(["little", "big"]))
            )
    return bytes(content)


def text_bytes(texts: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """Return texts as bytes of UTF-8, one in a few of them damaged."""
    whole = texts.map(lambda text: text.encode("utf-8", "surrogatepass"))
    return st.one_of(whole, whole, whole, whole.flatmap(mutated_bytes))
