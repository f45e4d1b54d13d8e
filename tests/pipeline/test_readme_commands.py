"""The commands of the README's daily loop, run in their order in the tiny project."""

import re
import sys
from pathlib import Path

import cv2
import pytest

from pipeline.dag import ROOT
from pipeline.project import Project

pytestmark = pytest.mark.slow
README = (ROOT / "README.md").read_text()
LINES = [line.partition("  #")[0].strip() for line in re.findall(r"^ {4}(\S.*)$", README, re.MULTILINE)]
LINES += re.findall(r"`(figura (?!explore|init|predict)\w+)`", README)
NOT_HERE = "make "  # continuous integration runs these; a server that explores has tests of its own
SHOWN = {  # what a command shows, as a regular expression
    "figura why": "nothing would run",
    "dvc repro": r"(?s)\A(?!.*Running stage '(?!code'))",  # no other stage than `code`
    "dvc metrics diff": r"metrics/vunet\.json\s+l1_person\.value",
    "dvc exp show --only-changed --drop runs": r"KL\.weight",
    "figura compare HEAD kl-1 kl-2 --recipe vunet": "kl-2",
}


@pytest.fixture
def prepared(project: Project) -> Project:
    """The finished project with what the commands name: photos, a clip, two experiments."""
    pictures = sorted((project.folder / "data/prepared/people").rglob("*.png"))[:3]
    for folder, suffix in (("photos", ".png"), ("more", ".jpg")):
        (project.folder / folder).mkdir()
        for number, picture in enumerate(pictures):
            cv2.imwrite(str(project.folder / folder / f"{number}{suffix}"), cv2.imread(str(picture)))
    film(project.folder / "clip.mp4", pictures[0])
    for name, weight in (("kl-1", "0.5"), ("kl-2", "3")):
        project.run("dvc", "exp", "run", "--temp", "--name", name, "-S", f"losses.KL.weight={weight}", "metrics@vunet")
    return project


def film(path: Path, picture: Path) -> None:
    """Write a video of six equal frames."""
    frame = cv2.imread(str(picture))
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), 10, frame.shape[1::-1])
    for _ in range(6):
        video.write(frame)
    video.release()


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
