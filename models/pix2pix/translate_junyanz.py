"""pytorch-CycleGAN-and-pix2pix: `train.py` and `test.py` of its models pix2pix and cycle_gan."""

from typing import Any

from figura.base.errors import UserError
from figura.commands.translate.reading import System
from figura.commands.translate.translation import Translation

SYSTEM = System("pytorch-CycleGAN-and-pix2pix", program=r"(.*/)?(train|test)\.py")
UNET = {"padding": "zeros", "biases": "with_instance_norm", "relu_skips": True, "dropout_position": "before_activation"}
GENERATORS: dict[str, dict[str, Any]] = {
    "unet_256": {"n_downs": 6, "dropout_layers": 3, **UNET}, "unet_128": {"n_downs": 5, "dropout_layers": 2, **UNET},
    "resnet_9blocks": {"blocks": 9}, "resnet_6blocks": {"blocks": 6},
}  # fmt: skip
NORMS = {"batch": "batch", "sync_batch": "batch", "instance": "instance", "sync_instance": "instance", "none": "none"}
KINDS = {"vanilla": "vanilla", "lsgan": "lsgan", "wgangp": "wgan"}
MODELS = {  # generators by input and output, discriminators by what they judge
    "pix2pix": ({"generator": ("--input_nc", "--output_nc")}, {"discriminator": ("--input_nc", "--output_nc")}),
    "cycle_gan": (
        {"to_y": ("--input_nc", "--output_nc"), "to_x": ("--output_nc", "--input_nc")},
        {"judge_y": ("", "--output_nc"), "judge_x": ("", "--input_nc")},
    ),
}


def translate(t: Translation) -> None:
    """Write a recipe from published/pix2pix_facades.yaml or published/cyclegan_horse2zebra.yaml."""
    if not {"--dataroot", "--model"} & {*t.given}:
        raise UserError(f"{t.source}: expected --dataroot or --model, or -opt and a file of BasicSR or DL-Art-School")
    if t.program.endswith("test.py") and t.given.get("--model", "test") == "test":
        raise UserError(f"{t.source}: --model test does not say what was trained; give --model pix2pix or cycle_gan")
    if any(one.startswith(("--CUT_mode", "--lambda_NCE", "--nce_")) for one in t.given):  # of its authors' next program
        raise UserError(f"{t.source}: a training of CUT; begin with recipes/unpaired/cut.yaml")
    generators, discriminators = t.pick("--model", "cycle_gan", MODELS)
    paired = "generator" in generators
    t.start("published/pix2pix_facades.yaml" if paired else "published/cyclegan_horse2zebra.yaml")
    t.table()
    norm = t.pick("--norm", "batch" if paired else "instance", NORMS)
    for name, channels in generators.items():
        _generator(t, name, channels, norm, paired)
    for name, channels in discriminators.items():
        _discriminator(t, name, channels, norm)
    t.read("--name", *(["--init_type"] if t.given.get("--init_type", "normal") == "normal" else []))
    usual = "aligned" if paired else "unaligned"
    if t.get("--dataset_mode", usual) != usual:
        t.leave("--dataset_mode", f"this recipe reads {'pairs' if paired else 'folders of A and of B'} all the same")
    kind = t.pick("--gan_mode", "vanilla" if paired or t.get("--no_lsgan", False) else "lsgan", KINDS)
    for name in [name for name, loss in t.recipe["losses"].items() if loss["type"] == "images.Adversarial"]:
        t.set(f"losses.{name}.kind", kind, "--gan_mode")
    (_pairs if paired else _cycle)(t)
    _data(t, paired)
    _rates(t)
    first = f"copy {t.get('--dataroot') or 'its dataroot'} to data/raw/{t.output.stem}"
    t.run(first, "train.py", "test.py", "test.py --model test")
    t.weights("junyanz", "latest_net_G.pth" if paired else "latest_net_G_A.pth", next(iter(generators)))


def _generator(t: Translation, name: str, channels: tuple[str, str], norm: str, paired: bool) -> None:
    settings = t.pick("--netG", "unet_256" if paired else "resnet_9blocks", GENERATORS)
    unet, dropout = "n_downs" in settings, not t.get("--no_dropout", not paired)
    network = f"networks.{name}"
    t.set(network, {"type": "pix2pix.UNetGenerator" if unet else "images.ResNetGenerator"}, "--netG")
    t.take(f"{network}.features", "--ngf", 64)
    t.set(f"{network}.norm", norm, "--norm")
    for side, key in zip(("in_channels", "out_channels"), channels, strict=True):
        t.take(f"{network}.{side}", key, 3)
    for setting, value in settings.items():
        t.set(f"{network}.{setting}", value, "--netG")
    t.set(f"{network}.dropout", 0.5 if dropout else 0.0, "--no_dropout")
    t.set(f"{network}.initialisation", "normal")
    if unet and dropout:
        t.remarks.append("dropout: there from the second deepest block on, here from the deepest, in as many blocks")


