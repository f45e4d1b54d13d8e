"""The sample of real COCO people beside the repository, and the folder that the stage `prepare` writes for it."""

from pathlib import Path

import pytest

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from stages import prepare

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared/data/coco_keypoints_real"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no sample of real COCO people at {REAL}")


def leave_out_plots(patch: pytest.MonkeyPatch) -> None:
    """Let `prepare` draw nothing: that takes most of its time."""
    patch.setattr("figura.preparation.people.write_people", lambda *_: None)


def prepare_real(folder: Path) -> None:
    """Make a project whose people are the sample, with nothing changed but kind and source, and prepare them."""
    entry = read_yaml(ROOT / "data/params.yaml")["datasets"]["people"] | {"kind": "coco", "source": str(REAL)}
    (folder / "data").mkdir(parents=True)
    (folder / "data/params.yaml").write_text(to_yaml({"datasets": {"people": entry}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        leave_out_plots(patch)
        assert run(prepare.main, ["people"]) == 0
