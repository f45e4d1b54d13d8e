"""OpenPifPaf's `openpifpaf.train`, `openpifpaf.eval` and `openpifpaf.predict`."""

import re
import shlex
from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Table, Translation

BOXES = ("cocodet", "nuscenes")
DATASETS = {"cocokp": 56599, "cocodet": 117266} | dict.fromkeys(
    ("animal", "apollo", "crowdpose", "wholebody", "nuscenes")
)
"""Pictures of COCO that train them; those of plugins take --examples."""
OF_DATASET = (
    "square-edge|extended-scale|orientation-invariant|blur|no-augmentation|rescale-images|upsample|min-kp-anns|bmin|"
    "with-dense|(?:train|val)-annotations|(?:train|val)-image-dir"
)
PLUGIN = re.compile(rf"--(animal|apollo|crowdpose|wholebody|nuscenes)-({OF_DATASET})")


def row(option: str) -> str:
    """Return the option of COCO for that of a plugin, whose endings mean the same."""
    return PLUGIN.sub(lambda found: f"--{'cocodet' if found[1] in BOXES else 'cocokp'}-{found[2]}", option)


SWITCHES = """
    -q --quiet --debug --adam --amsgrad --no-nesterov --auto-tune-mtl --auto-tune-mtl-variance --scale-log
    --caf-fixed-size --encoder-no-suppress-selfhidden --encoder-suppress-invisible --encoder-suppress-collision
    --cf3-no-inplace-ops --cf4-no-inplace-ops --ddp --disable-cuda --no-sync-batchnorm --no-download-progress
    --log-stats --force-complete-pose --greedy --no-reverse-match --nms-before-force-complete --cifcaf-block-joints
    --profile --ablation-caf-no-rescore --ablation-cifseeds-nms --ablation-cifseeds-no-rescore
    --ablation-independent-kp --coco-no-eval-annotation-filter --coco-eval-extended-scale --cocokp-eval-test2017
    --cocokp-eval-testdev2017 --crowdpose-eval-test --eval-no-skip-epoch0 --eval-no-skip-existing
    --eval-show-final-image --eval-show-final-ground-truth --eval-write-predictions --precise-rescaling --show
    --show-box --show-joint-scales --show-joint-confidences --show-decoding-order --show-frontier-order
    --show-only-decoded-connections --horizontal-flip --monocolor-connections --separate-debug-ax
    --resnet-no-pretrain --resnet-remove-last-block --mobilenetv2-no-pretrain --mobilenetv3-no-pretrain
    --shufflenetv2-no-pretrain --squeezenet-no-pretrain --shufflenetv2k-conv5-as-stage --shufflenetv2k-group-norm
    --shufflenetv2k-instance-norm --shufflenetv2k-leaky-relu --trackingpose-track-recovery
    --trackingpose-single-seed --apollo-use-24-kps
"""
FLAGS = ("extended-scale", "no-augmentation", "with-dense")
SYSTEM = System(
    "OpenPifPaf", "openpifpaf", program=r"openpifpaf\.(train|eval|predict)", row=row,
    switches=frozenset(SWITCHES.split()) | {f"--{name}-{flag}" for name in DATASETS for flag in FLAGS},
    several=frozenset({"--lr-decay", "--lr-warm-restarts", "--lambdas", "--component-lambdas", "--debug-indices",
                       "--dataset-weights", "--decoder", "--crop"}),
    aliases={"-q": "--quiet", "-o": "--output"},
)  # fmt: skip
STEP, BACKBONE = "steps.network.", "networks.network.backbone."
LOSSES: Table = {  # of each head
    "--b-scale": ("b_scale", 1.0), "--scale-log": ("scale_log", False), "--focal-alpha": ("focal_alpha", 0.5),
    "--scale-soft-clamp": ("scale_soft_clamp regression_soft_clamp", 5.0), "--focal-gamma": ("focal_gamma", 1.0),
    "--bce-soft-clamp": ("confidence_soft_clamp", 5.0), "--bce-background-clamp": ("background_clamp", -15.0),
}  # fmt: skip
DECODER: Table = {
    "--seed-threshold": ("seed_threshold", 0.2), "--keypoint-threshold": ("keypoint_threshold", 0.15),
    "--keypoint-threshold-rel": ("keypoint_threshold_rel", 0.5), "--cif-th": ("cif_threshold", 0.3),
    "--caf-th": ("caf_threshold", 0.3), "--instance-threshold": ("instance_threshold", None),
    "--force-complete-pose": ("force_complete", False), "--greedy": ("greedy", False),
    "--force-complete-caf-th": ("force_complete_caf_threshold", 0.001),
    "--connection-method": ("connection_method", "blend"),
    "--no-reverse-match": ("reverse_match", False, lambda no: not no),
    "--ablation-cifseeds-no-rescore": ("cif_rescore", None, lambda no: not no),
    "--ablation-caf-no-rescore": ("caf_rescore", None, lambda no: not no),
    "--ablation-cifseeds-nms": ("seed_nms", None), "--ablation-independent-kp": ("independent_keypoints", None),
}  # fmt: skip
OF_BOXES = ("--seed-threshold", "--cif-th", "--instance-threshold")
HEADS = {
    "cif": {"--cif-side-length": "side_length"}, "cifdet": {"--cif-side-length": "side_length"},
    "caf": {"--caf-min-size": "min_size", "--caf-fixed-size": "fixed_size", "--caf-aspect-ratio": "aspect_ratio"},
}  # fmt: skip
HIDDEN = {"--encoder-suppress-invisible": "suppress_invisible", "--encoder-suppress-collision": "suppress_collision"}
TABLE: Table = {
    "--clip-grad-value": (f"{STEP}clip_value", 0.0, lambda most: most or None),
    "--ema": ("train.ema", 0.01, lambda new: {"decay": 1 - new} if new else None),
    "--log-interval": ("runtime.log_every", 11),
    "--loader-workers": ("runtime.workers", None),
    "--no-sync-batchnorm": ("train.sync_batch_norm", None, lambda no: not no),
    "--quiet": ("runtime.progress", None, lambda quiet: not quiet),
    "--profile": ("runtime.timing", None, bool),
    "--shufflenetv2k-input-conv2-stride": (f"{BACKBONE}input_conv2", None, bool),
    "--shufflenetv2k-input-conv2-outchannels": (f"{BACKBONE}input_conv2_channels", None),
    "--shufflenetv2k-stage4-dilation": (f"{BACKBONE}stage4_dilation", None),
    "--shufflenetv2k-kernel": (f"{BACKBONE}kernel", None),
    "--shufflenetv2k-conv5-as-stage": (f"{BACKBONE}conv5_as_stage", None),
    "--shufflenetv2k-leaky-relu": (f"{BACKBONE}leaky_relu", None),
    "--shufflenetv2k-instance-norm": (f"{BACKBONE}norm", None, {True: "instance"}),
    "--shufflenetv2k-group-norm": (f"{BACKBONE}norm", None, {True: "group"}),
    "--resnet-pool0-stride": (f"{BACKBONE}pool0_stride", None),
    "--resnet-input-conv-stride": (f"{BACKBONE}input_conv_stride", None),
    "--resnet-input-conv2-stride": (f"{BACKBONE}input_conv2", None, bool),
    "--resnet-block5-dilation": (f"{BACKBONE}block5_dilation", None),
    "--resnet-remove-last-block": (f"{BACKBONE}remove_last_block", None),
}
DRAWN = "predict.injectors.draw_photo.style."
STYLE: Table = {
    "--line-width": (f"{DRAWN}line_width", None), "--show-box": (f"{DRAWN}boxes", None),
    "--show-joint-scales": (f"{DRAWN}joint_scales", None), "--white-overlay": (f"{DRAWN}whiten", None, float),
    "--skeleton-solid-threshold": (f"{DRAWN}solid_threshold", None, float),
    "--monocolor-connections": (f"{DRAWN}colours", None, {True: "instance"}),
}  # fmt: skip
OWN_NAMES = ("16", "20", "30", "44", "x5")
RESNETS = {f"resnet{depth}" for depth in (18, 50, 101, 152)}
TIMM = {"resnext50": "resnext50_32x4d", "resnext101": "resnext101_32x8d", "mobilenetv2": "mobilenetv2_100",
        "mobilenetv3small": "mobilenetv3_small_100", "mobilenetv3large": "mobilenetv3_large_100"}  # fmt: skip
