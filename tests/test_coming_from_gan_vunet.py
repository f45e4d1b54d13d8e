"""The pages for people who come from NectarGAN and from edflow and VUNet: complete, with real keys and commands."""

import inspect
import itertools
import json
import math
import re
import shlex
import typing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from documented_commands import COMMAND, module_called
from loading import find_class

from figura.base.error_collector import ErrorCollector, alternatives, is_schema
from figura.base.yaml12 import parse_yaml, read_yaml
from figura.data.preparation.datasets import Dataset
from figura.engine.build import build_schedule
from figura.recipe.completion import with_data
from figura.recipe.load import check_recipe
from figura.recipe.overrides import overridden
from figura.recipe.schema import Declaration, Recipe

ROOT = Path(__file__).parents[1]
PATHS = {name: ROOT / f"docs/coming_from/{name}.md" for name in ("nectargan", "vunet")}
PAGES = {name: path.read_text() for name, path in PATHS.items()}
TRAINING = {"nectargan": "nectargan_facades.yaml", "vunet": "vunet_prjoti.yaml"}
RECIPE = {"nectargan": "recipes/pix2pix.yaml", "vunet": "params.yaml"}
AUGMENTATION = "data.train.pairs.augmentation"  # `A` on the page of NectarGAN
SECTIONS = "|".join(Recipe.model_fields)
each_page = pytest.mark.parametrize("page", PAGES)

# what the systems offer beside the keys of their configurations, which the pages quote whole
NECTARGAN = """
nectargan-train-paired --config_file --loss_subspec --log_losses nectargan-test-paired --experiment_directory
--load_epoch --dataroot --test_iterations nectargan-utils-restoreconfig nectargan-toolbox basic+vgg extended
extended+vgg TORCH_TYPE visdom dataset-set config-edit config-print Ctrl+1 Experiment: Dataset: Training: Live
Testing: Review: Utilities: callback_kwargs on_epoch_start train_step save_checkpoint export_model_weights
load_checkpoint save_examples save_xyz_examples quicksetup loss_log.json examples/ epoch{N}_netG.pth.tar
train{k}_config.json register_loss_fn compute_loss_xy get_registered_losses get_loss_values get_loss_weights
update_loss_log export_base_log history_buffer_size start_epoch end_epoch initial_value target_value schedule_linear
schedule_exponential allow_zero_weights silent weight_kwargs TorchScheduler use_dropout_layers UnetBlock
ResidualUnetBlock ONNXConverter run_test VisdomVisualizer PairedDataset Augmentations ConfigManager
download_pix2pix_dataset.py build_loss_graphs.py -ls --stop_on_fail
"""
EDFLOW = """
start_log_freq log_freq ckpt_freq ckpt_zero hook_freq train_ops log_ops eval_hook.eval_op eval_hook.eval_callbacks
n_data_processes n_prefetch num_steps max_batches_per_epoch test_batch_size experiment_name eval_functor
eval_pipeline.callbacks eval_pipeline.callback_kwargs eval_hook.clean_after_callbacks fixed_example_indices debug_timing
integrations.wandb.handlers integrations.tensorboard.handlers integrations.minimal_logging.image_format
losses.KL.weight debug.max_steps debug.max_examples debug.disable_integrations
test_mode nogpu eval_forever error_on_timeout validation_dataset ckpt_keep lr_end gpu_mem_fraction fcond eval_all
--log_level --other_config --disable_cache
-n -b -t -p -c -r -l -d -w --wandb_sweep edeval edexplore edlist edcache edsetup edprep {path/to/key}
configs/train_<time>.yaml train/checkpoints/model-<step>.ckpt train/train/log_op/ log.txt code/
step_op train_op log_op eval_op criterion callbacks hooks update_loss_weights_inplace retrieve
stickman appearance target index_ expand loader_kwargs append_labels meta.yaml EvalDataFolder model_output.csv
appearance_transfer sample_appearance bottleneck_factor box_factor drop_prob feature_weights gram_weights lr_decay_begin
lr_decay_end init_batches
data_index feature_layers test_freq betas --config --log_dir --checkpoint --retrain --mode test add_reconstructions
Segmentation IUV edexplore/visualizations optical_flow_on_image
"""
OFFERS = {"nectargan": NECTARGAN, "vunet": EDFLOW}


