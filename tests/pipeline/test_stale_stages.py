"""What a change of code makes stale, with the real DVC: exactly the stages that run the changed file."""

import json
import re
from pathlib import Path

import pytest

from bench import stale_stages
from bench.stale_stages import WITHOUT_EFFECT
from pipeline.dag import ROOT, consistency, datasets, recipes
from pipeline.project import Project
from pipeline.test_dag import ran, stale
from pipeline.test_new_recipe import CODE, add_recipe
from pipeline.tiny_settings import tiny

pytestmark = pytest.mark.slow
ALL = tuple(recipes())
GENERATORS = ("vunet", "pix2pix", "super_resolution")
ADVERSARIAL = ("pix2pix", "super_resolution")


def of(names: tuple[str, ...], *stages: str) -> set[str]:
    """Return the instances of stages for recipes."""
    return {f"{stage}@{name}" for stage in stages for name in names}


JUDGED = {f"pose-consistency@{name}" for name in consistency()}
EXPECTED = {
    "figura/commands/describe/diagram.py": set(),
    "figura/report/sheets.py": JUDGED | of(ALL, "metrics"),
    "models/images/scores.py": of(GENERATORS, "metrics"),
    "models/pose/shufflenet.py": set(),  # recipes/pose.yaml names another backbone
    "models/pose/small_resnet.py": JUDGED | {"train@pose", "eval-dump@pose"},
    "models/images/adversarial_losses.py": of(ADVERSARIAL, "train", "eval-dump"),
    "figura/synthetic/figure.py": {f"prepare@{name}" for name in datasets()},
    "figura/training/trainer.py": of(ALL, "train"),
    "stages/metrics.py": of(ALL, "metrics"),
}
SCORES = "models/images/scores.py"
CHANGED = f"code: {SCORES}\n"


def test_manifests_name_exactly_the_files_that_a_stage_runs():
    manifests = {path.stem: json.loads(path.read_text())["files"] for path in (ROOT / "code").glob("*.json")}
    for file, stages in EXPECTED.items():
        found = {"@".join(name.rsplit("-", 1)) for name, files in manifests.items() if file in files}
        assert found == stages, file


def test_a_line_makes_stale_exactly_what_runs_its_file_and_a_comment_or_docstring_nothing(project, monkeypatch, capsys):
    files = (SCORES, *EXPECTED.keys() & {*WITHOUT_EFFECT})

    def run(*command: str, folder: Path) -> None:
        if command[1:] == ("-m", "stages.code"):
            Project(folder).write_manifests()
        else:
            Project(folder).run(*command)

    monkeypatch.setattr(stale_stages, "_run", run)
    monkeypatch.chdir(project.folder)
    stale_stages.main([*files])
    printed = capsys.readouterr().out
    rows = re.findall(r"^\| (a \w+) \| (\S+\.py) \| (.*) \|$", printed, re.MULTILINE)
    found = {(edit, file): set() if stages == "nothing" else set(stages.split(", ")) for edit, file, stages in rows}
    assert found == {("a line", file): EXPECTED[file] for file in files} | {
        (edit, file): set() for file in files[1:] for edit in ("a comment", "a docstring")
    }


def edit(path: Path, addition: str) -> None:
    path.write_text(f"{path.read_text()}{addition}\n")


def test_experiments_take_changed_code_with_them(project):
    """Those in a folder of their own, `--temp`, run what has changed; for a comment, nothing."""
    temporary = ("dvc", "exp", "run", "--temp", "--name")
    edit(project.folder / SCORES, "# nothing but a comment")
    assert ran(project.run(*temporary, "comment", "metrics@vunet").stdout) == set()
    edit(project.folder / SCORES, "CHANGED = 1")
    done = project.run(*temporary, "line", "metrics@vunet")
    assert ran(done.stdout) == {"metrics@vunet"}
    assert f"metrics@vunet runs: {CHANGED}" in done.stdout
    project.run("git", "restore", SCORES)
    assert project.run("git", "status", "--porcelain").stdout == ""

    project.run("dvc", "exp", "apply", "line", code=None)  # complains about the outputs of stages that nobody ran
    assert "CHANGED = 1" in (project.folder / SCORES).read_text()
    project.run("dvc", "checkout", "metrics@vunet")
    assert stale(project) == {f"metrics@{name}" for name in GENERATORS if name != "vunet"}


