"""The commands of the README's daily loop, run in their order in the tiny project; experiments that are compared."""

import re
import shutil
import sys
from pathlib import Path

import cv2
import pytest

from pipeline.dag import ROOT
from pipeline.project import Project

pytestmark = pytest.mark.slow
README = (ROOT / "README.md").read_text()
LINES = [line.partition("  #")[0].strip() for line in re.findall(r"^ {4}(\S.*)$", README, re.MULTILINE)]
LINES += re.findall(r"`(figura (?!explore|init|predict|translate)\w+)`", README)
NOT_HERE = "make "  # continuous integration runs these; a server that explores has tests of its own
SHOWN = {  # what a command shows, as a regular expression
    "figura why": "nothing would run",
    "figura accept": "nothing would run",
    "dvc repro": r"(?s)\A(?!.*Running stage '(?!stages/dvc.yaml:code'))",  # no other stage than `code`
    "dvc metrics diff": r"metrics/vunet\.json\s+l1_person\.value",
    "dvc exp show --only-changed --drop runs": r"KL\.weight",
    "figura compare HEAD kl-1 kl-2 --recipe vunet": "kl-2",
}


@pytest.fixture(scope="module")
def prepared(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished project with what the commands name: photos, a clip, two experiments, one of another seed."""
    project = finished.copy(tmp_path_factory.mktemp("readme") / "figura")
    people = tmp_path_factory.mktemp("people")
    shutil.unpack_archive(project.folder / "data/prepared/people/images/test.zip", people)
    pictures = sorted(people.glob("test/*"))[:3]
    for folder, suffix in (("photos", ".png"), ("more", ".jpg")):
        (project.folder / folder).mkdir()
        for number, picture in enumerate(pictures):
            cv2.imwrite(str(project.folder / folder / f"{number}{suffix}"), cv2.imread(str(picture)))
    film(project.folder / "clip.mp4", pictures[0])
    for name, change in (("kl-1", "losses.KL.weight=0.5"), ("kl-2", "seed=8")):
        project.run("dvc", "exp", "run", "--temp", "--name", name, "-S", change, "metrics@vunet")
    return project


def film(path: Path, picture: Path) -> None:
    """Write a video of six equal frames."""
    frame = cv2.imread(str(picture))
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), 10, frame.shape[1::-1])
    for _ in range(6):
        video.write(frame)
    video.release()


def test_an_experiment_of_another_seed_is_compared(prepared: Project) -> None:
    """It is read from DVC's cache."""
    before = prepared.run("git", "status", "--short").stdout
    done = prepared.run("figura", "compare", "HEAD", "kl-2", "--recipe", "vunet")
    assert "HEAD: seeds 7, 8 (kl-2)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("kl-2 and HEAD: no difference beyond seeds")
    out = prepared.folder.parent / "compared"
    written = ("--output", f"{out}.html", "--markdown", str(out))
    prepared.run("figura", "report", "HEAD", "kl-2", "--recipe", "vunet", *written)
    assert "| `l1_person` | lower |" in (out / "report.md").read_text()
    for name in ("effects", "changed_in_l1_person"):
        assert cv2.imread(str(out / f"vunet--compared--{name}.webp")).shape[1] > 150
    assert prepared.run("git", "status", "--short").stdout == before


def test_each_command_does_what_its_comment_says(prepared: Project) -> None:
    commands = [line for line in LINES if not line.startswith(NOT_HERE)]
    assert set(commands) >= SHOWN.keys()
    before = prepared.outputs()
    for command in commands:
        done = prepared.run("bash", "-c", command.replace("python ", f"{sys.executable} "))
        assert re.search(SHOWN.get(command, ""), done.stdout), f"{command} printed {done.stdout}"
        if command == "dvc exp run -S train.try=false":
            assert prepared.outputs() == before
    after = prepared.outputs()
    changed = {name for name in after if after[name] != before[name]}
    assert "runs/vunet/model" in changed
    assert all(re.search(r"/(vunet|pose_consistency)\b", name) for name in changed)
    poses = prepared.folder / "poses"
    assert (poses / "predictions.csv").is_file()
    assert (poses / "clip.drawn.webm").is_file()
    assert (prepared.folder / "report.html").is_file()
    for target in re.findall(r"^    make ([\w-]+)", README, re.MULTILINE):
        prepared.run("make", "--dry-run", target)
