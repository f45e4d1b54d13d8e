"""OpenPifPaf's `openpifpaf.train`, `openpifpaf.eval` and `openpifpaf.predict`."""

import re
from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Translation

BOXES = ("cocodet", "nuscenes")
DATASETS = {"cocokp": 56599, "cocodet": 117266} | dict.fromkeys(
    ("animal", "apollo", "crowdpose", "wholebody", "nuscenes")
)
"""Pictures of COCO that train them; those of plugins take --examples."""
AUGMENTED: dict[str, tuple[int, tuple[float, float], tuple[float, float], float, float | None]] = {
    # side; limits of scales, those of --*-extended-scale; chance of a rotation other than by 90 degrees; bmin
    "cocokp": (385, (0.4, 2.0), (0.25, 2.0), 0.4, None), "cocodet": (513, (0.7, 1.5), (0.5, 2.0), 0.2, None),
    "animal": (513, (0.3, 2.0), (0.2, 2.5), 0.4, 1.0), "apollo": (513, (0.33, 1.33), (0.2, 2.0), 0.2, 1.0),
    "crowdpose": (385, (0.4, 2.0), (0.25, 2.0), 0.0, None), "wholebody": (385, (0.4, 2.0), (0.25, 2.0), 0.0, 1.0),
    "nuscenes": (513, (0.7, 1.5), (0.5, 2.0), 0.0, None),
}  # fmt: skip
OF_DATASET = (
    "square-edge|extended-scale|orientation-invariant|blur|no-augmentation|rescale-images|upsample|min-kp-anns|bmin|"
    "with-dense|(?:train|val)-annotations|(?:train|val)-image-dir"
)
EVALUATION = "eval-long-edge|no-eval-annotation-filter"
PLUGIN = re.compile(rf"--(animal|apollo|crowdpose|wholebody|nuscenes)-({OF_DATASET})")


def row(option: str) -> str:
    """Return the option of COCO for that of a plugin, whose endings mean the same."""
    option = re.sub(rf"--(?:animal|apollo|crowdpose|wholebody)-({EVALUATION})", r"--coco-\1", option)
    return PLUGIN.sub(lambda found: f"--{'cocodet' if found[1] in BOXES else 'cocokp'}-{found[2]}", option)


SYSTEM = System(
    "OpenPifPaf", program=r"openpifpaf\.(train|eval|predict)", row=row,
    several=frozenset({"--lr-decay", "--lr-warm-restarts", "--lambdas", "--component-lambdas", "--debug-indices",
                       "--dataset-weights", "--decoder", "--crop"}),
)  # fmt: skip
STEP, BACKBONE = "steps.network.", "networks.network.backbone"
TIMM = {"resnext50": "resnext50_32x4d", "resnext101": "resnext101_32x8d", "mobilenetv2": "mobilenetv2_100",
        "mobilenetv3small": "mobilenetv3_small_100", "mobilenetv3large": "mobilenetv3_large_100"}  # fmt: skip
BACKBONES: dict[str, dict[str, Any]] = {
    **{f"shufflenetv2k{one}": {"name": f"shufflenetv2k{one}"} for one in ("16", "20", "30", "44", "x5")},
    **{f"resnet{depth}": {"name": f"resnet{depth}", "pretrained": "hub"} for depth in (18, 50, 101, 152)},
    **{name: {"name": "timm", "model": model, "pretrained": True} for name, model in TIMM.items()},
    "cifar10net": {"name": "small"},
}


def translate(t: Translation) -> None:
    """Write a recipe from published/openpifpaf_shufflenetv2k16.yaml or openpifpaf_cocodet.yaml."""
    decoders = [str(one) for one in t.given.get("--decoder", [])]
    dataset = t.get("--dataset", "cocodet" if "cifdet" in " ".join(decoders) else "cocokp")
    pictures = t.choice("--dataset", dataset, DATASETS)
    t.examples = pictures if t.examples is None else t.examples
    boxes = dataset in BOXES
    t.start(f"published/openpifpaf_{'cocodet' if boxes else 'shufflenetv2k16'}.yaml")
    batch = t.take("data.batch_size" if t.program == "train" else "evaluate.batch_size", "--batch-size", 1)
    checkpoint = t.get("--checkpoint", None if "--basenet" in t.given else "shufflenetv2k16")
    told = re.search("|".join(BACKBONES), str(checkpoint))
    if not boxes or "--basenet" in t.given or told:
        t.set(BACKBONE, dict(t.pick("--basenet", told[0] if told else "shufflenetv2k16", BACKBONES)), "--basenet")
    t.table()
    if t.program == "train":
        t.leave("--regression-soft-clamp", "the value of --scale-soft-clamp is used there, and so it is here")
        _train(t, dataset, boxes, batch)
    else:
        t.table("drawing")
        _decode(t, dataset, boxes)
        if all(re.match("cifcaf|cifdet", one) for one in decoders):
            t.read("--decoder")
    _data(t, dataset, boxes)
    if checkpoint is not None:
        _checkpoint(t, str(checkpoint))


