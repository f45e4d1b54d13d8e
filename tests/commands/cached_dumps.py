"""A repository with dumps in DVC's cache, one for each commit, made without running DVC."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figura.base.yaml12 import to_yaml

PIPELINE = """
vars:
  - recipes:
      toy: {params: params.yaml, data: ramps}
stages:
  train:
    foreach: ${recipes}
    do:
      cmd: train
      deps:
        - code
      params:
        - ${item.params}:
            - seed
            - losses
      outs:
        - runs/${key}/model
        - runs/${key}/history
  eval-dump:
    foreach: ${recipes}
    do:
      cmd: dump
      deps:
        - code
        - runs/${key}/model
      outs:
        - runs/${key}/dump
  metrics:
    foreach: ${recipes}
    do:
      cmd: judge
      deps:
        - runs/${key}/dump
      outs:
        - plots/${key}/pictures
"""


class Repository:
    """Commits of dumps of a recipe named `toy`, each with what made it in `dvc.lock`.

    `top` is git's folder, if the project is below it.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, Any], top: Path | None = None) -> None:
        self.folder = folder
        (folder / ".dvc").mkdir(parents=True)
        (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")
        (folder / ".gitignore").write_text("/runs\n/plots\n/.dvc/cache\n/.dvc/tmp\n")
        (folder / "dvc.yaml").write_text(PIPELINE)
        self.write_recipe(recipe)
        self.git("-C", str(top or folder), "init", "-q", "-b", "main")

    def write_recipe(self, recipe: Mapping[str, Any]) -> None:
        (self.folder / "params.yaml").write_text(to_yaml(dict(recipe)))

    def git(self, *arguments: str) -> None:
        who = ["-c", "user.name=tester", "-c", "user.email=tester@example.org"]
        subprocess.run(["git", *who, *arguments], cwd=self.folder, check=True)

    def commit(
        self,
        name: str,
        dump: Path,
        seed: int = 1,
        weight: float = 1.0,
        code: str = "a",
        results: Mapping[str, Path] | None = None,
    ) -> None:
        """Make a dump that of the workspace, put it into the cache, and commit and tag what made it.

        `results` are further folders that the stages write, `history` and `pictures`.
        """
        params = {"params.yaml": {"seed": seed, "losses": {"distance": {"weight": weight}}}}
        sources = {"path": "code", "hash": "md5", "md5": hashlib.md5(code.encode()).hexdigest()}
        model = {"path": "runs/toy/model", "hash": "md5", "md5": hashlib.md5(name.encode()).hexdigest() + ".dir"}
        places = {"history": "runs/toy/history", "pictures": "plots/toy/pictures"}
        outs = {one: self._output(places[one], folder) for one, folder in (results or {}).items()}
        outs["dump"] = self._output("runs/toy/dump", dump)
        train = [model, *([outs["history"]] if results else [])]
        stages = {
            "train@toy": {"cmd": "train", "deps": [sources], "params": params, "outs": train},
            "eval-dump@toy": {"cmd": "dump", "deps": [sources, model], "outs": [outs["dump"]]},
        }
        if results:
            stages["metrics@toy"] = {"cmd": "judge", "deps": [outs["dump"]], "outs": [outs["pictures"]]}
        (self.folder / "dvc.lock").write_text(to_yaml({"schema": "2.0", "stages": stages}))
        self.git("add", "-A")
        self.git("commit", "-qm", name)
        self.git("tag", name)

    def _output(self, path: str, source: Path) -> dict[str, str]:
        """Make a folder that of the workspace, and put it into the cache; return its entry in `dvc.lock`."""
        shutil.rmtree(self.folder / path, ignore_errors=True)
        shutil.copytree(source, self.folder / path)
        return {"path": path, "hash": "md5", "md5": self.store_folder(self.folder / path)}

    def store_folder(self, folder: Path) -> str:
        """Put a folder and its list of files into the cache; return its hash."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        listed = [{"md5": self._store(p.read_bytes()), "relpath": p.relative_to(folder).as_posix()} for p in files]
        return self._store(json.dumps(listed).encode(), ".dir")

    def _store(self, content: bytes, suffix: str = "") -> str:
        name = hashlib.md5(content).hexdigest() + suffix
        path = self.folder / ".dvc/cache/files/md5" / name[:2] / name[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return name
