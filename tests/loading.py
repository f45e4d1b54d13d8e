"""What of our code a piece of code loads."""

import importlib
import json
import os
import sys
import traceback

from figura.pipeline.closure import module_of_type

CODE = ("figura", "models", "stages")


def modules_loaded_by(code: str) -> dict[str, str | None]:
    """Run code in a child process that has loaded installed packages and none of our modules.

    Returns:
        the modules of ours that are loaded then, by name, and their files; None for a folder without `__init__.py`.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for name in [name for name in sys.modules if name.partition(".")[0] in CODE]:
                del sys.modules[name]
            exec(code, {})  # noqa: S102  # the test wrote it
            ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in CODE}
            with os.fdopen(write, "w") as file:
                json.dump({name: getattr(module, "__file__", None) for name, module in ours.items()}, file)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as file:
        answer = file.read()
    assert os.waitpid(child, 0)[1] == 0, f"this failed; why stands in what was captured:\n{code}"
    loaded: dict[str, str | None] = json.loads(answer)
    return loaded


def find_class(name: str) -> type | None:
    """Return the class that a `type` of a recipe names, or one of figura's interfaces; None if there is none."""
    try:
        module = importlib.import_module(module_of_type(name) or "figura.interfaces")
    except ModuleNotFoundError:
        return None
    kind = getattr(module, name.rpartition(".")[2], None)
    return kind if isinstance(kind, type) else None
