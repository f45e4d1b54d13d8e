"""What people get to read: wrong recipes and files, and every line that each gives, up to its list of allowed words."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toy

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands import predict
from figura.recipe.load import check_recipe
from stages import eval_dump, metrics, prepare, train

ROOT = Path(__file__).parents[2]
VUNET, PIX, POSE, SR = "params.yaml", "recipes/pix2pix.yaml", "recipes/pose.yaml", "recipes/super_resolution.yaml"
GEOMETRY = "data.train.scenes.augmentation.geometry"
FIND = "evaluate.modes.poses.injectors.people.decoder"
FLIP = "data.train.pairs.augmentation.both.horizontal_flip"

RECIPES: list[tuple[str, dict[str, Any], list[str]]] = [
    # nested settings
    (
        POSE,
        {f"{GEOMETRY}.horizontal_flipp": {"chance": 0.5}},
        [f"{GEOMETRY}.horizontal_flipp: unknown key 'horizontal_flipp' (did you mean 'horizontal_flip'?)"],
    ),
    (
        POSE,
        {f"{GEOMETRY}.rescale.relative": ["0.67", 1.0]},
        [f"{GEOMETRY}.rescale.relative.0: found '0.67'; expected a number"],
    ),
    (
        POSE,
        {f"{GEOMETRY}.rotation": {"degrees": [8.0, -8.0], "chance": 0.5}},
        [f"{GEOMETRY}.rotation.degrees: the lowest, 8, is above the highest, -8"],
    ),
    (
        POSE,
        {f"{GEOMETRY}.rotation": {"degree": [-8.0, 8.0], "chance": 0.5}},
        [f"{GEOMETRY}.rotation.degrees: missing; found 'degree', did you mean 'degrees'?"],
    ),
    (POSE, {GEOMETRY: [1]}, [f"{GEOMETRY}: found [1]; expected a map"]),
    (
        POSE,
        {f"{FIND}.seed_treshold": 0.2},
        [f"{FIND}.seed_treshold: unknown argument of CifCafDecoder 'seed_treshold' (did you mean 'seed_threshold'?)"],
    ),
    (PIX, {f"{FLIP}.chance": 2}, [f"{FLIP}.chance: found 2; expected less than or equal to 1"]),
    (
        SR,
        {"data.common.degradation.kernels": {"bicubicc": 1.0}},
        [
            (
                "data.common.degradation.kernels.bicubicc: found 'bicubicc'; expected 'nearest', 'area', 'bilinear', "
                "'bicubic' or 'lanczos'"
            )
        ],
    ),
    (
        SR,
        {"data.common.degradation.compression.quality": [90, 990]},
        ["data.common.degradation.compression.quality.1: found 990; expected less than or equal to 100"],
    ),
    # what stands once is told once
    (
        VUNET,
        {"data.common.image_sise": 64},
        ["data.common.image_sise: unknown argument of PersonPairs 'image_sise' (did you mean 'image_size'?)"],
    ),
    (VUNET, {"data.common.root": 5}, ["data.common.root: found 5; expected a string"]),
    # all faults at once, although a key is missing
    (
        PIX,
        {
            "losses.G_L1.weight": ...,
            "losses.G_L1.wieght": 100.0,
            "losses.D_real.type": "images.Sobell",
            "losses.G_GAN.inputs.logits": "yy",
        },
        [
            "losses.G_L1.weight: missing; found 'wieght', did you mean 'weight'?",
            "losses.D_real.type: unknown loss 'images.Sobell' (did you mean 'images.Sobel'?)",
            "losses.G_GAN.inputs.logits: unknown name: nobody provides 'yy' (did you mean 'y'?)",
        ],
    ),
    (
        PIX,
        {"data.batch_size": ..., "data.batchsize": 8, "train.stepz": 3},
        [
            "data.batch_size: missing; found 'batchsize', did you mean 'batch_size'?",
            "train.stepz: unknown key 'stepz' (did you mean 'steps'?)",
        ],
    ),
    (
        PIX,
        {"networks": ..., "train.precision": "fp15"},
        [
            "networks: missing; it has no default",
            "train.precision: found 'fp15'; expected 'no', 'fp16', 'bf16' or 'fp8'",
        ],
    ),
    (
        SR,
        {"evaluate": None, "runtime.workers": "2"},
        ["evaluate: found None; expected a map", "runtime.workers: found '2'; expected an integer"],
    ),
    (PIX, {"steps.G.optimizer.type": ...}, ["steps.G.optimizer.type: missing; it has no default"]),
    (PIX, {"data.train": ...}, ["data.train: missing; it has no default"]),
    (
        VUNET,
        {"steps.generator.optimizer.rest_lr": ..., "steps.generator.optimizer.rest_rl": 1.0},
        ["steps.generator.optimizer.rest_lr: missing; found 'rest_rl', did you mean 'rest_lr'?"],
    ),
    (
        POSE,
        {"data.common.sde": 161, "data.common.side": ..., "data.validation.scenes.side": ...},
        [
            "data.train.scenes.side: missing; found 'sde', did you mean 'side'?",
            "data.validation.scenes.side: missing; found 'sde', did you mean 'side'?",
        ],
    ),
    # members of a union, words, renamed keys
    (
        PIX,
        {"networks.generator.norm": "batchh"},
        ["networks.generator.norm: found 'batchh'; expected 'instance', 'batch' or 'none'"],
    ),
    (
        PIX,
        {"networks.generator.image_size": [64, "64"]},
        ["networks.generator.image_size.1: found '64'; expected an integer"],
    ),
    (
        PIX,
        {"networks.generator.image_size": "64"},
        ["networks.generator.image_size: found '64'; expected a list or an integer"],
    ),
    (PIX, {"predict.mode": "translate"}, ["predict.mode: unknown mode 'translate' (did you mean 'translation'?)"]),
    (PIX, {"evaluate.crosses": {}}, ["evaluate.crosses: this key is now called 'grids'"]),
    # keys and types of other systems
    (
        PIX,
        {"steps.G.clip_grad_eps": 1.0},
        [
            (
                "steps.G.clip_grad_eps: unknown key 'clip_grad_eps'; here: `clip: 1.0` of a step, the largest 2-norm "
                "of the gradient; `clip_value` limits each element"
            )
        ],
    ),
    (
        PIX,
        {"steps.G.lr_schedule": {"type": "MultiStepLR", "milestones": [1]}},
        [
            (
                "steps.G.lr_schedule.type: unknown schedule 'MultiStepLR'; here: `{type: Decay, at: [30000, 60000], "
                "factor: 0.1, over: 0}`, in iterations"
            )
        ],
    ),
    (
        PIX,
        {"train.niter": 200},
        ["train.niter: unknown key 'niter'; here: `train.steps` (iterations) or `train.epochs`"],
    ),
    (PIX, {"losses.G_L1.type": "l1"}, ["losses.G_L1.type: found 'l1'; expected `images.L1`"]),
]


@pytest.mark.parametrize(("file", "edits", "lines"), RECIPES, ids=[lines[0].split(": ")[0] for *_, lines in RECIPES])
def test_a_wrong_recipe_gives_these_lines(file, edits, lines):
    with pytest.raises(UserError) as caught:
        check_recipe(toy.changed(edits, read_yaml(ROOT / file)), Path(file))
    assert [line.partition("; allowed: ")[0] for line in str(caught.value).splitlines()] == [
        f"{file}: {line}" for line in lines
    ]


COCO = {
    "kind": "coco",
    "source": "raw",
    "seed": 1,
    "max_rejected": 0.0,
    "coco": {"images": "images", "annotations": "a.json", "shares": {"validation": 0.5}},
}


def dataset(changes: dict[str, Any], annotations: str | None = None) -> Callable[[], None]:
    """Return what writes data/params.yaml with a dataset `mine`, and its annotations."""

    def write() -> None:
        Path("raw/images").mkdir(parents=True)
        Path("data").mkdir()
        Path("data/params.yaml").write_text(to_yaml({"datasets": {"mine": toy.changed(changes, COCO)}}))
        if annotations is not None:
            Path("raw/a.json").write_text(annotations)

    return write


def text(file: str, content: str) -> Callable[[], Any]:
    """Return what writes a file."""
    return lambda: Path(file).write_text(content)


def nothing() -> None:
    """Leave the folder empty."""


LONELY = {"images": [{"id": 1, "file_name": "a.jpg", "width": 4, "height": 4}], "annotations": []}
LONELY["categories"] = [{"id": 1, "name": "person"}]
FILES: list[tuple[str, Callable[[], Any], tuple[Any, ...], str]] = [
    ("no recipe", nothing, (train.main, "r.yaml", "runs/x"), "r.yaml: no such file"),
    ("a folder", nothing, (train.main, ".", "runs/x"), ".: no regular file; a YAML file is needed"),
    (
        "an empty recipe",
        text("r.yaml", ""),
        (train.main, "r.yaml", "runs/x"),
        "r.yaml: found nothing, expected a mapping",
    ),
    (
        "a bracket",
        text("r.yaml", "data:\n  train: [1, 2\nseed: 3\n"),
        (train.main, "r.yaml", "runs/x"),
        "r.yaml:3:5: not valid YAML: while parsing a flow sequence, did not find expected ',' or ']'",
    ),
    (
        "a key twice",
        text("r.yaml", "seed: 3\nseed: 4\n"),
        (train.main, "r.yaml", "runs/x"),
        "r.yaml:2:1: a key stands twice: seed",
    ),
    ("no annotations", dataset({}), (prepare.main, "mine"), "raw/a.json: no such file"),
    (
        "broken JSON",
        dataset({}, '{"images": ['),
        (prepare.main, "mine"),
        "raw/a.json: not valid JSON at character 12: found no",
    ),
    (
        "no image",
        dataset({}, json.dumps(LONELY)),
        (prepare.main, "mine"),
        "1 image file missing. All are listed in data/prepared/",
    ),
    (
        "a misspelt dataset",
        dataset({}),
        (prepare.main, "mien"),
        "data/params.yaml: datasets.mien: no such dataset (did you mean 'mine'?); there are mine",
    ),
    (
        "a kind",
        dataset({"kind": "cocoo"}),
        (prepare.main, "mine"),
        "data/params.yaml: datasets.mine.kind: found 'cocoo'; expected 'synthetic', 'coco', ",
    ),
    (
        "no section",
        dataset({"coco": ...}),
        (prepare.main, "mine"),
        "datasets.mine: kind is 'coco', so there must be a section 'coco'",
    ),
    (
        "no source",
        dataset({"source": "nowhere"}),
        (prepare.main, "mine"),
        "data/params.yaml: datasets.mine.source: no folder nowhere; bring the raw data there (see data/raw/README.md)",
    ),
    (
        "a share",
        dataset({"coco.shares.validation": 1.2}),
        (prepare.main, "mine"),
        "data/params.yaml: datasets.mine.coco.shares.validation: found 1.2; expected less than 1",
    ),
    (
        "no run to evaluate",
        nothing,
        (eval_dump.main, "r.yaml", "runs/x"),
        "runs/x: no such folder; dvc repro, or dvc pull, makes",
    ),
    (
        "no run to predict with",
        text("r.yaml", "predict: {}"),
        (predict.main, "r.yaml", "runs/x", "a.png", "--output", "o"),
        "runs/x: no such folder; dvc repro, or dvc pull, makes runs/*",
    ),
    (
        "no dump",
        lambda: Path("r.yaml").write_text(to_yaml(toy.recipe())),
        (metrics.main, "r.yaml", "runs/x", "m.json", "p"),
        "runs/x/dump/examples.csv: no such file; run the eval-dump stage first",
    ),
]


@pytest.mark.parametrize(("write", "call", "said"), [one[1:] for one in FILES], ids=[one[0] for one in FILES])
def test_a_wrong_file_gives_this_line(write, call, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write()
    main, *arguments = call
    assert run(main, arguments) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert said in lines[0]
