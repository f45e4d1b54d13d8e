"""Pages and tables for people who come from other systems: keys, values, commands and recipes in them are real ones.

The pages show the other system's configuration beside the recipe that says the same; numbers of both are compared.
"""

import inspect
import json
import math
import re
import typing
from dataclasses import fields
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from loading import find_class
from test_docs import TEXT, content, fences, merged, outside_blocks
from test_docs import spans as own_spans

from figura.base.error_collector import ErrorCollector, alternatives, is_schema, locate
from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml
from figura.commands.translate.command import translated
from figura.engine.build import build_schedule
from figura.recipe.assignments import overridden
from figura.recipe.completion import with_data
from figura.recipe.load import check_recipe
from figura.recipe.schema import Declaration, Recipe
from figura.recipe.types import LOSS, NETWORK, build
from models.pose.scenes import KINDS

ROOT = Path(__file__).parents[1]
PATHS = {path.stem: path for path in (ROOT / "docs/coming_from").glob("*.md")}
SYSTEMS = {"nectargan": ("nectargan", "junyanz"), "vunet": ("edflow",)}
TABLES = {path.stem.removeprefix("translate_"): path.read_text() for path in ROOT.glob("models/*/translate_*.md")}
PAGES = {
    name: "\n".join([path.read_text(), *(TABLES[system] for system in SYSTEMS.get(name, (name,)))])
    for name, path in PATHS.items()
}
"""Each page, and the tables that it names."""
RECIPES = ["params.yaml", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "recipes").rglob("*.yaml"))]
RECIPE = {"nectargan": "recipes/pix2pix.yaml", "vunet": "params.yaml"}  # what a page's keys are about first
EXAMPLES = {"nectargan": 400, "vunet": 946}  # pictures of the training that a page translates whole
WHOLE = {"openpifpaf": "openpifpaf_shufflenetv2k16", "dl_art_school": "esrgan_x4_gan", "basicsr": "esrgan_x4_gan"}
"""The published recipe that a page names."""
KEY = rf"((?:{'|'.join(Recipe.model_fields)}|datasets)(?:\.(?:\w+|<\w+>))+)(?:(?:: |=)(.+))?"
FILE = re.compile(r"\.(py|yaml|json|md|csv)$")
each_page = pytest.mark.parametrize("page", PAGES)


