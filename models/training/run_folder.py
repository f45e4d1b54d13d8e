"""What a training writes into its run folder and goes on from: resume points, checkpoints, the model, the history."""

from collections.abc import Mapping
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import gather_object

from models.base.errors import UserError
from models.engine.weights import digest
from models.interfaces import Networks
from models.recipe.schema import Recipe
from models.recipe.trial import scratch
from models.training.checkpoints import Checkpoints, write_model
from models.training.divergence import Rollback
from models.training.loss_log import LossLog
from models.training.resume import ResumePoint


class RunFolder:
    """All ranks call each method; rank 0 writes, after it was checked that all ranks have the same weights.

    Args:
        run: the folder.
        rollback: reads and writes the resume points.
        provenance: written beside the weights.
    """

    def __init__(
        self, run: Path, recipe: Recipe, accelerator: Accelerator, networks: Networks, loss_log: LossLog,
        rollback: Rollback, provenance: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.run, self.recipe, self.accelerator, self.networks = run, recipe, accelerator, networks
        self.loss_log, self.rollback, self.provenance = loss_log, rollback, dict(provenance)
        self.checkpoints = Checkpoints(scratch(run, recipe) / "checkpoints")
        self.resumable = 0  # the iteration of the last resume point
        self._resumed_from: Path | None = None

    def resume(self, anyway: bool) -> int:
        """Restore the state of a resume point, if there is one; return its iteration, or 0.

        `anyway` takes the furthest state, even if its recipe, code, packages or data differ.

        Raises:
            UserError: ranks read different files.
        """
        points = self.rollback.points
        point, iteration = points.latest(anyway), 0
        everywhere = gather_object([None if point is None else (point.iteration, point.differs)])
        if len(set(everywhere)) > 1:
            raise UserError(
                f"{points.folder}: ranks read {', '.join(map(str, everywhere))}; the folder that machines share "
                "shows them different files; run `dvc repro` again"
            )
        if point is not None and (anyway or not point.differs):
            iteration = self.resumable = self.rollback.restore(point)
            made = f", made by another {', '.join(point.differs)}: taken anyway" if point.differs else ""
            self._print(f"resumed after iteration {iteration}{made}")
            self._resumed_from = point.folder
        self.accelerator.wait_for_everyone()  # no rank moves a state that another still reads
        if self.accelerator.is_main_process:
            if iteration > 0:
                self.checkpoints.tidy()
            else:
                self._begin(point)
        return iteration

    def _begin(self, refused: ResumePoint | None) -> None:
        """Remove the checkpoints of an earlier training; move a refused resume point aside."""
        if refused is not None:
            place = self.rollback.points.refuse(refused)
            self._print(
                f"not resumed, training starts afresh: the state of iteration {refused.iteration} was made by another "
                f"{', '.join(refused.differs)}. It is kept in {place}; to go on from it anyway, stop this training and "
                "run `FIGURA_RESUME_ANYWAY=1 dvc repro`"
            )
        self.checkpoints.clear()

    def write_checkpoint(self, iteration: int) -> None:
        """Write `checkpoints/step-<iteration>`, a model folder."""
        if self.accelerator.is_main_process:
            self.checkpoints.save(iteration, self._write_model)
        self.accelerator.wait_for_everyone()

    def write_resume_point(self, iteration: int) -> None:
        """Write the state after `iteration` updates; losses recorded so far go to their file with it."""
        self.loss_log.flush()
        self._refuse_different_ranks(iteration)
        if self.accelerator.is_main_process:
            self.rollback.save(iteration)
        self.accelerator.wait_for_everyone()
        self.resumable = iteration

    def write_outputs(self, iteration: int) -> None:
        """Write the outputs that DVC tracks: weights (averages, if any), the resolved recipe, provenance, history."""
        self._refuse_different_ranks(iteration)
        if self.accelerator.is_main_process:
            self._write_model(self.run / "model")
            self.loss_log.write(self.run / "history")
        self.accelerator.wait_for_everyone()

    def finish(self) -> None:
        """Remove the resume points of a training that has ended, with the refused one that it went on from."""
        self.rollback.points.clear(self._resumed_from)

    def _write_model(self, folder: Path) -> None:
        resumed = {"resumed": self.rollback.resumed} if self.rollback.resumed else {}
        write_model(folder, self.networks.ema, self.recipe, self.provenance | resumed)

    def _refuse_different_ranks(self, iteration: int) -> None:
        """Raise UserError if ranks no longer have the same weights."""
        if self.accelerator.num_processes == 1:
            return
        own = {name: digest(self.accelerator.unwrap_model(one)) for name, one in self.networks.live.items()}
        digests: list[dict[str, str]] = gather_object([own])
        for rank, theirs in enumerate(digests):
            if different := [name for name in own if theirs[name] != digests[0][name]]:
                raise UserError(
                    f"after iteration {iteration}, rank {rank} has other weights than rank 0: network"
                    f" {', '.join(different)}; code of yours that updates weights must do the same on all ranks"
                )

    def _print(self, text: str) -> None:
        if self.accelerator.is_main_process:  # `accelerator.print` would print once a machine
            print(text, flush=True)