def _train(t: Translation, dataset: str, boxes: bool, batch: int) -> None:
    t.table("training")
    if t.get("--profile"):
        t.set("runtime.timing", True, "--profile")
    t.table("backbone", f"{BACKBONE}.")
    if t.get("--resnet-no-pretrain", False):
        t.drop(f"{BACKBONE}.pretrained")
    average = t.get("--ema", 0.01)
    t.set("train.ema", {"decay": 1 - average} if average else None, "--ema")
    _heads(t, dataset, boxes)
    _augment(t, dataset, boxes)
    an_epoch = _amounts(t, batch)
    _optimize(t, an_epoch)


def _decode(t: Translation, dataset: str, boxes: bool) -> None:
    name, mode = ("objects", "boxes") if boxes else ("people", "poses")
    t.table("boxes' decoder" if boxes else "decoder", f"evaluate.modes.{mode}.injectors.{name}.decoder.")
    if t.program == "predict":
        t.take("predict.data.side", "--long-edge", 0)
        return
    prefix = f"--{'coco' if dataset.startswith('coco') else dataset}-"
    if edge := t.get(f"{prefix}eval-long-edge", 0 if dataset in ("animal", "apollo") else 641):
        t.set("evaluate.data.scenes.side", edge, f"{prefix}eval-long-edge")
    else:
        t.leave(f"{prefix}eval-long-edge", "0 is for `figura predict` alone")
        t.remarks.append("pictures are judged at their own size there, here with a long side of 641 pixels")
    everything = t.take("evaluate.data.scenes.keep_empty", f"{prefix}no-eval-annotation-filter", False)
    if not boxes:
        t.set("evaluate.data.scenes.min_keypoint_annotations", 0 if everything else 1)


def _heads(t: Translation, dataset: str, boxes: bool) -> None:
    upsample, settings = t.get(f"--{dataset}-upsample", 1), t.at(BACKBONE)
    halved = max(settings.get("stage4_dilation", 1), settings.get("block5_dilation", 1)) > 1
    stride = (16 if settings.get("input_conv2") else 8) * max(1, t.get("--resnet-pool0-stride", 0))
    stride = stride * t.get("--resnet-input-conv-stride", 2) // (2 if halved else 1)
    stride = stride // (2 if settings.get("remove_last_block") else 1) // upsample
    if settings["name"] == "timm":
        t.leave("--basenet", "timm's deepest map of a stride up to 16 is used here; mobilenetv2 has 32 there")
    kinds: dict[str, dict[str, Any]] = {"cifdet": {}} if boxes else {"cif": {}, "caf": {}}
    if not boxes and t.get(f"--{dataset}-with-dense", False):
        kinds["caf25"] = {"kind": "caf", "connections": "dense"}
        people = "evaluate.modes.poses.injectors."
        for detect in ("steps.network.injectors.", people):
            t.set(f"{detect}detect.outputs.caf25", "caf25")
        t.set(f"{people}people.dense", "caf25", f"--{dataset}-with-dense")
    lambdas = t.numbers("--lambdas", [1.0] * len(kinds))
    parts = t.numbers("--component-lambdas", [1.0] * 3 * len(kinds)) if "--component-lambdas" in t.given else []
    if parts:
        lambdas = [1.0] * len(kinds)
        t.leave("--lambdas", "--component-lambdas take their place there")
    for place, (name, kind) in enumerate(kinds.items()):
        head, target, loss = kind.get("kind", name), f"data.common.heads.{name}", f"losses.{name}"
        t.set(target, {**kind, "stride": stride}, f"--{dataset}-upsample")
        t.set(f"networks.network.heads.{name}", kind | ({} if upsample == 2 else {"upsample": upsample}))
        inputs = {"fields": name, "target": f"{name}_target"}
        entry = {"type": "pose.Composite", "head": head, "inputs": inputs, "weight": float(lambdas[place])}
        t.set(loss, entry, "--lambdas")
        t.table("losses.<head>", f"{loss}.")
        for part, here in enumerate(("confidence", "vector", "scale") if parts else ()):
            t.set(f"{loss}.{here}", float(parts[3 * place + part]), "--component-lambdas")
        t.table("heads.caf" if head == "caf" else "heads.cif", f"{target}.")
        t.table("heads", f"{target}.")
        if head != "cifdet":
            t.take(f"{target}.bmin", f"--{dataset}-bmin", AUGMENTED[dataset][-1])
        if t.get("--encoder-no-suppress-selfhidden", False):
            t.set(f"{target}.suppress_hidden", None, "--encoder-no-suppress-selfhidden")
    if t.get("--auto-tune-mtl", False):
        _tune(t, [*kinds])


