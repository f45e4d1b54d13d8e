"""The gate on a small repository: what passes, what fails, what it says."""

import copy
import json
import re
import subprocess
from pathlib import Path

import pytest

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.commands.ci.check_reproduction import main
from figura.commands.ci.reproduction import Metric, compare, compare_metrics, read_results
from figura.commands.ci.tolerances import read_tolerances
from figura.pipeline.lock import outputs

ROOT = Path(__file__).parents[2]
METRICS = {
    "drawing": {
        "l1": {"value": 1.0, "low": 0.8, "high": 1.4},  # half of the width is 0.3
        "psnr": {"value": 20.0, "low": 19.0, "high": 21.0},
        "ssim": {"value": 0.5, "low": 0.4, "high": 0.6},
        "images": 10,
    },
    "distance": {"value": 4.0, "images": 10},
    "source": "drawn",
    "undefined": None,
    "seconds": 12.5,
}
TOLERANCES = """
"*": {interval: 0.5}
"*.l1": {interval: 0.5, direction: lower_is_better}
"*.psnr": {relative: 0.1, direction: higher_is_better}
"*.images": exact
"*.distance.value": {relative: 0.1, absolute: 0.5}
"*.source": exact
"*.undefined": {relative: 1.0}
"*.seconds": ignore
"""
LOCK = """
schema: '2.0'
stages:
  prepare@people:
    cmd: prepare
    outs: [{path: data/prepared/people, hash: md5, md5: 11111111aaaa.dir}]
  train@toy:
    cmd: train
    outs: [{path: runs/toy, hash: md5, md5: 22222222bbbb.dir}]
  metrics@toy:
    cmd: measure
    outs: [{path: metrics/full/toy.json, hash: md5, md5: 44444444cccc}]
"""
PIPELINE = """
stages:
  metrics:
    foreach: [toy, second]
    do:
      cmd: measure
      outs:
        - metrics/full/${item}.json:
            cache: false
"""


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def write(metrics: dict) -> None:
    """Write the metrics of the recipe `toy`."""
    Path("metrics/full/toy.json").write_text(json.dumps(metrics))


def altered(dotted: str, value: object) -> dict:
    """Return METRICS with one entry replaced, or (value `...`) removed."""
    metrics = copy.deepcopy(METRICS)
    *path, last = dotted.split(".")
    place = metrics
    for key in path:
        place = place[key]
    place[last] = value
    if value is ...:
        del place[last]
    return metrics


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch) -> None:
    """The current folder, with one commit of metrics, tolerances and a lock."""
    monkeypatch.chdir(tmp_path)
    Path("metrics/full").mkdir(parents=True)
    write(METRICS)
    Path("metrics/tolerances.yaml").write_text(TOLERANCES)
    Path("dvc.lock").write_text(LOCK)
    Path("dvc.yaml").write_text(PIPELINE)
    Path(".dvc").mkdir()
    Path(".dvc/config").touch()
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "results")


def verdicts(printed: str) -> dict[str, str]:
    """Return the last column of the printed table by metric."""
    lines = [line[2:].split() for line in printed.splitlines()[1:-1]]
    return {words[0]: words[-1] for words in lines}


