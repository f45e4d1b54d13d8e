"""The recipes of papers: right as they are and in every variant, on the data that their heads describe.

Their sizes need a GPU. Here they run smaller on real pictures, unless the test is `slow`.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pretended_gpu import pretended_gpu

from bench.gpu import sized
from bench.trainings import PUBLISHED
from figura.base.error_collector import ErrorCollector
from figura.base.yaml12 import parse_yaml, read_yaml
from figura.commands.describe import command as describe
from figura.engine.build import build_datasets, build_networks, build_schedule
from figura.preparation.datasets import Dataset
from figura.preparation.prepare import prepare
from figura.recipe.assignments import overridden
from figura.recipe.expansion import read_recipe
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from figura.training.sanity_check import sanity_check
from figura.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "data"
FILES = sorted((ROOT / "recipes/published").glob("*.yaml"))
needs_data = pytest.mark.skipif(not REAL.is_dir(), reason=f"no sample of real data at {REAL}")
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)

# sizes with which an iteration takes a second; weights that need no connection
OFFLINE = {
    "vunet": ["losses.perceptual.source=random", "evaluate.data={}"],
    "pix2pix": ["losses.G_VGG.source=random", "evaluate.data={}"],
    "openpifpaf": ["networks.network.backbone.pretrained=null"],
    "esrgan": ["losses.G_feature.source=random", "train.init_from=null"],
    "cyclegan": [],
    "cut": [],
    # one step in place of 25, each of four calls
    "flow": ["evaluate.data={}"]
    + [f"evaluate.modes.{m}.injectors.generate.steps=1" for m in ("reconstruction", "transfer")],
}
SETS = ["data.common.crop_size=64"]
SMALL_PICTURES = {"cyclegan": SETS, "cut": SETS, "esrgan": ["data.common.size=32"]}  # their networks take any size
SMALL = {
    "vunet": ["data.common.image_size=64", "losses.perceptual.layers={image: 127.5}"]
    + [f"networks.generator.nf_{end}=8" for end in ("start", "max")],
    "pix2pix": ["data.common.crop_size=64", "networks.generator.n_downs=4"]
    + [f"networks.{name}.features=8" for name in ("generator", "discriminator")],
    "openpifpaf": ["data.common.side=65", "evaluate.data.scenes.side=97"],
    "esrgan": ["data.common.size=32", "networks.generator.blocks=2", "networks.generator.features=8"],
    "cyclegan": SETS + [f"networks.{name}.features=8" for name in ("to_y", "to_x", "judge_y", "judge_x")],
    "cut": [*SETS, "networks.projection.channels=[3, 16, 32, 32, 32]"]
    + [f"networks.{name}.features=8" for name in ("to_y", "judge_y")],
    "flow": ["data.common.image_size=64", "networks.generator.channels=[8, 32, 32]", "networks.generator.attention=1"],
}


def system(file: Path) -> str:
    return file.stem.partition("_")[0]


def head(file: Path) -> str:
    """The comment at the head of a file, without #."""
    lines = file.read_text(encoding="utf-8").partition("\nseed:")[0].splitlines()
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)


def variants(file: Path) -> dict[str, list[str]]:
    """The overrides of each variant that the head of a file names."""
    _, found, text = head(file).partition("Variants")
    rows = re.findall(r"^  (\w+) (\S+=.*)$", text, re.MULTILINE)
    assert bool(rows) == bool(found), "Variants without a list"
    return {name: re.findall(r"\S+?=(?:\{.*?\}|\S+)", changes) for name, changes in rows}


EVERY = [(file, None) for file in FILES] + [(file, name) for file in FILES for name in variants(file)]
VARIANTS = [one for one in EVERY if one[1] not in (None, "edge513")]  # which is nothing but its size
# one of each system
QUICK = (
    "esrgan_x4_psnr", "openpifpaf_shufflenetv2k16", "pix2pix_facades", "vunet_deepfashion", "cut_horse2zebra",
    "flow_deepfashion",
)  # fmt: skip


def slow_but_quick(file: Path) -> Any:
    """A parameter of a test that is slow but for the files of QUICK."""
    return pytest.param(file, id=file.stem, marks=[] if file.stem in QUICK else pytest.mark.slow)