def _tune(t: Translation, heads: list[str]) -> None:
    t.set("networks.tasks", {"type": "pose.TaskWeights", "heads": heads}, "--auto-tune-mtl")
    outputs = {name: f"{name}_sigmas" for name in heads}
    for name, sigmas in outputs.items():
        t.set(f"losses.{name}.inputs.log_sigmas", sigmas)
    t.set(f"{STEP}trains", ["network", "tasks"])
    weigh = {"type": "Forward", "network": "tasks", "inputs": {}, "outputs": outputs}
    t.set(f"{STEP}injectors.weigh", weigh, "--auto-tune-mtl")
    t.set(f"{STEP}groups.tasks", {"pattern": r"^tasks\.", "weight_decay": 0.0})


def _augment(t: Translation, dataset: str, boxes: bool) -> None:
    prefix, (side, usual, wider, rotated, _) = f"--{dataset}-", AUGMENTED[dataset]
    t.take("data.common.side", f"{prefix}square-edge", side)
    if not boxes and t.get(f"{prefix}min-kp-anns", 1) != 1:
        t.take("data.train.scenes.min_keypoint_annotations", f"{prefix}min-kp-anns")
    extended, scale = t.get(f"{prefix}extended-scale", False), t.get(f"{prefix}rescale-images", 1.0)
    turns, blur = t.get(f"{prefix}orientation-invariant", 0.0), t.get(f"{prefix}blur", 0.0)
    here = "data.train.scenes.augmentation"
    if t.get(f"{prefix}no-augmentation", False):
        t.set(here, None, f"{prefix}no-augmentation")
        return
    relative = [one * scale for one in (wider if extended else usual)]
    t.set(f"{here}.geometry.rescale.relative", relative, f"{prefix}extended-scale", f"{prefix}rescale-images")
    t.drop(f"{here}.geometry.orientation_invariant", *([] if rotated else [f"{here}.geometry.rotation"]))
    if rotated:
        t.set(f"{here}.geometry.rotation.chance", rotated)
    if dataset == "nuscenes":
        t.drop(f"{here}.geometry.horizontal_flip")
    if dataset == "apollo":
        t.set(f"{here}.geometry.ignore_small", 32.0)
    if dataset == "crowdpose":
        t.remarks.append("crowdpose: there, joints move at random by up to 0.5 pixels and boxes by 0.25, not here")
    if turns:
        t.set(f"{here}.geometry.orientation_invariant", {"chance": turns}, f"{prefix}orientation-invariant")
    if blur:
        t.set(f"{here}.blur", {"chance": blur, "sigma": [0.0, 5.0]}, f"{prefix}blur")