@pytest.mark.parametrize(
    ("metric", "value", "verdict"),
    [
        ("drawing.ssim.value", 0.549, "within"),  # half of the interval's half-width: 0.05
        ("drawing.ssim.value", 0.551, "violated"),
        ("drawing.l1.value", 1.149, "within"),  # 0.5 x 0.3
        ("drawing.l1.value", 1.151, "violated"),
        ("drawing.l1.value", 0.1, "better"),
        ("drawing.psnr.value", 18.01, "within"),  # a tenth of 20
        ("drawing.psnr.value", 17.99, "violated"),
        ("drawing.psnr.value", float("inf"), "violated"),
        ("distance.value", 4.49, "within"),  # the wider of 0.4 and 0.5
        ("distance.value", 4.51, "violated"),
        ("distance.value", 10**400, "violated"),  # more than a float holds
        ("drawing.images", 11, "violated"),
        ("drawing.ssim.value", float("nan"), "violated"),
        ("drawing.ssim.value", None, "violated"),
        ("drawing.images", True, "violated"),
        ("seconds", 900.0, "ignored"),
        ("drawing.ssim.low", 0.0, "identical"),  # the bounds only set the scale, and the committed ones do
    ],
)
def test_a_metric_may_be_as_far_as_its_rule_says(metric, value, verdict, capsys):
    write(altered(metric, value))
    assert run(main, []) == (1 if verdict == "violated" else 0)
    output = capsys.readouterr()
    name = (
        f"toy.{metric}" if metric == "distance.value" else f"toy.{metric}".removesuffix(".value").removesuffix(".low")
    )
    found = verdicts(output.out)
    assert found.pop(name) == verdict
    assert set(found.values()) <= {"identical", "ignored"}
    if verdict == "violated":
        assert output.err == f"error: not reproduced: {name}\n"
        assert output.out.splitlines()[1].startswith(f"! {name} ")  # what failed is on top


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_that_is_not_finite_fails_though_the_commit_has_the_same(value, capsys):
    write(altered("distance.value", value))
    git("commit", "-qam", "not finite")
    assert run(main, []) == 1
    assert capsys.readouterr().err == "error: not reproduced: toy.distance.value\n"
    write(altered("seconds", value))  # no rule compares it
    git("commit", "-qam", "ignored")
    assert run(main, []) == 0


@pytest.mark.parametrize("metric", ["drawing.ssim", "drawing.ssim.low", "drawing", "source"])
def test_a_metric_that_is_gone_fails_and_a_new_one_passes(metric, capsys):
    write(altered("drawing.added", 3.0))
    assert run(main, []) == 0
    assert verdicts(capsys.readouterr().out)["toy.drawing.added"] == "new"
    write(altered(metric, ...))
    assert run(main, []) == 1
    output = capsys.readouterr()
    assert "vanished" in output.out
    assert "error: not reproduced: toy." in output.err


def test_files_that_the_pipeline_or_the_commit_lost(capsys):
    Path("dvc.yaml").write_text(PIPELINE.replace("toy, ", ""))
    assert run(main, []) == 1
    assert "8 vanished, 1 identical" in capsys.readouterr().out.splitlines()[-1]
    Path("dvc.yaml").write_text(PIPELINE)
    Path("metrics/full/second.json").write_text('{"images": 3}')
    git("add", "metrics/full/second.json")
    for lost, said in (
        ("metrics/full/toy.json", "dvc.lock names metrics/full/toy.json, and the commit has no such file"),
        ("dvc.lock", "it has no dvc.lock"),
        ("metrics/full/second.json", "it has no metrics/full/*.json"),
    ):
        git("rm", "-q", "--cached", lost)
        git("commit", "-qm", "lost")
        assert run(main, []) == 1
        assert capsys.readouterr().err == f"error: --revision HEAD: {said}\n"


@pytest.mark.parametrize(
    ("before", "after", "status", "verdict"),
    [
        ("11111111", "33333333", 1, "violated"),
        ("data/prepared/people", "data/prepared/others", 1, "vanished"),
        ("22222222", "33333333", 0, "identical"),  # weights may differ
    ],
)
def test_data_must_have_the_same_hash(before, after, status, verdict, capsys):
    Path("dvc.lock").write_text(LOCK.replace(before, after))
    assert run(main, []) == status
    assert verdicts(capsys.readouterr().out)["data/prepared/people"] == verdict


def test_another_revision(capsys):
    git("commit", "-q", "--allow-empty", "-m", "empty")
    write(altered("distance.value", 8.0))
    git("commit", "-qam", "worse")
    assert run(main, []) == 0
    assert run(main, ["--revision", "HEAD~1"]) == 1
    assert "1 violated" in capsys.readouterr().out


