"""figura/commands/schema.py: the committed schema is up to date, takes every recipe, and names each mistake."""

import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, ValidationError

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.commands.schema import FILE, main, schema, text
from figura.recipe.load import check_recipe

ROOT = Path(__file__).parents[2]
PARTS = {*ROOT.glob("recipes/pose_*/*"), *ROOT.glob("recipes/shared/*")}
RECIPES = [ROOT / "params.yaml", *sorted(set(ROOT.glob("recipes/**/*.yaml")) - PARTS)]
COMMENT = "# yaml-language-server: $schema="
DROP = object()
LINEAR = {"type": "Linear", "start": 0, "end": 9, "from": 0.0, "to": 1.0}


@cache
def committed() -> Draft7Validator:
    content = json.loads((ROOT / FILE).read_text())
    Draft7Validator.check_schema(content)
    return Draft7Validator(content)


def changed(recipe: str, **changes: Any) -> dict[str, Any]:
    """Return a recipe with values at dotted keys, written with `__` for the dots; `DROP` takes a key away."""
    content = read_yaml(ROOT / recipe)
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        section = content
        for name in parents:
            section = section.setdefault(name, {})
        if value is DROP:
            del section[last]
        else:
            section[last] = value
    return content


def faults(content: dict[str, Any], by: Draft7Validator | None = None) -> list[tuple[str, str]]:
    """Return the dotted key and the message of each fault; of alternatives, those of the one that fits best."""
    return [
        (".".join(map(str, one.absolute_path)), one.message) for one in leaves((by or committed()).iter_errors(content))
    ]


