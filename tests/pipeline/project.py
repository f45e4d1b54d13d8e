"""A temporary clone of the project with tiny settings, driven by the real `dvc`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "DVC_NO_ANALYTICS": "1",
    "GIT_AUTHOR_NAME": "tester",
    "GIT_AUTHOR_EMAIL": "tester@example.org",
    "GIT_COMMITTER_NAME": "tester",
    "GIT_COMMITTER_EMAIL": "tester@example.org",
    "OMP_NUM_THREADS": "1",
}
TINY = {
    "data/params.yaml": {
        "datasets.people.synthetic.scenes.train": 16,
        "datasets.people.synthetic.scenes.validation": 6,
        "datasets.people.synthetic.identities.train": 6,
        "datasets.people.synthetic.identities.validation": 4,
        "datasets.pairs.catalogue.image_size": 40,
        "datasets.pairs.catalogue.pairs.train": 16,
        "datasets.pairs.catalogue.pairs.validation": 6,
    },
    "recipes/pose.yaml": {
        "data.train.scenes.side": 65,
        "data.train.scenes.augmentation.geometry.crop": {"margin": 5},
        "data.validation.scenes.side": 65,
        "data.batch_size": 4,
        "networks.network.backbone.widths": [4, 4, 8, 8],
        "steps.network.lr_schedule.steps": 2,
        "steps.network.lr_schedule.then.start": 2,
        "steps.network.lr_schedule.then.end": 6,
        "train.steps": 6,
        "train.evaluate_every": 3,
        "train.record_every": 3,
        "evaluate.batch_size": 4,
        "metrics.bootstrap": 20,
        "runtime.resume_every": 3,
        "runtime.log_every": 5,
        "runtime.progress": False,
        "runtime.trackers": [],
    },
    "recipes/super_resolution.yaml": {
        "data.train.scenes.size": 32,
        "data.validation.scenes.size": 32,
        "data.batch_size": 2,
        "networks.generator.features": 4,
        "networks.generator.growth": 4,
        "networks.discriminator.features": 4,
        "losses.G_feature.after": 3,
        "losses.G_fake.after": 3,
        "losses.G_real.after": 3,
        "steps.G.injectors.judge.after": 3,
        "steps.G.lr_schedule.end": 6,
        "steps.D.after": 3,
        "train.steps": 6,
        "train.evaluate_every": 3,
        "train.record_every": 3,
        "evaluate.batch_size": 4,
        "metrics.bootstrap": 20,
        "runtime.resume_every": 3,
        "runtime.log_every": 5,
        "runtime.progress": False,
        "runtime.trackers": [],
        "runtime.samples": ...,
        "runtime.scores": ...,
    },
    "recipes/pix2pix.yaml": {
        "data.train.pairs.load_size": 36,
        "data.train.pairs.crop_size": 32,
        "data.validation.pairs.load_size": 32,
        "data.validation.pairs.crop_size": 32,
        "data.batch_size": 4,
        "networks.generator.image_size": 32,
        "networks.generator.features": 4,
        "networks.discriminator.features": 4,
        "networks.discriminator.n_layers": 2,
        "steps.D.lr_schedule.start": 4,
        "steps.D.lr_schedule.end": 8,
        "steps.G.lr_schedule.start": 4,
        "steps.G.lr_schedule.end": 8,
        "train.steps": 8,
        "train.evaluate_every": 4,
        "train.record_every": 4,
        "evaluate.averages.mean_target.examples": 8,
        "metrics.bootstrap": 20,
        "runtime.resume_every": 3,
        "runtime.log_every": 5,
        "runtime.progress": False,
        "runtime.trackers": [],
    },
    "params.yaml": {
        "data.train.people.image_size": 16,
        "data.validation.people.image_size": 16,
        "networks.generator.image_size": 16,
        "networks.generator.nf_start": 4,
        "networks.generator.nf_max": 8,
        "losses.KL.schedule.start": 2,
        "losses.KL.schedule.end": 6,
        "steps.generator.lr_schedule.steps": 2,
        "steps.generator.lr_schedule.then.start": 6,
        "steps.generator.lr_schedule.then.end": 12,
        "steps.generator.injectors.generate.args.noise_scale.start": 2,
        "steps.generator.injectors.generate.args.noise_scale.end": 6,
        "train.steps": 12,
        "train.evaluate_every": 6,
        "train.record_every": 4,
        "evaluate.grids.transfer.size": 2,
        "evaluate.averages.mean_target.examples": 8,
        "metrics.bootstrap": 20,
        "runtime.resume_every": 3,
        "runtime.log_every": 5,
        "runtime.progress": False,
        "runtime.trackers": [],
    },
}


class Project:
    """A git repository with the project's files; commands run in it as a person would run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def copy(self, folder: Path) -> "Project":
        """Copy everything, caches and outputs included."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Project(folder)

    def run(self, *command: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command; `code` is the exit status it must have, None for any."""
        done = subprocess.run(
            command, cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False
        )
        assert code is None or done.returncode == code, (
            f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def set(self, file: str, values: dict[str, Any]) -> None:
        """Set dotted keys of a params file, comments kept; a value of `...` removes the key."""
        yaml = YAML()
        content = yaml.load(self.folder / file)
        for dotted, value in values.items():
            *path, last = dotted.split(".")
            place = content
            for key in path:
                place = place[key]
            if value is ...:
                del place[last]
            else:
                place[last] = value
        yaml.dump(content, self.folder / file)

    def lock(self) -> dict[str, Any]:
        """Return the stages of dvc.lock."""
        return dict(YAML(typ="safe").load(self.folder / "dvc.lock")["stages"])

    def outputs(self) -> dict[str, str]:
        """Return the hash of every output in dvc.lock."""
        return {out["path"]: out["md5"] for stage in self.lock().values() for out in stage["outs"]}


def clone(folder: Path) -> Project:
    """Copy what git knows or would add, with tiny settings, and commit it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        if name != "dvc.lock" and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    project = Project(folder)
    for file, values in TINY.items():
        project.set(file, values)
    project.run("git", "init", "-q", "-b", "main")
    project.run("git", "add", "-A")
    project.run("git", "commit", "-qm", "tiny")
    return project
