"""Declarations in the table of DL-Art-School can be built, and every injector of the engine stands there."""

import re
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML

import figura.injectors
from figura.base.error_collector import ErrorCollector
from figura.recipe.schema import InjectorEntry, LossEntry, Mode, Recipe, Runtime, StepEntry, Train
from figura.recipe.types import INJECTOR, LOSS, OPTIMIZER, SCHEDULE, SCORE, check_arguments, construct, find_type
from figura.systems import classes_in

PAGE = (Path(__file__).parents[2] / "models/super_resolution/translate_dl_art_school.md").read_text()
SECTIONS = dict(re.findall(r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
SLOTS = {"Injectors": INJECTOR, "Losses": LOSS, "Optimizers": OPTIMIZER, "Schedules": SCHEDULE, "Evaluators": SCORE}
ENTRIES = {"Injectors": InjectorEntry, "Losses": LossEntry}


def slot(section: str, example: str) -> str:
    """Return what an example declares: what its section is about, or an injector, whose type has no dot."""
    is_loss = section == "Losses" and re.match(r"{type: (images|torch\.nn)\.", example)
    return section if is_loss or section in ("Optimizers", "Schedules", "Evaluators") else "Injectors"


EXAMPLES = [
    (slot(section, example), example)
    for section, text in SECTIONS.items()
    for example in re.findall(r"\| `(\{type: [^`]+\})` \|", text)
]


@pytest.mark.parametrize(("section", "example"), EXAMPLES)
def test_an_example_can_be_built(section, example):
    declared = YAML(typ="safe").load(example)
    if section in ENTRIES:
        entry = ENTRIES[section].model_validate(declared)
        kind, arguments = entry.type, entry.arguments
    else:
        kind, arguments = declared.pop("type"), declared
    if kind.startswith("pytorch_optimizer."):
        pytest.importorskip("pytorch_optimizer", reason="needs the extra `optimizers`")
    if kind.startswith(("kornia.", "torchvision.")):
        pytest.importorskip(kind.partition(".")[0])
    errors = ErrorCollector(Path("recipe"))
    if section == "Optimizers":
        check_arguments(find_type(kind, SLOTS[section], "key", errors), arguments, "key", errors, ("params",))
    else:
        construct(kind, arguments, SLOTS[section], "key", errors)
    assert errors.lines == []


OF_PYTORCH = [example for section, example in EXAMPLES if section == "Injectors" and "{type: torch." in example]


@pytest.mark.parametrize("example", OF_PYTORCH)
def test_an_example_of_pytorch_computes(example):
    declared = YAML(typ="safe").load(example)
    injector = construct(declared.pop("type"), declared, INJECTOR, "key", ErrorCollector(Path("recipe")))
    values = {name: torch.rand(2, 1 if name == "grey" else 3, 24, 24) for name in injector.reads}
    results = injector.compute(list(values.values()), 0)
    assert len(results) == len(injector.adds)
    assert all(result.numel() for result in results)


def test_there_are_examples_of_every_injector():
    files = [path for path in Path(figura.injectors.__path__[0]).glob("*.py") if path.stem != "__init__"]
    named = {name for path in files for name in classes_in(path) if name[0] != "_"}
    assert len(named) == 8
    named.remove("SelfEnsemble")  # DL-Art-School has none
    assert {name for name in named if f"{{type: {name}," not in SECTIONS["Injectors"]} == set()
    assert len(EXAMPLES) > 50


def test_keys_in_examples_exist():
    keys = {key for model in (StepEntry, Train, Recipe, Mode, Runtime, LossEntry) for key in model.model_fields}
    found = [example for text in SECTIONS.values() for example in re.findall(r"\| `(\w+: [^`]+)` \|", text)]
    assert len(found) > 25
    assert [example for example in found if not YAML(typ="safe").load(example).keys() <= keys] == []
