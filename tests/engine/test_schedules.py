from pathlib import Path

import numpy as np
import pytest
import toy

from figura.base.error_collector import ErrorCollector
from figura.recipe.late_parts import late_schedules
from figura.recipe.types import build_schedule
from figura.schedules import (
    Constant,
    Cosine,
    CosineRestarts,
    Decay,
    Exponential,
    Linear,
    Product,
    Schedule,
    Sine,
    Step,
    WarmUp,
)

STEPS = np.arange(0, 60)


def share(start, end):
    return np.clip((STEPS.astype(np.float64) - start) / (end - start), 0, 1)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Constant(0.3), np.full(60, 0.3)),
        (Linear(10, 40, 0.2, -1.5), np.interp(STEPS, [10, 40], [0.2, -1.5])),
        (Exponential(5, 45, 1e-4, 2.0), np.exp(np.log(1e-4) + share(5, 45) * (np.log(2.0) - np.log(1e-4)))),
        (Cosine(10, 40, 1.0, 0.1), 0.1 + 0.9 * np.cos(share(10, 40) * np.pi / 2) ** 2),
        (
            CosineRestarts([10, 20, 15], 1.0, 0.1, weights=[1.0, 0.5, 2.0], start=5),
            np.concatenate(
                [
                    np.full(5, 1.0),
                    *(
                        0.1 + (weight - 0.1) * (1 + np.cos(np.pi * np.arange(period) / period)) / 2
                        for period, weight in ((10, 1.0), (20, 0.5), (15, 2.0))
                    ),
                    np.full(10, 0.1),
                ]
            ),
        ),
        (Sine(10, 16, high=0.9, low=0.3), 0.6 + 0.3 * np.cos(2 * np.pi * np.maximum(STEPS - 10, 0) / 16)),
        (Step([10, 30], [1.0, 0.1, 0.01]), np.select([STEPS < 10, STEPS < 30], [1.0, 0.1], 0.01)),
        (WarmUp(8), np.minimum(1, (STEPS + 1) / 8)),
        (WarmUp(8, from_=0.5), np.clip((STEPS + 1) / 8, 0.5, 1)),
        (WarmUp(8, from_=0.01, shape="exponential"), 10.0 ** (-2 * (1 - np.minimum(1, STEPS / 8)))),
        (
            Product({"ramp": Linear(0, 40, 1.0, 0.0), "decay": Decay([10, 30], 0.5, over=0)}),
            np.interp(STEPS, [0, 40], [1.0, 0.0]) * np.select([STEPS < 10, STEPS < 30], [1.0, 0.5], 0.25),
        ),
        (
            WarmUp(20, then=Linear(0, 40, 1.0, 0.0)),
            np.minimum(1, (STEPS + 1) / 20) * np.interp(STEPS, [0, 40], [1.0, 0.0]),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Schedule) else "",
)
def test_agrees_with_float64_numpy(schedule, expected):
    np.testing.assert_allclose([schedule(int(step)) for step in STEPS], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "schedule",
    [
        Linear(7, 31, 0.3, 0.7),
        Cosine(7, 31, 0.3, 0.7),
        Exponential(7, 31, 0.3, 0.7),
        CosineRestarts([24], 0.3, 0.7, start=7),
    ],
)
def test_ends_are_exact_and_last_is_where_change_ends(schedule):
    assert schedule(7) == 0.3
    assert schedule(31) == schedule(10**9) == 0.7
    assert schedule(schedule.last - 1) != schedule(schedule.last) == schedule(schedule.last + 1)


@pytest.mark.parametrize(("shape", "one_from"), [("linear", -1), ("exponential", 0)])
@pytest.mark.parametrize("steps", [1, 3, 7, 30])
def test_warm_up_reaches_exactly_one(steps, shape, one_from):
    schedule = WarmUp(steps, from_=0.1, shape=shape)
    assert schedule(steps + one_from) == schedule(steps + 1) == 1.0
    assert all(schedule(step) < 1 for step in range(steps + one_from))


# OpenPifPaf's factors for 100 batches an epoch, warm-up 1 epoch from 0.001, decay at epochs 220 and 240 over 10
OPENPIFPAF = {
    0: 0.001, 1: 10 ** -2.97, 50: 0.0316228, 99: 0.9332543, 100: 1.0, 22000: 1.0, 22500: 0.316228, 23000: 0.1,
    24000: 0.1, 24500: 0.0316228, 25000: 0.01,
}  # fmt: skip


