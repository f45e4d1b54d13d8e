"""Arguments that a recipe may not have: each is one line, with its key, what was found and what is allowed."""

from pathlib import Path

import pytest

from figura.base.error_collector import ErrorCollector
from figura.recipe.types import DATASET, INJECTOR, LOSS, NETWORK, PHOTOS, SCORE, construct

SMALL = {"backbone": {"name": "small"}, "heads": {"cif": {"fields": 1}}}


def backbone(name, **options):
    return {**SMALL, "backbone": {"name": name, **options}}


def head(**settings):
    return {**SMALL, "heads": {"cif": settings}}


def scenes(head, **more):
    return {"root": ".", "split": "train", "side": 65, "heads": {"a": head}} | more


WRONG = [
    (DATASET, "pose.Scenes", scenes({"kind": "cifs", "stride": 8}), "heads.a.kind 'cifs' (did you mean 'cif'?)"),
    (DATASET, "pose.Scenes", scenes({"kind": "cif"}), "heads.a.stride: missing; Cif needs it"),
    (DATASET, "pose.Scenes", scenes({"kind": "caf", "stride": 8, "connections": "all"}), "heads.a.connections: found "),
    (PHOTOS, "pose.Photos", {"multiple": 16}, "side: missing, and the training data tell none"),
    (NETWORK, "pose.PoseNetwork", backbone("resnet50", pool0_stride=2, input_conv2=True), "pool0_stride 0 is needed"),
    (
        NETWORK, "pose.PoseNetwork", backbone("resnet50", block5_dilation=2, remove_last_block=True),
        "no last block to dilate",
    ),
    (NETWORK, "pose.PoseNetwork", backbone("shufflenetv2k16", kernel=4), "kernel 4: an odd width"),
    (NETWORK, "pose.PoseNetwork", backbone("shufflenetv2k16", input_conv2_channels=8), "needs input_conv2"),
    (
        NETWORK, "pose.PoseNetwork",
        backbone("shufflenetv2k16", norm="group", input_conv2=True, input_conv2_channels=97),
        "norm group: 97 channels are no multiple of 2 to 4 groups",
    ),
    (NETWORK, "pose.PoseNetwork", head(fields=2, spreads="vector"), "spreads: this key is now called 'log_scales'"),
    (NETWORK, "pose.PoseNetwork", {**SMALL, "heads": {"limbs": {"fields": 25}}}, "heads.limbs.kind: missing"),
    (NETWORK, "pose.TaskWeights", {"heads": ["cif", "cif"]}, "names of one or more different heads"),
    (LOSS, "pose.Composite", {"head": "cifdet", "confidence": 0.0, "vector": 0.0}, "cifdet has no component left"),
    (INJECTOR, "pose.Overlays", {"image": "image", "output": "drawn"}, "people and objects are both left out"),
    (SCORE, "pose.PoseConsistency", {"mode": "a", "kind": "b", "results": "c"}, "one of them says which poses"),
]  # fmt: skip


@pytest.mark.parametrize(("slot", "name", "arguments", "said"), WRONG, ids=lambda one: str(one)[:60])
def test_a_wrong_argument_is_one_line(slot, name, arguments, said):
    errors = ErrorCollector(Path("recipe.yaml"))
    construct(name, arguments, slot, "entry", errors)
    (line,) = errors.lines
    assert line.startswith("recipe.yaml: entry")
    assert said in line
