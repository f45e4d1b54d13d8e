import math
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import toy
from safetensors.torch import save_file
from torch import nn

from models.base.errors import UserError
from models.engine import weights as checkpoint
from models.engine.weights import load_weights, save_weights, to_device
from models.training.resume import ResumePoints, flatten, unflatten


def network(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width))


def test_weights_and_buffers_come_back(tmp_path):
    source, target = network(), network()
    source(torch.randn(8, 2))  # moves the running statistics
    save_weights(source, tmp_path / "model" / "n.safetensors")
    load_weights(target, tmp_path / "model" / "n.safetensors")
    assert source.state_dict().keys() == target.state_dict().keys()
    for name, value in source.state_dict().items():
        assert torch.equal(value, target.state_dict()[name]), name
    assert os.listdir(tmp_path / "model") == ["n.safetensors"]


def test_weights_that_do_not_fit_are_all_listed(tmp_path):
    path = tmp_path / "n.safetensors"
    save_file({"0.weight": torch.zeros(4, 2), "0.bias": torch.zeros(3), "extra": torch.zeros(1)}, path)
    target = nn.Sequential(nn.Linear(2, 3))
    before = target[0].weight.detach().clone()
    target.register_parameter("gain", nn.Parameter(torch.zeros(1)))
    with pytest.raises(UserError) as caught:
        load_weights(target, path)
    assert str(caught.value) == (
        f"{path} does not fit Sequential: 0.weight has shape [4, 2], the network [3, 2]; missing gain; unexpected extra"
    )
    assert torch.equal(target[0].weight, before)


def test_weights_that_are_not_there_or_no_weights(tmp_path):
    with pytest.raises(UserError, match=r"n\.safetensors: no such file"):
        load_weights(network(), tmp_path / "n.safetensors")
    (tmp_path / "n.safetensors").write_bytes(b"\x80\x04never unpickled")
    with pytest.raises(UserError, match="not a readable safetensors file"):
        load_weights(network(), tmp_path / "n.safetensors")


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


def test_resume_points_keep_every_value(tmp_path):
    points = ResumePoints(tmp_path / "resume", {"recipe": "r"})
    assert points.load() is None
    points.save(7, {**TREE, "nan": math.nan})
    iteration, state = points.load()
    assert iteration == 7
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
    points = ResumePoints(tmp_path, {})
    points.save(3, {"weights": first, "optimizer": adam.state_dict()})
    _, state = points.load()
    second = nn.Parameter(state["weights"])
    other = torch.optim.Adam([second], lr=9.0)
    other.load_state_dict(state["optimizer"])
    stepped(adam, first, 4)
    stepped(other, second, 4)
    assert torch.equal(first, second)


def test_saved_tensors_are_copies(tmp_path):
    value = torch.zeros(2)
    points = ResumePoints(tmp_path, {})
    points.save(1, {"a": value, "again": value})  # shared memory is no fault
    value += 1
    assert points.load()[1]["a"].tolist() == [0, 0]


def test_only_the_latest_state_stays(tmp_path):
    points = ResumePoints(tmp_path, {})
    for iteration in (4, 12, 8):
        points.save(iteration, {"n": iteration})
    assert points.load() == (8, {"n": 8})
    assert os.listdir(tmp_path) == ["0000000008"]
    points.clear()
    assert points.load() is None


def test_a_state_made_by_something_else_is_refused(tmp_path):
    ResumePoints(tmp_path, {"recipe": "r", "code": "1", "data": "d"}).save(5, {})
    assert ResumePoints(tmp_path, {"recipe": "r", "code": "1", "data": "d"}).load() == (5, {})
    reason = ResumePoints(tmp_path, {"recipe": "s", "code": "2", "data": "d"}).load()
    assert reason == "the state of iteration 5 was made by another recipe, code"
    assert "extra" in ResumePoints(tmp_path, {"recipe": "r", "code": "1", "data": "d", "extra": "x"}).load()


def test_to_device_moves_tensors_alone():
    batch = {"x": torch.zeros(2), "word": ["a", "b"], "more": {"y": [torch.ones(1)]}, "n": 3}
    moved = to_device(batch, torch.device("meta"))
    assert moved["x"].device.type == moved["more"]["y"][0].device.type == "meta"
    assert moved["word"] == ["a", "b"]
    assert moved["n"] == 3


WATCHED = ("fsync", "unlink", "rmdir", "rename", "mkdir", "open")


def run_and_die(folder, job, point):
    """In a child process: save or clear, killed at call number `point` of whatever touches the disk."""
    watched = toy.killed_at(point)
    for name in WATCHED:
        setattr(os, name, watched(getattr(os, name)))
    checkpoint.save_file = watched(checkpoint.save_file)
    Path.write_text = watched(Path.write_text)
    points = ResumePoints(folder, {"recipe": "r"})
    points.clear() if job == "clear" else points.save(int(job), {"n": torch.full((3,), 2.0), "text": "two"})


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


@pytest.mark.parametrize("job", ["2", "1", "clear"])
def test_a_kill_at_any_call_leaves_a_whole_state(job, tmp_path):
    """`2`: save a later state; `1`: save the same iteration again; `clear`: remove everything."""
    before, after = {"n": [1.0] * 3, "text": "one"}, {"n": [2.0] * 3, "text": "two"}
    ResumePoints(tmp_path / "earlier", {"recipe": "r"}).save(1, {"n": torch.ones(3), "text": "one"})
    found = []
    for point in range(1, 60):
        folder = shutil.copytree(tmp_path / "earlier", tmp_path / str(point))
        status = status_of_child(folder, job, point)
        points = ResumePoints(folder, {"recipe": "r"})
        loaded = points.load()
        assert not isinstance(loaded, str)
        state = loaded and {"n": loaded[1]["n"].tolist(), "text": loaded[1]["text"]}
        assert state in ([before, None] if job == "clear" else [before, after]), f"killed at call {point}"
        found.append(state)
        points.save(3, {})  # and the next save works
        assert points.load() == (3, {})
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            assert status == 0
            break
    assert len(found) > 4
    assert found[0] == before
    assert found[-1] == (None if job == "clear" else after)