def test_the_row_says_both_values_their_difference_and_what_is_allowed(capsys):
    write(altered("distance.value", 8.0))
    assert run(main, ["--markdown", "out/gate.md"]) == 1
    row = capsys.readouterr().out.splitlines()[1]
    assert " ".join(row.split()) == "! toy.distance.value 4 8 +4 ±0.5 violated"
    lines = Path("out/gate.md").read_text().splitlines()
    assert lines[0] == "**Reproduction: failed**, 9 compared with HEAD: 1 violated, 8 identical, 1 ignored"
    assert lines[2] == "| metric | committed | reproduced | difference | tolerance | verdict |"
    assert lines[4] == "| `toy.distance.value` | 4 | 8 | +4 | ±0.5 | violated |"
    assert lines[6] == "<details><summary>9 other rows</summary>"
    write(METRICS)
    assert run(main, ["--markdown", "out/gate.md"]) == 0
    assert Path("out/gate.md").read_text().startswith("**Reproduction: passed**, 9 compared")
    assert set(verdicts(capsys.readouterr().out).values()) == {"identical", "ignored"}


def test_the_most_specific_pattern_holds_alone_and_counts_are_exact(capsys):
    Path("metrics/tolerances.yaml").write_text('"toy.*": ignore\n"*": exact\n"toy.drawing.*": {interval: 9}\n')
    write(altered("distance.value", 8.0))
    assert run(main, []) == 0
    write(altered("drawing.images", 11))
    assert run(main, []) == 1
    assert capsys.readouterr().err == "error: not reproduced: toy.drawing.images\n"


@pytest.mark.parametrize(("value", "status"), [(0.50004, 0), (0.5 + 1e-12, 0), (0.5001, 1)])
def test_an_interval_without_width_leaves_room_for_rounding(value, status, capsys):
    write(altered("drawing.ssim", {"value": 0.5, "low": 0.5, "high": 0.5}))
    git("commit", "-qam", "all examples agree")
    write(altered("drawing.ssim", {"value": value, "low": 0.5, "high": 0.5}))
    assert run(main, []) == status


def test_a_rule_of_a_file_without_metrics_is_no_misspelling(capsys):
    rules = Path("metrics/tolerances.yaml")
    rules.write_text(f'{TOLERANCES}"second.found.*": ignore\n')
    Path("metrics/full/second.json").write_text("{}")
    assert run(main, []) == 0
    assert " 0 violated, " in capsys.readouterr().out
    rules.write_text(f'{TOLERANCES}"third.found.*": ignore\n')
    assert run(main, []) == 1
    assert "third.found.*: fits no metric" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"*": {interval: 1}\n"*.imags": exact', "*.imags: fits no metric"),
        ('"*": {intervall: 1, absolute: 1}', "*.intervall: unknown key 'intervall' (did you mean 'interval'?)"),
        ('"*": {direction: both}', "*: no width; one of absolute, relative, interval is needed"),
        ('"*": exactly', "*: found 'exactly'; expected exact, ignore or a map of absolute, relative, interval"),
        ('"*": {interval: 1}', "*: toy.distance.value has no interval; absolute or relative must say how far"),
        ('"toy.drawing.*": exact', "no pattern fits the metric toy.distance.value; '*' fits all"),
        ('"*": exact\n"*.l1": exact\n"toy*": exact', "'*.l1' and 'toy*' fit the metric toy.drawing.l1 equally well"),
        ('"*": {', "not valid YAML"),
    ],
)
def test_a_malformed_file_of_tolerances_is_refused(text, said, capsys):
    Path("metrics/tolerances.yaml").write_text(text)
    assert run(main, []) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: metrics/tolerances.yaml:")
    assert said in message


