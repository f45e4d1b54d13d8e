"""Options files of BasicSR and traiNNer-redux: super-resolution by the networks that figura or spandrel has."""

import re
from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Table, Translation

SYSTEM = System(
    "BasicSR, traiNNer-redux", "basicsr", frozenset({"network_g"}), r"(.*/)?(train|test)\.py", frozenset({"-opt"}),
    switches=frozenset({"--auto_resume", "--debug"}),
    row=lambda key: re.sub(r"\.\d+\.|\.(val|test)_\d+\.", lambda found: f".{found[1] or '*'}.", key),
)  # fmt: skip
MODELS = ("SRModel", "SRGANModel", "ESRGANModel", "RealESRNetModel", "RealESRGANModel", "SwinIRModel", "")
RRDB = {"num_in_ch": "in_channels", "num_out_ch": "out_channels", "num_feat": "features", "num_block": "blocks",
        "num_grow_ch": "growth", "in_nc": "in_channels", "out_nc": "out_channels", "num_filters": "features",
        "num_blocks": "blocks"}  # fmt: skip
OWN: dict[str, dict[str, int]] = {"RRDBNet": {}, "esrgan": {}, "esrgan_lite": {"features": 32, "blocks": 12}}
OF_SPANDREL: dict[str, tuple[str, dict[str, Any]]] = {
    "SwinIR": ("SwinIR.SwinIR", {}), "SRVGGNetCompact": ("Compact.SRVGGNetCompact", {}),
    "SPAN": ("SPAN.SPAN", {}), "RCAN": ("RCAN.RCAN", {}), "DAT": ("DAT.DAT", {}), "HAT": ("HAT.HAT", {}),
    "compact": ("Compact.SRVGGNetCompact", {"num_feat": 64, "num_conv": 16}),
    "ultracompact": ("Compact.SRVGGNetCompact", {"num_feat": 64, "num_conv": 8}),
    "superultracompact": ("Compact.SRVGGNetCompact", {"num_feat": 24, "num_conv": 8}),
    "span": ("SPAN.SPAN", {"feature_channels": 52}), "span_s": ("SPAN.SPAN", {"feature_channels": 48}),
}  # fmt: skip
JUDGES = {"VGGStyleDiscriminator": "VGGDiscriminator", "UNetDiscriminatorSN": "UNetDiscriminator"}
KINDS = {"vanilla": "vanilla", "lsgan": "lsgan", "hinge": "hinge", "wgan": "wgan", "wgan_softplus": "vanilla"}
KERNELS = {"nearest-exact": "nearest"} | {name: name for name in ("area", "bilinear", "bicubic", "lanczos")}
LAYERS = {"conv1_2": 0.1, "conv2_2": 0.1, "conv3_4": 1.0, "conv4_4": 1.0, "conv5_4": 1.0}
PIXELS: dict[str, tuple[dict[str, Any], float]] = {  # and how much larger a loss is where pictures are in [-1, 1]
    "l1": ({"type": "images.L1"}, 2.0), "charbonnier": ({"type": "images.L1"}, 2.0),
    "mse": ({"type": "images.L2"}, 4.0), "ldl": ({"type": "images.LocalDiscrimination"}, 1.0),
    "ff": ({"type": "images.FocalFrequency", "alpha": 1.0}, 4.0),
}  # fmt: skip
TABLE: Table = {
    "scale": ("data.common.scale", 4),
    "manual_seed": ("seed", 0),
    "datasets.train.num_worker_per_gpu": ("runtime.workers", 4),
    "train.total_iter": ("train.steps", 400000),
    "train.ema_decay": ("train.ema", 0.0, lambda decay: {"decay": decay} if decay else None),
    "val.val_freq": ("train.evaluate_every", 5000.0, int),
    "logger.print_freq": ("runtime.log_every", 100),
    "logger.save_checkpoint_freq": ("runtime.checkpoint_every", 5000.0, int),
    "logger.use_tb_logger": ("runtime.trackers", True, lambda on: ["tensorboard"] if on else []),
}


