"""What reaches a hook: what it asks for by name, and the keywords under its own name."""

import pytest
import toy

from models.base.errors import UserError
from models.training.hooks import Hooks
from models.training.trainer import Trainer

OFFERS = {"start": ["epoch"], "step": ["batch", "index", "x", "y"]}
VALUES = {"batch": {"x": 1, "y": 2}, "index": 5, "x": 1, "y": 2}


class Owner:
    def __init__(self):
        self.seen = []

    def start(self, epoch):
        self.seen.append(("start", epoch))

    def step(self, x, y, index, factor=1, **rest):
        return (x, y, index, factor, rest)


def hooks(callables=None, keywords=None, owner=None):
    return Hooks(owner or Owner(), OFFERS, callables or {}, keywords or {})


def test_a_method_gets_what_its_parameters_are_named_after():
    assert hooks()("step", VALUES) == (1, 2, 5, 1, {})
    assert hooks(keywords={"step": {"factor": 3, "word": "go"}})("step", VALUES) == (1, 2, 5, 3, {"word": "go"})


def test_a_callable_gets_the_owner_first():
    owner = Owner()
    called = hooks({"step": lambda trainer, batch, *, y: (trainer, batch, y)}, owner=owner)
    assert called("step", VALUES) == (owner, {"x": 1, "y": 2}, 2)
    called("start", {"epoch": 3})
    assert owner.seen == [("start", 3)]


def test_keywords_reach_the_callback_they_name_alone():
    got = {}
    called = hooks(
        {"start": lambda o, **k: got.update(start=k), "step": lambda o, **k: got.update(step=k)},
        {"start": {"print_train_start": True}, "step": {"scale": 2}},
    )
    called("start", {"epoch": 0})
    called("step", VALUES)
    assert got == {"start": {"print_train_start": True}, "step": {"scale": 2}}


def test_a_keyword_may_replace_what_is_offered():
    assert hooks(keywords={"step": {"index": 7}})("step", VALUES)[2] == 7


@pytest.mark.parametrize(
    ("callables", "keywords", "said"),
    [
        (
            {},
            {"stpe": {}},
            r"hook_kwargs: unknown callback 'stpe' \(did you mean 'step'\?\); there are start, step",
        ),
        ({}, {"start": {"epohc": 1}}, r"start \(Owner\.start\) takes no 'epohc' \(did you mean 'epoch'\?\)"),
        ({"step": lambda o, x, yy: 0}, {}, r"needs 'yy' .*nobody gives; it may ask for batch, index, x, y"),
        ({"step": lambda o, x, z: 0}, {"start": {}}, r"or get it through hook_kwargs\.step"),
    ],
)
def test_what_does_not_fit_is_an_error(callables, keywords, said):
    with pytest.raises(UserError, match=said):
        hooks(callables, keywords)


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