@pytest.mark.parametrize(
    ("break_it", "arguments", "said"),
    [
        (
            lambda: None,
            ["--tolerances", "none.yaml"],
            'none.yaml: no such file; write one, such as "*": {interval: 0.5, relative: 0.01}',
        ),
        (lambda: None, ["--revision", "nowhere"], "nowhere: not readable as a revision or experiment"),
        (lambda: Path("dvc.lock").unlink(), [], "dvc.lock: no such file; `dvc repro` writes it"),
        (lambda: Path("dvc.lock").write_text("<<<<<<< HEAD"), [], "dvc.lock' validation failed"),
        (lambda: write("[1]"), [], "metrics/full/toy.json: found str, expected a map"),
        (lambda: write({"try": METRICS}), [], "metrics of a try, which no result is compared with"),
        (lambda: Path("metrics/full/toy.json").write_text('{"a": '), [], "metrics/full/toy.json: not valid JSON"),
        (lambda: Path("metrics/full/toy.json").write_bytes(b"\xff"), [], "byte 0 is no UTF-8"),
    ],
)
def test_what_cannot_be_read_is_said(break_it, arguments, said, capsys):
    break_it()
    assert run(main, arguments) == 1
    assert said in capsys.readouterr().err


def test_the_proposed_file_fits_metrics_without_intervals(capsys):
    Path("metrics/tolerances.yaml").unlink()
    assert run(main, []) == 1
    proposed = re.search(r'"\*": \{.*?\}', capsys.readouterr().err)
    Path("metrics/tolerances.yaml").write_text(proposed[0])
    write({key: value for key, value in METRICS.items() if key != "undefined"})
    git("commit", "-qam", "without what is no number")
    assert run(main, []) == 0


def test_the_projects_own_file_fits_its_metrics():
    files = {str(path): path.read_text() for path in sorted((ROOT / "metrics/full").glob("*.json"))}
    results = read_results(files, (ROOT / "dvc.lock").read_text(), "")
    tolerances = read_tolerances(ROOT / "metrics/tolerances.yaml")
    rows = {row.metric: row for row in compare(results, results, tolerances)}
    ignored = {name for name, row in rows.items() if row.verdict == "ignored"}
    assert ignored == {name for name in rows if name.startswith("pose_consistency_pix2pix.labels.")}
    assert {row.verdict for name, row in rows.items() if name not in ignored} == {"identical"}
    counts = {name for name, metric in results.metrics.items() if isinstance(metric.value, int)} - ignored
    free = {name for name in counts if rows[name].tolerance != "exact" and float(rows[name].tolerance[1:]) >= 1}
    assert free == {"pose.errors.found", *(name for name in counts if name.endswith(".pictures"))}  # networks decide
    assert {"data/prepared/people", "data/prepared/pairs"} <= rows.keys()


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [  # of two processors, both of full trainings
        *((f"pose_consistency_pix2pix.{mode}.pictures", 196, 198) for mode in ("palette", "translation", "dropout")),
        ("pose_consistency_pix2pix.translation.left_wrist.PCK_10", 0.7276, 0.6216),
        ("pose_consistency_pix2pix.dropout.left_wrist.PCK_10", 0.78, 0.5833),
    ],
)
def test_figures_of_two_processors_pass_and_those_of_a_network_that_sees_nobody_do_not(name, one, other):
    tolerances = read_tolerances(ROOT / "metrics/tolerances.yaml")
    rule = tolerances.rules[tolerances.pattern(name)]
    found = [compare_metrics(name, Metric(one), Metric(new), rule).verdict for new in (one, other, one / 2)]
    assert found == ["identical", "within", "violated"]


def test_a_stage_without_outputs_is_none_of_the_gates():
    lock = "stages: {lint: {cmd: lint, deps: [{path: models, md5: a}]}, draw: {outs: [{path: out, md5: b}]}}"
    assert outputs(lock, " of x") == {"out": "b"}


@pytest.mark.parametrize("value", [".nan", "[x]"])
def test_a_hash_in_the_lock_that_is_no_text(value):
    lock = f"stages: {{prepare@people: {{outs: [{{path: data/prepared/people, md5: {value}}}]}}}}"
    with pytest.raises(
        UserError, match=r"^dvc\.lock of x: not what DVC writes: the hash of 'data/prepared/people' is "
    ):
        outputs(lock, " of x")
