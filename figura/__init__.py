"""Image models trained with many losses, as one reproducible DVC pipeline: `figura --help`, `figura.load`.

`models`, `stages`, `data` and `tools` stand beside this package in figura's repository, and inside it where figura is
installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from figura.predictor import Predictor, load
    from figura.results import Result, Results
    from models.base.errors import UserError

__all__ = ["Predictor", "Result", "Results", "UserError", "load"]


def __getattr__(name: str) -> Any:
    """Import what `__all__` names when somebody asks for it: the command `figura --help` needs nothing of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from figura import predictor

    return getattr(predictor, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
