"""`figura states`: the table, what is removed, and a plan that comes true."""

import os

import pytest
import toy
from trainings import QUIET

from figura.base.errors import UserError
from figura.base.files import git
from figura.base.yaml12 import to_yaml
from figura.commands import state_tables, states
from figura.training.state_store import StateStore
from figura.training.trainer import Trainer


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FIGURA_STATES", str(tmp_path / "states"))
    return StateStore(tmp_path / "states")


def test_the_table_and_pruning(store, tmp_path, capsys):
    states.main([])
    assert capsys.readouterr().out == f"no states: no {store.folder}\n"
    source = tmp_path / "source"
    source.mkdir()
    (source / "state.json").write_bytes(b"x" * 400_000)
    for iteration in (400, 1200):
        about = {"run": "vunet", "experiment": "kl-1", "recipe": "params.yaml"}
        store.add(iteration, f"{iteration:032x}", source, about)
    os.utime(store.states()[0].folder / "about.json", (0, 0))
    (store.states()[1].folder / "about.json").write_text("[]")  # damaged, which no training needs
    states.main([])
    head, newer, older, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "experiment", "recipe", "iteration", "MB", "used", "state"]
    assert newer.split()[:2] == ["1,200", "0.4"]
    assert older.split()[:5] == ["vunet", "kl-1", "params.yaml", "400", "0.4"]
    assert total.startswith("2 states of 0.8 MB, at most ")
    with pytest.raises(SystemExit):
        states.main(["--prune", "-1"])
    assert "argument --prune: found -1; expected gigabytes" in capsys.readouterr().err
    states.main(["--prune", "0.0005"])
    assert capsys.readouterr().out.startswith("removed 1 states of 0.4 MB\n")
    assert [one.iteration for one in store.states()] == [1200]


def test_no_store(monkeypatch, capsys):
    monkeypatch.setenv("FIGURA_STATES", "off")
    states.main([])
    assert capsys.readouterr().out == "no states: no cache of a pipeline, or FIGURA_STATES is off\n"


def test_a_plan_comes_true(store, tmp_path, capsys):
    later = QUIET | {"losses.fake.after": 6, "losses.fool.after": 6, "train.evaluate_every": 7}
    recipes = {
        f"{weight}-{steps}": toy.checked(
            QUIET | later | {"losses.fool.weight": weight, "train.steps": steps}, toy.gan()
        )
        for weight in (1.0, 2.0)
        for steps in (9, 14)
    }
    recipes["other"] = toy.checked(QUIET | {"seed": 8, "train.steps": 5})
    *rows, total = state_tables.planned(recipes)
    assert rows == [
        ("1.0-9", "9", "9"), ("1.0-14", "14", "5"), ("2.0-9", "9", "3"), ("2.0-14", "14", "5"), ("other", "5", "5"),
    ]  # fmt: skip
    assert total == ("all", "51", "27")
    for name, recipe in recipes.items():
        trainer, done = Trainer(recipe, tmp_path / name), []
        iterate = trainer.iterate
        trainer.iterate = lambda batch, index, iterate=iterate, done=done: (done.append(index), iterate(batch, index))
        trainer.fit()
        assert f"{len(done)}" == {row[0]: row[2] for row in rows}[name]


def test_the_queue_is_read_from_what_dvc_shows(tmp_path, monkeypatch, capsys):
    """And what an entry extends from its commit, as another one may be here by now."""
    monkeypatch.chdir(tmp_path)
    git("init")
    revisions = {20: ""}
    for steps in (10, 12):
        base = {"losses": {"square": {"before": 8}}, "train": {"steps": steps}}
        changes = {"losses.square.extends": "base.yaml#losses.square", "train.extends": "base.yaml#train"}
        (tmp_path / "base.yaml").write_text(to_yaml(base))
        (tmp_path / "params.yaml").write_text(to_yaml(toy.changed(changes | {"train.steps": ...})))
        git("add", ".")
        git("-c", "user.name=a", "-c", "user.email=a", "commit", "-m", str(steps))
        revisions[steps] = (git("rev-parse", "HEAD") or "").strip()
    (tmp_path / "base.yaml").write_text(to_yaml(base | {"train": {"steps": 99}}))

    def experiment(steps):
        data = {"params": {"params.yaml": {"data": {"train": {"steps": steps}}}}}
        revs = [{"rev": revisions[steps], "name": f"e{steps}", "error": None, "data": data, "experiments": None}]
        return {"revs": revs, "name": f"e{steps}", "executor": {"state": "queued" if steps < 20 else "success"}}

    commit = {"rev": "a" * 40, "name": "main", "data": {"params": {}}, "error": None}
    shown = [commit | {"experiments": [experiment(steps) for steps in (10, 12, 20)]}]
    monkeypatch.setattr(state_tables, "experiments", lambda: shown)
    states.main(["--queue"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [["e10", "params.yaml", "10", "10"], ["e12", "params.yaml", "12", "2"], ["all", "22", "12"]]
    shown[0]["experiments"] = [experiment(20)]
    with pytest.raises(UserError, match="no experiment queued at this commit changes a recipe"):
        states.main(["--queue"])


@pytest.mark.parametrize("shown", [[], [{"rev": "a" * 40, "data": None, "experiments": None}]])
def test_a_new_repository_has_no_queue(shown, monkeypatch):
    monkeypatch.setattr(state_tables, "experiments", lambda: [{"rev": "workspace", "data": None}, *shown])
    with pytest.raises(UserError, match="no experiment queued at this commit changes a recipe"):
        states.main(["--queue"])
