"""DL-Art-School's options of ExtensibleTrainer: networks, steps with injectors and losses, for super-resolution."""

from typing import Any

from figura.base.error_collector import shown
from figura.base.errors import UserError
from figura.commands.translate.reading import System
from figura.commands.translate.translation import Translation
from models.super_resolution.translate_basicsr import adversarial, schedule, summary


def row(key: str) -> str:
    """Return the name of a key in the tables: networks, steps, injectors and losses have names of their own there."""
    parts = key.split(".")
    sections = {"injectors": "Injectors", "losses": "Losses", "optimizer_params": "Optimizers"}
    for part, section in sections.items():
        if parts[0] == "steps" and part in parts[2:]:
            return f"{section}/{parts[-1]}"
    places = {"networks": "Networks", "steps": "Steps", "path": "Other sections", "logger": "Other sections",
              "datasets": "Data", "dataset": "Data", "train": "Section train"}  # fmt: skip
    if parts[0] == "path" and parts[-1].startswith("pretrain_model_"):
        return "pretrain_model_<network>"
    if key == "eval.output_state" or parts[:2] == ["eval", "injectors"]:
        return ".".join(parts[:2])
    return f"{places[parts[0]]}/{parts[-1]}" if parts[0] in places and len(parts) > 1 else parts[0]


SYSTEM = System("DL-Art-School", frozenset({"networks", "steps"}), row=row)
NETWORKS: dict[str, dict[str, Any]] = {
    "RRDBNet": {"type": "super_resolution.RRDBGenerator", "initial_scale": 0.1, "trunk_skip": "output"},
    "discriminator_vgg_128": {"type": "super_resolution.VGGDiscriminator", "norm": "batch"},
    "discriminator_vgg_128_gn": {"type": "super_resolution.VGGDiscriminator", "norm": "none"},
}
SETTINGS = (("in_nc", "in_channels", 3), ("nf", "features", 64), ("out_nc", "out_channels", 3), ("nb", "blocks", 23))
"""Of networks; discriminators have the first two."""
KINDS = {"gan": "vanilla", "pixgan": "vanilla", "ragan": "relativistic_average"}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
PIXELS = {"l1": ("images.L1", 2.0), "l2": ("images.L2", 4.0), "cosine": ("images.Cosine", 1.0)}
GATES = ("after", "before", "every")


def translate(t: Translation) -> None:
    """Write a recipe from published/esrgan_x4_psnr.yaml."""
    for section in ("networks", "steps"):
        if not t.names(f"{section}."):
            raise UserError(f"{t.source}: {section}: found {shown(t.given.get(section))}, expected a map of names")
    t.start("published/esrgan_x4_psnr.yaml")
    t.table()
    if t.take("data.common.scale", "datasets.train.scale") not in (None, t.get("scale")):
        t.leave("scale", "patches have the one of datasets.train there, and here")
    t.recipe |= {"networks": {}, "losses": {}, "steps": {}}
    if t.get("wandb", False):
        t.set("runtime.trackers", [*t.at("runtime")["trackers"], "wandb"], "wandb")
    rate = t.get("train.ema_rate", 0.999)
    t.set("train.ema", {"decay": rate} if t.get("train.ema_enabled", True) else None, "train.ema_rate")
    networks = t.names("networks.")
    for name in networks:
        _network(t, name)
    steps = _Steps(t)
    for step in t.names("steps."):
        steps.step(step)
    steps.shown()
    summary(t, "psnr")
    _data(t)
    for name in networks:
        if path := t.get(f"path.pretrain_model_{name}"):
            t.weights("esrgan", str(path), name)
    t.weights("esrgan", f"models/{t.given.get('train.niter', 'N')}_generator.pth", networks[0])