BACKBONES: dict[str, dict[str, Any]] = {
    **{f"shufflenetv2k{one}": {"name": f"shufflenetv2k{one}"} for one in OWN_NAMES},
    **{name: {"name": name, "pretrained": "hub"} for name in RESNETS},
    **{name: {"name": "timm", "model": model, "pretrained": True} for name, model in TIMM.items()},
    "cifar10net": {"name": "small"},
}


def translate(t: Translation) -> None:
    """Write a recipe from published/openpifpaf_shufflenetv2k16.yaml or openpifpaf_cocodet.yaml."""
    decoders = " ".join(map(str, t.given.get("--decoder", [])))
    dataset = t.get("--dataset", "cocodet" if "cifdet" in decoders else "cocokp")
    t.choice("--dataset", dataset, DATASETS)
    boxes = dataset in BOXES
    t.leave("--regression-soft-clamp", "the value of --scale-soft-clamp is used there, and so it is here")
    t.start(f"published/openpifpaf_{'cocodet' if boxes else 'shufflenetv2k16'}.yaml")
    if t.examples is None:
        t.examples = DATASETS[dataset]
    _decode(t, boxes)
    batch = t.get("--batch-size", 1)
    t.set("data.batch_size" if t.program == "train" else "evaluate.batch_size", batch, "--batch-size")
    told = re.search("|".join(BACKBONES), str(t.given.get("--checkpoint")))
    net = t.get("--basenet", told[0] if told else "shufflenetv2k16")
    if not boxes or "--basenet" in t.given or told:
        t.set("networks.network.backbone", dict(t.choice("--basenet", net, BACKBONES)), "--basenet")
    if t.program == "train":
        t.table(TABLE)
        if t.get("--resnet-no-pretrain", False):
            t.drop(f"{BACKBONE}pretrained")
        _heads(t, dataset, boxes)
        _augment(t, f"--{dataset}-", boxes)
        _learn(t, batch)
    else:
        t.table({one: TABLE[one] for one in ("--loader-workers", "--quiet")} | STYLE)
    _data(t, dataset, boxes)


