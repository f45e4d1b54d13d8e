"""Trainings of toy recipes that note what they do and may be stopped, and what a training leaves."""

import csv
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

from figura.interfaces import StepReport
from figura.training.trainer import Trainer

QUIET = {"runtime.samples": None, "runtime.timing": False}
BASE = QUIET | {"runtime.resume_every": 4}


class Killed(BaseException):
    """As a signal would end it."""


class Stopping(Trainer):
    """Notes the iterations it does; stops before iteration `stop`."""

    stop: int | None = None

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.done: list[int] = []

    def train_step(self, batch: dict[str, Any], index: int) -> dict[str, StepReport]:
        if self.iteration == self.stop:
            raise Killed
        self.done.append(self.iteration)
        return super().train_step(batch, index)


class Recording(Stopping):
    """Keeps all tensors of the networks before each iteration."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.snapshots: list[dict[str, torch.Tensor]] = []

    def run_steps(self, batch: dict[str, Any], index: int) -> dict[str, StepReport]:
        self.snapshots.append(weights(self))
        return super().run_steps(batch, index)

    def moved(self) -> list[set[str]]:
        """Return the names of the tensors that each iteration but the last changed."""
        return [{name for name in a if not torch.equal(a[name], b[name])} for a, b in pairwise(self.snapshots)]


def fit(
    run: Path,
    changes: Mapping[str, Any],
    content: dict[str, Any] | None = None,
    stop: int | None = None,
    **keywords: Any,
) -> Stopping:
    """Train the toy recipe, or `content`, with changes; return the trainer."""
    trainer = Stopping(toy.checked(changes, content), run, **keywords)
    trainer.stop = stop
    trainer.fit()
    return trainer


def killed(run: Path, changes: Mapping[str, Any], content: dict[str, Any] | None = None, stop: int = 9,
           **keywords: Any) -> None:  # fmt: skip
    """Train as `fit` does, until something kills it before iteration `stop`."""
    with pytest.raises(Killed):
        fit(run, changes, content, stop, **keywords)


def trained(
    run: Path, changes: Mapping[str, Any] | None = None, content: dict[str, Any] | None = None,
    kind: type[Trainer] = Trainer, **keywords: Any,
) -> Any:  # fmt: skip
    """Train the toy recipe, or `content`, quietly, with changes, by a kind of trainer; return the trainer."""
    trainer = kind(toy.checked(QUIET | (changes or {}), content), run, **keywords)
    trainer.fit()
    return trainer


def iterations_of(trainer: Trainer) -> list[int]:
    """Train; return the iterations that this process did. A subclass that noted them would share no states."""
    done: list[int] = []
    step = trainer.iterate

    def iterate(batch: dict[str, Any], index: int) -> None:
        done.append(trainer.iteration)
        step(batch, index)

    trainer.iterate = iterate  # type: ignore[method-assign]
    trainer.fit()
    return done


def weights(trainer: Trainer, kind: str = "live") -> dict[str, torch.Tensor]:
    """Return copies of all tensors of a trainer's networks, or of their averages (`ema`), by network and name."""
    networks = getattr(trainer.networks, kind)
    return {f"{n}.{key}": value.clone() for n, net in networks.items() for key, value in net.state_dict().items()}


def assert_same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor], atol: float = 0.0) -> None:
    """Compare tensors by name, exactly unless `atol` is given."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=0, atol=atol, msg=lambda text, n=name: f"{n}: {text}")


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def outputs(run: Path) -> dict[str, bytes]:
    """Return the bytes of everything that DVC hashes, but for the sums of the other files."""
    folders = {folder: contents(run / folder) for folder in ("model", "history")}
    files = {f"{folder}/{name}": content for folder, files in folders.items() for name, content in files.items()}
    assert files.pop("model/SHA256SUMS")
    return files


def history(run: Path, split: str = "train") -> list[dict[str, float]]:
    """Return the rows of a history; a cell that is empty is left out."""
    with (run / "history" / f"{split}.csv").open() as file:
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]
