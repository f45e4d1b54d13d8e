"""The project's own recipes, broken in one place each: told before training, at the dotted key, with what is allowed.

`test_recipe.py` breaks a toy recipe in its form; here are faults of what the real ones are made of. Words are judged by
the check of a recipe, numbers by constructors, shapes by a sanity check on two examples; noise in the right shapes
stands for data.
"""

import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import toy
from accelerate import Accelerator

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.engine.build import build_networks, build_steps
from figura.interfaces import Example, ExampleDataset, Records
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from figura.training.sanity_check import sanity_check

ROOT = Path(__file__).parents[2]
VUNET, PIX, POSE, SR = "params.yaml", "recipes/pix2pix.yaml", "recipes/pose.yaml", "recipes/super_resolution.yaml"
SMALL: dict[str, dict[str, Any]] = {
    VUNET: {"networks.generator.nf_start": 4, "networks.generator.nf_max": 8},
    PIX: {"networks.generator.features": 4, "networks.discriminator.features": 4},
    POSE: {"networks.network.backbone.widths": [4, 4, 8, 8], "networks.network.heads.cifdet.fields": 5},
    SR: {"networks.generator.features": 4, "networks.generator.growth": 4, "networks.discriminator.features": 4},
}
MAKE = "steps.generator.injectors.generate"
PEOPLE, PAIRS, SCENES = "data.train.people", "data.train.pairs", "data.train.scenes"
FIND = "evaluate.modes.poses.injectors.people"


def content(file: str, edits: dict[str, Any]) -> dict[str, Any]:
    return toy.changed(SMALL[file] | edits, read_yaml(ROOT / file))


def check(file: str, edits: dict[str, Any]) -> Recipe:
    return check_recipe(content(file, edits), Path(file))