def _discriminator(t: Translation, name: str, channels: tuple[str, str], norm: str) -> None:
    layers, width = t.pick("--netD", "basic", {"basic": 3, "n_layers": t.get("--n_layers_D", 3)}), t.get("--ndf", 64)
    settings = {
        "type": "pix2pix.PatchDiscriminator",
        "in_channels": t.get(channels[0], 3) if channels[0] else 0,
        "out_channels": t.get(channels[1], 3),
        "features": width, "n_layers": layers + 1, "max_features": 8 * width, "norm": norm, "padding": "zeros",
        "biases": "with_instance_norm", "initialisation": "normal",
    }  # fmt: skip
    t.set(f"networks.{name}", settings, "--netD", "--ndf")
    if norm == "batch":
        t.judge_apart(name)


def _pairs(t: Translation) -> None:
    if not t.given.get("--pool_size", 0):
        t.read("--pool_size")
    t.drop("losses.G_SOBEL", "losses.G_LAP", "losses.G_VGG")
    t.take("losses.G_L1.weight", "--lambda_L1", 100.0)
    for side, key in (("x", "--input_nc"), ("y", "--output_nc")):
        if t.get(key, 3) != 3:
            t.take(f"data.common.{side}_channels", key)


def _cycle(t: Translation) -> None:
    for key in ("--input_nc", "--output_nc"):
        if t.get(key, 3) != 3:
            raise UserError(f"{t.source}: {key}: unpaired pictures have 3 channels here, grey ones too; leave it out")
    for side, key in (("x", "--lambda_A"), ("y", "--lambda_B")):
        weight = t.take(f"losses.cycle_{side}.weight", key, 10.0)
        t.set(f"losses.same_{side}.weight", t.get("--lambda_identity", 0.5) * weight, "--lambda_identity")
    if not t.take("steps.D.injectors.pool.size", "--pool_size", 50):
        names = t.at("steps.D.injectors.pool.names")
        t.set("steps.D.injectors.pool", {"type": "Detach", "names": names}, "--pool_size")


def _data(t: Translation, paired: bool) -> None:
    name = "pairs" if paired else "pictures"
    how, load = t.get("--preprocess", "resize_and_crop"), t.get("--load_size", 286)
    if how != "resize_and_crop":
        for key in ("--preprocess", "--load_size"):
            t.leave(key, f"{how} is not here: pictures are resized to crop_size")
        load = t.at("data.common")["crop_size"]
    t.set(f"data.train.{name}.load_size", load, "--load_size")
    if t.get("--no_flip", False):
        t.drop(f"data.train.{name}.augmentation")
    splits = {"validation": "val", "test": "test"} if paired else {"validation": "test"}
    t.dataset("paired" if paired else "unpaired", {"train": "train"} | splits)
    t.set("data.common.root", f"data/prepared/{t.output.stem}", "--dataroot")


def _rates(t: Translation) -> None:
    batch = t.at("data")["batch_size"]
    constant, falling = t.get("--n_epochs", 100), t.get("--n_epochs_decay", 100)
    end, every = t.epochs(constant + falling, batch), t.epochs(t.count("--lr_decay_iters", 50), batch)
    linear = t.linear(constant, falling, batch)
    schedules: dict[str, dict[str, Any]] = {
        "linear": linear, "lambda": linear, "plateau": {"type": "Constant", "value": 1.0},
        "step": {"type": "Decay", "at": list(range(every, end, every)), "factor": 0.1, "over": 0},
        # torch's rate rises again behind n_epochs
        "cosine": {"type": "Sine", "start": 0, "period": 2 * t.epochs(constant, batch), "high": 1.0, "low": 0.0},
    }  # fmt: skip
    chosen = t.pick("--lr_policy", "linear", schedules)
    if chosen is schedules["plateau"]:
        t.leave("--lr_policy", "a rate that follows the loss would not resume exactly; here it is constant")
    for step in ("G", "D"):
        t.set(f"steps.{step}.lr_schedule", chosen, "--lr_policy", "--n_epochs", "--n_epochs_decay", "--lr_decay_iters")
    t.set("train.steps", end, "--n_epochs", "--n_epochs_decay")
    t.set("train.evaluate_every", t.epochs(5, batch))
    t.set("runtime.checkpoint_every", t.epochs(t.get("--save_epoch_freq", 5), batch), "--save_epoch_freq")
