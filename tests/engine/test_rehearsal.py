"""Every recipe on a pretended GPU: no tensor is on the wrong device, and an iteration waits only where it is listed."""

import json
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from accelerate.state import AcceleratorState
from pipeline.tiny_settings import STEPS, tiny
from pretended_gpu import PretendedGPU, pretended_gpu
from real_people import leave_out_plots

from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands import predict
from figura.recipe.assignments import overridden
from figura.recipe.load import check_recipe
from figura.training.trainer import Trainer
from stages import eval_dump, prepare, train

FILES = {"vunet": "params.yaml"} | {
    name: f"recipes/{name}.yaml" for name in ("pix2pix", "super_resolution", "pose", "detection")
}
ONLY_WHEN_DUE = {  # what an iteration calls every `log_every`, `evaluate_every`, `resume_every` or `record_every` steps
    "Trainer._log", "Trainer._evaluate", "Trainer._save", "LossLog.add", "SampleSheets.on_iteration",
    "OnlineScores.on_iteration",
}  # fmt: skip
JUDGED = "Step._step"
"""One wait for each update: an update that is not finite must not happen, and optimizers cannot leave it out alone."""
CELLS = "FieldLoss.forward"
"""One wait for each head, cif, caf and cifdet: how many cells count is the size of tensors."""
ITERATION = {
    "vunet": {JUDGED: 1},
    "pix2pix": {JUDGED: 2},
    "super_resolution": {JUDGED: 1},
    "pose": {JUDGED: 1, CELLS: 3},
    "detection": {JUDGED: 1, CELLS: 1},
}
RARER = {"super_resolution": {JUDGED: 4, "VGG._convolve": 28}}
"""In all: updates of the discriminator, whose gate opens late; 28 weights that are moved to the GPU once."""


def slow(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Tiny recipes, and prepared pairs, drawn."""
    folder = tmp_path_factory.mktemp("rehearsal")
    changes = tiny() | {FILES["detection"]: tiny()[FILES["pose"]]}
    for file in ("data/params.yaml", *FILES.values()):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(to_yaml(toy.changed(changes[file], toy.shipped(file))))
    prepared(folder, "pairs")
    return folder


@pytest.fixture(scope="module")
def people(project) -> None:
    """Prepared people, drawn; they stand beside the pictures as if found in them."""
    prepared(project, "people")
    people = project / "data/prepared/people"
    shutil.unpack_archive(people / "images/validation.zip", people / "images")
    content = json.loads((people / "validation.json").read_text())
    for image in content["images"]:
        records = [one for one in content["annotations"] if one["category_id"] == 1 and not one["iscrowd"]]
        found = [one | {"score": 1.0} for one in records if one["image_id"] == image["id"]]
        (people / "images" / image["file_name"]).with_suffix(".people.json").write_text(json.dumps(found))


def prepared(folder: Path, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        leave_out_plots(patch)
        prepare.main([name])


@pytest.fixture
def gpu(project, name, request, monkeypatch):
    """A pretended GPU, in the project with what the recipe `name` needs."""
    if name != "pix2pix":
        request.getfixturevalue("people")
    monkeypatch.chdir(project)
    with pretended_gpu() as gpu:
        yield gpu


def waits(gpu: PretendedGPU) -> Counter[str]:
    """The waits of iterations, by the innermost function of ours."""
    found: Counter[str] = Counter()
    for names, count in gpu.waits.items():
        if "Trainer._loop" in names and not ONLY_WHEN_DUE & set(names):
            found[names[0]] += count
    return found


@pytest.mark.parametrize("name", [one if one == "pix2pix" else slow(one) for one in FILES])
def test_waits_of_a_training_are_listed(name, gpu):
    train.main([FILES[name], f"runs/{name}"])
    expected = Counter({place: STEPS * count for place, count in ITERATION[name].items()})
    assert waits(gpu) == expected + Counter(RARER.get(name, {}))
    AcceleratorState._reset_state(reset_partial_state=True)
    eval_dump.main([FILES[name], f"runs/{name}"])
    pairs = ["--set", "predict.data.layout=pairs"] if name == "pix2pix" else []
    if pairs:
        shutil.unpack_archive("data/prepared/pairs/validation.zip", "unpacked")
    photos = "unpacked/validation" if pairs else "data/prepared/people/images/validation"
    gpu.waits.clear()
    predict.main([FILES[name], f"runs/{name}", photos, "--output", f"predicted/{name}", *pairs])
    assert gpu.waits  # the networks ran on the GPU


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_waits_for_nothing_else(name, precision, gpu, tmp_path):
    file = Path(FILES[name])
    changes = [f"train.precision={precision}", "runtime.samples=null", "runtime.scores=null"]
    content = read_yaml(file)
    Trainer(check_recipe(overridden(content, changes, list(content), file), file), tmp_path).fit()
    found = waits(gpu)
    overflows = found.pop("adapt", 0) / 2  # the scale before and after, and then whether losses were finite
    assert overflows == 0 or precision == "fp16"
    found[JUDGED] -= overflows
    assert found == Counter({n: STEPS * c for n, c in ITERATION[name].items()}) + Counter(RARER.get(name, {}))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or not FIGURA_TEST_GPU=1")
@pytest.mark.parametrize("name", FILES)
def test_a_real_gpu_waits_where_the_pretended_one_does(name, project, people, monkeypatch):
    monkeypatch.chdir(project)
    told = PretendedGPU()  # for its list alone
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_: "synchroniz" in str(message) and told.wait())
        torch.cuda.set_sync_debug_mode("warn")
        try:
            train.main([FILES[name], f"runs/real_{name}"])
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert waits(told).keys() == ITERATION[name].keys() | RARER.get(name, {}).keys()
