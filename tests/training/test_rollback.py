"""Updates that are not finite: training goes back and on more slowly, says so, and may be killed on the way."""

import shutil

import pytest
import torch
import toy
from trainings import Killed, history, outputs

from figura.base.errors import UserError
from figura.base.seeding import derive
from figura.interfaces import Injector
from figura.training.trainer import Trainer


class Poison(Injector):
    """`image` times NaN in iterations `start` <= t < `stop`, as long as these have the noise of the first time."""

    def __init__(self, start: int, stop: int, output: str, ever: bool = False) -> None:
        self.start, self.stop, self.output, self.ever = start, stop, output, ever
        self.reads, self.adds = ("image",), (output,)

    def __call__(self, state, networks, step):
        first = torch.initial_seed() == derive(3, "iteration", step, 0)
        hit = torch.is_grad_enabled() and self.start <= step < self.stop and (first or self.ever)
        state.add(self.output, state["image"] * (torch.nan if hit else 1.0))


class Stopping(Trainer):
    """Notes the iterations it takes; stops before the one at place `stop` of them."""

    stop: int | None = None

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.done = []

    def train_step(self, batch, index):
        if len(self.done) == self.stop:
            raise Killed
        self.done.append(self.iteration)
        return super().train_step(batch, index)


PAINT = {
    "type": "Forward",
    "network": "painter",
    "inputs": {"x": "x"},
    "args": {"noise": 0.05},
    "outputs": {"image": "image"},
}
POISON = {"type": "test_rollback.Poison", "start": 6, "stop": 9, "output": "poisoned"}
ROLLBACK = {
    "runtime.samples": None,
    "runtime.timing": False,
    "runtime.resume_every": 3,
    "train.steps": 16,
    "train.record_every": 2,
    "train.max_nonfinite": 3,
    "train.rollback": {"every": 4, "after": 3, "times": 2, "rate_factor": 0.5},
    "steps.painter.injectors": {"paint": PAINT, "poison": POISON},
    "losses.distance.inputs.image": "poisoned",
}


def fit(run, changes=None, stop=None, kind=Stopping):
    trainer = kind(toy.checked(ROLLBACK | (changes or {})), run)
    trainer.stop = stop
    trainer.fit()
    return trainer


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory):
    """The outputs of the recipe that rolls back once, and its iterations."""
    run = tmp_path_factory.mktemp("rolled_back") / "run"
    trainer = fit(run)
    return outputs(run), trainer.done


def test_it_goes_back_more_slowly_with_other_noise_and_says_so(run, capsys):
    trainer = fit(run)
    assert trainer.done == [*range(9), *range(4, 16)]
    said = capsys.readouterr().out
    assert (
        "warning: step 'painter': 3 updates in a row were not finite, the last in iteration 9; going on after "
        "iteration 4 with learning rates x 0.5 and other noise (train.rollback: 1 of 2)" in said
    )
    rows = history(run)
    assert [row["step"] for row in rows] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [row["painter.lr"] for row in rows] == [0.01] * 2 + [0.005] * 6
    assert ["rollbacks" in row for row in rows] == [False] * 2 + [True] * 6
    assert rows[-1]["rollbacks"] == 1
    assert sum(row["painter.skipped"] for row in rows) == 0
    assert trainer.loss_log.history("distance")["step"].tolist() == list(range(1, 17))
    assert "going on after iteration 4" in (run / "live" / "log.jsonl").read_text()


def test_the_loss_ends_where_it_would_have_without(run):
    long = {"train.steps": 120, "train.record_every": 40, "train.evaluate_every": 120, "runtime.resume_every": 120,
            "train.rollback.every": 10, "steps.painter.optimizer.lr": 0.02}  # fmt: skip
    poison = {"steps.painter.injectors.poison": {**POISON, "start": 35, "stop": 38}}
    trouble = fit(run / "1", long | poison)
    assert len(trouble.done) == 120 + 8
    never = fit(run / "2", long | {"steps.painter.injectors.poison": {**POISON, "stop": 6}})
    (a, b) = (history(run / place, "validation")[-1]["distance.raw"] for place in "12")
    first = history(run / "2")[0]["distance.raw"]
    assert never.done == list(range(120))
    assert abs(a - b) < 0.1 * first
    assert max(a, b) < 0.5 * first


@pytest.mark.parametrize("stop", [3, 5, 7, 8, 9, 10, 12, 13, 17, 20])
def test_killed_anywhere_it_ends_in_the_same_bytes(run, rolled_back, stop):
    expected, done = rolled_back
    with pytest.raises(Killed):
        fit(run, stop=stop)
    trainer = fit(run)
    assert outputs(run) == expected
    assert trainer.done == done[len(done) - len(trainer.done) :]
    assert len(trainer.done) < len(done)


def test_killed_again_and_again(run, rolled_back):
    for stop in (5, 5, 3, 4):
        with pytest.raises(Killed):
            fit(run, stop=stop)
    fit(run)
    assert outputs(run) == rolled_back[0]


@pytest.mark.parametrize("every", [1, 2, 5, 100])
def test_it_does_not_depend_on_resume_points(run, rolled_back, every):
    fit(run, {"runtime.resume_every": every})
    assert outputs(run) == rolled_back[0]


def test_without_trouble_it_changes_nothing(run):
    healthy = {"steps.painter.injectors.poison": {**POISON, "stop": 6}}
    for place, rule in (("1", ROLLBACK["train.rollback"]), ("2", None)):
        fit(run / place, healthy | {"train.rollback": rule})
    same = [name for name in outputs(run / "1") if not name.endswith("recipe.yaml")]
    assert {n: outputs(run / "1")[n] for n in same} == {n: outputs(run / "2")[n] for n in same}


def test_in_the_end_it_gives_up(run):
    always = {"steps.painter.injectors.poison": {**POISON, "stop": 99, "ever": True}}
    with pytest.raises(UserError) as caught:
        fit(run, always)
    said = str(caught.value)
    assert "3 updates in a row were not finite (train.max_nonfinite), the last in iteration 9 " in said
    assert "learning rate 0.0025, after 2 rollbacks (train.rollback)" in said
    shutil.rmtree(run)
    trainer = Stopping(toy.checked(ROLLBACK | always), run)
    with pytest.raises(UserError):
        trainer.fit()
    assert trainer.done == [*range(9), *range(4, 9), *range(4, 9)]


def test_from_the_start_where_nothing_was_kept(run):
    trainer = fit(run, {"steps.painter.injectors.poison": {**POISON, "start": 0, "stop": 3}})
    assert trainer.done == [*range(3), *range(16)]


def test_a_state_in_trouble_is_not_kept(run):
    """Iterations 3 to 5 are skipped: at 4 nothing is kept, training goes back to the start."""
    trainer = fit(run, {"steps.painter.injectors.poison": {**POISON, "start": 3, "stop": 6}})
    assert trainer.done == [*range(6), *range(16)]


def test_a_rule_that_never_applies():
    with pytest.raises(UserError, match=r"train: rollback\.after 4 is more than max_nonfinite 3"):
        toy.checked(ROLLBACK | {"train.rollback.after": 4})
