import re
from zipfile import ZipFile

import numpy as np
import pytest
import torch
import toy
from accelerate import Accelerator
from toy import PAINT

from figura.base.errors import UserError
from figura.base.seeding import generator
from figura.dump import Dump
from figura.engine.build import build_networks
from figura.evaluation.evaluate import Evaluation
from figura.interfaces import Injector, Records

MODES = {
    "plain": {"injectors": {"paint": PAINT}, "save": {"image": "array"}},
    "noisy": {"injectors": {"paint": {**PAINT, "args": {"noise": 0.5}}}, "save": {"image": "array"}, "repeat": 3},
    "means": {"injectors": {"paint": {**PAINT, "outputs": {"mean": "mean"}}}, "save": {"mean": "array"}},
}
CHANGES = {
    "data.validation.ramps.length": 7,
    "data.train.ramps.jitter": 0.3,
    "evaluate.batch_size": 3,
    "evaluate.modes": MODES,
    "evaluate.grids": {
        "grid": {"rows": ["x"], "columns": ["y"], "size": 3, "injectors": {"paint": PAINT},
                 "save": {"image": "array", "x": "array", "y": "array"}},
    },
    "evaluate.averages": {"mean_x": {"of": "x", "examples": 5}, "mean_all": {"of": "y", "examples": 100}},
}  # fmt: skip


