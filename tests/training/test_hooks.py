"""What reaches a hook: what it asks for by name, and the keywords under its own name."""

from functools import partial

import pytest
import toy

from figura.base.errors import UserError
from figura.training.hooks import by_parameter_names
from figura.training.trainer import Trainer

EPOCH, STEP = ["epoch"], ["batch", "index", "x", "y"]
VALUES = {"batch": {"x": 1, "y": 2}, "index": 5, "x": 1, "y": 2}


class Owner:
    def start(self, epoch):
        return ("start", epoch)

    def step(self, x, y, index, factor=1, **rest):
        return (x, y, index, factor, rest)


def stepped(keywords=None):
    return by_parameter_names("step", Owner().step, STEP, keywords or {})(VALUES)


def test_a_method_gets_what_its_parameters_are_named_after():
    assert stepped() == (1, 2, 5, 1, {})
    assert stepped({"factor": 3, "word": "go"}) == (1, 2, 5, 3, {"word": "go"})
    assert by_parameter_names("start", Owner().start, EPOCH, {})({"epoch": 3}) == ("start", 3)


def test_a_function_gets_the_owner_first():
    owner = Owner()
    hook = by_parameter_names("step", partial(lambda trainer, batch, *, y: (trainer, batch, y), owner), STEP, {})
    assert hook(VALUES) == (owner, {"x": 1, "y": 2}, 2)


def test_keywords_reach_the_hook_they_name_alone(run):
    keywords = {"on_epoch_start": {"print_train_start": True}, "train_step": {"scale": 2}}
    seen = {}

    def start(trainer, **rest):
        seen["on_epoch_start"] = rest

    def step(trainer, batch, **rest):
        seen["train_step"] = rest
        return trainer.train_op(batch)

    def end(trainer, **rest):
        seen["on_epoch_end"] = rest

    recipe = toy.checked({"runtime.samples": None, "train.steps": 5})
    hooks = {"on_epoch_start": start, "train_step": step, "on_epoch_end": end}
    Trainer(recipe, run, **hooks, hook_kwargs=keywords).fit()
    assert seen == keywords | {"on_epoch_end": {}}


def test_a_keyword_may_replace_what_is_offered():
    assert stepped({"index": 7})[2] == 7


@pytest.mark.parametrize(
    ("name", "hook", "offered", "keywords", "said"),
    [
        (
            "start", Owner().start, EPOCH, {"epohc": 1},
            r"hook_kwargs\.start \(Owner\.start\) takes no 'epohc' \(did you mean 'epoch'\?\)",
        ),
        ("step", lambda x, yy: 0, STEP, {}, r"needs 'yy'.*; it may ask for batch, index, x, y"),
        ("step", lambda x, z: 0, STEP, {}, r"or get it through hook_kwargs\.step"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error(name, hook, offered, keywords, said):
    with pytest.raises(UserError, match=said):
        by_parameter_names(name, hook, offered, keywords)


def test_an_unknown_hook_is_an_error_before_anything_is_built(run):
    said = (
        r"hook_kwargs: unknown hook 'train_stpe' \(did you mean 'train_step'\?\); there are on_epoch_start, train_step"
    )
    with pytest.raises(UserError, match=said):
        Trainer(toy.checked(), run, hook_kwargs={"train_stpe": {}})
    assert not run.exists()


def test_names_of_the_batch_in_a_training(run):
    seen = []

    def step(trainer, x, y, index):
        seen.append((x.shape, y.shape, index))
        return trainer.train_op({"x": x, "y": y})

    Trainer(toy.checked({"runtime.samples": None}), run, train_step=step).fit()
    assert seen == [((4, 1, 4, 4), (4, 1, 4, 4), index % 5) for index in range(12)]


def test_epoch_start_prints_all_weights(run, capsys):
    changes = {"runtime.samples": None}
    Trainer(toy.checked(changes), run).fit()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    # at steps 0, 5 and 10: `distance` 2; `square` 0.5 times a ramp from step 2 to 6
    assert said == [
        "epoch 0: loss weights distance 2, square 0",
        "epoch 1: loss weights distance 2, square 0.375",
        "epoch 2: loss weights distance 2, square 0.5",
    ]
    quiet = {"on_epoch_start": {"print_train_start": False}}
    Trainer(toy.checked(changes), run, hook_kwargs=quiet).fit()
    assert "loss weights" not in capsys.readouterr().out


def test_short_epochs_print_no_oftener_than_the_log(run, capsys):
    trainer = Trainer(toy.checked({"runtime.samples": None, "runtime.log_every": 7}), run)
    trainer.fit()
    said = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert said == ["epoch 0", "epoch 2"]  # after 0 and 10 iterations; 5 are too few


def test_the_keywords_go_by_the_name_of_nectargan_as_well(run, capsys):
    quiet = {"on_epoch_start": {"print_train_start": False}}
    Trainer(toy.checked({"runtime.samples": None, "train.steps": 5}), run, callback_kwargs=quiet).fit()
    assert "loss weights" not in capsys.readouterr().out
