"""Options files of BasicSR and traiNNer-redux: super-resolution by the networks that figura or spandrel has."""

import re
from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Translation

SYSTEM = System(
    "BasicSR, traiNNer-redux", frozenset({"network_g"}), r"(.*/)?(train|test)\.py", frozenset({"-opt"}),
    several=frozenset({"--force_yml"}), assigns=frozenset({"--force_yml"}),
    row=lambda key: re.sub(r"\.\d+\.|\.(val|test)_\d+\.", lambda found: f".{found[1] or '*'}.", key),
)  # fmt: skip
MODELS = {one: one for one in ("", "SRModel", "SRGANModel", "ESRGANModel", "RealESRNetModel", "RealESRGANModel")} | {
    "SwinIRModel": "SRModel", "HATModel": "SRModel",  # but for whole windows in validation; the last two as well
    "DATModel": "SRModel",  # but for parts of a picture in validation
    "RealHATMSEModel": "RealESRNetModel", "RealHATGANModel": "RealESRGANModel",
}  # fmt: skip
RRDB = {"num_in_ch": "in_channels", "num_out_ch": "out_channels", "num_feat": "features", "num_block": "blocks",
        "num_grow_ch": "growth", "in_nc": "in_channels", "out_nc": "out_channels", "num_filters": "features",
        "num_blocks": "blocks"}  # fmt: skip
RCAN = {"num_in_ch": "n_colors", "num_feat": "n_feats", "num_group": "n_resgroups", "num_block": "n_resblocks",
        "squeeze_factor": "reduction", "img_range": "rgb_range"}  # fmt: skip
OWN, OTHERS = "super_resolution.RRDBGenerator", "spandrel.architectures"
COMPACT, SPAN = f"{OTHERS}.Compact.Compact", f"{OTHERS}.SPAN.SPAN"
CHANNELS = {"num_in_ch": 3, "num_out_ch": 3}
NETWORKS: dict[str, tuple[str, dict[str, Any], dict[str, str] | None]] = {
    # class; arguments unless given; names here of all that it has there, None: the same
    "RRDBNet": (OWN, {}, RRDB), "esrgan": (OWN, {}, RRDB), "esrgan_lite": (OWN, {"features": 32, "blocks": 12}, RRDB),
    "RCAN": (f"{OTHERS}.RCAN.RCAN", {"n_resblocks": 16}, RCAN), "SwinIR": (f"{OTHERS}.SwinIR.SwinIR", {}, None),
    "DAT": (f"{OTHERS}.DAT.DAT", {}, None), "HAT": (f"{OTHERS}.HAT.HAT", {}, None),
    "SRVGGNetCompact": (COMPACT, CHANNELS, None),
    "compact": (COMPACT, {**CHANNELS, "num_feat": 64, "num_conv": 16}, None),
    "ultracompact": (COMPACT, {**CHANNELS, "num_feat": 64, "num_conv": 8}, None),
    "superultracompact": (COMPACT, {**CHANNELS, "num_feat": 24, "num_conv": 8}, None),
    "SPAN": (SPAN, CHANNELS, None), "span": (SPAN, {**CHANNELS, "feature_channels": 52, "norm": False}, None),
    "span_s": (SPAN, {**CHANNELS, "feature_channels": 48, "norm": False}, None),
}  # fmt: skip
JUDGES = {"vggstylediscriminator": "VGGDiscriminator", "unetdiscriminatorsn": "UNetDiscriminator"}
KINDS = {"vanilla": "vanilla", "lsgan": "lsgan", "hinge": "hinge", "wgan": "wgan", "wgan_softplus": "vanilla"}
AVERAGES = {"vanilla": "relativistic_average"} | {kind: f"relativistic_average_{kind}" for kind in ("lsgan", "hinge")}
SCHEDULES = {"MultiStepLR": "Decay", "MultiStepRestartLR": "Decay"} | dict.fromkeys(
    ("CosineAnnealingRestartLR", "CosineAnnealingLR_Restart"), "CosineRestarts"
)
SHAPES = {"iso": "gaussian", "aniso": "gaussian", "generalized_iso": "generalised", "generalized_aniso": "generalised",
          "plateau_iso": "plateau", "plateau_aniso": "plateau"}  # fmt: skip
