import json
from importlib.metadata import version
from platform import python_version

import pytest

from models.base.errors import UserError
from models.training import provenance


@pytest.fixture
def code(tmp_path, monkeypatch):
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "a.py").write_text("a = 1\n")
    (tmp_path / "b.py").write_text("b = 1\n")
    monkeypatch.setattr(provenance, "MODELS", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        lambda code: (code / "engine" / "a.py").write_text("a = 2\n"),
        lambda code: (code / "c.py").write_text(""),
        lambda code: (code / "b.py").unlink(),
        lambda code: (code / "b.py").rename(code / "c.py"),
    ],
)
def test_code_version_follows_names_and_contents(code, change):
    before = provenance.code_version()
    assert provenance.code_version() == before
    (code / "notes.txt").write_text("no code")
    assert provenance.code_version() == before
    change(code)
    assert provenance.code_version() != before


def test_packages():
    found = provenance.package_versions()
    assert found["torch"] == version("torch")
    assert found["python"] == python_version()


def test_data_version_follows_the_manifests(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"sha256": f"hash of {name}", "more": 1}))
    roots = [str(tmp_path / name) for name in ("b", "a", "b")]
    found = provenance.data_version(roots)
    assert json.loads(found) == {roots[1]: "hash of a", roots[0]: "hash of b"}
    assert found == provenance.data_version(reversed(roots))
    (tmp_path / "a" / "manifest.json").write_text(json.dumps({"sha256": "other"}))
    assert provenance.data_version(roots) != found
    assert provenance.data_version([]) == "{}"


def test_data_that_are_not_prepared(tmp_path):
    with pytest.raises(UserError, match=r"people.manifest\.json: no such file; run `dvc repro prepare@people` first"):
        provenance.data_version([str(tmp_path / "people")])


def test_a_folder_that_nobody_prepared(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train/one.png").write_bytes(b"one")
    found = provenance.data_version([str(tmp_path)])
    assert found == provenance.data_version([str(tmp_path)])
    (tmp_path / "train/one.png").rename(tmp_path / "train/two.png")
    assert provenance.data_version([str(tmp_path)]) != found