WORDS: list[tuple[str, dict[str, Any], str, str]] = [
    # datasets
    (VUNET, {f"{PEOPLE}.appearance": "slef"}, f"{PEOPLE}.appearance", "expected 'other_view', 'self' or 'pairs'"),
    (VUNET, {"data.validation.people.foreign": False}, "evaluate.inputs", "nobody provides 'foreign'"),
    (PIX, {f"{PAIRS}.direction": "c_to_d"}, f"{PAIRS}.direction", "expected 'a_to_b' or 'b_to_a'"),
    (PIX, {"data.common.crop_size": ...}, f"{PAIRS}.crop_size", "missing; ImagePairs needs it"),
    (
        SR, {f"{SCENES}.degradation": {"blur": {"sigma": [1, 2], "sigmas": [1, 2]}}},
        f"{SCENES}.degradation.blur.sigmas",
        "unknown key 'sigmas' (did you mean 'sigma'?)",
    ),
    # networks
    (VUNET, {"networks.generator.type": "vunet.VUnet"}, "networks.generator.type", "(did you mean 'vunet.VUNet'?)"),
    (
        VUNET, {"networks.generator.initialisation": "fanin"}, "networks.generator.initialisation",
        "expected 'default' or 'fan_in'",
    ),
    (PIX, {"networks.generator.norm": "batchh"}, "networks.generator.norm", "expected 'instance', 'batch' or 'none'"),
    (
        POSE, {"networks.network.heads.cif": {"fields": 17, "kind": "caf"}}, "losses.cif.inputs.fields",
        "'cif' is of the form (caf",
    ),
    (
        SR, {"networks.judge": {"type": "super_resolution.UNetDiscriminator"}}, "networks.judge",
        "no step trains it and it loads no weights",
    ),
    # losses
    (VUNET, {"losses.KL.inputs.posteriour": "q_means"}, "losses.KL.inputs.posteriour", "(did you mean 'posterior'?)"),
    (VUNET, {"losses.KL.inputs.prior": ...}, "losses.KL.inputs.prior", "missing; LatentKL needs it"),
    (VUNET, {"losses.KL.unit": "bits"}, "losses.KL.unit", "'nats_per_element'"),
    (VUNET, {"losses.perceptual.layers": {"relu9_9": 1.0}}, "losses.perceptual", "layers 'relu9_9' (did you mean"),
    (PIX, {"losses.D_real.role": "judge"}, "losses.D_real.role", "expected 'discriminator' or 'generator'"),
    (PIX, {"losses.G_L1.step": ...}, "losses.G_L1.step", "missing; there are several steps: D, G"),
    (POSE, {"losses.cif.head": "cifdet"}, "losses.cif.inputs.fields", "the loss reads (cifdet"),
    (POSE, {"losses.caf.scale_floor": -1.0}, "losses.caf", "scale_floor -1.0"),
    # steps, optimizers, groups, schedules
    (PIX, {"steps.D.trains": ["discriminater"]}, "steps.D.trains", "(did you mean 'discriminator'?)"),
    (PIX, {"losses.G_GAN.weight": 0.0, "losses.G_L1.weight": 0.0}, "steps.G", "it would train nothing"),
    (VUNET, {"steps.generator.optimizer.type": "Moun"}, "steps.generator.optimizer.type", "(did you mean 'Muon'?)"),
    (VUNET, {"steps.generator.optimizer.rest_lr": ...}, "steps.generator.optimizer.rest_lr", "missing; Muon needs it"),
    (
        VUNET,
        {"steps.generator.groups": {"bias": {"pattern": "bias", "rest_rl": 1.0}}},
        "steps.generator.groups.bias.rest_rl",
        "(did you mean 'rest_lr'?)",
    ),
    (
        VUNET, {"steps.generator.lr_schedule.then.start": 9000}, "steps.generator.lr_schedule.then",
        "0 <= start <= end is needed",
    ),
    (VUNET, {"losses.KL.schedule.form": 1.0}, "losses.KL.schedule.form", "(did you mean 'from'?)"),
    (VUNET, {f"{MAKE}.args.noise_scale.type": "Liner"}, f"{MAKE}.args.noise_scale.type", "(did you mean 'Linear'?)"),
    # injectors and gates
    (
        VUNET, {f"{MAKE}.outputs": {"image": "image", "q_mean": "q_means", "p_means": "p_means"}}, f"{MAKE}.outputs",
        "(did you mean 'q_means'?)",
    ),
    (
        PIX, {"steps.G.injectors.judge.inputs.y": "fakes"}, "steps.G.injectors.judge",
        "nobody provides 'fakes' (did you mean 'fake'?)",
    ),
    (
        PIX, {"steps.G.injectors.judge.outputs.logits": "fake_logits"}, "steps.G.injectors.judge",
        "adds 'fake_logits', which is there already",
    ),
    (PIX, {"steps.D.every": 3}, "steps.G.injectors.judge", "'fake' is not there in every iteration"),
    (SR, {"steps.G.injectors.judge.after": 300}, "losses.G_fake.inputs.logits", "'judged_fake'"),
    (SR, {"losses.G_fake.after": 100}, "losses.G_fake.inputs.logits", "'judged_fake'"),
    (SR, {"losses.G_fake.before": 100}, "losses.G_fake", "and before 100: it would never run"),
    (SR, {"steps.D.detach": ["srr"]}, "steps.D.detach", "(did you mean 'sr'?)"),
    (
        SR, {"steps.D.injectors.judge.only": "train"}, "steps.D.injectors.judge.only",
        "expected 'training' or 'evaluation'",
    ),
    # evaluation: modes, grids, averages, decoders
    (
        PIX,
        {"evaluate.modes.dropout.injectors.translate.args": {"dropot": True}},
        "evaluate.modes.dropout.injectors.translate.dropot",
        "(did you mean 'dropout'?)",
    ),
    (
        VUNET, {"evaluate.grids.transfer.columns": ["pose"]}, "evaluate.grids.transfer",
        "'pose' is in rows and in columns",
    ),
    (
        VUNET, {"evaluate.averages.mean_target.of": "targets"}, "evaluate.averages.mean_target.of",
        "(did you mean 'target'?)",
    ),
    (
        POSE, {f"{FIND}.decoder.connection_method": "blnd"}, f"{FIND}.decoder.connection_method",
        "expected 'blend' or 'max'",
    ),
    (POSE, {"evaluate.modes.poses.save.persons": "records"}, "evaluate.modes.poses.save", "nobody provides 'persons'"),
    # predict and metrics
    (VUNET, {"predict.grid": "transfr"}, "predict.grid", "(did you mean 'transfer'?)"),
    (POSE, {"predict.save": {"peeple": "records"}}, "predict.save", "(did you mean 'people'?)"),
    (VUNET, {"metrics.scores.transfer.mode": "transfr"}, "metrics.scores.transfer.mode", "(did you mean 'transfer'?)"),
    (
        VUNET, {"metrics.scores.mean_image.average": "mean_tagret"}, "metrics.scores.mean_image.average",
        "(did you mean 'mean_target'?)",
    ),
    (
        VUNET, {"metrics.pictures.transfer_grid.grid": "transfers"}, "metrics.pictures.transfer_grid.grid",
        "(did you mean 'transfer'?)",
    ),
    (
        PIX, {"metrics.scores.frechet.extractor": "incption"}, "metrics.scores.frechet.extractor",
        "found 'incption'; expected 'random'",
    ),
    # train and runtime
    (PIX, {"train.ema.deacy": 0.9}, "train.ema.deacy", "(did you mean 'decay'?)"),
    (
        SR, {"train.init_from": {"run": "runs/x", "networks": ["generater"]}}, "train.init_from.networks",
        "(did you mean 'generator'?)",
    ),
    (POSE, {"train.precision": "fp15"}, "train.precision", "expected 'no', 'fp16', 'bf16' or 'fp8'"),
    (VUNET, {"runtime.samples.names": ["pose", "imagee"]}, "runtime.samples.names", "(did you mean 'image'?)"),
]  # fmt: skip


