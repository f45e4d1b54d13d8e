import importlib
import inspect
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Number
from pathlib import Path

import pytest
import torch
import toy

import models
from figura.base.error_collector import ErrorCollector
from figura.interfaces import Loss, Schedule
from figura.recipe.types import (
    CALLBACK,
    DATASET,
    INJECTOR,
    LOSS,
    NETWORK,
    OPTIMIZER,
    PHOTOS,
    PICTURE,
    SCHEDULE,
    SCORE,
    construct,
    find_type,
)
from models.images import pixel_losses as pixel


@pytest.fixture
def errors():
    return ErrorCollector(toy.Path("p.yaml"))


def test_a_package_is_enough_to_name_a_class_below_models(errors):
    assert find_type("images.L1", LOSS, "k", errors) is pixel.L1
    assert find_type("images.pixel_losses.L1", LOSS, "k", errors) is pixel.L1
    assert find_type("models.images.L1", LOSS, "k", errors) is pixel.L1
    people = find_type("pose.FindPeople", INJECTOR, "k", errors)
    assert people is not None
    assert people.__module__ == "models.pose.decode.decoding"
    assert find_type("pose.decode.FindPeople", INJECTOR, "k", errors) is people
    assert find_type("pose.decode.decoding.FindPeople", INJECTOR, "k", errors) is people
    assert not errors.lines


def test_a_name_means_one_class_within_a_package():
    """Of what a recipe can name: a package is searched in all its modules, and the first that has the name is taken."""
    bases = tuple(
        slot.base for slot in (SCHEDULE, INJECTOR, DATASET, PHOTOS, NETWORK, LOSS, OPTIMIZER, CALLBACK, SCORE, PICTURE)
    )
    homes = {}
    root = Path(models.__path__[0]).parent
    files = [path for one in ("models", "figura/injectors") for path in (root / one).rglob("*.py")]
    files.append(root / "figura/optimizers.py")
    for path in sorted(files):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        package = ".".join(module.split(".")[:2])
        for name, kind in inspect.getmembers(
            importlib.import_module(module.removesuffix(".__init__")), inspect.isclass
        ):
            if not name.startswith("_") and kind.__module__ == module and issubclass(kind, bases) and kind not in bases:
                homes.setdefault(package, []).append(name)
    assert {"models.images", "models.pose", "models.vunet", "figura.injectors", "figura.optimizers"} <= homes.keys()
    twice = {package: [name for name, count in Counter(names).items() if count > 1] for package, names in homes.items()}
    assert {package: names for package, names in twice.items() if names} == {}


@pytest.mark.parametrize("name", ["kornia.losses.SSIMLoss", "piq.SSIMLoss"])
def test_a_package_that_is_missing_is_installed_beside_the_pytorch_that_is_here(name, errors, monkeypatch):
    package = name.partition(".")[0]
    monkeypatch.setitem(sys.modules, package, None)
    assert find_type(name, LOSS, "k", errors) is None
    command = f"pip install {package} torch=={torch.__version__.partition('+')[0]}"
    assert errors.lines == [f"p.yaml: k: loss {name!r}: {package} is not installed; `{command}`"]


def test_models_come_before_other_packages(errors, monkeypatch, tmp_path):
    (tmp_path / "pictures.py").write_text(
        "from figura.interfaces import Loss\nclass Near(Loss):\n    where = 'models'\n"
    )
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "pictures.py").write_text("from figura.interfaces import Loss\nclass Near(Loss): where = 'outside'\n")
    monkeypatch.syspath_prepend(str(elsewhere))
    near = find_type("pictures.Near", LOSS, "k", errors)
    assert near is not None
    assert near.where == "models"