def translate(t: Translation) -> None:
    """Write a recipe from published/esrgan_x4_psnr.yaml or published/esrgan_x4_gan.yaml."""
    judged = "network_d.type" in t.given
    t.start(f"published/esrgan_x4_{'gan' if judged else 'psnr'}.yaml")
    model = t.choice("model_type", t.get("model_type", ""), {name: name for name in MODELS})
    t.get("name")
    t.table(TABLE)
    t.drop("train.init_from")
    for one in ("G_pixel", "G_feature", "G_fake", "G_real"):
        t.drop(f"losses.{one}")
    _data(t)
    _generator(t)
    if judged:
        _judge(t, model)
    _losses(t, model)
    for step, theirs in (("G", "g"), ("D", "d")) if judged else (("G", "g"),):
        _learn(t, step, f"train.optim_{theirs}.")
    _amounts(t)
    _metrics(t)
    _commands(t)


def _data(t: Translation) -> None:
    train, scale = "datasets.train.", t.recipe["data"]["common"]["scale"]
    kind = t.get(f"{train}type", "PairedImageDataset")
    size, small = t.get(f"{train}gt_size"), t.get(f"{train}lq_size")
    size = size or (small * scale if small else t.get("gt_size", 128))
    t.set("data.common.size", size, f"{train}gt_size", f"{train}lq_size", "gt_size")
    t.get("gt_size")
    t.drop("data.train.scenes.augmentation")
    flips = {"horizontal_flip": (f"{train}use_hflip", 0.5), "rotate90": (f"{train}use_rot", 0.75)}
    for here, (there, chance) in flips.items():
        if t.get(there, True):
            t.set(f"data.train.scenes.augmentation.{here}", {"chance": chance}, there)
    t.set("data.common.root", f"data/prepared/{t.output.stem}")
    images: dict[str, Any] = {}
    for split, there in (("train", "datasets.train."), ("validation", "datasets.val.")):
        for suffix, key in (("", f"{there}dataroot_gt"), ("_small", f"{there}dataroot_lq")):
            folder = t.get(key)
            if isinstance(folder, list):
                t.leave(key, "the first of these folders; put them all below one")
                folder = folder[0]
            if folder:
                images[f"{split}{suffix}"] = str(folder)
    images = {"train": "train", "validation": "validation"} | images
    degraded = kind.lower() == "realesrgandataset"
    if degraded:
        images = {split: folder for split, folder in images.items() if not split.endswith("_small")}
        _degrade(t)
    else:
        if kind.lower() != "pairedimagedataset":
            t.choice(f"{train}type", kind, {"PairedImageDataset": "", "RealESRGANDataset": ""})
        images = {"train_small": "train_small", "validation_small": "validation_small"} | images
        t.set("data.common.type", "super_resolution.PairedPatches", f"{train}type")
        t.set("data.train.scenes.small", "train_small", f"{train}dataroot_lq")
        t.set("data.validation.scenes.small", "validation_small", "datasets.val.dataroot_lq")
    t.data[t.output.stem] = {"kind": "images", "source": f"data/raw/{t.output.stem}", "seed": 7, "max_rejected": 0.0,
                             "images": images}  # fmt: skip


def _amounts(t: Translation) -> None:
    batch, gpus = t.get("datasets.train.batch_size_per_gpu", 16), t.get("num_gpu")
    parts = t.get("datasets.train.accum_iter", 1)
    many = gpus if isinstance(gpus, int) and gpus > 0 else 1
    t.set("data.batch_size", batch * many * parts, "datasets.train.batch_size_per_gpu", "num_gpu")
    if parts > 1:
        t.set("train.accumulation", parts, "datasets.train.accum_iter")
    if t.get("use_amp", False):
        t.set("train.precision", "bf16" if t.get("amp_bf16", False) else "fp16", "use_amp", "amp_bf16")
    t.get("amp_bf16")
    most = t.get("train.grad_clip_max_norm", 100.0)
    if t.get("train.grad_clip", False):
        for step in t.recipe["steps"]:
            t.set(f"steps.{step}.clip", most, "train.grad_clip", "train.grad_clip_max_norm")
    if t.get("logger.wandb.project") is not None:
        t.set("runtime.trackers", [*t.recipe["runtime"]["trackers"], "wandb"], "logger.wandb.project")


