"""Image models trained with many losses, as one reproducible pipeline: `figura --help`, `figura.load`.

What it trains are the systems in the package `models`, its own and those of a project: `figura.systems` finds them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from figura.base.errors import UserError
    from figura.prediction.predictor import Predictor, load
    from figura.prediction.result import Result
    from figura.prediction.results import Results

__all__ = ["Predictor", "Result", "Results", "UserError", "load"]


def __getattr__(name: str) -> Any:
    """Import the names in `__all__` lazily: `figura --help` needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from figura.prediction import predictor

    return getattr(predictor, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
