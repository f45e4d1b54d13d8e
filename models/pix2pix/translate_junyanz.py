"""pytorch-CycleGAN-and-pix2pix: `train.py` and `test.py` of its models pix2pix and cycle_gan."""

from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Table, Translation

SYSTEM = System(
    "pytorch-CycleGAN-and-pix2pix", "nectargan", program=r"(.*/)?(train|test)\.py",
    switches=frozenset({"--no_dropout", "--serial_batches", "--no_flip", "--verbose", "--no_html", "--continue_train",
                        "--save_by_iter", "--eval", "--use_wandb", "--no_lsgan"}),
    aliases={  # of earlier versions
        "--niter": "--n_epochs", "--niter_decay": "--n_epochs_decay", "--loadSize": "--load_size",
        "--fineSize": "--crop_size", "--which_direction": "--direction", "--which_model_netG": "--netG",
        "--which_model_netD": "--netD", "--batchSize": "--batch_size", "--nThreads": "--num_threads",
        "--identity": "--lambda_identity", "--resize_or_crop": "--preprocess"},
)  # fmt: skip
GENERATORS: dict[str, dict[str, Any]] = {
    "unet_256": {"n_downs": 6, "dropout_layers": 3}, "unet_128": {"n_downs": 5, "dropout_layers": 2},
    "resnet_9blocks": {"blocks": 9}, "resnet_6blocks": {"blocks": 6},
}  # fmt: skip
UNET = {"padding": "zeros", "biases": "with_instance_norm", "relu_skips": True, "dropout_position": "before_activation"}
KINDS = {"vanilla": "vanilla", "lsgan": "lsgan", "wgangp": "wgan"}
MODELS = {  # theirs: generators by input, discriminators by what they judge; pictures of the log
    "pix2pix": ({"generator": ("--input_nc", "--output_nc")}, {"discriminator": ("--input_nc", "--output_nc")}),
    "cycle_gan": (
        {"to_y": ("--input_nc", "--output_nc"), "to_x": ("--output_nc", "--input_nc")},
        {"judge_y": ("", "--output_nc"), "judge_x": ("", "--input_nc")},
    ),
}
TABLE: Table = {
    "--direction": ("data.common.direction", "AtoB", {"AtoB": "a_to_b", "BtoA": "b_to_a"}),
    "--batch_size": ("data.batch_size", 1),
    "--num_threads": ("runtime.workers", 4),
    "--crop_size": ("data.common.crop_size", 256),
    "--lr": ("steps.G.optimizer.lr steps.D.optimizer.lr", 2e-4),
    "--beta1": ("steps.G.optimizer.betas steps.D.optimizer.betas", 0.5, lambda beta: [beta, 0.999]),
    "--print_freq": ("runtime.log_every", 100),
    "--display_freq": ("runtime.samples.every", 400),
    "--save_latest_freq": ("runtime.resume_every", 5000),
}


def translate(t: Translation) -> None:
    """Write a recipe from published/pix2pix_facades.yaml or published/cyclegan_horse2zebra.yaml."""
    model = t.get("--model", "cycle_gan")
    generators, discriminators = t.choice("--model", model, MODELS)
    paired = model == "pix2pix"
    t.start("published/pix2pix_facades.yaml" if paired else "published/cyclegan_horse2zebra.yaml")
    t.table(TABLE)
    for name, channels in generators.items():
        _generator(t, name, channels, paired)
    for name, channels in discriminators.items():
        _discriminator(t, name, channels, paired)
    mode = t.get("--gan_mode", "vanilla" if paired or t.get("--no_lsgan", False) else "lsgan")
    kind = t.choice("--gan_mode", mode, KINDS)
    for name, loss in t.recipe["losses"].items():
        if loss["type"] == "images.Adversarial":
            t.set(f"losses.{name}.kind", kind, "--gan_mode")
    if paired:
        if not t.given.get("--pool_size", 0):
            t.get("--pool_size")
        for name in ("G_SOBEL", "G_LAP", "G_VGG"):
            t.drop(f"losses.{name}")
        t.set("losses.G_L1.weight", t.get("--lambda_L1", 100.0), "--lambda_L1")
    else:
        _cycle(t)
    for side, key in (("x", "--input_nc"), ("y", "--output_nc")):
        if paired and t.get(key, 3) != 3:
            t.set(f"data.common.{side}_channels", t.get(key, 3), key)
    _data(t, "pairs" if paired else "pictures", paired)
    _rates(t)
    t.get("--name")
    t.commands_of(
        f"dvc add data/raw/{t.output.stem} && dvc repro prepare@{t.output.stem}",
        f"copy {t.get('--dataroot', 'its dataroot')} to data/raw/{t.output.stem}",
        train="train.py", judge="test.py", predict="test.py --model test",
    )  # fmt: skip
    first = next(iter(generators))
    t.weights("junyanz", "latest_net_G.pth" if paired else "latest_net_G_A.pth", first)