def dump_of(folder, changes=CHANGES, content=None):
    recipe = toy.checked(changes, content)
    networks = build_networks(recipe)
    Evaluation(recipe, networks, folder, Accelerator()).write()
    return Dump(folder), networks["painter"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return dump_of(tmp_path_factory.mktemp("dump"))


def examples(count):
    return [toy.Ramps(7).example(index, np.random.default_rng(0)) for index in range(count)]


def test_every_instance_of_every_mode_in_order_with_noise_of_its_own(made):
    dump, _ = made
    assert len(dump.table) == 7 * (1 + 3 + 1)
    assert dump.mode("plain").table["index"].tolist() == list(range(7))  # batches of 3, 3 and 1
    noisy = dump.mode("noisy")
    draws = sorted(zip(noisy.table["index"], noisy.table["draw"], strict=True))
    assert draws == [(index, draw) for index in range(7) for draw in range(3)]
    plain = {row["index"]: row["image"] for row in dump.mode("plain")}
    noise = np.stack([row["image"] - plain[row["index"]] for row in noisy])
    assert len({array.tobytes() for array in noise}) == len(noise) == 21
    assert noise.std() == pytest.approx(0.5, rel=0.2)


def test_losses_are_those_of_each_instance(made):
    dump, painter = made
    rows = dump.mode("plain").table
    painter.eval()
    for index, example in enumerate(examples(7)):
        with torch.no_grad():
            image = painter(torch.from_numpy(example["x"])[None])["image"][0].numpy().astype(np.float64)
        error = np.abs(image - example["y"])
        assert rows["loss.distance"][index] == pytest.approx(error.mean(), rel=1e-6)  # neither weight nor ramp
        assert rows["loss.square"][index] == pytest.approx((error**2).mean(), rel=1e-6)
    means = dump.mode("means").table  # which lacks what the losses read
    assert means[["loss.distance", "loss.square"]].isna().all(axis=None)


def test_files_are_the_instances_own(made):
    dump, painter = made
    for index, (row, example) in enumerate(zip(dump.mode("plain"), examples(7), strict=True)):
        assert row["index"] == index
        assert np.array_equal(row["y"], example["y"])
        assert np.abs(row["x"] - example["x"]).max() <= 1 / 255 + 1e-6
        with torch.no_grad():
            expected = painter(torch.from_numpy(example["x"])[None])["image"][0].numpy()
        np.testing.assert_allclose(row["image"], expected, atol=1e-6)
        assert "mean" not in row
    assert all(row["mean"].shape == (1, 1, 1) and "image" not in row for row in dump.mode("means"))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_same_bytes_again(made, tmp_path, workers):
    dump, _ = made
    other, _ = dump_of(tmp_path, CHANGES | {"runtime.workers": workers})
    files = sorted(path.relative_to(dump.folder) for path in dump.folder.rglob("*") if path.is_file())
    archives = [dump.folder / name for name in files if name.suffix == ".zip"]
    assert sum(len(ZipFile(archive).namelist()) for archive in archives) > 50
    assert len(files) < 20
    for name in files:
        assert (dump.folder / name).read_bytes() == (other.folder / name).read_bytes(), name


def test_crosses_are_all_pairs(made):
    dump, painter = made
    pairs = dump.grid("grid")
    chosen = [0, 2, 4]  # of 7, evenly
    assert pairs.table[["row", "column"]].to_numpy().tolist() == [[r, c] for r in chosen for c in chosen]
    data = examples(7)
    for pair in pairs:
        assert np.array_equal(pair["x"], data[pair["row"]]["x"])
        assert np.array_equal(pair["y"], data[pair["column"]]["y"])
        with torch.no_grad():
            expected = painter(torch.from_numpy(data[pair["row"]]["x"])[None])["image"][0].numpy()
        np.testing.assert_allclose(pair["image"], expected, atol=1e-6)


def test_averages_are_means_over_training_examples(made):
    data = toy.Ramps(22, jitter=0.3)
    chosen = [data.example(i, generator(3, "average", i))["x"] for i in (0, 4, 8, 13, 17)]  # 22 / 5 apart
    np.testing.assert_allclose(made[0].average("mean_x"), np.mean(chosen, axis=0, dtype=np.float64), atol=1e-6)
    everything = [data.example(i, np.random.default_rng(0))["y"] for i in range(22)]
    np.testing.assert_allclose(made[0].average("mean_all"), np.mean(everything, axis=0), atol=1e-6)


def test_averages_are_of_plain_pictures_where_the_data_has_splits(tmp_path):
    """Training's jitter is left out: the training split is opened as `evaluate.data` opens its own.

    A loss of weight 0 has no column, and the networks' modes come back.
    """
    kind = {"type": "toy.Split", "length": 9}
    changes = {
        "data.train": {"ramps": {**kind, "split": "train", "jitter": 0.3}},
        "data.validation": {"ramps": {**kind, "split": "validation"}},
        "evaluate.data": {"ramps": {"split": "test"}},
        "evaluate.averages": {"mean_x": {"of": "x", "examples": 9}},
        "losses.square.weight": 0.0,
    }
    recipe = toy.checked(changes)
    networks = build_networks(recipe)
    networks["painter"].layer.eval()
    Evaluation(recipe, networks, tmp_path, Accelerator()).write()
    assert (networks["painter"].training, networks["painter"].layer.training) == (True, False)
    dump = Dump(tmp_path)
    assert [name for name in dump.table if name.startswith("loss.")] == ["loss.distance"]
    plain = [toy.Split(9, "train").example(i, np.random.default_rng(0))["x"] for i in range(9)]
    np.testing.assert_allclose(dump.average("mean_x"), np.mean(plain, axis=0), atol=1e-6)
    judged = toy.Split(9, "test").example(4, np.random.default_rng(0))["x"]
    assert np.abs(dump[4]["x"] - judged).max() <= 1 / 255 + 1e-6


class Even(Injector):
    """Adds a copy of the inputs of even index, None for the others."""

    reads, adds = ("x", "index"), ("even",)

    def __call__(self, state, networks, step):
        pairs = zip(state["x"], state["index"].tolist(), strict=True)
        state.add("even", [None if index % 2 else one for one, index in pairs])


class Kinds(toy.Ramps):
    """Ramps of two groups, which do not share a batch, with records and a number."""

    names = (*toy.Ramps.names, "found", "size")

    def group(self, index):
        return index % 2

    def example(self, index, random):
        found = Records({"id": 10 * index + n} for n in range(index % 3))
        return super().example(index, random) | {"found": found, "size": float(index) / 2}


def test_records_numbers_groups_and_what_is_none(tmp_path):
    mode = {
        "injectors": {"paint": PAINT, "even": {"type": "test_evaluation.Even"}},
        "save": {"found": "records", "size": "number", "even": "array"},
    }
    changes = {
        "data.validation": {"kinds": {"type": "test_evaluation.Kinds", "length": 6}},
        "evaluate": {"batch_size": 2, "inputs": {"found": "records"}, "modes": {"plain": mode}, "timing": True},
    }
    dump, _ = dump_of(tmp_path / "dump", changes)
    rows = dump.mode("plain").table
    assert rows["index"].tolist() == [0, 2, 1, 3, 4, 5]  # full batches of a group first come
    assert rows["size"].tolist() == [index / 2 for index in rows["index"]]
    expected = [{"id": 10 * index + n} for index in rows["index"] for n in range(index % 3)]
    assert dump.records("found") == dump.mode("plain").records("found") == expected
    assert (rows["ms.paint"] > 0).all()
    assert rows["file.even"].isna().tolist() == [False, False, True, True, False, True]
    assert ZipFile(tmp_path / "dump/plain.even.zip").namelist() == [f"plain/00000{n}.even.npy" for n in (0, 2, 4)]
    np.testing.assert_array_equal(dump.mode("plain").value(4, "even"), examples(5)[4]["x"])


class Sizes(Kinds):
    """Every other example is one pixel wide, which NumPy would stretch."""

    def example(self, index, random):
        example = super().example(index, random)
        return example | ({"x": example["x"][..., :1], "y": example["y"][..., :1]} if index % 2 else {})


GRID = {"rows": ["x"], "columns": ["y"], "size": 6, "injectors": {"paint": PAINT}, "save": {"image": "array"}}
AS = {form: {"m": MODES["plain"] | {"save": {"image": form}}} for form in ("number", "records")}
TAPS = {"paint": {**PAINT, "taps": {"layer": "maps", "dropout": "maps"}}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"averages": {"mean": {"of": "x", "examples": 6}}}, "mean: example 1 has the shape (1, 4, 1), earlier ones"),
        ({"grids": {"grid": GRID}}, "but got [1, 4, 4] at entry 0 and [1, 4, 1] at entry 1"),
        ({"modes": AS["number"]}, "m, 'image': shape (1, 4, 4) is no number; save it as array"),
        ({"modes": AS["records"]}, "m, 'image': a Tensor cannot be saved as records"),
        (
            {"modes": {"m": {"injectors": TAPS, "save": {"maps": "array"}}}},
            "m, 'maps': a dict cannot be saved as array",
        ),
    ],
)
def test_what_cannot_be_saved_is_told(tmp_path, change, said):
    data = {"sizes": {"type": "test_evaluation.Sizes", "length": 6}}
    evaluate = {"batch_size": 2, "inputs": {}, "modes": {"plain": MODES["plain"]}} | change
    with pytest.raises(UserError, match=re.escape(said)):
        dump_of(tmp_path, {"data.train": data, "data.validation": data, "evaluate": evaluate})


def test_several_datasets_and_names_of_their_own(tmp_path):
    """Places count over the whole split; what an example calls `index` does not move it; texts are kept."""
    named = {"type": "toy.Named", "length": 4}
    both = {"first": named, "second": {**named, "length": 3, "offset": 2.0}}
    dump, _ = dump_of(tmp_path, {"data.train": {"named": named}, "data.validation": both, "evaluate.batch_size": 3})
    assert dump.table["index"].tolist() == list(range(7))
    assert dump.table["dataset"].tolist() == ["first"] * 4 + ["second"] * 3
    assert dump.table["word"].tolist() == ["w0", "w1", "w2", "w3", "w0", "w1", "w2"]
    values = [row["y"].mean() for row in dump]
    np.testing.assert_allclose(values, [0.0, 0.05, 0.1, 0.15, 1.0, 1.05, 1.1], atol=1e-6)
