"""The training loop: batches through steps, records, evaluations, resume points."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from models.engine.assemble import build_datasets, build_networks, build_steps
from models.engine.batches import Loaders
from models.engine.book import Book, weights_line
from models.engine.checkpoint import load_start, to_device, write_model
from models.engine.errors import UserError
from models.engine.history import History, Row
from models.engine.hooks import Hooks
from models.engine.injectors import Networks
from models.engine.modes import evaluating
from models.engine.provenance import code_version, data_version, dirty, file_versions, package_versions, process_record
from models.engine.recipe import batch_names, late_schedules, resolved
from models.engine.reporting import Reporter, mean_losses
from models.engine.resume import Restorable, ResumePoints
from models.engine.schema import Recipe
from models.engine.seeding import seed_here
from models.engine.snapshots import Snapshots
from models.engine.state import State, split_batch
from models.engine.steps import StepReport, loss_of
from models.engine.stopwatch import Stopwatch


class Trainer:
    """Trains what a recipe declares; override a hook or an operation, or pass callables for the hooks.

    Hooks: `on_epoch_start`, `train_step`, `on_epoch_end`. Each gets what it asks for by the names of its parameters:
    `epoch` (0 is the first); for `train_step`, `batch` (all names of it), `index` (of the batch in its epoch) and any name
    of the batch, so that `def train_step(trainer, x, y, index)` works on image pairs. A callable gets the trainer first,
    and from `callback_kwargs` the keywords under its name. `train_step` returns the report of each step it took; it may
    take them by `train_op` or by `optimize`.

    Operations: `train_op` updates on a training batch, `log_op` looks at a batch without updating, `eval_op` gives every
    loss of every instance of a validation batch.

    Args:
        recipe: what to train.
        run: folder of the run; gets `model/`, `history/` and `live/`, `resume/` while it trains, and `checkpoints/` where
            `runtime.keep_every` asks for it.
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
        names = batch_names(recipe.data.train)
        self.hooks = Hooks(
            self,
            {"on_epoch_start": ["epoch"], "train_step": ["batch", "index", *names], "on_epoch_end": ["epoch"]},
            {"on_epoch_start": on_epoch_start, "train_step": train_step, "on_epoch_end": on_epoch_end},
            callback_kwargs or {},
        )
        self.accelerator = (
            accelerator
            or Accelerator(
                cpu=not torch.accelerator.is_available(),  # without it, two processes on a machine without GPU do not find each other
                mixed_precision=recipe.train.precision,
                log_with=list(recipe.runtime.trackers) or None,
                project_dir=str(run / "live"),
                # two forwards of a discriminator before one backward: its statistics may not be overwritten between them
                kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
            )
        )
        torch.use_deterministic_algorithms(True, warn_only=self.accelerator.device.type != "cpu")
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs 2 % of a step
        self._validation: Iterator[Any] = iter(())
        self._said: int | None = None  # the iteration in which `on_epoch_start` printed last
        self._build()

    # hooks

    def on_epoch_start(self, epoch: int, print_train_start: bool = True) -> None:
        """Called before the first batch of an epoch; prints the effective weight of every loss.

        Where epochs are shorter than `runtime.log_every` iterations, it prints no oftener than that.
        """
        if print_train_start and (self._said is None or self.iteration - self._said >= self.recipe.runtime.log_every):
            self._said = self.iteration
            self.reporter.say(weights_line(epoch, self.loss_weights()))

    def train_step(self, batch: dict[str, Any], index: int) -> dict[str, StepReport]:
        """Take one iteration on a batch, `index` within its epoch; return what each step reports."""
        return self.train_op(batch)

    def on_epoch_end(self, epoch: int) -> None:
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

    def optimize(self, step: str, losses: Mapping[str, Tensor]) -> StepReport:
        """Update the networks of a step on raw losses that a hand-written `train_step` computed, by their names.

        Their weights and schedules, the optimizer, its learning rate and clipping are the step's; gradients reach only
        what it trains. Raises UserError for an unknown step, an unknown loss, or a missing one.
        """
        if step not in self.steps:
            raise UserError(f"no step {step!r}; there are {', '.join(self.steps)}")
        return self.steps[step].optimize(losses, self.iteration, self.accelerator)

    def loss_weights(self, *query: str) -> dict[str, float]:
        """Return the effective weight, now, of the losses that have one of these names or steps; without any, of all."""
        losses = {name: loss for step in self.steps.values() for name, loss in step.losses.items()}
        return {name: losses[name].effective_weight(self.iteration) for name in self.book.select(*query)}

    def log_op(self, batch: dict[str, Any]) -> tuple[State, dict[str, float]]:
        """Look at a batch without updating: the state after all steps, and the mean of each loss and their total."""
        state, values = self._observed(batch)
        return state, mean_losses(values, self.loss_weights())

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
        self.book.start(self.iteration)
        self.reporter = Reporter(
            self.accelerator, self.recipe.runtime, self.run / "live",
            first=self.iteration, last=self.last, batch=self.recipe.data.batch_size,
        )  # fmt: skip
        process = process_record()
        self.reporter.record({"process": process, "batches_per_epoch": self.batches_per_epoch})
        for warning in [*late_schedules(self.recipe, self.last), *self._unstable(), *dirty(process)]:
            self.reporter.say(f"warning: {warning}")
        try:
            self._loop()
            self._write()
        finally:
            self.book.flush()
            self.reporter.close()
        self.resume_points.clear()

    def _loop(self) -> None:
        batches = iter(self.loaders.train(self.iteration))
        while self.iteration < self.last:
            epoch, index = divmod(self.iteration, self.batches_per_epoch)
            if index == 0:
                self.hooks("on_epoch_start", {"epoch": epoch})
            with self.stopwatch("data"):
                batch = to_device(next(batches), self.accelerator.device)
            self.iterate(batch, index)
            if index == self.batches_per_epoch - 1:
                self.hooks("on_epoch_end", {"epoch": epoch})
            if self.recipe.runtime.keep_every and self._due(self.recipe.runtime.keep_every):
                self._keep()  # before the resume point: who goes on from there does not pass here again
            if self._due(self.recipe.runtime.checkpoint_every) and self.iteration < self.last:
                self._save_resume_point()

    def iterate(self, batch: dict[str, Any], index: int) -> None:
        """Take one iteration on a batch, `index` within its epoch: the hook, the records, what is due."""
        seed_here(self.recipe.seed, "iteration", self.iteration, self.accelerator.process_index)
        reports = self.hooks("train_step", batch | {"batch": batch, "index": index}) or {}
        self.iteration += 1
        self._after(reports)

    def _after(self, reports: dict[str, StepReport]) -> None:
        for name, report in reports.items():
            for network in self.recipe.steps[name].trains:
                if isinstance(average := self.averages.get(network), AveragedModel) and not report.skipped:
                    average.update_parameters(self.accelerator.unwrap_model(self.networks.live[network]))
        self._guard(reports)
        self.history.add(self.iteration, reports, last=self.iteration == self.last)
        self.book.add(self.iteration, reports)
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
        self.book.flush()
        scalars: dict[str, float] = {}
        for name, report in reports.items():
            scalars |= {f"train.{loss}": value.item() for loss, value in report.raw.items()}
            scalars |= {f"weight.{loss}": weight for loss, weight in report.weights.items()}
            if report.raw:
                scalars[f"lr.{name}"] = report.learning_rate
        scalars["train.total"] = sum(
            r.weights[name] * value.item()
            for r in reports.values()
            for name, value in r.raw.items()
            if loss_of(name) == name
        )
        seed_here(self.recipe.seed, "log", self.iteration)
        _, losses = self.log_op(self._validation_batch())
        scalars |= {f"validation.{loss}": value for loss, value in losses.items()}
        self.reporter.log(self.iteration, scalars, self.stopwatch.take())

    def _validation_batch(self) -> dict[str, Any]:
        """Return the next batch of the validation split, beginning again at its end."""
        batch = next(self._validation, None)
        if batch is None:
            self._validation = iter(self.loaders.validation(workers=0))
            batch = next(self._validation)
        return dict(to_device(batch, self.accelerator.device))

    def _evaluate(self) -> None:
        """Run `eval_op` over the sorted validation split; one row of history, one sheet of samples."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for place, batch in enumerate(self.loaders.validation(self.recipe.runtime.workers)):
            seed_here(self.recipe.seed, "evaluation", place)
            values = self.eval_op(to_device(batch, self.accelerator.device))
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value.double().sum().item()
                counts[name] = counts.get(name, 0) + len(value)
        row: Row = {"step": self.iteration, **{f"{name}.raw": total / counts[name] for name, total in sums.items()}}
        self.history.validation.append(row)
        self.reporter.track(self.iteration, row, "validation")
        if samples := self.recipe.runtime.samples:
            seed_here(self.recipe.seed, "samples")
            batch = next(iter(self.loaders.validation(0, size=samples.count)))
            state, _ = self.log_op(to_device(batch, self.accelerator.device))
            self.reporter.samples(self.iteration, {name: state[name] for name in samples.names})

    def _unstable(self) -> list[str]:
        """Say which steps break the rule lr x clip_value <= sqrt(eps) of batch norm: one update may upset it."""
        found = []
        for name, step in self.steps.items():
            norms = [
                m.eps
                for n in step.trains.values()
                for m in n.modules()
                if isinstance(m, nn.modules.batchnorm._BatchNorm)
            ]
            if step.clip_value is not None and norms and max(step.rates) * step.clip_value > min(norms) ** 0.5:
                found.append(
                    f"steps.{name}: learning rate {max(step.rates):g} x clip_value {step.clip_value:g} = "
                    f"{max(step.rates) * step.clip_value:g} is above sqrt(eps) = {min(norms) ** 0.5:g} of its batch norm"
                )
        return found

    # construction, resume, outputs

    def _build(self) -> None:
        recipe, accelerator = self.recipe, self.accelerator
        self.loaders = Loaders(
            recipe, build_datasets(recipe, "train"), build_datasets(recipe, "validation"),
            process=accelerator.process_index, processes=accelerator.num_processes,
            pin=accelerator.device.type == "cuda",
        )  # fmt: skip
        networks = build_networks(recipe)
        load_start(networks, recipe)
        for name in networks.keys() - {trained for step in recipe.steps.values() for trained in step.trains}:
            networks[name].eval().requires_grad_(False)  # loaded and kept as it is, running statistics included
        live = {name: accelerator.prepare_model(network) for name, network in networks.items()}
        self.averages = {name: self._average(network) for name, network in networks.items()}
        evaluated = {n: a.module if isinstance(a, AveragedModel) else networks[n] for n, a in self.averages.items()}
        self.networks = Networks(live, evaluated)
        self.steps = build_steps(recipe, live, accelerator)
        self.stopwatch = Stopwatch(recipe.runtime.timing)
        self.history = History(recipe.train.record_every)
        tags = {loss: name for name, step in self.steps.items() for loss in step.losses}
        self.book = Book(self.run / "live" / "losses.csv" if accelerator.is_main_process else None, tags)
        self.nonfinite: dict[str, int] = {}
        self.iteration = 0
        self.batches_per_epoch = self.loaders.batches_per_epoch
        self.last = recipe.train.steps or (recipe.train.epochs or 0) * self.batches_per_epoch
        roots = [
            e.arguments["root"]
            for s in (recipe.data.train, recipe.data.validation)
            for e in s.values()
            if "root" in e.arguments
        ]
        self.made_by = {
            "recipe": resolved(recipe), "code": code_version(), "packages": str(package_versions()),
            "data": data_version(roots), "start": file_versions(recipe.starts_from().values()), "processes": str(accelerator.num_processes),
        }  # fmt: skip
        self.resume_points = ResumePoints(self.run / "resume", self.made_by)
        self.kept = Snapshots(self.run / "checkpoints")
        self.restorable = Restorable(
            networks={name: accelerator.unwrap_model(network) for name, network in live.items()},
            averages={name: average for name, average in self.averages.items() if average is not None},
            optimizers={name: step.optimizer for name, step in self.steps.items()},
            scaler=accelerator.scaler, history=self.history, nonfinite=self.nonfinite,
        )  # fmt: skip

    def _average(self, network: nn.Module) -> AveragedModel | None:
        if self.recipe.train.ema is None:
            return None
        return AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(self.recipe.train.ema.decay), use_buffers=False)

    def _save_resume_point(self) -> None:
        self.book.flush()
        if self.accelerator.is_main_process:
            self.resume_points.save(self.iteration, self.restorable.state_dict())
        self.accelerator.wait_for_everyone()

    def _keep(self) -> None:
        if self.accelerator.is_main_process:
            self.kept.save(
                self.iteration, lambda folder: write_model(folder, self.networks.ema, self.recipe, self.made_by)
            )
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        found = self.resume_points.load()
        if isinstance(found, str):
            self.accelerator.print(f"not resumed, training starts afresh: {found}")
            self.resume_points.clear()
        elif found is not None:
            self.iteration, state = found
            self.restorable.load_state_dict(state)
            self.accelerator.print(f"resumed after iteration {self.iteration}")
        if self.accelerator.is_main_process and self.iteration > 0:
            self.kept.tidy()
        elif self.accelerator.is_main_process:
            self.kept.clear()  # of another recipe, or of a training that ended

    def _write(self) -> None:
        """Write the outputs that DVC tracks: weights (averaged where they are), the resolved recipe, what made them."""
        if self.accelerator.is_main_process:
            write_model(self.run / "model", self.networks.ema, self.recipe, self.made_by)
            self.history.write(self.run / "history")
        self.accelerator.wait_for_everyone()