def _generator(t: Translation, name: str, channels: tuple[str, str], paired: bool) -> None:
    key = "--netG"
    net = t.get(key, "unet_256" if paired else "resnet_9blocks")
    settings = t.choice(key, net, GENERATORS)
    unet = "n_downs" in settings
    dropout = not t.get("--no_dropout", not paired)
    norm = t.get("--norm", "batch" if paired else "instance")
    t.set(f"networks.{name}", {"type": "pix2pix.UNetGenerator" if unet else "images.ResNetGenerator"}, key)
    both = {"features": (t.get("--ngf", 64), "--ngf"), "norm": (norm, "--norm")}
    both |= {side: (t.get(one, 3), one) for side, one in zip(("in_channels", "out_channels"), channels, strict=True)}
    both |= {setting: (value, key) for setting, value in (settings | UNET if unet else settings).items()}
    both["dropout"] = (0.5 if dropout else 0.0, "--no_dropout")
    for setting, (value, there) in both.items():
        t.set(f"networks.{name}.{setting}", value, there)
    t.set(f"networks.{name}.initialisation", "normal")
    if t.given.get("--init_type", "normal") == "normal":
        t.get("--init_type")
    if unet and dropout:
        t.remarks.append("dropout: there from the second deepest block on, here from the deepest, in as many blocks")


def _discriminator(t: Translation, name: str, channels: tuple[str, str], paired: bool) -> None:
    layers = t.get("--n_layers_D", 3)
    layers = t.choice("--netD", t.get("--netD", "basic"), {"basic": 3, "n_layers": layers})
    width, norm = t.get("--ndf", 64), t.get("--norm", "batch" if paired else "instance")
    settings = {
        "type": "pix2pix.PatchDiscriminator",
        "in_channels": t.get(channels[0], 3) if channels[0] else 0,
        "out_channels": t.get(channels[1], 3),
        "features": width, "n_layers": layers + 1, "max_features": 8 * width, "norm": norm, "padding": "zeros",
        "biases": "with_instance_norm", "initialisation": "normal",
    }  # fmt: skip
    t.set(f"networks.{name}", settings, "--netD", "--ndf")


def _cycle(t: Translation) -> None:
    there, back, same = t.get("--lambda_A", 10.0), t.get("--lambda_B", 10.0), t.get("--lambda_identity", 0.5)
    t.set("losses.cycle_x.weight", there, "--lambda_A")
    t.set("losses.cycle_y.weight", back, "--lambda_B")
    t.set("losses.same_y.weight", same * back, "--lambda_identity")
    t.set("losses.same_x.weight", same * there, "--lambda_identity")
    size = t.get("--pool_size", 50)
    t.set("steps.D.injectors.pool.size", size, "--pool_size")
    if not size:
        names = t.recipe["steps"]["D"]["injectors"]["pool"]["names"]
        t.set("steps.D.injectors.pool", {"type": "Detach", "names": names}, "--pool_size")


def _data(t: Translation, name: str, paired: bool) -> None:
    crop, how = t.recipe["data"]["common"]["crop_size"], t.get("--preprocess", "resize_and_crop")
    load = t.get("--load_size", 286)
    t.set(f"data.train.{name}.load_size", load if how == "resize_and_crop" else crop, "--load_size")
    if how != "resize_and_crop":
        t.leave("--preprocess", f"{how} is not here: pictures are resized to crop_size")
    if t.get("--no_flip", False):
        t.drop(f"data.train.{name}.augmentation")
    t.data[t.output.stem] = {
        "kind": "paired" if paired else "unpaired", "source": f"data/raw/{t.output.stem}", "seed": 7,
        "max_rejected": 0.0,
        **({"paired": {"train": "train", "validation": "val", "test": "test"}} if paired
           else {"unpaired": {"train": "train", "validation": "test"}}),
    }  # fmt: skip
    t.set("data.common.root", f"data/prepared/{t.output.stem}", "--dataroot")
    t.get("--dataset_mode")


def _rates(t: Translation) -> None:
    batch = t.recipe["data"]["batch_size"]
    constant, falling = t.get("--n_epochs", 100), t.get("--n_epochs_decay", 100)
    end, policy = t.epochs(constant + falling, batch), t.get("--lr_policy", "linear")
    every = t.epochs(t.get("--lr_decay_iters", 50), batch)
    constant_rate = {"type": "Constant", "value": 1.0}
    schedules: dict[str, dict[str, Any]] = {
        "linear": {"type": "Linear", "start": t.epochs(constant - 1, batch), "end": end, "from": 1.0, "to": 0.0},
        "step": {"type": "Decay", "at": list(range(every, end, every)), "factor": 0.1, "over": 0},
        "cosine": {"type": "Cosine", "start": 0, "end": t.epochs(constant, batch), "from": 1.0, "to": 0.0},
        "plateau": constant_rate,
    }
    schedules["lambda"] = schedules["linear"]
    if policy == "plateau":
        t.leave("--lr_policy", "a rate that follows the loss would not resume exactly; here it is constant")
    for step in ("G", "D"):
        chosen = t.choice("--lr_policy", policy, schedules)
        t.set(f"steps.{step}.lr_schedule", chosen, "--lr_policy", "--n_epochs", "--n_epochs_decay", "--lr_decay_iters")
    t.set("train.steps", end, "--n_epochs", "--n_epochs_decay")
    t.set("train.evaluate_every", t.epochs(5, batch))
    t.set("runtime.checkpoint_every", t.epochs(t.get("--save_epoch_freq", 5), batch), "--save_epoch_freq")
