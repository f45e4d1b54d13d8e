"""DL-Art-School's options of ExtensibleTrainer: networks, steps with injectors and losses, for super-resolution."""

from typing import Any

from figura.commands.translate.reading import System
from figura.commands.translate.translation import Table, Translation


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


SYSTEM = System("DL-Art-School", "dl_art_school", frozenset({"networks", "steps"}), row=row)
TABLE: Table = {
    "scale": ("data.common.scale", 4),
    "fp16": ("train.precision", False, lambda on: "fp16" if on else "no"),
    "datasets.train.batch_size": ("data.batch_size", 16),
    "datasets.train.n_workers": ("runtime.workers", 4),
    "datasets.train.target_size": ("data.common.size", 128),
    "train.niter": ("train.steps", 500000),
    "train.mega_batch_factor": ("train.accumulation", 1),
    "train.val_freq": ("train.evaluate_every", 5000),
    "train.manual_seed": ("seed", None),
    "logger.print_freq": ("runtime.log_every", 100),
    "logger.save_checkpoint_freq": ("runtime.checkpoint_every", 5000),
    "use_tb_logger": ("runtime.trackers", False, lambda on: ["tensorboard"] if on else []),
}
GENERATORS = {"RRDBNet": "super_resolution.RRDBGenerator"}
JUDGES = {"discriminator_vgg_128": "batch", "discriminator_vgg_128_gn": "none"}
KINDS = {"gan": "vanilla", "pixgan": "vanilla", "ragan": "relativistic_average"}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
PIXELS = {"l1": ("images.L1", 2.0), "l2": ("images.L2", 4.0), "cosine": ("images.Cosine", 1.0)}
GATES = ("after", "before", "every")
FORWARD = {"type": "Forward"}


def translate(t: Translation) -> None:
    """Write a recipe from published/esrgan_x4_psnr.yaml."""
    t.start("published/esrgan_x4_psnr.yaml")
    t.table(TABLE)
    for section in ("networks", "losses", "steps"):
        t.set(section, {})
    if t.get("wandb", False):
        t.set("runtime.trackers", [*t.recipe["runtime"]["trackers"], "wandb"], "wandb")
    rate = t.get("train.ema_rate", 0.999)
    t.set("train.ema", {"decay": rate} if t.get("train.ema_enabled", True) else None, "train.ema_rate")
    networks = _names(t, "networks.")
    for name in networks:
        _network(t, name)
    _Steps(t).translate()
    _data(t)
    for name in networks:
        if path := t.get(f"path.pretrain_model_{name}"):
            t.weights("esrgan", str(path), name)
    t.weights("esrgan", f"models/{t.given.get('train.niter', 'N')}_generator.pth", networks[0])


def _names(t: Translation, prefix: str) -> list[str]:
    found = [key.removeprefix(prefix).split(".")[0] for key in t.given if key.startswith(prefix)]
    return list(dict.fromkeys(found))


def _gates(t: Translation, place: str) -> dict[str, int]:
    return {gate: t.get(f"{place}{gate}", 0) for gate in GATES if f"{place}{gate}" in t.given}


def _network(t: Translation, name: str) -> None:
    place = f"networks.{name}."
    t.get(f"{place}type")
    kinds = [key for key in ("which_model_G", "which_model_D", "which_model") if place + key in t.given]
    key = f"{place}{kinds[0]}" if kinds else f"{place}which_model"
    kind = t.choice(key, t.get(key, ""), dict(zip([*GENERATORS, *JUDGES], [*GENERATORS, *JUDGES], strict=True)))
    features, channels = t.get(f"{place}nf", 64), t.get(f"{place}in_nc", 3)
    if kind in JUDGES:
        if kind.endswith("_gn"):
            t.leave(key, "group norm is not here: there is no norm")
        entry = {"type": "super_resolution.VGGDiscriminator", "norm": JUDGES[kind], "in_channels": channels}
        t.set(f"networks.{name}", entry | {"features": features, "pixels": "unit"}, key, f"{place}nf")
        return
    t.get(f"{place}scale")
    entry = {"type": GENERATORS[kind], "in_channels": channels, "out_channels": t.get(f"{place}out_nc", 3)}
    entry |= {"features": features, "blocks": t.get(f"{place}nb", 23), "pixels": "unit", "initial_scale": 0.1}
    t.set(f"networks.{name}", entry, key, f"{place}nf", f"{place}nb")
    if t.get("checkpointing_enabled", False):
        t.set(f"networks.{name}.checkpointing", True, "checkpointing_enabled")


