"""Functions and modules of other packages are injectors by their own names."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import Tensor
from two_processes import run_in_two

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.engine.package_parts import PackageOperation
from figura.recipe.types import INJECTOR, construct
from figura.training.trainer import Trainer

A = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2) - 9
B = A[::-1].copy()


def shifted(x: Tensor, by: float = 1.0):  # without annotation of the result
    return x + by


def blurred(x: Tensor, sigma: tuple[float, float]):
    """Want a tuple, as kornia's functions do."""
    assert isinstance(sigma, tuple)
    return x * sigma[0]


def in_place(x: Tensor):
    return x.add_(1)


def rounded(x: Tensor):
    """Round as batched kernels do, whose last digits depend on the size of the batch."""
    return x + 1e-7 * len(x)


def longest(x: Tensor):
    """Give as many columns as the largest value of the batch has."""
    return x.flatten(1)[:, : int(x.max())]


def made(declared: dict[str, Any]) -> PackageOperation:
    """Return the injector of an entry, which has no faults."""
    errors = ErrorCollector(Path("r.yaml"))
    built = construct(declared["type"], {k: v for k, v in declared.items() if k != "type"}, INJECTOR, "k", errors)
    assert errors.lines == []
    return built


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"type": "torch.cat", "inputs": {"tensors": ["a", "b"]}, "dim": 1}, [np.concatenate([A, B], 1)]),
        ({"type": "torch.stack", "inputs": [["a", "b"]], "dim": 2}, [np.stack([A, B], 2)]),
        ({"type": "torch.clamp", "inputs": {"input": "a"}, "min": 0}, [A.clip(0)]),
        ({"type": "torch.flip", "inputs": ["a"], "dims": [3]}, [A[..., ::-1]]),
        ({"type": "torch.select", "inputs": ["a"], "dim": 1, "index": 2}, [A[:, 2]]),
        ({"type": "torch.lerp", "inputs": ["a", "b"], "weight": 0.25}, [0.75 * A + 0.25 * B]),
        ({"type": "torch.unbind", "inputs": ["a"], "dim": 1, "output": ["x", "y", "z"]}, [A[:, i] for i in range(3)]),
        ({"type": "torch.nn.functional.pad", "inputs": ["a"], "pad": [1, 0]}, [np.pad(A, [(0, 0)] * 3 + [(1, 0)])]),
        ({"type": "torch.nn.PixelShuffle", "upscale_factor": 1, "inputs": {"input": "a"}}, [A]),
        ({"type": "test_package_injectors.shifted", "inputs": {"x": "a"}, "by": 2.5}, [A + 2.5]),
        ({"type": "test_package_injectors.blurred", "inputs": {"x": "a"}, "sigma": [2.0, 1.0]}, [A * 2]),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_an_entry_computes_what_its_function_does(entry, expected):
    injector = made({"output": "out"} | entry)
    values = {"a": torch.from_numpy(A), "b": torch.from_numpy(B)}
    results = injector.compute([values[name] for name in injector.reads], 0)
    assert injector.adds == tuple(entry.get("output", ["out"]))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result.numpy(), wanted)


@pytest.mark.parametrize(("name", "separate"), [("rounded", True), ("longest", False)])
def test_examples_are_compared_up_to_rounding_and_in_any_shape(name, separate):
    injector = made({"type": f"test_package_injectors.{name}", "inputs": {"x": "a"}, "output": "out"})
    assert injector.is_separate([torch.from_numpy(A) / 100 if name == "rounded" else torch.from_numpy(A)]) is separate


def fit(injector: dict[str, Any], run: Path, **changes: Any) -> Trainer:
    """Train the toy with another injector, whose result `seen` takes the place of `image` in a loss."""
    content = {
        "steps.painter.injectors.seen": {"output": "seen", "inputs": {"input": "image"}} | injector,
        "losses.distance.inputs": {"image": "seen", "target": "y"}, "runtime.states": False,
    }  # fmt: skip
    trainer = Trainer(toy.checked(content | changes), run)
    trainer.fit()
    return trainer


@pytest.mark.parametrize(
    ("injector", "said"),
    [
        ({"type": "torch.clmp"}, "injectors.seen.type: unknown injector 'torch.clmp' (did you mean 'torch.clamp'?)"),
        ({"type": "torch.nn.functional.pad", "padd": [1, 1]}, "(did you mean 'pad'?)"),
        ({"type": "torch.nn.functional.pad"}, "pad() missing 1 required positional argument: 'pad'"),
        ({"type": "torch.clamp", "mim": 0.0}, "clamp() received an invalid combination of arguments"),
        ({"type": "torch.clamp", "inputs": {"input": "imag"}, "min": 0.0}, "'imag'"),
        ({"type": "torch.chunk", "chunks": 2}, "gives Tensor, Tensor; 1 tensors are needed, one for each name of"),
        ({"type": "torch.numel"}, "gives int; 1 tensors are needed"),
        ({"type": "torch.nn.Conv2d", "in_channels": 1, "out_channels": 1, "kernel_size": 1}, "declare it in `net"),
        ({"type": "torch.Tensor"}, "is no injector"),
        ({"type": "test_package_injectors.in_place", "inputs": {"x": "image"}}, "it changes its input"),
        ({"type": "torch.roll", "shifts": 1, "dims": 0, "parts": 2}, "depends on the others of the batch"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_entry_is_told_in_a_line(tmp_path, injector, said):
    parts = injector.pop("parts", 1)
    with pytest.raises(UserError) as told:
        fit(injector, tmp_path, **{"train.accumulation": parts})
    assert said in str(told.value)
    assert "Traceback" not in str(told.value)


DROPOUT = {"type": "torch.nn.functional.dropout", "p": 0.4}


def test_a_random_one_goes_on_to_the_same_bytes_after_a_kill(tmp_path):
    fit(DROPOUT, tmp_path / "whole")
    if not (process := os.fork()):
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Trainer, "iterate", toy.killed_at(10)(Trainer.iterate))
                fit(DROPOUT, tmp_path / "cut")
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(process, 0)[1]) == 9
    fit(DROPOUT, tmp_path / "cut")
    one, other = ((tmp_path / run / "model/painter.safetensors").read_bytes() for run in ("whole", "cut"))
    assert one == other
    fit(DROPOUT | {"p": 0.0}, tmp_path / "plain")
    assert (tmp_path / "plain/model/painter.safetensors").read_bytes() != one


def test_two_processes_learn_what_one_does(tmp_path):
    quiet = {"networks.painter.dropout": 0.0}
    one = [row["distance.raw"] for row in fit(DROPOUT, tmp_path / "one", **quiet).loss_log.train]

    def job():
        with pytest.raises(UserError, match="depends on the others of the batch"):
            fit({"type": "torch.roll", "shifts": 1, "dims": 0}, tmp_path / "no")
        two = [row["distance.raw"] for row in fit(DROPOUT, tmp_path / "two", **quiet).loss_log.train]
        assert two == pytest.approx(one, rel=1e-5)

    run_in_two(job)


def test_a_resumed_training_asks_again(tmp_path, monkeypatch):
    """Its first part may have run in one process."""
    roll = {"type": "torch.roll", "shifts": 1, "dims": 0}
    fit(roll, tmp_path, **{"train.steps": 4})
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UserError, match="depends on the others of the batch"):
        fit(roll, tmp_path, **{"train.steps": 8})
