"""What bench/before_after.py measures, and the process that measures one of them with the code of some checkout.

`figura`, `models` and `stages` are those of the checkout, `bench` is this one. So this page and what it imports of
`bench` keep to what the oldest checkout to be measured has.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

import figura
import models
from bench.table import most_resident, seconds
from bench.trainings import DEFAULTS, ON_A_CPU, PUBLISHED, Case, start
from figura.base.modes import evaluating
from figura.engine.build import build_loaders, build_networks, make_accelerator
from figura.engine.inference import named_injectors, run_injectors
from figura.evaluation.evaluate import Evaluation
from figura.interfaces import Injector
from figura.recipe.schema import Recipe

Call = Callable[[], object]


@dataclass(frozen=True)
class Step:
    """An iteration of a training on one batch."""

    case: Case

    def __call__(self, checkout: Path, folder: Path) -> Call:
        """Return the function to time; it may write into `folder`, which other processes share."""
        return start(self.case.recipe(checkout=checkout), folder / str(os.getpid())).step


@dataclass(frozen=True)
class Loading:
    """The next training batch, made in this process."""

    case: Case

    def __call__(self, checkout: Path, folder: Path) -> Call:
        """Return the function to time."""
        recipe = self.case.recipe(checkout=checkout)
        batches = iter(build_loaders(recipe, make_accelerator(recipe)).train(0))
        return lambda: next(batches)


@dataclass(frozen=True)
class Forward:
    """The networks of one of `evaluate.modes`, as eval-dump runs them, on random pictures in [-1, 1] of `shapes`."""

    case: Case
    mode: str
    shapes: Mapping[str, tuple[int, ...]]

    def injectors(self, recipe: Recipe) -> dict[str, Injector]:
        """Return the mode's injectors that call networks."""
        entries = {n: one for n, one in recipe.evaluate.modes[self.mode].injectors.items() if one.type == "Forward"}
        return named_injectors(entries, f"evaluate.modes.{self.mode}.injectors")

    def __call__(self, checkout: Path, folder: Path) -> Call:
        """Return the function to time."""
        recipe = self.case.recipe(checkout=checkout)
        accelerator, last = make_accelerator(recipe), recipe.train.steps or 1
        networks = Evaluation(recipe, build_networks(recipe), folder, accelerator, data={}).networks
        injectors, random = self.injectors(recipe), torch.Generator().manual_seed(0)
        batch = {name: torch.rand(shape, generator=random) * 2 - 1 for name, shape in self.shapes.items()}

        def forward() -> None:
            with evaluating(*networks.live.values()):
                run_injectors(injectors, batch, networks, last, accelerator)

        return forward


def encoding(checkout: Path, folder: Path) -> Call:
    """Joint and limb targets of five persons at 193 px, stride 8."""
    from bench.inputs import STRIDE, scene
    from figura.formats.skeletons import COCO
    from models.pose.encoders import Caf, Cif

    encoders, people, side = (Cif(COCO, STRIDE), Caf(COCO, STRIDE)), scene(5, 193), 193
    return lambda: [one.encode(people, (side, side), (0.0, 0.0, side - 1.0, side - 1.0)) for one in encoders]


def decoding(checkout: Path, folder: Path) -> Call:
    """The people in the fields of an image of five persons at 385 px, stride 8."""
    from bench.inputs import STRIDE, fields
    from models.pose.decode.cifcaf import CifCafDecoder

    (cif, caf), decode = fields(5, 385), CifCafDecoder(stride=STRIDE, force_complete=True)
    return lambda: decode(cif, caf)


def pose(size: int) -> Forward:
    """Return the published network at its size, ShuffleNetV2K16 at 385 px."""
    return Forward(PUBLISHED["pose"].changed("evaluate.data={}"), "poses", {"image": (size, 3, 385, 385)})


VUNET, PIX2PIX, POSE, SUPER_RESOLUTION = DEFAULTS.values()
SMALL = (1, 3, 64, 64)
CASES: dict[str, Callable[[Path, Path], Call]] = {
    **{f"step, {name}": Step(case) for name, case in ON_A_CPU.items()},
    "forward, published pose, 385 px x 8": pose(8),
    "forward, published pose, 385 px x 1": pose(1),
    "forward, pose, 193 px x 1": Forward(POSE, "poses", {"image": (1, 3, 193, 193)}),
    "forward, vunet, 64 px x 1": Forward(VUNET, "reconstruction", {"pose": SMALL, "target": SMALL}),
    "forward, pix2pix, 64 px x 1": Forward(PIX2PIX, "translation", {"x": SMALL}),
    "forward, super_resolution, 96 px x 1": Forward(SUPER_RESOLUTION, "upscaling", {"lq": (1, 3, 96, 96)}),
    "encoder, 5 persons, 193 px": encoding,
    "decoder, 5 persons, 385 px": decoding,
    **{f"loader, {name}": Loading(case) for name, case in DEFAULTS.items()},
}


def serve(case: str, code: Path, recipes: Path, folder: Path) -> None:
    """Make a case ready; for each line with a number of seconds, measure and answer with a line of JSON.

    `code` is the checkout whose packages must be the ones that are loaded, `recipes` the one whose recipes count,
    `folder` that of all processes of the case; they get ready one after another.
    """
    for package in (figura, models):
        loaded = Path(str(package.__file__))
        if not loaded.is_relative_to(code):
            raise SystemExit(f"loaded {loaded}, which is not of {code}")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a trainer prints is no answer
    call = CASES[case](recipes, folder)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    for line in sys.stdin:
        answer = {"seconds": seconds(call, float(line)), "peak": most_resident()}
        print(json.dumps(answer), file=answers, flush=True)
