"""Check plain values against a schema."""

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from figura.base.error_collector import ErrorCollector, shown

Model = TypeVar("Model", bound=BaseModel)
LARGEST = 2**63 - 1  # of numbers in tensors and in files


def check_numbers(content: Any, errors: ErrorCollector, key: str = "") -> None:
    """Add an error for each number in plain values, at or below a dotted key, that is not finite or needs over 64 bits.

    No setting needs them: disabled settings are null.
    """
    if isinstance(content, Mapping):
        for name, part in content.items():
            check_numbers(part, errors, f"{key}.{name}" if key else str(name))
    elif isinstance(content, list | tuple):
        for index, part in enumerate(content):
            check_numbers(part, errors, f"{key}.{index}")
    elif isinstance(content, float) and not math.isfinite(content):
        errors.add(key, f"found {content}; expected a finite number")
    elif isinstance(content, int) and abs(content) > LARGEST:
        errors.add(key, f"found {shown(content)}; expected a number from -2^63 to 2^63")


def validated(model: type[Model], content: dict[str, Any], errors: ErrorCollector, prefix: str = "") -> Model | None:
    """Check plain values against a schema, strictly: no conversion of strings to numbers or numbers to booleans.

    Errors go to `errors`; the result is then None. If `check_numbers` rejects numbers, only these are reported.
    """
    before = errors.count
    check_numbers(content, errors, prefix)
    if errors.count > before:
        return None
    try:
        return model.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        errors.add_invalid(error, model, prefix)
        return None
