"""Which files a module and a type load, found without running them, and what of a file counts."""

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from figura.base.errors import UserError
from figura.code.closure import code_of, module_of_type
from figura.code.syntax import read_source

FILES = {
    "mine/__init__.py": "",
    "mine/losses.py": "from mine import tables\n\n\nclass Wing:\n    pass\n",
    "mine/tables.py": "from pathlib import Path\nTABLE = Path(__file__).with_name('table.json')\n",
    "mine/table.json": "[1]",
    "mine/notes.md": "notes",
    "mine/other.py": "",
    "mine/other.txt": "",
    "alone.py": "import mine.other\n",
    "lazy/__init__.py": "def __getattr__(name):\n    from lazy.heavy import load\n    return load\nlight = 1\n",
    "lazy/heavy.py": "def load():\n    pass\n",
    "asks.py": "from lazy import load\n",
    "light.py": "from lazy import light\n",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_type_of_ones_own_brings_its_module_and_the_data_that_code_reads_beside_itself(own: Path) -> None:
    assert code_of([], ["mine.losses.Wing"]).files.keys() == {
        "mine/__init__.py", "mine/losses.py", "mine/tables.py", "mine/table.json", "mine/other.txt",
    }  # fmt: skip
    before = code_of([], ["mine.losses.Wing"]).files
    (own / "mine/table.json").write_text("[2]")
    after = code_of([], ["mine.losses.Wing"]).files
    assert {path for path in after if after[path] != before[path]} == {"mine/table.json"}


def test_nothing_is_imported(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "mine.losses"):  # of other tests
        monkeypatch.delitem(sys.modules, name, raising=False)
    (own / "mine/losses.py").write_text("raise SystemExit\nclass Wing:\n    pass\n")
    assert "mine/losses.py" in code_of([], ["mine.losses.Wing"]).files
    assert not {"mine", "mine.losses"} & sys.modules.keys()


def test_what_a_package_imports_on_request_counts_for_those_who_ask(own: Path) -> None:
    assert code_of(["asks"]).files.keys() == {"asks.py", "lazy/__init__.py", "lazy/heavy.py"}
    assert code_of(["light"]).files.keys() == {"light.py", "lazy/__init__.py"}


@pytest.mark.parametrize(
    "line", ["importlib.import_module(name)", "__import__('a' + 'b')", "runpy.run_path(Path('x'))"]
)
def test_a_module_of_an_unknown_name_is_an_error_with_its_line(own: Path, line: str) -> None:
    (own / "mine/other.py").write_text(f"import importlib, runpy\n\n\ndef load(name):\n    return {line}\n")
    with pytest.raises(UserError, match=r"mine/other\.py:5: loads a module whose name is no constant"):
        code_of(["alone"])


def test_a_type_of_a_package_brings_the_version_of_the_package() -> None:
    code = code_of([], ["torch.optim.Adam", "Forward", "jpeg", "no.such.Thing"])
    assert code.packages == {"torch": version("torch").partition("+")[0]}
    assert "figura/injectors/forward.py" in code.files


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("images.L1", "models.images.pixel_losses"),
        ("pose.decode.decoding.FindPeople", "models.pose.decode.decoding"),
        ("pose.FindPeople", "models.pose.decode.decoding"),
        ("Linear", "figura.schedules"),
        ("Muon", "figura.optimizers"),
        ("torch.nn.Conv2d", "torch.nn"),
        ("jpeg", None),
    ],
)
def test_types_are_found_by_the_text_of_files(name: str, module: str | None) -> None:
    assert module_of_type(name) == module


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
    ("before", "after", "counts"),
    [
        ("# pixels", "# of a square", False),
        ('"""A module."""\n', "", False),
        ('"""The side."""', '"""Its side, in pixels."""', False),
        ('        """Return it."""\n', "        # nothing\n", False),
        ("import os\n", "import os\n\n\n", False),
        ("x * SIDE", "(x  *  SIDE)", False),
        ("SIDE = 3", "SIDE = 3.0", True),
        ("SIDE = 3", "SIDE = True", True),
        ("import os", "import os as so", True),
        ("x * SIDE", "SIDE * x", True),
        ("'more'", "'More'", True),
        ("""f"{x:.{SIDE}f}" 'more'""", "b'more'", True),
        ("class Loss", "class Less", True),
        ("def forward(self, x)", "def forward(self, x=None)", True),
        (":.{SIDE}f", ":.{SIDE}e", True),
    ],
)
def test_comments_docstrings_and_layout_alone_do_not_count(before: str, after: str, counts: bool) -> None:
    assert before in CODE
    assert (digest(CODE.replace(before, after)) != digest(CODE)) == counts


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
