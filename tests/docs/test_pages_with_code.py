"""docs/idea.md: the training by hand and the recipe beside it are the same. docs/your_own_code.md: it trains, and
computes what it says. docs/api.md: all its examples run, in their order, as in a notebook.
"""

import copy
import importlib
import re
import runpy
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import toy
import toy_pairs
from torch.utils.data import default_collate

from figura.base.yaml12 import parse_yaml, to_yaml
from figura.dump import Dump
from figura.prediction.predictor import Predictor
from figura.recipe.load import check_recipe
from figura.training.trainer import Trainer
from stages import eval_dump

PAGE = Path(__file__).parents[2] / "docs/idea.md"

SMALL = {
    "networks.generator.image_size": 32,
    "networks.generator.features": 4,
    "networks.discriminator.features": 4,
    "train.record_every": 1,
    "evaluate.modes.translation.save.fake": "array",
}


def block(language: str) -> str:
    """Return the block of the page in a language, its learning rates falling within the 8 steps of the test."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert {"350", "800"} <= set(re.findall(r"\d+", found))
    return found.replace("350", "2").replace("800", "10")


def content() -> dict:
    """Return the recipe of the page, on pairs that are made on the spot, with small networks."""
    page, changes = parse_yaml(block("yaml"), PAGE.name), dict(toy_pairs.TINY)
    del changes["steps.D.lr_schedule"], changes["steps.G.optimizer"], changes["steps.G.lr_schedule"]
    for section in ("networks", "losses", "steps"):
        changes |= {f"{section}.{name}": entry for name, entry in page[section].items()}
    changes["train.ema"] = page["train"]["ema"]
    changes["evaluate.modes.translation"] = page["evaluate"]["modes"]["translation"]
    return toy.changed(SMALL, toy_pairs.content(changes))


@pytest.fixture
def by_hand(tmp_path, monkeypatch) -> dict:
    """The names that the code of the page defines."""
    monkeypatch.chdir(tmp_path)
    Path("by_hand.py").write_text(block("python"))
    return runpy.run_path("by_hand.py")  # a constant: this file's own hook makes it a part of the training's code


def test_both_have_the_same_losses_and_pictures(by_hand):
    Path("recipe.yaml").write_text(to_yaml(content()))
    batches = []

    def train_step(trainer, x, y, batch):
        batches.append((x.clone(), y.clone()))
        return trainer.train_op(batch)

    trainer = Trainer(check_recipe(content(), Path("recipe.yaml")), Path("run"), train_step=train_step)
    generator, discriminator = (copy.deepcopy(trainer.networks.live[one]) for one in ("generator", "discriminator"))
    start = copy.deepcopy(generator.state_dict())
    trainer.fit()
    history = by_hand["train"](generator, discriminator, batches)
    assert len(history) == 8
    for name in ("D_real", "D_fake", "G_GAN", "G_L1"):
        expected = trainer.loss_log.history(name)["raw"]
        assert [row[name] for row in history] == pytest.approx(list(expected), rel=1e-4), name
    assert max((value - start[name]).abs().max() for name, value in generator.state_dict().items()) > 5e-4

    eval_dump.main(["recipe.yaml", "run"])
    rows = Dump(Path("run/dump")).mode("translation")
    data = toy_pairs.Blobs(6)
    examples = default_collate([data[index] for index in range(6)])
    pictures = by_hand["translate"](generator, [(examples["x"], examples["y"])])
    found = np.stack([row["fake"] for row in rows])
    assert found.shape == (6, 3, 32, 32)
    np.testing.assert_allclose(found, pictures.numpy(), atol=2e-4)
    assert torch.std(pictures) > 1e-3


def test_the_page_counts_its_lines():
    (said,) = re.findall(r"plain PyTorch, (\d+) lines", PAGE.read_text())
    assert int(said) == len(block("python").splitlines())


OWN_CODE = Path(__file__).parents[2] / "docs/your_own_code.md"
CODE = re.findall(r"^```python\n# in mine.py\n(.*?)^```", OWN_CODE.read_text(), re.MULTILINE | re.DOTALL)
FRAGMENTS = re.findall(
    r"^```yaml\n(# in recipes/pix2pix.yaml\n.*?)^```", OWN_CODE.read_text(), re.MULTILINE | re.DOTALL
)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The module `mine`, of all its blocks."""
    (tmp_path / "mine.py").write_text("\n\n".join(CODE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return importlib.import_module("mine")


def own_recipe():
    """Return the small pix2pix recipe with all fragments of the page in it."""
    content = toy_pairs.content()
    for text in FRAGMENTS:
        content = merged(content, parse_yaml(text, OWN_CODE.name))
    return check_recipe(toy.changed({"train.record_every": 1}, content), Path("mine.yaml"))


def merged(old, new):
    """Return a map with another written over it; one with a type replaces what was there."""
    if isinstance(old, dict) and isinstance(new, dict) and "type" not in new:
        return {**old, **{name: merged(old.get(name), one) for name, one in new.items()}}
    return new


def test_all_train_together(mine):
    assert [len(CODE), len(FRAGMENTS)] == [3, 6]
    trainer = Trainer(own_recipe(), Path("run"))
    trainer.fit()
    log = trainer.loss_log
    assert log.select("G") == ["G_GAN", "G_L1", "G_edges", "G_near", "G_smooth"]
    assert [row["G_L1.weight"] for row in log.train] == pytest.approx([100, 100, 50, 50, 25, 25, 12.5, 12.5])
    assert all(row["gradients.largest"] > 0 for row in log.validation)


def test_the_injector_takes_differences(mine):
    picture = torch.arange(24.0).reshape(1, 2, 3, 4) ** 2
    (found,) = mine.Edges(["a"], ["b"]).compute([picture], step=0)
    np.testing.assert_array_equal(found, np.diff(picture.numpy(), axis=3))


def test_the_callback_goes_on_where_it_was(mine):
    callback, copy = mine.LargestGradient("generator"), mine.LargestGradient("generator")
    callback.largest = 0.7
    copy.load_state_dict(callback.state_dict())
    assert copy.on_evaluation(None, {}) == {"largest": 0.7}
    assert copy.on_evaluation(None, {}) == {"largest": 0.0}


def test_a_step_by_hand_reaches_the_losses_of_the_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(from pathlib.*?)^```", OWN_CODE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "by_hand.py").write_text(code)
    names = runpy.run_path("by_hand.py")
    changes = {"networks.generator.dropout": 0.0, "train.record_every": 1}
    declared = Trainer(toy_pairs.recipe(changes), Path("declared"))
    by_hand = Trainer(toy_pairs.recipe(changes), Path("hand"), train_step=names["train_step"])
    declared.fit()
    by_hand.fit()
    for row, expected in zip(by_hand.loss_log.train, declared.loss_log.train, strict=True):
        assert row == pytest.approx(expected, rel=1e-3)


ROOT = Path(__file__).parents[2]
API = (ROOT / "docs/api.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", API, re.MULTILINE | re.DOTALL)
PHOTOS = sorted((ROOT / "data/prepared/people/images/validation").glob("*"))[:3]
NEEDED = ("pose", "pix2pix", "super_resolution", "vunet")
MISSING = [name for name in NEEDED if not (ROOT / f"runs/{name}/model").is_dir()]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING or not PHOTOS), reason=f"needs trained runs (`dvc repro`), here none of {MISSING}")
def test_examples_run(tmp_path, monkeypatch, capsys):
    for name in ("runs", "recipes", "dvc.yaml", "params.yaml"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "photos").mkdir()
    for number, file in enumerate(PHOTOS):
        cv2.imwrite(str(tmp_path / f"photos/{number}.jpg"), cv2.imread(str(file)))
    writer = cv2.VideoWriter(str(tmp_path / "clip.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 10, (160, 120))
    for _ in range(4):
        writer.write(cv2.resize(cv2.imread(str(PHOTOS[0])), (160, 120)))
    writer.release()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in EXAMPLES:
        exec(compile(block, "docs/api.md", "exec"), names)  # noqa: S102  # the page's own examples
    assert len(EXAMPLES) >= 9
    assert isinstance(names["poses"], Predictor)
    overlay = cv2.imread("overlay.png")
    assert np.array_equal(overlay[..., ::-1], names["results"][0].draw())
    assert Path("drawn.mp4").stat().st_size > 0
    assert len(names["frames"].images) == 2
    assert names["enlarged"].shape == (96, 128, 3)
    assert "transfer.image" in names["dressed"].sheets
    assert "{'people': 'records'" in capsys.readouterr().out
