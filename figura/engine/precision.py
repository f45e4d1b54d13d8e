"""Precision: networks compute in `train.precision`; losses and everything stored are float32.

Autocast is on while injectors run. It is off in losses, which get float32 inputs. Parameters, gradients, running
statistics, averages and optimizer states are float32 throughout, and so are the files.

In float16, gradients below 6e-8 vanish. Each step therefore has its own loss scale: `torch.amp.GradScaler` starts at
65536, halves when a gradient overflows and doubles after 2000 updates without overflow. This is not configurable: all
scales are powers of two, which multiply floats without rounding, and a bad initial scale costs at most 16 updates. fp8
uses torchao, one of three Accelerate backends. It covers linear layers whose dimensions are both multiples of 16,
except the first and last of a network; the rest computes in bfloat16. The other two do not fit: Transformer Engine
supports one network with one optimizer, and both it and MS-AMP replace parameters or optimizers, so weights and resume
points would not match the recipe.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import AORecipeKwargs, KwargsHandler, convert_model_to_fp8_ao, is_torchao_available
from torch import Tensor, nn
from torch.amp import GradScaler

from figura.base.errors import UserError

FP8_CAPABILITY = (8, 9)  # NVIDIA GPUs: Ada, Hopper and later


def check_precision(precision: str) -> None:
    """Check that this machine can train in `train.precision`.

    Raises:
        UserError: fp16 without a GPU (Accelerate would silently use float32), or fp8 without torchao or without a GPU
            of compute capability 8.9 (it would fail or silently use float16).
    """
    device = torch.accelerator.current_accelerator(check_available=True)
    if precision == "fp16" and device is None:
        raise UserError("train.precision: found 'fp16', which needs a GPU, and there is none; allowed here: no, bf16")
    if precision != "fp8":
        return
    capability = torch.cuda.get_device_capability() if device and device.type == "cuda" else None
    lacking = [] if is_torchao_available() else ["torchao 0.6.1 or later (pip install torchao)"]
    if capability is None or capability < FP8_CAPABILITY:
        here = f"{device or 'none'}" if capability is None else "one of {}.{}".format(*capability)
        lacking.append(f"an NVIDIA GPU of compute capability 8.9 or higher (here: {here})")
    if lacking:
        allowed = "no, bf16" if device is None else "no, fp16, bf16"
        needs = " and ".join(lacking)
        raise UserError(f"train.precision: found 'fp8', which still needs {needs}; allowed here: {allowed}")


def precision_handlers(precision: str) -> list[KwargsHandler]:
    """Return the `kwargs_handlers` that an Accelerator needs for a precision."""
    return [_fp8_settings()] if precision == "fp8" else []


def evaluation_precision(precision: str) -> str:
    """Return the precision of evaluations: that of training, with bf16 for fp8, which only speeds up training."""
    return "bf16" if precision == "fp8" else precision


def convert_to_fp8(network: nn.Module) -> None:
    """Convert eligible linear layers to compute in fp8, in place; parameters are unchanged.

    Accelerate does this in `prepare`, but not in `prepare_model`.
    """
    convert_model_to_fp8_ao(network, config=_fp8_settings().config)


def fp8_layers(network: nn.Module) -> int:
    """Return the number of layers of a network that `convert_to_fp8` converted."""
    return sum(type(module).__name__ == "Float8Linear" for module in network.modules())


def _fp8_settings() -> AORecipeKwargs:
    # the default of the second, meant for FSDP, gives parameters a type that safetensors cannot store
    return AORecipeKwargs(pad_inner_dim=True, enable_fsdp_float8_all_gather=False)


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
