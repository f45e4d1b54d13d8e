"""The report: figures as in the metrics files, everything in one file, names escaped, and gaps that are said."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.commands.report.command import main
from figura.commands.results import main as results

RECIPE = """\
# A recipe <b>of a test</b>. More about it.
seed: 3
data: {batch_size: 4}
networks: {net: {type: toy.Net}}
losses:
  l1: {type: images.L1, inputs: {image: x, target: y}, weight: 2.5}
  kl: {type: toy.KL, inputs: {p: p}, weight: 1, schedule: {type: Linear, end: 5}}
steps: {only: {trains: [net]}}
evaluate: {modes: {a: {injectors: {run: {network: net}}}}}
train: {steps: 120, precision: bf16}
metrics:
  summary: {psnr: {metric: a.psnr, better: higher}, <i>odd</i>: {metric: a.odd, better: lower}}
  pictures: {second: {type: images.Sheet}, first: {type: images.Extremes}}
"""
DAG = """\
vars:
  - recipes:
      toy: {params: toy.yaml, data: people}
  - pose_consistency:
      toy: {params: judge.yaml, metrics: judged}
"""
SUMMARY = {"psnr": {"value": 21.123456, "low": 20.5, "high": 22.25, "baseline": 15.75}, "<i>odd</i>": {"value": 3}}
FULL = {"a": {"psnr": {"value": 21.123456, "low": 20.5, "high": 22.25}, "odd": 3, "deep": {"share": 0.123456}}}


def write(path: str, content: object) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one recipe, without prepared networks: what its flow needs is missing."""
    monkeypatch.chdir(tmp_path)
    write("dvc.yaml", DAG)
    write("toy.yaml", RECIPE)
    write("judge.yaml", "# Judges pictures.\nevaluate: {}\nmetrics: {summary: {}}\n")
    write("metrics/toy.json", SUMMARY)
    write("metrics/full/toy.json", FULL)
    write("data/prepared/people/statistics.json", {"train": {"images": 3000, "annotated": True, "sizes": {}}})
    for name, height in (("losses", 20), ("second", 30), ("first", 40), ("zz_other", 50)):
        write_png(Path(f"plots/toy/pictures/{name}.png"), np.full((height, 2000, 3), 200, np.uint8))
    return tmp_path


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<(style|script).*?</\1>", "", page)))


def test_page_and_markdown_have_the_figures_of_the_metrics_files(project, capsys):
    main(["--recipe", "toy", "--markdown", "md"])
    page = (project / "report.html").read_text()
    text = " ".join(text_of(page).split())
    assert "psnr higher is better 21.12 20.5 to 22.25 baseline 15.75" in text
    assert "a.deep.share 0.1235" in text
    assert "kl toy.KL 1 type Linear, end 5" in text
    assert "120 iterations, batches of 4, bf16" in text
    assert "train 3,000" in text
    assert "toy: left out:" in capsys.readouterr().out  # its flow: there is no class toy.Net
    # one file holds everything, and names are escaped
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)  # nothing is fetched
    assert "<i>odd" not in page
    assert "&lt;i&gt;odd&lt;/i&gt;" in page
    assert "A recipe &lt;b&gt;of a test&lt;/b&gt;." in page
    titles = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert titles == ["second", "first", "zz other", "losses"]  # as the recipe lists them; curves after results
    widths = re.findall(r'<img src="data:image/webp[^>]*width="(\d+)" height="(\d+)"', page)
    assert set(widths) == {("1400", "21"), ("1400", "28"), ("1400", "35"), ("1400", "14")}
    assert len(re.findall(r'<img src="data[^>]* alt="[^"]{20,}"', page)) == 4
    # Markdown says the same beside its pictures
    text = (project / "md/report.md").read_text()
    assert "| `psnr` | higher | 21.12 | 20.5 to 22.25 | 15.75 |" in text
    assert "| `a.deep.share` | 0.1235 |" in text
    assert "| `<i>odd</i>` | lower | 3 |" in text  # code, in which nothing is markup
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(pictures) == 4
    assert all((project / "md" / name).is_file() for name in pictures)


