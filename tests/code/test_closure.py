"""Which files a module and a type load, found without running them, and what of a file counts."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version
from pathlib import Path

import pytest

from figura.base.errors import UserError
from figura.pipeline.closure import code_for, code_of, module_of_type
from figura.pipeline.syntax import read_source

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


def test_a_type_of_ones_own_brings_its_module_and_the_data_that_code_reads_beside_itself(own):
    assert code_of([], ["mine.losses.Wing"]).files.keys() == {
        "mine/losses.py", "mine/tables.py", "mine/table.json", "mine/other.txt",
    }  # fmt: skip


CODE_NEVER_SEEN = """
from pathlib import Path
{line}
class Wing:
    pass
"""


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("T = Path(__file__).with_name('t.npy')", "mine/t.npy"),
        ("T = Path(__file__).parent / 'assets' / 'deep' / 't.npy'", "mine/assets/deep/t.npy"),
        ("T = lambda kind: Path(__file__).parent / kind / 't.npy'", "mine/assets/t.npy"),
        ("T = Path(__file__).parent.parent / 'assets' / 't.npy'", "mine/assets/t.npy"),
        ("T = Path(__file__).parents[1] / 'assets' / 't.npy'", "mine/assets/t.npy"),
        ("T = importlib.resources.files('mine') / 'assets/t.npy'", "mine/assets/t.npy"),
        ("T = json.load(open('table.json'))", "table.json"),
        ("T = json.loads(Path('tables', 'a.json').read_bytes())", "tables/a.json"),
        ("T = np.load(os.path.join('tables', 'a.npy'))", "tables/a.npy"),
        ("T = np.load(Path('tables') / 'a.npy')", "tables/a.npy"),
        ("exec(open('m2.py').read())", "m2.py"),
        ("runpy.run_path('scripts/m2.py')", "scripts/m2.py"),
        ("spec_from_file_location('m2', 'scripts/m2.py')", "scripts/m2.py"),
        ("spec_from_file_location('m2', location=Path(__file__).with_name('m2.py'))", "mine/deep/m2.py"),
        ("if not TYPE_CHECKING:\n    import late", "late.py"),
        ("if TYPE_CHECKING or FAST:\n    import late", "late.py"),
        ("from mine import _ext", f"mine/_ext{EXTENSION_SUFFIXES[0]}"),
        ("import _alone", f"_alone{EXTENSION_SUFFIXES[0]}"),
    ],
)
def test_whatever_code_of_ones_own_reads_counts(own, monkeypatch, line, file):
    monkeypatch.chdir(own)
    module = own / (
        "mine/deep/wing.py" if "parent.parent" in line or "parents" in line or "deep/m2" in file else "mine/wing.py"
    )
    for path, text in ((module, CODE_NEVER_SEEN.format(line=line)), (own / file, "a = 1\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    name = ".".join(module.relative_to(own).with_suffix("").parts)
    before = code_of([], [f"{name}.Wing"]).files
    (own / file).write_text("a = 2\n")
    after = code_of([], [f"{name}.Wing"]).files
    assert {path for path in after if after[path] != before[path]} == {file}


SETUPTOOLS = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "mylab"
version = "0.1"
[tool.setuptools]
packages = ["mylab"]
"""
HATCHLING = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "mylab"
version = "0.1"
[tool.hatch.build]
dev-mode-dirs = ["src"]
[tool.hatch.build.targets.wheel]
packages = ["src/mylab"]
"""
ASK = "from figura.pipeline.closure import code_of; print(*code_of([], ['mylab.losses.Wing']).files.items(), sep='\\n')"
SITE = sysconfig.get_path("purelib")


def installed(folder: Path, *options: str) -> Path:
    """Install a package offline into a new environment; return its Python."""
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    offline = ["--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check", "-q"]
    command = [sys.executable, "-m", "pip", "--python", python, "install", *offline, *options]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": SITE}, check=True, capture_output=True)
    return python


@pytest.mark.parametrize(
    ("build", "place", "options"),
    [
        (SETUPTOOLS, "mylab", []),  # a finder on sys.meta_path
        (SETUPTOOLS, "mylab", ["--config-settings", "editable_mode=strict"]),  # a folder of links
        (SETUPTOOLS + 'package-dir = {mylab = "code"}\n', "code", []),  # of another name
        (HATCHLING, "src/mylab", []),  # a .pth
    ],
)
def test_an_edit_of_a_package_that_pip_installed_as_editable_counts(tmp_path, build, place, options):
    package = tmp_path / "lab" / place
    package.mkdir(parents=True)
    (tmp_path / "lab/pyproject.toml").write_text(build)
    (package / "__init__.py").touch()
    (package / "losses.py").write_text("from mylab import tables\nclass Wing:\n    factor = 1.0\n")
    (package / "tables.py").write_text("from pathlib import Path\nTABLE = Path(__file__).parents[0]\n")
    python = installed(tmp_path, *options, "-e", str(tmp_path / "lab"))

    def ask() -> list[str]:
        path = {"PYTHONPATH": os.pathsep.join([str(ROOT), SITE])}
        done = subprocess.run([python, "-c", ASK], env=os.environ | path, capture_output=True, text=True, check=False)
        return sorted(done.stdout.splitlines()) or [done.stderr]

    before = ask()
    assert [line.split("'")[1] for line in before] == ["mylab/losses.py", "mylab/tables.py"]
    (package / "losses.py").write_text("from mylab import tables\nclass Wing:\n    factor = 3.0\n")
    after = ask()
    assert [new == old for new, old in zip(after, before, strict=True)] == [False, True]


def test_packages_of_pip_target_are_not_ones_own(own, tmp_path):
    """A folder of PYTHONPATH has a package of one's own beside installed ones, whose code would be refused."""
    lab = tmp_path / "lab"
    (lab / "vision").mkdir(parents=True)
    (lab / "pyproject.toml").write_text(SETUPTOOLS.replace("mylab", "vision"))
    (lab / "vision/__init__.py").write_text("import importlib\ndef load(name):\n    importlib.import_module(name)\n")
    (lab / "vision/losses.py").write_text("class Far:\n    pass\n")
    installed(tmp_path, "--target", str(own), str(lab))
    (own / "mine/losses.py").write_text("import vision.losses\nclass Wing:\n    pass\n")
    code = code_of([], ["mine.losses.Wing", "vision.losses.Far"])
    assert code.files.keys() == {"mine/losses.py"}
    assert code.packages == {"vision": "0.1"}


