"""The engine against bare PyTorch loops with the same seeds, and what may not change a result."""

import json
import random
from importlib.metadata import version

import numpy as np
import pytest
import torch
import toy
from torch.utils.data import default_collate
from trainings import QUIET, Killed, Recording, assert_same, fit, history, outputs, trained, weights
from two_processes import run_in_two

from figura.base.errors import UserError
from figura.base.seeding import generator, seed_here
from figura.engine.data import Loaders, TrainBatches
from figura.engine.weights import load_weights, save_weights
from figura.interfaces import Callback, Listener
from figura.training.trainer import Trainer


def batches(count, jitter=0.1, length=22):
    """The batches that the toy recipe trains on."""
    data = toy.Ramps(length, jitter)
    for keys, _ in zip(TrainBatches({"ramps": length}, {"ramps": 1.0}, 4, seed=3), range(count), strict=False):
        yield default_collate([data.example(i, generator(3, "example", "ramps", epoch, i)) for _, epoch, i in keys])


def network(name, kind, *arguments):
    seed_here(3, "network", name)
    return kind(*arguments)


def bare_painter(count):
    """The toy recipe without the engine: weights after each update, raw losses of each."""
    painter = network("painter", toy.Painter, 2, 0.1)
    adam = torch.optim.Adam(painter.parameters(), lr=0.01, betas=(0.5, 0.9))
    for step, batch in enumerate(batches(count)):
        seed_here(3, "iteration", step, 0)
        error = (painter(batch["x"], noise=0.05)["image"] - batch["y"]).abs()
        distance, square = error.mean(dim=(1, 2, 3)).mean(), (error**2).mean(dim=(1, 2, 3)).mean()
        ramp = min(max((step - 2) / 4, 0.0), 1.0)
        adam.zero_grad()
        (2.0 * distance + 0.5 * ramp * square).backward()
        torch.nn.utils.clip_grad_norm_(painter.parameters(), 1.0)
        adam.step()
        after = {f"painter.{name}": value.clone() for name, value in painter.state_dict().items()}
        yield after, {"distance": distance.item(), "square": square.item(), "weight": 0.5 * ramp}


def test_equals_a_bare_loop_bit_for_bit(run):
    trainer = trained(run, kind=Recording)
    steps = list(bare_painter(12))
    for own, (expected, _) in zip([*trainer.snapshots[1:], weights(trainer)], steps, strict=True):
        assert_same(own, expected)
    rows = history(run)
    assert [row["step"] for row in rows] == [3, 6, 9, 12]
    for index, row in enumerate(rows):
        window = [losses for _, losses in steps[3 * index : 3 * index + 3]]
        for name in ("distance", "square"):
            assert row[f"{name}.raw"] == pytest.approx(np.mean([losses[name] for losses in window]), rel=1e-12)
        assert row["distance.weight"] == 2.0
        assert row["square.weight"] == pytest.approx(np.mean([losses["weight"] for losses in window]), rel=1e-12)
        product = np.mean([losses["weight"] * losses["square"] for losses in window])
        assert row["square.weighted"] == pytest.approx(product, rel=1e-6)
        assert row["painter.lr"] == 0.01
        assert row["painter.skipped"] == 0


