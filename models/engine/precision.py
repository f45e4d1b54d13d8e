"""What computes in which precision: networks as `train.precision` says, losses and all that is kept in float32.

Autocast is on while injectors run and off while a loss does, whose inputs are float32. Parameters, gradients, running
statistics, averages and optimizers are float32 throughout, and so is what is written.

float16 has gradients below 6e-8 vanish, so each step multiplies its losses by a scale of its own before going backward:
`torch.amp.GradScaler`, which starts at 65536, halves where a gradient overflows and doubles after 2000 updates without.
Its settings are no keys of a recipe: all are powers of two, by which floats are multiplied without rounding, and where the
search begins costs at most 16 updates.

fp8 is torchao's, one of three that Accelerate knows: of linear layers alone, both sides multiples of 16, neither the first
nor the last of their network; all else computes in bfloat16. Transformer Engine's takes one network with one optimizer, and
it and MS-AMP replace parameters or optimizers, so that neither weights nor resume points would be what a recipe says.
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
from models.recipe.schema import Precision

FP8_CAPABILITY = (8, 9)  # of NVIDIA GPUs: Ada, Hopper and later


def check_precision(precision: Precision) -> None:
    """Hold `train.precision` against this machine.

    Raises:
        UserError: fp16 without a GPU (Accelerate would silently compute in float32), or fp8 without torchao and a GPU of
            compute capability 8.9 (it would fail, or silently compute in float16).
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


def precision_handlers(precision: Precision) -> list[KwargsHandler]:
    """Return what an Accelerator is told beside the precision; see `convert_to_fp8`."""
    return [_fp8_settings()] if precision == "fp8" else []


def evaluation_precision(precision: Precision) -> Precision:
    """Return in what trained networks are evaluated: that of training, but bf16 for fp8, which is there for its speed."""
    return "bf16" if precision == "fp8" else precision


def convert_to_fp8(network: nn.Module) -> None:
    """Make the linear layers that fp8 applies to compute in it, in place; parameters stay what they were.

    Accelerate does so in `prepare`, not in `prepare_model`.
    """
    convert_model_to_fp8_ao(network, config=_fp8_settings().config)


def fp8_layers(network: nn.Module) -> int:
    """Return the number of layers of a network that `convert_to_fp8` converted."""
    return sum(type(module).__name__ == "Float8Linear" for module in network.modules())


def _fp8_settings() -> AORecipeKwargs:
    # Accelerate's default for the second, for FSDP, would make the parameters something that no file of weights can hold
    return AORecipeKwargs(pad_inner_dim=True, enable_fsdp_float8_all_gather=False)


def gradient_scaler(accelerator: Accelerator) -> GradScaler | None:
    """Return a scaler for one step in fp16; Accelerate's own is shared by all optimizers, and not used."""
    return GradScaler(accelerator.device.type) if accelerator.mixed_precision == "fp16" else None


@contextmanager
def unscaled(scaler: GradScaler | None, optimizer: Optimizer) -> Iterator[None]:
    """Unscale the gradients of an optimizer; what fails inside leaves a scaler that does so again for the next update."""
    if scaler is None:
        yield
        return
    scaler.unscale_(optimizer)
    try:
        yield
    except BaseException:
        scaler.update()  # memory ran out, say, and training goes back, also to the scale that it had
        raise


def adapt(scaler: GradScaler, skipped: bool) -> bool:
    """Let the scale follow the gradients, which are unscaled by now; return whether it fell and had been above 1.

    Gradients that overflow at a scale of 1 overflow by themselves: to search on would hide that for ever.
    """
    before = scaler.get_scale() if skipped else 0.0  # a GPU is asked for it in this case alone
    scaler.update()
    return before > 1 and scaler.get_scale() < before


def in_float32(value: Any) -> Any:
    """Return `value` with tensors of lower floating precision as float32, also inside dictionaries, lists and tuples."""
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
