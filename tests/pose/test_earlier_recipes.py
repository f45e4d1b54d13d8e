"""Recipes that train by the losses before 0.13: a head option, and one error where head and loss differ."""

import drawn_scenes
import pytest
import torch

from figura.base.errors import UserError
from figura.training.trainer import Trainer
from models.pose.pose_network import PoseNetwork

LAWS = {"Paper2019": "linear", "BceLaplace11": "exp", "BceLaplace12": "softplus"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    drawn_scenes.write(folder)
    return folder


def by(loss, log_scales="vector", law=None):
    """The changes of a recipe that trains every head by an earlier loss."""
    options = {"log_scales": log_scales, "scale_law": law or LAWS[loss]}
    changes = {
        f"networks.network.heads.{kind}.{key}": value for kind in drawn_scenes.KINDS for key, value in options.items()
    }
    for kind in drawn_scenes.KINDS:
        inputs = {"fields": kind, "target": f"{kind}_target"}
        changes[f"losses.{kind}"] = {"type": f"pose.{loss}", "head": kind, "inputs": inputs, "weight": 1.0}
    return changes


@pytest.mark.parametrize("loss", LAWS)
def test_a_recipe_trains_by_an_earlier_loss(root, run, loss):
    trainer = Trainer(drawn_scenes.checked(root, by(loss)), run)
    network = trainer.networks.live["network"]
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    trainer.fit()
    parts = ("confidence", "vector", "scale")
    without = (
        {"cifdet.scale", "caf.scale"} if loss == "Paper2019" else {"cifdet.scale"}
    )  # the paper's weight there is 0
    expected = {f"{kind}.{part}" for kind in drawn_scenes.KINDS for part in parts} - without
    for row in trainer.loss_log.train:
        assert {name.removesuffix(".raw") for name in row if name.count(".") == 2 and name.endswith(".raw")} == expected
        assert row["network.skipped"] == 0
    for kind, vectors, scales in (("cif", 1, 1), ("caf", 2, 2), ("cifdet", 2, 0)):
        name = f"head_nets.{kind}.conv.weight"
        moved = (network.state_dict()[name] != before[name]).flatten(1).any(dim=1)
        components = 1 + 3 * vectors + scales
        moved = moved.view(-1, components, 4).any(dim=2).any(dim=0).tolist()  # 4 = upsample squared
        still = [False] * scales if loss == "Paper2019" and kind == "caf" else [True] * scales
        assert moved == [True] * (1 + 3 * vectors) + still
    fields = network.eval()(torch.zeros(1, 3, 65, 65), decode=True)
    assert {kind: found.shape[2] for kind, found in fields.items()} == {"cif": 5, "caf": 8, "cifdet": 6}
    assert ((fields["caf"][:, :, 1] > 0) & (fields["caf"][:, :, 1] < 1)).all()


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (
            {"networks.network.heads.cif.log_scales": "vector"},
            [("losses.cif.inputs.fields: 'cif' is of the form (cif, log_scales: vector, scale_law: softplus); "
             "the loss reads (cif, log_scales: shared")],
        ),
        (
            by("Paper2019", log_scales="shared"),
            [f"losses.{kind}.inputs.fields: '{kind}' is of the form ({kind}, log_scales: shared"
             for kind in drawn_scenes.KINDS],
        ),
        (
            by("BceLaplace11", law="softplus"),  # cifdet has no scales
            [f"losses.{kind}.inputs.fields: '{kind}' is of the form ({kind}, log_scales: vector, scale_law: softplus); "
             f"the loss reads ({kind}, log_scales: vector, scale_law: exp)" for kind in ("cif", "caf")],
        ),
        (
            {"losses.caf.inputs.fields": "cif"},
            [("losses.caf.inputs.fields: 'cif' is of the form (cif, log_scales: shared, scale_law: softplus); "
             "the loss reads (caf")],
        ),
    ],
)  # fmt: skip
def test_a_head_and_a_loss_that_differ_are_one_error_each(root, changes, lines):
    with pytest.raises(UserError) as error:
        drawn_scenes.checked(root, changes)
    found = str(error.value).splitlines()
    assert len(found) == len(lines)
    for line, said in zip(found, lines, strict=True):
        assert said in line


def test_forms_of_settings_that_are_wrong_are_left_to_the_network():
    heads = {"cif": {"kind": ["cif"]}, "caf": None, "limbs": {"kind": "caf", "log_scales": "vector"}, "box": {}}
    assert PoseNetwork.forms({"heads": heads}) == {"limbs": "caf, log_scales: vector, scale_law: softplus"}
    assert PoseNetwork.forms({"heads": {"cifdet": {}}}) == {"cifdet": "cifdet, log_scales: shared"}
    assert PoseNetwork.forms({"heads": [1]}) == {}
