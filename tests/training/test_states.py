"""Trainings that share states end in the bytes of whole ones, and nothing that differs is ever shared."""

import errno
import json
import os
import random
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import toy
import toy_pairs
from trainings import QUIET, Killed, contents, fit, iterations_of
from two_processes import run_in_two

from figura.base.dotted_keys import leaves
from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml
from figura.engine.build import build_callbacks
from figura.interfaces import Callback
from figura.recipe.prefix import Prefixes, digest
from figura.recipe.resolved import resolved
from figura.recipe.schema import RESULT_SECTIONS
from figura.training import state_store, states
from figura.training.state_store import StateStore
from figura.training.trainer import Trainer

EACH = QUIET | {"runtime.resume_every": 1}
STEPS = 12


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """A store of this test, which keeps all states."""
    monkeypatch.setenv("FIGURA_STATES", str(tmp_path / "states"))
    monkeypatch.setattr(states, "KEPT", 1000)
    monkeypatch.setattr(states, "KNOTS", 1000)
    return StateStore(tmp_path / "states")


def train(run, changes=None, content=None, gives=True):
    """Train; return the iterations that this training did."""
    trainer = Trainer(toy.checked(EACH | (changes or {}), content), run)
    if trainer.sharing is not None:
        trainer.sharing.gives = gives
    return iterations_of(trainer)