def test_files_that_are_no_modules_are_left_out(errors, monkeypatch, tmp_path):
    """An editor's copies and links, a notebook's checkpoints, a folder and a pipe named as modules."""
    text = "from figura.interfaces import Loss\nclass Near(Loss): pass\n"
    for name in (".ipynb_checkpoints/near-checkpoint.py", "near.old.py", "near-copy.py", "sub/near.py"):
        file = tmp_path / "spare" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "spare/.#near.py").symlink_to("nobody@nowhere")
    (tmp_path / "spare/folder.py").mkdir()
    os.mkfifo(tmp_path / "spare/pipe.py")
    (tmp_path / "spare/__init__.py").write_text("RUNS = []\nclass Here: RUNS.append(1)\n")
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    near = find_type("spare.Near", LOSS, "k", errors)
    assert near is not None
    assert near.__module__ == "models.spare.sub.near"
    assert find_type("spare.Here", LOSS, "k", errors) is None
    assert "models.spare.__init__" not in sys.modules
    assert sys.modules["models.spare"].RUNS == [1]


class ConstructedError(Exception):
    pass


class Trap:
    """Says that it was constructed."""

    def __init__(self) -> None:
        raise ConstructedError


class LossTrap(Loss):
    def __init__(self) -> None:
        raise ConstructedError


@pytest.mark.parametrize("slot", [DATASET, NETWORK, INJECTOR, SCHEDULE])
@pytest.mark.parametrize(
    "name", ["test_types.Trap", "subprocess.Popen", "os.system", "figura.interfaces.ExampleDataset"]
)
def test_what_a_slot_does_not_allow_is_never_constructed(name, slot, errors):
    assert construct(name, {}, slot, "k", errors) is None
    (line,) = errors.lines
    assert line.startswith("p.yaml: k.type: ")


def test_what_a_slot_allows_is_constructed(errors):
    with pytest.raises(ConstructedError):
        construct("test_types.LossTrap", {}, LOSS, "k", errors)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import module_that_is_nowhere\n", "1: ModuleNotFoundError: No module named 'module_that_is_nowhere'"),
        ("\nSIZES = [1][2]\n", "2: IndexError: list index out of range"),
        ("class Net:\n    size = = 1\n", "2: SyntaxError: invalid syntax"),
        ("import json\nSIZES = json.loads('{bad')\n", "2: JSONDecodeError: Expecting property name"),
        ("import sys\nsys.exit(0)\n", "2: SystemExit: 0"),
        ("raise ValueError('a\\nb')\n", "1: ValueError: a\\nb"),
    ],
)
def test_what_stops_the_import_of_a_named_module_is_told_with_its_line(errors, monkeypatch, tmp_path, code, told):
    file = tmp_path / "half_written.py"
    file.write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_type("half_written.Net", NETWORK, "networks.painter.type", errors) is None
    (line,) = errors.lines
    where = f"p.yaml: networks.painter.type: network 'half_written.Net': the import of half_written fails at {file}:"
    assert line.startswith(where + told)


def test_a_signal_in_the_middle_of_an_import_is_no_fault_of_the_module(errors, monkeypatch, tmp_path):
    """NumPy, for one, turns whatever stops its import into an ImportError."""
    (tmp_path / "stopped.py").write_text(
        "try:\n    raise KeyboardInterrupt\nexcept BaseException:\n    raise ImportError('broken')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="broken"):
        find_type("stopped.Net", NETWORK, "k", errors)


@dataclass
class Kind:
    """Settings with a value that no check knows."""

    dtype: torch.dtype
    sizes: list[int]


class Cast(Schedule):
    def __init__(self, kind: Kind, size: int, degrees: Number | Sequence[float] = (0.0,)) -> None:  # as torchvision's
        self.kind, self.size, self.degrees = kind, size, degrees


def test_what_pydantic_cannot_check_is_left_to_the_constructor(errors):
    kind = {"dtype": "float16", "sizes": [1]}
    assert construct("test_types.Cast", {"kind": kind, "size": 2}, SCHEDULE, "k", errors).kind == kind
    assert construct("test_types.Cast", {"kind": kind, "size": "2"}, SCHEDULE, "k", errors) is None
    assert errors.lines == ["p.yaml: k.size: found '2'; expected an integer"]


@pytest.mark.parametrize("degrees", [5, 2.5, [-5.0, 5.0]])
def test_an_annotation_may_be_an_abstract_number(degrees, errors):
    arguments = {"kind": {"dtype": "float16", "sizes": [1]}, "size": 2, "degrees": degrees}
    cast = construct("test_types.Cast", arguments, SCHEDULE, "k", errors)
    assert cast.degrees == degrees