def spans(text: str) -> list[str]:
    return [span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", text)]


def rows(page: str) -> list[list[str]]:
    """The cells of each row of each table, outside of blocks of code."""
    lines = [
        line
        for line in outside_blocks(PAGES[page]).splitlines()
        if line.startswith("|") and not line.startswith("| ---")
    ]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def whole(page: str) -> dict[str, Any]:
    """The recipe that is made of a page's configuration."""
    with TemporaryDirectory() as folder:
        (file := Path(folder, "config.json")).write_text(json.dumps(original(page)))
        return translated(str(file), EXAMPLES[page], Path(folder, "recipe.yaml")).recipe


def original(page: str) -> dict[str, Any]:
    """The configuration that a page translates."""
    if page == "nectargan":
        return json.loads((PATHS[page].parent / "nectargan_facades.json").read_text())["config"]
    if page == "vunet":
        (text,) = [block for block in fences(PAGES[page], "yaml") if block.startswith("# edflow")]
        return parse_yaml(text, page)
    (text,) = fences(PAGES[page], "yaml [^\n]+")
    return yaml.safe_load(text)  # as DL-Art-School reads it: YAML 1.1


def leaves(section: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys of values that are no maps, or empty ones."""
    return [
        key
        for name, value in section.items()
        for key in (leaves(value, f"{prefix}{name}.") if isinstance(value, dict) and value else [f"{prefix}{name}"])
    ]


@pytest.mark.parametrize("page", RECIPE)
def test_every_key_of_the_original_has_a_row(page):
    named = {span for row in rows(page) for span in spans(row[0])}
    assert set(leaves(original(page))) <= named


# --- keys and values ---


def keys(page: str) -> list[tuple[str, str]]:
    """The keys of figura that a page names in its tables, with the value that follows, or nothing."""
    said = [span for row in rows(page) for cell in row[1:] for span in spans(cell)]
    said = [re.sub(r"^A\.", "data.train.pairs.augmentation.", span) for span in said]  # on the page of NectarGAN
    said = [re.sub(r"\.0$", "", span) for span in said]  # the first of a list
    found = [re.fullmatch(KEY, span) for span in said if not FILE.search(span)]
    return list(dict.fromkeys((one[1], one[2] or "") for one in found if one))


def arguments(value: Any, name: str) -> list[Any]:
    """The annotations of an argument that a declaration's class takes."""
    taken = find_class(value["type"]) if isinstance(value, dict) and "type" in value else None
    if taken is None:
        return []
    hints = typing.get_type_hints(taken.__init__)
    known = [one for one in (name, f"{name}_") if one in inspect.signature(taken).parameters]
    return [one for argument in known for one in alternatives(hints.get(argument, Any))]


def below(kind: Any, value: Any, name: str) -> list[Any]:
    """What a key may be in a section, a map of names, or a declaration, whose content is `value`."""
    if is_schema(kind):
        annotations = {info.alias or field: info.annotation for field, info in kind.model_fields.items()}
        if name in annotations:
            return alternatives(annotations[name])
        return arguments(value, name) if issubclass(kind, Declaration) else []
    if typing.get_origin(kind) is dict:
        known = isinstance(value, dict) and (name in value or name.startswith("<"))
        return alternatives(typing.get_args(kind)[1]) if known else []
    return []


@cache
def with_its_data(file: str) -> dict[str, Any]:
    return with_data(content(file), ErrorCollector(Path(file)))


def exists(key: str, file: str) -> bool:
    """Whether a recipe may have a dotted key: names are those of the file, arguments those of its classes."""
    value: Any = with_its_data(file)
    if "data" not in value:  # it judges what another one trained
        return False
    first = next(iter(value["data"]["train"]))
    kinds: list[Any] = [Recipe]
    for name in re.sub(r"^data\.common", f"data.train.{first}", key).split("."):
        kinds = [one for kind in kinds for one in below(kind, value, name)]
        if not kinds:
            return False
        value = value.get(name) if isinstance(value, dict) else None
    return True


def has(tree: Any, names: list[str]) -> bool:
    """Whether a params file has a dotted key, in which `<name>` is any name."""
    if not names or not isinstance(tree, dict):
        return not names
    entries = tree.values() if names[0].startswith("<") else [tree[names[0]]] if names[0] in tree else []
    return any(has(entry, names[1:]) for entry in entries)


def in_schema(names: list[str]) -> bool:
    """Whether the last name is a field of the schema; those before may be any names that people choose."""
    schemas = locate(Recipe, names).schemas
    return any(names[-1] in {info.alias or name for name, info in one.model_fields.items()} for one in schemas)


def known(page: str, key: str) -> bool:
    """Whether a recipe of the repository, or data/params.yaml, has or may have a key."""
    if key.startswith("datasets."):
        return has(content("data/params.yaml"), key.split("."))
    files = [RECIPE[page]] if page in RECIPE else RECIPES
    return any(has(content(file), key.split(".")) or exists(key, file) for file in files)


@each_page
def test_keys_exist(page):
    named = {key for key, value in keys(page) if not value}
    assert len(named) > 15
    assert [key for key in sorted(named) if not known(page, key) and not in_schema(key.split("."))] == []


def test_keys_on_pages_of_ours_exist():
    said = {(page, span) for page in TEXT if Path(page).stem not in PAGES for span in own_spans(page)}
    named = {(page, one[1]) for page, span in said if (one := re.fullmatch(KEY, span)) and not FILE.search(span)}
    assert len(named) > 50
    assert [one for one in sorted(named) if not known(*one) and not in_schema(one[1].split("."))] == []


def fits(file: str, setting: str) -> bool:
    """Whether a recipe passes all checks with one key changed, and what the change names can be built."""
    section, name, *_ = setting.partition("=")[0].split(".")
    try:
        recipe = check_recipe(overridden(content(file), [setting], list(Recipe.model_fields), Path(file)), Path(file))
        if section == "networks":
            build(recipe.networks[name], NETWORK, name, Path(file))
    except UserError:
        return False
    entries = [*recipe.data.train.values(), *recipe.data.validation.values(), *recipe.evaluate.data.values()]
    heads = [head for entry in entries for head in entry.arguments.get("heads", {}).items()]
    return all(  # encoders are built only where there is data
        set(one) - {"kind"} <= {field.name for field in fields(KINDS[one.get("kind", name)])} for name, one in heads
    )


@each_page
def test_a_key_takes_the_value_that_is_named(page):
    files = [RECIPE[page]] if page in RECIPE else [f"recipes/published/{WHOLE[page]}.yaml", *RECIPES]
    values = [f"{key}={value}" for key, value in keys(page) if value and not key.startswith("datasets.")]
    assert len(values) > 5

    def likely(value: str) -> list[str]:  # those that have the key first: each check takes a while
        return sorted(files, key=lambda file: not has(content(file), value.partition("=")[0].split(".")))

    assert [one for one in values if not any(fits(file, one) for file in likely(one))] == []


def test_what_does_not_fit_is_found():
    for key, right, wrong in (
        ("networks.generator", "n_downs", "downs"),
        ("data.train.pairs.augmentation.input.compression", "quality", "size"),
    ):
        assert exists(f"{key}.{right}", "recipes/pix2pix.yaml")
        assert not exists(f"{key}.{wrong}", "recipes/pix2pix.yaml")
    for wrong in ("networks.network.heads.cif.upsampl=2", "data.common.heads.cif.bmi=1", "train.ema.rate=0.9"):
        assert not fits("recipes/pose.yaml", wrong)


# --- numbers ---


def published(page: str) -> Recipe:
    """The published recipe that a page shows whole."""
    file = f"recipes/published/{WHOLE[page]}.yaml"
    return check_recipe(content(file), Path(file))


def test_adversarial_losses_of_the_whole_recipe_are_those_of_the_configuration():
    """DL-Art-School's `ragan`: the generator has half the sum of two cross-entropies, the discriminator all of it."""
    real, fake = np.random.default_rng(3).normal(size=(2, 5, 1))

    def cross_entropy(logits: np.ndarray, label: int) -> float:
        return float(np.logaddexp(0, -logits if label else logits).mean())

    def total(step: str, **logits: np.ndarray) -> float:
        entries = {name: one for name, one in published("dl_art_school").losses.items() if "Adversarial" in one.type}
        value = 0.0
        for name, entry in entries.items():
            if entry.step == step:
                inputs = {role: torch.from_numpy(logits[source]) for role, source in entry.inputs.items()}
                value += entry.weight * float(build(entry, LOSS, name)(**inputs).mean())
        return value

    theirs = original("dl_art_school")["steps"]
    differences = real - fake.mean(), fake - real.mean()
    generator = (cross_entropy(differences[0], 0) + cross_entropy(differences[1], 1)) / 2
    discriminator = cross_entropy(differences[0], 1) + cross_entropy(differences[1], 0)
    weights = {name: step["losses"]["gan"]["weight"] for name, step in theirs.items()}
    assert total("G", judged_real=real, judged_fake=fake) == pytest.approx(weights["G"] * generator, rel=1e-6)
    assert total("D", real_logits=real, fake_logits=fake) == pytest.approx(weights["D"] * discriminator, rel=1e-6)


def test_nectargan_s_recipe_says_what_its_configuration_says():
    there, here = original("nectargan"), whole("nectargan")
    train, load = there["train"], there["dataloader"]["load"]
    generator, discriminator = here["networks"]["generator"], here["networks"]["discriminator"]
    assert [generator[key] for key in ("features", "n_downs")] == [
        train["generator"][key] for key in ("features", "n_downs")
    ]
    assert [discriminator[key] for key in ("features", "n_layers", "max_features")] == [
        train["discriminator"][key] for key in ("base_channels", "n_layers", "max_channels")
    ]
    names = {"gan": "GAN", "l1": "L1", "l2": "L2", "sobel": "SOBEL", "laplacian": "LAP", "vgg": "VGG"}
    for key, name in names.items():
        assert here["losses"][f"G_{name}"]["weight"] == train["loss"][f"lambda_{key}"]
    assert here["data"]["common"]["crop_size"] == load["crop_size"]
    assert here["data"]["train"]["pairs"]["load_size"] == load["load_size"]
    assert here["data"]["batch_size"] == there["dataloader"]["batch_size"]
    for step, network in (("D", "discriminator"), ("G", "generator")):
        optimizer = here["steps"][step]["optimizer"]
        assert optimizer["lr"] == train[network]["learning_rate"]["initial"]
        assert optimizer["betas"] == [train[network]["optimizer"]["beta1"], 0.999]


def test_nectargan_s_rates_by_epoch():
    recipe = check_recipe(whole("nectargan"), Path("nectargan.yaml"))
    rate = build_schedule(recipe.steps["G"].lr_schedule, "lr_schedule", ErrorCollector(Path()))
    epochs = range(1, 201)
    wanted = [1.0 if epoch <= 100 else 1 - (epoch - 100) / 101 for epoch in epochs]
    assert [rate(400 * (epoch - 1)) for epoch in epochs] == pytest.approx(wanted, abs=1e-12)
    printed = {101: 1.980198e-4, 199: 3.960396e-6, 200: 1.980198e-6}  # by NectarGAN
    assert {epoch: 2e-4 * rate(400 * (epoch - 1)) for epoch in printed} == pytest.approx(printed, rel=1e-6)
    assert recipe.train.steps == 400 * 200


def test_nectargan_s_weight_by_epoch():
    (block,) = [one for one in fences(PAGES["nectargan"], "yaml") if one.startswith("# in recipes/pix2pix.yaml")]
    recipe = check_recipe(merged(content("recipes/pix2pix.yaml"), parse_yaml(block, "page")), Path("page"))
    weight = build_schedule(recipe.losses["G_L1"].schedule, "schedule", ErrorCollector(Path()))
    # NectarGAN's table of linear 100 -> 0 from 2 to 6, whose epochs count from 0
    assert [100 * weight(400 * epoch) for epoch in range(8)] == [100, 100, 75, 50, 25, 0, 0, 0]


def test_vunet_s_recipe_says_what_its_configuration_says():
    there, here = original("vunet"), whole("vunet")
    generator, losses = here["networks"]["generator"], here["losses"]
    assert [generator[key] for key in ("nf_start", "nf_max", "dropout", "pose_channels", "appearance_channels")] == [
        there["model_pars"][key] for key in ("nf_start", "nf_max", "dropout_prob", "pose_channels", "img_channels")
    ]
    assert here["data"]["common"]["image_size"] == there["model_pars"]["spatial_size"]
    assert here["data"]["batch_size"] == there["batch_size"]
    assert here["steps"]["generator"]["optimizer"]["lr"] == there["lr"]
    for name in ("color_L1", "color_gradient", "color_L2", "perceptual"):
        assert losses[name]["weight"] == there["losses"][name]["weight"]
    assert list(losses["perceptual"]["layers"].values()) == there["losses"]["perceptual"]["vgg_feat_weights"]
    assert here["train"]["steps"] == math.ceil(there["num_epochs"] * 946 / there["batch_size"])
    recipe = check_recipe(here, Path("vunet.yaml"))
    ramp = build_schedule(recipe.losses["KL"].schedule, "schedule", ErrorCollector(Path()))
    assert [ramp(step) for step in (1999, 2000, 2001, 2750, 3500, 3501)] == pytest.approx([0, 0, 1 / 1500, 0.5, 1, 1])