def _amounts(t: Translation, batch: int) -> int:
    """Return the steps of an epoch, whose last batch is dropped."""
    parts, batches = t.count("--stride-apply", 1), t.count("--val-batches")
    an_epoch = max(1, (t.count("--train-batches") or t.epochs(1, 1) // t.count("--batch-size", batch)) // parts)
    if parts > 1:
        t.set("data.batch_size", batch * parts, "--batch-size", "--stride-apply")
        t.take("train.accumulation", "--stride-apply")
        t.remarks.append("--stride-apply sums gradients, accumulation takes their mean: the rate may be larger here")
    t.set("train.steps", t.get("--epochs", 1) * an_epoch, "--epochs")
    t.set("train.evaluate_every", round(t.get("--val-interval", 1.0) * an_epoch), "--val-interval")
    t.set("train.evaluate_limit", batches * batch if batches else 512, "--val-batches")
    for here in ("runtime.resume_every", "runtime.checkpoint_every"):
        t.set(here, an_epoch)
    if (frozen := t.get("--fix-batch-norm")) is not None:
        after = 0 if frozen is True else int(frozen) * an_epoch
        norms = {"type": "figura.callbacks.Freeze", "network": "network", "batch_norms_after": after}
        t.set("callbacks.norms", norms, "--fix-batch-norm")
    return an_epoch


def _optimize(t: Translation, an_epoch: int) -> None:
    rate, beta, decay = t.get("--lr", 1e-3), t.get("--momentum", 0.9), t.get("--weight-decay", 0.0)
    adam, amsgrad = t.get("--adam", False), t.get("--amsgrad", False)
    nesterov, beta2, eps = not t.get("--no-nesterov", False), t.get("--beta2", 0.999), t.get("--adam-eps", 1e-6)
    optimizer = {"type": "torch.optim.SGD", "lr": rate, "momentum": beta, "nesterov": nesterov, "weight_decay": decay}
    if adam or amsgrad:
        optimizer = {"type": "torch.optim.Adam", "lr": rate, "betas": [beta, beta2], "eps": eps,
                     "amsgrad": amsgrad, "weight_decay": decay}  # fmt: skip
    t.set(f"{STEP}optimizer", optimizer, "--lr", "--momentum")
    rise, from_ = t.get("--lr-warm-up-epochs", 1.0) * an_epoch, t.get("--lr-warm-up-factor", 0.001)
    over, factor = t.get("--lr-decay-epochs", 1.0) * an_epoch, t.get("--lr-decay-factor", 0.1)
    schedules: dict[str, Any] = {}
    if rise:
        schedules["warm_up"] = {"type": "WarmUp", "steps": round(rise), "from": from_, "shape": "exponential"}
    if at := [round(epoch * an_epoch) for epoch in t.numbers("--lr-decay")]:
        schedules["decay"] = {"type": "Decay", "at": at, "factor": factor, "over": round(over)}
    schedule = {"type": "Product", "of": schedules} if schedules else {"type": "Constant", "value": 1.0}
    t.set(f"{STEP}lr_schedule", schedule, "--lr-decay", "--lr-warm-up-epochs")


def _checkpoint(t: Translation, name: str) -> None:
    file = name if re.search(r"[./]", name) else f"{name}.pkl"
    if file != name:
        t.remarks.append(f"{name} is a checkpoint that is downloaded there: fetch it yourself, as {file}")
    if t.program == "train":
        t.remarks.append(
            f"at the epoch of {file}, training goes on there, up to --epochs; here it begins at step 0: shorten "
            "train.steps and the schedule by that epoch"
        )
    t.weights("openpifpaf", file, "network", recipe=True, run=t.program != "train")


def _data(t: Translation, dataset: str, boxes: bool) -> None:
    file = "instances" if boxes else "person_keypoints"
    entry: dict[str, dict[str, str]] = {"images": {}, "annotations": {}}
    for split, here in (("train", "train"), ("val", "validation")):
        entry["images"][here] = t.below(t.get(f"--{dataset}-{split}-image-dir") or f"{split}2017", f"{split}2017")
        annotations = f"annotations/{file}_{split}2017.json"
        entry["annotations"][here] = t.below(t.get(f"--{dataset}-{split}-annotations", annotations), annotations)
    t.dataset("coco", entry, "people", "coco", max_rejected=0.01)
    t.run("put COCO into data/raw/coco, paths below it", "openpifpaf.train", "openpifpaf.eval", "openpifpaf.predict")
    if t.program == "predict":
        pictures = " ".join(map(str, t.get("arguments", []))) or t.get("--glob", "photos/")
        t.commands["openpifpaf.predict"] = (
            f"figura predict {t.output} runs/{t.output.stem} {pictures} --output predicted"
        )