KERNEL_CHANCES = (0.45, 0.25, 0.12, 0.03, 0.12, 0.03)
KERNELS = {"nearest-exact": "nearest"} | {name: name for name in ("area", "bilinear", "bicubic", "lanczos")}
LAYERS = {"conv1_2": 0.1, "conv2_2": 0.1, "conv3_4": 1.0, "conv4_4": 1.0, "conv5_4": 1.0}
OLD_LOSSES = {"pixel_opt": "L1Loss", "perceptual_opt": "PerceptualLoss", "gan_opt": "GANLoss", "ldl_opt": "ldlloss"}
SAME = {"vgg_type": "vgg19", "use_input_norm": True, "range_norm": False, "criterion": "l1", "style_weight": 0}
PIXELS: dict[str, tuple[dict[str, Any], float]] = {  # and how much larger a loss is where pictures are in [-1, 1]
    "l1": ({"type": "images.L1"}, 2.0), "charbonnier": ({"type": "images.L1"}, 2.0),
    "mse": ({"type": "images.L2"}, 4.0), "ldl": ({"type": "images.LocalDiscrimination"}, 1.0),
    "ff": ({"type": "images.FocalFrequency", "alpha": 1.0}, 4.0 / 50),  # theirs returns 50 times the mean
}  # fmt: skip


def translate(t: Translation) -> None:
    """Write a recipe from published/esrgan_x4_psnr.yaml or published/esrgan_x4_gan.yaml."""
    kinds = _kinds(t)
    judged = "network_d.type" in t.given and "gan" in kinds.values()
    t.start(f"published/esrgan_x4_{'gan' if judged else 'psnr'}.yaml")
    model = t.pick("model_type", "", MODELS)
    t.table()
    average = t.get("train.ema_decay", 0.0)
    t.set("train.ema", {"decay": average} if average else None, "train.ema_decay")
    t.drop("train.init_from", *(f"losses.G_{one}" for one in ("pixel", "feature", "fake", "real")))
    _data(t)
    _generator(t)
    if judged:
        _judge(t, model)
    for key in [one for one in t.given if not judged and one.startswith(("network_d.", "train.optim_d."))]:
        t.leave(key, "without an adversarial loss there is no discriminator, there as here")
    _losses(t, kinds, model)
    for step, theirs in (("G", "g"), ("D", "d")) if judged else (("G", "g"),):
        _learn(t, step, f"train.optim_{theirs}.")
    _amounts(t)
    _metrics(t)
    t.read("name", "val.save_img", "save_img", "gt_size", "amp_bf16", "high_order_degradation", "datasets.train.type")
    t.read("path.param_key_g", "path.param_key_d")
    name = t.output.stem
    t.run(f"put its folders below data/raw/{name}, as the entry names them", "train.py -opt", "test.py -opt")
    _weights(t)


def _weights(t: Translation) -> None:
    kind = "esrgan" if t.at("networks.generator")["type"] == OWN else "spandrel"
    keys = [f"path.pretrain_{what}_g" for what in ("network", "model")]
    file = next((str(one) for one in map(t.get, keys) if one is not None), "net_g_latest.pth")
    if t.given.get("network_g.type") == "RCAN":
        why = "spandrel reads its authors' names, not BasicSR's; `figura import state` into a class of yours"
        for key in keys:
            t.leave(key, why)
    else:
        t.weights(kind, file, "generator", run=not t.names("train."))
    if "discriminator" in t.recipe["networks"] and (path := t.get("path.pretrain_network_d")):
        t.weights("esrgan", str(path), "discriminator")


