"""The recipe on the engine: two phases, who learns from whom, and pictures of any size at the end."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import toy
from torch.utils.data import default_collate

from figura.base.modes import evaluating
from figura.base.yaml12 import read_yaml
from figura.training.trainer import Trainer

RECIPE = Path(__file__).parents[2] / "recipes/super_resolution.yaml"
START = 3  # of the adversarial phase


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A dataset with a manifest, `images/train` and `images/validation`."""
    root, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for split, count in (("train", 8), ("validation", 3)):
        (root / "images" / split).mkdir(parents=True)
        for index in range(count):
            picture = cv2.resize(random.integers(0, 256, (6, 6, 3), dtype=np.uint8), (40, 40))
            assert cv2.imwrite(str(root / "images" / split / f"{index}.png"), picture)
    (root / "manifest.json").write_text('{"sha256": "0"}')
    return root


def recipe(root, changes=None):
    after = {f"losses.{name}.after": START for name in ("G_feature", "G_fake", "G_real")}
    small = {
        "data.common.root": str(root), "data.common.size": 16, "data.batch_size": 4,
        "networks.generator.features": 8, "networks.generator.growth": 4, "networks.discriminator.features": 2,
        "losses.G_feature.layers": {"relu1_1": 1.0}, **after,
        "steps.G.injectors.judge.after": START, "steps.D.after": START,
        "train.steps": 5, "train.ema": None, "train.evaluate_every": 5, "train.record_every": 1,
        "runtime.progress": False, "runtime.trackers": [], "runtime.scores": None,
    }  # fmt: skip
    return toy.checked(content=toy.changed(small | (changes or {}), read_yaml(RECIPE)))


def batch(trainer):
    data = trainer.loaders.train_data["scenes"]
    return default_collate([data[index] for index in range(4)])


def weights(network):
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("discriminator", ["UNetDiscriminator", "VGGDiscriminator"])
def test_the_adversarial_phase_is_relativistic(images, run, discriminator):
    changes = {"networks.discriminator": {"type": f"super_resolution.{discriminator}", "features": 2}}
    if discriminator == "VGGDiscriminator":
        changes["networks.discriminator"] |= {"image_size": 16, "norm": "none"}
    trainer = Trainer(recipe(images, changes), run)
    one = batch(trainer)
    networks = trainer.networks.live
    start = {name: weights(network) for name, network in networks.items()}
    trainer.train_op(one)
    assert not torch.equal(weights(networks["generator"]), start["generator"])
    assert torch.equal(weights(networks["discriminator"]), start["discriminator"])
    trainer.iteration = START
    trainer.train_op(one)
    assert not torch.equal(weights(networks["discriminator"]), start["discriminator"])
    with torch.no_grad():
        networks["discriminator"].last.weight.mul_(50)  # logits that differ
    with evaluating(*networks.values()):
        values = trainer.eval_op(one)
        sr = networks["generator"](one["lq"])["image"]
        judged = networks["discriminator"](one["hq"], sr)
    real, fake = (judged[name].double() for name in ("logits", "fake_logits"))

    def entropy(logits, said):
        return -torch.log(torch.sigmoid(logits) if said else 1 - torch.sigmoid(logits)).mean().item()

    expected = {  # Jolicoeur-Martineau 2018, ESRGAN equations 1 and 2
        "D_real": entropy(real - fake.mean(), True), "D_fake": entropy(fake - real.mean(), False),
        "G_real": entropy(real - fake.mean(), False), "G_fake": entropy(fake - real.mean(), True),
    }  # fmt: skip
    assert {name: values[name].mean().item() for name in expected} == pytest.approx(expected, rel=1e-4)


def test_it_starts_from_bicubic_enlargement(images, run):
    trainer = Trainer(recipe(images), run)
    one = batch(trainer)
    value = trainer.eval_op(one)["G_pixel"].mean().item()
    small = one["lq"].permute(0, 2, 3, 1).numpy()
    enlarged = np.stack([cv2.resize(picture, (16, 16), interpolation=cv2.INTER_CUBIC) for picture in small])
    expected = np.abs(enlarged.transpose(0, 3, 1, 2) - one["hq"].numpy()).mean()
    assert value == pytest.approx(expected, rel=1e-4)
