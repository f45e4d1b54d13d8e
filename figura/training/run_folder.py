"""The run folder of a training: resume points, checkpoints, the model, the history."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.optim import Optimizer

from figura.base.checksums import write_sums
from figura.base.distributed import raise_on_all_ranks
from figura.base.errors import REPRO, UserError
from figura.base.files import replacing_folder
from figura.interfaces import Networks
from figura.recipe.schema import Recipe
from figura.recipe.trial import scratch
from figura.training.checkpoints import Checkpoints, write_model
from figura.training.finished import UnrecordedOutputs
from figura.training.provenance import drawn_data
from figura.training.resume import ResumePoint, ResumePoints, TrainState
from figura.training.warnings import what_broke
from figura.training.weight_checks import end_judged, refuse_different_ranks, refuse_not_finite


class RunFolder:
    """Collective: all ranks call each method; rank 0 writes after checking that all ranks have equal weights.

    Weights that are not finite are never written: the training ends. If a file cannot be written, all ranks raise
    UserError.

    Args:
        run: the run folder.
        state: written to resume points, and restored from them.
        provenance: written beside the weights.
    """

    def __init__(
        self, run: Path, recipe: Recipe, accelerator: Accelerator, networks: Networks, state: TrainState,
        provenance: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.run, self.recipe, self.accelerator, self.networks = run, recipe, accelerator, networks
        self.state, self.provenance = state, dict(provenance)
        self.points = ResumePoints(scratch(run, recipe) / "resume", self.provenance)
        self.checkpoints = Checkpoints(scratch(run, recipe) / "checkpoints")
        self.finished = UnrecordedOutputs(scratch(run, recipe) / "finished", run, provenance)
        self.resumable = 0  # the iteration of the last resume point
        self._resumed_from: Path | None = None

    def take_finished(self) -> bool:
        """Whether this training had finished before it was recorded; if so, its outputs are restored."""
        taken = False
        with self._writing(self.run):
            if self.accelerator.is_main_process and (taken := self.finished.restore()):
                self._print(
                    f"{self.run}: this training, of the same recipe, data and code, had ended before it was recorded; "
                    f"its model and history are taken. To train again: `rm -r {self.finished.folder}`, and `{REPRO}`"
                )
        return bool(gather_object([taken])[0])

    def resume(self, anyway: bool) -> int:
        """Restore the state of a resume point, if any; return its iteration, or 0.

        `anyway` selects the furthest state even if its recipe, code, packages or data differ. A damaged state is set
        aside in favour of the previous one.

        Raises:
            UserError: ranks read different files.
        """
        points = self.points
        (point, damaged), iteration = points.inspect(anyway), 0
        own = None if point is None else (point.iteration, point.differs)
        everywhere = gather_object([(own, *damaged.items())])
        if len(set(everywhere)) > 1:
            raise UserError(
                f"{points.folder}: ranks read {', '.join(map(str, everywhere))}; the folder that machines share "
                f"shows them different files; run `{REPRO}` again"
            )
        self.accelerator.wait_for_everyone()  # no rank moves a state that another is still reading
        if self.accelerator.is_main_process:
            for state, why in damaged.items():
                place = points.set_aside(state, "-damaged")
                goes_on = "the state before it is tried" if point else "training starts afresh"
                self._print(f"{state}: damaged, and not used: {why}. It is kept in {place}; {goes_on}")
        if point is not None and (anyway or not point.differs):
            iteration = self.resumable = self.restore(point)
            made = f", made by another {', '.join(point.differs)}: taken anyway" if point.differs else ""
            self._print(f"resumed after iteration {iteration}{made}")
            self._resumed_from = point.folder
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            if iteration > 0:
                self.checkpoints.tidy()
            else:
                self._begin(point)
        return iteration

    def restore(self, point: ResumePoint) -> int:
        """Load the state of a resume point; return its iteration.

        Raises:
            UserError: the state was written by a different recipe and does not match.
        """
        own = {name: _options(one) for name, one in self.state.optimizers.items()}
        try:
            self.state.load_state_dict(point.state())
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"{point.folder}: does not fit this recipe: {error}") from None
        for name, one in self.state.optimizers.items() if "recipe" in point.differs else ():
            for group, options in zip(one.param_groups, own[name], strict=True):  # the state has those of its recipe
                group |= options
        if point.differs:
            self.state.resumed = f"iteration {point.iteration}, made by another {', '.join(point.differs)}"
        return point.iteration

    def _begin(self, refused: ResumePoint | None) -> None:
        """Remove leftovers of an earlier training; set its refused resume point aside."""
        if refused is not None:
            place = self.points.set_aside(refused.folder)
            self.points.clear(None)  # the previous state of the same training
            self._print(
                f"not resumed, training starts afresh: the state of iteration {refused.iteration} was made by another "
                f"{', '.join(refused.differs)}. It is kept in {place}; to go on from it anyway, stop this training and "
                f"run `FIGURA_RESUME_ANYWAY=1 {REPRO}`"
            )
        self.checkpoints.clear()

    def write_checkpoint(self, iteration: int) -> None:
        """Write `checkpoints/step-<iteration>`, a model folder."""
        with self._writing(self.checkpoints.folder):
            if self.accelerator.is_main_process:
                self._refuse_not_finite(iteration)
                self.checkpoints.save(iteration, self._write_model)
                self.checkpoints.thin(self.recipe.runtime.checkpoints_kept)

    def write_resume_point(self, iteration: int) -> None:
        """Write the state after `iteration` updates; also flush the losses so far to their file."""
        self.state.loss_log.flush()
        refuse_different_ranks(self.state.networks, iteration)
        with self._writing(self.points.folder):
            if self.accelerator.is_main_process:
                self._refuse_not_finite(iteration)
                self.points.save(iteration, self.state.state_dict())
        self.resumable = iteration

    def write_outputs(self, iteration: int) -> None:
        """Write the outputs of the stage: weights (averages, if any), the resolved recipe, provenance, history.

        With `train.keep`, the model has the best weights; they and the last ones are written as checkpoints, too.

        Raises:
            UserError: weights are not finite, or both the last updates and the last validation are not.
        """
        refuse_different_ranks(self.state.networks, iteration)
        with self._writing(self.run):
            if self.accelerator.is_main_process:
                self._refuse_not_finite(iteration)
                if doubt := end_judged(self.state.nonfinite, self.state.loss_log, self.recipe, self.what_broke()):
                    self._print(doubt)
                best, kept = self.state.best.best(), self.state.best.said(iteration)
                for one in best:
                    with self.state.best.loaded(one):
                        self.checkpoints.save(one, self._write_model)
                if kept:
                    self.checkpoints.save(iteration, self._write_model)
                chosen = self.state.best.loaded(best[0]) if best else nullcontext()
                with chosen, replacing_folder(self.run / "model") as folder:
                    self._write_model(folder, kept)
                with replacing_folder(self.run / "history") as folder:
                    self.state.loss_log.write(folder)
                    write_sums(folder)
                if kept:
                    self._print(f"{self.run}/model has the weights of {kept}")

    def finish(self) -> None:
        """Stash the outputs; then remove the resume points, with the refused one that this training resumed from.

        Everything else of the run must have been written: a training killed after this is not resumed.
        """
        if self.accelerator.is_main_process:  # ranks no longer run in lockstep
            with self._in_one_line(self.run):
                self.finished.stash()
        self.remove_resume_points()

    def remove_resume_points(self) -> None:
        """Remove the resume points of a finished training."""
        if self.accelerator.is_main_process:
            self.points.clear(self._resumed_from)

    @contextmanager
    def _writing(self, folder: Path) -> Iterator[None]:
        """Turn disk errors in the block into a one-line error, on all ranks."""
        with raise_on_all_ranks(), self._in_one_line(folder):
            yield

    @contextmanager
    def _in_one_line(self, folder: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            at = f"the state of iteration {self.resumable} stays, and `{REPRO}` goes on from it"
            raise UserError(
                f"{error.filename or folder}: cannot be written: {error.strerror or error}; "
                + (at if self.resumable else "there is no earlier state to go on from")
            ) from None

    def _refuse_not_finite(self, iteration: int) -> None:
        refuse_not_finite(self.state.networks, self.networks.ema, self.recipe, iteration, self.what_broke())

    def what_broke(self) -> str:
        """Return `warnings.what_broke` of this training; empty if the last updates were finite."""
        begun = {name: row[0] for name, row in self.state.nonfinite.items()}
        return what_broke(self.run, self.recipe, begun, self.state.loss_log, self.resumable)

    def _write_model(self, folder: Path, kept: str = "") -> None:
        more = {"resumed": self.state.resumed or "", "kept": kept, "drawn": drawn_data(self.recipe)}
        provenance = self.provenance | {key: text for key, text in more.items() if text}
        write_model(folder, self.networks.ema, self.recipe, provenance)

    def _print(self, text: str) -> None:
        if self.accelerator.is_main_process:  # `accelerator.print` would print once per machine
            print(text, flush=True)


def _options(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the options of each group that the constructor takes, without what some optimizers count there."""
    names = optimizer.defaults.keys() & inspect.signature(type(optimizer)).parameters.keys()
    return [{name: group[name] for name in names & group.keys()} for group in optimizer.param_groups]
