"""Build a training again, bring it to an iteration, and watch this one: gradients, updates, what is not finite."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.files import read_text
from figura.base.tables import aligned
from figura.engine.precision import in_float32
from figura.engine.step import Step
from figura.engine.weights import not_finite, to_device
from figura.interfaces import Callback, Injector, Networks, State, StepReport, batch_size, loss_of
from figura.live.samples import LABELS, one_value
from figura.recipe.load import check_recipe
from figura.report.sheets import Pixels
from figura.show.drawing import drawing_of
from figura.show.examples import DrawnDataset, DrawnExample
from figura.show.sheet import draw_sheet
from figura.training.resume import ResumePoints
from figura.training.trainer import Trainer

NEVER = 10**9
LISTED = 5  # things that are not finite
RUNTIME = {"workers": 0, "log_every": NEVER, "resume_every": NEVER, "progress": False, "timing": False, "trackers": []}
"""Of a training that is only looked at."""
NONE = {"none": {"type": "none"}}
UNREAD: dict[str, Any] = {
    "evaluate": {"batch_size": 1, "inputs": {}, "modes": {"none": {"injectors": NONE, "save": {}}}},
    "metrics": {"bootstrap": 1, "confidence": 0.5, "scores": NONE},
    "runtime": RUNTIME,
}
"""Sections that no training depends on, which `live/recipe.yaml` lacks."""
Losses = dict[tuple[int, str], np.float32]  # the raw value of each loss, by iteration and name


def replayed(content: dict[str, Any], live: Path, step: int) -> tuple[list[str], Pixels]:
    """Return what iteration `step`, from 1, of a training did, as lines, and its batch as a sheet.

    `content` is that of `recipe.yaml` in `live`, a folder of the run.

    Raises:
        UserError: the training has no such iteration, or cannot be built any more.
    """
    facts = content.pop("facts", {})
    recipe = check_recipe(content | UNREAD, live / "recipe.yaml", ["train"], facts)
    records = [line for line in read_text(live / "log.jsonl").splitlines() if '"threads"' in line]
    begun = json.loads(records[-1])  # by the last process that trained
    torch.set_num_threads(begun["threads"])
    with TemporaryDirectory() as folder:
        trainer = Trainer(recipe, Path(folder))
        if step > trainer.last:
            raise UserError(f"--step {step}: the training has {trainer.last} iterations")
        start = _bring(trainer, live.parent, step - 1)
        epoch, index = divmod(trainer.iteration, trainer.batches_per_epoch)
        watch = Watch(trainer)
        reports = watch.run(next(_batches(trainer)), index)
        if not reports:
            raise UserError(f"--step {step}: no step of the recipe runs in this iteration")
        trainer.loss_log.add(step, reports)
        trainer.loss_log.flush()
        again = _losses(trainer.loss_log.path)
        before = _without_means(_losses(live / "losses.csv"), recipe.train.record_every)
        lines = [
            f"iteration {step} of {trainer.last}, {start}; batch {index} of epoch {epoch}",
            _compared(again, before, live / "losses.csv"),
        ]
        if begun["processes"] > 1:
            lines.append(f"it was trained in {begun['processes']} processes, whose rounding differs from that of one")
        if begun["code"] != trainer.provenance["code"]:
            lines.append("its code has changed since")
        at_step = {loss: value for (one, loss), value in before.items() if one == step}
        return [*lines, *watch.told(at_step)], watch.sheet()


def _bring(trainer: Trainer, run: Path, done: int) -> str:
    """Bring a trainer to the state after `done` iterations; return from where, as text."""
    start = "from the start"
    points = [one for one in ResumePoints(run / "resume", trainer.provenance).intact() if one.iteration <= done]
    for point in points[-1:]:
        trainer.iteration = trainer.folder.restore(point)
        start = f"from the resume point of iteration {point.iteration}"
    if trainer.sharing is not None:
        trainer.sharing.last = done
        if (shared := trainer.sharing.begin(trainer.iteration)) is not None:
            trainer.iteration = shared.iteration
            start = f"from iteration {shared.iteration} of {shared.maker} (state {shared.digest[:8]})"
    last, trainer.last = trainer.last, NEVER
    trainer.reporter = SimpleNamespace(advance=_ignore, track=_ignore, say=_ignore)  # type: ignore[assignment]
    if all(type(one).on_evaluation is Callback.on_evaluation for one in trainer.callbacks.values()):
        trainer.evaluate_every = NEVER  # evaluations change nothing
    batches = _batches(trainer)
    for _ in tqdm(range(done - trainer.iteration), desc="replay", disable=None):
        trainer.iterate(next(batches), trainer.iteration % trainer.batches_per_epoch)
    trainer.last = last
    return start


def _batches(trainer: Trainer) -> Iterator[dict[str, Any]]:
    for batch in trainer.loaders.train(trainer.iteration):
        yield to_device(batch, trainer.accelerator.device)


def _ignore(*_: object) -> None: ...


def _losses(path: Path | None) -> Losses:
    if path is None or not path.is_file():
        return {}
    rows = pd.read_csv(path).dropna(subset=["loss"])  # killed while writing: half a row
    cells = zip(rows["step"], rows["loss"], rows["raw"], strict=True)
    return {(int(step), str(loss)): np.float32(raw) for step, loss, raw in cells}


def _without_means(losses: Losses, window: int) -> Losses:
    """Drop the means of windows, which stand in place of the iterations of another training's state."""
    steps = {step for step, _ in losses}
    return {key: value for key, value in losses.items() if window == 1 or key[0] % window or key[0] - 1 in steps}


