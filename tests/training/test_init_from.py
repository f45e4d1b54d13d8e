"""Starting from the weights of an earlier run, of all networks or of named ones."""

import pytest
import torch
import toy

from figura.base.errors import UserError
from figura.training.trainer import Trainer

QUIET = {"runtime.samples": None}


def weights(trainer, kind="live"):
    networks = getattr(trainer.networks, kind)
    return {f"{n}.{key}": v.clone() for n, net in networks.items() for key, v in net.state_dict().items()}


@pytest.fixture
def earlier(tmp_path):
    """A finished run of the recipe with two networks."""
    trainer = Trainer(toy.checked(QUIET | {"train.steps": 3}, toy.gan()), tmp_path / "earlier")
    trainer.fit()
    return tmp_path / "earlier", weights(trainer, "ema")


def start(run, folder, networks=None, **changes):
    declared = {"train.init_from": {"run": str(folder), "networks": networks}, **changes}
    return Trainer(toy.checked(QUIET | declared, toy.gan()), run)


def test_all_networks(run, earlier):
    folder, expected = earlier
    started = weights(start(run, folder))
    assert all(torch.equal(started[name], expected[name]) for name in expected)


def test_a_named_network_and_no_other(run, earlier, tmp_path):
    folder, expected = earlier
    started = weights(start(run, folder, ["painter"]))
    fresh = weights(Trainer(toy.checked(QUIET, toy.gan()), tmp_path / "fresh"))
    for name, value in started.items():
        assert torch.equal(value, (expected if name.startswith("painter.") else fresh)[name])


def test_the_content_of_what_it_started_from_is_recorded(run, earlier):
    folder, _ = earlier
    first = start(run, folder).provenance["start"]
    assert start(run, folder).provenance["start"] == first
    Trainer(toy.checked(QUIET | {"train.steps": 4}, toy.gan()), folder).fit()
    assert start(run, folder).provenance["start"] != first  # a resume state made from the old weights is refused


def test_shapes_that_do_not_fit_are_listed(run, earlier):
    folder, _ = earlier
    with pytest.raises(UserError) as caught:
        start(run, folder, **{"networks.painter.width": 3})
    said = str(caught.value)
    assert "network 'painter'" in said
    for key, stored, own in (("layer.weight", [2, 1, 3, 3], [3, 1, 3, 3]), ("last.weight", [1, 2, 1, 1], [1, 3, 1, 1])):
        assert f"{key} has shape {stored}, the network {own}" in said


def test_a_run_that_is_not_there(run, tmp_path):
    with pytest.raises(UserError, match=r"network 'painter': .*nowhere/model/painter\.safetensors: no such file"):
        start(run, tmp_path / "nowhere")


def test_faults_of_the_entry():
    with pytest.raises(UserError, match=r"train\.init_from\.networks: unknown network 'piant'"):
        toy.checked({"train.init_from": {"run": "runs/a", "networks": ["piant"]}})
    both = {"train.init_from": {"run": "runs/a"}, "networks.painter.weights": "b.safetensors"}
    with pytest.raises(UserError, match=r"networks\.painter\.weights: train\.init_from gives this network its weights"):
        toy.checked(both)
