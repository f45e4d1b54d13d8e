"""Precision: networks compute in `train.precision`; losses and everything stored are float32.

Autocast is on while injectors run. It is off in losses, which get float32 inputs. Parameters, gradients, running
statistics, averages and optimizer states are float32 throughout, and so are the files.

In float16, gradients below 6e-8 vanish. Each step therefore has its own loss scale: `torch.amp.GradScaler` starts at
65536, halves when a gradient overflows and doubles after 2000 updates without overflow. This is not configurable: all
scales are powers of two, which multiply floats without rounding, and a bad initial scale costs at most 16 updates.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.amp import GradScaler

from figura.base.errors import UserError


def check_precision(precision: str) -> None:
    """Raise UserError for fp16 without a GPU: Accelerate would silently use float32."""
    if precision == "fp16" and not torch.accelerator.is_available():
        raise UserError("train.precision: found 'fp16', which needs a GPU, and there is none; allowed here: no, bf16")


def gradient_scaler(accelerator: Accelerator) -> GradScaler | None:
    """Return a scaler for one step in fp16, else None. Accelerate's scaler is unused: all optimizers would share it."""
    return GradScaler(accelerator.device.type) if accelerator.mixed_precision == "fp16" else None


def adapt(scaler: GradScaler, skipped: bool) -> bool:
    """Update the scale after unscaling; return whether it was above 1 and decreased.

    Gradients that overflow at a scale of 1 would overflow without scaling; lowering it further would hide that forever.
    """
    before = scaler.get_scale() if skipped else 0.0  # synchronises with the GPU, so only if needed
    scaler.update()
    return before > 1 and scaler.get_scale() < before


def in_float32(value: Any) -> Any:
    """Return `value` with float16 and bfloat16 tensors as float32, also inside dictionaries, lists and tuples."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() and value.dtype.itemsize < 4 else value
    if isinstance(value, Mapping):
        return {key: in_float32(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(in_float32, value))
    return type(value)(map(in_float32, value)) if type(value) in (list, tuple) else value


@contextmanager
def without_autocast(values: Any) -> Iterator[None]:
    """Disable autocast for the devices of the tensors in `values`."""
    kinds = {kind for kind in _devices(values) if kind != "meta" and torch.is_autocast_enabled(kind)}
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _devices(values: Any) -> set[str]:
    if isinstance(values, Tensor):
        return {values.device.type}
    parts = values.values() if isinstance(values, Mapping) else values if isinstance(values, list | tuple) else ()
    return set[str]().union(*map(_devices, parts))
