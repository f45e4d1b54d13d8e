"""Injectors that draw, in a training: they repeat with the seed, gradients pass through them, and names join up."""

import torch
import toy

from figura.training.trainer import Trainer

INJECTORS = {
    "noise": {"type": "Noise", "output": "noise", "like": "x", "scale": 0.1},
    "noisy": {"type": "Sum", "output": "noisy", "terms": {"x": 1.0, "noise": 0.5}},
    "part": {"type": "Crop", "names": {"noisy": "noisy_part", "y": "y_part"}, "size": 3, "at": "random"},
    "changed": {
        "type": "Augment",
        "names": {"noisy_part": "seen", "y_part": "wanted"},
        "cutout": 0.3,
        "only": "training",
    },
    "same": {"type": "Sum", "output": "seen", "terms": {"noisy_part": 1.0}, "only": "evaluation"},
    "target": {"type": "Sum", "output": "wanted", "terms": {"y_part": 1.0}, "only": "evaluation"},
    "paint": {
        "type": "ForEach",
        "names": {"seen": {"result": "image", "low": "low"}, "x": "of_x"},
        "injectors": {
            "paint": {
                "type": "Forward",
                "network": "painter",
                "inputs": {"x": "item"},
                "outputs": {"image": "result"},
                "taps": {"layer": "low"},
            }
        },
    },
}


def trained(run, seed):
    recipe = toy.checked(
        {
            "seed": seed,
            "steps.painter.injectors": INJECTORS,
            "losses.distance.inputs.target": "wanted",
            "losses.square.inputs": {"image": "of_x", "target": "y"},
            "train.steps": 4,
        }
    )
    trainer = Trainer(recipe, run)
    before = {name: p.detach().clone() for name, p in trainer.networks.live["painter"].named_parameters()}
    trainer.fit()
    return before, dict(trainer.networks.live["painter"].named_parameters())


def test_a_training_with_random_injectors_repeats(tmp_path):
    before, first = trained(tmp_path / "first", seed=3)
    _, second = trained(tmp_path / "second", seed=3)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(torch.equal(first[name], before[name]) for name in first)