def whole(run, changes=None, content=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIGURA_STATES", "off")
        return train(run, {"runtime.resume_every": 100, "runtime.log_every": 100} | (changes or {}), content)


def begins_at(changes=None, content=None, run=Path("nowhere")):
    """Return the iteration that a training would begin with."""
    sharing = Trainer(toy.checked(EACH | (changes or {}), content), run).sharing
    found = None if sharing is None else sharing.furthest(0)
    return 0 if found is None else found[0].iteration


def assert_same(run, other):
    for folder in ("model", "history"):
        assert contents(run / folder) == contents(other / folder), folder


# pairs of recipes that part at a random iteration

FORWARD = {"type": "Forward", "network": "critic", "inputs": {"image": "image"}}
CRITIC = {
    "trains": ["critic"],
    "optimizer": {"type": "torch.optim.Adam", "lr": 0.01},
    "injectors": {"judge": FORWARD | {"outputs": {"score": "score"}}},
}


def step_at(at, draw, first=1.0):
    return {"type": "Step", "at": [at], "values": [first, draw.uniform(0.2, 3)]}


def new_network(content, at):
    """A network, its step and its loss, which run from iteration `at` on."""
    last = list(content["steps"])[-1]
    inputs = {"inputs": {"score": "score"}, "step": "judge"}
    return {
        "networks.judge": {"type": "toy.Critic"},
        "steps.judge": json.loads(json.dumps(CRITIC).replace('"critic"', '"judge"')) | {"after": at},
        **{f"losses.{name}.step": loss.get("step", last) for name, loss in content["losses"].items()},
        "losses.late": {"type": "toy.Aim", "at": 0.0, "weight": 1.0} | inputs,
    }


def kinds(content, at, draw):
    """Return, by name, changes by which a recipe differs from iteration `at` on, and from which it really does."""
    plain = [name for name, one in content["losses"].items() if one["weight"] and "schedule" not in one]
    loss, step = draw.choice(plain), draw.choice(list(content["steps"]))
    ramp = {"type": "Linear", "start": at, "end": at + draw.randrange(1, 9), "from": 1.0, "to": 0.1}
    validation = next(iter(content["data"]["validation"].values()))
    found = {
        "weight": ({f"losses.{loss}.schedule": step_at(at, draw)}, at),
        "ends": ({f"losses.{loss}.before": at}, at),
        "begins": ({"losses.begins": content["losses"][loss] | {"after": at}}, at),
        "longer": ({"train.steps": STEPS + draw.randrange(1, 6)}, STEPS),
        "shorter": ({"train.steps": at}, STEPS),
        "evaluation": ({"data.validation": {"other": validation | {"length": 5}}}, content["train"]["evaluate_every"]),
    }
    if content["steps"][step].get("lr_schedule") is None:
        found["rate"] = ({f"steps.{step}.lr_schedule": ramp}, at + 1)  # at its start a ramp has its first value
    if "painter" in content["networks"] and "judge" not in content["networks"]:
        found["network"] = (new_network(content, at), at)
    if "freeze" in content.get("callbacks", {}):
        found["freeze"] = ({"callbacks.freeze.until": at}, at)
        found["dataset"] = ({"data.train.more.schedule": ramp}, at + 1)
    for name in painting(content["steps"][step]):
        found["args"] = ({f"steps.{step}.injectors.{name}.args": {"noise": step_at(at, draw, 0.05)}}, at)
    return found


def painting(step):
    return [name for name, one in step["injectors"].items() if one.get("network") == "painter"]


def mixed():
    """The toy recipe with a second dataset, and a layer that is frozen beyond the end."""
    freeze = {"type": "figura.callbacks.Freeze", "network": "painter", "modules": ["last"], "until": 99}
    more = {"type": "toy.Ramps", "length": 9, "weight": 2.0, "schedule": {"type": "Constant"}}
    return toy.changed({"data.train.more": more, "callbacks": {"freeze": freeze}})


def pairs():
    return toy.changed({"train.steps": STEPS}, toy_pairs.content())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "every"), [(mixed, 1), (toy.gan, 1), (pairs, 3)], ids=["toy", "adversarial", "pix2pix"]
)
def test_recipes_that_part_later_share_what_is_before(made, every, tmp_path):
    """Every second one parts twice."""
    base, draw = made(), random.Random(1)
    for step in base["steps"].values():
        for name in painting(step):
            step["injectors"][name]["args"] = {"noise": {"type": "Constant", "value": 0.05}}
    assert train(tmp_path / "first", content=base) == list(range(STEPS))
    for number, kind in enumerate(list(kinds(base, 1, draw))[::every]):
        changes, at = kinds(base, draw.randrange(1, STEPS), draw).get(kind, ({}, STEPS))
        content, parts = toy.changed(changes, base), [at]
        if number % 2:
            changes, at = draw.choice(list(kinds(content, draw.randrange(1, STEPS), draw).values()))
            content, parts = toy.changed(changes, content), [*parts, at]
        end = content["train"]["steps"]
        done = train(tmp_path / f"{number}", content=content, gives=False)
        assert whole(tmp_path / f"{number}-whole", content=content) == list(range(end))
        assert done == list(range(min(*parts, STEPS, end), end)), (kind, parts, content)
        assert_same(tmp_path / f"{number}", tmp_path / f"{number}-whole")


def test_a_state_goes_from_training_to_training(tmp_path, capsys):
    train(tmp_path / "a", {"train.steps": 5})
    assert train(tmp_path / "b", {"train.steps": 9}) == [5, 6, 7, 8]
    assert train(tmp_path / "c", {"train.steps": 11}) == [9, 10]
    assert "9 of 11 iterations are those of b (state " in capsys.readouterr().out
    assert train(tmp_path / "d", {"train.steps": 9}) == []
    whole(tmp_path / "e", {"train.steps": 11})
    assert_same(tmp_path / "c", tmp_path / "e")
    assert json.loads((tmp_path / "c/live/log.jsonl").read_text().splitlines()[0])["maker"] == "b"


def test_logs_are_those_of_a_whole_training(tmp_path):
    train(tmp_path / "a", {"train.steps": 7})
    train(tmp_path / "b")
    steps = [int(row.split(",")[0]) for row in (tmp_path / "b/live/losses.csv").read_text().splitlines()[1:]]
    assert sorted(set(steps)) == [3, 6, 7, 8, 9, 10, 11, 12]  # windows of the history, then iterations
    logged = [json.loads(line) for line in (tmp_path / "b/live/log.jsonl").read_text().splitlines()]
    assert [one["step"] for one in logged if "train.total" in one] == [3, 6, 8, 12]


