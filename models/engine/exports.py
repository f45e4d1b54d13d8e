"""Packages that export names without importing what defines them.

`prepare` reads and draws data without PyTorch, and must not run again when a loss changes: importing one module of a
package may not pull in the others. Exported names are imported when somebody asks for them (PEP 562).
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def on_demand(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` of a package; `homes` maps its modules to the names they give."""
    module_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return sorted(module_of), get
