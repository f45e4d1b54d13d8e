"""Every declaration in docs/dl_art_school.md can be built, and every injector of the engine stands there."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from models.engine.injecting import injectors
from models.engine.problems import Problems
from models.engine.recipes.schema import InjectorEntry, LossEntry, Mode, Recipe, Runtime, StepEntry, Train
from models.engine.recipes.slots import INJECTOR, LOSS, OPTIMIZER, SCORE
from models.engine.recipes.types import SCHEDULE, check_arguments, construct, find_type

PAGE = (Path(__file__).parents[2] / "docs/dl_art_school.md").read_text()
SECTIONS = dict(re.findall(r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
SLOTS = {"Injectors": INJECTOR, "Losses": LOSS, "Optimizers": OPTIMIZER, "Schedules": SCHEDULE, "Evaluators": SCORE}
ENTRIES = {"Injectors": InjectorEntry, "Losses": LossEntry}
EXAMPLES = [
    (section, example) for section in SLOTS for example in re.findall(r"\| `(\{type: [^`]+\})` \|", SECTIONS[section])
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
    problems = Problems(Path("recipe"))
    if section == "Optimizers":
        check_arguments(find_type(kind, SLOTS[section], "key", problems), arguments, "key", problems, ("params",))
    else:
        construct(kind, arguments, SLOTS[section], "key", problems)
    assert problems.lines == []


def test_there_are_examples_of_every_injector():
    named = {name for name in vars(injectors) if find_type(name, INJECTOR, "", Problems(Path())) is not None}
    assert len(named) > 20
    assert {name for name in named if f"{{type: {name}," not in SECTIONS["Injectors"]} == set()
    assert len(EXAMPLES) > 70


def test_keys_in_examples_exist():
    keys = {key for model in (StepEntry, Train, Recipe, Mode, Runtime, LossEntry) for key in model.model_fields}
    sections = ("Steps", "Evaluators", "The rest")
    found = [e for section in sections for e in re.findall(r"\| `(\w+: [^`]+)` \|", SECTIONS[section])]
    assert len(found) > 15
    assert [example for example in found if not YAML(typ="safe").load(example).keys() <= keys] == []
