"""figura/commands/reference.py: the page has every key of the schema, and the committed one is up to date."""

import re
from pathlib import Path

import pytest

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.commands import reference

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_up_to_date(monkeypatch):
    monkeypatch.chdir(ROOT)
    reference.main(["--check"])


def test_another_page_is_reported_and_written_anew(tmp_path):
    output = tmp_path / "reference.md"
    output.write_text("# Old\n")
    with pytest.raises(UserError, match="not what the schema says"):
        reference.main(["--check", "--output", str(output)])
    assert output.read_text() == "# Old\n"
    reference.main(["--output", str(output)])
    assert output.read_text() == (ROOT / "docs/reference.md").read_text()


def keys(content: dict, path: str = "") -> set[str]:
    """Return the dotted keys of sections without names of one's own, by hand."""
    found = set()
    for key, value in content.items():
        place = f"{path}.{key}".lstrip(".")
        found.add(place)
        if isinstance(value, dict) and place in ("data", "train", "train.ema", "evaluate", "metrics", "runtime"):
            found |= keys(value, place)
    return found


def test_keys_of_the_recipes_are_there():
    sections = re.split(r"^#+ (?:`|The )", reference.page(), flags=re.MULTILINE)[1:]
    there = {
        f"{'' if title == 'sections' else title}.{key}".lstrip(".")
        for title, rows in (section.split("\n", 1) for section in sections)
        for title in [title.rstrip("`")]
        for key in re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)
    }
    for recipe in ("params.yaml", "recipes/pix2pix.yaml", "recipes/pose.yaml"):
        missing = keys(read_yaml(ROOT / recipe)) - there
        assert missing <= {"data.common"}  # spread over the entries before the schema sees them
    assert {"losses.<name>.schedule", "steps.<name>.injectors.<name>.only", "runtime.samples.count"} <= there


def test_every_link_has_its_section():
    page = reference.page()
    sections = {reference.anchor(one) for one in re.findall(r"^#+ `(.*)`$", page, re.MULTILINE)}
    linked = set(re.findall(r"\(#(.*?)\)", page))
    assert {"lossesname", "trainema"} <= linked
    assert linked <= sections
