"""The command `figura`: figura's tools by their names, `figura predict --help`; `dvc repro` runs the pipeline."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGE = __name__.rpartition(".")[0]
TRUSTED = "--trusted-types-only"  # where the current folder may be a stranger's, whose modules must not be found


class Tool(NamedTuple):
    """A subcommand: the module whose `main` takes the arguments, and what it is for."""

    module: str
    purpose: str


TOOLS = {
    "Begin": {
        "init": Tool("figura.init", "write a project of one's own: pipeline, recipe, a loss, a test"),
        "show": Tool("tools.show", "draw a dataset's examples as training gets them"),
        "check": Tool("figura.check", "say what is wrong with recipes, before anything runs"),
        "describe": Tool("tools.describe.__main__", "print and draw what an iteration of a recipe does"),
        "overfit": Tool("tools.overfit_pose", "learn a few images by heart, to test a pose recipe"),
    },
    "Watch and judge": {
        "explore": Tool("tools.explore.__main__", "a page on this machine: data, runs, trying models"),
        "watch": Tool("tools.watch", "evaluate each checkpoint once, as it appears"),
        "logs": Tool("tools.plot_logs", "plot the histories of several runs together"),
        "compare": Tool("tools.compare.__main__", "say which differences between two revisions are real"),
        "report": Tool("tools.report.__main__", "one HTML file of results, for people who have no figura"),
        "sweep": Tool("tools.sweep_report", "rank and plot the experiments of a sweep"),
    },
    "Use": {
        "predict": Tool("tools.predict", "run a trained model over photos and videos"),
        "export": Tool("tools.export.__main__", "write networks as ONNX files, checked against PyTorch"),
        "import": Tool("tools.import_weights.__main__", "read weights of other trainers"),
        "submit": Tool("tools.submit_pose", "write COCO's result file of a test set"),
    },
}
HELP = """usage: figura COMMAND [ARGUMENT ...]

Image models trained with many losses, as one reproducible DVC pipeline.
`dvc repro` prepares data, trains, evaluates and computes metrics; around it:
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return the exit status: 2 for a command that does not exist."""
    name, *rest = (sys.argv[1:] if arguments is None else list(arguments)) or ["--help"]
    if name in ("-h", "--help", "help"):
        return _show(overview())
    if name == "--version":
        return _show(_version())
    tools = {name: tool for group in TOOLS.values() for name, tool in group.items()}
    if name not in tools:
        print(f"figura: there is no command {name!r}; `figura --help` lists them", file=sys.stderr)
        return 2
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        print("error: the current folder was deleted; go to one that exists", file=sys.stderr)
        return 1
    trusted = any(len(one) > 2 and TRUSTED.startswith(one) for one in rest)  # argparse takes beginnings of options
    if trusted and folder != str(Path(__file__).resolve().parents[1]):  # `python -m figura` has put it there
        sys.path[:] = [one for one in sys.path if os.path.abspath(one) != folder]
    elif not trusted and folder not in map(os.path.abspath, sys.path):
        sys.path.insert(0, folder)  # as `python -m` has it: the project's own `models`
    sys.argv[0] = f"figura {name}"
    return run(tools[name].module, rest)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"figura {version(PACKAGE)}"
    except PackageNotFoundError:
        return f"figura is not installed; this is the code in {Path(__file__).parent}"


def _show(text: str) -> int:
    """Print a text, of which `| head` may read only the beginning; return the exit status."""
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would flush it again
        if not isinstance(error, BrokenPipeError):
            print(f"error: standard output: {error.strerror}", file=sys.stderr)
            return 1
    return 0


def run(module: str, arguments: list[str]) -> int:
    """Run the `main` of a module with arguments; return the exit status."""
    command = importlib.import_module(placed("stages.command"))
    status = command.run(importlib.import_module(placed(module)).main, arguments)
    assert isinstance(status, int)
    return status


def placed(module: str) -> str:
    """Return the name of a module of `stages` or `tools`: below `figura` where figura is installed."""
    installed = importlib.util.find_spec(f"{PACKAGE}.tools") is not None
    return f"{PACKAGE}.{module}" if installed and not module.startswith(f"{PACKAGE}.") else module


def overview() -> str:
    """Return the list of commands, by purpose."""
    lines = [HELP]
    for group, tools in TOOLS.items():
        lines += [f"{group}:", *(f"  {name:<10}{tool.purpose}" for name, tool in tools.items()), ""]
    return "\n".join([*lines, "figura COMMAND --help says more; --version."])
