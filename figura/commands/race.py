"""Train the settings of a grid only as far as they may still win.

At each rung, a number of iterations, the settings that are left are experiments of DVC with `train.steps` of the rung,
judged on the validation data. A setting stops if it is not in the better half, and worse than the best by more than
`--margin`, by the paired comparison of `figura compare`, corrected for the choice of the best. The others go on from
their states. Those that reach the whole length are judged once more, and the best becomes a plain experiment of its
recipe. `-S` is that of `dvc exp run --queue`; `-S seed=1,2,3` trains each setting with several seeds. What DVC prints
goes to stderr. docs/sweeps.md explains races.
"""

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError
from figura.base.files import cache_around, git
from figura.base.tables import as_text
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of
from figura.pipeline.calls import COMMAND
from figura.pipeline.dag import recipe_file
from figura.recipe.schema_check import check_schema

if TYPE_CHECKING:
    from figura.commands.rungs import Settings, Standing

SHARED = re.compile(r"^([\d,]+) of [\d,]+ iterations are those of ", re.MULTILINE)
"""The line of a training that goes on from a shared state."""
ABOVE = "see the error above"


def main(arguments: list[str]) -> None:
    parser = parser_of("race", __doc__)
    parser.add_argument("--recipe", required=True, help="name of the recipe in dvc.yaml, such as vunet")
    parser.add_argument("--metric", required=True, help="name in metrics.summary of the recipe, such as l1_person")
    parser.add_argument("--rungs", required=True, metavar="N,N", help="iterations after which settings may stop")
    parser.add_argument("--margin", type=float, help="difference of the metric that does not matter (docs/sweeps.md)")
    parser.add_argument("-S", dest="grid", action="append", required=True, metavar="KEY=VALUE,VALUE", help="repeatable")
    args = parser.parse_args(arguments)
    file = recipe_file(args.recipe)
    recipe = check_schema(read_yaml(file), file)
    if (metric := args.metric) not in (known := recipe.metrics.summary):
        raise UserError(f"--metric {metric}: metrics.summary of {file} has {', '.join(known) or 'none'}")
    if recipe.train.steps is None:
        raise UserError(f"{file}: train.epochs: a race counts iterations; write train.steps instead")
    rungs = _rungs(args.rungs, recipe.train.steps)
    _check_cache()

    from figura.commands.rungs import compare, on_validation, settings_of

    settings, judged = settings_of(args.grid, args.recipe, file), on_validation(recipe)
    margin = _margin(args.margin, settings, metric)
    whole, trained, at_rungs = sum(map(len, settings.values())) * recipe.train.steps, 0, list[str]()
    if not judged:
        print(f"{file}: evaluate.data has no split of its own, so the winner's metrics are those it was chosen by")
    for rung in rungs:
        if len(settings) > 1:
            length = f"++train.steps={rung}", f"++train.shares_of={recipe.train.steps}"  # schedules of the whole length
            extra = [f"{file}:{one}" for one in (*length, *judged)]
            runs = {
                setting: {f"{name}-at-{rung}": [*overrides, *extra] for name, overrides in seeds.items()}
                for setting, seeds in settings.items()
            }
            counts = _experiments(runs, args.recipe, rung, "eval-dump")
            complete = {setting: list(seeds) for setting, seeds in runs.items() if seeds.keys() <= counts.keys()}
            if not complete:
                raise UserError(f"all settings failed before iteration {rung:,}; {ABOVE}")
            found = compare(complete, metric, args.recipe, file, margin) if len(complete) > 1 else {}
            print(f"\n{_table(runs, found, counts, rung, metric)}", flush=True)
            left = [setting for setting, one in found.items() if one.goes_on] or list(complete)
            settings = {setting: settings[setting] for setting in left}
            trained, at_rungs = trained + sum(counts.values()), [*at_rungs, *counts]
    winner, seeds = next(iter(settings.items()))
    counts = _experiments({winner: seeds}, args.recipe, recipe.train.steps, "metrics")
    if counts.keys() != seeds.keys():
        raise UserError(f"{winner} failed; {ABOVE}")
    subprocess.run([*COMMAND, "exp", "remove", "--quiet", *at_rungs], check=False)
    print(f"\n{winner} wins; {trained + sum(counts.values()):,} of {whole:,} iterations were trained")
    print("\n".join(f"dvc exp apply {name}" for name in seeds))


