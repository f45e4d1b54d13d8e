"""The command `figura`: `figura predict --help`; `dvc repro` runs the pipeline."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

TRUSTED = "--trusted-types-only"  # the current folder may be untrusted: its modules must not be importable


class Command(NamedTuple):
    """A subcommand: the module whose `main` takes the arguments, and its purpose."""

    module: str
    purpose: str


COMMANDS = {
    "Begin": {
        "init": Command("figura.commands.init", "copy a recipe, its code and the pipeline into your project"),
        "translate": Command("figura.commands.translate.command", "turn another trainer's configuration into a recipe"),
        "show": Command("figura.commands.show", "draw a dataset's examples as training gets them"),
        "check": Command("figura.commands.check", "list the faults of recipes, before anything runs"),
        "schema": Command("figura.commands.schema", "let editors complete and check recipes while you type"),
        "describe": Command("figura.commands.describe.command", "print and draw what an iteration of a recipe does"),
    },
    "Watch and judge": {
        "why": Command("figura.commands.why", "list the changes that make a stage run again, before it runs"),
        "accept": Command("figura.commands.accept.command", "keep results whose code changed, if it has no effect"),
        "explore": Command("figura.commands.explore.command", "a page on this machine: data, runs, trying models"),
        "watch": Command("figura.commands.watch", "evaluate each checkpoint once, as it appears"),
        "replay": Command("figura.commands.replay", "rebuild an iteration: each loss's gradient, what is not finite"),
        "logs": Command("figura.commands.plot_logs", "plot the histories of several runs together"),
        "compare": Command("figura.commands.compare.command", "tell real differences between two revisions from noise"),
        "report": Command(
            "figura.commands.report.command", "one page of results, or of what differs between revisions"
        ),
        "race": Command("figura.commands.race", "train a grid, stop its losers early, keep the winner"),
        "states": Command("figura.commands.states", "list the states that trainings share; plan a queue"),
        "gate": Command("figura.commands.ci.check_reproduction", "fail if results differ from those of a commit"),
    },
    "Use": {
        "predict": Command("figura.commands.predict", "run a trained model over photos and videos"),
        "export": Command("figura.commands.export.command", "write networks as ONNX files, checked against PyTorch"),
        "import": Command("figura.commands.import_weights.command", "read weights of other trainers"),
    },
}
BY_DVC = {
    "train fit": "dvc repro train@NAME",
    "eval evaluate test val validate metrics score": "dvc repro metrics@NAME",
    "prepare data": "dvc repro prepare@NAME",
    "run repro": "dvc repro",
    "exp experiment": "dvc exp run",
}
"""What DVC does: words that other trainers have for it, and the command. NAME is an entry of `dvc.yaml`."""
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
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        print("error: the current folder was deleted; go to one that exists", file=sys.stderr)
        return 1
    trusted = any(len(one) > 2 and TRUSTED.startswith(one) for one in rest)  # argparse accepts abbreviated options
    if trusted and folder != str(Path(__file__).resolve().parents[1]):  # added by `python -m figura`
        sys.path[:] = [one for one in sys.path if os.path.abspath(one) != folder]
    elif not trusted and folder not in map(os.path.abspath, sys.path):
        sys.path.insert(0, folder)  # as with `python -m`: the project's `models`
    modules = {name: command.module for group in COMMANDS.values() for name, command in group.items()}
    module = _command_of_system(name) if "." in name else modules.get(name)
    if module is None:
        print(f"figura: there is no command {name!r}{_instead(name, modules)}", file=sys.stderr)
        return 2
    sys.argv[0] = f"figura {name}"
    return run(module, rest)


def _instead(name: str, modules: Iterable[str]) -> str:
    """Return what to run instead of a command that does not exist."""
    from figura.base.errors import nearest

    for words, command in BY_DVC.items():
        if name in words.split():
            named = "; NAME is one of dvc.yaml" if "NAME" in command else ""
            return f"; DVC does that: `{command}`{named}"
    return f"{nearest(name, modules)}; `figura --help` lists them"


def _command_of_system(name: str) -> str | None:
    """Return the module of a system's command, such as `models.pose.submit` for `pose.submit`, or None."""
    from figura.systems import full_name

    module = full_name(name)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    is_command = spec is not None and spec.origin is not None and "\ndef main(" in Path(spec.origin).read_text("utf-8")
    return module if is_command else None


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    from figura.base.errors import DISTRIBUTION

    try:
        return f"figura {version(DISTRIBUTION)}"
    except PackageNotFoundError:
        return f"figura is not installed; this is the code in {Path(__file__).parent}"


def _show(text: str) -> int:
    """Print a text, which `| head` may truncate; return the exit status."""
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would flush again
        if not isinstance(error, BrokenPipeError):
            print(f"error: standard output: {error.strerror}", file=sys.stderr)
            return 1
    return 0


def run(module: str, arguments: list[str]) -> int:
    """Run the `main` of a module with arguments; return the exit status."""
    from figura.base import exit_status

    return exit_status.run(importlib.import_module(module).main, arguments)


def overview() -> str:
    """Return the list of commands, by purpose."""
    lines = [HELP]
    for group, commands in COMMANDS.items():
        lines += [f"{group}:", *(f"  {name:<10}{command.purpose}" for name, command in commands.items()), ""]
    more = "figura SYSTEM.COMMAND runs a system's own command, models/SYSTEM/COMMAND.py."
    return "\n".join([*lines, more, "figura COMMAND --help says more; --version.", *_missing()])


def _missing() -> list[str]:
    """Return, as a line of the help, what the pipeline needs and is not installed."""
    from figura.base.errors import DISTRIBUTION, EXTRA

    missing = ", ".join(name for name in EXTRA if importlib.util.find_spec(name) is None)
    return [f"Not installed: {missing}. `pip install '{DISTRIBUTION}[train]'` brings them."] if missing else []
