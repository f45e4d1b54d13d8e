"""`extends`: what an entry takes from another one, of its file or of another file, and what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml, to_yaml
from figura.pipeline.dag import Instance
from figura.pipeline.manifests import settings_of
from figura.recipe.assignments import overridden
from figura.recipe.expansion import expanded, extended_files

ROOT = Path(__file__).parents[2]
RECIPE = """
steps:
  G:
    trains: [net]
    injectors:
      draw: {type: Forward, inputs: {x: x}, args: {mode: train}, only: training, after: 5}
      judge: {network: judge}
losses:
  real: {type: L1, inputs: {logits: real}, weight: 0.5}
  fake: {extends: real, inputs: {logits: fake}}
evaluate:
  modes:
    again: {extends: plain, repeat: 3}
    plain:
      extends: steps.G
      injectors:
        draw: {args: {mode: mean}}
        more: {type: Noise, like: x}
      save: {image: image}
    other:
      extends: evaluate.modes.again
      injectors:
        draw: {inputs: {y: y}}
        judge: {extends: draw, args: {}}
    fewer: {extends: plain, injectors: {judge: null}, save: null}
  grids:
    all: {rows: [x], injectors: {one: {extends: evaluate.modes.other.injectors.draw}}}
metrics:
  scores: {extends: "base.yaml#metrics.scores", l2: {extends: l1, power: 2}, l0: null}
predict:
  injectors: {extends: evaluate.modes.plain.injectors, track: {type: Track}}
"""
BASE = "metrics: {scores: {l1: {extends: l0, mode: plain}, l0: {type: Distance, image: image}}}"
DRAW: dict[str, Any] = {"type": "Forward", "inputs": {"x": "x"}, "args": {"mode": "mean"}}
PLAIN = {"draw": DRAW, "judge": {"network": "judge", "type": "Forward"}, "more": {"type": "Noise", "like": "x"}}
L1 = {"type": "Distance", "image": "image", "mode": "plain"}
BY_HAND: dict[str, Any] = {
    "losses.fake": {"type": "L1", "inputs": {"logits": "fake"}, "weight": 0.5},
    "evaluate.modes.plain": {"injectors": PLAIN, "save": {"image": "image"}},
    "evaluate.modes.again": {"injectors": PLAIN, "save": {"image": "image"}, "repeat": 3},
    "evaluate.grids.all": {"rows": ["x"], "injectors": {"one": DRAW | {"inputs": {"y": "y"}}}},
    "evaluate.modes.other.injectors.draw": DRAW | {"inputs": {"y": "y"}},
    "evaluate.modes.other.injectors.more": PLAIN["more"],
    "evaluate.modes.fewer": {"injectors": {"draw": DRAW, "more": PLAIN["more"]}, "save": None},
    "metrics.scores": {"l1": L1, "l2": L1 | {"power": 2}},
    "predict.injectors": PLAIN | {"track": {"type": "Track"}},
}


def _at(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content[part]
    return content


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)
    content = parse_yaml(RECIPE, "recipe")
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("key", BY_HAND)
def test_entries_are_as_written_by_hand(recipe: dict[str, Any], key: str) -> None:
    before = json.dumps(recipe)
    errors = ErrorCollector(Path("recipe.yaml"))
    assert _at(expanded(recipe, errors), key) == BY_HAND[key]
    assert json.dumps(recipe) == before


def test_faults_are_told_where_they_are_written(recipe: dict[str, Any]) -> None:
    errors = ErrorCollector(Path("recipe.yaml"))
    expanded(recipe, errors)
    for key in ("evaluate.modes.again.injectors.draw.args", "evaluate.modes.again.injectors.draw.inputs"):
        errors.add(key, "wrong")
    assert errors.lines == [
        "recipe.yaml: evaluate.modes.plain.injectors.draw.args: wrong",
        "recipe.yaml: steps.G.injectors.draw.inputs: wrong",
    ]


@pytest.mark.parametrize(
    ("base", "fault"),
    [
        (None, "recipe.yaml: metrics.scores.extends: base.yaml: no such file"),
        ("metrics: {scores: {l1: {extends: l3}, l2: {}}}", "base.yaml: metrics.scores.l1.extends: unknown entry 'l3'"),
        (
            "metrics: {scores: {extends: 'recipe.yaml#metrics.scores'}}",
            "base.yaml: metrics.scores.extends: found 'recipe.yaml#metrics.scores', which extends or has this entry",
        ),
    ],
)
def test_another_file_is_named(recipe: dict[str, Any], base: str | None, fault: str) -> None:
    Path("base.yaml").unlink()
    if base is not None:
        Path("base.yaml").write_text(base)
    with pytest.raises(UserError) as caught:
        expanded(recipe, ErrorCollector(Path("recipe.yaml")))
    assert str(caught.value).startswith(fault)


def test_a_value_set_on_the_command_line_keeps_what_is_inherited(recipe: dict[str, Any]) -> None:
    again = ["evaluate.modes.again.injectors.draw.args.mode=train"]
    changed = overridden(recipe, again, ("evaluate",), Path("recipe.yaml"))["evaluate"]["modes"]["again"]
    inherited = BY_HAND["evaluate.modes.again"]
    assert changed["injectors"]["draw"] == inherited["injectors"]["draw"] | {"args": {"mode": "train"}}
    assert changed["save"] == inherited["save"]


def test_a_manifest_has_the_settings_that_dvc_does_not_see(recipe: dict[str, Any]) -> None:
    """DVC compares the text of `metrics`, which stays, and cannot track `callbacks`, which may be missing."""
    callbacks = {"freeze": {"type": "figura.callbacks.Freeze", "network": "net", "until": 100}}
    Path("recipe.yaml").write_text(to_yaml(recipe))
    Path("other.yaml").write_text(to_yaml(recipe | {"callbacks": callbacks}))
    params, files = [("recipe.yaml", "evaluate"), ("recipe.yaml", "metrics"), ("other.yaml", "steps")], set[Path]()
    scores = {"l1": L1}
    assert settings_of(Instance("metrics@toy", (), (), (), tuple(params)), files) == {
        "recipe.yaml: metrics": {"scores": scores | {"l2": scores["l1"] | {"power": 2}}},
        "other.yaml: callbacks": callbacks,
    }
    assert files == {Path("recipe.yaml"), Path("other.yaml"), Path("base.yaml")}


def test_files_that_extend_each_other_are_found_once(recipe: dict[str, Any]) -> None:
    Path("base.yaml").write_text("metrics: {scores: {extends: 'more.yaml#metrics.scores'}}")
    Path("more.yaml").write_text("metrics: {scores: {extends: 'base.yaml#metrics.scores'}}")
    assert extended_files(recipe) == {Path("base.yaml"), Path("more.yaml")}
