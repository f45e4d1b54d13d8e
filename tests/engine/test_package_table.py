"""Packages of the field, as they are: which of their parts work in a recipe, and what is said of those that do not.

Needs the packages, which figura does not: a row is skipped where its package is not installed, or where it would fetch
weights.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from pydantic import ValidationError
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.dump import Dump
from figura.evaluation.evaluate import Evaluation
from figura.interfaces import Example
from figura.report.metrics import compute_metrics
from figura.training.trainer import Trainer
from models.images.augmentation import PairAugmentation, augment

pytestmark = pytest.mark.slow

WORKS = ""
NO_MEAN = "its value of a batch is not the mean of the values of its examples"


class Photos(toy.Ramps):
    """`x` (3, 64, 64) in [0, 1] and its negative `y`."""

    names = ("x", "y", "index")

    def example(self, index: int, random: np.random.Generator) -> Example:
        x = np.random.default_rng(index).uniform(0, 0.5 + 0.1 * (index % 4), (3, 64, 64)).astype(np.float32)
        return {"x": x, "y": 1 - x, "index": index}


class Unit(nn.Module):
    """One convolution; results in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).sigmoid()


def changes(**more: Any) -> dict[str, Any]:
    call = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"output": "image"}}
    call |= more.pop("call", {})
    photos = {"photos": {"type": "test_package_table.Photos", "length": 4}}
    return {
        "data.train": photos, "data.validation": photos, "data.batch_size": 4, "networks.painter": UNIT,
        "losses": {"l1": {"type": "torch.nn.L1Loss", "inputs": {"input": "image", "target": "y"}, "weight": 1.0}},
        "steps.painter.injectors": {"paint": call},
        "evaluate.modes.plain": {"injectors": {"paint": call}, "save": {"image": "array", "y": "array"}},
        "train.steps": 2, "train.evaluate_every": 2, "runtime.states": False, "runtime.samples": ...,
    } | more  # fmt: skip


UNIT = {"type": "test_package_table.Unit"}


def fit(run: Path, **more: Any) -> Trainer:
    trainer = Trainer(toy.checked(changes(**more)), run)
    trainer.fit()
    assert all(np.isfinite(value) for row in trainer.loss_log.validation for value in row.values())
    return trainer


def outcome(call: Any, name: str) -> str:
    """Return nothing if it works, else the first line that refuses it."""
    package = name.partition(".")[0]
    pytest.importorskip(package, reason=f"the package {package} is not installed")
    try:
        call()
    except UserError as error:
        return str(error).splitlines()[0]
    return WORKS


def agrees(found: str, said: str) -> bool:
    """Whether it worked as it should, or was refused in these words."""
    return found == said if said == WORKS else said in found


SMALL_UNET = {
    "sample_size": 64, "block_out_channels": [32, 32], "down_block_types": ["DownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "UpBlock2D"],
}  # fmt: skip
SMP, RESNET = "segmentation_models_pytorch", {"encoder_name": "resnet18", "encoder_weights": None, "classes": 3}
SPAN = {"num_in_ch": 3, "num_out_ch": 3, "upscale": 1, "feature_channels": 8}
NETWORKS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (f"{SMP}.Unet", RESNET, {}, WORKS),
    (f"{SMP}.create_model", {"arch": "fpn"} | RESNET, {}, WORKS),
    (
        "diffusers.UNet2DModel", SMALL_UNET,
        {"inputs": {"sample": "x"}, "outputs": {"sample": "image"}, "args": {"timestep": 1}}, WORKS,
    ),
    ("spandrel.architectures.SPAN.SPAN", SPAN, {}, WORKS),
    ("spandrel.architectures.Compact.Compact", {"num_feat": 8, "num_conv": 2, "upscale": 1}, {}, WORKS),
    ("spandrel.ModelLoader", {}, {}, "'spandrel.ModelLoader' is no network (it is no Module)"),
    ("timm.create_model", {"model_name": "resnet10t", "num_clases": 3}, {}, "unexpected keyword argument 'num_clases'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "call", "said"), NETWORKS, ids=[f"{name} {said[:20]}" for name, *_, said in NETWORKS]
)
def test_networks(tmp_path, name, arguments, call, said):
    network = {"networks.painter": {"type": name} | arguments}
    found = outcome(lambda: fit(tmp_path, call=call, **network), name)
    assert agrees(found, said), found


def test_a_timm_network_judges_as_it_comes(tmp_path):
    pytest.importorskip("timm", reason="the package timm is not installed")
    judge = {"type": "timm.create_model", "model_name": "resnet10t", "features_only": True, "weights": "own"}
    read = {"type": "Forward", "network": "judge", "grad": True}
    injectors = {
        "paint": {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"output": "image"}},
        "fake": read | {"inputs": {"x": "image"}, "outputs": {"1": "fake_features"}},
        "real": read | {"inputs": {"x": "y"}, "outputs": {"1": "real_features"}},
    }
    roles = {"input": "fake_features", "target": "real_features"}
    trainer = fit(
        tmp_path, **{"networks.judge": judge, "steps.painter.injectors": injectors,
        "losses.features": {"type": "torch.nn.MSELoss", "inputs": roles, "weight": 1.0}},
    )  # fmt: skip
    assert trainer.loss_log.validation[-1]["features.raw"] > 0