def leaves(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    for error in errors:
        if error.validator == "anyOf":
            branches: dict[Any, list[ValidationError]] = {}
            for one in error.context:
                branches.setdefault(one.schema_path[0], []).append(one)
            yield from leaves(
                max(
                    branches.values(),
                    key=lambda branch: max(len(one.path) + (one.validator != "type") for one in branch),
                )
            )
        else:
            yield error


def test_the_committed_schema_is_up_to_date():
    assert text(schema([])) == (ROOT / FILE).read_text(), "figura schema writes it anew"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_recipe_names_the_schema_and_follows_it(path):
    first = path.read_text().splitlines()[0]
    assert first == COMMENT + os.path.relpath(ROOT / FILE, path.parent)
    assert faults(read_yaml(path)) == []


TYPOS = [
    # a key: of the file, of a section, of an entry, of a gate, of a nested map
    ("params.yaml", "", "lossses", {"lossses": {}}),
    ("params.yaml", "train.ema", "decai", {"train__ema__decai": 0.9}),
    ("params.yaml", "losses.KL", "wieght", {"losses__KL__wieght": 1.0}),
    ("recipes/flow.yaml", "evaluate.modes.prior.injectors.generate", "only",
     {"evaluate__modes__prior__injectors__generate__only": "training"}),
    # a name that is none
    ("params.yaml", "losses", "KL-2", {"losses__KL-2": {"type": "images.L1", "inputs": {}, "weight": 1.0}}),
    # an argument: of each kind of type, of a dataset whose type stands in `common`, of a map in an argument
    ("params.yaml", "networks.generator", "nf_strat", {"networks__generator__nf_strat": 16}),
    ("params.yaml", "losses.color_L1.inputs", "imge", {"losses__color_L1__inputs__imge": "image"}),
    ("params.yaml", "losses.KL.schedule", "ende", {"losses__KL__schedule__ende": 3}),
    ("params.yaml", "steps.generator.optimizer", "momentun", {"steps__generator__optimizer__momentun": 0.9}),
    ("params.yaml", "data.common", "image_sise", {"data__common__image_sise": 64}),
    ("params.yaml", "evaluate.data.people", "splt", {"evaluate__data__people__splt": "test"}),
    ("recipes/unpaired/cyclegan.yaml", "metrics.scores.frechet", "images",
     {"metrics__scores__frechet__images": "fake_y"}),
    ("recipes/unpaired/cyclegan.yaml", "predict.data", "layouts", {"predict__data__layouts": "pairs"}),
    ("recipes/pose.yaml", "data.train.scenes.augmentation", "blurr",
     {"data__train__scenes__augmentation__blurr": {"chance": 0.1}}),
    # a type: of ours, without a dot, of torch, of another kind
    ("params.yaml", "losses.KL.type", "vunet.LatentKl", {"losses__KL__type": "vunet.LatentKl"}),
    ("params.yaml", "steps.generator.optimizer.type", "torch.optim.Adm",
     {"steps__generator__optimizer__type": "torch.optim.Adm"}),
    ("params.yaml", "networks.generator.type", "images.L1", {"networks__generator__type": "images.L1"}),
    # what another entry lends does not excuse the rest; a share is one of a whole training
    ("params.yaml", "losses.color_L2", "wieght", {"losses__color_L2__wieght": 1.0}),
    ("params.yaml", "losses.KL.schedule.end", "half", {"losses__KL__schedule__end": "half"}),
    # a value: text, a fraction, a number out of range, another word, null
    ("params.yaml", "losses.KL.weight", "twelve", {"losses__KL__weight": "twelve"}),
    ("params.yaml", "train.steps", "14.5", {"train__steps": 14.5}),
    ("params.yaml", "train.precision", "fp12", {"train__precision": "fp12"}),
    ("params.yaml", "steps.generator.optimizer.betas", "[0.9]", {"steps__generator__optimizer__betas": [0.9]}),
    # something is missing
    ("params.yaml", "", "seed", {"seed": DROP}),
    ("params.yaml", "losses.color_L1.inputs", "target", {"losses__color_L1__inputs__target": DROP}),
]  # fmt: skip


@pytest.mark.parametrize(("recipe", "key", "word", "changes"), TYPOS, ids=[f"{one[1]}-{one[2]}" for one in TYPOS])
def test_a_mistake_is_found_where_it_is(recipe, key, word, changes):
    content = changed(recipe, **changes)
    found = faults(content)
    assert any(path == key and word in message for path, message in found), found
    assert {path for path, _ in found} == {key}, found
    with pytest.raises(UserError):  # no schema is stricter than the check
        check_recipe(content, Path(recipe))


@pytest.mark.parametrize(
    "changes",
    [
        {"losses__KL__type": "mypackage.losses.Wing", "losses__KL__anything": 1},
        {"networks__generator": {"type": "timm.create_model", "model_name": "resnet18"}},
        {"losses__KL__schedule": None, "runtime__samples": None},
        {"losses__KL__schedule": {"type": "WarmUp", "steps": 3, "then": LINEAR}},
        {"steps__generator__injectors__noise": {"type": "Noise", "output": "noise", "like": "image", "scale": LINEAR}},
        {"evaluate__data": {"others": {"type": "images.ImagePairs", "root": "data/prepared/pairs"}}},
    ],
)
def test_what_figura_accepts_passes(changes):
    assert faults(changed("params.yaml", **changes)) == []


def test_an_editor_can_complete():
    """It finds types, with a sentence on each, arguments with defaults, and words to choose from."""
    definitions = committed().schema["definitions"]
    losses = definitions["LossEntry"]["properties"]["type"]["anyOf"][0]
    said = dict(zip(losses["enum"], losses["enumDescriptions"], strict=True))
    assert {"images.L1", "images.Perceptual", "vunet.LatentKL", "pose.Composite"} <= said.keys()
    assert said["images.L1"] == "Absolute difference (`color_L1`)."
    argument = definitions["LossEntry.images.L1"]["properties"]["background"]
    assert argument == {
        "type": "number", "minimum": 0.0, "default": 1.0, "description": "weight of elements where the mask is 0."
    }  # fmt: skip
    assert definitions["Train"]["properties"]["precision"]["enum"] == ["no", "fp16", "bf16"]
    assert "2-norm" in definitions["StepEntry"]["properties"]["clip"]["description"]
    assert definitions["Optimizer.torch.optim.Adam"]["properties"]["lr"]["default"] == 0.001


def test_modules_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_losses.py").write_text(
        "from torch import Tensor\n\nfrom figura.interfaces import Loss\n\n\n"
        "class Wing(Loss):\n    def __init__(self, width: float) -> None:\n        self.width = width\n\n"
        "    def forward(self, *, image: Tensor) -> Tensor:\n        return image\n"
    )
    output = tmp_path / "schema.json"
    main(["own_losses", "--output", str(output)])
    by = Draft7Validator(json.loads(output.read_text()))
    entry = {"type": "own_losses.Wing", "width": 1.0, "inputs": {"image": "image"}, "weight": 1.0}
    assert faults(changed("params.yaml", losses__wing=entry), by) == []
    assert faults(changed("params.yaml", losses__wing=entry | {"widht": 1.0}), by) != []
    with pytest.raises(UserError, match="No module named 'own_loses'"):
        main(["own_loses", "--output", str(output)])


def test_outside_of_a_project_no_folder_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="recipes: no such folder; go to the root of a project"):
        main([])
    main(["--output", "schema.json"])
    assert capsys.readouterr().out == "wrote schema.json\n"
    assert [path.name for path in tmp_path.iterdir()] == ["schema.json"]