def _shares(t: Translation, end: str) -> tuple[dict[str, float], float]:
    """Return the shares of a blur's shapes, and that of anisotropic ones."""
    names = t.get(f"datasets.train.kernel_list{end}", ["iso"])
    chances = dict(zip(names, t.get(f"datasets.train.kernel_prob{end}", [1.0]), strict=True))
    shapes = {"gaussian": "", "generalised": "generalized_", "plateau": "plateau_"}
    sums = {here: sum(chances.get(f"{there}{one}", 0.0) for one in ("iso", "aniso")) for here, there in shapes.items()}
    skewed = sum(chance for name, chance in chances.items() if name.endswith("aniso"))
    return {here: round(one, 6) for here, one in sums.items() if one}, round(skewed / sum(chances.values()), 6)


def _round(t: Translation, end: str, of: str) -> dict[str, Any]:
    data, number = "datasets.train.", end or ""
    shapes, skewed = _shares(t, end)
    blur = t.get("second_blur_prob", 0.8) if number and "second_blur_prob" in t.given else t.get(f"blur_prob{end}", 1.0)
    found: dict[str, Any] = {
        "blur": {"chance": blur, "sigma": t.get(f"{data}blur_sigma{end}", [0.2, 3.0]), "anisotropic": skewed,
                 "shapes": shapes, "generalised": t.get(f"{data}betag_range{end}", [0.5, 4.0]),
                 "plateau": t.get(f"{data}betap_range{end}", [1.0, 2.0])},
        "sinc": {"chance": t.get(f"{data}sinc_prob{end}", 0.1), "cutoff": [0.2, 1.0]},
    }  # fmt: skip
    up, down, keep = t.get(f"resize_prob{end}", [0.2, 0.7, 0.1])
    found["resize"] = {
        "of": of, "chance": round(1 - keep, 6), "smaller": round(down / (up + down), 6),
        "factor": t.get(f"resize_range{end}", [0.15, 1.5]), "kernels": _kernels(t, end),
    }  # fmt: skip
    normal, levels = t.get(f"gaussian_noise_prob{end}", 0.5), t.get(f"noise_range{end}", [1, 30])
    if normal and levels[1]:
        found["gaussian_noise"] = {"chance": float(normal), "std": [round(one / 255, 6) for one in levels]}
    scales = t.get(f"poisson_scale_range{end}", [0.05, 3.0])
    if scales[1] and normal < 1:
        photons = [max(1.0, round(255 / scales[1] ** 2, 3)), min(1.0e5, 255 / max(scales[0], 1e-3) ** 2)]
        found["shot_noise"] = {"chance": round(1 - normal, 6), "photons": photons}
    return {name: one for name, one in found.items() if one["chance"]}


def _kernels(t: Translation, end: str) -> dict[str, float]:
    names = t.get(f"resize_mode_list{end}", ["area", "bilinear", "bicubic"])
    chances = t.get(f"resize_mode_prob{end}", [1.0] * len(names))
    kernels = [t.choice(f"resize_mode_list{end}", name, KERNELS) for name in names]
    return dict(zip(kernels, map(float, chances), strict=True))


