"""Resume points on disk: whole or not there, refused and set aside where something else made them, never lost."""

import math
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import toy
from torch import nn

from models.training import resume
from models.training.resume import ResumePoints, flatten, unflatten

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


def test_flatten_and_back():
    tensors = {}
    assert same(TREE, unflatten(flatten(TREE, "", tensors), tensors))
    assert len(tensors) == 4


def saved(folder, iteration=5, state=None, **provenance):
    points = ResumePoints(folder, {"recipe": "r", "code": "1", **provenance})
    points.save(iteration, state or {"n": iteration})
    return points


def everything_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_resume_points_keep_every_value(tmp_path):
    points = ResumePoints(tmp_path / "resume", {"recipe": "r"})
    assert points.latest() is None
    points.save(7, {**TREE, "nan": math.nan})
    point = points.latest()
    assert point.iteration == 7
    state = point.state()
    assert math.isnan(state.pop("nan"))
    assert same(TREE, state)
    assert not (tmp_path / "resume" / "writing").exists()


def test_an_optimizer_goes_on_from_its_state(tmp_path):
    def stepped(optimizer, parameter, times):
        for _ in range(times):
            optimizer.zero_grad()
            (parameter**3).sum().backward()
            optimizer.step()

    first = nn.Parameter(torch.tensor([1.0, 2.0]))
    adam = torch.optim.Adam([first], lr=0.1, betas=(0.5, 0.9))
    stepped(adam, first, 3)
    state = saved(tmp_path, 3, {"weights": first, "optimizer": adam.state_dict()}).latest().state()
    second = nn.Parameter(state["weights"])
    other = torch.optim.Adam([second], lr=9.0)
    other.load_state_dict(state["optimizer"])
    stepped(adam, first, 4)
    stepped(other, second, 4)
    assert torch.equal(first, second)


def test_saved_tensors_are_copies(tmp_path):
    value = torch.zeros(2)
    points = saved(tmp_path, 1, {"a": value, "again": value})  # shared memory is no fault
    value += 1
    assert points.latest().state()["a"].tolist() == [0, 0]


def test_only_the_latest_state_stays(tmp_path):
    points = ResumePoints(tmp_path / "resume", {})
    for iteration in (4, 12, 8):
        points.save(iteration, {"n": iteration})
    assert points.latest().iteration == 8
    assert points.latest().state() == {"n": 8}
    assert os.listdir(tmp_path / "resume") == ["0000000008"]
    points.clear(None)
    assert points.latest() is None


def test_what_made_a_state_otherwise_is_named(tmp_path):
    saved(tmp_path, code="1", data="d")
    assert ResumePoints(tmp_path, {"recipe": "r", "code": "1", "data": "d"}).latest().differs == ()
    assert ResumePoints(tmp_path, {"recipe": "s", "code": "2", "data": "d"}).latest().differs == ("recipe", "code")
    more = ResumePoints(tmp_path, {"recipe": "r", "code": "1", "data": "d", "extra": "x"})
    assert more.latest().differs == ("extra",)


def test_a_refused_state_is_set_aside_with_the_same_bytes(tmp_path):
    points = saved(tmp_path / "resume")
    before = everything_in(tmp_path / "resume" / "0000000005")
    place = points.refuse(points.latest())
    assert place == tmp_path / "resume-refused" / "0000000005"
    assert everything_in(place) == before
    assert points.latest() is None


def test_a_second_refusal_of_the_same_iteration_overwrites_nothing(tmp_path):
    places = []
    for text in ("first", "second", "third"):
        points = saved(tmp_path / "resume", state={"text": text})
        places.append(points.refuse(points.latest()))
    assert [place.name for place in places] == ["0000000005", "0000000005-2", "0000000005-3"]
    refused = ResumePoints(tmp_path / "resume-refused", {})
    for place, text in zip(places, ("first", "second", "third"), strict=True):
        assert refused._read(place).state() == {"text": text}


def test_the_furthest_state_of_all_is_taken_where_any_is_welcome(tmp_path):
    points = saved(tmp_path / "resume", 9, code="old")
    points.refuse(points.latest())
    young = saved(tmp_path / "resume", 3)
    assert young.latest().iteration == 3
    far = young.latest(anyway=True)
    assert (far.iteration, far.differs) == (9, ("code",))
    young.save(12, {"n": 12})
    assert young.latest(anyway=True).iteration == 12
    shutil.rmtree(tmp_path / "resume")
    assert young.latest() is None
    assert young.latest(anyway=True).iteration == 9


def test_clearing_leaves_states_that_nobody_went_on_from(tmp_path):
    for iteration in (4, 8):
        points = saved(tmp_path / "resume", iteration)
        points.refuse(points.latest())
    points.save(2, {})
    points.clear(tmp_path / "resume-refused" / "0000000008")
    assert not (tmp_path / "resume").exists()
    assert os.listdir(tmp_path / "resume-refused") == ["0000000004"]


WATCHED = ("fsync", "unlink", "rmdir", "rename", "mkdir", "open")


def run_and_die(folder, job, point):
    """In a child process: save, clear or refuse, killed at call number `point` of whatever touches the disk."""
    points = ResumePoints(folder / "resume", {"recipe": "r"})
    latest = points.latest()
    watched = toy.killed_at(point)
    for name in WATCHED:
        setattr(os, name, watched(getattr(os, name)))
    resume.save_file = watched(resume.save_file)
    Path.write_text = watched(Path.write_text)
    if job == "clear":
        points.clear(None)
    elif job == "refuse":
        points.refuse(latest)
    else:
        points.save(int(job), {"n": torch.full((3,), 2.0), "text": "two"})


def status_of_child(*arguments):
    """Return the wait status of a forked child that runs `run_and_die`: a signal, or 0 when it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run_and_die(*arguments)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def plain(point):
    state = point and point.state()
    return state and {"n": state["n"].tolist(), "text": state["text"]}


@pytest.mark.parametrize(("job", "kills"), [("2", 4), ("1", 4), ("clear", 4), ("refuse", 1)])
def test_a_kill_at_any_call_leaves_a_whole_state(job, kills, tmp_path):
    """`2`: save a later state; `1`: the same iteration again; `clear`: remove everything; `refuse`: set it aside."""
    before, after = {"n": [1.0] * 3, "text": "one"}, {"n": [2.0] * 3, "text": "two"}
    ResumePoints(tmp_path / "earlier" / "resume", {"recipe": "r"}).save(1, {"n": torch.ones(3), "text": "one"})
    left = []
    for point in range(1, 60):
        folder = shutil.copytree(tmp_path / "earlier", tmp_path / str(point))
        status = status_of_child(folder, job, point)
        points = ResumePoints(folder / "resume", {"recipe": "r"})
        state = plain(points.latest())
        assert state in ([before, None] if job in ("clear", "refuse") else [before, after]), f"killed at call {point}"
        if job == "refuse":
            assert plain(points.latest(anyway=True)) == before
        left.append(state)
        points.save(3, {})  # and the next save works
        assert (points.latest().iteration, points.latest().state()) == (3, {})
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            assert status == 0
            break
    assert len(left) > kills
    assert left[0] == before
    assert left[-1] == (None if job in ("clear", "refuse") else after)
