"""Times as shares of a training."""

import re
from typing import Any

import pytest
import toy

from figura.base.errors import UserError

SCHEDULE = {"type": "Linear", "start": "12.5%", "end": "100%", "from": 1.0, "to": 0.0}

EARLY = {"train__steps": 8, "train__shares_of": 16}


def _shared(**changes: Any) -> dict[str, Any]:
    return {
        "steps.painter.lr_schedule": SCHEDULE,
        "losses.distance.after": "50%",
        "train.evaluate_every": "25%",
    } | {key.replace("__", "."): value for key, value in changes.items()}


@pytest.mark.parametrize(("steps", "start", "after", "every"), [(8, 1, 4, 2), (16, 2, 8, 4), (21, 3, 10, 5)])
def test_a_share_is_that_of_the_steps_rounded(steps: int, start: int, after: int, every: int) -> None:
    """2.625 steps are 3, and 10.5 and 5.25 are 10 and 5: halves go to the even number."""
    recipe = toy.checked(_shared(train__steps=steps))
    schedule = recipe.steps["painter"].lr_schedule
    assert schedule is not None
    assert (schedule.arguments["start"], schedule.arguments["end"]) == (start, steps)
    assert (recipe.losses["distance"].after, recipe.train.evaluate_every) == (after, every)


def test_a_training_that_ends_early_has_the_schedules_of_the_whole_one() -> None:
    whole, early = (toy.checked(_shared(**changes)) for changes in ({"train__steps": 16}, EARLY))
    assert early.train.steps == 8
    assert early.steps["painter"].lr_schedule == whole.steps["painter"].lr_schedule
    assert early.model_dump()["train"] | {"steps": 16} == whole.model_dump()["train"]  # so their states are shared


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train__steps": None, "train__epochs": 2},
         r"`[\w.]+: [\d.]+%` and 3 more; write epochs x examples / data\.batch_size in place of epochs"),
        ({"train__steps": "50%"}, "`.*` and 4 more$"),
        (EARLY | {"train__shares_of": "200%"}, "`.*` and 4 more$"),
    ],
)  # fmt: skip
def test_a_share_needs_a_number_of_steps(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as told:
        toy.checked(_shared(**changes))
    (line,) = str(told.value).splitlines()
    assert re.search(f"train.steps: expected a number: shares of it are {said}", line)


@pytest.mark.parametrize("end", ["44 %", 0.44])
def test_another_form_of_a_share_is_named(end: str | float) -> None:
    with pytest.raises(UserError, match=r"lr_schedule\.end: found .*; a share of the training is written 44%"):
        toy.checked(_shared(steps__painter__lr_schedule=SCHEDULE | {"end": end}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data.train.ramps.jitter": "10%"}, r"data\.train\.ramps\.jitter: found '10%'; expected a number"),
        ({"networks.painter.dropout": "10%"}, r"networks\.painter\.dropout: found '10%'; expected a number"),
        ({"losses.distance.weight": "50%"}, r"losses\.distance\.weight: found '50%'; expected a number"),
        ({"losses.distance.power": "50%"}, r"losses\.distance\.power: found '50%'; expected a number"),
        ({"steps.painter.optimizer.lr": "5%"}, r"steps\.painter\.optimizer\.lr: found '5%'; expected a number"),
        ({"metrics.confidence": "95%"}, r"metrics\.confidence: found '95%'; expected a number"),
    ],
)
def test_where_no_times_stand_a_share_is_no_number(changes: dict[str, str], said: str) -> None:
    """`jitter: 10%` was 1.2 of 12 steps, a jitter of 1."""
    with pytest.raises(UserError, match=said):
        toy.checked(changes)


def test_a_weight_of_data_and_of_a_loss_change_at_shares() -> None:
    recipe = toy.checked({"data.train.ramps.schedule": SCHEDULE, "losses.square.schedule": SCHEDULE, "train.steps": 8})
    entries = recipe.data.train["ramps"].schedule, recipe.losses["square"].schedule
    assert [(one.arguments["start"], one.arguments["end"]) for one in entries if one] == [(1, 8), (1, 8)]


def test_an_entry_whose_base_is_unknown_lacks_nothing_else() -> None:
    with pytest.raises(UserError, match=r"losses\.distance\.extends: unknown entry 'none'") as told:
        toy.checked({"losses.distance": {"extends": "none"}})
    assert "missing" not in str(told.value)
