"""A folder with a tiny project of a few recipes, whose stages run in forked children; without git or DVC."""

import shutil
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import toy
from pipeline.dag import ROOT, recipes
from pipeline.project import Project
from pipeline.tiny_settings import tiny

from figura.base.pictures import read_picture, write_png
from figura.base.yaml12 import read_yaml, to_yaml
from figura.training import provenance
from reliability.forked import Ended, run

PHOTOS = "photos"
HELD = ("vunet", "pix2pix", "pose")
RARE = {
    "runtime.workers": 0,
    "runtime.checkpoint_every": 6,
    "runtime.trackers": [],
    "runtime.samples": None,
    "runtime.scores": None,
}


class SmallProject:
    """`data/params.yaml`, recipes, and what the stages write. `folder` exists; `prepared` runs the first stage too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, names: Iterable[str] = HELD) -> None:
        """Write the params files, and run every stage of these recipes; add photos for predictions."""
        values, datasets = tiny(), dict[str, None]()
        names = list(names)
        for file in ("data/params.yaml", *(recipes()[name]["params"] for name in names)):
            content = toy.changed(values[file] | (RARE if file != "data/params.yaml" else {}), read_yaml(ROOT / file))
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text(to_yaml(content))
        for name in names:
            datasets[recipes()[name]["data"]] = None
        for dataset in datasets:
            self.checked(self.stage("prepare", dataset))
        for name in names:
            for stage in ("train", "eval_dump", "metrics"):
                self.checked(self.stage(stage, name))
        if "pairs" in datasets:
            self.add_photos()

    def stage(self, stage: str, name: str, **limits: Any) -> Ended:
        """Run a stage of a dataset or recipe; `limits` are those of `forked.run`."""
        arguments = [name] if stage == "prepare" else [recipes()[name]["params"], f"runs/{name}"]
        if stage == "metrics":
            arguments += [f"metrics/{name}.json", f"plots/{name}"]
        return self.command(f"stages.{stage}", *arguments, **limits)

    def command(self, module: str, *arguments: object, **limits: Any) -> Ended:
        """Run the `main` of a module, such as `figura.commands.predict`."""
        prepare = limits.pop("prepare", lambda: None)

        def in_child() -> None:
            provenance.code_version = lambda modules, types: "the code that is tested"  # it may be edited meanwhile
            prepare()

        return run(page(module), arguments, self.folder, prepare=in_child, **limits)

    def add_photos(self) -> None:
        """Add three pictures that predictions start from: label maps, which are the left halves of prepared pairs."""
        for pair in sorted((self.folder / "data/prepared/pairs/validation").glob("*.png"))[:3]:
            pixels = read_picture(pair)
            write_png(self.folder / PHOTOS / pair.name, pixels[:, : pixels.shape[1] // 2])

    def copy(self, folder: Path) -> "SmallProject":
        """Copy everything to a folder that is made anew."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return SmallProject(folder)

    @staticmethod
    def checked(ended: Ended) -> Ended:
        """Return how a command ended, which must be well."""
        assert ended.code == 0, ended.out + ended.err
        return ended


@cache
def page(module: str) -> Callable[[list[str]], Any]:
    """Return the `main` of a command, with all that it loads imported here, so that children need not."""
    for folder in ("figura", "models"):
        for one in walk_packages([str(ROOT / folder)], f"{folder}."):
            if not one.name.startswith("figura.commands.") and not one.name.endswith(".__main__"):
                import_module(one.name)
    for name in ("matplotlib.pyplot", "torchmetrics", "torch.optim.adam", "torch._dynamo"):
        import_module(name)
    main: Callable[[list[str]], Any] = import_module(module).main
    return main


def contents(folder: Path, *names: str) -> dict[str, bytes]:
    """Return the bytes of all files at and below paths of a folder, by path."""
    paths = [path for name in names for path in ((folder / name), *(folder / name).rglob("*"))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(paths) if path.is_file()}


def dvc_repository(folder: Path, recipe: str, rule: str = "{relative: 0.1, absolute: 0.001}") -> None:
    """Make a repository of git and DVC of what one recipe's stages have written; `rule` is the gate's tolerance."""
    for path in (folder / "metrics").rglob("*.json"):
        if path.stem != recipe:  # the gate would miss what no stage of this dvc.yaml writes
            path.unlink()
    run_of = "runs/${key}"
    stages = {
        "prepare": {"foreach": ["pairs"], "do": {"cmd": "true", "outs": ["data/prepared/${item}"]}},
        "train": {
            "cmd": "true",
            "params": [{"${item.params}": ["seed"]}],
            "deps": ["data/prepared/pairs"],
            "outs": [f"{run_of}/model"],
        },
        "eval-dump": {"cmd": "true", "deps": [f"{run_of}/model"], "outs": [f"{run_of}/dump"]},
        "metrics": {
            "cmd": "true",
            "deps": [f"{run_of}/dump"],
            "metrics": [{f"metrics/{one}${{key}}.json": {"cache": False}} for one in ("", "full/")],
        },
    }
    each = {name: one if name == "prepare" else {"foreach": "${recipes}", "do": one} for name, one in stages.items()}
    entry = {"params": recipes()[recipe]["params"]}
    (folder / "dvc.yaml").write_text(to_yaml({"vars": [{"recipes": {recipe: entry}}], "stages": each}))
    (folder / "metrics/tolerances.yaml").write_text(f'"*": {rule}\n')
    project = Project(folder)
    project.run("git", "init", "-q", "-b", "main")
    project.run("dvc", "init", "-q")
    project.run("dvc", "commit", "-fq")
    project.run("git", "add", "-A")
    project.run("git", "commit", "-qm", "tiny")
