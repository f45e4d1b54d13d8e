"""What the report of a change shows; all of it, with the real dvc, is made in tests/workflows/test_workflows.py."""

import subprocess
from pathlib import Path

import cv2
import numpy as np
import pytest

from figura.base.errors import UserError
from figura.commands.ci import change_report
from figura.commands.ci.change_pictures import Curve, beside, draw_curves
from figura.commands.ci.change_report import read, shortened


def test_pictures_stand_side_by_side_only_where_they_differ(tmp_path: Path) -> None:
    black, white, same = (tmp_path / f"{name}.png" for name in ("black", "white", "same"))
    cv2.imwrite(str(black), np.zeros((4, 6, 3), np.uint8))
    cv2.imwrite(str(white), np.full((8, 5, 3), 255, np.uint8))
    same.write_bytes(black.read_bytes())
    assert not beside(black, same, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    assert beside(black, white, tmp_path / "both.png")
    both = cv2.imread(str(tmp_path / "both.png"))
    assert both.shape == (8, 6 + 12 + 5, 3)
    assert (both[:4, :6] == 0).all()
    assert (both[:, 6:] == 255).all()  # gap and right picture
    assert (both[4:, :6] == 255).all()  # padding
    assert beside(None, black, tmp_path / "one.png")
    assert cv2.imread(str(tmp_path / "one.png")).shape == (4, 6, 3)
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(UserError, match=r"text\.png: no readable picture"):
        beside(None, tmp_path / "text.png", tmp_path / "two.png")


def test_curves_are_sorted_by_side_and_drawn(tmp_path: Path) -> None:
    points = [
        {"step": "1", "name": "KL", "series": series, "value": value, "rev": rev}
        for series, value, rev in [
            ("training", "0.5", "workspace"),
            ("training", "0.25", "abc"),
            ("weight", "2.0", "workspace"),
        ]
    ]
    entry = {"type": "vega", "revisions": ["workspace", "abc"], "content": {"data": {"values": points}}}
    image = {"type": "image", "revisions": ["workspace"], "url": "/x/worst.png"}
    curves, pictures = read({"plots/vunet/losses.csv": [entry], "plots/vunet/pictures/worst.png": [image]})
    assert pictures == {"plots/vunet/pictures/worst.png": (None, Path("/x/worst.png"))}
    assert curves.keys() == {("plots/vunet/losses.csv", "KL training"), ("plots/vunet/losses.csv", "KL weight")}
    assert curves["plots/vunet/losses.csv", "KL weight"] == Curve([], points[2:])
    curve = curves["plots/vunet/losses.csv", "KL training"]
    assert curve == Curve(base=points[1:2], rerun=points[:1])
    assert curve.differs()
    assert not Curve(curve.base, curve.base).differs()
    draw_curves({"KL": curve, "new": Curve([], curve.rerun)}, tmp_path / "curves.png")
    assert cv2.imread(str(tmp_path / "curves.png")) is not None


def test_a_long_table_is_cut_at_a_line_with_its_fold_closed() -> None:
    table = "<details>\n" + "\n".join(f"| {row:04d} |" for row in range(100)) + "\n</details>"
    text = shortened(table, 200)
    assert text.startswith("<details>\n| 0000 |")
    assert text.count("<details>") == text.count("</details>") == 1
    kept = text.count("| 0")
    assert text.endswith(f"... and {102 - 1 - kept} more lines.")
    assert shortened(table, 10_000) == table


def test_what_dvc_could_not_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text("stages: {a: {cmd: x, params: [mine.yaml: [data], yours.yaml: [seed]]}}")
    Path("mine.yaml").write_text("data: {shares: {1: 0.5, more: 1}}\n")
    Path("yours.yaml").write_text("seed: 1\n")
    Path(".dvc").mkdir()
    Path(".dvc/config").touch()
    git = ["git", "-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "shares"]):
        subprocess.run([*git, *command], check=True)
    Path("mine.yaml").write_text("data: {shares: {1: 0.75, more: 1}}\n")
    command = ["python", "-m", "dvc", "params", "diff", "--md", "HEAD"]
    said = "DVC failed to load some metrics for following revisions: 'HEAD, workspace'.\n"

    def prints(stdout: str, stderr: str) -> str:
        done = subprocess.CompletedProcess(command, 0, stdout, stderr)
        monkeypatch.setattr(change_report, "dvc", lambda *arguments: done)
        return change_report.difference("params", "HEAD")

    reason = "`AttributeError: 'dict' object has no attribute 'extend'`"
    incomplete = (
        "**`dvc params diff` could not read all, so this is incomplete:**\n\n"
        f"- `mine.yaml` of HEAD: {reason}\n- `mine.yaml` of workspace: {reason}"
    )
    assert prints("", said) == incomplete
    table = "| Path | Param |\n|---|---|\n| yours.yaml | seed |"
    assert prints(table, said) == f"{incomplete}\n\n{table}"
    Path("mine.yaml").write_text("data: {shares: {'1': 0.5}}\n")
    subprocess.run([*git, "commit", "-qam", "quoted"], check=True)
    assert prints("", "") == "None changed."
    assert prints("", "Something else.\n").endswith("incomplete:**\n\n- `Something else.`")


def test_recipes_with_other_figures_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    figures = tmp_path / "metrics/full"
    figures.mkdir(parents=True)
    for name in ("pose", "vunet", "judged"):
        (figures / f"{name}.json").write_text("{}")
    (tmp_path / "dvc.yaml").write_text("vars: [{recipes: {pose: {params: p}, vunet: {params: v}}}]\n")
    git = ["git", "-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "figures"]):
        subprocess.run([*git, *command], check=True)
    assert change_report.changed_recipes("HEAD") == []
    (figures / "pose.json").write_text('{"l1": 1}')
    (figures / "judged.json").write_text('{"oks": 1}')  # of no recipe
    (figures / "new.json").write_text("{}")
    subprocess.run([*git, "add", "-A"], check=True)
    assert change_report.changed_recipes("HEAD") == ["pose"]


def test_what_tools_compare_says_is_part_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command[1:-1])
        Path(command[-1]).write_text("## pose: is it more than noise?\n\n**no**\n")
        return subprocess.CompletedProcess(command, 0, "no", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert change_report.comparison("pose", "abc") == "## pose: is it more than noise?\n\n**no**"
    assert commands == [["-m", "figura.commands.compare", "abc", "--recipe", "pose", "--markdown"]]
    failed = subprocess.CompletedProcess([], 1, "", "error: abc: runs/pose/dump is not in the cache\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    said = change_report.comparison("pose", "abc")
    assert said == ("## pose: is it more than noise?\n\nNot known: `error: abc: runs/pose/dump is not in the cache`")


def test_a_try_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics/full").mkdir(parents=True)
    for name, text in (("pose", '{"try": {"l1": 1}}'), ("vunet", '{"l1": 1}'), ("broken", "{")):
        Path(f"metrics/full/{name}.json").write_text(text)
    assert change_report.tries() == ["pose"]
