"""The training loop: batches through steps, records, evaluations, resume points."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from models.engine.assemble import build_datasets, build_networks, build_steps
from models.engine.batches import Mixture, TrainBatches, ValidationBatches, load_batches
from models.engine.checkpoint import ResumePoints, save_weights, to_device
from models.engine.errors import UserError, nearest
from models.engine.files import write_text
from models.engine.history import History, Row
from models.engine.injectors import Networks
from models.engine.modes import evaluating
from models.engine.provenance import code_version, data_version, package_versions
from models.engine.recipe import late_schedules, resolved
from models.engine.reporting import Reporter, mean_losses
from models.engine.schema import Recipe
from models.engine.seeding import seed_here
from models.engine.state import State, split_batch
from models.engine.steps import StepReport
from models.engine.stopwatch import Stopwatch

HOOKS = ("on_epoch_start", "train_step", "on_epoch_end")


class Trainer:
    """Trains what a recipe declares; override a hook or an operation, or pass callables for the hooks.

    Hooks: `on_epoch_start(epoch)`, `train_step(batch, index)`, `on_epoch_end(epoch)`. A callable gets the trainer first,
    and from `callback_kwargs` the keywords under its name. Operations: `train_op` updates on a training batch, `log_op`
    looks at a batch without updating, `eval_op` gives every loss of every instance of a validation batch.

    Args:
        recipe: what to train.
        run: folder of the run; gets `model/`, `history/` and `live/`, and `resume/` while it trains.
        accelerator: one with the recipe's precision is made when left out.
    """

    def __init__(
        self,
        recipe: Recipe,
        run: Path,
        *,
        accelerator: Accelerator | None = None,
        on_epoch_start: Callable[..., None] | None = None,
        train_step: Callable[..., dict[str, StepReport]] | None = None,
        on_epoch_end: Callable[..., None] | None = None,
        callback_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.recipe, self.run = recipe, run
        callables = {"on_epoch_start": on_epoch_start, "train_step": train_step, "on_epoch_end": on_epoch_end}
        self._hooks = {name: (call, dict((callback_kwargs or {}).get(name, {}))) for name, call in callables.items()}
        self._check_hooks(callback_kwargs or {})
        self.accelerator = accelerator or Accelerator(
            mixed_precision=recipe.train.precision,
            log_with=list(recipe.runtime.trackers) or None,
            project_dir=str(run / "live"),
        )
        torch.use_deterministic_algorithms(True, warn_only=self.accelerator.device.type != "cpu")
        self._validation: Iterator[Any] = iter(())
        self._build()

    # hooks

    def on_epoch_start(self, epoch: int, **kwargs: Any) -> None:
        """Called before the first batch of an epoch."""

    def train_step(self, batch: dict[str, Any], index: int, **kwargs: Any) -> dict[str, StepReport]:
        """Take one iteration on a batch, `index` within its epoch; return what each step reports."""
        return self.train_op(batch)

    def on_epoch_end(self, epoch: int, **kwargs: Any) -> None:
        """Called after the last batch of an epoch."""

    # operations

    def train_op(self, batch: dict[str, Any]) -> dict[str, StepReport]:
        """Run every step whose gate is open on a batch and update; the parts of an accumulated batch share their state."""
        states = [(State(part), share) for part, share in split_batch(batch, self.recipe.train.accumulation)]
        return {
            name: step.update(states, self.networks, self.iteration, self.accelerator, self.stopwatch)
            for name, step in self.steps.items()
            if step.gate.open(self.iteration)
        }

    def log_op(self, batch: dict[str, Any]) -> tuple[State, dict[str, float]]:
        """Look at a batch without updating: the state after all steps, and the mean of each loss and their total."""
        state, values = self._observed(batch)
        weights = {
            n: loss.effective_weight(self.iteration) for s in self.steps.values() for n, loss in s.losses.items()
        }
        return state, mean_losses(values, weights)

    def eval_op(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return every loss of every instance of a validation batch, shape (batch,) each."""
        return self._observed(batch)[1]

    def _observed(self, batch: dict[str, Any]) -> tuple[State, dict[str, Tensor]]:
        state, values = State(batch), dict[str, Tensor]()
        with evaluating(*self.networks.live.values(), *self.networks.ema.values()):
            networks = Networks(self.networks.ema, self.networks.ema)
            for step in self.steps.values():
                with self.accelerator.autocast():
                    values |= step.observe(state, networks, self.iteration)
        return state, values

    # the loop

    def fit(self) -> None:
        """Train to the end, from where a killed run of the same recipe, data and code stopped; then write the outputs."""
        self._resume()
        self.reporter = Reporter(
            self.accelerator, self.recipe.runtime, self.run / "live",
            first=self.iteration, last=self.last, batch=self.recipe.data.batch_size,
        )  # fmt: skip
        for warning in late_schedules(self.recipe, self.last):
            self.reporter.say(f"warning: {warning}")
        try:
            self._loop()
            self._write()
        finally:
            self.reporter.close()
        self.resume_points.clear()

    def _loop(self) -> None:
        batches = iter(self._train_loader(self.iteration))
        while self.iteration < self.last:
            epoch, index = divmod(self.iteration, self.batches_per_epoch)
            if index == 0:
                self._call("on_epoch_start", epoch)
            with self.stopwatch("data"):
                batch = to_device(next(batches), self.accelerator.device)
            self.iterate(batch, index)
            if index == self.batches_per_epoch - 1:
                self._call("on_epoch_end", epoch)
            if self._due(self.recipe.runtime.checkpoint_every) and self.iteration < self.last:
                self._save_resume_point()

    def iterate(self, batch: dict[str, Any], index: int) -> None:
        """Take one iteration on a batch, `index` within its epoch: the hook, the records, what is due."""
        seed_here(self.recipe.seed, "iteration", self.iteration, self.accelerator.process_index)
        reports = self._call("train_step", batch, index) or {}
        self.iteration += 1
        self._after(reports)

    def _after(self, reports: dict[str, StepReport]) -> None:
        for name, report in reports.items():
            for network in self.recipe.steps[name].trains:
                if isinstance(average := self.averages.get(network), AveragedModel) and not report.skipped:
                    average.update_parameters(self.accelerator.unwrap_model(self.networks.live[network]))
        self._guard(reports)
        self.history.add(self.iteration, reports, last=self.iteration == self.last)
        self.reporter.advance()
        if self._due(self.recipe.runtime.log_every):
            self._log(reports)
        if self._due(self.recipe.train.evaluate_every or self.batches_per_epoch):
            self._evaluate()

    def _guard(self, reports: dict[str, StepReport]) -> None:
        for name, report in reports.items():
            self.nonfinite[name] = self.nonfinite.get(name, 0) + 1 if report.skipped else 0
            if self.nonfinite[name] >= self.recipe.train.max_nonfinite:
                values = {loss: value.item() for loss, value in report.raw.items()}
                raise UserError(
                    f"step {name!r}: {self.nonfinite[name]} updates in a row were not finite (train.max_nonfinite), the last "
                    f"in iteration {self.iteration} with losses {values} and learning rate {report.learning_rate:g}; "
                    f"lower the learning rate or clip (steps.{name}.clip)"
                )

    def _due(self, every: int) -> bool:
        return self.iteration % every == 0 or self.iteration == self.last

    def _log(self, reports: dict[str, StepReport]) -> None:
        scalars: dict[str, float] = {}
        for name, report in reports.items():
            scalars |= {f"train.{loss}": value.item() for loss, value in report.raw.items()}
            scalars |= {f"weight.{loss}": weight for loss, weight in report.weights.items()}
            scalars[f"lr.{name}"] = report.learning_rate
        weighted = [r.weights[loss] * value.item() for r in reports.values() for loss, value in r.raw.items()]
        scalars["train.total"] = sum(weighted)
        seed_here(self.recipe.seed, "log", self.iteration)
        _, losses = self.log_op(self._validation_batch())
        scalars |= {f"validation.{loss}": value for loss, value in losses.items()}
        self.reporter.log(self.iteration, scalars, self.stopwatch.take())

    def _validation_batch(self) -> dict[str, Any]:
        """Return the next batch of the validation split, beginning again at its end."""
        batch = next(self._validation, None)
        if batch is None:
            self._validation = iter(self._validation_loader(workers=0))
            batch = next(self._validation)
        return dict(to_device(batch, self.accelerator.device))

    def _evaluate(self) -> None:
        """Run `eval_op` over the sorted validation split; one row of history, one sheet of samples."""
        sums: dict[str, float] = {}
        count = 0
        for place, batch in enumerate(self._validation_loader(self.recipe.runtime.workers)):
            seed_here(self.recipe.seed, "evaluation", place)
            values = self.eval_op(to_device(batch, self.accelerator.device))
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value.double().sum().item()
            count += len(next(iter(values.values())))
        row: Row = {"step": self.iteration, **{f"{name}.raw": total / count for name, total in sums.items()}}
        self.history.validation.append(row)
        self.reporter.track(self.iteration, row, "validation")
        if samples := self.recipe.runtime.samples:
            seed_here(self.recipe.seed, "samples")
            batch = next(iter(self._validation_loader(0, size=samples.count)))
            state, _ = self.log_op(to_device(batch, self.accelerator.device))
            self.reporter.samples(self.iteration, {name: state[name] for name in samples.names})

    # construction, resume, outputs

    def _build(self) -> None:
        recipe, accelerator = self.recipe, self.accelerator
        self.train_data, self.validation_data = build_datasets(recipe, "train"), build_datasets(recipe, "validation")
        networks = build_networks(recipe)
        for name in networks.keys() - {trained for step in recipe.steps.values() for trained in step.trains}:
            networks[name].eval().requires_grad_(False)  # loaded and kept as it is, running statistics included
        live = {name: accelerator.prepare_model(network) for name, network in networks.items()}
        self.averages = {name: self._average(network) for name, network in networks.items()}
        evaluated = {n: a.module if isinstance(a, AveragedModel) else networks[n] for n, a in self.averages.items()}
        self.networks = Networks(live, evaluated)
        self.steps = build_steps(recipe, live, accelerator)
        self.stopwatch = Stopwatch(recipe.runtime.timing)
        self.history = History(recipe.train.record_every)
        self.nonfinite: dict[str, int] = {}
        self.iteration = 0
        self.batches_per_epoch = self._train_batches(0).batches_per_epoch
        self.last = recipe.train.steps or (recipe.train.epochs or 0) * self.batches_per_epoch
        roots = [
            e.arguments["root"]
            for s in (recipe.data.train, recipe.data.validation)
            for e in s.values()
            if "root" in e.arguments
        ]
        self.made_by = {
            "recipe": resolved(recipe), "code": code_version(), "packages": str(package_versions()),
            "data": data_version(roots), "processes": str(accelerator.num_processes),
        }  # fmt: skip
        self.resume_points = ResumePoints(self.run / "resume", self.made_by)

    def _average(self, network: nn.Module) -> AveragedModel | None:
        if self.recipe.train.ema is None:
            return None
        return AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(self.recipe.train.ema.decay), use_buffers=False)

    def _train_batches(self, start: int) -> TrainBatches:
        processes, size = self.accelerator.num_processes, self.recipe.data.batch_size
        if size % processes:
            raise UserError(f"data.batch_size: found {size}, which {processes} processes cannot share evenly")
        return TrainBatches(
            {name: len(data) for name, data in self.train_data.items()},
            {name: entry.weight for name, entry in self.recipe.data.train.items()},
            size, self.recipe.seed, start, slice(self.accelerator.process_index, None, processes),
        )  # fmt: skip

    def _train_loader(self, start: int) -> Any:
        pin = self.accelerator.device.type == "cuda"
        mixture = Mixture(self.train_data, self.recipe.seed)
        return load_batches(mixture, self._train_batches(start), self.recipe.runtime.workers, pin)

    def _validation_loader(self, workers: int, size: int | None = None) -> Any:
        lengths = {name: len(data) for name, data in self.validation_data.items()}
        # not `evaluate.batch_size`: noise is drawn a batch at a time, and the train stage does not track that section
        batches = ValidationBatches(lengths, size or self.recipe.data.batch_size)
        return load_batches(Mixture(self.validation_data, self.recipe.seed), batches, workers)

    def _state_dict(self) -> dict[str, Any]:
        return {
            "networks": {n: self.accelerator.unwrap_model(net).state_dict() for n, net in self.networks.live.items()},
            "averages": {n: a.state_dict() for n, a in self.averages.items() if isinstance(a, AveragedModel)},
            "optimizers": {name: step.optimizer.state_dict() for name, step in self.steps.items()},
            "updates": {name: step.updates for name, step in self.steps.items()},
            "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler else {},
            "nonfinite": self.nonfinite,
            "history": self.history.state_dict(),
        }

    def _save_resume_point(self) -> None:
        if self.accelerator.is_main_process:
            self.resume_points.save(self.iteration, self._state_dict())
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        found = self.resume_points.load()
        if isinstance(found, str):
            self.accelerator.print(f"not resumed, training starts afresh: {found}")
            self.resume_points.clear()
        elif found is not None:
            self.iteration, state = found
            for name, network in self.networks.live.items():
                self.accelerator.unwrap_model(network).load_state_dict(state["networks"][name])
            for name, average in state["averages"].items():
                self.averages[name].load_state_dict(average)  # type: ignore[union-attr]
            for name, step in self.steps.items():
                step.optimizer.load_state_dict(state["optimizers"][name])
                step.updates = state["updates"][name]
            if self.accelerator.scaler:
                self.accelerator.scaler.load_state_dict(state["scaler"])
            self.nonfinite = dict(state["nonfinite"])
            self.history.load_state_dict(state["history"])
            self.accelerator.print(f"resumed after iteration {self.iteration}")

    def _write(self) -> None:
        """Write the outputs that DVC tracks: weights (averaged where they are), the resolved recipe, what made them."""
        if self.accelerator.is_main_process:
            write_model(self.run / "model", self.networks.ema, self.recipe, self.made_by)
            self.history.write(self.run / "history")
        self.accelerator.wait_for_everyone()

    def _call(self, name: str, *arguments: Any) -> Any:
        callback, kwargs = self._hooks[name]
        return callback(self, *arguments, **kwargs) if callback else getattr(self, name)(*arguments, **kwargs)

    def _check_hooks(self, callback_kwargs: Mapping[str, Mapping[str, Any]]) -> None:
        for name, kwargs in callback_kwargs.items():
            if name not in HOOKS:
                raise UserError(
                    f"callback_kwargs: unknown callback {name!r}{nearest(name, HOOKS)}; there are {', '.join(HOOKS)}"
                )
            callback = self._hooks[name][0] or getattr(self, name)
            parameters = inspect.signature(callback).parameters
            written = self._hooks[name][0] or getattr(type(self), name) is not getattr(Trainer, name)
            if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) and written:
                continue
            for keyword in kwargs:
                if keyword not in parameters:
                    raise UserError(
                        f"callback_kwargs.{name}: {callback.__qualname__} takes no {keyword!r}{nearest(keyword, parameters)}"
                    )


def write_model(folder: Path, networks: Mapping[str, nn.Module], recipe: Recipe, made_by: Mapping[str, str]) -> None:
    """Write `<network>.safetensors`, `recipe.yaml` and `made_by.json` into `folder`."""
    for name, network in networks.items():
        save_weights(network, folder / f"{name}.safetensors")
    write_text(folder / "recipe.yaml", resolved(recipe))
    rest = {key: value for key, value in made_by.items() if key != "recipe"}
    write_text(folder / "made_by.json", json.dumps(rest, indent=2) + "\n")