@cache
def content(file: str) -> dict[str, Any]:
    return read_yaml(ROOT / file)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


def rows(page: str) -> list[list[str]]:
    """The cells of each row of each table, without heads."""
    lines = [line for line in PAGES[page].splitlines() if line.startswith("|")]
    heads = {place - 1 for place, line in enumerate(lines) if line.startswith("| ---")}
    kept = [line for place, line in enumerate(lines) if place not in heads and not line.startswith("| ---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in kept]


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def whole(page: str) -> dict[str, Any]:
    """The complete recipe of a page, which lies beside it."""
    return read_yaml(PATHS[page].parent / TRAINING[page])


def original(page: str) -> dict[str, Any]:
    """The configuration that the page translates."""
    if page == "nectargan":
        return json.loads((PATHS[page].parent / "nectargan_facades.json").read_text())["config"]
    (text,) = [block for block in blocks(page, "yaml") if block.startswith("# edflow")]
    return parse_yaml(text, page)


def leaves(section: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys of values that are no maps, or empty ones."""
    return [
        key
        for name, value in section.items()
        for key in (leaves(value, f"{prefix}{name}.") if isinstance(value, dict) and value else [f"{prefix}{name}"])
    ]


@each_page
def test_every_row_has_three_cells_with_words(page):
    found = rows(page)
    assert len(found) > 100
    assert [row for row in found if len(row) != 3 or not all(row)] == []


@each_page
def test_every_option_of_the_original_has_a_row(page):
    there = " ".join(row[0] for row in rows(page))
    named = set(spans(there))
    missing = [key for key in leaves(original(page)) if key not in named]
    missing += [word for word in OFFERS[page].split() if word not in there]
    assert missing == []


def arguments(kind: Any, value: Any, name: str) -> list[Any]:
    """The annotations of an argument that a declaration's class takes."""
    taken = find_class(value["type"])
    assert taken is not None, value["type"]
    hints = typing.get_type_hints(taken.__init__)
    known = [one for one in (name, f"{name}_") if one in inspect.signature(taken).parameters]
    return [one for argument in known for one in alternatives(hints.get(argument, Any))] if known else []


def below(kind: Any, value: Any, name: str) -> list[Any]:
    """What a key may be in a section, a map of names, or a declaration, whose content is `value`."""
    if is_schema(kind):
        fields = {info.alias or field: info.annotation for field, info in kind.model_fields.items()}
        if name in fields:
            return alternatives(fields[name])
        return arguments(kind, value, name) if issubclass(kind, Declaration) else []
    if typing.get_origin(kind) is dict:
        known = isinstance(value, dict) and name in value
        return alternatives(typing.get_args(kind)[1]) if known else []
    return []


def exists(key: str, file: str) -> bool:
    """Whether a recipe may have a dotted key: names are those of the file, arguments those of its classes."""
    value: Any = with_data(content(file), ErrorCollector(Path(file)))
    first = next(iter(value["data"]["train"]))
    kinds: list[Any] = [Recipe]
    for name in re.sub(r"^data\.common", f"data.train.{first}", key).split("."):
        kinds = [one for kind in kinds for one in below(kind, value, name)]
        if not kinds:
            return False
        value = value.get(name) if isinstance(value, dict) else None
    return True


def keys(page: str) -> list[tuple[str, str | None]]:
    """The figura keys that a page names in its last column, with the value that follows, if one does."""
    said = [span for row in rows(page) for span in spans(row[2])]
    said = [re.sub(r"^A\.", f"{AUGMENTATION}.", span) for span in said]
    found = [re.fullmatch(rf"((?:{SECTIONS}|datasets)(?:\.\w+)+)(?:(?:: |=)(.+))?", span) for span in said]
    return [(one[1], one[2]) for one in found if one is not None]


@each_page
def test_keys_exist(page):
    named = {key for key, _ in keys(page) if not key.startswith("datasets.")}
    assert len(named) > 45
    assert [key for key in sorted(named) if not exists(key, RECIPE[page])] == []


@each_page
def test_keys_of_datasets_exist(page):
    known = leaves(content("data/params.yaml"))
    for key in {key for key, _ in keys(page) if key.startswith("datasets.")}:
        assert any(one == key or one.startswith(f"{key}.") for one in known), key


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("networks.generator.n_downs", True),
        ("networks.generator.downs", False),
        ("losses.G_WING.weight", False),
        (f"{AUGMENTATION}.both.elastic.sigma", True),
        (f"{AUGMENTATION}.both.elastic.size", False),
        ("runtime.samples.evry", False),
    ],
)
def test_the_check_of_keys_knows_wrong_ones(key, right):
    assert exists(key, "recipes/pix2pix.yaml") is right


VALUES = [(page, key, value) for page in PAGES for key, value in keys(page) if value is not None]


@pytest.mark.parametrize(("page", "key", "value"), VALUES)
def test_a_key_takes_the_value_that_is_named(page, key, value):
    check_recipe(overridden(content(RECIPE[page]), [f"{key}={value}"], list(Recipe.model_fields)), Path(RECIPE[page]))


def commands(page: str) -> list[list[str]]:
    """The words of commands in spans; `R` and the page's own recipe stand for a file of the repository."""
    text = PAGES[page].replace("...", "")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    ours = rf"{COMMAND}|(dvc exp run|-S) "
    said = [one for span in spans(prose) if re.match(ours, one := " ".join(span.split()))]
    return [shlex.split(re.sub(r"\bR\b|\b(facades|prjoti)\.yaml", RECIPE[page], one)) for one in said]


@each_page
def test_modules_and_their_options_exist(page):
    wrong = []
    called = [module_called(words) for words in commands(page) if words[0] in ("figura", "python")]
    assert len(called) > 10
    for module, words in called:
        path = ROOT / module.replace(".", "/")
        file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        text = file.read_text() if file.is_file() else ""
        wrong += [module] * (not text)
        wrong += [f"{module} {word}" for word in words if word.startswith("--") and f'"{word}"' not in text]
    assert wrong == []


SETTINGS = [
    (page, words, setting)
    for page in PAGES
    for words in commands(page)
    for option, setting in itertools.pairwise(words)
    if option in ("-S", "--set") and not setting.lower().endswith("key=value")
]


@pytest.mark.parametrize(("page", "words", "setting"), SETTINGS)
def test_settings_of_commands_make_a_recipe(page, words, setting):
    assert len(SETTINGS) > 10
    default = next((word for word in words if word.endswith(".yaml")), "params.yaml")
    named, change = re.fullmatch(r"(?:(\S+?\.yaml):)?(.+)", setting).groups()
    file = named or default
    key, _, value = change.removeprefix("+").partition("=")
    if file == "data/params.yaml":
        assert any(one == key or one.startswith(f"{key}.") for one in leaves(content(file)))
        return
    for one in [value] if value.startswith(("{", "[")) else value.split(","):
        check_recipe(overridden(content(file), [f"{key}={one}"], list(Recipe.model_fields)), Path(file))


def merged(base: Any, change: Any) -> Any:
    if isinstance(base, dict) and isinstance(change, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in change.items()}}
    return change


@each_page
def test_blocks_of_yaml_are_right(page):
    said = blocks(page, "yaml")
    assert len(said) > 1
    for block in said:
        parsed = parse_yaml(block, page)
        place = re.match(r"# in (\S+)\n", block)
        if place is None:
            assert block.startswith("# edflow")
        elif place[1] == "data/params.yaml":
            for entry in parsed["datasets"].values():
                Dataset(**entry)
        else:
            check_recipe(merged(content(place[1]), parsed), Path(place[1]))
    check_recipe(whole(page), Path(f"{page}.yaml"))


@each_page
def test_links_and_paths_lead_somewhere_and_lines_are_short(page):
    text, folder = PAGES[page], PATHS[page].parent
    assert [link for link in re.findall(r"\]\((?!http)([^)#]+)", text) if not (folder / link).exists()] == []
    plain = [span for span in spans(text) if re.fullmatch(r"(recipes|docs|models|data/raw)/[\w/.]+\.\w+", span)]
    assert [path for path in plain if not (ROOT / path).exists()] == []
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []


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
    (block,) = [one for one in blocks("nectargan", "yaml") if one.startswith("# in recipes/pix2pix.yaml")]
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
