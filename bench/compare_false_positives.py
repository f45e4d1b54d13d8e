"""How often `figura compare` finds a difference between trainings of one recipe, which differ in their seed alone.

`python -m bench.compare_false_positives [--pairs 20]` trains twice as many seeds of a tiny recipe. It compares them in
pairs, and random sets of 1, 2, 3 and 5 seeds a side; these share trainings, so their rates are unbiased but not
independent. Nominal is 0.05. Then it compares them with what is really worse: fewer steps.
"""

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bench.table import show
from figura.commands.compare.comparison import Estimates, compare, estimate
from figura.commands.compare.resampling import Effect, PairedBootstrap
from figura.commands.compare.revisions import Revision
from figura.dump import Dump
from figura.evaluation.trained import load_trained, write_dump
from figura.interfaces import Example, ExampleDataset
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from figura.training.trainer import Trainer

STEPS, FEWER, IMAGES, SETS = 40, 34, 100, 200
SIZES = (1, 2, 3, 5)
HERE = "bench.compare_false_positives"


class Edges(ExampleDataset):
    """`x` (3, 16, 16) a smooth picture, `y` the same with hard edges and other colours."""

    names: ClassVar[tuple[str, ...]] = ("x", "y", "index")

    def __init__(self, length: int, first: int = 0) -> None:
        self.length, self.first = length, first

    def __len__(self) -> int:
        return self.length

    def example(self, index: int, random: np.random.Generator) -> Example:
        coarse = np.random.default_rng(self.first + index).uniform(-1, 1, (3, 4, 4)).astype(np.float32)
        x = coarse.repeat(4, axis=1).repeat(4, axis=2)
        return {"x": x, "y": np.roll(np.sign(x) * np.sqrt(np.abs(x)), 1, axis=0), "index": index}


class Painter(nn.Module):
    """Two convolutions and dropout."""

    outputs: ClassVar[tuple[str, ...]] = ("image",)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Dropout(0.1), nn.Conv2d(16, 3, 1))

    def forward(self, x: Tensor) -> Mapping[str, Tensor]:
        return {"image": self.layers(x)}


def recipe(seed: int, steps: int = STEPS) -> Recipe:
    """Return the recipe."""
    paint = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "image"}}
    pair = {"image": "image", "target": "y"}
    content: dict[str, Any] = {
        "seed": seed,
        "data": {
            "train": {"edges": {"type": f"{HERE}.Edges", "length": 400, "first": 1000}},
            "validation": {"edges": {"type": f"{HERE}.Edges", "length": IMAGES}},
            "batch_size": 4,
        },
        "networks": {"painter": {"type": f"{HERE}.Painter"}},
        "losses": {
            "L1": {"type": "images.L1", "inputs": pair, "weight": 1.0},
            "gradient": {"type": "images.Gradient", "signed": True, "inputs": pair, "weight": 0.1},
        },
        "steps": {
            "painter": {
                "trains": ["painter"],
                "optimizer": {"type": "torch.optim.Adam", "lr": 0.01},
                "injectors": {"paint": paint},
            }
        },
        "train": {"steps": steps, "precision": "no", "evaluate_every": steps, "evaluate_limit": 1,
                  "record_every": steps, "max_nonfinite": 3},
        "evaluate": {"batch_size": 50, "inputs": {}, "modes": {"plain": {"injectors": {"paint": paint}, "save": {}}}},
        "metrics": {
            "bootstrap": 500,
            "confidence": 0.95,
            "summary": {name: {"metric": f"losses.{name}", "better": "lower"} for name in ("L1", "gradient")},
            "scores": {"losses": {"type": "images.MeanLosses", "mode": "plain"}},
        },
        "runtime": {"workers": 0, "log_every": 1000, "resume_every": 1000, "progress": False, "timing": False,
                    "trackers": [], "samples": None},
    }  # fmt: skip
    return check_recipe(content, Path("tiny.yaml"))


def dumped(run: Path, seed: int, steps: int = STEPS) -> Dump:
    """Train in silence, and return the dump."""
    tiny, silence = recipe(seed, steps), io.StringIO()
    with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        Trainer(tiny, run).fit()
        write_dump(*load_trained(run / "model", tiny), run / "dump")
    return Dump(run / "dump")


def judged(sides: Sequence[Sequence[str]], estimates: Estimates, bootstrap: PairedBootstrap) -> dict[str, Effect]:
    """Compare two sets of trainings as if their recipes differed."""
    settings = [
        [Revision(name, Path(), place, {"side": side}, {}) for place, name in enumerate(names)]
        for side, names in enumerate(sides)
    ]
    (comparison,) = compare(settings, estimates, recipe(0).metrics.summary, bootstrap)
    return dict(comparison.effects)


def rates(effects: Sequence[Mapping[str, Effect]], name: str) -> list[object]:
    """Return how many comparisons there are, and the share that differs by images alone, and with seeds."""
    seeds = [one[name].beyond_seeds for one in effects if one[name].seeds is not None]
    images = np.mean([one[name].beyond_images for one in effects])
    return [len(effects), f"{images:.3f}", f"{np.mean(seeds):.3f}" if seeds else "unknown"]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    torch.set_num_threads(1)
    bootstrap, start = PairedBootstrap(500, 0.95, 0), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        dumps = {f"seed {seed}": dumped(Path(folder) / str(seed), seed) for seed in range(2 * pairs)}
        fewer = {f"fewer {s}": dumped(Path(folder) / f"fewer{s}", s, FEWER) for s in range(100, 100 + max(SIZES))}
        estimates = estimate(recipe(0), dumps | fewer, bootstrap).estimates
    seconds = (time.perf_counter() - start) / (len(dumps) + len(fewer))
    print(f"{len(dumps)} seeds and {len(fewer)} with {FEWER} of {STEPS} steps, {seconds:.1f} s each; {IMAGES} images")
    random, seeds = np.random.default_rng(0), list(dumps)
    table: list[list[object]] = [
        ["", "metric", "seeds a side", "comparisons", "differ by images alone", "by images and seeds"]
    ]
    disjoint = [judged([[a], [b]], estimates, bootstrap) for a, b in zip(seeds[::2], seeds[1::2], strict=True)]
    sets = {size: [list(map(str, random.permutation(seeds)[: 2 * size])) for _ in range(SETS)] for size in SIZES}
    same = {k: [judged([one[:k], one[k:]], estimates, bootstrap) for one in sets[k]] for k in SIZES if k <= pairs}
    worse = {k: [judged([one[:k], list(fewer)[:k]], estimates, bootstrap) for one in sets[k]] for k in same}
    for name in estimates:
        table.append(["the same recipe, pairs", name, 1, *rates(disjoint, name)])
        table += [["the same recipe, sets", name, size, *rates(effects, name)] for size, effects in same.items()]
        table += [[f"{FEWER} of {STEPS} steps", name, size, *rates(effects, name)] for size, effects in worse.items()]
    show(table)
    for name, one in estimates.items():
        spread = np.std([one[seed]["value"] for seed in seeds], ddof=1)
        worse_by = np.mean([one[k]["value"] for k in fewer]) - np.mean([one[k]["value"] for k in seeds])
        print(f"{name}: standard deviation between seeds {spread:.4g}, {FEWER} of {STEPS} steps {worse_by:+.4g}")


if __name__ == "__main__":
    main()
