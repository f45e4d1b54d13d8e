"""A try leaves what another training left, is marked in all that it writes, and no training goes on from it."""

import json

import cv2
import numpy as np
import toy
from trainings import contents, fit, killed

from figura.base.yaml12 import read_yaml
from figura.live import listeners
from figura.report.sheets import BAR

TRY = {"train.try": True}
MARK = "TRY of 10 steps, no result"


def test_it_is_marked_in_all_that_it_writes(run, capsys):
    fit(run, TRY | {"runtime.progress": True})
    train = read_yaml(run / "model/recipe.yaml")["train"]
    assert (train["try"], train["steps"]) == (True, 10)
    assert json.loads((run / "model/provenance.json").read_text())["try"] == MARK
    assert sorted(path.name for path in run.iterdir()) == ["history", "model", "try"]
    first, *_ = map(json.loads, (run / "try/live/log.jsonl").read_text().splitlines())
    assert first["try"] == MARK
    assert "TRY train" in capsys.readouterr().err
    assert len((run / "history/validation.csv").read_text().splitlines()) == 2


def test_its_sheet_has_a_header(run, tmp_path):
    for folder, changes in ((run, TRY), (tmp_path / "whole", {"train.steps": 10})):
        fit(folder, changes, listeners=listeners(toy.checked(changes)))
    sheet, whole = (
        cv2.imread(str(folder / "live/samples/00000010.png")) for folder in (run / "try", tmp_path / "whole")
    )
    bar = sheet.shape[0] - whole.shape[0]
    assert bar > 0
    assert bar % BAR == 0
    assert (sheet[:bar] < 128).any()
    np.testing.assert_array_equal(sheet[bar:], whole)


def test_a_stopped_training_goes_on_after_a_try(run, tmp_path):
    quiet = {"runtime.samples": None, "runtime.timing": False, "runtime.checkpoint_every": 4}
    fit(tmp_path / "whole", quiet)
    killed(run, quiet, stop=9)
    before = {name: contents(run / name) for name in ("resume", "checkpoints", "live")}
    fit(run, quiet | TRY)
    assert {name: contents(run / name) for name in ("resume", "checkpoints", "live")} == before
    trainer = fit(run, quiet)
    assert trainer.done == [8, 9, 10, 11]
    for name in ("model", "history", "checkpoints"):
        assert contents(run / name) == contents(tmp_path / "whole" / name)


def test_no_training_goes_on_from_a_try(run):
    killed(run, TRY, stop=9)
    assert {path.name for path in (run / "try/resume").iterdir()} == {"0000000004", "0000000008"}
    trainer = fit(run, {}, resume_anyway=True)
    assert trainer.done == list(range(12))
    assert fit(run, TRY).done == [8, 9]


def test_starting_from_its_weights_is_a_warning(tmp_path, capsys):
    for name, changes in (("trial", TRY), ("result", {})):
        fit(tmp_path / name, changes)
        capsys.readouterr()
        fit(tmp_path / f"from_{name}", {"train.init_from": {"run": str(tmp_path / name)}})
        said = (
            f"warning: network 'painter' starts from {tmp_path / name}/model/painter.safetensors, the weights of a try"
        )
        assert (said in capsys.readouterr().out) is (name == "trial")
