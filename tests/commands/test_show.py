"""The examples that `show` draws are those that the training gets, and the sheet has all their pictures."""

import cv2
import numpy as np
import pytest
import toy
import toy_pairs

from figura.base.exit_status import run
from figura.base.yaml12 import to_yaml
from figura.commands.show import main
from figura.engine.build import build_datasets
from figura.engine.data import Loaders
from figura.show.examples import drawn_examples
from figura.show.sheet import draw_sheet

MIXTURE = {
    "data.train": {
        "noisy": {"type": "toy.Ramps", "length": 9, "jitter": 0.5, "weight": 2.0},
        "named": {"type": "toy.Named", "length": 8},
    }
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A pix2pix recipe with six pairs of noise; A is red and B green."""
    toy_pairs.write_noise(tmp_path / "pairs", 6)
    content = toy_pairs.content_of_files("pairs", "b_to_a")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(to_yaml(content))
    return content


def batches(recipe, count):
    loaders = Loaders(
        recipe, build_datasets(recipe, "train"), build_datasets(recipe, "validation"), rank=0, ranks=1, pin=False
    )
    return [batch for batch, _ in zip(loaders.train(0), range(count), strict=False)]


def test_examples_are_those_of_the_first_batches(recipe):
    checked = toy.checked(content=recipe)
    (batch,) = batches(checked, 1)
    examples = drawn_examples(checked, "train", 4)["pairs"].examples
    assert [one.index for one in examples] == batch["index"].tolist()
    for name in ("x", "y"):  # the random crop too
        np.testing.assert_array_equal(np.stack([one.example[name] for one in examples]), batch[name].numpy())
    for one in examples:  # B is the input: green
        levels = np.rint((one.example["x"].transpose(1, 2, 0).astype(np.float64) + 1) * 127.5)
        np.testing.assert_array_equal(one.pictures["x"], levels)
        assert one.pictures["x"][..., 1].any()
        assert not one.pictures["x"][..., ::2].any()


def test_a_mixture_gives_examples_of_each_dataset_with_the_seeds_of_its_training():
    checked = toy.checked(MIXTURE)
    plan = batches(checked, 3)  # weights 2 and 1: two batches of one for each of the other
    datasets = drawn_examples(checked, "train", 4)
    assert {name: len(one.examples) for name, one in datasets.items()} == {"noisy": 4, "named": 4}
    for name in ("noisy", "named"):
        batch = next(one for one in plan if ("word" in one) == (name == "named"))
        drawn = np.stack([one.example["x"] for one in datasets[name].examples])
        np.testing.assert_array_equal(drawn, batch["x"].numpy())


def test_positions_indices_and_epochs():
    checked = toy.checked(MIXTURE)

    def indices(**which):
        return [one.index for one in drawn_examples(checked, "train", 3, dataset="noisy", **which)["noisy"].examples]

    first, whole = indices(), [*indices(), *indices(start=3), *indices(start=6)]
    assert sorted(whole) == list(range(9))
    assert first == whole[:3]
    assert indices(epoch=1) != first
    assert indices(indices=[8, 0]) == [8, 0]
    first, again = (
        drawn_examples(checked, "train", 1, dataset="noisy", indices=[4], epoch=epoch)["noisy"].examples[0].example["x"]
        for epoch in (0, 1)
    )
    assert (first != again).any()  # the jitter of another epoch
    validation = drawn_examples(checked, "validation", 3, start=2)["ramps"].examples
    assert [one.index for one in validation] == [2, 3, 4]


def test_the_sheet_has_a_row_for_each_example_and_a_block_for_each_dataset():
    drawn = drawn_examples(toy.checked(MIXTURE), "train", 2)
    sheet = draw_sheet(drawn, "train")
    places = [
        place
        for one in (*drawn["noisy"].examples, *drawn["named"].examples)
        for place in rows_with(sheet, one.pictures["x"], column=0)
    ]
    assert len(places) == 4
    assert places == sorted(places)
    first = drawn["noisy"].examples[0].pictures["y"]
    assert rows_with(sheet, first, column=4 * ENLARGED + 2) == places[:1]


ENLARGED = 24  # times: 4 pixels become 96


def rows_with(sheet, picture, column):
    """Return where the enlarged picture is, in a column of pixels."""
    large = picture.repeat(ENLARGED, 0).repeat(ENLARGED, 1)
    height, width = large.shape[:2]
    return [
        y for y in range(sheet.shape[0] - height) if (sheet[y : y + height, column : column + width] == large).all()
    ]


def test_the_command_prints_a_table_and_writes_the_sheet(recipe, tmp_path, capsys):
    assert run(main, ["recipe.yaml", "--count", "3", "--output", "out/sheet.png"]) == 0
    said = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in said.splitlines() if line.startswith("  ")}
    examples = drawn_examples(toy.checked(content=recipe), "train", 3)["pairs"].examples
    x = np.stack([one.example["x"] for one in examples]).astype(np.float64)
    assert rows["x"][1] == "float32"
    assert "(3, 12, 12)" in " ".join(rows["x"])
    assert [float(cell) for cell in rows["x"][-3:]] == pytest.approx([x.min(), x.max(), x.mean()], rel=1e-3)
    assert f"train pairs: 3 examples: {', '.join(str(one.index) for one in examples)}" in said
    sheet = cv2.imread("out/sheet.png")
    assert sheet.shape[0] > 3 * 96
    assert sheet.shape[1] == 480


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dataset", "pair"], "data.train: no dataset 'pair' (did you mean 'pairs'?); there are pairs"),
        (["--indices", "0", "6"], "data.train.pairs: no example 6; it has 6, from 0 to 5"),
        (["--set", "data.common.root=nothing"], "nothing/train: no such folder"),  # what is set reaches the data
    ],
)
def test_wrong_words(words, message, recipe, capsys):
    assert run(main, ["recipe.yaml", *words]) == 1
    assert message in capsys.readouterr().err
