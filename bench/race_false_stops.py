"""How often `figura race` stops settings that are equal, or the better one: `python -m bench.race_false_stops`.

Grids of K settings are judged at one rung by the code of the race (figura/commands/rungs.py), with values of images and
effects of seeds drawn from normal distributions. `spread` is the standard deviation of the latter; images add `--noise`
to the difference of two trainings. `margin` and `ahead`, the lead of the setting 0, have the same unit.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from bench.table import show
from figura.commands.rungs import standings
from figura.report.resampling import PairedBootstrap, PairedEstimate

SEED, SAMPLES, CONFIDENCE = 7, 500, 0.95


def grids(args: argparse.Namespace, seeds: int, spread: float, ahead: float) -> Iterator[dict[str, list]]:
    """Yield grids of estimates, lower is better; the setting `0` is better by `ahead`."""
    random, bootstrap = np.random.default_rng(SEED), PairedBootstrap(SAMPLES, CONFIDENCE, SEED)
    for _ in range(args.grids):
        hard = random.normal(0, 5, args.images)  # for all of them
        yield {
            str(setting): [_estimate(args, random, bootstrap, hard - lead, spread) for _ in range(seeds)]
            for setting, lead in enumerate([ahead, *[0.0] * (args.settings - 1)])
        }


def _estimate(
    args: argparse.Namespace, random: np.random.Generator, bootstrap: PairedBootstrap, hard: np.ndarray, spread: float
) -> PairedEstimate:
    own = random.normal(0, args.noise * np.sqrt(args.images / 2), args.images)
    estimate = bootstrap.estimate(hard + own + spread * random.normal())
    assert isinstance(estimate, PairedEstimate)
    return estimate


def main() -> None:
    """Print a row for each number of seeds, effect of seeds, margin and lead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grids", type=int, default=1000)
    parser.add_argument("--settings", type=int, default=6)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--noise", type=float, default=0.3, help="spread over images of a difference of two trainings")
    args = parser.parse_args()
    bootstrap = PairedBootstrap(SAMPLES, CONFIDENCE, SEED)
    head = "seeds,spread,margin,ahead,races with a stop,worse half stopped,0 stopped,0 first"
    rows: list[tuple[str, ...]] = [tuple(head.split(","))]
    for seeds, spread, margin, ahead in (
        (1, 0.0, 0.0, 0.0), (1, 1.0, 4.0, 0.0), (3, 0.0, 0.0, 0.0), (3, 1.0, 0.0, 0.0),
        (1, 1.0, 4.0, 1.0), (3, 1.0, 0.0, 1.0), (3, 1.0, 0.0, 4.0),
    ):  # fmt: skip
        any_stop = stopped = lost = first = 0
        for grid in grids(args, seeds, spread, ahead):
            found = standings(grid, "lower", bootstrap, margin)
            stops = {name for name, one in found.items() if not one.goes_on}
            any_stop, stopped = any_stop + bool(stops), stopped + len(stops)
            lost, first = lost + ("0" in stops), first + (next(iter(found)) == "0")
        counts = (any_stop, stopped / (args.settings // 2), lost, first)
        shares = (f"{count / args.grids:.1%}" for count in counts)
        rows.append((str(seeds), f"{spread:g}", f"{margin:g}", f"{ahead:g}", *shares))
    show(rows)


if __name__ == "__main__":
    main()
