"""NectarGAN's `config.json`, and `nectargan-train-paired`."""

from functools import partial
from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Table, Translation

SYSTEM = System(
    "NectarGAN", "nectargan", frozenset({"dataloader", "train", "save"}), "nectargan-(train|test)-paired",
    files=frozenset({"--config_file", "-f"}), switches=frozenset({"--log_losses", "-log"}),
    aliases={"-f": "--config_file", "-e": "--experiment_directory", "-lss": "--loss_subspec", "-log": "--log_losses",
             "-l": "--load_epoch", "-d": "--dataroot", "-i": "--test_iterations"},
)  # fmt: skip
BOTH, INPUT = "dataloader.augmentations.both.", "dataloader.augmentations.input."
PAIRS = "data.train.pairs.augmentation."
CHANNELS = (
    "networks.generator.in_channels networks.generator.out_channels networks.discriminator.in_channels "
    "networks.discriminator.out_channels data.common.x_channels data.common.y_channels"
)
TABLE: Table = {
    "dataloader.direction": ("data.common.direction", "AtoB", {"AtoB": "a_to_b", "BtoA": "b_to_a"}),
    "dataloader.batch_size": ("data.batch_size", 1),
    "dataloader.num_workers": ("runtime.workers", 0),
    "dataloader.load.load_size": ("data.train.pairs.load_size", 286),
    "dataloader.load.crop_size": ("data.common.crop_size", 256),
    "train.generator.features": ("networks.generator.features", 64),
    "train.generator.n_downs": ("networks.generator.n_downs", 6),
    "train.generator.block_type": (
        "networks.generator.block", "UnetBlock", {"UnetBlock": "standard", "ResidualUnetBlock": "residual"},
    ),
    "train.generator.upsample_type": (
        "networks.generator.upsampling", "Transposed", {"Transposed": "transposed", "Bilinear": "bilinear"},
    ),
    "train.generator.optimizer.beta1": ("steps.G.optimizer.betas", 0.5, lambda beta: [beta, 0.999]),
    "train.discriminator.optimizer.beta1": ("steps.D.optimizer.betas", 0.5, lambda beta: [beta, 0.999]),
    "train.discriminator.n_layers": ("networks.discriminator.n_layers", 3),
    "train.discriminator.base_channels": ("networks.discriminator.features", 64),
    "train.discriminator.max_channels": ("networks.discriminator.max_features", 512),
    "visualizer.visdom.update_frequency": ("runtime.log_every", 40),
    "visualizer.visdom.enable": ("runtime.trackers", False, lambda on: ["dvclive"] if on else []),
}  # fmt: skip
LOSSES = {"gan": "GAN", "l1": "L1", "l2": "L2", "sobel": "SOBEL", "laplacian": "LAP", "vgg": "VGG"}
OF_SUBSPEC = {
    "basic": {"gan", "l1"}, "basic+vgg": {"gan", "l1", "vgg"}, "extended": {*LOSSES} - {"vgg"},
    "extended+vgg": {*LOSSES},
}  # fmt: skip


def translate(t: Translation) -> None:
    """Write a recipe from published/pix2pix_facades.yaml."""
    t.start("published/pix2pix_facades.yaml")
    t.set("networks.generator.dropout_position", "after_activation")
    t.set("networks.discriminator.initialisation", "default")
    t.set("losses.G_L2", {"type": "images.L2", "inputs": {"image": "fake", "target": "y"}, "weight": 0.0, "step": "G"})
    t.table(TABLE)
    t.set("evaluate.averages.mean_target.examples", t.epochs(1, 1))
    channels = t.get("dataloader.load.input_nc", 3)
    for here in CHANNELS.split() if channels != 3 else []:
        t.set(here, channels, "dataloader.load.input_nc")
    if t.recipe["networks"]["generator"]["block"] == "residual":
        t.set("networks.generator.residual_output", "unbounded")
    t.set("train.precision", "no" if t.get("common.device", "cpu") == "cpu" else "fp16", "common.device")
    _augment(t)
    _weigh(t)
    _rates(t)
    _save(t)
    source = t.get("dataloader.dataroot", "")
    t.data["pairs"] = {
        "kind": "paired", "source": "data/raw/pairs", "seed": 7, "max_rejected": 0.0,
        "paired": {"train": "train", "validation": "val", "test": "test"},
    }  # fmt: skip
    t.commands_of(
        "dvc add data/raw/pairs && dvc repro prepare@pairs", f"copy {source or 'its dataroot'} to data/raw/pairs",
        train="nectargan-train-paired", judge="nectargan-test-paired",
    )  # fmt: skip
    t.weights("nectargan", "epoch200_netG.pth.tar", "generator")