def _degrade(t: Translation) -> None:
    rounds = [_round(t, "", "large"), _round(t, "2", "small")]
    chances = [float(t.get(f"jpeg_prob{end}", 1.0)) for end in ("", "2")]
    codecs: list[dict[str, Any]] = [{"chance": chance, "type": "jpeg"} for chance in chances]
    for codec, end in zip(codecs, ("", "2"), strict=True):
        codec["quality"] = t.get(f"jpeg_range{end}", [30, 95])
    if codecs[0]["chance"]:
        rounds[0]["compression"] = codecs[0]
    final: dict[str, Any] = {"rounds": rounds, "kernels": _kernels(t, "3")}
    if chance := t.get("datasets.train.final_sinc_prob", 0.8):
        final["sinc"] = {"chance": chance, "cutoff": [0.33, 1.0]}
    if codecs[1]["chance"]:
        final["compression"] = codecs[1]
    t.set("data.common.degradation", final, "resize_prob", "jpeg_range")
    if t.get("l1_gt_usm", False) | t.get("percep_gt_usm", False) | t.get("gan_gt_usm", False):
        t.set("data.common.sharpening", {"amount": 0.5, "sigma": 8.0, "threshold": 10.0}, "l1_gt_usm")
    for key in ("high_order_degradation", "datasets.train.type"):
        t.get(key)