class _Steps:
    """Its steps in order; `made` are names and the steps that wrote them, `called` what a name is called here."""

    def __init__(self, t: Translation) -> None:
        self.t, self.made, self.called = t, dict[str, str](), dict[str, str]()
        self.judges, self.generated = list[str](), ("", "", "")

    def translate(self) -> None:
        t = self.t
        for step in _names(t, "steps."):
            self.step(step)
        if not t.recipe["losses"]:
            self.nothing()
        network, read, out = self.generated
        call = {**FORWARD, "network": network, "inputs": {"x": read}, "outputs": {"image": out}}
        shown = t.get("eval.output_state", out)
        t.set("evaluate.modes.upscaling.injectors", {"upscale": call | {"inputs": {"x": "lq"}}})
        for where in ("evaluate.modes.upscaling.save", "predict.save"):
            t.set(where, {out: "image"}, "eval.output_state")
        t.set("metrics.scores.upscaling.image", out)
        t.set("metrics.pictures.enlarged.columns", ["lq", "bicubic", out, "hq"])
        if shown != out:
            t.leave("eval.output_state", f"the mode `upscaling` saves {out}, what the generator makes of lq")
        names = [self.called.get(name, name) for name in t.get("logger.visuals", ["lq", out, "hq"])]
        every = t.get("logger.visual_debug_rate", 500)
        samples = {"names": list(dict.fromkeys([*names, out])), "count": 4, "every": every}
        t.set("runtime.samples", samples, "logger.visuals", "logger.visual_debug_rate")

    def nothing(self) -> None:
        """Give a configuration without losses, which only predicts, one by which it may be trained."""
        step = [*self.t.recipe["steps"]][-1]
        inputs = {"image": self.generated[2], "target": "hq"}
        self.t.set(f"losses.{step}_pixel", {"type": "images.L1", "inputs": inputs, "weight": 0.5, "step": step})

    def step(self, step: str) -> None:
        t, place = self.t, f"steps.{step}."
        network = t.get(f"{place}training", step)
        t.set(f"steps.{step}", {"trains": [network], **_gates(t, place), "injectors": {}}, f"{place}training")
        for name in _names(t, f"{place}injectors."):
            self.injector(step, name)
        for name in _names(t, f"{place}losses."):
            self.loss(step, network, name)
        used = [
            one for entry in t.recipe["steps"][step]["injectors"].values() for one in entry.get("inputs", {}).values()
        ]
        used += [one for loss in t.recipe["losses"].values() if loss["step"] == step for one in loss["inputs"].values()]
        if earlier := [one for one in dict.fromkeys(used) if self.made.get(one, step) != step]:
            t.set(f"steps.{step}.detach", earlier)
        self.optimizer(step)

    def written(self, step: str, name: str) -> str:
        """Return what a name is called here: one that an earlier step wrote already gets the step's name behind it."""
        here = f"{name}_{step}" if self.made.get(name, step) != step else name
        self.made[here], self.called[name] = step, here
        return here

    def injector(self, step: str, name: str) -> None:
        t, place = self.t, f"steps.{step}.injectors.{name}."
        kind, out, read = t.get(f"{place}type", ""), t.get(f"{place}out"), t.get(f"{place}in")
        where = f"steps.{step}.injectors.{name}"
        source = self.called.get(str(read), str(read))
        if kind in ("image_patch", "random_crop", "margin_removal"):
            self.called[str(out)] = source
            t.leave(
                f"{place}type", f"the whole patch of the dataset, {source}, stands for {out}; data.common.size cuts it"
            )
        elif kind in ("generator", "discriminator"):
            network = t.get(f"{place}generator", t.given.get(f"{place}discriminator", "generator"))
            t.get(f"{place}discriminator")
            image = self.written(step, str(out[0] if isinstance(out, list) else out))
            call = {**FORWARD, "network": network, "inputs": {"x": source}, "outputs": {"image": image}}
            call |= {} if t.get(f"{place}grad", True) else {"grad": False}
            t.set(where, call | _gates(t, place), f"{place}type")
            if not self.generated[0] or t.recipe["steps"][step]["trains"] == [network]:
                self.generated = (network, source, image)
        elif kind == "noise":
            shape = {"shape": t.get(f"{place}shape")} if f"{place}shape" in t.given else {}
            t.set(
                where,
                {"type": "Noise", "output": self.written(step, str(out)), "like": source, **shape},
                f"{place}type",
            )
        elif kind == "interpolate":
            sizes = {here: t.get(f"{place}{there}") for here, there in (("factor", "scale_factor"), ("size", "size"))}
            sizes = {here: float(one) if here == "factor" else one for here, one in sizes.items() if one is not None}
            names = {source: self.written(step, str(out))}
            mode = t.get(f"{place}mode", "bilinear")
            t.set(where, {"type": "Resize", "names": names, **sizes, "mode": mode}, f"{place}type")
        else:
            for key in [key for key in t.given if key.startswith(place)]:
                t.leave(
                    key,
                    f"{kind} is not here: an injector of yours (docs/your_own_code.md); what reads it fails the check",
                )

    def judge(self, step: str, network: str, real: str, fake: str, gates: dict[str, int]) -> tuple[str, str]:
        """Call a discriminator on both pictures; return the names of its logits."""
        name = f"judge_{len(self.judges)}"
        self.judges.append(name)
        outputs = {"logits": f"{name}_real", "fake_logits": f"{name}_fake"}
        call = {**FORWARD, "network": network, "inputs": {"image": real, "fake": fake}, "outputs": outputs, **gates}
        self.t.set(f"steps.{step}.injectors.{name}", call)
        return f"{name}_real", f"{name}_fake"

    def loss(self, step: str, network: str, name: str) -> None:
        t, place = self.t, f"steps.{step}.losses.{name}."
        kind, weight = t.get(f"{place}type", ""), t.get(f"{place}weight", 1.0)
        gates = _gates(t, place)
        rest = {"step": step, **gates}
        names = {
            end: self.called.get(str(one), str(one)) for end in ("real", "fake") if (one := t.get(f"{place}{end}"))
        }
        inputs = {"image": names.get("fake"), "target": names.get("real")}
        here, criterion = f"losses.{step}_{name}", t.get(f"{place}criterion", "l1")
        if kind == "pix":
            found, wider = t.choice(f"{place}criterion", criterion, PIXELS)
            t.set(here, {"type": found, "inputs": inputs, "weight": weight / wider, **rest}, f"{place}weight")
        elif kind == "feature":
            t.get(f"{place}which_model_F")
            entry = {"type": "images.Perceptual", "source": "hub", "layers": {"relu5_2": 1.0}, "inputs": inputs}
            t.set(here, {**entry, "weight": weight, **rest}, f"{place}which_model_F")
        elif kind == "direct":
            value = self.called.get(str(key := t.get(f"{place}key")), str(key))
            weight = -weight if t.get(f"{place}inverted", False) else weight
            t.set(here, {"type": "images.Direct", "inputs": {"value": value}, "weight": weight, **rest}, f"{place}key")
        elif kind in ("generator_gan", "discriminator_gan"):
            t.get(f"{place}detach_real")
            judge = t.get(f"{place}discriminator", network) if kind == "generator_gan" else network
            self.adversarial(step, name, judge, names, weight, gates, kind)
        else:
            for key in [key for key in t.given if key.startswith(place)]:
                t.leave(key, f"{kind} is not here as one loss; its row says what it is made of")

    def adversarial(
        self, step: str, name: str, network: str, names: dict[str, str], weight: float, gates: dict[str, int], kind: str
    ) -> None:
        t, place = self.t, f"steps.{step}.losses.{name}."
        chosen = t.choice(f"{place}gan_type", t.get(f"{place}gan_type", "gan"), KINDS)
        real, fake = self.judge(step, network, names["real"], names["fake"], gates)
        role, average = kind.removesuffix("_gan"), chosen == "relativistic_average"
        generates = role == "generator"
        terms = {
            "fake": (fake, real, "real" if generates else "fake"),
            "real": (real, fake, "fake" if generates else "real"),
        }
        share = 0.5 if generates and average else 1.0
        for end, (logits, opposite, target) in terms.items():
            if generates and end == "real" and not average:
                continue
            entry = {"type": "images.Adversarial", "kind": chosen, "role": role, "target": target}
            entry |= {"inputs": {"logits": logits} | ({"opposite": opposite} if average else {})}
            t.set(
                f"losses.{step}_{name}_{end}",
                {**entry, "weight": weight * share, "step": step, **gates},
                f"{place}weight",
            )
        if t.get(f"{place}gradient_penalty", False):
            points = f"points_{name}"
            injectors = {points: {"type": "Detach", "names": {names["real"]: points}, "requires_grad": True, **gates}}
            slope = {
                **FORWARD,
                "network": network,
                "inputs": {"image": points},
                "outputs": {"logits": f"{points}_logits"},
            }
            for key, entry in (injectors | {f"judge_{points}": slope | gates}).items():
                t.set(f"steps.{step}.injectors.{key}", entry, f"{place}gradient_penalty")
            entry = {"type": "images.GradientPenalty", "centre": 1.0, "weight": 10 * weight, "step": step, **gates}
            entry["inputs"] = {"points": points, "logits": f"{points}_logits"}
            t.set(f"losses.{step}_{name}_slope", entry, f"{place}gradient_penalty")

    def optimizer(self, step: str) -> None:
        t, place = self.t, f"steps.{step}."
        within = f"{place}optimizer_params." if f"{place}optimizer_params.lr" in t.given else place
        if within == place:
            t.remarks.append(f"{step} has no optimizer_params, so nothing was trained there; here its own lr is used")
        kind = t.choice(f"{place}optimizer", t.get(f"{place}optimizer", "adamw"), OPTIMIZERS)
        settings: dict[str, Any] = {"type": f"torch.optim.{kind}", "lr": t.get(f"{within}lr", 1e-4)}
        if kind == "SGD":
            settings["momentum"] = t.get(f"{within}momentum", 0.9)
        else:
            settings["betas"] = [t.get(f"{within}beta1", 0.9), t.get(f"{within}beta2", 0.999)]
        settings["weight_decay"] = t.get(f"{within}weight_decay", 0.0)
        t.set(f"steps.{step}.optimizer", settings, f"{within}beta1", f"{within}beta2")
        if most := t.get(f"{place}clip_grad_eps", 0.0):
            t.set(f"steps.{step}.clip", most, f"{place}clip_grad_eps")
        t.set(f"steps.{step}.lr_schedule", _schedule(t, settings["lr"]), "train.default_lr_scheme")


