"""The book of losses: what every loss was in every iteration, kept while a training runs.

Beside the tracked history (history.py), which holds means over windows and is written at the end, the book is what people
ask during a run: the course of a loss, its last value, its weight; by its name, or by its step as a tag.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from models.engine.errors import UserError, nearest
from models.engine.files import write_text
from models.engine.training.steps import StepReport, loss_of

COLUMNS = ("step", "loss", "raw", "weight", "weighted")


class Book:
    """Rows (iteration, loss, raw batch mean, effective weight, their product), appended to `path` as CSV.

    Values are buffered where they were computed and fetched at once by `flush`, so that recording a loss costs no
    synchronisation with a GPU. What a crash may lose is what was not flushed; a resumed run takes those iterations again.

    Args:
        path: the CSV file; None keeps the last values only.
        tags: the losses' names, each with its tag (the step it belongs to).
    """

    def __init__(self, path: Path | None, tags: Mapping[str, str]) -> None:
        self.path, self.tags = path, dict(tags)
        self._steps: list[int] = []
        self._names: list[str] = []
        self._weights: list[float] = []
        self._raw: list[Tensor] = []
        self._last: dict[str, Sequence[float]] = {}

    def start(self, done: int) -> None:
        """Begin a file after `done` iterations: what an earlier run wrote about later ones is cut off."""
        if self.path is not None:
            rows = self._read()
            rows = rows[rows["step"] <= done]
            write_text(self.path, rows.to_csv(index=False, lineterminator="\n"))
            self._remember(rows)

    def add(self, iteration: int, reports: Mapping[str, StepReport]) -> None:
        """Take in the reports of an iteration (1 is the first)."""
        for report in reports.values():
            for name, raw in report.raw.items():
                self._steps.append(iteration)
                self._names.append(name)
                self._weights.append(report.weights[name])
                self._raw.append(raw.detach())

    def flush(self) -> None:
        """Append what is buffered to the file."""
        if not self._raw:
            return
        raw = torch.stack(self._raw).double().cpu().numpy()
        rows = pd.DataFrame({"step": self._steps, "loss": self._names, "raw": raw, "weight": self._weights})
        rows["weighted"] = rows["raw"] * rows["weight"]
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            header = not self.path.is_file()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(rows.to_csv(index=False, header=header, lineterminator="\n"))
        self._remember(rows)
        self._steps, self._names, self._weights, self._raw = [], [], [], []

    def _remember(self, rows: pd.DataFrame) -> None:
        for name, *values in rows.groupby("loss", sort=False).last()[list(COLUMNS[2:])].itertuples():
            self._last[name] = values

    def select(self, *query: str) -> list[str]:
        """Return the losses that have one of these names or tags; without a query, all.

        Raises:
            UserError: neither a loss nor a tag.
        """
        known = [*self.tags, *dict.fromkeys(self.tags.values())]
        for word in query:
            if word not in known:
                raise UserError(f"no loss or tag {word!r}{nearest(word, known)}; there are {', '.join(known)}")
        return [name for name, tag in self.tags.items() if not query or name in query or tag in query]

    def history(self, *query: str) -> pd.DataFrame:
        """Return the rows of the selected losses and their components so far, columns `step`, `loss`, `raw`, `weight`, `weighted`."""
        self.flush()
        rows = self._read()
        return rows[rows["loss"].map(loss_of).isin(self.select(*query))].reset_index(drop=True)

    def last(self, *query: str) -> dict[str, dict[str, float]]:
        """Return `raw`, `weight` and `weighted` of the latest value of each selected loss that has one yet."""
        self.flush()
        selected = self.select(*query)
        chosen = [name for loss in selected for name in self._last if loss_of(name) == loss]
        return {name: dict(zip(COLUMNS[2:], self._last[name], strict=True)) for name in chosen}

    def _read(self) -> pd.DataFrame:
        if self.path is None or not self.path.is_file():
            return pd.DataFrame(columns=list(COLUMNS))
        return pd.read_csv(self.path).dropna(subset=["loss"])  # a process killed while it wrote leaves half a row


def weights_line(epoch: int, weights: Mapping[str, float]) -> str:
    """Return one line for people: `epoch 3: loss weights G_GAN 1, G_L1 100`."""
    return f"epoch {epoch}: loss weights " + ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
