"""Run and time injectors outside training (of a mode, a grid or a prediction), in order."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from accelerate import Accelerator

from figura.engine.build import build_injectors
from figura.interfaces import Injector, Networks, State
from figura.recipe.schema import Declaration


def named_injectors(entries: Mapping[str, Declaration], key: str) -> dict[str, Injector]:
    """Construct injectors, by name, in the recipe's order."""
    return dict(zip(entries, build_injectors(dict(entries), key), strict=True))


def run_injectors(
    injectors: Mapping[str, Injector], batch: Mapping[str, Any], networks: Networks, step: int, accelerator: Accelerator
) -> tuple[State, dict[str, float]]:
    """Run injectors on a batch; return the state and the seconds that each took, GPU time included.

    Schedules are evaluated at `step`.
    """
    state, seconds = State(batch), dict[str, float]()
    with accelerator.autocast():
        for name, injector in injectors.items():
            start = time.perf_counter()
            injector(state, networks, step)
            if accelerator.device.type == "cuda":
                torch.cuda.synchronize()
            seconds[name] = time.perf_counter() - start
    return state, seconds
