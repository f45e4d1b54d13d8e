"""What of a file counts: its syntax tree, not its comments, docstrings and layout; what it imports."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from figura.code.syntax import read_source

ROOT = Path(__file__).parents[2]
CODE = '''"""A module."""
import os
from . import near
from .deep.inner import one

SIDE = 3  # pixels
"""The side."""


class Loss:
    """A loss."""

    def forward(self, x):
        """Return it."""
        from late import thing
        return x * SIDE + f"{x:.{SIDE}f}" 'more'
'''


def digest(text: str) -> str:
    return read_source(text.encode(), "package").digest


@pytest.mark.parametrize(
    "edit",
    [
        ("# pixels", "# of a square"),
        ('"""A module."""\n', ""),
        ('"""The side."""', '"""Its side, in pixels."""'),
        ('        """Return it."""\n', "        # nothing\n"),
        ("import os\n", "import os\n\n\n"),
        ("x * SIDE", "(x  *  SIDE)"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(edit: tuple[str, str]) -> None:
    assert edit[0] in CODE
    assert digest(CODE.replace(*edit)) == digest(CODE)


@pytest.mark.parametrize(
    "edit",
    [
        ("SIDE = 3", "SIDE = 3.0"),
        ("SIDE = 3", "SIDE = True"),
        ("import os", "import os as so"),
        ("x * SIDE", "SIDE * x"),
        ("'more'", "'More'"),
        ("'more'", "b'more'"),
        ("class Loss", "class Less"),
        ("def forward(self, x)", "def forward(self, x=None)"),
        (":.{SIDE}f", ":.{SIDE}e"),
    ],
)
def test_everything_else_counts(edit: tuple[str, str]) -> None:
    assert edit[0] in CODE
    changed = CODE.replace(*edit) if edit[1][:2] != "b'" else CODE.replace("""f"{x:.{SIDE}f}" 'more'""", "b'more'")
    assert digest(changed) != digest(CODE)


def test_code_that_is_no_python_counts_by_its_bytes() -> None:
    assert digest("def (") != digest("def  (")
    assert read_source(b"def (", "").imports == ()


def test_imports_are_found_wherever_they_stand() -> None:
    text = (
        CODE
        + "\nif TYPE_CHECKING:\n    import never\nelse:\n    import always\ntry:\n    import a.b\nexcept E:\n    pass\n"
    )
    text += "import_module('by.name')\nimportlib.import_module(name)\n"
    source = read_source(text.encode(), "package")
    assert set(source.imports) == {
        "os", "package", "package.near", "package.deep.inner", "package.deep.inner.one", "late", "late.thing", "always",
        "a.b", "by.name",
    }  # fmt: skip
    assert source.unknown == (text[: text.index("importlib.import_module(name)")].count("\n") + 1,)


def test_what_a_module_imports_on_request_is_told_apart() -> None:
    source = read_source(b"from a import b\ndef __getattr__(name):\n    from c import d\n    return d\n", "package")
    assert set(source.imports) == {"a", "a.b"}
    assert set(source.on_request) == {"c", "c.d"}


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_other_versions_of_python_give_the_same_hashes(version: str) -> None:
    python = shutil.which(f"python{version}")
    code = (
        "import sys, pathlib\nsys.path.insert(0, sys.argv[1])\nfrom figura.code.syntax import read_source\n"
        "for path in sorted(pathlib.Path(sys.argv[1], 'models').rglob('*.py')):\n"
        "    print(path, read_source(path.read_bytes(), 'package').digest)\n"
    )
    command = ["-B", "-c", code, str(ROOT)]
    theirs = subprocess.run([python or "", *command], capture_output=True, text=True, check=False) if python else None
    if theirs is None or theirs.returncode == 127 or "not found" in theirs.stderr:
        pytest.skip(f"there is no Python {version}")
    ours = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    assert len(ours.stdout.splitlines()) > 50
    assert theirs.stdout == ours.stdout, theirs.stderr
