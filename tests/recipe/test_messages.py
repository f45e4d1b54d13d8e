"""What broken recipes are told: `messages.txt` has each fault and its lines, up to the list of allowed words.

A line `# recipe, until` says which recipe the blocks from there on change, and how far it gets: it is checked, its
networks and optimizers are `built`, or it runs on two `examples`, which are noise in the right shapes. `+ key: value`
sets a key, `- key` removes one, and `examples.x` stands for the shape of x. After a change of a message, renew the file
and read what differs:

    PYTHONPATH=.:tests python tests/recipe/test_messages.py; git diff tests/recipe/messages.txt
"""

import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import toy
from accelerate import Accelerator
from loading import find_class

from figura.base.error_collector import ErrorCollector, locate
from figura.base.errors import UserError
from figura.base.modes import unchanged
from figura.base.yaml12 import parse_yaml
from figura.engine.build import build_networks, build_steps
from figura.interfaces import Callback, Example, ExampleDataset, Injector, Records
from figura.prediction.inputs import PhotoExamples
from figura.recipe.load import check_recipe
from figura.recipe.other_systems import WORDS
from figura.recipe.schema import Declaration, Recipe
from figura.training.sanity_check import in_bytes, sanity_check

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("messages.txt")
VUNET, PIX, POSE, SR = "params.yaml", "recipes/pix2pix.yaml", "recipes/pose.yaml", "recipes/super_resolution.yaml"
SMALL: dict[str, dict[str, Any]] = {
    VUNET: {"networks.generator.nf_start": 4, "networks.generator.nf_max": 8},
    PIX: {"networks.generator.features": 4, "networks.discriminator.features": 4},
    POSE: {"networks.network.backbone.widths": [4, 4, 8, 8], "networks.network.heads.cifdet.fields": 5},
    SR: {"networks.generator.features": 4, "networks.generator.growth": 4, "networks.discriminator.features": 4},
}


class ListedPhotos(PhotoExamples):
    """Photos with names that an argument lists."""

    names = ("x", "index")

    def __init__(self, columns: dict[str, str]) -> None:
        self.columns = columns

    @classmethod
    def provides(cls, arguments):
        return (*cls.names, *arguments["columns"].values())


class Misspelt(Callback):
    """A callback whose only method is called by nothing."""

    def after_updates(self, trainer, step, report):
        pass


class Adding(Injector):
    """Adds names that are others than it says."""

    def __init__(self, says: list[str], adds: list[str]) -> None:
        self.adds, self.added = tuple(says), adds

    def __call__(self, state, networks, step):
        for name in self.added:
            state.add(name, state["x"])


class LetteredRamps(toy.Ramps):
    names = "x"  # type: ignore[assignment]  # a comma is missing, here and below


class LetteredPainter(toy.Painter):
    outputs = "image"  # type: ignore[assignment]


class Lettered(Adding):
    reads = "x"  # type: ignore[assignment]


class Curved(torch.optim.SGD):
    """An optimizer that needs second derivatives, as AdaHessian does."""

    def step(self, closure=None):
        (one,) = self.param_groups[0]["params"]
        torch.autograd.grad(one.grad.sum(), one)


class Rateless(torch.optim.Optimizer):
    """One that has a rate of its own making, as A2Grad does."""

    def __init__(self, params) -> None:
        super().__init__(params, {})


class Compared(toy.Mean):
    """A score of one's own, whose words only it knows."""

    def __init__(self, mode: str, image: str, target: str) -> None:
        super().__init__("loss.distance")


class Shapes(ExampleDataset):
    """Noise in [-1, 1] of given shapes; other values as they are."""

    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **given: Any) -> None:
        self.given = given

    def __len__(self) -> int:
        return 3

    def example(self, index: int, random: np.random.Generator) -> Example:
        shaped = {k: random.uniform(-1, 1, v).astype(np.float32) for k, v in self.given.items() if isinstance(v, tuple)}
        return {"index": index} | self.given | shaped


def images(*names: str, side: int = 64, channels: int = 3) -> dict[str, Any]:
    return dict.fromkeys(names, (channels, side, side))


FIELDS = {"cif_target": (17, 5, 11, 11), "caf_target": (19, 9, 11, 11), "cifdet_target": (5, 7, 11, 11)}
PARTS = ("mask", "top", "bottom", "appearance_top", "appearance_bottom")
RECORDED = {
    "image_id": 1, "images": 2, "to_original": (2, 3), "joints": (17, 3), "truth": Records(), "person_height": 1.0,
}  # fmt: skip
DATA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    VUNET: (
        images("pose", "appearance", "target") | images("mask", channels=1),
        images("pose", "appearance", "target", "foreign") | images(*PARTS, channels=1),
    ),
    PIX: (images("x", "y"), images("x", "y")),
    POSE: (images("image", side=81) | FIELDS, images("image", side=81) | FIELDS | RECORDED),
    SR: (images("hq") | images("lq", side=32), images("hq", "bicubic", "lanczos", side=96) | images("lq", side=48)),
}


@cache
def content(file: str) -> dict[str, Any]:
    return {"toy": toy.recipe, "gan": toy.gan}[file]() if file in ("toy", "gan") else toy.shipped(file)


def check(file: str, edits: dict[str, Any]) -> Recipe:
    return check_recipe(toy.changed(SMALL.get(file, {}) | edits, content(file)), Path(file))


def on_examples(file: str, edits: dict[str, Any]) -> list[str]:
    """Return the errors of the sanity check."""
    shapes = {key.partition(".")[2]: tuple(one) for key, one in edits.items() if key.startswith("examples.")}
    recipe = check(file, {key: one for key, one in edits.items() if not key.startswith("examples.")})
    errors = ErrorCollector(Path(file))
    train, validation = ({"some": Shapes(**(one | shapes))} for one in DATA[file])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that shapes differ before it raises
        sanity_check(recipe, build_networks(recipe), train, validation, errors)
    return errors.lines


