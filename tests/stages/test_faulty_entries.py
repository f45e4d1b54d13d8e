"""What faulty entries of data/params.yaml are told: `faulty_entries.txt` has each entry and its lines.

Keys that an entry lacks are those of `WHOLE`. After a change of a message, renew the file and read what differs:

    PYTHONPATH=.:tests python tests/stages/test_faulty_entries.py; git diff tests/stages/faulty_entries.txt
"""

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

import pytest
from prepared_files import write_entry

from figura.base.exit_status import run
from figura.base.yaml12 import parse_yaml
from stages.prepare import main

FILE = Path(__file__).with_name("faulty_entries.txt")
WHOLE = {"source": "raw", "seed": 7, "max_rejected": 0.0}
BLOCKS = [block.splitlines() for block in FILE.read_text().strip().split("\n\n")]


def said(entry: dict[str, Any]) -> list[str]:
    """Return the lines that the stage prints in the current folder."""
    Path("raw/Img/img").mkdir(parents=True, exist_ok=True)
    Path("raw/a.json").write_text('{"images": [], "annotations": [], "categories": []}')
    write_entry("mine", WHOLE | entry)
    text = io.StringIO()
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
        assert run(main, ["mine"]) == 1
    assert not list(Path("data").glob("prepared/*"))
    lines = text.getvalue().replace(str(Path.cwd()), "PROJECT").splitlines()
    return [line.removeprefix("error: ").removeprefix("data/params.yaml: ") for line in lines]


@pytest.mark.parametrize(("entry", "lines"), [(first, rest) for first, *rest in BLOCKS], ids=[one[0] for one in BLOCKS])
def test_a_faulty_entry_is_told_as_the_file_says(entry, lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said(parse_yaml(entry, "entry")) == [line.strip() for line in lines] != []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        renewed = ["\n    ".join([first, *said(parse_yaml(first, "entry"))]) for first, *_ in BLOCKS]
    FILE.write_text("\n\n".join(renewed) + "\n")
