"""Image models trained with many losses, as one reproducible DVC pipeline: `figura --help`, `figura.load`.

`models`, `stages`, `data` and `tools` stand beside this package in figura's repository, and inside it where figura is
installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from figura.predictor import Predictor, load

__all__ = ["Predictor", "load"]


def __getattr__(name: str) -> Any:
    """Import `load` and `Predictor` when somebody asks for them: the command `figura --help` needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from figura import predictor

    return getattr(predictor, name)
