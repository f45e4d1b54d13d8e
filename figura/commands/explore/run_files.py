"""What else a run leaves: sample sheets, pictures of results, the ends of logs, settings."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from figura.base.errors import one_line
from figura.base.yaml12 import read_yaml
from figura.commands.explore.runs import END, Run, end_of, parse_line
from figura.commands.sweeps import formatted, is_number
from figura.recipe.dotted_keys import leaves

OUTPUT = "explore.log"
"""In `live/`, which DVC ignores: what a training prints that was started here."""
SAMPLE = re.compile(r"(\d{8})(?:-(\w+))?\.png")


def samples(run: Run) -> dict[str, dict[int, Path]]:
    """Return the sample sheets of a run, by what they show (`validation` first, `train`) and step, ascending."""
    try:
        names = sorted(os.listdir(run.live / "samples"))
    except OSError:
        return {}
    sheets: dict[str, dict[int, Path]] = {}
    for name in names:
        if match := SAMPLE.fullmatch(name):
            sheets.setdefault(match[2] or "validation", {})[int(match[1])] = run.live / "samples" / name
    return dict(sorted(sheets.items(), key=lambda one: one[0] != "validation"))


def sheet_at(sheets: Mapping[int, Path], step: int) -> tuple[int, Path] | None:
    """Return the sheet of a step, or of the last one before it; None if the first one is later."""
    before = [one for one in sheets if one <= step]
    return (before[-1], sheets[before[-1]]) if before else None


def result_pictures(run: Run) -> dict[str, Path]:
    """Return the result pictures of a run by name."""
    files = sorted(run.pictures.glob("*.*"))
    return {file.stem: file for file in files if file.suffix in (".png", ".jpg")}


def log_tail(run: Run, lines: int) -> list[str]:
    """Return the last lines of the live log, for people: `step 100: total 0.5, L1 0.3, 46 images/s`."""
    texts = []
    for line in end_of(run.live / "log.jsonl", END):
        record = parse_line(line)
        if "process" in record:
            texts.append(f"started: {record.get('processes', 1)} process(es), code {str(record.get('code'))[:8]}")
        elif "step" in record:
            numbers = [
                f"{key.removeprefix('train.')} {value:.4g}"
                for key, value in record.items()
                if is_number(value) and key.startswith(("train.", "score."))
            ]
            rate = record.get("images_per_second")
            speed = [f"{rate:.1f} images/s"] if is_number(rate) else []
            texts.append(f"step {record['step']}: {', '.join([*numbers, *speed])}")
    return [one_line(line) for line in texts[-lines:]]


def output_tail(run: Run, lines: int) -> list[str]:
    """Return the last lines that a training printed which was started here; of a progress line, its last state."""
    texts = [
        line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace") for line in end_of(output_file(run), END)
    ]
    return [one_line(text) for text in texts[-lines:]]


def setting_differences(left: Path, right: Path) -> list[tuple[str, str, str]]:
    """Return the settings in which two resolved recipes differ: dotted key, and both values as text.

    Raises:
        UserError: one of them is missing or damaged.
    """
    first, second = (dict(leaves(read_yaml(path))) for path in (left, right))
    keys = list(dict.fromkeys([*first, *second]))
    texts = [(key, *(formatted(one[key]) if key in one else "absent" for one in (first, second))) for key in keys]
    return [(key, old, new) for key, old, new in texts if old != new]


def output_file(run: Run) -> Path:
    """Return the file of what a training prints that was started here."""
    return run.folder / "live" / OUTPUT
