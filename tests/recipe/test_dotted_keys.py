"""The dotted keys of nested values, by hand."""

from figura.recipe.dotted_keys import leaves, texts

CONTENT = {
    "a": {"b": {"c": 1.5}, "empty": {}, "words": ["x", {"y": "z", "n": 2}, ("t",)]},
    "none": None,
    3: "three",
}


def test_leaves_are_what_no_map_holds_further():
    assert list(leaves(CONTENT)) == [
        ("a.b.c", 1.5), ("a.empty", {}), ("a.words", ["x", {"y": "z", "n": 2}, ("t",)]), ("none", None), ("3", "three"),
    ]  # fmt: skip
    assert list(leaves({"b": 1}, "a.")) == [("a.b", 1)]


def test_texts_are_those_in_lists_too():
    expected = [("a.words.0", "x"), ("a.words.1.y", "z"), ("a.words.2.0", "t"), ("3", "three")]
    assert list(texts(CONTENT)) == expected