def _network(t: Translation, name: str) -> None:
    place, here = f"networks.{name}.", f"networks.{name}"
    keys = [f"{place}which_model{end}" for end in ("_G", "_D", "")]
    key = next((one for one in keys if one in t.given), keys[-1])
    kind = t.pick(key, "", NETWORKS)
    t.set(here, {**kind, "pixels": "unit"}, key)
    generates = kind is NETWORKS["RRDBNet"]
    for there, setting, default in SETTINGS if generates else SETTINGS[:2]:
        t.take(f"{here}.{setting}", f"{place}{there}", default)
    t.read(f"{place}type", *([f"{place}scale"] if generates else []))
    if str(t.given.get(key)).endswith("_gn"):
        t.leave(key, "group norm is not here: there is no norm")
    if generates and t.get("checkpointing_enabled", False):
        t.set(f"{here}.checkpointing", True, "checkpointing_enabled")


def _forward(network: str, inputs: dict[str, str], outputs: dict[str, str], **others: Any) -> dict[str, Any]:
    return {"type": "Forward", "network": network, "inputs": inputs, "outputs": outputs, **others}


class _Steps:
    """Its steps in order; `made` are names and the steps that wrote them, `called` what a name is called here."""

    def __init__(self, t: Translation) -> None:
        self.t, self.made, self.called, self.judges = t, dict[str, str](), dict[str, str](), 0
        self.generated = ("", "")
        """The generator, and what it makes."""

    def here(self, name: object) -> str:
        """Return what a name is called here."""
        return self.called.get(str(name), str(name))

    def written(self, step: str, name: object) -> str:
        """Return what a name is called here: one that an earlier step wrote already gets the step's name behind it."""
        here = f"{name}_{step}" if self.made.get(str(name), step) != step else str(name)
        self.made[here], self.called[str(name)] = step, here
        return here

    def gates(self, place: str) -> dict[str, int]:
        """Return when an entry runs."""
        return {gate: self.t.get(f"{place}{gate}", 0) for gate in GATES if f"{place}{gate}" in self.t.given}

    def refuse(self, place: str, reason: str) -> None:
        """List all keys of an entry."""
        for name in self.t.names(place):
            self.t.leave(f"{place}{name}", reason)

    def step(self, step: str) -> None:
        t, place = self.t, f"steps.{step}."
        network = t.get(f"{place}training", step)
        t.set(f"steps.{step}", {"trains": [network], **self.gates(place), "injectors": {}}, f"{place}training")
        for name in t.names(f"{place}injectors."):
            self.injector(step, name)
        for name in t.names(f"{place}losses."):
            self.loss(step, network, name)
        entries = [*t.at(f"steps.{step}.injectors").values()]
        entries += [loss for loss in t.recipe["losses"].values() if loss["step"] == step]
        used = dict.fromkeys(name for entry in entries for name in entry.get("inputs", {}).values())
        if earlier := [name for name in used if self.made.get(name, step) != step]:
            t.set(f"steps.{step}.detach", earlier)
        _optimize(t, step)

    def shown(self) -> None:
        """Say what is validated, saved and shown."""
        t, (network, out) = self.t, self.generated
        if not t.recipe["losses"]:  # it only predicts; this is what it may be trained by
            inputs, step = {"image": out, "target": "hq"}, [*t.recipe["steps"]][-1]
            t.set(f"losses.{step}_pixel", {"type": "images.L1", "inputs": inputs, "weight": 0.5, "step": step})
        upscale = _forward(network, {"x": "lq"}, {"image": out})
        t.set("evaluate.modes.upscaling.injectors", {"upscale": upscale})
        for where in ("evaluate.modes.upscaling.save", "predict.save"):
            t.set(where, {out: "image"}, "eval.output_state")
        t.set("metrics.scores.upscaling.image", out)
        t.set("metrics.pictures.enlarged.columns", ["lq", "bicubic", out, "hq"])
        if t.get("eval.output_state", out) != out:
            t.leave("eval.output_state", f"the mode `upscaling` saves {out}, what the generator makes of lq")
        names = [*map(self.here, t.get("logger.visuals", ["lq", out, "hq"])), out]
        every = t.get("logger.visual_debug_rate", 500)
        samples = {"names": list(dict.fromkeys(names)), "count": 4, "every": every}
        t.set("runtime.samples", samples, "logger.visuals", "logger.visual_debug_rate")

    def injector(self, step: str, name: str) -> None:
        t, place, where = self.t, f"steps.{step}.injectors.{name}.", f"steps.{step}.injectors.{name}"
        kind, out, source = t.get(f"{place}type", ""), t.get(f"{place}out"), self.here(t.get(f"{place}in"))
        if kind in ("image_patch", "random_crop", "margin_removal"):
            self.called[str(out)] = source
            t.leave(
                f"{place}type", f"the whole patch of the dataset, {source}, stands for {out}; data.common.size cuts it"
            )
        elif kind in ("generator", "discriminator"):
            network = t.get(f"{place}generator", t.get(f"{place}discriminator") or "generator")
            image = self.written(step, out[0] if isinstance(out, list) and out else out)
            still = {} if t.get(f"{place}grad", True) else {"grad": False}
            entry = _forward(network, {"x": source}, {"image": image}, **still, **self.gates(place))
            t.set(where, entry, f"{place}type")
            if not self.generated[0] or t.at(f"steps.{step}")["trains"] == [network]:
                self.generated = (network, image)
        elif kind == "noise":
            entry = {"type": "Noise", "output": self.written(step, out), "like": source}
            entry |= {"shape": t.get(f"{place}shape")} if f"{place}shape" in t.given else {}
            t.set(where, entry, f"{place}type")
        elif kind == "interpolate":
            size = t.get(f"{place}size")
            entry = {"type": "Resize", "names": {source: self.written(step, out)}}
            entry |= {"factor": t.get(f"{place}scale_factor", 1.0)} if size is None else {"size": size}
            t.set(where, entry | {"mode": t.get(f"{place}mode", "bilinear")}, f"{place}type")
        else:
            why = "not here: an injector of yours (docs/your_own_code.md); what reads it fails the check"
            self.refuse(place, f"{kind} is {why}")

    def loss(self, step: str, network: str, name: str) -> None:
        t, place, here = self.t, f"steps.{step}.losses.{name}.", f"losses.{step}_{name}"
        kind, weight = t.get(f"{place}type", ""), t.get(f"{place}weight", 1.0)
        gates = self.gates(place)
        rest = {"weight": weight, "step": step, **gates}
        real, fake = (self.here(t.get(f"{place}{end}")) for end in ("real", "fake"))
        inputs, criterion = {"image": fake, "target": real}, t.get(f"{place}criterion", "l1")
        if kind == "pix":
            found, wider = t.choice(f"{place}criterion", criterion, PIXELS)
            t.set(here, {"type": found, "inputs": inputs, **rest, "weight": weight / wider}, f"{place}weight")
        elif kind == "feature":
            entry = {"type": "images.Perceptual", "source": "hub", "layers": {"relu5_2": 1.0}, "inputs": inputs}
            for key, usual in (("criterion", "l1"), ("which_model_F", "vgg")):
                if t.get(f"{place}{key}", usual) != usual:
                    t.leave(f"{place}{key}", "L1 of VGG19's features (images.Perceptual) stands for it")
            t.set(here, {**entry, **rest}, f"{place}which_model_F")
        elif kind == "direct":
            rest["weight"] = -weight if t.get(f"{place}inverted", False) else weight
            value = self.here(t.get(f"{place}key"))
            t.set(here, {"type": "images.Direct", "inputs": {"value": value}, **rest}, f"{place}key")
        elif kind in ("generator_gan", "discriminator_gan"):
            judge = t.get(f"{place}discriminator", network) if kind == "generator_gan" else network
            self.adversarial(step, name, judge, real, fake, kind.removesuffix("_gan"), rest)
        else:
            self.refuse(place, f"{kind} is not here as one loss; its row says what it is made of")

    def adversarial(
        self, step: str, name: str, network: str, real: str, fake: str, role: str, rest: dict[str, Any]
    ) -> None:
        """Call a discriminator on both pictures, and translate the losses of its logits."""
        t, place, judge = self.t, f"steps.{step}.losses.{name}.", f"judge_{self.judges}"
        self.judges += 1
        t.read(f"{place}detach_real")
        kind = t.pick(f"{place}gan_type", "gan", KINDS)
        gates = {gate: rest[gate] for gate in GATES if gate in rest}
        outputs = {"logits": f"{judge}_real", "fake_logits": f"{judge}_fake"}
        injectors = f"steps.{step}.injectors"
        entries = adversarial(kind, role, *outputs.values())
        call = _forward(network, {"image": real, "fake": fake}, outputs, **gates)
        if "real" not in entries:
            call |= {"inputs": {"image": fake}, "outputs": {"logits": outputs["fake_logits"]}}
        t.set(f"{injectors}.{judge}", call)
        if t.recipe["networks"].get(network, {}).get("norm") == "batch":
            t.judge_apart(network)
        weight = rest["weight"] * (0.5 if role == "generator" and kind == "relativistic_average" else 1.0)
        for end, entry in entries.items():
            t.set(f"losses.{step}_{name}_{end}", {**entry, **rest, "weight": weight}, f"{place}weight")
        if not t.get(f"{place}gradient_penalty", False):
            return
        key, points = f"{place}gradient_penalty", f"points_{name}"
        detached = {"type": "Detach", "names": {real: points}, "requires_grad": True, **gates}
        t.set(f"{injectors}.{points}", detached, key)
        slope = _forward(network, {"image": points}, {"logits": f"{points}_logits"}, **gates)
        t.set(f"{injectors}.judge_{points}", slope, key)
        inputs = {"points": points, "logits": f"{points}_logits"}
        entry = {"type": "images.GradientPenalty", "centre": 1.0, **rest, "weight": 10 * rest["weight"]}
        t.set(f"losses.{step}_{name}_slope", entry | {"inputs": inputs}, key)


