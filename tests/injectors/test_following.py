"""A schedule may stand for a number of any injector."""

from pathlib import Path

import pytest
import torch
import toy
from torch import Tensor

from figura.base.errors import UserError
from figura.engine.build import build_injectors
from figura.interfaces import Networks, Operation, Schedule, State
from figura.recipe.schema import Declaration
from figura.training.trainer import Trainer

AT = [4, 8]
SIZES = {"type": "Step", "at": AT, "values": [1.0, 0.5, 0.75]}
PAINT = toy.PAINT | {"inputs": {"x": "small"}, "outputs": {"image": "made"}}
BACK = {"type": "Resize", "names": {"made": "image"}, "like": "x"}


class Power(Operation):
    """x to a power from 1 to 3."""

    made = 0

    def __init__(self, power: int, name: str = "x", adds: str | None = None) -> None:
        if not 1 <= power <= 3:
            raise ValueError(f"power {power}: 1 to 3 is needed")
        super().__init__([name], [adds or f"power{power}"])
        self.power = power
        Power.made += 1

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        return [tensor**self.power for tensor in tensors]


class Bump(Schedule):
    """1, and 5 at iteration 8, which is no knot."""

    def __call__(self, step: int) -> float:
        return 5.0 if step == 8 else 1.0


def shrink(factor, **gate):
    return {"type": "Resize", "names": {"x": "small"}, "factor": factor, **gate}


def weights(injectors, run):
    changes = {"steps.painter.injectors": injectors | {"paint": PAINT, "back": BACK}, "runtime.states": False}
    trainer = Trainer(toy.checked(changes), run)
    trainer.fit()
    return trainer.networks.live["painter"].state_dict()


def test_a_scheduled_number_is_as_injectors_behind_gates(tmp_path):
    gated = {
        "first": shrink(1.0, before=4),
        "second": shrink(0.5, after=4, before=8),
        "third": shrink(0.75, after=8),
    }
    expected, found = weights(gated, tmp_path / "gated"), weights({"all": shrink(SIZES)}, tmp_path / "scheduled")
    assert all(torch.equal(value, found[name]) for name, value in expected.items())


def power(schedule):
    entry = Declaration(type="test_following.Power", power=schedule, adds="y")
    return build_injectors({"power": entry}, "injectors")[0]


def test_whole_numbers_are_rounded_and_an_equal_number_makes_nothing_new():
    injector = power({"type": "Linear", "start": 0, "end": 8, "from": 1.0, "to": 3.0})
    Power.made = 0
    x, found = torch.tensor([2.0]), []
    for step in range(10):
        state = State({"x": x})
        injector(state, Networks({}, {}), step)
        found.append(state["y"].item())
    assert found == [2, 2, 4, 4, 4, 4, 4, 8, 8, 8]  # 1, 1.25, 1.5, 1.75, 2, ...: halves to even
    assert Power.made == 3


TOO_HIGH = {"type": "Linear", "start": 0, "end": 8, "from": 1.0, "to": 4.0}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"power": TOO_HIGH, "adds": "z"}, ": test_following.Power: power 4: 1 to 3 is needed"),
        (
            {"power": {"type": "Step", "at": [3], "values": [1.0, 2.0]}},
            ": test_following.Power: reads or adds other names at iteration 3 than at the beginning",
        ),
        ({"power": 1, "name": TOO_HIGH}, ".name: found {'type': 'Linear', "),
    ],
)
def test_what_cannot_follow_is_told_before_anything_runs(entry, said):
    with pytest.raises(UserError) as told:
        toy.checked({"steps.painter.injectors.power": {"type": "test_following.Power"} | entry})
    (line,) = str(told.value).splitlines()
    assert f"steps.painter.injectors.power{said}" in line


def test_a_value_between_knots_that_is_refused_is_told_with_its_iteration():
    injector = power({"type": "test_following.Bump"})
    with pytest.raises(UserError, match="Power at iteration 8: power 5: 1 to 3 is needed"):
        injector(State({"x": torch.ones(1)}), Networks({}, {}), 8)


def test_trainings_share_what_came_before_the_schedules_part(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FIGURA_STATES", str(tmp_path / "states"))
    for last in (0.75, 0.5):
        changes = {
            "steps.painter.injectors": {
                "shrink": shrink(SIZES | {"values": [1.0, 0.5, last]}), "paint": PAINT, "back": BACK,
            },
            "runtime.resume_every": 4,
        }  # fmt: skip
        Trainer(toy.checked(changes), Path(tmp_path / str(last))).fit()
    assert "8 of 12 iterations are those of 0.75" in capsys.readouterr().out
