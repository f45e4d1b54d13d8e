"""Which module a command in a page runs: `figura predict ...`, `python -m stages.train ...`."""

from collections.abc import Sequence

from figura.command import COMMANDS

COMMAND = r"(figura|python -m (figura|stages)[\w.]*) (?=\w)"  # how a command of ours begins that does something
MODULES = {name: command.module for group in COMMANDS.values() for name, command in group.items()}


def module_called(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the module that the words of a command run, and their arguments."""
    if words[0] == "figura" or words[:3] == ["python", "-m", "figura"]:
        name, *arguments = words[list(words).index("figura") + 1 :]
        return MODULES.get(name, f"models.{name}"), arguments
    assert words[:2] == ["python", "-m"], words
    return words[2], list(words[3:])
