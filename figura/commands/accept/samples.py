"""Compare a stage beside training: a sample of its rows, records and pictures, or all of them."""

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from figura.base.errors import REPRO, UserError
from figura.base.files import read_json, write_text
from figura.base.manifest import MANIFEST
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.accept.differences import in_folders
from figura.commands.accept.sides import Side
from figura.pipeline.dag import Instance
from figura.recipe.expansion import read_recipe
from figura.recipe.trial import AVERAGED, GRID

BATCHES = 3  # of an evaluation, at random, beside the first
DRAWN = 24  # pictures of each split
READ = 3000  # files of a dataset that is read from raw data, to be prepared whole
PARAMS = Path("data/params.yaml")
COUNTS = {"synthetic": "scenes", "catalogue": "pairs", "day_night": "pairs"}
"""Kind of a drawn dataset -> the key of its numbers of pictures."""


class Sample(NamedTuple):
    """Arguments with which a stage writes into the folder `out`; `inside` is the folder to run in."""

    arguments: list[str]
    out: Path
    inside: str = "."


def compare_samples(instance: Instance, sides: Sequence[Side], scratch: Path) -> str:
    """Return what was compared, as text.

    Raises:
        UserError: anything differs, one of the codes cannot run, or the stage is none of figura's or reads too much.
    """
    outs = [run_sample(instance, side, scratch / name) for side, name in zip(sides, ("old", "new"), strict=True)]
    if found := in_folders(*outs):
        raise UserError(f"differs in {found}")
    files = [path for path in outs[0].rglob("*") if path.is_file()]
    if not files:
        raise UserError(f"{sides[0].title} wrote nothing that could be compared")
    rows = [len(path.read_text(encoding="utf-8").splitlines()) - 1 for path in files if path.name == "examples.csv"]
    return f"{sum(rows)} rows" if rows else f"{len(files)} files"


def run_sample(instance: Instance, side: Side, folder: Path) -> Path:
    """Run a part of a stage with the code of a side; return the folder with its outputs. Raises UserError."""
    script, random_ = str(instance.script), random.Random(instance.name)
    name = script if script in instance.command else script.rpartition(".")[2]  # behind figura.launch
    sample = _sample(script, list(instance.command[instance.command.index(name) + 1 :]), folder)
    call = {"folder": str(folder), "arguments": sample.arguments, "inside": sample.inside}
    shares = None if script == "stages.metrics" else [random_.random() for _ in range(BATCHES)]
    side.run(script, [call], folder, shares=shares)
    return sample.out


def _sample(script: str, words: list[str], folder: Path) -> Sample:
    out = folder / "out"
    match script, words:
        case "stages.prepare", [name]:
            _small_project(name, folder)
            return Sample([name], folder / "data/prepared" / name, inside=str(folder))
        case "stages.eval_dump", [recipe, run]:
            return Sample([_smaller(Path(recipe), folder), run, "--output", str(out)], out)
        case "stages.metrics", [recipe, run, metrics, _]:
            return Sample([recipe, run, str(out / Path(metrics).name), str(out / "plots")], out)
        case "stages.pose_consistency", [recipe, model, drawn, _, metrics, _]:
            outs = [str(out / one) for one in ("run", Path(metrics).name, "plots")]
            return Sample([_smaller(Path(recipe), folder), model, drawn, *outs], out)
    raise UserError(f"figura accept knows no stage with the arguments {script} {' '.join(words)}; run it again")


def _smaller(recipe: Path, folder: Path) -> str:
    """Write a recipe with small grids and averages, and without times, which never repeat; return its path."""
    content = read_recipe(recipe)
    evaluate: dict[str, Any] = content["evaluate"] | {"timing": False}
    for section, key, most in (("grids", "size", GRID), ("averages", "examples", AVERAGED)):
        entries = evaluate.get(section) or {}
        evaluate[section] = {name: one | {key: min(one.get(key, most), most)} for name, one in entries.items()}
    path = folder.parent / recipe.name  # the same of both sides: pictures have it in their titles
    write_text(path, to_yaml(content | {"evaluate": evaluate}))
    return str(path)


def _small_project(name: str, folder: Path) -> None:
    """Write a folder in which a dataset can be prepared; of a drawn one, the first pictures."""
    entry = read_yaml(PARAMS)["datasets"][name]
    if (key := COUNTS.get(entry["kind"])) is not None:
        section = entry[entry["kind"]]
        few = {split: min(count, DRAWN) for split, count in section[key].items()}
        entry |= {entry["kind"]: section | {key: few}, "max_rejected": 1.0}
    elif (count := read_json(Path("data/prepared", name, MANIFEST))["files"]) > READ:
        raise UserError(
            f"has {count:,} files, so run `{REPRO} prepare@{name}` itself; what follows is skipped if they stay "
            "the same"
        )
    source = Path(os.path.abspath(entry["source"]))
    if source.is_relative_to(Path.cwd()):
        link = folder / entry["source"]
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source.resolve(), target_is_directory=True)
    else:  # where `figura init --data` found it
        entry["source"] = str(source)
    write_text(folder / PARAMS, to_yaml({"datasets": {name: entry}}))