def _decode(t: Translation, boxes: bool) -> None:
    name, mode = ("objects", "boxes") if boxes else ("people", "poses")
    decoder = f"evaluate.modes.{mode}.injectors.{name}.decoder"
    if t.program == "train":  # the recipe's, by which figures were published
        return
    for option, (here, default, *change) in DECODER.items():
        if not boxes or option in OF_BOXES:
            value = t.get(option, default)
            if value is not None:
                t.set(f"{decoder}.{here}", change[0](value) if change else value, option)
    if t.program == "eval":
        t.set("evaluate.data.scenes.side", t.get("--coco-eval-long-edge", 641), "--coco-eval-long-edge")
        everything = t.get("--coco-no-eval-annotation-filter", False)
        t.set("evaluate.data.scenes.keep_empty", everything, "--coco-no-eval-annotation-filter")
        if not boxes:
            t.set("evaluate.data.scenes.min_keypoint_annotations", 0 if everything else 1)
    else:
        t.set("predict.data.side", t.get("--long-edge", 0), "--long-edge")
    if all(re.match("cifcaf|cifdet", str(one)) for one in t.given.get("--decoder", [])):
        t.get("--decoder")


def _heads(t: Translation, dataset: str, boxes: bool) -> None:
    upsample = t.get(f"--{dataset}-upsample", 1)
    settings = t.recipe["networks"]["network"]["backbone"]
    halved = max(settings.get("stage4_dilation", 1), settings.get("block5_dilation", 1)) > 1
    stride = (32 if settings.get("input_conv2") else 16) // (2 if halved else 1) // upsample
    names = ["cifdet"] if boxes else ["cif", "caf"]
    kinds: dict[str, dict[str, Any]] = {name: {} for name in names}
    if not boxes and t.get(f"--{dataset}-with-dense", False):
        kinds["caf25"] = {"kind": "caf", "connections": "dense"}
        t.set("steps.network.injectors.detect.outputs.caf25", "caf25")
        people = "evaluate.modes.poses.injectors."
        t.set(f"{people}detect.outputs.caf25", "caf25")
        t.set(f"{people}people.dense", "caf25", f"--{dataset}-with-dense")
    lambdas = t.get("--lambdas")
    for place, (name, kind) in enumerate(kinds.items()):
        t.set(f"data.common.heads.{name}", {**kind, "stride": stride}, f"--{dataset}-upsample")
        t.set(f"networks.network.heads.{name}", kind | ({} if upsample == 2 else {"upsample": upsample}))
        _loss(t, place, name, kind.get("kind", name), float(lambdas[place]) if lambdas else 1.0)
        for option, (here, value) in _encoder(t, dataset, kind.get("kind", name)).items():
            t.set(f"data.common.heads.{name}.{here}", value, option)
    if t.get("--auto-tune-mtl", False):
        t.set("networks.tasks", {"type": "pose.TaskWeights", "heads": [*kinds]}, "--auto-tune-mtl")
        for name in kinds:
            t.set(f"losses.{name}.inputs.log_sigmas", f"{name}_sigmas")
        t.set("steps.network.trains", ["network", "tasks"])
        outputs = {name: f"{name}_sigmas" for name in kinds}
        weigh = {"type": "Forward", "network": "tasks", "inputs": {}, "outputs": outputs}
        t.set("steps.network.injectors.weigh", weigh, "--auto-tune-mtl")
        t.set("steps.network.groups.tasks", {"pattern": r"^tasks\.", "weight_decay": 0.0})


