"""`figura accept` with the real DVC: what it records, what goes on with it, and what it refuses."""

import json
import re
from pathlib import Path

import pytest

from pipeline.dag import CODE
from pipeline.project import Project
from pipeline.test_dag import stale
from pipeline.test_new_recipe import add_recipe
from pipeline.test_stale_stages import edit, install
from pipeline.tiny_settings import tiny

pytestmark = pytest.mark.slow
ACCEPT = ("figura", "accept", "--iterations", "4")
INTERVALS = "figura/report/intervals.py"
SHARED = {"FIGURA_STATES": ""}
RAMP = "self.from_ + (self.to - self.from_) * share"
SAME = "share * (self.to - self.from_) + self.from_"


def change(project: Project, file: str, old: str, new: str) -> None:
    path = project.folder / file
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))


def states(project: Project) -> set[str]:
    return {path.name for path in (project.folder / ".dvc/cache/figura-states").glob("0*")}


def test_code_without_effect_is_recorded_and_states_go_on(project: Project) -> None:
    project.run("dvc", "repro", "--force", "--single-item", "train@pix2pix", **SHARED)
    project.run("git", "commit", "--allow-empty", "-qam", "trained with states")
    before, lock = states(project), project.lock()
    change(project, "figura/schedules.py", RAMP, SAME)
    why = project.run("figura", "why", "train@pix2pix").stdout
    assert "\n  or, if that changes no result: figura accept train@pix2pix, about " in why
    done = project.run(*ACCEPT, "train@pix2pix", "eval-dump@pix2pix", **SHARED).stdout
    head = project.run("git", "rev-parse", "--short=12", "HEAD").stdout.strip()
    assert (
        f"\ntrain@pix2pix: accepted by replay of 16 iterations at commit {head} with changes, made by code of" in done
    )
    assert done.endswith("not seen: an effect that begins where nothing was compared, or on another processor\n")

    now = project.lock()
    assert stale(project).isdisjoint({"train@pix2pix", "eval-dump@pix2pix"})
    assert "train@vunet" in stale(project)
    for stage in ("train@pix2pix", "eval-dump@pix2pix"):
        (code,) = (one for one in now[stage]["deps"] if one["path"].startswith("code/"))
        assert now[stage] == lock[stage] | {
            "deps": [code if one["path"] == code["path"] else one for one in lock[stage]["deps"]]
        }
    assert {name: one for name, one in now.items() if "pix2pix" not in name} == {
        name: one for name, one in lock.items() if "pix2pix" not in name
    }
    assert project.run("figura", "why", "train@pix2pix").stdout.startswith(
        "train@pix2pix: would not run\ntrain@pix2pix: accep"
    )

    project.commit("accepted")
    compared = project.run("figura", "compare", "HEAD~1", "HEAD", "--recipe", "pix2pix").stdout
    assert "\nHEAD: by dvc.lock trained with the recipe, seed, code and data of another; left out\n" in f"\n{compared}"
    assert "\nHEAD: train@pix2pix accepted by replay of 16 iterations" in compared
    added = states(project) - before
    assert {name.partition("-")[0] for name in added} == {name.partition("-")[0] for name in before}
    further = project.run("dvc", "exp", "run", "-S", "recipes/pix2pix.yaml:train.steps=14", "train@pix2pix", **SHARED)
    assert "12 of 14 iterations are those of pix2pix" in further.stdout
    assert project.run("git", "worktree", "list").stdout.count("\n") == 1


def test_effects_settings_and_lost_code_are_refused(project: Project) -> None:
    lock = project.lock()
    change(project, "figura/schedules.py", RAMP, f"{RAMP} * 1.001")
    done = project.run(*ACCEPT, "train@vunet", code=1)
    assert re.search(
        r"^train@vunet: differs in iteration \d+: \S+ .+, now .+, by \S+; then networks/", done.stdout, re.MULTILINE
    )
    assert done.stderr.endswith("error: not accepted: train@vunet\n")
    project.run("git", "restore", "figura/schedules.py")

    change(project, INTERVALS, "np.random.default_rng(seed)", "np.random.default_rng(seed + 1)")
    done = project.run(*ACCEPT, "metrics@vunet", code=1)
    assert "metrics@vunet: differs in full/vunet.json: " in done.stdout
    project.run("git", "restore", INTERVALS)

    change(project, "figura/schedules.py", RAMP, SAME)
    project.set("recipes/pix2pix.yaml", {"losses.G_L1.weight": 50.0})
    told = project.run(*ACCEPT, "train@pix2pix", code=1).stdout
    assert "train@pix2pix: only changes of code can be accepted:\n  recipes/pix2pix.yaml: losses.G_L1.weight" in told
    project.run("git", "restore", "recipes/pix2pix.yaml", "figura/schedules.py")
    assert project.lock() == lock

    edit(project.folder / INTERVALS, "UNUSED = 1")
    project.run("dvc", "repro", "--single-item", CODE, "metrics@pix2pix")  # by code that no commit has
    change(project, INTERVALS, "UNUSED = 1", "UNUSED = 2")
    told = project.run(*ACCEPT, "metrics@pix2pix", code=1).stdout
    assert "code/metrics-pix2pix.json: no commit of this clone has it as dvc.lock names it" in told


def test_drawn_data_are_compared_by_their_first_pictures(project: Project) -> None:
    edit(project.folder / "figura/synthetic/figure.py", "UNUSED = 1")
    done = project.run(*ACCEPT, "prepare")
    assert "prepare@people: accepted by replay of " in done.stdout
    assert stale(project).isdisjoint({"prepare@people", "prepare@pairs"})
    change(project, "figura/synthetic/randomness.py", "[seed, stream,", "[seed + 1, stream,")
    done = project.run(*ACCEPT, "prepare@pairs", code=1)
    assert "prepare@pairs: differs in " in done.stdout


def test_packages_need_an_interpreter_of_the_earlier_ones(project: Project, tmp_path: Path) -> None:
    earlier, now = (tmp_path / name / "site-packages" for name in ("earlier", "now"))
    install(earlier, "1.0")
    install(now, "1.1")
    add_recipe(project.folder)
    recipe = project.folder / "recipes/tiny.yaml"
    recipe.write_text(recipe.read_text().replace("tiny.Charbonnier", "paint.Charbonnier"))
    project.set("recipes/tiny.yaml", tiny(project.folder)["recipes/tiny.yaml"])
    project.run("dvc", "repro", "train@tiny", PYTHONPATH=str(earlier))
    project.commit("trained with paint 1.0")
    done = project.run(*ACCEPT, "train@tiny", PYTHONPATH=str(now), code=1)
    assert "name an interpreter of the earlier ones by --python" in done.stdout
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{earlier}:$PYTHONPATH" exec python "$@"\n')
    python.chmod(0o755)
    done = project.run(*ACCEPT, "train@tiny", "--python", str(python), PYTHONPATH=str(now))
    assert "train@tiny: accepted by replay of " in done.stdout
    lines = map(json.loads, (project.folder / "code/accepted.jsonl").read_text().splitlines())
    assert "train@tiny" in {one["stage"] for one in lines}