@pytest.mark.parametrize(
    "declared",
    [
        {
            "type": "Product",
            "of": {
                "warm_up": {"type": "WarmUp", "steps": 100, "from": 0.001, "shape": "exponential"},
                "decay": {"type": "Decay", "at": [22000, 24000], "factor": 0.1, "over": 1000},
            },
        },
        {
            "type": "WarmUp", "steps": 100, "from": 0.001, "shape": "exponential",
            "then": {"type": "Decay", "at": [22000, 24000], "factor": 0.1, "over": 1000},
        },
    ],
    ids=["Product", "then"],
)  # fmt: skip
def test_the_learning_rate_of_openpifpaf(declared):
    schedule = toy.checked({"steps.painter.lr_schedule": declared, "train.steps": 25000}).steps["painter"].lr_schedule
    built = build_schedule(schedule, "lr_schedule", ErrorCollector(Path()))
    assert [built(step) for step in OPENPIFPAF] == pytest.approx(list(OPENPIFPAF.values()), rel=1e-6)
    assert built.last == 25000
    steps = np.arange(0, 25100, dtype=np.float64)
    warm_up = np.exp(np.log(1e-3) * (1 - np.clip(steps / 100, 0, 1)))
    decay = [np.exp(np.log(0.1) * np.clip((steps - start) / 1000, 0, 1)) for start in (22000, 24000)]
    np.testing.assert_allclose([built(int(step)) for step in steps], warm_up * decay[0] * decay[1], rtol=1e-12)


@pytest.mark.parametrize("kind", [Linear, Cosine, Exponential])
def test_a_ramp_of_no_width_jumps_at_its_end(kind):
    schedule = kind(5, 5, 0.2, 0.9)
    assert [schedule(step) for step in (0, 4, 5, 6)] == [0.2, 0.2, 0.9, 0.9]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(5, 4, 0.0, 1.0),
        lambda: Exponential(0, 4, 1.0, -1.0),
        lambda: Step([2, 2], [1.0, 2.0, 3.0]),
        lambda: Step([2], [1.0]),
        lambda: CosineRestarts([3, 0], 1.0, 0.0),
        lambda: CosineRestarts([3, 4], 1.0, 0.0, weights=[1.0]),
        lambda: Sine(0, 9, 0.0, 1.0),
        lambda: Decay([3], 1.5, 0),
        lambda: WarmUp(3, shape="exponential"),
        lambda: Product({}),
    ],
)
def test_bad_arguments_are_refused(make):
    with pytest.raises(ValueError, match=r"needed|must be positive"):
        make()


def test_schedules_that_outlast_training_are_named():
    assert Sine(3, 4, high=2.0, low=0.0).last == 3  # it goes on for ever, and is never late
    recipe = toy.checked(
        {"steps.painter.lr_schedule": {"type": "Linear", "start": 0, "end": 5, "from": 1.0, "to": 0.0}}
    )
    assert late_schedules(recipe, 6) == []
    assert late_schedules(recipe, 5) == ["losses.square.schedule goes on until step 6, training ends at 5"]
    assert len(late_schedules(recipe, 4)) == 2
    ramp = {"type": "Linear", "start": 0, "end": 9, "from": 0.0, "to": 0.1}
    noisy = toy.checked({"steps.painter.injectors.paint.args": {"noise": ramp}})
    assert late_schedules(noisy, 8) == [
        "steps.painter.injectors.paint.args.noise goes on until step 9, training ends at 8"
    ]
    mixture = {"type": "Sum", "output": "sum", "terms": {"x": ramp, "image": 1.0}, "constant": ramp | {"end": 8}}
    assert late_schedules(toy.checked({"steps.painter.injectors.sum": mixture}), 7) == [
        "steps.painter.injectors.sum.terms.x goes on until step 9, training ends at 7",
        "steps.painter.injectors.sum.constant goes on until step 8, training ends at 7",
    ]
    mixed = toy.checked({"data.train.ramps.schedule": ramp | {"from": 0.5}})
    assert late_schedules(mixed, 8) == ["data.train.ramps.schedule goes on until step 9, training ends at 8"]
