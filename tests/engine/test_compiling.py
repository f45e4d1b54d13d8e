"""Compiled networks train as others do, up to rounding: with averages, gates, parts, noise, resume and two ranks."""

import shutil
from pathlib import Path

import pytest
import test_gates
import test_processes_gates
import torch
import toy
from safetensors.torch import load_file
from torch._inductor import compile_fx
from torch._inductor import config as inductor
from trainings import BASE, fit, killed, outputs
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.training.trainer import Trainer

COMPILED = {"train.compile": True}
PARTS = test_gates.HEADS | BASE | {"train.accumulation": 2, "train.steps": 8}
NOISY = BASE | {"networks.painter.dropout": 0.3, "steps.painter.injectors.paint.args": {"noise": 0.1}}
SGD = {"type": "torch.optim.SGD", "lr": 0.1}
RECIPES = {
    "averages and noise": (NOISY, None),
    "gates in parts": (PARTS | {"losses.right.every": 3, "losses.left.after": 2}, None),
    # Adam would enlarge the rounding of the gradient of a bias before a BatchNorm, which is 0
    "two networks": (BASE | {f"steps.{name}.optimizer": SGD for name in ("critic", "painter")}, toy.gan()),
}


@pytest.fixture(autouse=True)
def fresh_compiler():
    """The compiler has no threads of its own, which would be missing in ranks that are forked from this process."""
    torch.compiler.reset()
    with inductor.patch(compile_threads=1):
        yield
    torch.compiler.reset()


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Return the weights that a training wrote, by file and name."""
    files = sorted((run / "model").glob("*.safetensors"))
    return {f"{path.stem}.{name}": value for path in files for name, value in load_file(path).items()}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_compiled_and_eager_agree_and_a_killed_training_goes_on_to_the_same_bytes(name, run, monkeypatch):
    changes, content = RECIPES[name]
    fit(run / "eager", changes, content)
    graphs = []
    real = compile_fx.compile_fx
    monkeypatch.setattr(compile_fx, "compile_fx", lambda *a, **k: (graphs.append(a), real(*a, **k))[1])
    fit(run / "compiled", changes | COMPILED, content)
    expected, compiled = weights(run / "eager"), weights(run / "compiled")
    assert compiled.keys() == expected.keys()
    torch.testing.assert_close(compiled, expected, rtol=0, atol=1e-5)
    assert graphs
    killed(run / "killed", changes | COMPILED, content, stop=7)
    torch.compiler.reset()
    assert fit(run / "killed", changes | COMPILED, content).done[0] == 4
    assert outputs(run / "killed") == outputs(run / "compiled")


@needs_compiler
@pytest.mark.slow
def test_two_ranks_give_the_compiled_weights_of_one(run):
    changes = test_processes_gates.GATED | COMPILED
    run_in_two(lambda: Trainer(toy.checked(changes), run / "two").fit())
    fit(run / "one", changes)
    torch.testing.assert_close(weights(run / "two"), weights(run / "one"), rtol=0, atol=1e-6)


def test_a_machine_without_a_compiler_says_so(run, monkeypatch):
    monkeypatch.setenv("CXX", "no-compiler")
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("no-compiler",))
    monkeypatch.setattr("torch._inductor.config.force_disable_caches", True)
    with pytest.raises(UserError) as caught:
        Trainer(toy.checked(COMPILED), run)
    assert str(caught.value).startswith("toy.yaml: train.compile: nothing can be compiled for cpu here: ")
    assert "\n" not in str(caught.value)


PENALTY = {
    "type": "images.GradientPenalty",
    "inputs": {"points": "y", "logits": "real"},
    "weight": 1.0,
    "step": "critic",
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"networks.painter.checkpointing": ["layer"]}, "networks.painter.checkpointing: not with train.compile"),
        ({"losses.penalty": PENALTY}, "train.compile: losses.penalty differentiates networks twice"),
    ],
)
def test_what_cannot_be_compiled_is_refused(run, changes, said):
    with pytest.raises(UserError, match=f"^toy.yaml: {said}"):
        Trainer(toy.checked(COMPILED | changes, toy.gan()), run)