def _compared(again: Losses, before: Losses, path: Path) -> str:
    """Return whether the losses that were computed again are those of the run's log, as text."""
    both = [key for key in again if key in before]
    for step, loss in both:
        one, other = again[step, loss], before[step, loss]
        if not np.array_equal(one, other, equal_nan=True):
            return f"other losses than in {path} from iteration {step} on: {loss} {one}, there {other}"
    if not both:
        return f"{path} has none of the losses that were computed again"
    return f"the losses of {len({step for step, _ in both})} iterations are those of {path}, bit for bit"


class Watch(Callback):
    """Runs one iteration of a trainer as it is, and notes gradients, updates, and what is not finite.

    The gradients of single losses are computed beside those of the update, which stays the same.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.found: list[str] = []  # what is not finite, in this order
        self.gradients: dict[str, dict[str, dict[nn.Parameter, Tensor]]] = {name: {} for name in trainer.steps}
        self.norms: dict[tuple[str, str], float] = {}  # of the whole gradient, by step and network
        self.updates: dict[str, float] = {}  # norm as a share of that of the network's weights
        self.states: dict[str, list[State]] = {name: [] for name in trainer.steps}  # one for each part of the batch
        self.layers: dict[nn.Parameter, str] = {}  # in the order in which they run
        trainer.callbacks["replay"] = self
        averages = {f"average of {name}": trainer.networks.ema[name] for name in trainer.averages}
        for name, network in {**trainer.networks.live, **averages}.items():
            _hook(network, name, self._layer)
        for name, step in trainer.steps.items():
            for loss, weighted in step.losses.items():
                _hook(weighted.loss, f"loss {loss}", self._layer)
            step.injectors = {
                key: replace(one, injector=_Looked(one.injector, f"injector {name}.{key}", self._look))
                for key, one in step.injectors.items()
            }
            step.observe = partial(self._observe, name, step, step.observe)  # type: ignore[method-assign]

    def run(self, batch: dict[str, Any], index: int) -> dict[str, StepReport]:
        """Run the iteration on its batch, `index` in its epoch; return the reports of its steps."""
        self.size = batch_size(batch)
        before = {name: _flat(network) for name, network in self.trainer.networks.live.items()}
        self.reports = self.trainer.run_steps(batch, index)
        for name, network in self.trainer.networks.live.items():
            self.updates[name] = float((_flat(network) - before[name]).norm() / before[name].norm())
            self.found += [f"{name}.{one} after the update" for one in not_finite(network)]
        self.found = [*self._examples(batch), *self.found]
        return self.reports

    def _examples(self, batch: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is not finite in the batch and matters: a finite loss may read NaN, which marks the unknown."""
        read = set[str]()
        for name, step in self.trainer.steps.items():
            read.update(*(one.injector.reads for one in step.injectors.values()))
            raw = self.reports[name].raw if name in self.reports else {}
            read.update(*(loss.inputs.values() for key, loss in step.losses.items() if not _finite(raw.get(key))))
        label = next((name for name in LABELS if name in batch), None)
        for name in [name for name in batch if name in read and not _finite(batch[name])]:
            for place in [place for place in range(self.size) if not _finite(batch[name][place])]:
                known = f" ({label} {one_value(batch[label], place)})" if label else ""
                yield f"{name!r} of example {place} of the batch{known}"

    def _look(self, what: str, value: Any) -> None:
        if not _finite(value):
            self.found.append(what)

    def _layer(self, what: str, module: nn.Module, output: Any) -> None:
        self.layers |= {one: what for one in module.parameters(recurse=False) if one not in self.layers}
        if not _finite(output):
            own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            weights = [f", its {name}" for name, tensor in own if not _finite(tensor)]
            names = [name for name, part in output.items() if not _finite(part)] if isinstance(output, Mapping) else []
            title = " ".join([what, *map(repr, names)])
            self.found.append(f"{title} ({type(module).__name__}{''.join(weights[:1])})")

    def _observe(
        self, name: str, step: Step, observe: Callable[..., dict[str, Tensor]], state: State, networks: Networks,
        iteration: int, training: bool = False,
    ) -> dict[str, Tensor]:  # fmt: skip
        values = observe(state, networks, iteration, training)
        if training:
            self.states[name].append(state)
            with torch.autocast(self.trainer.accelerator.device.type, enabled=False):
                for loss in [loss for loss in values if loss_of(loss) == loss]:
                    weight = step.losses[loss].effective_weight(iteration) * len(values[loss]) / self.size
                    self._differentiate(name, loss, weight * in_float32(values[loss]).mean())
        return values

    def _differentiate(self, step: str, loss: str, value: Tensor) -> None:
        """Add the gradients of a part's weighted loss, and note if they are not finite although it is."""
        total = self.gradients[step].setdefault(loss, {})
        own = [one for one in self.trainer.steps[step].parameters if one.requires_grad]
        found = torch.autograd.grad(value, own, retain_graph=True, allow_unused=True) if value.requires_grad else ()
        gradients = {one: gradient for one, gradient in zip(own, found, strict=False) if gradient is not None}
        broken = [layer for one, layer in self.layers.items() if one in gradients and not _finite(gradients[one])]
        if broken:
            self.found.append(f"gradient of loss {loss}, from {broken[-1]} backwards")
        for one, gradient in gradients.items():
            total[one] = total.get(one, 0) + gradient.float()

    def before_update(self, trainer: Any, step: str) -> None:
        """Note the norms of the whole gradient, before it is clipped."""
        for network, own in trainer.steps[step].own.items():
            gradients = [one.grad for one in own if one.grad is not None]
            self._look(f"gradient of {network} before the update", gradients)
            self.norms[step, network] = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0

    def told(self, recorded: Mapping[str, np.float32]) -> list[str]:
        """Return a table for each step and network, and what was not finite; `recorded` are the losses of the log."""
        lines = []
        for step, network in self.norms:
            report, share = self.reports[step], f"{self.updates[network]:.3g} of its weights"
            update = "skipped, as something is not finite" if report.skipped else share
            lines += ["", f"step {step}, network {network}: update {update}, learning rate {report.learning_rate:g}"]
            lines += [f"  {line}" for line in aligned([*self._table(step, network, recorded)])]
        first, *then = self.found or ["nothing"]
        more = f", and {len(then) - LISTED} more" if len(then) > LISTED else ""
        return [*lines, "", f"not finite: {first}", *([f"then: {'; '.join(then[:LISTED])}{more}"] if then else [])]

    def _table(self, step: str, network: str, recorded: Mapping[str, np.float32]) -> Iterator[tuple[str, ...]]:
        report, own = self.reports[step], self.trainer.steps[step].own[network]
        flat = {
            loss: torch.cat([gradients.get(one, torch.zeros_like(one)).flatten().double() for one in own])
            for loss, gradients in self.gradients[step].items()
        }
        losses = list(flat)
        yield ("loss", "value", "in the log", "weight", "gradient", *(f"cosine {loss}" for loss in losses[:-1]))
        for index, loss in enumerate(losses):
            value, was = np.float32(report.raw[loss].item()), recorded.get(loss)
            equal = was is not None and np.array_equal(value, was, equal_nan=True)
            log = "equal" if equal else "-" if was is None else f"{was:.6g}"
            cosines = [nn.functional.cosine_similarity(flat[loss], flat[one], dim=0) for one in losses[:index]]
            norm = f"{float(flat[loss].norm()):.4g}"
            yield (loss, f"{value:.6g}", log, f"{report.weights[loss]:g}", norm, *(f"{one:+.3f}" for one in cosines))
        yield "together", "", "", "", f"{self.norms[step, network]:.4g}"

    def sheet(self) -> Pixels:
        """Return the pictures of the batch, and of what the last step has by then, one example a row."""
        states = next(one for one in reversed(self.states.values()) if one)
        datasets = self.trainer.loaders.train_data.values()
        drawing = drawing_of(next((d for d in datasets if set(d.names) <= states[0].keys()), next(iter(datasets))), {})
        drawn: list[DrawnExample] = []
        for state in states:
            size = batch_size(state)
            whole = [
                name
                for name, value in state.items()
                if isinstance(value, list) or (isinstance(value, Tensor) and value.shape[:1] == (size,))
            ]
            for index in range(size):
                example = {name: one_value(state[name], index) for name in whole}
                drawn.append(DrawnExample(len(drawn), 0, example, drawing.pictures(example)))
        return draw_sheet({f"iteration {self.trainer.iteration + 1}": DrawnDataset(drawing.legend, drawn)}, "train")


class _Looked(Injector):
    """An injector that shows the names that it adds."""

    def __init__(self, injector: Injector, what: str, look: Callable[[str, Any], None]) -> None:
        self.injector, self.what, self.look, self.reads = injector, what, look, injector.reads

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        before = set(state)
        self.injector(state, networks, step)
        for name in state.keys() - before:
            self.look(f"{self.what}: {name!r}", state[name])


def _hook(network: nn.Module, what: str, see: Callable[[str, nn.Module, Any], None]) -> None:
    """Call `see` with title, module and output of each module of a network or loss, as soon as it has run."""
    for name, module in network.named_modules():
        layer = f"layer {what}.{name}" if not what.startswith("loss ") else f"{what}, layer {name}"
        title = layer if name else what
        module.register_forward_hook(lambda module, _, output, title=title: see(title, module, output))


def _finite(value: Any) -> bool:
    """Whether all tensors in nested lists and maps are finite."""
    if isinstance(value, Tensor):
        return bool(value.isfinite().all())
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return all(map(_finite, parts))


def _flat(network: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten().double().cpu() for parameter in network.parameters()])
