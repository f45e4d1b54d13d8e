"""Learning rates for another batch size: the rule stands in the recipe."""

import pytest
import toy
from trainings import BASE

from figura.training.trainer import Trainer


@pytest.mark.parametrize(("rule", "factor"), [("linear", 4), ("sqrt", 2)])
def test_learning_rates_follow_the_batch_size_as_the_recipe_says(rule, factor, run):
    def rates(changes):
        steps = Trainer(toy.checked(BASE | changes), run).steps
        return [rate for step in steps.values() for rate in step.rates]

    plain = rates({"data.batch_size": 4})
    scaled = rates({"data.batch_size": 4, "train.rate_scaling": {"rule": rule, "batch_size": 1}})
    assert scaled == pytest.approx([factor * rate for rate in plain])
    assert rates({"data.batch_size": 4, "train.rate_scaling": {"rule": rule, "batch_size": 4}}) == plain


def test_a_training_with_a_rule_ends(run):
    changes = {"train.rate_scaling": {"rule": "linear", "batch_size": 4}, "train.steps": 2, "train.evaluate_every": 2}
    trainer = Trainer(toy.checked(BASE | changes), run)
    trainer.fit()
    assert trainer.iteration == 2
