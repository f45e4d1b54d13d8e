"""Words of other systems: each is answered by what exists here, and as docs/dl_art_school.md says."""

import re
from pathlib import Path

import pytest
from loading import find_class

from figura.base.error_collector import locate
from figura.recipe.other_systems import WORDS, called_here
from figura.recipe.schema import Declaration, Recipe

DOCS = (Path(__file__).parents[2] / "docs/dl_art_school.md").read_text()
HINTS = {(what, word): hint for what, words in WORDS.items() for word, hint in words.items()}


def test_a_key_that_we_have_too_is_no_word_of_another_system():
    assert called_here("key", "clip") is None
    assert called_here("score", "l1") is None
    assert called_here("loss", "images.Sobell") is None


@pytest.mark.parametrize("hint", sorted(set(HINTS.values())))
def test_what_a_hint_names_exists(hint):
    quoted = re.findall(r"`([^`]+)`", hint)
    classes = [one for one in quoted if re.fullmatch(r"(?:\w+\.)*[A-Z][A-Za-z0-9]+", one)]
    for name in re.findall(r"type: ([\w.]+)", hint) + classes:
        assert find_class(name) is not None, name
    for key in (re.split(r":| ", one)[0].split(".") for one in quoted):
        if key[0] in Recipe.model_fields and key[-1]:
            place = locate(Recipe, key)
            fields = {name for schema in place.schemas for name in schema.model_fields}
            own = any(issubclass(schema, Declaration) for schema in place.schemas)
            assert len(key) == 1 or own or key[-1] in fields, key


def test_docs_agree():
    """A row of the page about one of these words says what the hint says."""
    rows: dict[str, str] = {}
    for row in re.findall(r"^\| (.+) \|$", DOCS, re.MULTILINE):
        there, _, here = row.partition(" | ")
        for word in re.findall(r"`([\w*]+)`", there):
            rows[word] = rows.get(word, "") + here
    both = {(word, hint) for (_, word), hint in HINTS.items() if word in rows}
    assert len(both) > 25
    for word, hint in both:
        ours = set(re.findall(r"\w{3,}", " ".join(re.findall(r"`([^`]+)`", hint)))) - {"type", "steps", "images"}
        assert not ours or ours & set(re.findall(r"\w{3,}", rows[word])), (word, hint, rows[word])
