"""Writes dumps of tensors, and completes those that tests write file by file."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from figura.dump import Dump, write_value


def sealed(folder: Path) -> Path:
    """Write the checksums of all files of a dump; return its folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "SHA256SUMS"]
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(folder).as_posix()}\n" for p in paths]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def dump_of(
    folder: Path,
    *,
    mode: str = "m",
    repeat: int = 1,
    columns: Mapping[str, Any] | None = None,
    **values: Tensor | np.ndarray | Sequence[Tensor],
) -> Dump:
    """Write a dump of one mode with a file for each tensor, and the mean of `target` as the average `mean`.

    A name has as many tensors as there are rows; or fewer, each of which `repeat` rows share.
    """
    count, rows = max(map(len, values.values())), []
    for index in range(count):
        row: dict[str, Any] = {"mode": mode, "index": index // repeat}
        for name, tensors in values.items():
            number = index if len(tensors) == count else index // repeat
            row[f"file.{name}"] = f"{name}/{number}.npy"
            write_value(folder / row[f"file.{name}"], torch.as_tensor(tensors[number]))
        rows.append(row)
    pd.DataFrame(rows).assign(**(columns or {})).to_csv(folder / "examples.csv", index=False)
    if isinstance(target := values.get("target"), Tensor):
        write_value(folder / "averages/mean.npy", target.mean(0))
    return Dump(sealed(folder))