def _generator(t: Translation) -> None:
    net, scale = "network_g.", t.recipe["data"]["common"]["scale"]
    kind = t.get(f"{net}type", "")
    t.choice(f"{net}type", kind, dict.fromkeys([*OWN, *OF_SPANDREL]))
    given = {key.removeprefix(net): t.get(key) for key in t.given if key.startswith(net) and key != f"{net}type"}
    if kind in OWN:
        shuffles = given.pop("use_pixel_unshuffle", True)
        given.pop("scale", None)
        settings = OWN[kind] | {RRDB[key]: value for key, value in given.items() if key in RRDB}
        settings |= {"unshuffle": 4 // scale} if scale in (1, 2) and shuffles else {}
        for key in [key for key in given if key not in RRDB]:
            t.leave(f"{net}{key}", "super_resolution.RRDBGenerator has no such setting")
        entry = {"type": "super_resolution.RRDBGenerator", **settings, "pixels": "unit", "initial_scale": 0.1}
        t.set("networks.generator", entry, f"{net}type")
        return
    module, preset = OF_SPANDREL[kind]
    entry = {"type": f"spandrel.architectures.{module}", **preset, **given}
    if module.startswith(("SPAN", "Compact")):
        entry = {"num_in_ch": 3, "num_out_ch": 3} | entry
    t.remarks.append("its network is that of the package spandrel: pip install spandrel")
    t.set("networks.generator", entry | {"upscale": scale}, f"{net}type")
    calls: dict[str, Any] = {  # its pictures are in [0, 1]
        "unit": {"type": "Sum", "output": "unit", "terms": {"lq": 0.5}, "constant": 0.5},
        "upscale": {"type": "Forward", "network": "generator", "inputs": {"x": "unit"}, "outputs": {"output": "large"}},
        "signed": {"type": "Sum", "output": "sr", "terms": {"large": 2.0}, "constant": -1.0},
    }
    for where in ("steps.G.injectors", "evaluate.modes.upscaling.injectors"):
        section = t.recipe
        for name in where.split("."):
            section = section[name]
        t.set(where, calls | {name: one for name, one in section.items() if name not in calls})


def _judge(t: Translation, model: str) -> None:
    net = "network_d."
    kind = t.get(f"{net}type", "")
    known = {name.lower(): name for name in JUDGES}
    if kind.lower() not in known:
        t.leave(f"{net}type", f"{kind} is not here; super_resolution.UNetDiscriminator stands in its place")
    name = JUDGES[known.get(kind.lower(), "UNetDiscriminatorSN")]
    entry = {"type": f"super_resolution.{name}", "in_channels": t.get(f"{net}num_in_ch", 3),
             "features": t.get(f"{net}num_feat", 64), "pixels": "unit"}  # fmt: skip
    t.get(f"{net}skip_connection", True)
    t.set("networks.discriminator", entry, f"{net}type")
    real = "sharp" if t.get("gan_gt_usm", False) and "sharpening" in t.recipe["data"]["common"] else "hq"
    t.set("steps.D.injectors.judge.inputs.image", real, "gan_gt_usm")
    if model != "ESRGANModel":
        t.set("steps.G.injectors.judge.inputs", {"image": "sr"})
        t.set("steps.G.injectors.judge.outputs", {"logits": "judged_fake"})


def _losses(t: Translation, model: str) -> None:
    listed = {key.split(".")[2] for key in t.given if key.startswith("train.losses.")}
    places = [f"train.losses.{one}." for one in sorted(listed, key=int)]
    old = {"pixel_opt": "L1Loss", "perceptual_opt": "PerceptualLoss", "gan_opt": "GANLoss", "ldl_opt": "ldlloss"}
    places += [f"train.{one}." for one in old if any(key.startswith(f"train.{one}.") for key in t.given)]
    if not places:  # a file of test.py
        inputs = {"image": "sr", "target": "hq"}
        t.set("losses.G_l1", {"type": "images.L1", "inputs": inputs, "weight": 0.5, "step": "G"})
    for place in places:
        kind = t.get(f"{place}type", old.get(place.split(".")[1], "L1Loss"))
        kind = "ldl" if "ldl" in place else kind.lower().removesuffix("loss")
        kind = "ff" if kind == "focalfrequency" else kind
        _loss(t, place, kind, model)
    t.recipe["losses"] = dict(sorted(t.recipe["losses"].items(), key=lambda one: one[0].startswith("D_")))


def _loss(t: Translation, place: str, kind: str, model: str) -> None:
    key = f"{place}{'perceptual_weight' if f'{place}perceptual_weight' in t.given else 'loss_weight'}"
    weight = t.get(key, 1.0)
    if t.get(f"{place}reduction", "mean") != "mean":
        t.leave(f"{place}reduction", "losses are means here")
    sharp = "sharpening" in t.recipe["data"]["common"]
    usm = t.get("percep_gt_usm" if kind == "perceptual" else "l1_gt_usm", False)
    inputs = {"image": "sr", "target": "sharp" if usm and sharp else "hq"}
    if kind in PIXELS:
        entry, wider = PIXELS[kind]
        t.set(f"losses.G_{kind}", {**entry, "inputs": inputs, "weight": weight / wider, "step": "G"}, key)
        if kind == "charbonnier":
            t.remarks.append("a Charbonnier loss of eps 1e-12 is L1, to 1e-6: images.L1")
    elif kind == "perceptual":
        _perceptual(t, place, key, {"inputs": inputs, "weight": weight, "step": "G"})
    elif kind == "gan":
        _adversarial(t, place, weight, model)
    elif weight:
        for one in (f"{place}type", key):
            t.leave(one, f"{kind} is not here; a loss of yours, or of another package (docs/your_own_code.md)")


def _perceptual(t: Translation, place: str, key: str, rest: dict[str, Any]) -> None:
    before = f"{place}layer_weights."
    layers = {one.removeprefix(before): float(t.get(one)) for one in t.given if one.startswith(before)} or LAYERS
    offered = {f"relu{'5_2' if name > 'conv5_2' else name[4:]}": weight for name, weight in layers.items()}
    if any(name > "conv5_2" for name in layers):
        t.remarks.append("features of conv5_4: relu5_2 is the last here, and all are after the activation")
    entry = {"type": "images.Perceptual", "source": "hub", "layers": offered, **rest}
    t.set("losses.G_feature", entry, before[:-1], key)
    same = {"vgg_type": "vgg19", "use_input_norm": True, "range_norm": False, "criterion": "l1", "style_weight": 0}
    for name, value in same.items():
        if t.given.get(f"{place}{name}", value) == value:
            t.get(f"{place}{name}")


def _adversarial(t: Translation, place: str, weight: float, model: str) -> None:
    kind = t.choice(f"{place}gan_type", t.get(f"{place}gan_type", "vanilla"), KINDS)
    average, both = model == "ESRGANModel", {"type": "images.Adversarial", "kind": kind}
    if average:
        kinds = {"vanilla": "relativistic_average"}
        kinds |= {one: f"relativistic_average_{one}" for one in ("lsgan", "hinge")}
        both["kind"] = t.choice(f"{place}gan_type", kind, kinds)
    for name in ("real_label_val", "fake_label_val"):
        t.get(f"{place}{name}")

    def entry(step: str, target: str, logits: str, opposite: str, value: float) -> dict[str, Any]:
        role = {"G": "generator", "D": "discriminator"}[step]
        inputs = {"logits": logits} | ({"opposite": opposite} if average else {})
        return {**both, "role": role, "target": target, "inputs": inputs, "weight": value, "step": step}

    half = 0.5 if average else 1.0
    key = f"{place}loss_weight"
    t.set("losses.G_fake", entry("G", "real", "judged_fake", "judged_real", weight * half), key)
    if average:
        t.set("losses.G_real", entry("G", "fake", "judged_real", "judged_fake", weight * half), key)
    t.set("losses.D_real", entry("D", "real", "real_logits", "fake_logits", half), f"{place}gan_type")
    t.set("losses.D_fake", entry("D", "fake", "fake_logits", "real_logits", half), f"{place}gan_type")


def _learn(t: Translation, step: str, place: str) -> None:
    kind, rate = t.get(f"{place}type", "Adam"), t.get(f"{place}lr", 1e-4)
    settings = {key.removeprefix(place): t.get(key) for key in t.given if key.startswith(place)}
    settings |= {"type": f"torch.optim.{kind}", "lr": rate, "weight_decay": float(settings.get("weight_decay", 0.0))}
    first = {"type": settings["type"], "lr": rate}
    t.set(f"steps.{step}.optimizer", first | settings, f"{place}type")
    plan = "train.scheduler."
    if (shape := t.get(f"{plan}type", "MultiStepLR")) in ("MultiStepLR", "MultiStepRestartLR"):
        at, factor = t.get(f"{plan}milestones", []), t.get(f"{plan}gamma", 0.5)
        schedule: dict[str, Any] = {"type": "Decay", "at": at, "factor": factor, "over": 0}
    else:
        t.choice(f"{plan}type", shape, {"MultiStepLR": "", "CosineAnnealingRestartLR": ""})
        periods = t.get(f"{plan}periods", [400000])
        weights = [float(one) for one in t.get(f"{plan}restart_weights", [1] * len(periods))]
        schedule = {"type": "CosineRestarts", "periods": periods, "weights": weights, "from": 1.0,
                    "to": round(t.get(f"{plan}eta_min", 0.0) / rate, 12)}  # fmt: skip
    if (rise := t.get("train.warmup_iter", -1)) > 0:
        schedule = {"type": "WarmUp", "steps": rise, "then": schedule}
    t.set(f"steps.{step}.lr_schedule", schedule, f"{plan}type")


def _metrics(t: Translation) -> None:
    for key in [key for key in t.given if key.startswith("val.metrics.") and key.endswith(".type")]:
        place = key.removesuffix("type")
        if t.given[key] not in ("calculate_psnr", "calculate_ssim"):
            continue
        border, luma = t.get(f"{place}crop_border", 0), t.get(f"{place}test_y_channel", False)
        for score in ("upscaling", "bicubic"):
            t.set(f"metrics.scores.{score}.crop_border", border, f"{place}crop_border")
            if luma:
                t.set(f"metrics.scores.{score}.channel", "y", f"{place}test_y_channel")
        for end in ("type", "better"):
            t.get(f"{place}{end}")
    t.get("val.save_img")


def _commands(t: Translation) -> None:
    name = t.output.stem
    t.commands_of(
        f"dvc add data/raw/{name} && dvc repro prepare@{name}",
        f"put its folders below data/raw/{name}, as the entry names them", "train.py -opt", "test.py -opt",
    )  # fmt: skip
    kind = "esrgan" if t.recipe["networks"]["generator"]["type"].startswith("super_") else "spandrel"
    t.weights(kind, str(t.get("path.pretrain_network_g") or "net_g_latest.pth"), "generator")
    if path := t.get("path.pretrain_network_d"):
        t.weights("esrgan", str(path), "discriminator")
    for key in ("path.param_key_g", "path.param_key_d"):
        t.get(key)
