"""The training loop: batches through steps, records, evaluations, resume points."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from models.engine.callbacks import Callback
from models.engine.errors import Interrupted, UserError
from models.engine.problems import Problems
from models.engine.recipes.advice import warnings
from models.engine.recipes.assemble import build_callbacks
from models.engine.recipes.recipe import batch_names
from models.engine.recipes.schema import Recipe
from models.engine.seeding import seed_here
from models.engine.training.book import weights_line
from models.engine.training.building import build_loaders, made_by, make_accelerator
from models.engine.training.checkpoint import to_device, write_model
from models.engine.training.history import History, Row
from models.engine.training.hooks import Hooks
from models.engine.training.interruption import Interruption
from models.engine.training.iteration import Iteration
from models.engine.training.memory import while_memory_lasts
from models.engine.training.online import OnlineScores
from models.engine.training.provenance import dirty, process_record
from models.engine.training.recovery import Recovery
from models.engine.training.rehearsal import rehearse
from models.engine.training.reporting import Reporter, last_values
from models.engine.training.resume import ResumePoints
from models.engine.training.snapshots import Snapshots
from models.engine.training.steps import StepReport
from models.engine.training.validation import Validation


class Trainer(Iteration):
    """Trains what a recipe declares; override a hook or an operation, or pass callables for the hooks.

    Hooks: `on_epoch_start`, `train_step`, `on_epoch_end`. Each gets what it asks for by the names of its parameters:
    `epoch` (0 is the first); for `train_step`, `batch` (all names of it), `index` (of the batch in its epoch) and any name
    of the batch, so that `def train_step(trainer, x, y, index)` works on image pairs. A callable gets the trainer first,
    and from `callback_kwargs` the keywords under its name. `train_step` returns the report of each step it took; it may
    take them by `train_op` or by `optimize`.

    Fixed points of an iteration: `before_step`, `before_update`, `after_update`, `on_evaluation`, as in
    `callbacks.Callback`, which is called after the method of the trainer.

    Operations: `train_op` updates on a training batch, `log_op` looks at a batch without updating, `eval_op` gives every
    loss of every instance of a validation batch.

    Args:
        recipe: what to train.
        run: folder of the run; gets `model/`, `history/` and `live/`, `resume/` while it trains, and `checkpoints/` where
            `runtime.keep_every` asks for it.
        accelerator: one with the recipe's precision is made when left out.
        callbacks: further ones, by name, beside those of the recipe.
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
        callbacks: Mapping[str, Callback] | None = None,
    ) -> None:
        self.recipe, self.run = recipe, run
        names = batch_names(recipe.data.train)
        self.hooks = Hooks(
            self,
            {"on_epoch_start": ["epoch"], "train_step": ["batch", "index", *names], "on_epoch_end": ["epoch"]},
            {"on_epoch_start": on_epoch_start, "train_step": train_step, "on_epoch_end": on_epoch_end},
            callback_kwargs or {},
        )
        accelerator = accelerator or make_accelerator(recipe, run)
        torch.use_deterministic_algorithms(True, warn_only=accelerator.device.type != "cpu")
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs 2 % of a step
        self.loaders = build_loaders(recipe, accelerator)
        super().__init__(recipe, run, accelerator, build_callbacks(recipe, callbacks or {}))
        self.scores: OnlineScores | None = None
        self._why_back: str | None = None  # what makes training go back, where something does
        self.interruption = Interruption()
        self._resumable = 0  # the iteration of the last resume point
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

    # the loop

    def fit(self) -> None:
        """Train to the end, from where a killed run of the same recipe, data and code stopped; then write the outputs."""
        self._resume()
        if self.iteration == 0:
            self._rehearse()
        self.book.start(self.iteration)
        self.reporter = Reporter(
            self.accelerator, self.recipe.runtime, self.run / "live",
            first=self.iteration, last=self.last, batch=self.recipe.data.batch_size,
        )  # fmt: skip
        if self.recipe.runtime.scores:
            self.scores = OnlineScores(
                self.recipe, self.networks.ema, self.loaders.validation_data, self.run / "live", self.accelerator,
                self.reporter, done=self.iteration,
            )  # fmt: skip
        process = process_record()
        sizes = {"processes": self.accelerator.num_processes, "batches_per_epoch": self.batches_per_epoch}
        self.reporter.record({"process": process, **sizes})
        for warning in [*warnings(self.recipe, self.steps, self.last), *dirty(process)]:
            self.reporter.say(f"warning: {warning}")
        agreed = self.accelerator.num_processes == 1
        try:
            while_memory_lasts(self._loop, self._cut_finer if self.recipe.train.find_batch_size else None)
            self._write()
            agreed = True
        except Interrupted:
            agreed = True
            raise
        finally:
            if agreed:  # where this process fails alone, a GPU may wait for the others for ever
                self.book.flush()
            self.reporter.close(agreed)
        self.recovery.points.clear()

    def _rehearse(self) -> None:
        problems = Problems(self.run / "recipe")
        networks = {name: self.accelerator.unwrap_model(network) for name, network in self.networks.live.items()}
        rehearse(self.recipe, networks, self.loaders.train_data, self.loaders.validation_data, problems)
        problems.raise_any()

    def _loop(self) -> None:
        batches = self._batches()
        while self.iteration < self.last:
            if self.interruption.agreed(self.accelerator):
                self._stop()
            epoch, index = divmod(self.iteration, self.batches_per_epoch)
            if index == 0:
                self.hooks("on_epoch_start", {"epoch": epoch})
            with self.stopwatch("data"):
                batch = to_device(next(batches), self.accelerator.device)
            self.iterate(batch, index)
            if self._why_back:
                self._went_back(*self.recovery.go_on_slower(self._why_back))
                batches = self._batches()
                continue
            if index == self.batches_per_epoch - 1:
                self.hooks("on_epoch_end", {"epoch": epoch})
            self._save()

    def _batches(self) -> Iterator[Any]:
        return iter(self.loaders.train(self.iteration, self.recovery.seed(self.recipe.seed)))

    def _cut_finer(self, error: RuntimeError) -> None:
        """Go back after memory ran out, to smaller parts of a batch (`train.find_batch_size`)."""
        if self.accelerator.num_processes > 1:
            raise UserError(f"train.find_batch_size: one process cannot tell the others; use one process ({error})")
        parts = min(map(self.recipe.parts, self.steps))
        self._went_back(*self.recovery.go_on_finer(error, self.iteration, self.recipe.data.batch_size, parts))

    def _went_back(self, iteration: int, why: str) -> None:
        self.iteration = iteration
        self._settle()
        self.book.flush()
        self.book.start(self.iteration)
        self.reporter.go_back(self.iteration)
        self.reporter.say(f"warning: {why}")
        self.reporter.record({"step": self.iteration, "warning": why})

    def _settle(self) -> None:
        """Make the steps follow what was restored."""
        self._why_back, self.finer = None, self.recovery.finer
        for step in self.steps.values():
            step.rate_scale = self.recovery.rate_scale
            step.optimizer.zero_grad(set_to_none=True)

    def iterate(self, batch: dict[str, Any], index: int) -> None:
        """Take one iteration on a batch, `index` within its epoch: the hook, the records, what is due."""
        with self.sharing(batch, self.recovery.seed(self.recipe.seed)):
            reports = self.hooks("train_step", batch | {"batch": batch, "index": index}) or {}
        self.iteration += 1
        self._after(reports)

    def _after(self, reports: dict[str, StepReport]) -> None:
        self.update_averages(reports)
        self._why_back = self.recovery.watch(self.iteration, reports)
        if self._why_back:
            return
        self.history.add(self.iteration, reports, self.iteration == self.last, self.recovery.times)
        self.book.add(self.iteration, reports)
        self.reporter.advance()
        if self._due(self.recipe.runtime.log_every):
            self._log(reports)
        often = self.recipe.train.evaluate_every or self.batches_per_epoch
        if self._due(often):
            self._evaluate()
        if self.scores and self._due(self.scores.every or often):
            self.scores(self.iteration)

    def _due(self, every: int) -> bool:
        return self.iteration % every == 0 or self.iteration == self.last

    def _log(self, reports: dict[str, StepReport]) -> None:
        self.book.flush()
        seed_here(self.recipe.seed, "log", self.iteration)
        _, losses = self.log_op(self.validation.next_batch())
        looked = {f"validation.{loss}": value for loss, value in losses.items()}
        self.reporter.log(self.iteration, last_values(reports) | looked, self.stopwatch.take())

    def _evaluate(self) -> None:
        """Run `eval_op` over the sorted validation split; one row of history, one sheet of samples."""
        self.equalise_buffers()
        means = self.validation.means(self.eval_op)
        row: Row = {"step": self.iteration, **{f"{name}.raw": mean for name, mean in means.items()}}
        row |= self.on_evaluation(row) or {}
        for name, callback in self.callbacks.items():
            row |= {f"{name}.{key}": value for key, value in (callback.on_evaluation(self, row) or {}).items()}
        self.history.validation.append(row)
        self.reporter.track(self.iteration, row, "validation")
        if columns := self.validation.samples(lambda batch: self.log_op(batch)[0]):
            self.reporter.samples(self.iteration, columns)

    # construction, resume, outputs

    def _build(self) -> None:
        recipe, accelerator = self.recipe, self.accelerator
        self.validation = Validation(recipe, self.loaders, accelerator.device)
        self.history = History(recipe.train.record_every)
        self.batches_per_epoch = self.loaders.batches_per_epoch
        self.last = recipe.train.steps or (recipe.train.epochs or 0) * self.batches_per_epoch
        self.made_by = made_by(recipe)
        self.kept = Snapshots(self.run / "checkpoints")
        self.recovery = Recovery(
            recipe.train, self.restorable(self.history), ResumePoints(self.run / "resume", self.made_by)
        )

    def _save(self) -> None:
        """Keep and write what is due: a state to go back to, a snapshot, a resume point."""
        runtime = self.recipe.runtime
        self.recovery.keep(self.iteration)
        if runtime.keep_every and self._due(runtime.keep_every):  # first: who resumes does not pass here again
            if self.accelerator.is_main_process:
                self.kept.save(self.iteration, self._write_model)
            self.accelerator.wait_for_everyone()
        if self._due(runtime.checkpoint_every) and self.iteration < self.last:
            self._write_resume_point()

    def _write_resume_point(self) -> None:
        self.book.flush()
        self.refuse_divergence()
        if self.accelerator.is_main_process:
            self.recovery.save(self.iteration)
        self.accelerator.wait_for_everyone()
        self._resumable = self.iteration

    def _stop(self) -> NoReturn:
        """End, as asked to, with a resume point after the last iteration."""
        if self.iteration != self._resumable:
            self._write_resume_point()
        raise Interrupted(
            f"{self.interruption.said()}; stopped after iteration {self.iteration} of {self.last}, where the next "
            "`dvc repro` goes on"
        )

    def _write_model(self, folder: Path) -> None:
        write_model(folder, self.networks.ema, self.recipe, self.made_by)

    def _resume(self) -> None:
        found = self.recovery.restore()
        everywhere = gather_object([found])  # also: nobody clears what another still reads
        if len(set(everywhere)) > 1:
            raise UserError(
                f"{self.run / 'resume'}: processes found {', '.join(map(str, everywhere))}; the folder that machines share "
                "shows them different files; run `dvc repro` again"
            )
        if isinstance(found, str):
            self._say(f"not resumed, training starts afresh: {found}")
            self.recovery.points.clear()
        elif found is not None:
            self.iteration = self._resumable = found
            self._say(f"resumed after iteration {found}")
        self._settle()
        self.recovery.keep(self.iteration)
        if self.accelerator.is_main_process and self.iteration > 0:
            self.kept.tidy()
        elif self.accelerator.is_main_process:
            self.kept.clear()  # of another recipe, or of a training that ended

    def _say(self, text: str) -> None:
        if self.accelerator.is_main_process:  # `accelerator.print` speaks once a machine
            print(text)

    def _write(self) -> None:
        """Write the outputs that DVC tracks: weights (averaged where they are), the resolved recipe, what made them."""
        self.refuse_divergence()
        if self.accelerator.is_main_process:
            self._write_model(self.run / "model")
            self.history.write(self.run / "history")
        self.accelerator.wait_for_everyone()