XY, IMAGES = {"x": "image", "y": "y"}, {"img1": "image", "img2": "y"}
DICE = {"mode": "multilabel", "from_logits": False}
LOSSES: list[tuple[str, dict[str, Any], dict[str, str], str, str]] = [  # in one part, in two
    ("kornia.losses.SSIMLoss", {"window_size": 11}, IMAGES, WORKS, WORKS),
    ("kornia.losses.ssim_loss", {"window_size": 11}, IMAGES, WORKS, WORKS),
    ("kornia.losses.MS_SSIMLoss", {}, IMAGES, WORKS, WORKS),
    ("kornia.losses.CharbonnierLoss", {}, IMAGES, WORKS, WORKS),
    ("kornia.losses.TotalVariation", {}, {"img": "image"}, WORKS, WORKS),
    ("kornia.losses.PSNRLoss", {"max_val": 1.0}, {"image": "image", "target": "y"}, WORKS, NO_MEAN),
    ("piq.SSIMLoss", {}, XY, WORKS, WORKS),
    ("piq.MultiScaleSSIMLoss", {"kernel_size": 3}, XY, WORKS, WORKS),
    ("piq.MDSILoss", {}, XY, WORKS, WORKS),
    ("piq.GMSDLoss", {}, XY, WORKS, WORKS),
    ("piq.ssim", {}, XY, *["a function counts if it is annotated to return a torch.Tensor"] * 2),
    ("lpips.LPIPS", {"pnet_rand": True, "verbose": False}, {"in0": "image", "in1": "y"}, WORKS, WORKS),
    (f"{SMP}.losses.DiceLoss", DICE, {"y_pred": "image", "y_true": "y"}, WORKS, NO_MEAN),
    ("torchmetrics.functional.image.total_variation", {"reduction": "mean"}, {"img": "image"}, WORKS, WORKS),
]  # fmt: skip


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("name", "arguments", "roles", "whole", "cut"), LOSSES, ids=[f"{row[0]} {row[3][:20]}" for row in LOSSES]
)
def test_losses(tmp_path, name, arguments, roles, whole, cut, parts):
    losses = {"loss": {"type": name, "inputs": roles, "weight": 1.0} | arguments}
    if name.startswith(("lpips", "piq")):
        pytest.importorskip("torchvision", reason="lpips and piq need torchvision")
    found = outcome(lambda: fit(tmp_path, losses=losses, **{"train.accumulation": parts}), name)
    assert agrees(found, whole if parts == 1 else cut), found


SCORES = [
    ("torchmetrics.image.PeakSignalNoiseRatio", {"data_range": 1.0}, WORKS),
    ("torchmetrics.image.StructuralSimilarityIndexMeasure", {"data_range": 1.0}, WORKS),
    ("torchmetrics.MeanAbsoluteError", {}, WORKS),
    ("torchmetrics.PearsonCorrCoef", {}, "Expected both predictions and target to be"),
]


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Dump:
    run = tmp_path_factory.mktemp("run")
    trainer = fit(run)
    Evaluation(trainer.recipe, trainer.networks.ema, run / "dump", trainer.accelerator).write()
    return Dump(run / "dump")


@pytest.mark.parametrize(("name", "arguments", "said"), SCORES, ids=[name for name, *_ in SCORES])
def test_scores(dump, name, arguments, said):
    entry = {"type": name, "mode": "plain", "inputs": {"preds": "image", "target": "y"}} | arguments
    found = outcome(lambda: compute_metrics(toy.checked(changes(**{"metrics.scores": {"it": entry}})), dump), name)
    assert agrees(found, said), found


TRANSFORMS: list[tuple[str, str, dict[str, Any], str]] = [
    ("both", "ElasticTransform", {"alpha": 20.0, "sigma": 3.0, "p": 1.0}, WORKS),
    ("both", "GridDistortion", {"p": 1.0}, WORKS),
    ("both", "Affine", {"rotate": [-30, 30], "p": 1.0}, WORKS),
    ("both", "RandomBrightnessContrast", {"p": 1.0}, WORKS),
    ("both", "RandomCrop", {"height": 16, "width": 16}, "figura itself crops and resizes"),
    ("both", "OneOf", {"transforms": []}, "'albumentations.OneOf' is no transform"),
    ("input", "GaussNoise", {"p": 1.0}, WORKS),
    ("input", "ImageCompression", {"p": 1.0}, WORKS),
]


@pytest.mark.parametrize(
    ("section", "name", "arguments", "said"), TRANSFORMS, ids=[f"{row[0]} {row[1]} {row[3][:9]}" for row in TRANSFORMS]
)
def test_transforms(section, name, arguments, said):
    pytest.importorskip("albumentations", reason="the package albumentations is not installed")
    entry = {"type": f"albumentations.{name}", **arguments}
    x = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    labels = (x // 128 * 255).astype(np.uint8)

    def made(seed):
        given = PairAugmentation.model_validate({section: {"further": {"it": entry}}})
        return augment(x, labels, given, (32, 32), np.random.default_rng(seed), ("y",))

    if said != WORKS:
        with pytest.raises((UserError, ValidationError), match=re.escape(said)):
            made(3)
        return
    np.testing.assert_array_equal(made(3), made(3))
    assert not np.array_equal(made(3), made(4))
    assert set(np.unique(made(3)[1])) <= {0, 255}