def test_verdicts_and_what_the_curves_say_are_below_the_figures(project, capsys):
    write("metrics/full/toy.json", FULL | {"gain": {"psnr": {"value": -0.5, "low": -1.5, "high": 0.5}}})
    rows = [f"{step},{1 - step / 40}" for step in range(1, 41)]
    write("runs/toy/history/train.csv", "\n".join(["step,l1.raw", *rows, ""]))
    write("runs/toy/history/validation.csv", "step,l1.raw\n20,0.6\n40,0.2\n")
    main(["--recipe", "toy"])
    text = " ".join(text_of((project / "report.html").read_text()).split())
    assert "psnr: no better than the baseline l1: still falls at the end, in the last quarter by 29% of" in text
    capsys.readouterr()
    results([])
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith("psnr 21.1 [20.5, 22.2] (baseline 15.8): no better than the baseline, <i>odd</i> 3")
    write("metrics/toy.json", {"try": SUMMARY})
    write("metrics/full/toy.json", {"try": FULL | {"gain": {"psnr": {"value": -2.0, "low": -2.5, "high": -1.5}}}})
    main(["--recipe", "toy"])
    assert "than the baseline" not in (project / "report.html").read_text()


def test_a_try_is_marked_and_a_recipe_without_results_says_what_is_missing(project):
    write("metrics/toy.json", {"try": SUMMARY})
    write("metrics/full/toy.json", {"try": FULL})
    main([])
    text = text_of((project / "report.html").read_text())
    assert "A try: its figures are no result." in text
    assert "21.12" in text
    assert "Judges pictures." in text
    assert "left out: metrics/judged.json: no such file" in text
    assert "plots/judged/pictures: no pictures; run `dvc repro`" in text


def test_a_recipe_with_an_empty_section_leaves_out_its_part_alone(project, capsys):
    write("toy.yaml", RECIPE.replace("{net: {type: toy.Net}}", ""))
    write("metrics/full/toy.json", "[1]")
    main(["--recipe", "toy"])
    assert "toy: left out: toy.yaml, or a file of its results, has another form: " in capsys.readouterr().out
    text = text_of((project / "report.html").read_text())
    assert "21.12" in text
    assert "kl toy.KL" in " ".join(text.split())


def test_what_is_missing_or_misspelt_says_what_to_do(project, capsys):
    with pytest.raises(UserError, match=r"--recipe tox: dvc.yaml has no such recipe \(did you mean 'toy'\?\)"):
        main(["--recipe", "tox"])
    (project / "data/prepared/people/statistics.json").unlink()
    main(["--recipe", "toy"])
    assert "statistics.json: no such file; run `dvc repro prepare@people`" in capsys.readouterr().out


def test_settings_without_a_model_are_called_those_of_the_file(project):
    main(["--recipe", "toy"])
    assert "recipe: toy.yaml, as it is now: no trained model is here" in (project / "report.html").read_text()
    write("runs/toy/model/recipe.yaml", RECIPE.replace("steps: 120, precision: bf16", "steps: 60"))
    main(["--recipe", "toy"])
    page = (project / "report.html").read_text()
    assert "as it is now" not in page
    assert "training: 60 iterations, batches of 4, float32, seed 3" in page


def test_a_recipe_that_extends_another_is_shown_before_it_is_trained(project):
    main(["--recipe", "toy"])
    before = (project / "report.html").read_text()
    write("base.yaml", RECIPE)
    sections = ("networks", "losses", "train", "metrics")
    names = "".join(f"{name}: {{extends: base.yaml#{name}}}\n" for name in sections)
    write("toy.yaml", f"# A recipe <b>of a test</b>. It extends another.\nseed: 3\ndata: {{batch_size: 4}}\n{names}")
    main(["--recipe", "toy"])
    expected = text_of(before)[: text_of(before).index("left out")]
    assert "net (toy.Net)" in expected
    assert text_of((project / "report.html").read_text()).startswith(expected)