def _optimize(t: Translation, step: str) -> None:
    place = f"steps.{step}."
    within = f"{place}optimizer_params."
    if f"{within}lr" not in t.given:
        within = place
        t.remarks.append(f"{step} has no optimizer_params, so nothing was trained there; here its own lr is used")
    kind = t.pick(f"{place}optimizer", "adamw", OPTIMIZERS)
    settings: dict[str, Any] = {"type": f"torch.optim.{kind}", "lr": t.get(f"{within}lr", 1e-4)}
    if kind == "SGD":
        settings["momentum"] = t.get(f"{within}momentum", 0.9)
    else:
        settings["betas"] = [t.get(f"{within}beta1", 0.9), t.get(f"{within}beta2", 0.999)]
    settings["weight_decay"] = t.get(f"{within}weight_decay", 0.0)
    if settings["weight_decay"] and kind == "AdamW":
        t.leave(f"{within}weight_decay", "not of biases and norms there; a group of the step, by their names")
    t.set(f"steps.{step}.optimizer", settings, f"{within}beta1", f"{within}beta2")
    if most := t.get(f"{place}clip_grad_eps", 0.0):
        t.set(f"steps.{step}.clip", most, f"{place}clip_grad_eps")
    names = ("default_lr_scheme", "gen_lr_steps", "lr_gamma", "T_period", "restart_weights", "eta_min")
    found = schedule(t, settings["lr"], *(f"train.{name}" for name in names), start=t.get("train.warmup", 0))
    t.set(f"steps.{step}.lr_schedule", found, "train.default_lr_scheme")


def _data(t: Translation) -> None:
    name, data = t.output.stem, "datasets.train."
    t.set("data.common.root", f"data/prepared/{name}", f"{data}paths")
    if t.get(f"{data}disable_flip", False):
        t.drop("data.train.scenes.augmentation")
    folder = t.get(f"{data}paths") or "train"
    judged = t.get("datasets.val.dataroot_GT", "validation")
    folder = folder[0] if isinstance(folder, list) else folder
    t.dataset("images", {"train": t.below(folder, "train"), "validation": t.below(judged, "validation")})
    first = f"put its folders below data/raw/{name}, as the entry names them"
    t.run(first, "train.py -opt", "test.py -opt", "process_video.py")
