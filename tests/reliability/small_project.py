"""A tiny project whose commands run in forked children, within limits of time and memory (Linux).

Nothing is imported twice, so that hundreds of commands take minutes.
"""

import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NoReturn
from zipfile import ZipFile

import toy
from pipeline.dag import ROOT, recipes
from pipeline.project import Project, made_once, shared_by_workers
from pipeline.tiny_settings import tiny

from figura.base import exit_status
from figura.base.pictures import write_png
from figura.base.raw_pictures import decode_raw
from figura.base.yaml12 import to_yaml
from figura.training import provenance
from figura.training.trainer import Trainer

SECONDS = 60
MEMORY = 2 << 30  # bytes of address space that a command may take beyond what this process has
LONGEST = 4000  # characters that all messages of one command may have together
RARE = {
    "runtime.workers": 0,
    "runtime.checkpoint_every": 6,
    "runtime.trackers": [],
    "runtime.samples": None,
    "runtime.scores": None,
}


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status (negative: a signal; None: no end in time), and what it printed."""

    code: int | None
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The error messages, one for each line."""
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    def check(self) -> None:
        """Assert what holds for every command: it ends, by 0 or by 1 with a bounded message, without a traceback."""
        assert self.code in (0, 1), f"{self.code}: {self.err[-2000:]}"
        assert "Traceback (most recent call last)" not in self.err, self.err[-2000:]
        assert self.code == 0 or 0 < sum(map(len, self.errors)) <= LONGEST, self.err[:LONGEST]


class SmallProject:
    """`data/params.yaml`, recipes, and what the stages write into `folder`, without git or DVC."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, names: Iterable[str]) -> None:
        """Write the params files, and run every stage of these recipes; add photos for predictions of pix2pix."""
        entries = {name: recipes()[name] for name in names}
        for file in ("data/params.yaml", *(one["params"] for one in entries.values())):
            content = toy.changed(tiny()[file] | (RARE if file != "data/params.yaml" else {}), toy.shipped(file))
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text(to_yaml(content))
        for dataset in dict.fromkeys(one["data"] for one in entries.values()):
            self.well("prepare", dataset)
        for name in entries:
            for stage in ("train", "eval_dump", "metrics"):
                self.well(stage, name)
        with ZipFile(self.folder / "data/prepared/pairs/validation.zip") as archive:
            for name in archive.namelist()[:3]:
                pixels = decode_raw(archive.read(name), Path(name)).pixels
                write_png(self.folder / "photos" / Path(name).name, pixels[:, : pixels.shape[1] // 2])  # the label map

    def well(self, stage: str, name: str) -> None:
        """Run a stage, which must end well."""
        ended = self.stage(stage, name)
        assert ended.code == 0, ended.out + ended.err

    def stage(self, stage: str, name: str, **more: Callable[[], object]) -> Ended:
        """Run a stage of a dataset or recipe; `more` is that of `command`."""
        arguments = [name] if stage == "prepare" else [recipes()[name]["params"], f"runs/{name}"]
        if stage == "metrics":
            arguments += [f"metrics/{name}.json", f"plots/{name}"]
        return self.command(f"stages.{stage}", *arguments, **more)

    def command(
        self,
        module: str,
        *arguments: object,
        prepare: Callable[[], object] = lambda: None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Ended:
        """Run the `main` of a module as `python -m` would.

        Args:
            module: such as `figura.commands.predict`.
            arguments: become texts.
            prepare: called in the child, before the command.
            meanwhile: called here again and again while the child runs.
        """
        main, words = main_of(module), [str(one) for one in arguments]
        pipes = [os.pipe() for _ in range(2)]  # no limit on the size of files holds for them
        end, child = time.monotonic() + SECONDS, os.fork()
        if child == 0:
            _be_the_command(main, words, self.folder, prepare, [write for _, write in pipes])
        said = [bytearray(), bytearray()]
        for read, write in pipes:
            os.close(write)
            os.set_blocking(read, False)
        number, in_time = 0, True
        while not number:
            meanwhile()
            time.sleep(0.002)
            number, status = os.waitpid(child, os.WNOHANG)
            if in_time and time.monotonic() > end:
                in_time = False
                os.kill(child, signal.SIGKILL)
            for (read, _), text in zip(pipes, said, strict=True):
                text += _waiting(read)
        for read, _ in pipes:
            os.close(read)
        code = os.waitstatus_to_exitcode(status) if in_time else None
        return Ended(code, *(text.decode("utf-8", "replace") for text in said))

    def copy(self, folder: Path) -> "SmallProject":
        """Copy everything to a folder that is made anew."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return SmallProject(folder)

    def add_resume_point(self, name: str, scratch: Path) -> None:
        """Add the resume points of a training that was killed before iteration 8."""
        stopped = self.copy(scratch)
        for part in ("model", "history", "live", "checkpoints", "dump"):
            stopped.remove(f"runs/{name}/{part}")
        ended = stopped.stage("train", name, prepare=lambda: _kill_before(8))
        assert ended.code == -signal.SIGKILL, ended.out + ended.err
        (stopped.folder / f"runs/{name}/resume").rename(self.folder / f"runs/{name}/resume")

    def remove(self, name: str) -> None:
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def contents(self, *names: str) -> dict[str, bytes]:
        """Return the bytes of all files at and below paths of the project, by path."""
        paths = [path for name in names for path in (self.folder / name, *(self.folder / name).rglob("*"))]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(paths) if path.is_file()}