@pytest.mark.parametrize("ema", [None, {"decay": 0.3}, {"decay": 0.3, "warmup": True}])
def test_the_average_of_the_weights_is_what_is_written(run, ema):
    """Update 0 copies the weights; update t then keeps min(decay, (1 + t) / (10 + t)) of the average."""
    seen = []

    class Noting(Callback):
        def after_update(self, trainer, step, report):
            seen.append(trainer.networks.live["painter"].layer.weight.detach().double().clone())

    trainer = trained(run, {"train.ema": ema}, callbacks={"noting": Noting()})
    written = toy.Painter(2)
    load_weights(written, run / "model" / "painter.safetensors")
    kind = "ema" if ema else "live"
    assert_same({f"painter.{k}": v for k, v in written.state_dict().items()}, weights(trainer, kind))
    average = seen[0]
    for t, weight in enumerate(seen[1:], 1):
        kept = 0.0 if ema is None else min(0.3, (1 + t) / (10 + t)) if "warmup" in ema else 0.3
        average = kept * average + (1 - kept) * weight
    assert len(seen) == 12  # up to t = 11, where (1 + t) / (10 + t) is above 0.3 long since
    torch.testing.assert_close(written.layer.weight.detach().double(), average, rtol=1e-5, atol=1e-7)
    if ema:  # the average is another thing than the last weights
        assert (seen[-1] - average).abs().max() > 1e-3


def test_an_iteration_without_losses_adds_nothing_to_the_average(run):
    """Of 12 iterations, 0, 3, 6 and 9 have losses, and so an update."""
    every = {f"losses.{name}.every": 3 for name in ("distance", "square")}
    trainer = trained(run, every | {"train.ema": {"decay": 0.3}})
    assert int(trainer.averages["painter"].n_averaged) == 4


def test_the_average_of_a_network_that_two_steps_train_is_updated_once_an_iteration(run):
    content = toy.gan()
    again = {"paint": toy.PAINT | {"outputs": {"image": "again"}}}
    content["steps"]["second"] = content["steps"]["painter"] | {"injectors": again}
    content["losses"]["again"] = content["losses"]["distance"] | {"step": "second"}
    content["losses"]["again"]["inputs"] = {"image": "again", "target": "y"}
    trainer = trained(run, {"train.steps": 3, "train.ema": {"decay": 0.5}}, content)
    assert {name: int(one.n_averaged) for name, one in trainer.averages.items()} == {"painter": 3, "critic": 3}


def bare_gan(count):
    painter, critic = network("painter", toy.Painter, 2), network("critic", toy.Critic)
    paint = torch.optim.Adam(painter.parameters(), lr=0.02)
    judge = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.9))
    for step, batch in enumerate(batches(count)):
        seed_here(3, "iteration", step, 0)
        image = painter(batch["x"])["image"]
        real, fake = critic(batch["y"])["score"], critic(image.detach())["score"]
        judge.zero_grad()
        (0.5 * ((real - 1) ** 2).mean() + 0.5 * (fake**2).mean()).backward()
        judge.step()
        judged = critic(image)["score"]
        paint.zero_grad()
        (((judged - 1) ** 2).mean() + 3.0 * (image - batch["y"]).abs().mean(dim=(1, 2, 3)).mean()).backward()
        paint.step()
        yield {
            f"{name}.{key}": value.clone()
            for name, net in (("painter", painter), ("critic", critic))
            for key, value in net.state_dict().items()
        }


GAN = {"steps.painter.clip": None, "train.steps": 9}


def test_two_networks_that_share_a_forward_equal_a_bare_loop(run):
    trainer = trained(run, GAN, toy.gan(), kind=Recording)
    for own, expected in zip([*trainer.snapshots[1:], weights(trainer)], bare_gan(9), strict=True):
        assert_same(own, expected, atol=1e-7)


@pytest.mark.parametrize("parts", [3, 9])
def test_accumulation_equals_the_whole_batch(run, parts):
    plain = {"networks.painter.dropout": 0.0, "steps.painter.injectors.paint.args": {}, "train.ema": None}
    whole = trained(run / "1", plain)
    cut = trained(run / "2", plain | {"train.accumulation": parts})
    assert_same(weights(cut), weights(whole), atol=1e-6)
    for row, expected in zip(history(run / "2"), history(run / "1"), strict=True):
        assert row == pytest.approx(expected, rel=1e-5)


