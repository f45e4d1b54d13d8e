"""VUNet's PyTorch port on edflow (`base.yaml` and what is merged into it), and its authors' TensorFlow code."""

from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Translation

SYSTEM = System(
    "VUNet, edflow", frozenset({"batch_size", "lr"}), "(.*/)?(edflow|main.py)",
    files=frozenset({"-b", "--base", "--config"}), overrides=True,
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
TRACKERS = {"wandb": "wandb", "tensorboardX": "tensorboard", "tensorboard": "tensorboard"}
FIXED = {  # of the port, beside published/vunet_deepfashion.yaml
    "networks.generator.autoregression": "port",
    "networks.generator.initialisation": "default",
    "data.common.margin": 0.0,
    "data.common.min_height": 1,
    "predict.data.min_height": 1,
    "data.common.min_keypoints": 2,
    "evaluate.inputs": {"pose": "image", "appearance": "image", "target": "image"},
    "steps.generator.optimizer.betas": [0.9, 0.999],
}


def translate(t: Translation) -> None:
    """Write a recipe from published/vunet_deepfashion.yaml."""
    t.start("published/vunet_deepfashion.yaml")
    t.table()
    name, authors = t.output.stem, "data_index" in t.given
    t.set("data.common.root", f"data/prepared/{name}", "data_root", "data_index")
    key = "data_index" if authors else "data_root"
    source = t.get(key, f"its {key}")
    if authors:
        _authors(t)
        t.leave("data_index", "a pickle; its pictures and joints become a COCO file")
    else:
        _port(t)
    t.dataset("coco", {"images": "crops", "annotations": {"train": "train.json", "validation": "validation.json"}})
    first = f"write {source} to data/raw/{name} as COCO files: 17 joints, bbox, person_id"
    t.run(first, "main.py --mode train" if authors else "edflow -t", "edflow -p", "--mode transfer")
    t.weights("vunet_pytorch", "train/checkpoints/model-11825.ckpt", "generator")


def _port(t: Translation) -> None:
    t.table("port")
    batch = t.count("batch_size", t.at("data")["batch_size"])
    t.take("evaluate.batch_size", "test_batch_size", batch)
    last = t.get("model_pars.final_act", False)
    t.set("networks.generator.convolution", "plain" if last else "normalised", "model_pars.final_act")
    t.set("networks.generator.output", "tanh" if last else "linear", "model_pars.final_act")
    for here, value in FIXED.items():
        t.set(here, value)
    t.set("data.train.people.appearance", "other_view", "datasets.train")
    t.set("data.validation.people", {"split": "validation", "appearance": "other_view"}, "datasets.validation")
    t.drop("evaluate.data", "steps.generator.optimizer.fused", "steps.generator.lr_schedule")
    t.drop("train.evaluate_every", "train.evaluate_limit")
    epochs, steps = t.get("num_epochs", 100), t.count("num_steps")
    if steps is None:  # edflow's epochs are not rounded up one by one
        steps = -(-epochs * t.epochs(1, 1) // batch)
    t.set("train.steps", steps, "num_epochs", "num_steps")
    every = t.count("ckpt_freq") or t.epochs(1, batch)
    t.set("runtime.checkpoint_every", every, "ckpt_freq")
    t.set("runtime.resume_every", every)
    active = [here for there, here in TRACKERS.items() if t.get(f"integrations.{there}.active", False)]
    t.set("runtime.trackers", active, *(f"integrations.{there}.active" for there in TRACKERS))
    t.set("losses", {})
    for loss in LOSSES:
        if t.names(f"losses.{loss}."):
            _loss(t, loss)
    t.read("iterator", "model", "datasets.train", "datasets.validation")
    t.remarks.append("autoregression: port is the prior that it has; without that line, it is the intended one")


def _loss(t: Translation, loss: str) -> None:
    key = f"losses.{loss}"
    t.set(key, dict(LOSSES[loss]))
    if loss == "perceptual":
        weights = t.numbers(f"{key}.vgg_feat_weights", [1.0] * len(LAYERS))
        layers = dict(zip(LAYERS, map(float, weights), strict=True))
        t.set(f"{key}.layers", layers, f"{key}.vgg_feat_weights")
    if f"{key}.start_ramp_it" not in t.given:
        t.take(f"{key}.weight", f"{key}.weight", 1.0)
        return
    t.set(f"{key}.weight", 1.0)
    if f"{key}.weight" in t.given:
        t.leave(f"{key}.weight", "the ramp overwrites it there; here it would multiply the ramp, and is 1")
    ramp = {"start_ramp_it": 0, "end_ramp_it": 0, "start_ramp_val": 0.0, "end_ramp_val": 1.0}
    start, end, first, last = (t.get(f"{key}.{one}", default) for one, default in ramp.items())
    schedule = {"type": "Linear", "start": start, "end": end, "from": first, "to": last}
    if start == end:
        schedule = {"type": "Step", "at": [end], "values": [first, last]}
    t.set(f"{key}.schedule", schedule, *(f"{key}.{one}" for one in ramp))


def _authors(t: Translation) -> None:
    t.table("authors")
    t.take("steps.generator.lr_schedule.start", "lr_decay_begin", 1000)
    for here in ("steps.generator.lr_schedule.end", "train.steps"):
        end = t.take(here, "lr_decay_end", 100000)
    t.set("losses.KL.schedule.start", end // 2, "lr_decay_end")
    t.set("losses.KL.schedule.end", 3 * end // 4, "lr_decay_end")
    scale = {"image": 127.5} | dict.fromkeys(LAYERS[1:], 57.6)  # of the pixels that its VGG19 reads
    known = {"input_1": "image"} | {f"block{n}_conv2": f"relu{n}_2" for n in range(1, 6)} | {one: one for one in LAYERS}
    layers = [t.choice("feature_layers", name, known) for name in t.get("feature_layers", [*LAYERS])]
    weights = zip(layers, t.numbers("feature_weights", [1.0] * len(layers)), strict=False)
    scaled = {layer: weight * scale[layer] for layer, weight in weights}
    t.set("losses.perceptual.layers", scaled, "feature_layers", "feature_weights")