def _check_cache() -> None:
    """Raise UserError if DVC could not make copies of this project: it writes the cache's path as ASCII there."""
    cache = cache_around(Path.cwd())
    if cache is not None and not str(cache.absolute()).isascii():
        raise UserError(
            f"{cache}: has letters beyond ASCII, with which DVC's `exp run --temp` and `--queue` fail; set another "
            "cache: `dvc cache dir --local /folder`"
        )


def _rungs(text: str, steps: int) -> list[int]:
    """Return the rungs, and the whole length as the last one."""
    rungs = [*map(int, text.split(",")), steps] if re.fullmatch(r"\d+(,\d+)*", text) else []
    if not rungs or any(one >= other for one, other in zip([0, *rungs], rungs, strict=False)):
        raise UserError(f"--rungs {text}: expected rising iterations below train.steps, {steps:,}, such as 200,500")
    return rungs


def _margin(given: float | None, settings: "Settings", metric: str) -> float:
    """Return the difference that does not matter; it must be given where no seeds say how much trainings differ."""
    if given is None and all(len(seeds) < 2 for seeds in settings.values()):
        raise UserError(
            f"--margin: with one seed a setting, nothing says how much {metric} differs between equal trainings; write "
            "-S seed=1,2,3, or as --margin four times its standard deviation between seeds"
        )
    if given is not None and not 0 <= given < math.inf:
        raise UserError(f"--margin {given:g}: expected 0 or more, in the unit of {metric}")
    return given or 0.0


def _experiments(settings: "Settings", recipe: str, steps: int, stage: str) -> dict[str, int]:
    """Run experiments one after the other, so that they find each other's states, in the place of older ones.

    Returns:
        How many of their `steps` iterations were trained, by name; those that were refused, or failed in training or
        evaluation, are left out. Iterations of a shared state or of DVC's run cache do not count.

    Raises:
        UserError: DVC failed otherwise.
    """
    counts = {}
    head = (git("rev-parse", "HEAD") or "").strip()
    for name, overrides in [one for seeds in settings.values() for one in seeds.items()]:
        if git("rev-parse", "--verify", "--quiet", f"refs/exps/{head[:2]}/{head[2:]}/{name}"):
            subprocess.run([*COMMAND, "exp", "remove", "--quiet", name], check=True)
        changes = [word for one in overrides for word in ("-S", one)]
        command = [*COMMAND, "--wait-for-lock", "exp", "run", "--temp", "--name", name, *changes, f"{stage}@{recipe}"]
        status, said = _run(command)
        if not status:
            shared = SHARED.search(said)
            begin = int(shared[1].replace(",", "")) if shared else 0
            counts[name] = steps - begin if f"Running stage 'train@{recipe}'" in said else 0
        elif not re.search(rf"failed to reproduce '((train|eval-dump)@{recipe}|.*:code)'", said):
            raise UserError(f"{name}: dvc exp run ended with {status}; {ABOVE}")
    return counts


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Run a command whose output goes to stderr; return its exit status and output."""
    lines = []
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background; the command would ignore it, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                lines.append(line)
        except BaseException:  # of a signal, which the training must see too; DVC may lose it as a stage begins
            while process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=30)
            raise
    return process.returncode, "".join(lines)


def _table(
    settings: "Settings", found: "Mapping[str, Standing]", trained: Mapping[str, int], rung: int, metric: str
) -> str:
    rows = [(f"at {rung:,}", metric, "from the best", "interval", "", "trained")]
    for setting in [*found, *(one for one in settings if one not in found)]:
        count = sum(trained.get(one, 0) for one in settings[setting])
        failed = "" if settings[setting].keys() <= trained.keys() else "failed"
        rows.append((setting, *(found[setting].cells if setting in found else ("", "", "", failed)), f"{count:,}"))
    return as_text(rows)