def recipe(file: Path, *changes: str, variant: str | None = None, offline: bool = True) -> Recipe:
    """The recipe of a file with changes of the test and, if named, those of a variant."""
    content = read_recipe(file)
    own = [change for change in OFFLINE[system(file)] if offline and _has(content, change.partition("=")[0])]
    wanted = [*own, *changes, *(variants(file)[variant] if variant else [])]
    return check_recipe(overridden(content, wanted, list(Recipe.model_fields), file), file)


def _has(content: Any, key: str) -> bool:
    for name in key.split("."):
        if name not in content:
            return False
        content = content[name]
    return True


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    """A folder with data/prepared of some real pictures: people, also as `photos`, facades as `pairs` and as sets."""
    folder = tmp_path_factory.mktemp("real")
    common = {"seed": 7, "max_rejected": 0.5}
    _copy_people(folder / "raw")
    people = {"images": "images", "annotations": "some.json", "shares": {"validation": 0.4}}
    prepare(Dataset(kind="coco", source=str(folder / "raw"), coco=people, **common), "people", folder)
    (folder / "data/prepared/photos").symlink_to(folder / "data/prepared/people")
    for split in ("train", "val"):
        (folder / "facades" / split).mkdir(parents=True)
        for number in range(1, 5):
            shutil.copy(REAL / f"facades_real/{split}/{number}.jpg", folder / "facades" / split)
    pairs = {"train": "train", "validation": "val"}
    prepare(Dataset(kind="paired", source=str(folder / "facades"), paired=pairs, **common), "pairs", folder)
    for side in "AB":
        for split, number in (("train", 1), ("train", 2), ("test", 3)):
            (folder / f"sets/{split}{side}").mkdir(parents=True, exist_ok=True)
            shutil.copy(REAL / f"facades_real/train/{number}.jpg", folder / f"sets/{split}{side}")
    sets = {"train": "train", "validation": "test"}
    prepare(Dataset(kind="unpaired", source=str(folder / "sets"), unpaired=sets, **common), "horse2zebra", folder)
    return folder


def _copy_people(folder: Path) -> None:
    """Write 12 pictures, each with somebody large of whom most joints are labelled, and their annotations."""
    (folder / "images").mkdir(parents=True)
    content = json.loads((REAL / "coco_keypoints_real/annotations.json").read_text())
    large = {a["image_id"] for a in content["annotations"] if a["num_keypoints"] > 12 and a["bbox"][3] > 150}
    images = [image for image in content["images"] if image["id"] in large][:12]
    chosen = {image["id"] for image in images}
    annotations = [one for one in content["annotations"] if one["image_id"] in chosen]
    (folder / "some.json").write_text(json.dumps(content | {"images": images, "annotations": annotations}))
    for image in images:
        shutil.copy(REAL / "coco_keypoints_real/images" / image["file_name"], folder / "images")


@pytest.mark.parametrize(("file", "variant"), EVERY, ids=lambda value: getattr(value, "stem", value))
def test_is_right(file, variant):
    assert recipe(file, variant=variant, offline=False)


@every_file
def test_its_head_says_what_it_wants(file):
    text = head(file)
    _, _, rest = text.partition("data/params.yaml:\n")
    indented = re.match(r"(?:  .*\n)+", rest)[0]
    ((name, entry),) = parse_yaml(indented, f"{file}: head").items()
    Dataset(**entry)
    assert read_yaml(file)["data"]["common"]["root"] == f"data/prepared/{name}"
    assert re.search(r"^Aims at", text, re.MULTILINE)
    assert re.search(r"^Wants: .*GPU", text, re.MULTILINE)


EPOCHS = {  # pictures, batch, epochs, epochs at which the rate decays (over 10)
    "openpifpaf_shufflenetv2k16": (56599, 32, 250, [220, 240]),
    "openpifpaf_resnet50": (56599, 32, 250, [230, 240]),
    "openpifpaf_cocodet": (117266, 64, 150, [130, 140]),
}