def broken(run, first, **changes):
    """Train where examples from `first` on are not numbers; return the trainer and which iterations are hit."""
    trainer = Recording(toy.checked(QUIET | {"data.train.ramps.broken_from": first} | changes), run)
    keys = zip(TrainBatches({"ramps": 22}, {"ramps": 1.0}, 4, seed=3), range(trainer.last), strict=False)
    return trainer, [step for batch, step in keys if any(index >= first for *_, index in batch)]


def test_what_is_not_finite_is_skipped_and_counted(run):
    trainer, hit = broken(run, 19, **{"train.max_nonfinite": 12, "train.record_every": 1})
    trainer.fit()
    assert 2 <= len(hit) <= 8
    snapshots = [*trainer.snapshots, weights(trainer)]
    for step in range(12):
        same = all(torch.equal(snapshots[step][name], snapshots[step + 1][name]) for name in snapshots[0])
        assert same == (step in hit)
    rows = history(run)
    assert [row["painter.skipped"] for row in rows] == [float(step in hit) for step in range(12)]
    assert all(("distance.raw" in row) == (step not in hit) for step, row in enumerate(rows))
    average = None  # no update, no step of the average
    for step, after in enumerate(snapshots[1:]):
        after = {name: value.double().numpy() for name, value in after.items()}
        if step not in hit:
            average = after if average is None else {name: 0.9 * average[name] + 0.1 * after[name] for name in average}
    for name, value in weights(trainer, "ema").items():
        np.testing.assert_allclose(value, average[name], atol=1e-6)


@pytest.mark.parametrize("limit", [1, 4])
def test_too_many_skips_in_a_row_end_the_training(run, limit):
    trainer, _ = broken(run, 0, **{"train.max_nonfinite": limit})
    with pytest.raises(UserError) as caught:
        trainer.fit()
    said = str(caught.value)
    assert said.startswith(
        f"step 'painter': {limit} updates in a row were not finite (train.max_nonfinite), the last in"
    )
    assert f"iteration {limit}. The first that was not finite is the loss 'distance' of step 'painter'" in said
    assert f"in iteration 1: `figura replay {run} --step 1` shows the batch and what broke. No update came be" in said
    assert not (run / "model").exists()


def test_processes_name_the_same_loss(run, tmp_path):
    """Only the first has the losses in a file."""

    def train():
        trainer, _ = broken(run, 0, **{"train.max_nonfinite": 2})
        with pytest.raises(UserError) as caught:
            trainer.fit()
        (tmp_path / f"said-{trainer.accelerator.process_index}").write_text(str(caught.value))

    run_in_two(train)
    first, second = ((tmp_path / f"said-{rank}").read_text() for rank in range(2))
    assert "The first that was not finite is the loss 'distance' of step 'painter', in iteration 1" in first
    assert second == first