def test_a_package_whose_files_are_nowhere_is_an_error(own, tmp_path):
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as archive:
        archive.writestr("zipped/__init__.py", "")
    sys.path.insert(0, str(tmp_path / "zipped.zip"))  # `own` takes it away
    (own / "mine/losses.py").write_text("import zipped\nclass Wing:\n    pass\n")
    with pytest.raises(UserError, match=r"^zipped: lies in .*zipped\.zip/zipped, which cannot be read"):
        code_of([], ["mine.losses.Wing"])


def test_an_editable_package_that_no_finder_shows_is_an_error(own, tmp_path):
    """As flit's `--symlink` leaves it."""
    site = own / "site-packages"
    (site / "linked-1.dist-info").mkdir(parents=True)
    (site / "linked-1.dist-info/METADATA").write_text("Name: linked\nVersion: 1\n")
    (site / "linked-1.dist-info/direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///x"}')
    (tmp_path / "src").mkdir()
    (tmp_path / "src/__init__.py").touch()
    (site / "linked").symlink_to(tmp_path / "src")
    sys.path.insert(0, str(site))
    (own / "mine/losses.py").write_text("import linked\nclass Wing:\n    pass\n")
    with pytest.raises(UserError, match=r"^linked: installed in editable mode, but its files cannot be found"):
        code_of([], ["mine.losses.Wing"])