# nothing else is shared

PAINT = "steps.painter.injectors.paint"
DETAILED = {
    "data.train.more": {"type": "toy.Ramps", "length": 8, "schedule": {"type": "Constant", "value": 2.0}},
    "losses.distance.schedule": {"type": "Linear", "start": 0, "end": 100, "from": 1.0, "to": 0.0},
    "losses.distance.before": 5,
    "steps.painter.lr_schedule": {"type": "WarmUp", "steps": 9},
    "steps.painter.groups": {"bias": {"pattern": "bias", "lr": 0.1}},
    "steps.painter.clip_value": 0.5,
    "steps.painter.accumulation": 2,
    f"{PAINT}.args.noise": {"type": "Step", "at": [3], "values": [0.05, 0.06]},
    "callbacks": {"freeze": {"type": "figura.callbacks.Freeze", "network": "painter", "modules": ["last"], "until": 3}},
}
SECOND = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "second"}}
DIFFERENT = {
    "name of a dataset": {"data.train.more": ..., "data.train.other": {"type": "toy.Ramps", "length": 8}},
    "fewer data": {"data.train.more": ...},
    "less losses": {"losses.square": ...},
    "more losses": {"losses.third": {"type": "toy.Distance", "inputs": {"image": "image", "target": "y"}, "weight": 1}},
    "inputs": {"losses.square.inputs.target": "x"},
    "optimizer": {"steps.painter.optimizer": {"type": "torch.optim.SGD", "lr": 0.01}},
    "betas": {"steps.painter.optimizer.betas": [0.6, 0.9]},
    "detach": {"steps.painter.detach": ["y"]},
    "another injector": {"steps.painter.injectors.more": SECOND},
    "only": {
        f"{PAINT}.only": "training",
        "steps.painter.injectors.judge": SECOND | {"outputs": {"image": "image"}, "only": "evaluation"},
    },
    "averages": {f"{PAINT}.weights": "ema", "steps.painter.injectors.judge": SECOND},
    "precision": {"train.precision": "bf16"},
    "no ema": {"train.ema": None},
    "no callback": {"callbacks": {}},
}


def detailed():
    """The resolved content of a recipe in which much is set."""
    recipe = toy.checked(DETAILED)
    rest = {section: toy.recipe()[section] for section in ("evaluate", "metrics", "runtime")}
    return parse_yaml(resolved(recipe), "recipe") | rest


def digest_of(content):
    """Of what the first 6 iterations depend on, with the evaluation after 5."""
    recipe = toy.checked(content=content)
    return digest(Prefixes(recipe, recipe.train.evaluate_every, build_callbacks(recipe, {})).at(6))


def test_each_number_and_flag_that_has_had_an_effect_counts():
    content, found = detailed(), {"counts": [], "does not": [], "refused": []}
    first = digest_of(content)
    for key, value in leaves({section: content[section] for section in RESULT_SECTIONS}):
        if isinstance(value, bool | int | float):
            other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value / 2 + 0.1
            try:
                what = "does not" if digest_of(toy.changed({key: other}, content)) == first else "counts"
            except UserError:
                what = "refused"
            found[what].append(key)
    assert found["does not"] == ["train.steps", "train.accumulation"]  # the step has its own
    assert set(found["refused"]) == {f"{PAINT}.every", f"{PAINT}.after"}
    assert len(found["counts"]) > 40


