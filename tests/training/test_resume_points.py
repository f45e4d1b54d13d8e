"""Resume points on disk: whole or not there, refused and set aside where something else made them, never lost."""

import math
import os
import resource

import pytest
import torch

from figura.base.errors import UserError
from figura.training.resume import ResumePoints

TREE = {
    "a": torch.arange(6).reshape(2, 3).t(),  # not contiguous
    "optimizer": {"state": {0: {"step": torch.tensor(3.0), "m": None}, 10: {}}, "betas": (0.5, 0.9), "fused": None},
    "history": [{"step": 1, "x": 1 / 3, "y": math.inf}, {}],
    "flags": (True, False, [], ()),
    "text": "ü",
    "half": torch.tensor([1.5, -2], dtype=torch.bfloat16),
    "wide": torch.tensor(1 / 3, dtype=torch.float64),
    "count": 2**40,
}


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def saved(folder, iteration=5, state=None, **provenance):
    points = ResumePoints(folder, {"recipe": "r", "code": "1", **provenance})
    points.save(iteration, state or {"n": iteration})
    return points


def test_resume_points_keep_every_value(tmp_path):
    points = ResumePoints(tmp_path / "resume", {"recipe": "r"})
    assert points.inspect()[0] is None
    points.save(7, {**TREE, "nan": math.nan})
    point = points.inspect()[0]
    assert point.iteration == 7
    state = point.state()
    assert math.isnan(state.pop("nan"))
    assert same(TREE, state)
    assert not (tmp_path / "resume" / "writing").exists()


def test_saved_tensors_are_copies(tmp_path):
    value = torch.zeros(2)
    points = saved(tmp_path, 1, {"a": value, "again": value})  # shared memory is no fault
    value += 1
    assert points.inspect()[0].state()["a"].tolist() == [0, 0]


def test_the_latest_state_and_the_one_before_it_stay(tmp_path):
    points = ResumePoints(tmp_path / "resume", {})
    for iteration, stay in ((4, [4]), (8, [4, 8]), (12, [8, 12]), (12, [12]), (10, [10]), (11, [10, 11])):
        points.save(iteration, {"n": iteration})
        assert points.inspect()[0].iteration == iteration
        assert points.inspect()[0].state() == {"n": iteration}
        assert sorted(os.listdir(tmp_path / "resume")) == [f"{one:010d}" for one in stay]
    points.clear(None)
    assert points.inspect()[0] is None


def test_files_of_code_that_made_a_state_otherwise_are_named(tmp_path):
    saved(tmp_path, data="d", code='{"a.py": "1", "b.py": "1", "gone.py": "1"}')
    now = ResumePoints(tmp_path, {"recipe": "r", "code": '{"a.py": "2", "b.py": "1", "new.py": "1"}', "data": "d"})
    assert now.inspect()[0].differs == ("code (a.py, gone.py, new.py)",)


def test_a_second_refusal_of_the_same_iteration_overwrites_nothing(tmp_path):
    places = []
    for text in ("first", "second", "third"):
        points = saved(tmp_path / "resume", state={"text": text})
        places.append(points.set_aside(points.inspect()[0].folder))
        assert points.inspect()[0] is None
    assert [place.name for place in places] == ["0000000005", "0000000005-2", "0000000005-3"]
    refused = ResumePoints(tmp_path / "resume-refused", {})
    assert [refused._read(place).state() for place in places] == [
        {"text": text} for text in ("first", "second", "third")
    ]


def test_clearing_leaves_states_that_nobody_went_on_from(tmp_path):
    for iteration in (4, 8):
        points = saved(tmp_path / "resume", iteration)
        points.set_aside(points.inspect()[0].folder)
    points.save(2, {})
    points.clear(tmp_path / "resume-refused" / "0000000008")
    assert not (tmp_path / "resume").exists()
    assert os.listdir(tmp_path / "resume-refused") == ["0000000004"]


DAMAGE = {
    "a flipped bit of a tensor": lambda folder: flip(folder / "state.safetensors", -1),
    "half a file": lambda folder: os.truncate(folder / "state.safetensors", 60),
    "a missing file": lambda folder: (folder / "state.safetensors").unlink(),
    "missing sums": lambda folder: (folder / "SHA256SUMS").unlink(),
    "an empty folder": lambda folder: [path.unlink() for path in folder.iterdir()],
}


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_state_is_named_and_the_one_before_it_is_the_latest(what, tmp_path):
    points = ResumePoints(tmp_path / "resume", {})
    for iteration in (4, 8):
        points.save(iteration, {"n": torch.full((3,), float(iteration))})
    DAMAGE[what](tmp_path / "resume" / "0000000008")
    point, damaged = points.inspect()
    assert point.iteration == 4
    assert point.state()["n"].tolist() == [4.0] * 3
    assert list(damaged) == [tmp_path / "resume" / "0000000008"]
    place = points.set_aside(tmp_path / "resume" / "0000000008", "-damaged")
    assert place.name == "0000000008-damaged"
    assert points.inspect() == (point, {})
    assert points.inspect(anyway=True)[0].iteration == 4  # a damaged state is never taken


def test_a_disk_that_takes_less_than_a_state_leaves_the_one_before_it(tmp_path):
    points = ResumePoints(tmp_path / "resume", {})
    points.save(4, {"n": 4})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(UserError) as caught:
            points.save(8, {"n": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = str(caught.value)
    assert "resume/0000000008: cannot be written: File too large; a state needs 0.4 MB" in said
    assert said.endswith("the state of iteration 4 stays, and `dvc repro` goes on from it")
    assert os.listdir(tmp_path / "resume") == ["0000000004"]
    assert points.inspect()[0].state() == {"n": 4}
