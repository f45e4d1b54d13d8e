"""`figura why` where something is missing or misspelt: one line before DVC is asked, and before it makes anything."""

from pathlib import Path

import pytest

from figura.base.exit_status import run
from figura.commands.accept.command import main as accept
from figura.commands.why import lines, main
from figura.pipeline.dag import Instance
from stages.code import main as code

PIPELINE = """\
vars: [{recipes: {toy: {params: toy.yaml}}}]
stages:
  train:
    foreach: ${recipes}
    do: {cmd: python -m stages.train toy.yaml, deps: [code/train-toy.json]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "toy.yaml").write_text("seed: 7\ndata: {}\nnetworks: {}\nloses: {}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("command", [main, code])
def test_a_misspelt_section_is_named(command, capsys):
    """Also by the stage that runs before all others, and DVC removes their outputs."""
    assert run(command, []) == 1
    assert "toy.yaml: loses: unknown key 'loses' (did you mean 'losses'?)" in capsys.readouterr().err


@pytest.mark.parametrize("command", [main, accept])
def test_without_dvc_none_is_made(command, project, capsys):
    (project / ".dvc").rmdir()
    assert run(command, []) == 1
    assert capsys.readouterr().err == (
        "error: no repository of DVC here: `git restore .dvc`, or `dvc init` for a new one\n"
    )
    assert not (project / ".dvc").exists()


def test_below_the_root_it_is_named(project, monkeypatch, capsys):
    (project / "models").mkdir()
    monkeypatch.chdir(project / "models")
    assert run(main, []) == 1
    assert capsys.readouterr().err == f"error: {project}/models/dvc.yaml: no such file; go to {project}\n"


def test_a_stage_that_only_dvc_can_read_is_named(project, monkeypatch, capsys):
    (project / "dvc.yaml").write_text("stages: {own: {matrix: {a: [1]}, cmd: 'echo ${item.a}'}}\n")
    stale = {"own@1": ["changed command"], "stages/dvc.yaml:code": ["always changed"], "raw.dvc": []}
    monkeypatch.setattr("figura.commands.why.status", lambda _: stale)
    for asked in ([], ["own"], ["own@1"]):
        assert run(main, asked) == 0
        assert capsys.readouterr().out == "own@1 would run: `dvc status own@1` says why\n"


def test_what_accepting_takes_is_that_of_the_parts_it_compares(tmp_path, monkeypatch):
    """Of 1000 iterations of half a second, 20 each: the first, the last, and those at 500, where two things begin."""
    monkeypatch.chdir(tmp_path)
    live = Path("runs/toy/live")
    live.mkdir(parents=True)
    (live / "log.jsonl").write_text('{"step": 1000, "images_per_second": 8.0}\n')
    gates = "\n".join(f"  l{n}:\n    after: 0\n    before: null\n    every: 1" for n in range(9))
    schedules = "".join(f"  {name}:\n    end: 500\n" for name in ("first", "second"))
    (live / "recipe.yaml").write_text(f"data:\n  batch_size: 4\nlosses:\n{gates}\nsteps:\n{schedules}")
    command = ("python", "-m", "stages.train", "toy.yaml", "runs/toy")
    train = Instance("train@toy", command, ("code/train-toy.json",), ())
    said, lock = [{"changed deps": {"code/train-toy.json": "modified"}}], {"deps": [{"path": "code/train-toy.json"}]}
    *_, last = lines(train, said, {"train@toy": lock}, [train])
    assert last.endswith("figura accept train@toy, about 80 s; its iterations took about 500 s")
    never = "train@toy would run:", "  dvc.lock knows no run of it"  # which nothing can be compared with
    assert lines(train, said, {}, [train]) == [*never]


def test_a_stage_without_a_manifest_is_one(project, monkeypatch, capsys):
    (project / "dvc.yaml").write_text("stages: {sort: {cmd: sort names, deps: [names]}, look: {cmd: ls}}\n")
    said = {"sort": [{"changed deps": {"names": "modified"}}], "look": ["always changed"]}
    lock = "stages: {sort: {cmd: sort names, deps: [{path: names, md5: a}]}, look: {cmd: ls}}"
    (project / "dvc.lock").write_text(lock)
    monkeypatch.setattr("figura.commands.why.status", lambda asked: {name: said[name] for name in asked or said})
    monkeypatch.setattr("figura.commands.why.refresh", list)
    main([])
    assert capsys.readouterr().out == "sort would run:\n  data: names (modified)\nlook would run:\n  always changed\n"
    main(["sort"])
    assert capsys.readouterr().out == "sort would run:\n  data: names (modified)\n"


@pytest.mark.usefixtures("project")
def test_a_new_section_is_a_setting_and_a_longer_path_another_one():
    deps = ("data/prepared/people_small", "data/prepared/people")
    stage = Instance("train@toy", ("train",), deps, (), (("moved.yaml", "seed"),))
    said = {"toy.yaml": {"callbacks": "new"}, "data/prepared/people": "modified", deps[0]: "new", "moved.yaml": "new"}
    lock = {"train@toy": {"cmd": "train", "deps": [{"path": "data/prepared/people", "md5": "a"}]}}
    assert lines(stage, [{"changed deps": said}], lock, [stage]) == [
        "train@toy would run:",
        "  data: data/prepared/people_small (new)",
        "  toy.yaml: callbacks (new)",
        "  data: data/prepared/people (modified)",
        "  moved.yaml (new)",
    ]


def test_a_stage_that_never_ran_has_one_line():
    stage = Instance("train@toy", ("train",), ("data/prepared/people",), (), (("toy.yaml", "seed"),))
    said = [{"changed deps": {"data/prepared/people": "modified"}}, {"changed outs": {"runs/toy/model": "deleted"}}]
    assert lines(stage, said, {}, [stage]) == ["train@toy would run:", "  dvc.lock knows no run of it"]


@pytest.mark.parametrize(("how", "way"), [("deleted", "`dvc checkout` brings"), ("not in cache", "`dvc pull` fetches")])
def test_what_brings_outputs_back_is_said_of_stages_that_ran(how, way, project, monkeypatch, capsys):
    (project / "dvc.yaml").write_text("stages: {sort: {cmd: sort names, outs: [sorted]}}\n")
    monkeypatch.setattr("figura.commands.why.status", lambda asked: {"sort": [{"changed outs": {"sorted": how}}]})
    monkeypatch.setattr("figura.commands.why.refresh", list)
    main([])
    assert "dvc " not in capsys.readouterr().out
    (project / "dvc.lock").write_text("stages: {sort: {cmd: sort names}}")
    main([])
    first, what, last = capsys.readouterr().out.splitlines()
    assert (first, what) == ("sort would run:", f"  output: sorted ({how})")
    assert last.startswith(f"{how}: {way}")
