"""What made a result, as text: equal exactly where recipe, code, packages and data are."""

import json
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
import toy
from trainings import fit

from figura.base.errors import UserError
from figura.evaluation import model_folder
from figura.formats.prepared import Manifest
from figura.pipeline.closure import code_of, declared_types
from figura.preparation.outcome import write_manifest
from figura.recipe.schema import RESULT_SECTIONS
from figura.training import provenance
from figura.training.process_record import process_record


def test_types_named_in_arguments_count(tmp_path, monkeypatch):
    package = tmp_path / f"own_{tmp_path.name}"
    package.mkdir()
    (package / "ramps.py").write_text("from figura.schedules import *\nclass Ramp(Linear):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    ramp = {"type": f"{package.name}.ramps.Ramp", "start": 0, "end": 1, "from": 0.0, "to": 1.0}
    for changes in ({"losses.square.schedule": ramp}, {"steps.painter.injectors.paint.args": {"noise": ramp}}):
        content = toy.checked(changes).model_dump(include=set(RESULT_SECTIONS), by_alias=True)
        types = [name for _, name in declared_types(content)]
        assert f"{package.name}/ramps.py" in code_of(["figura.training.trainer"], types).files


@pytest.mark.parametrize(("marks", "told"), [((True,), "{0}"), ((True, True), "{0}, {1}"), ((True, False), "")])
def test_a_model_knows_whether_its_data_were_drawn(marks, told, tmp_path, run):
    """Drawn alone: pictures of a camera beside them may teach it what photos are like."""
    roots = [tmp_path / f"data{index}" for index in range(len(marks))]
    for root, drawn in zip(roots, marks, strict=True):
        root.mkdir()
        (root / "picture").write_text("")
        write_manifest(root, drawn)
    data = {root.name: {"type": "toy.Stored", "length": 8, "root": str(root)} for root in roots}
    fit(run, {"data.train": data, "train.steps": 1})
    line = f"{run}/model: trained on drawn data alone ({told.format(*roots)}): expect little of it on photos"
    assert model_folder.drawn(run / "model") == (line if told else "")


def test_variables_that_change_arithmetic_are_recorded_and_no_others(monkeypatch):
    for name in provenance.ARITHMETIC:
        monkeypatch.delenv(name, raising=False)
    assert provenance.provenance(toy.checked(), ())["environment"] == "{}"
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # set by the launcher; a training goes on in another number of processes
    variables = {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Haswell"}
    assert json.loads(provenance.provenance(toy.checked(), ())["environment"]) == variables
    assert process_record()["environment"] == variables


@pytest.mark.parametrize(
    "changes",
    [{"networks.painter.weights": "start/model/painter.safetensors"}, {"train.init_from": {"run": "start"}}],
    ids=["weights", "init_from"],
)
def test_the_content_of_a_file_that_the_recipe_names_counts(tmp_path, changes, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("start/model/painter.safetensors")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one")
    recipe = toy.checked(changes)
    before = provenance.provenance(recipe, ())
    assert json.loads(before["start"]) == {str(path): sha256(b"one").hexdigest()}
    path.with_name("critic.safetensors").write_bytes(b"not named")
    assert provenance.provenance(recipe, ()) == before
    path.write_bytes(b"two")  # as long as before
    after = provenance.provenance(recipe, ())
    assert {name for name in before if after[name] != before[name]} == {"start"}


def test_data_version_follows_the_manifests(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"sha256": f"hash of {name}", "more": 1}))
    roots = [str(tmp_path / name) for name in ("b", "a", "b")]
    before = provenance.data_version(roots)
    assert json.loads(before) == {roots[1]: "hash of a", roots[0]: "hash of b"}
    assert before == provenance.data_version(reversed(roots))
    (tmp_path / "a" / "manifest.json").write_text(json.dumps({"sha256": "other"}))
    assert provenance.data_version(roots) != before
    assert provenance.data_version([]) == "{}"


@pytest.mark.parametrize("content", ["{}", "[]", '{"sha256": 3}', '{"hashes": {}}', "{"])
def test_another_file_in_the_place_of_a_manifest_is_told(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    for read in (lambda: provenance.data_version([str(tmp_path)]), lambda: Manifest(tmp_path)):
        with pytest.raises(UserError, match=rf"manifest\.json.*run `dvc repro --force prepare@{tmp_path.name}`"):
            read()


def test_a_folder_that_nobody_prepared(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train/one.png").write_bytes(b"one")
    before = provenance.data_version([str(tmp_path)])
    assert before == provenance.data_version([str(tmp_path)])
    (tmp_path / "train/one.png").rename(tmp_path / "train/two.png")
    assert provenance.data_version([str(tmp_path)]) != before


@pytest.mark.parametrize("project", [".", "study"])  # the repository's root, or a folder in it
def test_what_dvc_repro_writes_is_no_change(tmp_path, monkeypatch, project):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, cwd=tmp_path)

    root = tmp_path / project
    (root / "metrics/full").mkdir(parents=True)
    (root / "stages").mkdir()
    (root / "code").mkdir()
    monkeypatch.chdir(root)
    results = ("dvc.lock", "stages/dvc.lock", "code/train-vunet.json", "metrics/vunet.json", "metrics/full/vunet.json")
    for name in (*results, "params.yaml", tmp_path / "outside.py"):
        Path(name).write_text("before")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "before")
    for name in (*results, "params.yaml", tmp_path / "outside.py"):
        Path(name).write_text("after")
    process = process_record()
    assert process["commit"] is not None
    assert set(process["changed_files"]) == {"outside.py", str((root / "params.yaml").relative_to(tmp_path))}
