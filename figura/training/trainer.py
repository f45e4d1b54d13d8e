"""The training loop: `fit` -> `_loop` -> `iterate` -> `train_step` -> `train_op` -> `Step.update` (engine/step.py)."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate.utils import gather_object
from torch import Tensor

from figura.base.distributed import sharded
from figura.base.error_collector import ErrorCollector
from figura.base.errors import REPRO, Interrupted, UserError, nearest
from figura.base.lock import hold
from figura.base.modes import evaluating, unchanged
from figura.base.seeding import derive, random_kept, seed_here
from figura.engine.build import assemble, broadcast_, build_callbacks, build_loaders, make_accelerator
from figura.engine.rank_invariant_rng import rank_invariant_noise
from figura.engine.signals import StopRequest
from figura.engine.step import Stopwatch
from figura.engine.weights import to_device
from figura.interfaces import Callback, Listener, Networks, Row, State, StepReport, batch_size, cuts, split_batch
from figura.recipe.resolved import settings
from figura.recipe.schema import Recipe
from figura.recipe.trial import KEY, mark, scratch
from figura.recipe.types import batch_names
from figura.training.best import BestWeights, early_end
from figura.training.loss_log import LossLog, mean_losses
from figura.training.process_record import dirty, process_record
from figura.training.provenance import provenance
from figura.training.reporter import Reporter, check_trackers, live_scalars, weights_line
from figura.training.resume import TrainState
from figura.training.run_folder import RunFolder
from figura.training.sanity_check import depends_on_ranks, sanity_check
from figura.training.state_store import SharedState, StateStore
from figura.training.states import machine, share_states
from figura.training.validation import Validation
from figura.training.warnings import warnings


class Trainer:
    """Trains a recipe. Override hooks and operations, or pass functions as hooks.

    Hooks: `on_epoch_start`, `train_step`, `on_epoch_end`. Values are passed by parameter name: `epoch` (from 0); for
    `train_step`, `batch` (the whole batch), `index` (of the batch in its epoch) and any name in the batch, so `def
    train_step(trainer, x, y, index)` works on image pairs. A function gets the trainer as first argument, and the
    keywords in `hook_kwargs[name of the hook]`. `train_step` calls `train_op` or `optimize` and returns the report of
    each step.

    Operations: `train_op` updates on a training batch, `log_op` computes states and losses of a batch without updating,
    `eval_op` returns every loss of every example of a validation batch.

    Args:
        recipe: a checked recipe.
        run: run folder. Training writes `model/`, `history/` and `live/`, `resume/` while it runs, and `checkpoints/`
            with `runtime.checkpoint_every`.
        callbacks: callbacks by name, in addition to the recipe's; they may change the result.
        listeners: observers that change nothing.
        resume_anyway: resume from the furthest state even if its recipe, code, packages or data differ.
    """

    def __init__(
        self,
        recipe: Recipe,
        run: Path,
        *,
        on_epoch_start: Callable[..., None] | None = None,
        train_step: Callable[..., dict[str, StepReport]] | None = None,
        on_epoch_end: Callable[..., None] | None = None,
        hook_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
        callbacks: Mapping[str, Callback] | None = None,
        listeners: Sequence[Listener] = (),
        resume_anyway: bool = False,
    ) -> None:
        for point in ("before_step", "before_update", "after_update", "on_evaluation"):
            if hasattr(self, point):  # of an earlier version: it would no longer be called
                raise UserError(f"{type(self).__name__}.{point}: write a Callback with it; `Trainer(callbacks=...)`")
        self.recipe, self.run, self.listeners, self.resume_anyway = recipe, run, listeners, resume_anyway
        self.scratch = scratch(run, recipe)  # parent of live/, resume/, checkpoints/
        hooks = {"on_epoch_start": on_epoch_start, "train_step": train_step, "on_epoch_end": on_epoch_end}
        self._wrap_hooks(hooks, hook_kwargs or {})
        check_trackers(recipe)
        self.accelerator = make_accelerator(recipe, self.scratch)
        torch.use_deterministic_algorithms(True, warn_only=self.accelerator.device.type != "cpu")
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs 2 % of a step
        self.loaders = build_loaders(recipe, self.accelerator)
        self.callbacks = build_callbacks(recipe, callbacks or {})
        self.networks, self.averages, plain, self.steps = assemble(recipe, self.accelerator)
        self.validation = Validation(recipe, self.loaders, self.accelerator.device)
        self.batches_per_epoch = self.loaders.batches_per_epoch
        self.last = recipe.train.iterations(self.batches_per_epoch)
        self.evaluate_every = recipe.train.evaluation_interval(self.batches_per_epoch)
        tags = {loss: name for name, step in self.steps.items() for loss in step.losses}
        log_file = self.scratch / "live" / "losses.csv" if self.accelerator.is_main_process else None
        self.loss_log = LossLog(log_file, tags, recipe.train.record_every)
        modules = [type(self).__module__, *(hook.__module__ for hook in hooks.values() if hasattr(hook, "__module__"))]
        self.provenance = provenance(recipe, modules)
        self.state = TrainState(
            networks=plain, averages=self.averages, optimizers={n: step.optimizer for n, step in self.steps.items()},
            scalers={name: step.scaler for name, step in self.steps.items() if step.scaler is not None},
            injectors={n: {key: one.injector for key, one in s.injectors.items()} for n, s in self.steps.items()},
            loss_log=self.loss_log, callbacks=self.callbacks, machine=machine(self.accelerator),
            best=BestWeights(recipe.train, self.networks.ema, self.loss_log),
        )  # fmt: skip
        self.folder = RunFolder(run, recipe, self.accelerator, self.networks, self.state, self.provenance)
        own_code = type(self) is not Trainer or any(hooks.values()) or bool(callbacks)
        self.sharing = share_states(
            self.folder, self.callbacks, StateStore.of_project(), evaluate_every=self.evaluate_every, last=self.last,
            own_code=own_code or resume_anyway,
        )  # fmt: skip
        self.stopwatch, self.stop_request = Stopwatch(recipe.runtime.timing), StopRequest()
        self.iteration = 0
        self.batch: dict[str, Any] = {}  # of the last iteration, this rank's shard
        self._printed: int | None = None  # the last iteration in which `on_epoch_start` printed

    def _wrap_hooks(
        self, functions: Mapping[str, Callable[..., Any] | None], keywords: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Wrap each hook (method or passed function) as a function of all values that it may take."""
        for name in keywords.keys() - functions.keys():
            known = ", ".join(functions)
            raise UserError(f"hook_kwargs: unknown hook {name!r}{nearest(name, functions)}; there are {known}")
        bound = {name: partial(function, self) for name, function in functions.items() if function is not None}
        epoch, batch = ["epoch"], ["batch", "index", *batch_names(self.recipe.data.train)]
        start, step, end = (
            _by_parameter_names(bound.get(name, method), offered, keywords.get(name, {}))
            for name, method, offered in (
                ("on_epoch_start", self.on_epoch_start, epoch),
                ("train_step", self.train_step, batch),
                ("on_epoch_end", self.on_epoch_end, epoch),
            )
        )
        self._on_epoch_start, self._train_step, self._on_epoch_end = start, step, end

    # hooks

    def on_epoch_start(self, epoch: int, print_train_start: bool = True) -> None:
        """Called before the first batch of an epoch; prints the effective weight of every loss.

        Prints at most every `runtime.log_every` iterations, even if epochs are shorter.
        """
        often = self._printed is not None and self.iteration - self._printed < self.recipe.runtime.log_every
        if print_train_start and not often:
            self._printed = self.iteration
            self.reporter.say(weights_line(epoch, self.loss_weights()))

    def train_step(self, batch: dict[str, Any], index: int) -> dict[str, StepReport]:
        """Run one iteration on a batch, `index` within its epoch; return the report of each step."""
        return self.train_op(batch)

    def on_epoch_end(self, epoch: int) -> None:
        """Called after the last batch of an epoch."""

    def _call_back(self, point: str, *arguments: Any) -> None:
        """Call a method of all callbacks, such as `before_step`."""
        for callback in self.callbacks.values():
            getattr(callback, point)(self, *arguments)

    # the loop

    def fit(self) -> None:
        """Train to the end, resuming a killed run if possible; then write the outputs.

        Raises:
            UserError: the folder is in use, something cannot be written, or updates or weights are not finite.
        """
        with hold(self.run) if self.accelerator.is_main_process else nullcontext():
            self._fit()

    def _fit(self) -> None:
        if self.folder.take_finished():
            self.folder.remove_resume_points()  # left by a kill
            self.iteration = self.last
            self.accelerator.end_training()
            return
        self.iteration = self.folder.resume(self.resume_anyway)
        if self.iteration == 0 or depends_on_ranks(self.steps):
            self._sanity_check()
        shared = self.sharing.begin(self.iteration) if self.sharing else None
        self.iteration = self.iteration if shared is None else shared.iteration
        first = self.iteration
        self._start_reporting(shared)
        self._end_early()
        agreed = self.accelerator.num_processes == 1
        try:
            if self.iteration < self.last:
                self._loop()
            if self.sharing and self.iteration > first:
                self.sharing.give(self.iteration, self.reporter.say)
            self.loss_log.end_window()
            self.folder.write_outputs(self.iteration)
            agreed = True
        except Interrupted:
            agreed = True
            raise
        finally:
            if agreed:  # if only this rank failed, a GPU may wait for the others forever
                self.loss_log.flush()
            self.reporter.close(agreed)
        self.folder.finish()

    def _loop(self) -> None:
        batches = iter(self.loaders.train(self.iteration))
        while self.iteration < self.last:
            if self.stop_request.agreed(self.accelerator):
                self._stop()
            epoch, index = divmod(self.iteration, self.batches_per_epoch)
            if index == 0:
                self._on_epoch_start({"epoch": epoch})
            with self.stopwatch("data"):
                batch = to_device(next(batches), self.accelerator.device)
            self.iterate(batch, index)
            if index == self.batches_per_epoch - 1:
                self._on_epoch_end({"epoch": epoch})
            self._save()

    def iterate(self, batch: dict[str, Any], index: int) -> None:
        """Run and record one iteration on a batch, `index` in its epoch."""
        reports = self.run_steps(batch, index)
        self.batch = batch
        self.iteration += 1
        self.update_averages(reports)
        self.loss_log.add(self.iteration, reports)
        _note_nonfinite(self.state.nonfinite, self.iteration, reports)
        self._refuse_to_go_on()
        self.reporter.advance()
        if self._due(self.recipe.runtime.log_every):
            self._log()
        evaluated = self._due(self.evaluate_every)
        if evaluated:
            self._evaluate()
        for listener in self.listeners:
            with random_kept():
                listener.on_iteration(self, evaluated)

    def _refuse_to_go_on(self) -> None:
        """Raise UserError if `train.max_nonfinite` updates of a step in a row were not finite."""
        for name, iterations in self.state.nonfinite.items():
            if len(iterations) >= self.recipe.train.max_nonfinite:
                (what_broke, *_) = gather_object([self.folder.what_broke()])  # the first rank has the losses
                raise UserError(
                    f"step {name!r}: {len(iterations)} updates in a row were not finite (train.max_nonfinite), "
                    f"the last in iteration {self.iteration}. {what_broke}"
                )

    def run_steps(self, batch: dict[str, Any], index: int) -> dict[str, StepReport]:
        """Run the callbacks and all steps of one iteration on a batch, `index` in its epoch; record nothing."""
        self._call_back("before_iteration")
        with self._shard_of_batch(batch):
            return self._train_step(batch | {"batch": batch, "index": index}) or {}

    def _due(self, every: int) -> bool:
        return self.iteration % every == 0 or self.iteration == self.last

    @contextmanager
    def _shard_of_batch(self, batch: Mapping[str, Any]) -> Iterator[None]:
        """Context in which this rank's batch is a shard, and noise is drawn for the global batch."""
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        seed, words = self.recipe.seed, ("iteration", self.iteration, 0)
        seed_here(seed, *words)
        if ranks == 1:
            yield
            return
        counts = {self.recipe.parts(name) for name, step in self.steps.items() if step.gate.open(self.iteration)} or {1}
        sizes = {stop - start for count in counts for start, stop in cuts(batch_size(batch), count)}
        torch.manual_seed(derive(seed, *words, rank))  # for draws that are not rank-invariant
        with sharded(rank, ranks), rank_invariant_noise(derive(seed, *words), sizes):
            yield

    # operations

    def train_op(self, batch: dict[str, Any]) -> dict[str, StepReport]:
        """Run and update every step whose gate is open; steps with equal accumulation share a state."""
        states: dict[int, list[tuple[State, float]]] = {}
        reports = {}
        for name, step in self.steps.items():
            count = self.recipe.parts(name)
            if count not in states:
                states[count] = [(State(part), fraction) for part, fraction in split_batch(batch, count)]
            if step.runs(states[count][0][0], self.iteration, training=True):
                self._call_back("before_step", name)
                reports[name] = step.update(
                    states[count], self.networks, self.iteration, self.accelerator, self.stopwatch,
                    partial(self._call_back, "before_update", name),
                )  # fmt: skip
                if reports[name].raw:
                    self._call_back("after_update", name, reports[name])
        return reports

    def optimize(self, step: str, losses: Mapping[str, Tensor]) -> StepReport:
        """Update the networks of a step on raw losses, by name, computed in a hand-written `train_step`.

        Weights, schedules, optimizer, learning rate and clipping are those of the step; only the networks it trains get
        gradients. Raises UserError for an unknown step, or an unknown or missing loss.
        """
        if step not in self.steps:
            raise UserError(f"no step {step!r}; there are {', '.join(self.steps)}")
        self._call_back("before_step", step)
        before_update = partial(self._call_back, "before_update", step)
        report = self.steps[step].optimize(losses, self.iteration, self.accelerator, before_update)
        self._call_back("after_update", step, report)
        return report

    def log_op(self, batch: dict[str, Any]) -> tuple[State, dict[str, float]]:
        """Return the state after all steps, the mean of each loss, and their total, without updating."""
        state, values = self._observe(batch)
        return state, mean_losses(values, self.loss_weights())

    def eval_op(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return every loss of every example of a validation batch, each of shape (batch,)."""
        return self._observe(batch)[1]

    def loss_weights(self, *query: str) -> dict[str, float]:
        """Return the current effective weight of the losses that match a name or step; by default, of all."""
        losses = {name: loss for step in self.steps.values() for name, loss in step.losses.items()}
        return {name: losses[name].effective_weight(self.iteration) for name in self.loss_log.select(*query)}

    def update_averages(self, reports: Mapping[str, StepReport]) -> None:
        """Update the moving averages of networks that took a step."""
        updated = [name for name, report in reports.items() if report.raw and not report.skipped]  # else no update
        for network in dict.fromkeys(one for name in updated for one in self.recipe.steps[name].trains):
            if network in self.averages:  # once an iteration, though several steps train it
                live = self.accelerator.unwrap_model(self.networks.live[network])
                self.averages[network].update_parameters(live)

    def _observe(self, batch: dict[str, Any]) -> tuple[State, dict[str, Tensor]]:
        state, values = State(batch), dict[str, Tensor]()
        with evaluating(*self.networks.live.values(), *self.networks.ema.values()):
            networks = Networks(self.networks.ema, self.networks.ema)
            for step in self.steps.values():
                if step.runs(state, self.iteration, training=False):
                    with self.accelerator.autocast():
                        values |= step.observe(state, networks, self.iteration)
        return state, values

    # logging and validation

    def _start_reporting(self, shared: SharedState | None) -> None:
        if shared is None:
            self.loss_log.start(self.iteration)
        self.reporter = Reporter(self.accelerator, self.recipe, self.run, first=self.iteration, last=self.last)
        for listener in self.listeners:
            with random_kept():
                listener.on_start(self)
        process = process_record()
        sizes = {
            "processes": self.accelerator.num_processes, "threads": torch.get_num_threads(),
            "batches_per_epoch": self.batches_per_epoch,
        }  # fmt: skip
        trial = {KEY: mark(self.recipe)} if self.recipe.train.try_ else {}
        begun = {} if shared is None else {"shared_state": shared.folder.name, "maker": shared.maker}
        self.reporter.record({**trial, **begun, "process": process, "code": self.provenance["code"], **sizes})
        for warning in [*warnings(self.recipe, self.steps, self.last), *dirty(process)]:
            self.reporter.say(f"warning: {warning}")
        if shared is not None:
            self._take_over(shared)

    def _take_over(self, shared: SharedState) -> None:
        """Say whose iterations are used, and write their logs; evaluate, as another recipe may evaluate otherwise."""
        self.reporter.say(f"{shared.iteration:,} of {self.last:,} iterations {shared.described(settings(self.recipe))}")
        self.loss_log.begin_with(shared.iteration)
        self.reporter.replay(self.loss_log.train, self.loss_log.validation)
        if self._due(self.evaluate_every):
            self._evaluate()

    def _log(self) -> None:
        self.loss_log.flush()
        seed_here(self.recipe.seed, "log", self.iteration)
        _, losses = self.log_op(self.validation.next_batch())
        validation = {f"validation.{loss}": value for loss, value in losses.items()}
        self.reporter.log(self.iteration, live_scalars(self.loss_log.latest) | validation, self.stopwatch.take())

    def _evaluate(self) -> None:
        """Run `eval_op` over the sorted validation split; add one row to the history."""
        self._equalise_buffers()
        means = self.validation.means(self.eval_op)
        row: Row = {"step": self.iteration, **{f"{name}.raw": mean for name, mean in means.items()}}
        for name, callback in self.callbacks.items():
            row |= {f"{name}.{key}": value for key, value in (callback.on_evaluation(self, row) or {}).items()}
        self.loss_log.validation.append(row)
        self.reporter.track(self.iteration, row, "validation")
        self.state.best.add(row)
        self._end_early()

    def _end_early(self) -> None:
        """Make this iteration the last one if `train.stop` says so."""
        if early_end(self.recipe.train, self.loss_log.validation) is not None and self.iteration < self.last:
            self.reporter.say(f"train.stop: ends after iteration {self.iteration} of {self.last}")
            self.last = self.iteration

    def _sanity_check(self) -> None:
        errors = ErrorCollector(self.recipe.path)
        networks = {name: self.accelerator.unwrap_model(network) for name, network in self.networks.live.items()}
        with unchanged(*networks.values()):  # whatever the check does (`figura.pipeline.relevance`)
            sanity_check(self.recipe, networks, self.loaders.train_data, self.loaders.validation_data, errors)
        errors.raise_any()

    def _equalise_buffers(self) -> None:
        """Broadcast rank 0's running statistics, the saved ones; ranks differ without `train.sync_batch_norm`."""
        if self.accelerator.num_processes > 1 and not self.recipe.train.sync_batch_norm:
            networks = [*map(self.accelerator.unwrap_model, self.networks.live.values()), *self.networks.ema.values()]
            broadcast_(buffer for network in networks for buffer in network.buffers())

    # saving, stopping

    def _save(self) -> None:
        runtime = self.recipe.runtime
        if runtime.checkpoint_every and self._due(runtime.checkpoint_every):
            self.folder.write_checkpoint(self.iteration)  # first, since a resumed run does not revisit this iteration
        if self.iteration == self.last:
            return
        if self.iteration % runtime.resume_every == 0 or (self.sharing and self.sharing.is_due(self.iteration)):
            self.folder.write_resume_point(self.iteration)
            if self.sharing:
                self.sharing.give(self.iteration, self.reporter.say)

    def _stop(self) -> NoReturn:
        """Stop on request, with a resume point after the last iteration."""
        if self.iteration != self.folder.resumable:
            self.folder.write_resume_point(self.iteration)
        raise Interrupted(
            f"{self.stop_request.asked_by}; stopped after iteration {self.iteration} of {self.last}, where the next "
            f"`{REPRO}` goes on"
        )


def _by_parameter_names(
    hook: Callable[..., Any], offered: Sequence[str], keywords: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function of all `offered` values that calls `hook` with `keywords` and those it has parameters for."""
    signature = inspect.signature(hook)
    wanted = [key for key in offered if key in signature.parameters and key not in keywords]
    signature.bind(**dict.fromkeys(wanted), **keywords)  # a TypeError now, not after an epoch
    return lambda values: hook(**{key: values[key] for key in wanted}, **keywords)


def _note_nonfinite(rows: dict[str, list[int]], iteration: int, reports: Mapping[str, StepReport]) -> None:
    """Note the iterations of the last updates in a row that were not finite, by step; overflows in fp16 are left out.

    An iteration without losses is no update, so it does not end a row.
    """
    for name, report in reports.items():
        if report.raw and not report.overflowed:
            if report.skipped:
                rows.setdefault(name, []).append(iteration)
            else:
                rows.pop(name, None)