@pytest.mark.parametrize("name", EPOCHS)
def test_rates_of_openpifpaf_by_epochs(name):
    """In the guide's own formulas: N batches an epoch, --lr-decay 220 240 --lr-decay-epochs=10."""
    pictures, batch, epochs, decays = EPOCHS[name]
    asked = recipe(ROOT / f"recipes/published/{name}.yaml")
    rate = build_schedule(asked.steps["network"].lr_schedule, "lr_schedule", ErrorCollector(Path()))
    batches = pictures // batch
    assert asked.data.batch_size == batch
    assert asked.train.steps == epochs * batches
    steps = np.arange(epochs * batches + 1, step=97)
    warm_up = np.minimum(0.001 ** np.maximum(1 - steps / batches, 0), 1)
    decay = np.prod([0.1 ** np.clip((steps - epoch * batches) / (10 * batches), 0, 1) for epoch in decays], axis=0)
    np.testing.assert_allclose([rate(int(step)) for step in steps], warm_up * decay, rtol=1e-12)


@pytest.mark.parametrize("name", PUBLISHED)
def test_benchmarks_measure_the_published_networks_and_optimizers(name):
    case = PUBLISHED[name]
    published, measured = recipe(case.file, offline=False), sized(case, "no", small=False)
    assert measured.networks == published.networks
    assert measured.steps == published.steps
    assert {n: loss.weight for n, loss in measured.losses.items()} == {
        n: loss.weight for n, loss in published.losses.items()
    }
    assert sized(case, "no", small=True).networks != published.networks


@pytest.mark.parametrize("name", ["esrgan_x4_psnr", "esrgan_x4_gan"])
def test_scores_of_esrgan_leave_out_the_border_that_their_aim_leaves_out(name):
    file = ROOT / f"recipes/published/{name}.yaml"
    border = int(re.search(r"without a border of (\d+) px", head(file))[1])
    scores = recipe(file).metrics.scores
    assert scores["upscaling"].arguments["crop_border"] == scores["bicubic"].arguments["crop_border"] == border


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(("file", "variant"), VARIANTS, ids=lambda one: getattr(one, "stem", one))
def test_a_variant_takes_a_step_when_it_is_small(file, variant, prepared, tmp_path, monkeypatch):
    monkeypatch.chdir(prepared)
    short = ["train.steps=1", "train.evaluate_limit=2", "data.batch_size=2", "runtime.workers=0", "runtime.trackers=[]"]
    asked = recipe(file, *SMALL[system(file)], *short, "runtime.progress=false", variant=variant)
    Trainer(asked, tmp_path / "run").fit()
    assert (tmp_path / "run/model/recipe.yaml").is_file()


@pytest.mark.slow
@needs_data
@every_file
def test_takes_a_step_on_a_pretended_gpu_when_it_is_small(file, prepared, tmp_path, monkeypatch):
    monkeypatch.chdir(prepared)
    short = ["train.precision=fp16", "train.steps=1", "train.evaluate_limit=2", "data.batch_size=2"]
    quiet = ["runtime.workers=0", "runtime.trackers=[]", "runtime.progress=false"]
    with pretended_gpu():
        Trainer(recipe(file, *SMALL[system(file)], *short, *quiet), tmp_path / "run").fit()
    assert (tmp_path / "run/model/recipe.yaml").is_file()


@needs_data
@pytest.mark.parametrize("file", [slow_but_quick(file) for file in FILES])
def test_is_described(file, prepared, monkeypatch, capsys):
    monkeypatch.chdir(prepared)
    monkeypatch.setattr(describe, "check_recipe", lambda content, path: recipe(path, *SMALL[system(path)]))
    describe.main([str(file)])
    said = capsys.readouterr().out
    assert "FLOP" in said
    assert "could not be carried out" not in said
    assert "no shapes" not in said


@pytest.mark.slow
@needs_data
@every_file
def test_networks_of_its_size_pass_the_sanity_check(file, prepared, monkeypatch):
    monkeypatch.chdir(prepared)
    asked = recipe(file, *SMALL_PICTURES.get(system(file), []))
    errors = ErrorCollector(file)
    data = [build_datasets(asked, split) for split in ("train", "validation")]
    sanity_check(asked, build_networks(asked), *data, errors)
    assert errors.lines == []
