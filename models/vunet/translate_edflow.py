"""VUNet's PyTorch port on edflow (`base.yaml` and what is merged into it), and its authors' TensorFlow code."""

from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Table, Translation

SYSTEM = System(
    "VUNet, edflow", "vunet", frozenset({"batch_size", "lr"}), "(.*/)?(edflow|main.py)",
    files=frozenset({"-b", "--base", "--config"}),
    switches=frozenset({"-t", "--train", "-d", "--debug", "-r", "--retrain", "-w", "--wandb_sweep"}),
    own=frozenset({"-n", "--name", "-b", "--base", "-t", "--train", "-p", "--project", "-c", "--checkpoint", "-r",
                   "--retrain", "-d", "--debug", "-l", "--log_level", "-w", "--wandb_sweep", "--config", "--log_dir",
                   "--mode"}),
)  # fmt: skip
LAYERS = ("image", "relu1_2", "relu2_2", "relu3_2", "relu4_2", "relu5_2")
IMAGES = {"image": "image", "target": "target"}
LOSSES: dict[str, dict[str, Any]] = {
    "color_L1": {"type": "images.L1", "inputs": IMAGES},
    "color_gradient": {"type": "images.Gradient", "signed": False, "inputs": IMAGES},
    "color_L2": {"type": "images.L2", "inputs": IMAGES},
    "KL": {"type": "vunet.LatentKL", "unit": "nats", "inputs": {"posterior": "q_means", "prior": "p_means"}},
    "perceptual": {"type": "images.Perceptual", "source": "hub", "inputs": IMAGES},
}
BOTH: Table = {
    "batch_size": ("data.batch_size", 8),
    "lr": ("steps.generator.optimizer.lr", 1e-4),
    "log_freq": ("runtime.log_every", 1000),
}
TABLE: Table = BOTH | {
    "model_pars.nf_start": ("networks.generator.nf_start", 64),
    "model_pars.nf_max": ("networks.generator.nf_max", 128),
    "model_pars.spatial_size": ("data.common.image_size", 256),
    "model_pars.dropout_prob": ("networks.generator.dropout", 0.0),
    "model_pars.img_channels": ("networks.generator.appearance_channels", 3),
    "model_pars.pose_channels": ("networks.generator.pose_channels", 3),
    "debug_timing": ("runtime.timing", False),
    "n_data_processes": ("runtime.workers", 8),
}
AUTHORS: Table = BOTH | {
    "spatial_size": ("data.common.image_size", 256),
    "drop_prob": ("networks.generator.dropout", 0.0),
    "ckpt_freq": ("runtime.checkpoint_every", 1000),
    "test_freq": ("train.evaluate_every", 1000),
}


def translate(t: Translation) -> None:
    """Write a recipe from published/vunet_deepfashion.yaml."""
    t.start("published/vunet_deepfashion.yaml")
    name = t.output.stem
    t.set("data.common.root", f"data/prepared/{name}", "data_root", "data_index")
    if "data_index" in t.given:
        _authors(t)
        source = t.get("data_index", "its data_index")
        t.leave("data_index", "a pickle; its pictures and joints become a COCO file")
    else:
        _port(t)
        source = t.get("data_root", "its data_root")
    t.data[name] = {
        "kind": "coco", "source": f"data/raw/{name}", "seed": 7, "max_rejected": 0.0,
        "coco": {"images": "crops", "annotations": {"train": "train.json", "validation": "validation.json"}},
    }  # fmt: skip
    first = f"write {source} to data/raw/{name} as COCO files: 17 joints, bbox, person_id"
    train = "main.py --mode train" if "data_index" in t.given else "edflow -t"
    t.commands_of(f"dvc add data/raw/{name} && dvc repro prepare@{name}", first, train, "edflow -p", "--mode transfer")
    t.weights("vunet_pytorch", "train/checkpoints/model-11825.ckpt", "generator")