def _loss(t: Translation, place: int, name: str, head: str, weight: float) -> None:
    loss = {"type": "pose.Composite", "head": head, "inputs": {"fields": name, "target": f"{name}_target"}}
    t.set(f"losses.{name}", {**loss, "weight": weight}, "--lambdas")
    for option, (here, default) in LOSSES.items():
        if (value := t.get(option, default)) != default:
            for one in here.split():
                t.set(f"losses.{name}.{one}", None if "clamp" in option and not value else value, option)
    parts = t.get("--component-lambdas")
    for part, here in enumerate(("confidence", "vector", "scale") if parts else ()):
        t.set(f"losses.{name}.{here}", float(parts[3 * place + part]), "--component-lambdas")


def _encoder(t: Translation, dataset: str, head: str) -> dict[str, tuple[str, Any]]:
    """Return the settings of a head's targets, by option."""
    found = {option: (here, t.get(option)) for option, here in (HEADS[head] | HIDDEN).items()}
    if head != "cifdet":
        found[f"--{dataset}-bmin"] = ("bmin", t.get(f"--{dataset}-bmin"))
    found = {option: (here, value) for option, (here, value) in found.items() if value is not None}
    if t.get("--encoder-no-suppress-selfhidden", False):
        found["--encoder-no-suppress-selfhidden"] = ("suppress_hidden", None)
    return found


def _augment(t: Translation, prefix: str, boxes: bool) -> None:
    t.set("data.common.side", t.get(f"{prefix}square-edge", 513 if boxes else 385), f"{prefix}square-edge")
    if not boxes and (least := t.get(f"{prefix}min-kp-anns", 1)) != 1:
        t.set("data.train.scenes.min_keypoint_annotations", least, f"{prefix}min-kp-anns")
    extended, scale = t.get(f"{prefix}extended-scale", False), t.get(f"{prefix}rescale-images", 1.0)
    turns, blur = t.get(f"{prefix}orientation-invariant", 0.0), t.get(f"{prefix}blur", 0.0)
    if t.get(f"{prefix}no-augmentation", False):
        t.set("data.train.scenes.augmentation", None, f"{prefix}no-augmentation")
        return
    limits = ((0.5, 2.0) if extended else (0.7, 1.5)) if boxes else (0.25 if extended else 0.4, 2.0)
    relative = [one * scale for one in limits]
    here = "data.train.scenes.augmentation."
    t.set(f"{here}geometry.rescale.relative", relative, f"{prefix}extended-scale", f"{prefix}rescale-images")
    t.drop(f"{here}geometry.orientation_invariant")
    if turns:
        t.set(f"{here}geometry.orientation_invariant", {"chance": turns}, f"{prefix}orientation-invariant")
    if blur:
        t.set(f"{here}blur", {"chance": blur, "sigma": [0.0, 5.0]}, f"{prefix}blur")


