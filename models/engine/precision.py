"""Which precision computes what: networks as `train.precision` says, losses and everything stored in float32.

Autocast is on while injectors run. It is off while a loss runs, and the loss gets float32 inputs. Parameters,
gradients, running statistics, averages and optimizer states are float32 throughout, and so are the files.

In float16, gradients below 6e-8 vanish. Each step therefore multiplies its losses by its own scale before backward:
`torch.amp.GradScaler` starts at 65536, halves when a gradient overflows and doubles after 2000 updates without
overflow. A recipe cannot set this: all scales are powers of two, which multiply floats without rounding, and a bad
start costs at most 16 updates.

fp8 is torchao's, one of three backends of Accelerate. It covers linear layers whose two sides are multiples of 16,
except the first and the last of a network; the rest computes in bfloat16. The other two do not fit: Transformer Engine
takes one network with one optimizer, and it and MS-AMP replace parameters or optimizers, so weights and resume points
would differ from what the recipe says.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import AORecipeKwargs, KwargsHandler, convert_model_to_fp8_ao, is_torchao_available
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from models.base.errors import UserError

FP8_CAPABILITY = (8, 9)  # NVIDIA GPUs: Ada, Hopper and later


def check_precision(precision: str) -> None:
    """Check that this machine can train in `train.precision`.

    Raises:
        UserError: fp16 without a GPU (Accelerate would silently compute in float32), or fp8 without torchao or without
            a GPU of compute capability 8.9 (it would fail, or silently compute in float16).
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
    """Return the precision of evaluations: that of training, but bf16 instead of fp8, which only speeds training up."""
    return "bf16" if precision == "fp8" else precision


def convert_to_fp8(network: nn.Module) -> None:
    """Let the linear layers that fp8 applies to compute in fp8, in place; parameters stay as they are.

    Accelerate does this in `prepare`, but not in `prepare_model`.
    """
    convert_model_to_fp8_ao(network, config=_fp8_settings().config)


def fp8_layers(network: nn.Module) -> int:
    """Return the number of layers of a network that `convert_to_fp8` converted."""
    return sum(type(module).__name__ == "Float8Linear" for module in network.modules())


def _fp8_settings() -> AORecipeKwargs:
    # Accelerate's default for the second, meant for FSDP, would give parameters a type that safetensors cannot store
    return AORecipeKwargs(pad_inner_dim=True, enable_fsdp_float8_all_gather=False)


def gradient_scaler(accelerator: Accelerator) -> GradScaler | None:
    """Return a scaler for one step in fp16, else None. Accelerate's own is unused: all optimizers would share it."""
    return GradScaler(accelerator.device.type) if accelerator.mixed_precision == "fp16" else None


@contextmanager
def unscaled(scaler: GradScaler | None, optimizer: Optimizer) -> Iterator[None]:
    """Unscale the gradients of an optimizer; after an exception inside, the scaler is ready for the next update."""
    if scaler is None:
        yield
        return
    scaler.unscale_(optimizer)
    try:
        yield
    except BaseException:
        scaler.update()  # after out of memory, say, training rolls back and restores the scale too
        raise


def adapt(scaler: GradScaler, skipped: bool) -> bool:
    """Update the scale after the gradients were unscaled; return whether it was above 1 and fell.

    Gradients that overflow at a scale of 1 overflow without scaling: a further search would hide that for ever.
    """
    before = scaler.get_scale() if skipped else 0.0  # waits for the GPU, so only when needed
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
    """Switch autocast off inside, for the devices of the tensors among `values`."""
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