def _port(t: Translation) -> None:
    t.table(TABLE)
    t.set("evaluate.batch_size", t.get("test_batch_size", t.recipe["data"]["batch_size"]), "test_batch_size")
    last = t.get("model_pars.final_act", False)
    t.set("networks.generator.convolution", "plain" if last else "normalised", "model_pars.final_act")
    t.set("networks.generator.output", "tanh" if last else "linear", "model_pars.final_act")
    t.set("networks.generator.autoregression", "port")
    t.set("networks.generator.initialisation", "default")
    t.set("data.common.margin", 0.0)
    for here in ("data.common", "predict.data"):
        t.set(f"{here}.min_height", 1)
    t.set("data.common.min_keypoints", 2)
    t.set("data.train.people.appearance", "other_view", "datasets.train")
    t.set("data.validation.people", {"split": "validation", "appearance": "other_view"}, "datasets.validation")
    t.drop("evaluate.data")
    t.set("evaluate.inputs", {"pose": "image", "appearance": "image", "target": "image"})
    t.set("steps.generator.optimizer.betas", [0.9, 0.999])
    t.drop("steps.generator.optimizer.fused")
    t.drop("steps.generator.lr_schedule")
    t.drop("train.evaluate_every")
    batch = t.recipe["data"]["batch_size"]
    epochs, steps = t.get("num_epochs", 100), t.get("num_steps")
    if steps is None:  # edflow's epochs are not rounded up one by one
        steps = -(-epochs * t.epochs(1, 1) // batch)
    t.set("train.steps", steps, "num_epochs", "num_steps")
    t.drop("train.evaluate_limit")
    every = t.get("ckpt_freq") or t.epochs(1, batch)
    t.set("runtime.checkpoint_every", every, "ckpt_freq")
    t.set("runtime.resume_every", every)
    trackers = {"wandb": "wandb", "tensorboardX": "tensorboard", "tensorboard": "tensorboard"}
    active = [here for there, here in trackers.items() if t.get(f"integrations.{there}.active", False)]
    t.set("runtime.trackers", active, *(f"integrations.{there}.active" for there in trackers))
    t.set("losses", {})
    for loss, entry in LOSSES.items():
        if any(key.startswith(f"losses.{loss}.") for key in t.given):
            _loss(t, loss, entry)
    for key in ("iterator", "model", "datasets.train", "datasets.validation"):
        t.get(key)
    t.remarks.append("autoregression: port is the prior that it has; without that line, it is the intended one")


def _loss(t: Translation, loss: str, entry: dict[str, Any]) -> None:
    key = f"losses.{loss}"
    t.set(key, dict(entry))
    if loss == "perceptual":
        weights = t.get(f"{key}.vgg_feat_weights", [1.0] * len(LAYERS))
        layers = dict(zip(LAYERS, map(float, weights), strict=True))
        t.set(f"{key}.layers", layers, f"{key}.vgg_feat_weights")
    ramp = f"{key}.start_ramp_it" in t.given
    t.set(f"{key}.weight", 1.0 if ramp else t.get(f"{key}.weight", 1.0))
    if ramp and f"{key}.weight" in t.given:
        t.leave(f"{key}.weight", "the ramp overwrites it there; here it would multiply the ramp, and is 1")
    if ramp:
        start, end = t.get(f"{key}.start_ramp_it", 0), t.get(f"{key}.end_ramp_it", 0)
        first, last = t.get(f"{key}.start_ramp_val", 0.0), t.get(f"{key}.end_ramp_val", 1.0)
        schedule = {"type": "Linear", "start": start, "end": end, "from": first, "to": last}
        if start == end:
            schedule = {"type": "Step", "at": [end], "values": [first, last]}
        ramps = ("start_ramp_it", "end_ramp_it", "start_ramp_val", "end_ramp_val")
        t.set(f"{key}.schedule", schedule, *(f"{key}.{one}" for one in ramps))


def _authors(t: Translation) -> None:
    t.table(AUTHORS)
    t.set("steps.generator.lr_schedule.start", t.get("lr_decay_begin", 1000), "lr_decay_begin")
    t.set("steps.generator.lr_schedule.end", t.get("lr_decay_end", 100000), "lr_decay_end")
    t.set("train.steps", t.get("lr_decay_end", 100000), "lr_decay_end")
    scale = {"image": 127.5} | dict.fromkeys(LAYERS[1:], 57.6)  # of the pixels that its VGG19 reads
    names = t.get("feature_layers", list(scale))
    weights = t.get("feature_weights", [1.0] * len(LAYERS))
    known = {"input_1": "image"} | {f"block{n}_conv2": f"relu{n}_2" for n in range(1, 6)} | {one: one for one in LAYERS}
    layers = [t.choice("feature_layers", name, known) for name in names]
    t.set(
        "losses.perceptual.layers",
        {layer: weight * scale[layer] for layer, weight in zip(layers, weights, strict=True)},
        "feature_layers", "feature_weights",
    )  # fmt: skip