@pytest.mark.parametrize("file", SMALL)
def test_the_recipes_are_right(file):
    check(file, {})


@pytest.mark.parametrize(
    ("file", "edits", "key", "said"), WORDS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_wrong_word_is_told_at_its_key(file, edits, key, said):
    with pytest.raises(UserError) as caught:
        check(file, edits)
    lines = [line for line in str(caught.value).splitlines() if line.startswith(f"{file}: {key}")]
    assert any(said in line for line in lines), str(caught.value)


@pytest.mark.parametrize(
    ("file", "edits", "key", "said"),
    [
        (
            VUNET, {"networks.generator.image_size": 48}, "networks.generator",
            "image_size is 48, expected a power of two",
        ),
        (VUNET, {"networks.generator.nf_start": -3}, "networks.generator", "nf_start -3, nf_max 8: at least 1"),
        (PIX, {"networks.generator.features": 0}, "networks.generator", "features 0: at least 1"),
        (PIX, {"networks.discriminator.features": -1}, "networks.discriminator", "features -1: at least 1"),
        (PIX, {"networks.generator.n_downs": 5}, "networks.generator", "image_size 64: multiples of 128 are needed"),
        (PIX, {"networks.generator.dropout_layers": 9}, "networks.generator", "0 <= dropout_layers <= 4"),
        (POSE, {"networks.network.backbone.name": "resnet51"}, "networks.network", "(did you mean 'resnet50'?)"),
        (POSE, {"networks.network.backbone.widths": [4, 4, 8]}, "networks.network", "widths [4, 4, 8]"),
        (
            POSE, {"networks.network.heads.cif.upsample": 3}, "networks.network",
            "upsample 3: a divisor of the backbone's stride",
        ),
        (SR, {"networks.generator.scale": 3}, "networks.generator", "scale 3"),
        (VUNET, {"steps.generator.optimizer.lr": -1.0}, "steps.generator.optimizer", "lr -1.0"),
        (
            VUNET, {"steps.generator.optimizer.betas": [1.5, 0.9]}, "steps.generator.optimizer",
            "beta parameter at index 0: 1.5",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_number_out_of_range_is_told_when_things_are_built(file, edits, key, said):
    def built() -> None:
        recipe = check(file, edits)
        build_steps(recipe, build_networks(recipe), Accelerator(cpu=True))

    with pytest.raises(UserError) as caught:
        built()
    assert f"{key}: " in str(caught.value)
    assert said in str(caught.value)


class Shapes(ExampleDataset):
    """Noise in [-1, 1] of given shapes; other values as they are."""

    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **given: Any) -> None:
        self.given = given

    def __len__(self) -> int:
        return 3

    def example(self, index: int, random: np.random.Generator) -> Example:
        shaped = {k: random.uniform(-1, 1, v).astype(np.float32) for k, v in self.given.items() if isinstance(v, tuple)}
        return {"index": index} | self.given | shaped


def images(*names: str, side: int = 64, channels: int = 3) -> dict[str, Any]:
    return dict.fromkeys(names, (channels, side, side))


def fields(cells: int = 11) -> dict[str, Any]:
    sizes = {"cif_target": (17, 5), "caf_target": (19, 9), "cifdet_target": (5, 7)}
    return {name: (*size, cells, cells) for name, size in sizes.items()}


PARTS = ("mask", "top", "bottom", "appearance_top", "appearance_bottom")
RECORDED = {
    "image_id": 1,
    "images": 2,
    "to_original": (2, 3),
    "joints": (17, 3),
    "truth": Records(),
    "person_height": 1.0,
}
DATA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    VUNET: (
        images("pose", "appearance", "target") | images("mask", channels=1),
        images("pose", "appearance", "target", "foreign") | images(*PARTS, channels=1),
    ),
    PIX: (images("x", "y"), images("x", "y")),
    POSE: (images("image", side=81) | fields(), images("image", side=81) | fields() | RECORDED),
    SR: (
        images("hq") | images("lq", side=32),
        images("hq", "bicubic", "lanczos", side=96) | images("lq", side=48),
    ),
}


def sanity_errors(file: str, edits: dict[str, Any], data: dict[str, Any]) -> list[str]:
    recipe = check(file, edits)
    errors = ErrorCollector(Path(file))
    train, validation = ({"some": Shapes(**(shapes | data))} for shapes in DATA[file])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that shapes differ before it raises
        sanity_check(recipe, build_networks(recipe), train, validation, errors)
    return errors.lines


@pytest.mark.parametrize("file", SMALL)
def test_the_recipes_pass_the_sanity_check(file):
    assert sanity_errors(file, {}, {}) == []


TRANSLATE = "steps.D.injectors.translate"
RECONSTRUCT = "evaluate.modes.reconstruction"


@pytest.mark.parametrize(
    ("file", "edits", "data", "key", "said"),
    [
        # the number of channels
        (
            VUNET, {f"{MAKE}.inputs.pose": "mask"}, {}, MAKE,
            "pose for VUNet: found 1 channels and 64 x 64 pixels; needed are 3 channels (pose_channels)",
        ),
        (PIX, {}, images("x", channels=1), TRANSLATE, "found 1 channels"),
        (PIX, {"networks.discriminator.in_channels": 4}, {}, "steps.D.injectors.judge", "needed are 4 channels"),
        (
            PIX, {"steps.G.injectors.judge.inputs.y": "real_logits"}, {}, "steps.G.injectors.judge",
            "'real_logits' (2, 1, 14, 14)",
        ),
        # too small or of another size
        (
            VUNET, {}, images("pose", "appearance", "target", side=32), MAKE,
            "found 3 channels and 32 x 32 pixels; needed are 3 channels (pose_channels) and sides that are multiples",
        ),
        (VUNET, {}, images("appearance", side=128), MAKE, "found 64 x 64 and 128 x 128 pixels; both need the same"),
        (PIX, {}, images("x", "y", side=60), TRANSLATE, "found 3 channels and 60 x 60 pixels"),
        (
            PIX, {"networks.discriminator.n_layers": 6}, {}, "steps.D.injectors.judge",
            "6 layers need at least 96 a side",
        ),
        (
            PIX, {"losses.G_L1.inputs.target": "judged_logits"}, {}, "losses.G_L1",
            "it read 'fake' (2, 3, 64, 64), 'judged_logits' (2, 1, 14, 14)",
        ),
        (SR, {"networks.generator.scale": 4}, {}, "losses.G_pixel", "'sr' (2, 3, 128, 128)"),
        (POSE, {}, images("image", side=80), "losses.cif", "same B, F, h, w are needed"),
        # fields
        (
            POSE, {"networks.network.heads.cif.fields": 16}, {}, "losses.cif",
            "fields (2, 16, 5, 11, 11), target (2, 17, 5, 11, 11)",
        ),
        (POSE, {"networks.network.heads.cif.upsample": 1}, {}, "losses.cif", "'cif' (2, 17, 5, 6, 6)"),
        (POSE, {"networks.network.heads.cifdet": ...}, {}, "steps.network.injectors.detect", "'cifdet'"),
        (POSE, {"losses.cif.inputs.target": "caf_target"}, {}, "losses.cif", "Composite of cif needs (B, F, 5, h, w)"),
        # what is asked of a network or a loss
        (VUNET, {f"{MAKE}.args.mode": "trian"}, {}, MAKE, "mode is 'trian', expected one of train"),
        (VUNET, {f"{MAKE}.inputs": {"pose": "pose"}}, {}, MAKE, "needs an appearance"),
        (
            VUNET, {"losses.KL.inputs.posterior": "image"}, {}, "losses.KL",
            "it read 'image' (2, 3, 64, 64), 'p_means' {",
        ),
        (VUNET, {"losses.KL.inputs.image": ...}, {}, "losses.KL", "needs the input 'image'"),
        (PIX, {"losses.D_real.kind": "relativistic_average"}, {}, "losses.D_real", "input 'opposite'"),
        # what trains what
        (
            PIX, {"losses.G_L1.step": "D"}, {}, "losses.G_L1",
            "depends on nothing that its step 'D' trains (discriminator)",
        ),
        (PIX, {"losses.D_real.step": "G"}, {}, "losses.D_real", ""),
        (
            SR, {"steps.G.detach": ["lq"], "steps.G.injectors.upscale.grad": False}, {}, "losses.G_pixel",
            "depends on nothing",
        ),
        # what would have ended an evaluation
        (
            VUNET,
            {f"{RECONSTRUCT}.injectors.generate.inputs.appearance": "mask"},
            {},
            f"{RECONSTRUCT}.injectors.generate",
            "appearance for VUNet: found 1 channels",
        ),
        (
            VUNET,
            {"evaluate.modes.prior.injectors.generate.args.mode": "sample"},
            {},
            "evaluate.modes.prior.injectors.generate",
            "mode is 'sample'",
        ),
        (
            VUNET,
            {
                "evaluate.grids.transfer.injectors.generate.inputs.appearance": "pose",
                "evaluate.grids.transfer.injectors.generate.args.mode": "x",
            },
            {},
            "evaluate.grids.transfer.injectors.generate",
            "mode is 'x'",
        ),
        (
            VUNET, {f"{RECONSTRUCT}.save.image": "mask"}, {}, f"{RECONSTRUCT}.save.image",
            "cannot be saved as 'mask': (batch, 1, height, width)",
        ),
        (VUNET, {"evaluate.inputs.pose": "number"}, {}, "evaluate.inputs.pose", "cannot be saved as 'number'"),
        (POSE, {f"{FIND}.caf": "cif"}, {}, FIND, "caf of shape (17, 5, 11, 11): (19, 8, rows, columns) is needed"),
        (
            POSE,
            {"evaluate.modes.fields.injectors.draw.heads": {"cif": {"kind": "caf"}}},
            {},
            "evaluate.modes.fields.injectors.draw",
            "a caf field of shape (5, 11, 11): (9, rows, columns) is needed",
        ),
        (
            POSE, {"evaluate.modes.fields.save.pictures": "mask"}, {}, "evaluate.modes.fields.save.pictures",
            "cannot be saved as 'mask': (batch, 1, height, width)",
        ),
        (
            POSE, {"evaluate.modes.poses.save.people": "array"}, {}, "evaluate.modes.poses.save.people",
            "records cannot be saved as 'array'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_does_not_fit_is_told_by_the_sanity_check(file, edits, data, key, said):
    lines = sanity_errors(file, edits, data)
    assert any(line.startswith(f"{file}: {key}: ") and said in line for line in lines), lines


def test_the_sanity_check_changes_nothing():
    recipe = check(PIX, {"networks.generator.norm": "batch", "networks.discriminator.norm": "batch"})
    networks = build_networks(recipe)
    before = {f"{n}.{k}": v.clone() for n, network in networks.items() for k, v in network.state_dict().items()}
    modes = [module.training for network in networks.values() for module in network.modules()]
    assert any("running_mean" in name for name in before)
    random = torch.random.get_rng_state()
    data = {"some": Shapes(**DATA[PIX][0])}
    sanity_check(recipe, networks, data, data, ErrorCollector(Path(PIX)))
    after = {f"{n}.{k}": v for n, network in networks.items() for k, v in network.state_dict().items()}
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert modes == [module.training for network in networks.values() for module in network.modules()]
    assert all(p.grad is None for network in networks.values() for p in network.parameters())
    assert torch.equal(random, torch.random.get_rng_state())


def test_data_that_cannot_be_read_is_told_at_its_key():
    class Broken(Shapes):
        def example(self, index: int, random: np.random.Generator) -> Example:
            raise UserError("picture.png: no readable picture")

    recipe, errors = check(PIX, {}), ErrorCollector(Path(PIX))
    sanity_check(recipe, build_networks(recipe), {"pairs": Broken()}, {"pairs": Shapes(**DATA[PIX][1])}, errors)
    assert errors.lines == [f"{PIX}: data.train.pairs: picture.png: no readable picture"]