@pytest.mark.parametrize("changes", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_differs_from_the_start_counts(changes):
    assert digest_of(toy.changed(changes, detailed())) != digest_of(detailed())


@pytest.mark.parametrize("section", ["losses", "data.train", "losses.distance.inputs"])
def test_order_counts(section):
    content = detailed()
    inner = content
    for name in section.split("."):
        inner = inner[name]
    for name in list(inner)[:-1]:  # to the end
        inner[name] = inner.pop(name)
    assert digest_of(content) != digest_of(detailed())


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """The states after 6 and 12 iterations."""
    folder = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIGURA_STATES", str(folder / "states"))
        Trainer(toy.checked(QUIET | {"runtime.resume_every": 6}), folder / "run").fit()
    assert {6, 12} <= {one.iteration for one in StateStore(folder / "states").states()}
    return folder / "states"


def set_version(monkeypatch, tmp_path):
    (tmp_path / "other/kornia-9.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "other"))


SURROUNDINGS = {
    "package": set_version,
    "python": lambda monkeypatch, _: monkeypatch.setattr("sys.version", "4.0"),
    "environment": lambda monkeypatch, _: monkeypatch.setenv("MKL_CBWR", "COMPATIBLE"),
    "threads": lambda monkeypatch, _: torch.set_num_threads(2),
    "processor": lambda monkeypatch, _: monkeypatch.setattr(states, "_processor", lambda: "another"),
    "instructions": lambda monkeypatch, _: monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "NO"),
}


@pytest.mark.parametrize("change", SURROUNDINGS.values(), ids=SURROUNDINGS.keys())
def test_other_surroundings_share_nothing(change, trained_once, monkeypatch, tmp_path):
    monkeypatch.setenv("FIGURA_STATES", str(trained_once))
    no_result = {"runtime.workers": 1, "runtime.log_every": 3, "train.steps": 8, "metrics.bootstrap": 9}
    assert (begins_at(), begins_at(no_result)) == (12, 6)
    change(monkeypatch, tmp_path)
    assert begins_at() == 0


OWN = """from figura.interfaces import Loss

class Own(Loss):
    def forward(self, *, image, target):
        return (image - target).abs().mean(dim=(1, 2, 3)) * FACTOR
"""


@pytest.mark.slow
def test_code_counts_from_where_it_runs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_states.py").write_text(OWN.replace("FACTOR", "1.0"))
    late = {"type": "own_states.Own", "inputs": {"image": "image", "target": "y"}, "weight": 1.0, "after": 7}
    train(tmp_path / "a", {"losses.own": late})
    assert begins_at({"losses.own": late}) == STEPS
    (tmp_path / "own_states.py").write_text(OWN.replace("FACTOR", "2.00"))
    assert begins_at({"losses.own": late}) == 7
    assert begins_at() == 7


def test_code_that_changes_meanwhile_is_given_to_nobody(tmp_path, monkeypatch, capsys, store):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_meanwhile.py").write_text(OWN.replace("FACTOR", "1.0"))
    own = {"type": "own_meanwhile.Own", "inputs": {"image": "image", "target": "y"}, "weight": 1.0}
    trainer = Trainer(toy.checked(EACH | {"losses.own": own}), tmp_path / "a")
    step = trainer.iterate

    def iterate(batch, index):
        if trainer.iteration == 3:
            (tmp_path / "own_meanwhile.py").write_text(OWN.replace("FACTOR", "2.00"))
        step(batch, index)

    trainer.iterate = iterate
    trainer.fit()
    assert [one.iteration for one in store.states()] == [1, 2, 3]
    assert "no more states of this one: code or data have changed" in capsys.readouterr().out


def test_data_count_by_their_manifest(tmp_path, store):
    root = tmp_path / "prepared"
    root.mkdir()
    stored = {"data.train.ramps": {"type": "toy.Stored", "length": 22, "root": str(root)}}
    assert Trainer(toy.checked(EACH | stored), tmp_path / "a").sharing is None  # changes of it would not be noticed
    (root / "manifest.json").write_text(json.dumps({"sha256": "0"}))
    train(tmp_path / "a", stored)
    assert begins_at(stored) == STEPS
    (root / "manifest.json").write_text(json.dumps({"sha256": "1"}))
    assert begins_at(stored) == 0


@pytest.mark.slow
def test_weights_count_by_their_content(tmp_path):
    whole(tmp_path / "one", {"train.steps": 2})
    whole(tmp_path / "two", {"train.steps": 3})
    file = tmp_path / "start.safetensors"
    shutil.copy(tmp_path / "one/model/painter.safetensors", file)
    train(tmp_path / "a", {"networks.painter.weights": str(file)})
    assert begins_at({"networks.painter.weights": str(file)}) == STEPS
    assert begins_at() == 0
    shutil.copy(tmp_path / "two/model/painter.safetensors", file)
    assert begins_at({"networks.painter.weights": str(file)}) == 0
    start = {"train.init_from": {"run": str(tmp_path / "one")}}
    train(tmp_path / "b", start)
    assert begins_at(start) == STEPS
    shutil.copytree(tmp_path / "two/model", tmp_path / "one/model", dirs_exist_ok=True)
    assert begins_at(start) == 0


@pytest.mark.parametrize("key", ["train.compile", "runtime.states"])
def test_these_share_nothing(key, tmp_path, monkeypatch):
    monkeypatch.setattr("figura.engine.compiling.compile_networks", lambda *_: None)
    assert Trainer(toy.checked(EACH | {key: key != "runtime.states"}), tmp_path / "a").sharing is None


def test_own_trainers_share_nothing(tmp_path, store, capsys):
    train(tmp_path / "given")
    there = store.states()
    assert fit(tmp_path / "a", EACH).done == list(range(STEPS))  # a class of its own
    Trainer(toy.checked(EACH | {"seed": 4}), tmp_path / "b", callbacks={"own": Callback()}).fit()
    Trainer(toy.checked(EACH | {"seed": 4}), tmp_path / "c", on_epoch_start=lambda trainer, epoch: None).fit()
    assert store.states() == there
    assert capsys.readouterr().out.count("shares no states with others: it runs code of its own") == 3


def test_a_training_continued_elsewhere_gives_nothing(tmp_path, store):
    recipe = toy.checked(EACH)

    def stopped(trainer, at):
        step = trainer.iterate

        def iterate(batch, index):
            if trainer.iteration == at:
                raise Killed
            step(batch, index)

        trainer.iterate = iterate
        with pytest.raises(Killed):
            trainer.fit()

    stopped(Trainer(recipe, tmp_path / "a"), 3)
    torch.set_num_threads(2)
    stopped(Trainer(recipe, tmp_path / "a"), 6)
    torch.set_num_threads(1)
    Trainer(recipe, tmp_path / "a").fit()  # on the first machine again, but with iterations of the second
    assert [one.iteration for one in store.states()] == [1, 2, 3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIGURA_STATES", "off")
        with pytest.raises(Killed):
            fit(tmp_path / "b", EACH, stop=4)
    Trainer(toy.checked(EACH | {"seed": 9}), tmp_path / "b", resume_anyway=True).fit()
    assert len(store.states()) == 3


def test_checkpoints_are_all_written(tmp_path):
    train(tmp_path / "a")
    assert train(tmp_path / "b", {"runtime.checkpoint_every": 5}) == list(range(4, STEPS))
    assert sorted(path.name for path in (tmp_path / "b/checkpoints").glob("step-*")) == [
        "step-000005", "step-000010", "step-000012",
    ]  # fmt: skip


# callbacks, ranks, updates that are skipped


class Counts(Callback):
    """Changes weights by what it counted, evaluations among it."""

    def __init__(self, says: bool = False, sees: bool = False) -> None:
        self.says, self.count = says, 0

    def before_iteration(self, trainer):
        self.count += 1
        with torch.no_grad():
            trainer.networks.live["painter"].last.bias += self.count * 1e-3

    def depends_on(self, iterations):
        return [] if self.says else None

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class CountsEvaluations(Counts):
    def on_evaluation(self, trainer, row):
        self.count += 10
        return {"count": self.count}


@pytest.mark.parametrize(
    ("kind", "says", "begins"), [("Counts", False, 0), ("Counts", True, 10), ("CountsEvaluations", True, 9)]
)
def test_callbacks_share_if_they_say_what_they_depend_on(kind, says, begins, tmp_path):
    callback = {"callbacks": {"count": {"type": f"{__name__}.{kind}", "says": says}}}
    train(tmp_path / "a", {"train.steps": 10} | callback)
    assert train(tmp_path / "b", callback) == list(range(begins, STEPS))
    whole(tmp_path / "c", callback)
    assert_same(tmp_path / "b", tmp_path / "c")


@pytest.mark.slow
def test_two_ranks_share_with_two(tmp_path):
    gan = toy.gan()

    def two(name, steps, expected):
        def job():
            torch.set_num_threads(1)
            assert train(tmp_path / name, {"train.steps": steps}, gan) == list(range(expected, steps))

        run_in_two(job)

    two("a", 7, 0)
    two("b", STEPS, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIGURA_STATES", "off")
        two("c", STEPS, 0)
    assert_same(tmp_path / "b", tmp_path / "c")
    assert begins_at(content=gan) == 0  # one process adds in another order


# faults of the store


def resume_point(folder):
    """A folder like that of a resume point."""
    folder.mkdir(parents=True)
    for name in ("state.json", "state.safetensors", "SHA256SUMS"):
        (folder / name).write_text(name * 100)
    return folder


@pytest.mark.parametrize("point", range(1, 6))
def test_killed_while_a_state_is_written(point, tmp_path, store):
    source = resume_point(tmp_path / "source")
    child = os.fork()
    if not child:
        try:
            watched = toy.killed_at(point)
            os.link, Path.rename, state_store.write_text = map(watched, (os.link, Path.rename, state_store.write_text))
            store.add(3, "a" * 32, source, {})
        finally:  # an error here must not run the other tests a second time
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 9
    assert store.states() == []
    assert store.add(3, "a" * 32, source, {}) is not None
    (left,) = store.folder.glob("writing-*")
    os.utime(left, (0, 0))
    store.prune()
    assert [path.name for path in store.folder.iterdir()] == [f"0000000003-{'a' * 32}"]


def test_two_write_and_remove_the_same_states_at_once(tmp_path, store):
    source, faults = resume_point(tmp_path / "source"), []
    barrier = threading.Barrier(4)

    def work():
        try:
            for number in range(30):
                barrier.wait()
                folder = store.add(number, "a" * 32, source, {"run": "r"})
                if folder is not None and number % 3 == 0:
                    store.remove(folder)
                store.states()
        except BaseException as error:  # noqa: BLE001
            faults.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert faults == []
    assert {one.iteration for one in store.states()} >= {number for number in range(30) if number % 3}
    assert all(len(list((one.folder / "state").iterdir())) == 3 for one in store.states())
    assert not list(store.folder.glob("writing-*"))


def test_a_full_disk_costs_the_states_only(tmp_path, store, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    train(tmp_path / "a")
    assert list(store.folder.iterdir()) == []
    assert "no more states of this one: [Errno 28] No space left" in capsys.readouterr().out
    whole(tmp_path / "b")
    assert_same(tmp_path / "a", tmp_path / "b")


def test_the_last_state_may_find_no_room(tmp_path, monkeypatch):
    trainer = Trainer(toy.checked(QUIET | {"runtime.resume_every": 100}), tmp_path / "a")
    monkeypatch.setattr(
        "figura.training.resume.save_tensors", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
    )
    trainer.sharing.knots = set()
    trainer.fit()
    whole(tmp_path / "b", {"runtime.resume_every": 100})
    assert_same(tmp_path / "a", tmp_path / "b")


def test_damaged_states_are_removed(tmp_path, store):
    train(tmp_path / "a", {"train.steps": 8})
    *_, fifth, sixth, seventh, eighth = store.states()
    content = bytearray((eighth.folder / "state/state.safetensors").read_bytes())
    content[-5] ^= 4
    (eighth.folder / "state/state.safetensors").write_bytes(content)
    (seventh.folder / "state/SHA256SUMS").unlink()
    tree = (sixth.folder / "state/state.json").read_text()
    (sixth.folder / "state/state.json").write_text(tree.replace('"iteration"', '"steps"'))  # of another version
    (fifth.folder / "about.json").write_text('{"run')  # only for messages
    assert train(tmp_path / "b", gives=False) == list(range(5, STEPS))
    assert [one.iteration for one in store.states()] == [1, 2, 3, 4, 5]
    whole(tmp_path / "c")
    assert_same(tmp_path / "b", tmp_path / "c")


def test_a_state_that_is_removed_before_it_is_read(tmp_path, store, monkeypatch):
    train(tmp_path / "a")
    monkeypatch.setattr(os, "utime", lambda path: shutil.rmtree(store.folder))
    assert train(tmp_path / "b") == list(range(STEPS))


def test_the_least_recently_used_go_first(tmp_path, store, monkeypatch):
    source = resume_point(tmp_path / "source")
    for number in range(4):
        store.add(number, "a" * 32, source, {"run": "r"})
        os.utime(store.states()[number].folder / "about.json", (number, number))
    os.utime(store.states()[0].folder / "about.json")
    size = store.states()[0].size
    assert [one.iteration for one in store.prune(2.5 * size)] == [2, 1]
    assert [one.iteration for one in store.states()] == [0, 3]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=8 * size))
    store.add(7, "a" * 32, source, {})
    assert [one.iteration for one in store.states()] == [7]  # a tenth of what is there
    assert time.time() - store.states()[0].used < 60


def test_states_between_are_thinned(tmp_path, store, monkeypatch):
    monkeypatch.setattr(states, "KEPT", 4)
    train(tmp_path / "a", {"train.steps": 23, "losses.distance.before": 9})
    kept = [one.iteration for one in store.states()]
    assert kept[-1] == 23
    assert {2, 6, 9} <= set(kept)  # knots
    assert len(kept) <= 3 + 1 + 4


def test_knots_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(states, "KNOTS", 4)
    many = {"type": "Step", "at": list(range(1, 11)), "values": [1.0 + k for k in range(11)]}
    knots = Trainer(toy.checked(QUIET | {"losses.distance.schedule": many}), tmp_path / "a").sharing.knots
    assert 2 <= len(knots) <= 4


# where the store is


def test_the_store_lies_beside_the_cache_of_dvc(tmp_path, monkeypatch):
    monkeypatch.delenv("FIGURA_STATES")
    monkeypatch.delenv("DVC_ROOT", raising=False)
    repository = tmp_path / "repository"
    (repository / ".dvc/tmp/exps/copy/.dvc").mkdir(parents=True)
    (repository / "inside").mkdir()
    monkeypatch.chdir(repository / "inside")
    assert StateStore.of_project().folder == repository / ".dvc/cache/figura-states"
    (repository / ".dvc/config").write_text(
        "[core]\n    remote = x\n    autostage = true\n[cache]\n    dir = ../../team\n"
    )
    assert StateStore.of_project().folder.resolve() == (tmp_path / "team/figura-states").resolve()
    monkeypatch.chdir(repository / ".dvc/tmp/exps/copy")
    monkeypatch.setenv("DVC_ROOT", str(repository))
    assert StateStore.of_project().folder.resolve() == (tmp_path / "team/figura-states").resolve()
    monkeypatch.setenv("FIGURA_STATES", "off")
    assert StateStore.of_project() is None
