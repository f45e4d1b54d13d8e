"""NectarGAN's `config.json`, and `nectargan-train-paired`."""

from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Translation

SYSTEM = System(
    "NectarGAN", frozenset({"dataloader", "train", "save"}), "nectargan-(train|test)-paired",
    files=frozenset({"--config_file", "-f"}),
)  # fmt: skip
CHANNELS = [f"networks.{name}.{side}_channels" for name in ("generator", "discriminator") for side in ("in", "out")]
CHANNELS += ["data.common.x_channels", "data.common.y_channels"]
LOSSES = {"gan": "GAN", "l1": "L1", "l2": "L2", "sobel": "SOBEL", "laplacian": "LAP", "vgg": "VGG"}
OF_SUBSPEC = {
    "basic": {"gan", "l1"}, "basic+vgg": {"gan", "l1", "vgg"}, "extended": {*LOSSES} - {"vgg"},
    "extended+vgg": {*LOSSES},
}  # fmt: skip
SIDES = {f"hole_{side}_range": {f"{side}_min": 0.1, f"{side}_max": 0.2} for side in ("height", "width")}
TRANSFORMS: dict[str, tuple[str, dict[str, Any]]] = {
    # by what comes before `_chance`: here, or a transform of albumentations; its settings, each the value of a key
    # with this default there, of two keys, or a constant in a list
    "both.h_flip": ("horizontal_flip", {}), "both.v_flip": ("vertical_flip", {}), "both.rot90": ("rotate90", {}),
    "both.elastic_transform": ("ElasticTransform", {"alpha": {"alpha": 1.0}, "sigma": {"sigma": 50.0}}),
    "both.optical_distortion": (
        "OpticalDistortion", {"mode": {"mode": "camera"}, "distort_limit": {"min": -0.05, "max": 0.05}}),
    "both.coarse_dropout": ("CoarseDropout", {"num_holes_range": {"holes_min": 1, "holes_max": 2}, **SIDES}),
    "input.colorjitter": (
        "colour_jitter", {"brightness": {"min_brightness": 0.8, "max_brightness": 1.2}, "contrast": [0.8, 1.2],
                          "saturation": [0.8, 1.2], "hue": [-0.5, 0.5]}),
    "input.gaussnoise": ("gaussian_noise", {"std": {"min": 0.2, "max": 0.44}}),
    "input.motionblur": ("MotionBlur", {"blur_limit": {"": 3, "limit": 7}}),
    "input.randgamma": ("RandomGamma", {"gamma_limit": {"min": 80.0, "max": 120.0}}),
    "input.grayscale": ("ToGray", {"method": {"method": "weighted_average"}}),
    "input.compression": (
        "compression", {"type": {"type": "jpeg"}, "quality": {"quality_min": 99, "quality_max": 100}}),
}  # fmt: skip


def translate(t: Translation) -> None:
    """Write a recipe from published/pix2pix_facades.yaml."""
    t.start("published/pix2pix_facades.yaml")
    t.set("networks.generator.dropout_position", "after_activation")
    t.set("networks.discriminator.initialisation", "default")
    t.set("losses.G_L2", {"type": "images.L2", "inputs": {"image": "fake", "target": "y"}, "weight": 0.0, "step": "G"})
    t.table()
    t.set("evaluate.averages.mean_target.examples", t.epochs(1, 1))
    if t.get("dataloader.load.input_nc", 3) != 3:
        for here in CHANNELS:
            t.take(here, "dataloader.load.input_nc")
    if t.at("networks.generator")["block"] == "residual":
        t.set("networks.generator.residual_output", "unbounded")
    t.set("train.precision", "no" if t.get("common.device", "cpu") == "cpu" else "fp16", "common.device")
    t.set("data.train.pairs.augmentation", {})
    for there, (here, settings) in TRANSFORMS.items():
        _augment(t, there, here, settings)
    _weigh(t)
    _rates(t)
    _save(t)
    t.dataset("paired", {"train": "train", "validation": "val", "test": "test"}, "pairs")
    first = f"copy {t.get('dataloader.dataroot') or 'its dataroot'} to data/raw/pairs"
    t.run(first, "nectargan-train-paired", "nectargan-test-paired")
    t.weights("nectargan", "epoch200_netG.pth.tar", "generator")


