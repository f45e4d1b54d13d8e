"""A recipe without training: which sections it may have, and what the trained model adds. Pipelines run the stage."""

import json
from pathlib import Path

import pytest
from dumps_by_hand import sealed
from skeletons_by_hand import DOG

from figura.base.checksums import write_sums
from figura.base.errors import UserError
from figura.dump import Dump
from figura.evaluation.judging import judging_content, refuse_other_joints
from stages.pose_consistency import main

TRAINED = "seed: 3\nnetworks: {net: {type: toy.Net}}\nfacts: {side: 97}\n"
OWN = "evaluate: {batch_size: 2, data: {people: {side: 5}}}\nmetrics: {bootstrap: 5}\nruntime: {workers: 0}\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(TRAINED)
    write_sums(folder)
    return folder


def written(folder: Path, text: str) -> Path:
    path = folder / "judge.yaml"
    path.write_text(text)
    return path


def test_the_trained_network_and_how_it_judges(tmp_path: Path, model: Path) -> None:
    content, facts = judging_content(written(tmp_path, OWN), model, Path("drawn"))
    assert facts == {"side": 97}
    assert content == {
        "seed": 3, "networks": {"net": {"type": "toy.Net"}}, 
        "evaluate": {"batch_size": 2, "data": {"people": {"dump": "drawn", "side": 5}}},
        "metrics": {"bootstrap": 5}, "runtime": {"workers": 0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OWN + "losses: {}\n", "judge.yaml: losses: this is of the network in .*model; allowed are evaluate, metrics"),
        (OWN.replace("metrics", "metrisc"), "judge.yaml: metrisc: this is of the network"),
        ("evaluate: {}\nruntime: {}\n", "judge.yaml: metrics: missing"),
    ],
)
def test_other_sections_are_refused(tmp_path: Path, model: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        judging_content(written(tmp_path, text), model, Path("drawn"))


def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pose: no such folder"):
        main([str(written(tmp_path, OWN)), str(tmp_path / "pose"), "drawn", "run", "metrics.json", "plots"])


def test_a_dump_of_other_joints_is_refused_and_one_without_joints_is_not(tmp_path: Path) -> None:
    (tmp_path / "examples.csv").write_text("mode,index\nm,0\n")
    facts = {"skeleton": DOG}
    refuse_other_joints(Dump(sealed(tmp_path)), facts, Path("model"))  # pairs of pictures, judged by what was read
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    drawn = Dump(sealed(tmp_path))
    refuse_other_joints(drawn, facts, Path("model"))
    with pytest.raises(UserError, match=r"model: finds the 17 joints nose, .* name a network of the same joints"):
        refuse_other_joints(drawn, {}, Path("model"))