def _waiting(pipe: int) -> bytes:
    """Return what waits in a pipe."""
    content = b""
    try:
        while more := os.read(pipe, 1 << 16):
            content += more
    except BlockingIOError:
        pass
    return content


def _be_the_command(
    main: Callable[[list[str]], Any],
    arguments: list[str],
    folder: Path,
    prepare: Callable[[], object],
    outputs: Sequence[int],
) -> NoReturn:
    status = 1
    try:
        for number, descriptor in enumerate(outputs, 1):
            os.dup2(descriptor, number)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w") for number in (1, 2))
        os.chdir(folder)
        sys.modules["__main__"] = types.ModuleType("__main__")  # which processes that this one starts would run again
        sys.path[:] = [os.path.abspath(one) if one else str(ROOT) for one in sys.path]
        limit = address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        provenance.code_version = lambda modules, content: "the code that is tested"  # it may be edited meanwhile
        prepare()
        status = exit_status.run(main, arguments)
    except SystemExit as error:  # of argparse
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001, this process ends here
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _kill_before(iteration: int) -> None:
    """Let the training of this process be killed before an iteration."""
    iterate = Trainer.iterate

    def watched(self: Trainer, *arguments: object, **keywords: object) -> object:
        if self.iteration == iteration:
            os.kill(os.getpid(), signal.SIGKILL)
        return iterate(self, *arguments, **keywords)  # type: ignore[arg-type]

    Trainer.iterate = watched  # type: ignore[assignment,method-assign]


@cache
def main_of(module: str) -> Callable[[list[str]], Any]:
    """Return the `main` of a command, with all that it loads imported here, so that children need not."""
    for folder in ("figura", "models"):
        for one in walk_packages([str(ROOT / folder)], f"{folder}."):
            # figura.models is the package `models` under the name that it has in a wheel
            if not re.search(r"^figura\.commands\.|^figura\.models$|\.__main__$", one.name):
                import_module(one.name)
    for name in ("matplotlib.pyplot", "torchmetrics", "torch.optim.adam", "torch._dynamo"):
        import_module(name)
    main: Callable[[list[str]], Any] = import_module(module).main
    return main


def finished_project(names: Sequence[str], base: Path) -> SmallProject:
    """Return a project whose stages have run, with resume points of stopped trainings too; copy it to change it.

    Args:
        names: of its recipes.
        base: the base folder of temporary files of this process; all workers share the project.
    """

    def make(folder: Path) -> None:
        folder.mkdir()
        project = SmallProject(folder)
        project.make(names)
        for name in names:
            project.add_resume_point(name, folder.with_name(f"{folder.name}-stopped"))

    return SmallProject(made_once(shared_by_workers(base) / "small" / "-".join(names), make).folder)


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
    entry = {"params": recipes()[recipe]["params"], "data": "pairs"}
    (folder / "dvc.yaml").write_text(to_yaml({"vars": [{"recipes": {recipe: entry}}], "stages": each}))
    (folder / "metrics/tolerances.yaml").write_text(f'"*": {rule}\n')
    project = Project(folder)
    project.run("git", "init", "-q", "-b", "main")
    project.run("dvc", "init", "-q")
    project.run("dvc", "commit", "-fq")
    project.run("git", "add", "-A")
    project.run("git", "commit", "-qm", "tiny")