def told(file: str, until: str, edits: dict[str, Any]) -> list[str]:
    """Return the lines about a recipe without its name, up to the list of allowed words."""
    try:
        lines = on_examples(file, edits) if until == "on examples" else []
        if until == "built":
            recipe = check(file, edits)
            build_steps(recipe, build_networks(recipe), Accelerator(cpu=True))
        elif until == "":
            check(file, edits)
    except UserError as error:
        lines = str(error).splitlines()
    return [line.removeprefix(f"{file}: ").partition("; allowed: ")[0] for line in lines]


def again(head: str, block: str) -> str:
    """Return a block of the file as it is today."""
    changes = [line for line in block.splitlines() if line[:2] in ("+ ", "- ")]
    edits: dict[str, Any] = {}
    for line in changes:
        key, _, value = line[2:].partition(": ")
        edits[key] = parse_yaml(value, key) if line[0] == "+" else ...
    file, _, until = head.removeprefix("# ").partition(", ")
    return "\n".join([*changes, *told(file, until, edits)])


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the head and the lines of each block; one without a head has that of the block before it."""
    found: list[tuple[str, str]] = []
    for block in text.rstrip("\n").split("\n\n"):
        first, _, rest = block.partition("\n")
        found.append((first, rest) if first.startswith("# ") else (found[-1][0], block))
    return found


BLOCKS = blocks(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("head", "block"), BLOCKS, ids=[block.split(":")[0].split()[1] for _, block in BLOCKS])
def test_a_broken_recipe_is_told_what_the_file_says(head, block):
    assert again(head, block) == block


@pytest.mark.parametrize("file", SMALL)
def test_the_recipes_pass_the_sanity_check(file):
    assert on_examples(file, {}) == []


def test_the_sanity_check_changes_nothing():
    recipe = check(PIX, {"networks.generator.norm": "batch", "networks.discriminator.norm": "batch"})
    networks = build_networks(recipe)
    before = {f"{n}.{k}": v.clone() for n, network in networks.items() for k, v in network.state_dict().items()}
    modes = [module.training for network in networks.values() for module in network.modules()]
    assert any("running_mean" in name for name in before)
    random = torch.random.get_rng_state()
    data = {"some": Shapes(**DATA[PIX][0])}
    with unchanged(*networks.values()):
        sanity_check(recipe, networks, data, data, ErrorCollector(Path(PIX)))
    after = {f"{n}.{k}": v for n, network in networks.items() for k, v in network.state_dict().items()}
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert modes == [module.training for network in networks.values() for module in network.modules()]
    assert all(p.grad is None for network in networks.values() for p in network.parameters())
    assert torch.equal(random, torch.random.get_rng_state())


def test_data_that_cannot_be_read_or_have_no_examples_are_told_at_their_keys():
    class Broken(Shapes):
        def example(self, index: int, random: np.random.Generator) -> Example:
            raise UserError("picture.png: no readable picture")

    class Empty(Shapes):
        def __len__(self) -> int:
            return 0

    recipe, errors = check(PIX, {}), ErrorCollector(Path(PIX))
    sanity_check(recipe, build_networks(recipe), {"pairs": Broken()}, {"pairs": Empty()}, errors)
    validation = f"{PIX}: data.validation.pairs: has no examples"
    assert errors.lines == [validation, f"{PIX}: data.train.pairs: picture.png: no readable picture"]


def test_pictures_in_bytes_are_told_once(capsys):
    """A warning: the training goes on, and what they mean is the network's."""
    recipe = check("toy", {})
    pictures = {"p": Shapes(x=(1, 4, 4), y=(1, 4, 4), picture=np.full((3, 4, 4), 200, np.uint8))}
    errors = ErrorCollector(Path("toy"))
    sanity_check(recipe, build_networks(recipe), pictures, pictures, errors)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("warning: data.train.p: 'picture' seems to be a picture of values up to 255; ")
    assert errors.lines == []


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (torch.full((2, 3, 4, 4), 255.0), True),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), True),
        (torch.full((2, 3, 4, 4), 1.0), False),
        (torch.full((2, 3, 4, 4), 300.0), False),
        (torch.full((2, 1, 4, 4), 255, dtype=torch.uint8), False),  # perhaps labels
        (torch.full((2, 3), 200.0), False),
        ("text", False),
    ],
)
def test_what_seems_to_be_a_picture_in_bytes(value, told):
    assert in_bytes(value) == told


# words of other systems: each is answered by what exists here

HINTS = {(what, word): hint for what, words in WORDS.items() for word, hint in words.items()}


@pytest.mark.parametrize("hint", sorted(set(HINTS.values())))
def test_what_a_hint_names_exists(hint):
    quoted = re.findall(r"`([^`]+)`", hint)
    classes = [one for one in quoted if re.fullmatch(r"(?:\w+\.)*[A-Z][A-Za-z0-9]+", one)]
    for name in re.findall(r"type: ([\w.]+)", hint) + classes:
        assert find_class(name) is not None, name
    for key in (re.split(r":| ", one)[0].split(".") for one in quoted):
        if key[0] in Recipe.model_fields and key[-1]:
            place = locate(Recipe, key)
            fields = {name for schema in place.schemas for name in schema.model_fields}
            own = any(issubclass(schema, Declaration) for schema in place.schemas)
            assert len(key) == 1 or own or key[-1] in fields, key


if __name__ == "__main__":
    texts, before = [], ""
    for head, block in BLOCKS:
        texts.append(again(head, block) if head == before else f"{head}\n{again(head, block)}")
        before = head
    FILE.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
