"""The overhead of injectors: the step of params.yaml after ten identities, in a recipe and written by hand.

Each identity is a `Sum` of one term of weight 1, which multiplies an image by 1 and adds a name; the hand-written loop
multiplies as often. Both run alternately in one process, and take turns in being first. The budget is 3 %. The last row
is the cost of one injector: the recipe with ten against the recipe with none. CPU seconds are also meaningful on a
shared machine.

`python -m bench.ten_injectors [--rounds 12] [--steps 20] [--threads 2]`
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.engine_overhead import bare, engine
from bench.table import show
from figura.base.yaml12 import read_yaml
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe

INJECTORS = 10
Iteration = Callable[[dict[str, Any]], None]


def recipe(injectors: int) -> Recipe:
    """Return params.yaml with a chain of identities before the network reads `pose`."""
    content = read_yaml(Path("params.yaml"))
    step = content["steps"]["generator"]
    names = ["pose", *(f"pose_{place}" for place in range(injectors))]
    chain = {
        f"identity_{place}": {"type": "Sum", "output": names[place + 1], "terms": {names[place]: 1.0}}
        for place in range(injectors)
    }
    step["injectors"] = chain | step["injectors"]
    step["injectors"]["generate"]["inputs"]["pose"] = names[-1]
    return check_recipe(content, Path("params.yaml"))


def by_hand(injectors: int) -> Iteration:
    """Return the same iteration, written by hand."""
    train = bare()

    def iteration(batch: dict[str, Any]) -> None:
        pose = batch["pose"]
        for _ in range(injectors):
            pose = 1.0 * pose
        train(batch | {"pose": pose})

    return iteration


def main() -> None:
    """Print medians and ratios, wall and CPU."""
    parser = argparse.ArgumentParser(prog="python -m bench.ten_injectors")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    random = torch.Generator().manual_seed(0)
    batch = {n: torch.rand(4, 3, 64, 64, generator=random) * 2 - 1 for n in ("pose", "appearance", "target")}
    batch["mask"] = (torch.rand(4, 1, 64, 64, generator=random) > 0.5).float()
    with tempfile.TemporaryDirectory() as folder:
        iterations = {
            "by hand": by_hand(INJECTORS),
            f"recipe, {INJECTORS} injectors": engine(Path(folder) / "ten", recipe(INJECTORS)),
            "recipe, none": engine(Path(folder) / "none", recipe(0)),
        }
        times = measured(iterations, batch, args.rounds, args.steps)
    rows: list[list[object]] = [["", "ms/step", "CPU ms/step", "ratio to by hand", "CPU ratio"]]
    for name, found in times.items():
        middle = [statistics.median(one[k] for one in found) * 1e3 for k in (0, 1)]
        rows.append([name, *middle, *(ratio(found, times["by hand"], k) for k in (0, 1))])
    ten, none = list(times.values())[1:]
    each = [statistics.median(t[k] - n[k] for t, n in zip(ten, none, strict=True)) / INJECTORS * 1e3 for k in (0, 1)]
    rows.append(["an injector", *each, "", ""])
    show(rows)


def measured(
    iterations: dict[str, Iteration], batch: dict[str, Any], rounds: int, steps: int
) -> dict[str, list[tuple[float, float]]]:
    """Return the wall and CPU seconds of an iteration for each round; the first round warms up."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in iterations}
    for turn in range(rounds + 1):
        for name in list(iterations)[:: 1 if turn % 2 else -1]:
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(steps):
                iterations[name](batch)
            if turn:
                times[name].append(((time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps))
    return times


def ratio(found: list[tuple[float, float]], base: list[tuple[float, float]], which: int) -> float:
    """Return the median over rounds of the ratio of two times."""
    return statistics.median(a[which] / b[which] for a, b in zip(found, base, strict=True))


if __name__ == "__main__":
    main()
