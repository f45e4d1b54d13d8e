"""Hooks of a training: they get what they ask for by name, and the keywords under their own name."""

import pytest
import toy

from figura.base.errors import UserError
from figura.training.trainer import Trainer

QUIET = {"runtime.samples": None}


def test_hooks_given_to_the_trainer(run):
    seen = []

    def start(trainer, epoch, *, word):
        seen.append(("start", type(trainer), epoch, word))

    def step(trainer, x, y, index, *, factor=1, **rest):
        seen.append(("step", x.shape, y.shape, index, factor, rest))
        return trainer.train_op({"x": x, "y": y})

    def end(trainer, epoch):
        seen.append(("end", epoch))

    keywords = {"on_epoch_start": {"word": "go"}, "train_step": {"index": 7, "more": 3}}
    hooks = {"on_epoch_start": start, "train_step": step, "on_epoch_end": end}
    Trainer(toy.checked(QUIET | {"train.steps": 5}), run, **hooks, hook_kwargs=keywords).fit()
    size = (4, 1, 4, 4)  # a keyword replaces what is offered: the index
    assert seen == [("start", Trainer, 0, "go"), *[("step", size, size, 7, 1, {"more": 3})] * 5, ("end", 0)]


def test_hooks_by_subclass(run):
    seen = []

    class Watched(Trainer):
        def on_epoch_start(self, epoch):
            seen.append(("start", epoch, self.iteration))

        def train_step(self, batch, index):
            seen.append(("step", index, tuple(batch["x"].shape)))
            return self.train_op(batch)

        def on_epoch_end(self, epoch, **keywords):
            seen.append(("end", epoch, self.iteration, keywords))

    Watched(toy.checked(QUIET), run, hook_kwargs={"on_epoch_end": {"word": "done"}}).fit()
    word = {"word": "done"}
    assert [entry for entry in seen if entry[0] != "step"] == [
        ("start", 0, 0), ("end", 0, 5, word), ("start", 1, 5), ("end", 1, 10, word), ("start", 2, 10),
    ]  # fmt: skip
    assert [entry for entry in seen if entry[0] == "step"] == [("step", i % 5, (4, 1, 4, 4)) for i in range(12)]


@pytest.mark.parametrize(
    ("hooks", "keywords", "said"),
    [
        ({}, {"train_stpe": {}}, r"unknown hook 'train_stpe' \(did you mean 'train_step'\?\); there are "),
        (
            {"on_epoch_end": lambda trainer, epoch, word=0: None}, {"on_epoch_end": {"wrod": 1}},
            r"on_epoch_end .* takes no 'wrod' \(did you mean 'word'\?\)",
        ),
        ({}, {"on_epoch_start": {"word": 1}}, r"on_epoch_start .Trainer\.on_epoch_start. takes no 'word'"),
        (
            {"train_step": lambda trainer, x, yy: {}}, {},
            r"needs 'yy'.*; it may ask for batch, index, x, y, .* or get it through hook_kwargs\.train_step",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_before_anything_is_built(run, hooks, keywords, said):
    with pytest.raises(UserError, match=said):
        Trainer(toy.checked(), run, **hooks, hook_kwargs=keywords)
    assert not run.exists()


def test_epoch_start_prints_all_weights(run, capsys):
    Trainer(toy.checked(QUIET), run).fit()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    # at steps 0, 5 and 10: `distance` 2; `square` 0.5 times a ramp from step 2 to 6
    assert said == [
        "epoch 0: loss weights distance 2, square 0",
        "epoch 1: loss weights distance 2, square 0.375",
        "epoch 2: loss weights distance 2, square 0.5",
    ]
    quiet = {"on_epoch_start": {"print_train_start": False}}
    Trainer(toy.checked(QUIET), run, hook_kwargs=quiet).fit()
    assert "loss weights" not in capsys.readouterr().out


def test_short_epochs_print_no_oftener_than_the_log(run, capsys):
    Trainer(toy.checked(QUIET | {"runtime.log_every": 7}), run).fit()
    said = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert said == ["epoch 0", "epoch 2"]  # after 0 and 10 iterations; 5 are too few
