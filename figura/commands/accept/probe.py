"""Run a stage on the code in PYTHONPATH, which may be an earlier commit's: `python -P probe.py JOB`.

JOB is a JSON file with the module of a `stage`, and `calls` of its `main`, each with `arguments` and a `folder` for
what is noted. A training notes each iteration in `log.jsonl`, stops after iteration `stop`, and leaves digests of its
state. Evaluations run over the first batch and those at `shares` of the split. Earlier versions of figura must be able
to run this file, so it uses little of it.
"""

import importlib
import json
import os
import sys
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any


def main(path: str) -> int:
    """Run the calls of a job; an error is written to `error.txt` in the folder of its call."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    for call in job["calls"]:
        try:
            page = importlib.import_module(job["stage"])
            if job["stage"] == "stages.train":
                train(page, call)
            else:
                if job["shares"] is not None:
                    evaluate_few(job["shares"])
                os.chdir(call.get("inside", "."))
                page.main(call["arguments"])
        except Exception as error:  # noqa: BLE001  # of either version
            Path(call["folder"], "error.txt").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
            return 1
    return 0


def train(page: ModuleType, call: dict[str, Any]) -> None:
    """Train until iteration `stop`, and note what each iteration did."""
    from accelerate.state import AcceleratorState

    from figura.base.errors import Interrupted
    from figura.training.trainer import Trainer

    AcceleratorState._reset_state(reset_partial_state=True)  # of the call before
    folder, iterate, trainers = Path(call["folder"]), Trainer.iterate, list[Any]()
    first = os.environ.get("RANK", "0") == "0"

    def watched(self: Trainer, batch: dict[str, Any], index: int) -> None:
        iterate(self, batch, index)
        trainers[:] = [self]
        self.loss_log.flush()
        if first:
            log.write(json.dumps(noted(self)) + "\n")
        if self.iteration == call["stop"]:
            self.stop_request.asked_by = "figura accept"

    with Path(folder, "log.jsonl").open("a", encoding="utf-8") as log:
        Trainer.iterate = watched  # type: ignore[method-assign]
        try:
            page.main(call["arguments"])
        except Interrupted:
            if trainers[0].iteration != call["stop"]:
                raise
        finally:
            Trainer.iterate = iterate  # type: ignore[method-assign]
    if first:
        leave_state(folder, keep=call["keep"])
        if trainers and call["states"] is not None:
            names = {"code": trainers[0].provenance["code"], "states": names_of_states(trainers[0], call["states"])}
            Path(folder, "names.json").write_text(json.dumps(names), encoding="utf-8")


def noted(trainer: Any) -> dict[str, dict[str, float]]:
    """Return the numbers of the last iteration: losses, gradient norms and rates, an evaluation, sums of weights."""
    log = trainer.loss_log
    row = dict(log.latest)
    for one in log.validation[-1:]:
        row |= {f"validation.{key}": value for key, value in one.items()} if one["step"] == trainer.iteration else {}
    tensors = {name: network.state_dict() for name, network in trainer.networks.live.items()}
    sums = {f"{name}.{key}": one.cpu().double().sum().item() for name in tensors for key, one in tensors[name].items()}
    return {"row": row, "weights": sums}


def leave_state(folder: Path, keep: bool) -> None:
    """Write the state in which a training stopped, digests in place of tensors; without `keep`, remove the tensors."""
    from safetensors.torch import load_file
    from torch import uint8

    from figura.training.resume import unflatten

    path = max(folder.glob("run/**/resume/*/state.json"), default=None)
    if path is None:  # the training has ended
        return
    tensors = path.with_name("state.safetensors")
    digests = {
        name: sha256(tensor.contiguous().flatten().view(uint8).numpy().tobytes()).hexdigest()
        for name, tensor in load_file(tensors).items()
    }
    state = unflatten(json.loads(path.read_text(encoding="utf-8"))["state"], digests)  # type: ignore[arg-type]
    Path(folder, "state.json").write_text(json.dumps(state), encoding="utf-8")
    if not keep:
        tensors.unlink()


def names_of_states(trainer: Any, iterations: list[int]) -> dict[int, str]:
    """Return the names that states after some iterations have in the store of this training, if it shares any."""
    try:
        from figura.training.state_store import StateStore
        from figura.training.states import share_states

        sharing = share_states(
            trainer.folder, trainer.callbacks, StateStore(trainer.run), evaluate_every=trainer.evaluate_every,
            last=trainer.last, own_code=False,
        )  # fmt: skip
        if sharing is None:
            return {}
        prefixes = sharing._fresh()
        return {iteration: sharing._digest(prefixes.at(iteration)) for iteration in sorted(iterations)}
    except Exception:  # noqa: BLE001  # of an earlier version; nothing but time depends on it
        return {}


def evaluate_few(shares: list[float]) -> None:
    """Let evaluations run over the first batch and those at `shares` of all."""
    import figura.evaluation.evaluate as page

    class Few(page.ValidationBatches):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            count = len(self.batches)
            chosen = sorted({0, *(int(share * count) for share in shares)}) if count else []
            self.batches, self.places = [self.batches[one] for one in chosen], chosen  # type: ignore[assignment]

    page.ValidationBatches = Few  # type: ignore[misc]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