def test_skips_that_are_not_in_a_row_are_forgiven(run):
    _, hit = broken(run, 19, **{"train.max_nonfinite": 12})
    row = longest = 0
    for step in range(12):
        row = row + 1 if step in hit else 0
        longest = max(longest, row)
    assert len(hit) > longest  # otherwise this shows nothing
    broken(run, 19, **{"train.max_nonfinite": longest + 1})[0].fit()
    with pytest.raises(UserError):
        broken(run, 19, **{"train.max_nonfinite": longest})[0].fit()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The outputs of the toy recipe as it is."""
    run = tmp_path_factory.mktemp("reference") / "run"
    Trainer(toy.checked(), run).fit()
    return outputs(run)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"log_every": 1},
        {"workers": 2},
        {"timing": False},
        {"samples": None},
        {"resume_every": 1},
        {"progress": True},
        {"trackers": ["tensorboard"]},
        {"trackers": ["dvclive"]},
    ],
    ids=str,
)
def test_runtime_changes_no_output(run, reference, changes):
    trained(run, {"runtime": toy.recipe()["runtime"] | changes, "evaluate.batch_size": 2, "metrics.bootstrap": 5})
    assert outputs(run) == reference


def test_outputs_are_these(reference):
    assert sorted(reference) == [
        "history/SHA256SUMS", "history/train.csv", "history/validation.csv", "model/painter.safetensors",
        "model/provenance.json", "model/recipe.yaml",
    ]  # fmt: skip
    assert set(json.loads(reference["model/provenance.json"])) == {"data", "environment", "packages", "start"}


@pytest.mark.parametrize("every", [1, 4, None])
def test_evaluations_change_no_weights(run, reference, every):
    trained(run, {"train.evaluate_every": every})
    own = outputs(run)
    for name in ("model/painter.safetensors", "history/train.csv"):
        assert own[name] == reference[name]
    steps = {1: list(range(1, 13)), 4: [4, 8, 12], None: [5, 10, 12]}  # an epoch has 5 batches
    assert [row["step"] for row in history(run, "validation")] == steps[every]


def test_validation_is_the_mean_over_the_sorted_split(run):
    quiet = {"steps.painter.injectors.paint.args": {}, "data.validation.ramps.length": 7}
    trainer = trained(run, quiet)
    data = toy.Ramps(7)
    examples = [data.example(index, generator(3, "example", "ramps", 0, index)) for index in range(7)]
    painter = trainer.networks.ema["painter"].eval()
    with torch.no_grad():
        error = np.stack([
            np.abs(painter(torch.from_numpy(e["x"])[None])["image"][0].numpy().astype(np.float64) - e["y"])
            for e in examples
        ])  # fmt: skip
    row = history(run, "validation")[-1]
    assert row["distance.raw"] == pytest.approx(error.mean(), rel=1e-6)
    assert row["square.raw"] == pytest.approx((error**2).mean(), rel=1e-6)


def test_operations_and_modes(run):
    """`log_op` and `eval_op` look, give what they promise, and leave weights, statistics, modes and the clock alone."""
    trainer = Trainer(toy.checked(GAN, toy.gan()), run)
    trainer.networks.live["critic"].norm.eval()  # frozen
    modes = [module.training for net in trainer.networks.live.values() for module in net.modules()]
    before = weights(trainer)
    batch = next(batches(1))
    state, means = trainer.log_op(batch)
    values = trainer.eval_op(batch)
    assert_same(weights(trainer), before)
    assert modes == [module.training for net in trainer.networks.live.values() for module in net.modules()]
    assert not any(modes) is all(modes)
    assert trainer.iteration == 0
    assert {"image", "real", "fake", "judged"} <= state.keys()
    assert not state["image"].requires_grad
    assert {name: value.shape for name, value in values.items()} == dict.fromkeys(
        ("real", "fake", "fool", "distance"), (4,)
    )
    assert {name: value.mean().item() for name, value in values.items()} == pytest.approx(
        {name: value for name, value in means.items() if name != "total"}
    )
    total = 0.5 * means["real"] + 0.5 * means["fake"] + means["fool"] + 3 * means["distance"]
    assert means["total"] == pytest.approx(total, rel=1e-6)
    reports = trainer.train_op(batch)
    assert list(reports) == ["critic", "painter"]
    assert not torch.equal(weights(trainer)["painter.layer.weight"], before["painter.layer.weight"])


def test_the_live_log(run):
    trained(run, {"runtime.timing": True, "runtime.log_every": 5})
    first, *lines = [json.loads(line) for line in (run / "live" / "log.jsonl").read_text().splitlines()]
    assert set(first["process"]) == {"command", "host", "packages", "environment", "commit", "changed_files"}
    assert (first["processes"], first["threads"]) == (1, torch.get_num_threads())
    assert first["process"]["packages"]["torch"] == version("torch")  # not always torch.__version__, which names CUDA
    assert [line["step"] for line in lines] == [5, 10, 12]
    expected = {"train.distance", "train.total", "weight.square", "lr.painter", "validation.square", "validation.total"}
    expected |= {"images_per_second", "seconds.data", "seconds.forward", "seconds.backward", "seconds.optimizer"}
    assert expected <= lines[0].keys()
    steps = [losses for _, losses in bare_painter(12)]
    assert lines[-1]["train.distance"] == pytest.approx(steps[-1]["distance"])
    total = 2 * steps[-1]["distance"] + 0.5 * steps[-1]["square"]
    assert lines[-1]["train.total"] == pytest.approx(total)


class Drawing(Listener):
    """Draws from every generator of random numbers, leaves another state of each, and notes when it was called."""

    def __init__(self):
        self.seen = []

    def on_start(self, training):
        self.seen.append(("start", training.iteration))
        self.draw()

    def on_iteration(self, training, evaluated):
        self.seen.append((training.iteration, evaluated))
        self.draw()

    def draw(self):
        torch.manual_seed(torch.randint(99, ()).item())
        np.random.seed(np.random.randint(99))  # the generator that libraries share
        random.seed(random.random())


def test_a_listener_sees_every_iteration_also_after_a_kill_and_changes_no_output(run, reference):
    drawing, again = Drawing(), Drawing()
    with pytest.raises(Killed):
        fit(run, {}, stop=9, listeners=[drawing])
    fit(run, {}, listeners=[again])
    assert drawing.seen == [("start", 0), *((step, step == 5) for step in range(1, 10))]
    assert again.seen == [("start", 8), (9, False), (10, True), (11, False), (12, True)]
    assert outputs(run) == reference


def test_a_network_that_is_loaded_and_not_trained_stays_as_it_is(run, tmp_path):
    critic = network("other", toy.Critic)
    critic(torch.randn(4, 1, 4, 4))
    save_weights(critic, tmp_path / "critic.safetensors")
    content = toy.gan()
    del content["steps"]["critic"], content["losses"]["real"], content["losses"]["fake"]
    paint = toy.gan()["steps"]["critic"]["injectors"]["paint"]
    content["steps"]["painter"]["injectors"] = {"paint": paint, **content["steps"]["painter"]["injectors"]}
    content["networks"]["critic"]["weights"] = str(tmp_path / "critic.safetensors")
    trainer = trained(run, {"train.steps": 3, "train.ema": {"decay": 0.5}}, content)
    expected = {f"critic.{key}": value for key, value in critic.state_dict().items()}
    for networks in ("live", "ema"):
        own = {name: value for name, value in weights(trainer, networks).items() if name.startswith("critic.")}
        assert_same(own, expected)


def test_a_batch_that_processes_cannot_share():
    data = {"ramps": toy.Ramps(22)}
    with pytest.raises(UserError, match=r"data\.batch_size: found 4, which 3 ranks cannot share evenly"):
        Loaders(toy.checked(), data, data, rank=0, ranks=3, pin=False)


@pytest.mark.parametrize(("clip_value", "warned"), [(1.0, True), (0.1, False)])
def test_an_update_that_may_upset_batch_norm_is_warned_about(run, capsys, clip_value, warned):
    changes = {**GAN, **QUIET, "train.steps": 1, "steps.critic.clip_value": clip_value}  # rate 0.01, eps 1e-5
    trained(run, changes, toy.gan())
    said = "learning rate 0.01 x clip_value 1 = 0.01 is above sqrt(eps) = 0.00316228"
    assert (said in capsys.readouterr().out) == warned


class Seeing(Trainer):
    """Notes the examples of each validation pass."""

    def eval_op(self, batch):
        self.seen = [*getattr(self, "seen", []), batch["index"].tolist()]
        return super().eval_op(batch)


def test_the_examples_are_evenly_spaced(run):
    trainer = trained(run, {"train.evaluate_limit": 4, "data.validation.ramps.length": 10}, kind=Seeing)
    assert trainer.seen == [[0, 2, 5, 7]] * len(history(run, "validation"))  # every 2.5th of 10