def install(site: Path, version: str) -> None:
    """Install a package `paint` of a version, which has a loss, into a folder of installed packages."""
    (site / "paint").mkdir(parents=True, exist_ok=True)
    (site / "paint/__init__.py").write_text(CODE.lstrip())
    for old in site.glob("*.dist-info"):
        (old / "METADATA").unlink()
        old.rmdir()
    information = site / f"paint-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: paint\nVersion: {version}\n")


def test_why_names_settings_files_and_packages_and_so_does_the_stage(project, tmp_path):
    site = tmp_path / "site-packages"
    path = {"PYTHONPATH": str(site)}
    install(site, "1.0")
    add_recipe(project.folder)
    recipe = project.folder / "recipes/tiny.yaml"
    recipe.write_text(recipe.read_text().replace("tiny.Charbonnier", "paint.Charbonnier"))
    project.set("recipes/tiny.yaml", tiny(project.folder)["recipes/tiny.yaml"])
    said = project.run("figura", "why", "train@tiny", **path).stdout
    assert said.splitlines()[:2] == ["train@tiny would run:", "  dvc.lock knows no run of it"]
    done = project.run("dvc", "repro", "train@tiny", **path)
    assert "train@tiny runs: dvc.lock knows no run of it\n" in done.stdout
    assert project.run("figura", "why", "train@tiny", **path).stdout == "train@tiny: would not run\n"

    project.set("recipes/tiny.yaml", {"losses.charbonnier.weight": 2.0, "runtime.log_every": 1})
    edit(project.folder / "models/tiny/tiny.py", "CHANGED = 1")
    edit(project.folder / "models/images/sheets.py", "CHANGED = 1")  # of metrics alone
    install(site, "1.1")
    causes = [
        "  recipes/tiny.yaml: losses.charbonnier.weight  1.0 -> 2.0",
        "  code: models/tiny/tiny.py",
        '  package: paint  "1.0" -> "1.1"',
    ]
    follow = "  then perhaps eval-dump@tiny, metrics@tiny"
    said = project.run("figura", "why", "train@tiny", **path).stdout
    assert said.splitlines() == ["train@tiny would run:", *causes, follow]
    status = project.run("dvc", "status", "train@tiny", **path).stdout  # which knows of the code now, too
    assert "code/train-tiny.json" in status
    assert "train@tiny" in ran(project.run("dvc", "repro", "--dry", "train@tiny", **path).stdout)
    done = project.run("dvc", "repro", "train@tiny", **path)
    first = ["train@tiny runs, because these differ from dvc.lock:", *causes]
    assert "\n".join(first) + "\n" in done.stdout
    assert ran(done.stdout) == {"train@tiny"}


def test_why_names_data_and_what_follows(project):
    project.set("data/params.yaml", {"datasets.pairs.seed": 12345})
    said = project.run("figura", "why", "prepare").stdout
    follow = "train@pix2pix, eval-dump@pix2pix, metrics@pix2pix, pose-consistency@pix2pix"
    assert said.splitlines() == [
        "prepare@pairs would run:",
        "  data/params.yaml: datasets.pairs.seed  7 -> 12345",
        f"  then perhaps {follow}",
    ]
    project.run("dvc", "repro", "prepare@pairs")
    said = project.run("figura", "why").stdout.splitlines()
    assert said[:2] == ["train@pix2pix would run:", "  data: data/prepared/pairs, which prepare@pairs wrote anew"]
    assert [line for line in said if line.endswith("would run:")] == [
        "train@pix2pix would run:",
        "eval-dump@pix2pix would run:",
    ]
    assert project.run("figura", "why", "metrics").stdout == "metrics: would not run\n"
    wrong = project.run("figura", "why", "trian@vunet", code=1).stderr
    assert "no stage 'trian@vunet' (did you mean 'train@vunet'?)" in wrong