def _data(t: Translation) -> None:
    train = "datasets.train."
    kind = t.get(f"{train}type", "PairedImageDataset")
    small_ones = {"pairedimagedataset": "read", "realesrganpaireddataset": "read", "realesrgandataset": "degraded",
                  "imagenetpaireddataset": "resampled"}  # fmt: skip
    made = t.choice(f"{train}type", kind.lower(), small_ones)
    small = t.get(f"{train}lq_size")
    scale = t.at("data.common")["scale"]
    size = t.get(f"{train}gt_size") or (small * scale if small else t.get("gt_size", 128))
    t.set("data.common.size", size // scale * scale, f"{train}gt_size", f"{train}lq_size", "gt_size")
    t.drop("data.train.scenes.augmentation")
    for here, there, chance in (("horizontal_flip", "use_hflip", 0.5), ("rotate90", "use_rot", 0.75)):
        if t.get(f"{train}{there}", True):
            t.set(f"data.train.scenes.augmentation.{here}", {"chance": chance}, f"{train}{there}")
    t.set("data.common.root", f"data/prepared/{t.output.stem}")
    images: dict[str, str] = {}
    for split, there in _splits(t).items():
        for suffix, key in (("", f"{there}dataroot_gt"), ("_small", f"{there}dataroot_lq")):
            folder = t.get(key)
            if isinstance(folder, list):
                t.leave(key, "the first of these folders; put them all below one")
                folder = folder[0] if folder else None
            if folder in images.values():
                t.leave(key, "the folder of the large pictures there, too: put the small ones into one of their own")
                folder = None
            if made == "read" or not suffix:
                images[f"{split}{suffix}"] = t.below(folder or f"{split}{suffix}", f"{split}{suffix}")
    if made == "degraded":
        _degrade(t)
    elif made == "resampled":
        t.leave(f"{train}type", "pictures smaller than a patch are enlarged there, and left out here")
    else:
        t.set("data.common.type", "super_resolution.PairedPatches", f"{train}type")
        t.set("data.train.scenes.small", "train_small", f"{train}dataroot_lq")
        t.set("data.validation.scenes.small", "validation_small", "datasets.val.dataroot_lq")
    t.dataset("images", images)


def _splits(t: Translation) -> dict[str, str]:
    """Return the sections of datasets, by split; the first set that is judged is `validation`."""
    found = {"train": "datasets.train."} if t.names("datasets.train.") else {}
    for one in [f"datasets.{one}." for one in t.names("datasets.") if one.startswith(("val", "test"))]:
        if f"{one}dataroot_gt" in t.given:
            name = str(t.given.get(f"{one}name", one.split(".")[1])).lower()
            found[re.sub(r"[^a-z0-9_-]", "_", name) if "validation" in found else "validation"] = one
        else:
            t.leave(f"{one}dataroot_lq", "small pictures alone: `figura predict` enlarges them")
    found.setdefault("validation", "datasets.val.")
    return found


def _amounts(t: Translation) -> None:
    batch, gpus = t.count("datasets.train.batch_size_per_gpu", 16), t.get("num_gpu")
    parts = t.count("datasets.train.accum_iter", 1)
    many = gpus if isinstance(gpus, int) and gpus > 0 else 1
    t.set("data.batch_size", batch * many * parts, "datasets.train.batch_size_per_gpu", "num_gpu")
    if gpus == "auto":
        t.leave("num_gpu", "the batch is batch_size_per_gpu times their number there; data.batch_size is that of one")
    if parts > 1:
        t.take("train.accumulation", "datasets.train.accum_iter")
    if t.get("use_amp", False):
        t.set("train.precision", "bf16" if t.get("amp_bf16", False) else "fp16", "use_amp", "amp_bf16")
    most = t.get("train.grad_clip_max_norm", 100.0)
    for step in t.recipe["steps"] if t.get("train.grad_clip", False) else ():
        t.set(f"steps.{step}.clip", most, "train.grad_clip", "train.grad_clip_max_norm")
    if t.get("logger.wandb.project") is not None:
        t.set("runtime.trackers", [*t.at("runtime")["trackers"], "wandb"], "logger.wandb.project")


def _shares(t: Translation, end: str) -> tuple[dict[str, float], float]:
    """Return the shares of a blur's shapes, and that of anisotropic ones."""
    key, sums, skewed = f"datasets.train.kernel_list{end}", dict.fromkeys(SHAPES.values(), 0.0), 0.0
    names = t.get(key, [*SHAPES])
    chances = t.numbers(f"datasets.train.kernel_prob{end}", KERNEL_CHANCES[: len(names)])
    for name, chance in zip(names, chances, strict=False):
        sums[t.choice(key, name, SHAPES)] += chance
        skewed += chance if name.endswith("aniso") else 0.0
    whole = sum(sums.values()) or 1.0
    return {here: round(one, 6) for here, one in sums.items() if one}, round(skewed / whole, 6)


def _round(t: Translation, end: str, of: str) -> dict[str, Any]:
    """Return a round; defaults are traiNNer-redux', because BasicSR, which has `model_type`, requires the keys."""
    data, always = "datasets.train.", float("model_type" in t.given)
    shapes, skewed = _shares(t, end)
    blur = "second_blur_prob" if end and "second_blur_prob" in t.given else f"blur_prob{end}"
    either, sinc = float(t.get(blur, always)), float(t.get(f"{data}sinc_prob{end}", 0.0))
    low_pass = either * sinc  # there the first draw is whether to filter, here it is whether by the sinc filter
    found: dict[str, Any] = {
        "blur": {"chance": round((either - low_pass) / (1 - low_pass or 1), 6),
                 "sigma": t.numbers(f"{data}blur_sigma{end}", [0.2, 1 if end else 2]),
                 "anisotropic": skewed, "shapes": shapes,
                 "generalised": t.numbers(f"{data}betag_range{end}", [0.5, 4.0]),
                 "plateau": t.numbers(f"{data}betap_range{end}", [1.0, 2.0])},
        "sinc": {"chance": round(low_pass, 6), "cutoff": [0.2, 1.0]},
    }  # fmt: skip
    up, down, keep = t.numbers(f"resize_prob{end}", [0.3, 0.4, 0.3] if end else [0.2, 0.7, 0.1])
    found["resize"] = {
        "of": of, "chance": round(1 - keep, 6), "smaller": round(down / (up + down or 1), 6),
        "factor": t.numbers(f"resize_range{end}", [0.6, 1.2] if end else [0.4, 1.5]), "kernels": _kernels(t, end),
    }  # fmt: skip
    normal, levels = t.get(f"gaussian_noise_prob{end}", 0.0), t.numbers(f"noise_range{end}", [0, 0])
    if levels[1]:
        found["gaussian_noise"] = {"chance": float(normal), "std": [round(one / 255, 6) for one in levels]}
    scales = t.numbers(f"poisson_scale_range{end}", [0, 0])
    if scales[1]:
        photons = [max(1.0, round(255 / scales[1] ** 2, 3)), min(1.0e5, 255 / max(scales[0], 1e-3) ** 2)]
        found["shot_noise"] = {"chance": round(1 - normal, 6), "photons": photons}
    return {name: one for name, one in found.items() if one["chance"]}


def _kernels(t: Translation, end: str) -> dict[str, float]:
    others = ["area"] if "model_type" in t.given else ["nearest-exact", "lanczos"]  # BasicSR's are in its code
    names = t.get(f"resize_mode_list{end}", [*others, "bilinear", "bicubic"])
    chances = t.numbers(f"resize_mode_prob{end}", [1.0] * len(names))
    kernels = [t.choice(f"resize_mode_list{end}", name, KERNELS) for name in names]
    return dict(zip(kernels, map(float, chances), strict=False))


def _degrade(t: Translation) -> None:
    rounds = [_round(t, "", "large"), _round(t, "2", "small")]
    final: dict[str, Any] = {"rounds": rounds, "kernels": _kernels(t, "3")}
    if chance := t.get("datasets.train.final_sinc_prob", 0.0):
        final["sinc"] = {"chance": chance, "cutoff": [0.33, 1.0]}
    for end, place in (("", rounds[0]), ("2", final)):
        quality = t.numbers(f"jpeg_range{end}", [75, 95])
        if chance := float(t.get(f"jpeg_prob{end}", 1.0)):
            place["compression"] = {"chance": chance, "type": "jpeg", "quality": quality}
    t.set("data.common.degradation", final, "resize_prob", "jpeg_range")
    if any(t.get(key, False) for key in ("l1_gt_usm", "percep_gt_usm", "gan_gt_usm", "gt_usm")):
        t.set("data.common.sharpening", {"amount": 0.5, "sigma": 8.0, "threshold": 10.0}, "l1_gt_usm")


def _generator(t: Translation) -> None:
    net, here, scale = "network_g.", "networks.generator", t.at("data.common")["scale"]
    kind, settings, names = t.pick(f"{net}type", "", NETWORKS)
    t.set(here, {"type": kind, **settings}, f"{net}type")
    t.read(f"{net}scale", f"{net}upscale")
    if kind == OWN:
        t.at(here).update(pixels="unit", initial_scale=0.1)
        if t.get(f"{net}use_pixel_unshuffle", True) and scale in (1, 2):
            t.set(f"{here}.unshuffle", 4 // scale)
    for key in [key for key in t.names(net) if f"{net}{key}" not in t.taken]:
        if names is None or key in names:
            t.take(f"{here}.{names[key] if names else key}", f"{net}{key}")
        else:
            t.leave(f"{net}{key}", f"{kind} has no such setting")
    if kind == OWN:
        return
    t.set(f"{here}.{'scale' if names else 'upscale'}", scale)
    if "rgb_range" in t.at(here):  # a whole number here
        t.at(here)["rgb_range"] = int(t.at(here)["rgb_range"])
    t.remarks.append("its network is that of the package spandrel: pip install spandrel")
    calls: dict[str, Any] = {  # its pictures are in [0, 1]
        "unit": {"type": "Sum", "output": "unit", "terms": {"lq": 0.5}, "constant": 0.5},
        "upscale": {"type": "Forward", "network": "generator", "inputs": {"x": "unit"}, "outputs": {"output": "large"}},
        "signed": {"type": "Sum", "output": "sr", "terms": {"large": 2.0}, "constant": -1.0},
    }
    for where in ("steps.G.injectors", "evaluate.modes.upscaling.injectors"):
        t.set(where, calls | {name: one for name, one in t.at(where).items() if name not in calls})


def _judge(t: Translation, model: str) -> None:
    net, here, kind = "network_d.", "networks.discriminator", t.get("network_d.type", "")
    if kind.lower() not in JUDGES:
        t.leave(f"{net}type", f"{kind} is not here; super_resolution.UNetDiscriminator stands in its place")
    judge = f"super_resolution.{JUDGES.get(kind.lower(), 'UNetDiscriminator')}"
    t.set(here, {"type": judge, "pixels": "unit"}, f"{net}type")
    t.take(f"{here}.in_channels", f"{net}num_in_ch", 3)
    t.take(f"{here}.features", f"{net}num_feat", 64)
    if not t.get(f"{net}skip_connection", True):
        t.leave(f"{net}skip_connection", "super_resolution.UNetDiscriminator always has them")
    t.set("steps.D.injectors.judge.inputs.image", _target(t, "gan_gt_usm"), "gan_gt_usm")
    if model != "ESRGANModel":
        t.set("steps.G.injectors.judge.inputs", {"image": "sr"})
        t.set("steps.G.injectors.judge.outputs", {"logits": "judged_fake"})
    if judge.endswith("VGGDiscriminator"):  # batch norm
        t.judge_apart("discriminator")


def _target(t: Translation, key: str) -> str:
    key = "gt_usm" if MODELS.get(t.given.get("model_type", "")) == "RealESRNetModel" else key
    sharp = t.get(key, False)
    if sharp and "sharpening" not in t.at("data.common"):
        t.leave(key, "pairs (super_resolution.PairedPatches) have no sharpened target")
        return "hq"
    return "sharp" if sharp else "hq"


def _kinds(t: Translation) -> dict[str, str]:
    """Return the kinds of losses, by the beginning of their keys; of weight 0, none that calls a network."""
    places = [f"losses.{one}" for one in sorted(t.names("train.losses."), key=int)]
    places += [one for one in OLD_LOSSES if t.names(f"train.{one}.")]
    found: dict[str, str] = {}
    for place in places:
        kind = t.get(f"train.{place}.type", OLD_LOSSES.get(place, "L1Loss"))
        kind = "ldl" if "ldl" in place else kind.lower().removesuffix("loss")
        if kind not in ("gan", "ldl") or _weight(t, f"train.{place}.")[1]:
            found[f"train.{place}."] = "ff" if kind == "focalfrequency" else kind
    return found


def _weight(t: Translation, place: str) -> tuple[str, float]:
    """Return a loss's weight, and its key."""
    key = f"{place}{'perceptual_weight' if f'{place}perceptual_weight' in t.given else 'loss_weight'}"
    return key, t.get(key, 1.0)


def _losses(t: Translation, kinds: dict[str, str], model: str) -> None:
    if not kinds:  # a file of test.py
        inputs = {"image": "sr", "target": "hq"}
        t.set("losses.G_l1", {"type": "images.L1", "inputs": inputs, "weight": 0.5, "step": "G"})
    for place, kind in kinds.items():
        _loss(t, place, kind, model)
    t.recipe["losses"] = dict(sorted(t.recipe["losses"].items(), key=lambda one: one[0].startswith("D_")))


def _loss(t: Translation, place: str, kind: str, model: str) -> None:
    key, weight = _weight(t, place)
    if t.get(f"{place}reduction", "mean") != "mean":
        t.leave(f"{place}reduction", "losses are means here")
    if weight < 0:  # of traiNNer-redux
        kind = "a loss towards the enlarged input (a negative weight)"
    target = _target(t, "percep_gt_usm" if kind == "perceptual" else "l1_gt_usm")
    inputs = {"image": "sr"} | ({"target": "hq", "average": _average(t)} if kind == "ldl" else {"target": target})
    if kind in PIXELS:
        entry, wider = PIXELS[kind]
        t.set(f"losses.G_{kind}", {**entry, "inputs": inputs, "weight": weight / wider, "step": "G"}, key)
        if kind == "ff" and t.get(f"{place}ave_spectrum", True):
            t.leave(f"{place}type", "the spectra of a batch are averaged there before they are compared, not here")
        if kind == "charbonnier":
            t.remarks.append("a Charbonnier loss of eps 1e-12 is L1, to 1e-6: images.L1")
    elif kind == "perceptual":
        _perceptual(t, place, key, {"inputs": inputs, "weight": weight, "step": "G"})
    elif kind == "gan":
        _adversarial(t, place, weight, model)
    elif weight:
        for one in (f"{place}type", key):
            t.leave(one, f"{kind} is not here; a loss of yours, or of another package (docs/your_own_code.md)")


def _average(t: Translation) -> str:
    """Let the averaged generator enlarge the input, too; return the name of the result."""
    calls = t.at("steps.G.injectors")
    name, out = ("signed", "large") if "signed" in calls else ("upscale", "sr")
    (output,) = calls["upscale"]["outputs"]
    calls["average"] = {**calls["upscale"], "weights": "ema", "outputs": {output: f"{out}_average"}}
    if name == "signed":
        calls["signed_average"] = {**calls["signed"], "output": "sr_average", "terms": {"large_average": 2.0}}
    return "sr_average"


def _perceptual(t: Translation, place: str, key: str, rest: dict[str, Any]) -> None:
    before = f"{place}layer_weights."
    layers = {name: t.get(f"{before}{name}", 1.0) for name in t.names(before)} or LAYERS
    offered: dict[str, float] = {}
    for name, weight in layers.items():  # conv5_4 or relu5_4
        here = f"relu{min(name[4:], '5_2')}"
        offered[here] = offered.get(here, 0.0) + weight
    if any(name[4:] > "5_2" or name.startswith("conv") for name in layers):
        t.remarks.append("features: relu5_2 is the last layer here, and all are after the activation")
    entry = {"type": "images.Perceptual", "source": "hub", "layers": offered, **rest}
    t.set("losses.G_feature", entry, before[:-1], key)
    t.read(*(f"{place}{name}" for name, value in SAME.items() if t.given.get(f"{place}{name}", value) == value))


def _adversarial(t: Translation, place: str, weight: float, model: str) -> None:
    kind, average = t.pick(f"{place}gan_type", "vanilla", KINDS), model == "ESRGANModel"
    kind = t.choice(f"{place}gan_type", kind, AVERAGES) if average else kind
    for label, usual in (("real_label_val", 1.0), ("fake_label_val", 0.0)):
        if t.get(f"{place}{label}", usual) != usual:
            t.leave(f"{place}{label}", "labels are 1 of real and 0 of fake pictures here")
    half = 0.5 if average else 1.0
    for end, entry in adversarial(kind, "generator", "judged_real", "judged_fake").items():
        t.set(f"losses.G_{end}", {**entry, "weight": weight * half, "step": "G"}, f"{place}loss_weight")
    levels = {"real_logits": "real_level", "fake_logits": "fake_level"}
    for end, entry in adversarial(kind, "discriminator", *levels).items():
        if average:  # no gradient flows through the mean of the others
            entry["inputs"]["opposite"] = levels[entry["inputs"]["opposite"]]
        t.set(f"losses.D_{end}", {**entry, "weight": half, "step": "D"}, f"{place}gan_type")
    if average:
        t.set("steps.D.injectors.levels", {"type": "Detach", "names": levels})


def adversarial(kind: str, role: str, real: str, fake: str) -> dict[str, dict[str, Any]]:
    """Return the entries of an adversarial loss, by the pictures that it judges, `fake` and `real`.

    Args:
        kind: of `images.Adversarial`; only of relative ones a generator has a loss of real pictures.
        role: whose loss it is, `generator` or `discriminator`.
        real: name of the logits of real pictures.
        fake: name of the logits of fake ones.
    """
    entries, average, judges = {}, kind.startswith("relativistic"), role == "discriminator"
    for end, logits, opposite in (("fake", fake, real), ("real", real, fake)):
        if end == "fake" or average or judges:
            inputs = {"logits": logits} | ({"opposite": opposite} if average else {})
            target = "real" if (end == "real") == judges else "fake"
            entry = {"type": "images.Adversarial", "kind": kind, "role": role, "target": target, "inputs": inputs}
            entries[end] = entry
    return entries


def _learn(t: Translation, step: str, place: str) -> None:
    kind, rate = t.get(f"{place}type", "Adam"), t.get(f"{place}lr", 1e-4)
    settings = {key: t.get(f"{place}{key}") for key in t.names(place) if key not in ("type", "lr")}
    t.set(f"steps.{step}.optimizer", {"type": f"torch.optim.{kind}", "lr": rate, **settings}, f"{place}type")
    names = ("type", "milestones", "gamma", "periods", "restart_weights", "eta_min")
    found = schedule(t, rate, *(f"train.scheduler.{name}" for name in names))
    t.set(f"steps.{step}.lr_schedule", found, "train.scheduler.type")


def schedule(
    t: Translation, rate: float, kind: str, at: str, factor: str, periods: str, weights: str, low: str, **others: Any
) -> dict[str, Any]:
    """Return the schedule of a rate, from the keys that say its kind and settings; `others` are those of cosines.

    With these, as DL-Art-School has them, weights belong to the restarts, so the first period has none.
    """
    name = t.get(kind, "MultiStepLR")
    name = next((one for one in SCHEDULES if one.lower() == name.lower()), name)  # of any case in traiNNer-redux
    if t.choice(kind, name, SCHEDULES) == "Decay":
        found = {"type": "Decay", "at": t.numbers(at), "factor": t.get(factor, 0.1), "over": 0}
    else:
        lengths = t.numbers(periods) or [400000]
        shares = [*([1.0] if others else []), *map(float, t.numbers(weights)), *[1.0] * len(lengths)][: len(lengths)]
        to = round(t.get(low, 0.0) / rate, 12) if rate else 0.0
        found = {"type": "CosineRestarts", "periods": lengths, "weights": shares, "from": 1.0, "to": to, **others}
    rise = t.get("train.warmup_iter", -1)
    return {"type": "WarmUp", "steps": rise, "then": found} if rise > 0 else found


def _metrics(t: Translation) -> None:
    scores, scale = ("upscaling", "bicubic"), t.at("data.common")["scale"]
    if "crop_border" in t.given:  # of a file of test.py
        border = t.get("crop_border")
        for score in scores:
            t.set(f"metrics.scores.{score}.crop_border", scale if border is None else border)
    metric = "psnr"
    for place in (f"val.metrics.{name}." for name in t.names("val.metrics.")):
        if t.given.get(f"{place}type") not in ("calculate_psnr", "calculate_ssim"):
            continue
        t.read(f"{place}type", f"{place}better")
        luma = t.get(f"{place}test_y_channel", False)
        metric = "psnr_y" if luma else metric
        for score in (f"metrics.scores.{score}" for score in scores):
            t.take(f"{score}.crop_border", f"{place}crop_border", 0)
            if luma:
                t.set(f"{score}.channel", "y", f"{place}test_y_channel")
    summary(t, metric)


def summary(t: Translation, metric: str) -> None:
    """Let the summary name the recipe's scale, and the metric of its scores."""
    upscaling, bicubic = (f"{score}.{metric}" for score in ("upscaling", "bicubic"))
    entry = {"metric": upscaling, "beside": bicubic, "better": "higher"}
    t.set("metrics.summary", {f"psnr_x{t.at('data.common')['scale']}": entry})