def _learn(t: Translation, batch: int) -> None:
    parts, few = t.get("--stride-apply", 1), t.get("--train-batches")
    an_epoch = max(1, (few or t.epochs(1, 1) // batch) // parts)  # the last batch of an epoch is dropped

    def steps(option: str, default: float) -> int:
        return round(t.get(option, float(default)) * an_epoch)

    if parts > 1:
        t.set("data.batch_size", batch * parts, "--batch-size", "--stride-apply")
        t.set("train.accumulation", parts, "--stride-apply")
        t.remarks.append("--stride-apply sums gradients, accumulation takes their mean: the rate may be larger here")
    beta, decay = t.get("--momentum", 0.9), t.get("--weight-decay", 0.0)
    adam, amsgrad = t.get("--adam", False), t.get("--amsgrad", False)
    nesterov, beta2, eps = not t.get("--no-nesterov", False), t.get("--beta2", 0.999), t.get("--adam-eps", 1e-6)
    optimizer: dict[str, Any] = {"type": "torch.optim.SGD", "lr": t.get("--lr", 1e-3), "momentum": beta}
    optimizer |= {"nesterov": nesterov, "weight_decay": decay}
    if adam or amsgrad:
        optimizer = {"type": "torch.optim.Adam", "lr": optimizer["lr"], "betas": [beta, beta2], "eps": eps,
                     "amsgrad": amsgrad, "weight_decay": decay}  # fmt: skip
    t.set(f"{STEP}optimizer", optimizer, "--lr", "--momentum")
    schedules: dict[str, Any] = {}
    if rise := steps("--lr-warm-up-epochs", 1):
        factor = t.get("--lr-warm-up-factor", 0.001)
        schedules["warm_up"] = {"type": "WarmUp", "steps": rise, "from": factor, "shape": "exponential"}
    over, factor = steps("--lr-decay-epochs", 1), t.get("--lr-decay-factor", 0.1)
    if at := [round(epoch * an_epoch) for epoch in t.get("--lr-decay", [])]:
        schedules["decay"] = {"type": "Decay", "at": at, "factor": factor, "over": over}
    constant = {"type": "Constant", "value": 1.0}
    schedule = {"type": "Product", "of": schedules} if schedules else constant
    t.set(f"{STEP}lr_schedule", schedule, "--lr-decay", "--lr-warm-up-epochs")
    t.set("train.steps", t.get("--epochs", 1) * an_epoch, "--epochs")
    t.set("train.evaluate_every", steps("--val-interval", 1), "--val-interval")
    batches = t.get("--val-batches")
    t.set("train.evaluate_limit", batches * batch if batches else 512, "--val-batches")
    for here in ("runtime.resume_every", "runtime.checkpoint_every"):
        t.set(here, an_epoch)
    if frozen := t.get("--fix-batch-norm"):
        after = 0 if frozen is True else int(frozen) * an_epoch
        norms = {"type": "figura.callbacks.Freeze", "network": "network", "batch_norms_after": after}
        t.set("callbacks.norms", norms, "--fix-batch-norm")


def _data(t: Translation, dataset: str, boxes: bool) -> None:
    file = "instances" if boxes else "person_keypoints"
    known = {f"{split}-annotations": f"annotations/{file}_{split}2017.json" for split in ("train", "val")}
    known |= {f"{split}-image-dir": f"{split}2017" for split in ("train", "val")}
    found = {end: t.get(f"--{dataset}-{end}", value) for end, value in known.items()}
    t.data["people"] = {
        "kind": "coco", "source": "data/raw/coco", "seed": 7, "max_rejected": 0.01,
        "coco": {"images": {"train": found["train-image-dir"], "validation": found["val-image-dir"]},
                 "annotations": {"train": found["train-annotations"], "validation": found["val-annotations"]}},
    }  # fmt: skip
    recipe, run = t.output, f"runs/{t.output.stem}"
    checkpoint = t.get("--checkpoint")
    t.commands_of("dvc add data/raw/coco && dvc repro prepare@people", "put COCO into data/raw/coco, paths below it",
                  "openpifpaf.train", "openpifpaf.eval", "openpifpaf.predict")  # fmt: skip
    if checkpoint is not None and t.program == "train":
        t.weights("openpifpaf", str(checkpoint), "network", f" --recipe {recipe}")
    elif checkpoint is not None:
        t.commands[f"--checkpoint {checkpoint}, a pickle, of which nothing is run; a name is a file to fetch"] = (
            f"figura import openpifpaf {shlex.quote(str(checkpoint))} --recipe {recipe} --output {run}"
        )
    if t.program == "predict":
        pictures = " ".join(map(str, t.get("arguments", []))) or t.get("--glob", "photos/")
        t.commands["openpifpaf.predict"] = f"figura predict {recipe} {run} {pictures} --output predicted"