def _schedule(t: Translation, rate: float) -> dict[str, Any]:
    at, factor = t.get("train.gen_lr_steps", []), t.get("train.lr_gamma", 0.5)
    schedules: dict[str, dict[str, Any]] = {"MultiStepLR": {"type": "Decay", "at": at, "factor": factor, "over": 0}}
    if periods := t.get("train.T_period"):
        weights = [float(one) for one in t.get("train.restart_weights", [1.0] * len(periods))]
        low, start = round(t.get("train.eta_min", 0.0) / rate, 12), t.get("train.warmup", 0)
        schedules["CosineAnnealingLR_Restart"] = {
            "type": "CosineRestarts", "periods": periods, "weights": weights[: len(periods)], "from": 1.0, "to": low,
            "start": start,
        }  # fmt: skip
    schedule = t.choice("train.default_lr_scheme", t.get("train.default_lr_scheme", "MultiStepLR"), schedules)
    rise = t.get("train.warmup_iter", -1)
    return {"type": "WarmUp", "steps": rise, "then": schedule} if rise > 0 else dict(schedule)


def _data(t: Translation) -> None:
    name, data = t.output.stem, "datasets.train."
    t.set("data.common.root", f"data/prepared/{name}", f"{data}paths")
    t.get(f"{data}scale")
    if t.get(f"{data}disable_flip", False):
        t.drop("data.train.scenes.augmentation")
    folder, judged = t.get(f"{data}paths") or "train", t.get("datasets.val.dataroot_GT", "validation")
    folder = folder[0] if isinstance(folder, list) else folder
    t.data[name] = {"kind": "images", "source": f"data/raw/{name}", "seed": 7, "max_rejected": 0.0,
                    "images": {"train": str(folder), "validation": str(judged)}}  # fmt: skip
    t.commands_of(
        f"dvc add data/raw/{name} && dvc repro prepare@{name}",
        f"put its folders below data/raw/{name}, as the entry names them", "train.py -opt", "test.py -opt",
        "process_video.py",
    )  # fmt: skip