def test_nothing_is_imported(own, monkeypatch):
    for name in ("mine", "mine.losses"):  # of other tests
        monkeypatch.delitem(sys.modules, name, raising=False)
    (own / "mine/losses.py").write_text("raise SystemExit\nclass Wing:\n    pass\n")
    assert "mine/losses.py" in code_of([], ["mine.losses.Wing"]).files
    assert not {"mine", "mine.losses"} & sys.modules.keys()


def test_a_folder_may_be_called_like_a_function_that_is_imported(own):
    (own / "load").mkdir()
    (own / "asks.py").write_text("from lazy.heavy import load\n")
    assert {*code_of(["asks"]).files} == {"asks.py", "lazy/__init__.py", "lazy/heavy.py"}


def test_what_a_package_imports_on_request_counts_for_those_who_ask(own):
    assert code_of(["asks"]).files.keys() == {"asks.py", "lazy/__init__.py", "lazy/heavy.py"}
    assert code_of(["light"]).files.keys() == {"light.py", "lazy/__init__.py"}


CHOOSES = """
IMPORTED_FOR = {".near": ("near", "nearer"), "mine.far": ("far",)}
class Chooses:
    def __init__(self, name):
        if name == "far":
            from mine import far
            far.chosen()
        else:
            from .near import chosen
            chosen()
"""


def test_what_a_module_imports_for_words_of_a_recipe_counts_for_recipes_with_these_words(own):
    (own / "mine/chooses.py").write_text(CHOOSES)
    for name in ("near", "far"):
        (own / f"mine/{name}.py").write_text("def chosen():\n    pass\n")

    def files(name: str) -> dict[str, str]:
        settings = {"networks": {"one": {"type": "mine.chooses.Chooses", "of": [{"name": name}]}}}
        return code_for([], settings).files

    both = {"mine/chooses.py", "mine/near.py", "mine/far.py"}
    assert files("nearer").keys() == both - {"mine/far.py"}
    assert files("far").keys() == both - {"mine/near.py"}
    assert files("neither").keys() == {"mine/chooses.py"}
    assert code_of([], ["mine.chooses.Chooses"]).files.keys() == both  # of no recipe
    before = files("far"), files("near")
    (own / "mine/far.py").write_text("def chosen():\n    print()\n")
    assert [one == other for one, other in zip(before, (files("far"), files("near")), strict=True)] == [False, True]
    (own / "mine/chooses.py").write_text(CHOOSES.replace('("far",)', "FAR"))  # whose words are not known
    assert files("neither").keys() == both


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("images.L1", False),
        ("Muon", False),
        ("torch.optim.Adam", False),  # no optimizer is adapted
        ("torch.cat", True),
        ("mine.losses.Wing", True),
    ],
)
def test_adapters_of_parts_count_for_types_that_are_none_of_figuras_classes(own, kind, counts):
    assert ("figura/engine/package_parts.py" in code_of(["figura.engine.build"], [kind]).files) == counts


@pytest.mark.parametrize(
    "line",
    [
        "importlib.import_module(name)",
        "__import__('a' + 'b')",
        "runpy.run_path(Path(name))",
        "spec_from_file_location('m2', name)",
        "exec(open(name, 'rb').read())",
        "exec(name)",
    ],
)
def test_a_module_of_an_unknown_name_is_an_error_with_its_line(own, line):
    (own / "mine/other.py").write_text(f"import importlib, runpy\n\n\ndef load(name):\n    return {line}\n")
    with pytest.raises(UserError, match=r"mine/other\.py:5: loads a module or file whose name is no constant"):
        code_of(["alone"])


def test_a_type_of_a_package_brings_the_version_of_the_package():
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
def test_types_are_found_by_the_text_of_files(name, module):
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
def test_comments_docstrings_and_layout_alone_do_not_count(before, after, counts):
    assert before in CODE
    assert (digest(CODE.replace(before, after)) != digest(CODE)) == counts


def test_imports_are_found_wherever_they_stand():
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
def test_other_versions_of_python_give_the_same_hashes(version):
    python = shutil.which(f"python{version}")
    code = (
        "import sys, pathlib\nsys.path.insert(0, sys.argv[1])\nfrom figura.pipeline.syntax import read_source\n"
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