def _augment(t: Translation, there: str, here: str, settings: dict[str, Any]) -> None:
    key = f"dataloader.augmentations.{there}"
    chance, found = t.get(f"{key}_chance", 0.5 if there == "both.h_flip" else 0.0), {}
    for name, value in settings.items():
        ends = value.items() if isinstance(value, dict) else ()
        read = [t.get(f"{key}_{end}", default) if end else default for end, default in ends]
        found[name] = read if read[1:] else read[0] if read else value
    if there == "both.coarse_dropout" and chance:
        t.leave(f"{key}_chance", "any chance above 0 counts as 0.5 there; here it is written 0.5")
        chance = 0.5
    images = f"data.train.pairs.augmentation.{there.split('.')[0]}"
    if chance and here.islower():
        t.set(f"{images}.{here}", {"chance": chance, **found}, f"{key}_chance")
    elif chance:
        entry = {"type": f"albumentations.{here}", "p": chance, **found}
        t.set(f"{images}.further.{here.lower()}", entry, f"{key}_chance")


def _weigh(t: Translation) -> None:
    subspec = t.get("--loss_subspec", "basic" if t.program else "extended+vgg")
    counted = t.choice("--loss_subspec", subspec, OF_SUBSPEC)
    t.read("--log_losses")
    for there, here in LOSSES.items():
        key = f"train.loss.lambda_{there}"
        if there in counted:
            t.take(f"losses.G_{here}.weight", key, {"gan": 1.0, "l1": 100.0}.get(there, 0.0))
        elif key in t.given:
            t.leave(key, f"no loss of the objective {subspec} there either; its weight here is 0")
    if not t.program:
        t.remarks.append("its losses are those of -lss extended+vgg; without that flag, NectarGAN has GAN and L1 alone")


def _rates(t: Translation) -> None:
    batch = t.at("data")["batch_size"]
    separate = t.get("train.separate_lr_schedules", False)
    for step, network in (("G", "generator"), ("D", "discriminator")):
        used = f"train.{network if separate else 'generator'}.learning_rate."
        constant, falling = t.get(f"{used}epochs", 100), t.get(f"{used}epochs_decay", 100)
        first, last = t.take(f"steps.{step}.optimizer.lr", f"{used}initial", 2e-4), t.get(f"{used}target", 0.0)
        keys = [f"{used}{key}" for key in ("epochs", "epochs_decay", "target")]
        t.set(f"steps.{step}.lr_schedule", t.linear(constant, falling, batch, last / first if first else 0.0), *keys)
        t.drop(f"steps.{step}.optimizer.fused")
    if not separate:
        same = "separate_lr_schedules is false: the discriminator has the generator's, there as here"
        for key in ("epochs", "epochs_decay", "initial", "target"):
            t.leave(f"train.discriminator.learning_rate.{key}", same)
    t.set("train.steps", t.at("steps.G.lr_schedule")["end"], "train.generator.learning_rate.epochs")


def _save(t: Translation) -> None:
    batch = t.at("data")["batch_size"]
    models, examples = (
        t.epochs(t.get(f"save.{kind}_save_rate", n), batch) for kind, n in (("model", 5), ("example", 1))
    )
    if t.get("save.save_model", True):
        t.set("runtime.checkpoint_every", models, "save.model_save_rate")
    samples = {"names": ["x", "y", "fake"], "count": t.get("save.num_examples", 1), "every": examples}
    t.drop("runtime.samples")
    if t.get("save.save_examples", True):
        t.set("runtime.samples", samples, "save.example_save_rate", "save.num_examples")
    t.set("train.evaluate_every", t.epochs(5, batch))
