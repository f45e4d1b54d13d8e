"""What shared states save and cost: `python -m bench.shared_states` prints two tables.

The first: an adversarial phase in ten settings, each a training of its own, after one common phase (a small
super-resolution). The second, for each default recipe: what states cost a training that shares nothing, and their size.
With `--picture FILE` it trains `TREE` instead, and draws which training began with a state of which.
"""

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure

from bench.table import seconds, show
from bench.trainings import DEFAULTS, Case, start
from figura.recipe.prefix import Prefixes
from figura.training.states import SWITCH, StateStore, kept_knots, share_states, thinned
from figura.training.trainer import Trainer

COMMON, OWN, SETTINGS = 400, 200, 10
SMALL = (
    "data.common.size=32", "data.batch_size=2", "networks.generator.features=8", "networks.generator.growth=4",
    "networks.generator.blocks=1", "networks.discriminator.features=4", "losses.G_feature.weight=0.0",
    f"train.steps={COMMON + OWN}", "train.evaluate_every=600", "train.evaluate_limit=4", f"steps.D.after={COMMON}",
    "runtime.resume_every=200", f"steps.G.injectors.judge.after={COMMON}", f"losses.G_real.after={COMMON}",
)  # fmt: skip


TREE = {
    "no adversarial phase": ("train.steps=400",),
    "weight 0.002": ("losses.G_fake.weight=0.002",),
    "weight 0.005": ("losses.G_fake.weight=0.005",),
    "weight 0.02": ("losses.G_fake.weight=0.02",),
    "0.005, longer": ("losses.G_fake.weight=0.005", "train.steps=900"),
    "0.005, then 0.02": ("losses.G_fake.weight=0.005", "train.steps=900",
        "losses.G_fake.schedule={type: Step, at: [500], values: [1.0, 4.0]}"),
    "0.005, D ends at 500": ("losses.G_fake.weight=0.005", "losses.D_real.before=500"),
    "another seed": ("seed=2",),
}  # fmt: skip
"""Settings of trainings, one after the other."""


def main() -> None:
    """Print both tables, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path)
    picture = parser.parse_args().picture
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        case = DEFAULTS["super_resolution"].changed(*SMALL, f"losses.G_fake.after={COMMON}")
        if picture is not None:
            for name, keys in TREE.items():
                train(case.changed(*keys), Path(folder, name), str(Path(folder, "states")))
            draw(Path(folder), picture)
            return
        rows, times = [("states", "iterations", "seconds", "ratio")], list[float]()
        for name, switch in (("off", "off"), ("shared", str(Path(folder, "states")))):
            begin = time.perf_counter()
            settings = [f"losses.G_fake.weight={0.001 * (place + 1)}" for place in range(SETTINGS)]
            iterations = sum(train(case.changed(one), Path(folder, name, one), switch) for one in settings)
            times.append(time.perf_counter() - begin)
            rows.append((name, f"{iterations:,}", f"{times[-1]:.1f}", f"{times[0] / times[-1]:.2f}"))
        show(rows)
        print()
        show([("recipe", "iteration ms", "start ms", "state ms", "given ms", "cost %", "MB", "states", "all MB")]
            + [cost(case, Path(folder, name), name) for name, case in DEFAULTS.items()])  # fmt: skip


def train(case: Case, run: Path, switch: str) -> int:
    """Train; return the number of iterations done."""
    os.environ[SWITCH] = switch
    trainer = Trainer(case.recipe(), run)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.fit()
    return trainer.last - trainer._start[0]


def draw(folder: Path, picture: Path) -> None:
    """Draw the trainings of `TREE` as lines, each from the iteration and the training with which it began."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    states = StateStore(folder / "states").states()
    for place, name in enumerate(TREE):
        first, *_, last = map(json.loads, (folder / name / "live/log.jsonl").read_text().splitlines())
        begin = int(first["shared_state"].partition("-")[0]) if "maker" in first else 0
        color = f"C{place}"
        axes.plot([begin, last["step"]], [place, place], color=color, linewidth=3)
        if begin:
            axes.plot([begin, begin], [list(TREE).index(first["maker"]), place], color=color, linestyle=":")
        own = [one.iteration for one in states if one.maker == name]
        axes.plot(own, [place] * len(own), "o", color=color)
        axes.annotate(f"{last['step'] - begin:,} trained", (last["step"], place), (8, -4), textcoords="offset points")
    axes.set_yticks(range(len(TREE)), list(TREE))
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_xlabel("iteration")
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(picture)


def cost(case: Case, folder: Path, name: str) -> tuple[object, ...]:
    """Return the row of a recipe, from the state after its last iteration."""
    os.environ[SWITCH] = str(folder / "states")
    trainer, step = start(case.recipe(), folder / "run")
    iteration = seconds(step, 5, at_least=3)
    begin = time.perf_counter()
    sharing = share_states(
        trainer.folder, {}, StateStore.beside_dvc(), evaluate_every=trainer.evaluate_every, last=trainer.last,
        own_code=False,
    )  # fmt: skip
    assert sharing is not None
    sharing.furthest(0)
    begun = time.perf_counter() - begin
    trainer.iteration = trainer.last
    written = seconds(lambda: trainer.folder.write_resume_point(trainer.iteration), 0.5)
    begin = time.perf_counter()
    sharing.give(trainer.iteration, print)
    given = time.perf_counter() - begin
    (state,) = StateStore(folder / "states").states()
    between = range(case.recipe().runtime.resume_every, trainer.last, case.recipe().runtime.resume_every)
    knots = kept_knots(Prefixes(trainer.recipe, trainer.evaluate_every, {}), trainer.last)
    count = len({*thinned(list(between)), *knots, trainer.last})
    extra = len(knots - {*between}) + 1  # resume points that only states need
    total = begun + extra * written + (extra + len(between)) * given
    return (
        name, 1e3 * iteration, 1e3 * begun, 1e3 * written, 1e3 * given, 100 * total / (trainer.last * iteration),
        state.size / 1e6, count, count * state.size / 1e6,
    )  # fmt: skip


if __name__ == "__main__":
    main()