def _augment(t: Translation) -> None:
    t.set("data.train.pairs.augmentation", {})
    for there, here in {"h_flip": "horizontal_flip", "v_flip": "vertical_flip", "rot90": "rotate90"}.items():
        if chance := t.get(f"{BOTH}{there}_chance", 0.5 if there == "h_flip" else 0.0):
            t.set(f"{PAIRS}both.{here}", {"chance": chance}, f"{BOTH}{there}_chance")

    both, shown = partial(_several, t, BOTH), partial(_several, t, INPUT)
    _further(t, both("elastic_transform", alpha=1.0, sigma=50.0), "both", "ElasticTransform")
    optical = both("optical_distortion", min=-0.05, max=0.05, mode="camera")
    if optical:
        optical["distort_limit"] = [optical.pop("min"), optical.pop("max")]
    _further(t, optical, "both", "OpticalDistortion")
    sides = {f"{side}_{end}": value for side in ("height", "width") for end, value in (("min", 0.1), ("max", 0.2))}
    if holes := both("coarse_dropout", holes_min=1, holes_max=2, **sides):
        limits = {name: [holes[f"{name}_min"], holes[f"{name}_max"]] for name in ("holes", "height", "width")}
        holes = {"num_holes_range": limits["holes"], "chance": 0.5}
        holes |= {f"hole_{side}_range": limits[side] for side in ("height", "width")}
        t.leave(f"{BOTH}coarse_dropout_chance", "any chance above 0 counts as 0.5 there; here it is written 0.5")
    _further(t, holes, "both", "CoarseDropout")
    if jitter := shown("colorjitter", min_brightness=0.8, max_brightness=1.2):
        tones = {"brightness": [jitter["min_brightness"], jitter["max_brightness"]], "contrast": [0.8, 1.2]}
        tones |= {"saturation": [0.8, 1.2], "hue": [-0.5, 0.5]}
        t.set(f"{PAIRS}input.colour_jitter", {"chance": jitter["chance"], **tones}, f"{INPUT}colorjitter_chance")
    if noise := shown("gaussnoise", min=0.2, max=0.44):
        std = [noise["min"], noise["max"]]
        t.set(f"{PAIRS}input.gaussian_noise", {"chance": noise["chance"], "std": std}, f"{INPUT}gaussnoise_chance")
    if blur := shown("motionblur", limit=7):
        blur["blur_limit"] = [3, blur.pop("limit")]
    _further(t, blur, "input", "MotionBlur")
    if gamma := shown("randgamma", min=80.0, max=120.0):
        gamma["gamma_limit"] = [gamma.pop("min"), gamma.pop("max")]
    _further(t, gamma, "input", "RandomGamma")
    _further(t, shown("grayscale", method="weighted_average"), "input", "ToGray")
    if codec := shown("compression", type="jpeg", quality_min=99, quality_max=100):
        codec["quality"] = [codec.pop("quality_min"), codec.pop("quality_max")]
        t.set(f"{PAIRS}input.compression", codec, f"{INPUT}compression_chance")


def _several(t: Translation, prefix: str, name: str, **defaults: Any) -> dict[str, Any]:
    """Return the settings of a transform, or nothing if its chance is 0."""
    found = {"chance": t.get(f"{prefix}{name}_chance", 0.0)}
    found |= {key: t.get(f"{prefix}{name}_{key}", value) for key, value in defaults.items()}
    return found if found["chance"] else {}


def _further(t: Translation, settings: dict[str, Any], images: str, transform: str) -> None:
    if settings:
        entry = {"type": f"albumentations.{transform}", "p": settings.pop("chance"), **settings}
        t.set(f"{PAIRS}{images}.further.{transform.lower()}", entry)


def _weigh(t: Translation) -> None:
    subspec = t.get("--loss_subspec", "basic" if t.program else "extended+vgg")
    t.get("--log_losses")
    counted = t.choice("--loss_subspec", subspec, OF_SUBSPEC)
    for there, here in LOSSES.items():
        key, default = f"train.loss.lambda_{there}", {"gan": 1.0, "l1": 100.0}.get(there, 0.0)
        if there in counted:
            t.set(f"losses.G_{here}.weight", t.get(key, default), key)
        elif key in t.given:
            t.leave(key, f"no loss of the objective {subspec} there either; its weight here is 0")
    if not t.program:
        t.remarks.append("its losses are those of -lss extended+vgg; without that flag, NectarGAN has GAN and L1 alone")


def _rates(t: Translation) -> None:
    batch, lengths = t.recipe["data"]["batch_size"], {}
    separate = t.get("train.separate_lr_schedules", False)
    for step, network in (("G", "generator"), ("D", "discriminator")):
        used = f"train.{network if separate else 'generator'}.learning_rate."
        constant, falling = t.get(f"{used}epochs", 100), t.get(f"{used}epochs_decay", 100)
        first, last = t.get(f"{used}initial", 2e-4), t.get(f"{used}target", 0.0)
        lengths[step] = t.epochs(constant + falling, batch)
        t.set(f"steps.{step}.optimizer.lr", first, f"{used}initial")
        t.set(
            f"steps.{step}.lr_schedule",
            {"type": "Linear", "start": t.epochs(constant - 1, batch), "end": lengths[step], "from": 1.0,
             "to": last / first},
            f"{used}epochs", f"{used}epochs_decay", f"{used}target",
        )  # fmt: skip
        t.drop(f"steps.{step}.optimizer.fused")
    if not separate:
        same = "separate_lr_schedules is false: the discriminator has the generator's, there as here"
        for key in ("epochs", "epochs_decay", "initial", "target"):
            t.leave(f"train.discriminator.learning_rate.{key}", same)
    t.set("train.steps", lengths["G"], "train.generator.learning_rate.epochs")


def _save(t: Translation) -> None:
    batch = t.recipe["data"]["batch_size"]
    rate = t.get("save.model_save_rate", 5)
    if t.get("save.save_model", True):
        t.set("runtime.checkpoint_every", t.epochs(rate, batch), "save.model_save_rate")
    every, count = t.get("save.example_save_rate", 1), t.get("save.num_examples", 1)
    t.drop("runtime.samples")
    if t.get("save.save_examples", True):
        samples = {"names": ["x", "y", "fake"], "count": count, "every": t.epochs(every, batch)}
        t.set("runtime.samples", samples, "save.example_save_rate", "save.num_examples")
    t.set("train.evaluate_every", t.epochs(5, batch))
