"""Device and precision of networks, without Accelerate's per-process state."""

from contextlib import AbstractContextManager, nullcontext

import torch

from figura.base.errors import UserError

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Device:
    """A device with the precision of evaluations, with `device` and `autocast` like an Accelerator.

    Several may coexist in a process, also with an Accelerator of the caller.

    Args:
        name: `auto` (the accelerator of this machine, else `cpu`), or an argument of `torch.device`: `cpu`, `cuda:1`.
        precision: `no`, `bf16` or `fp16`; a CPU computes `fp16` in float32, as with Accelerate.

    Raises:
        UserError: there is no such device.
    """

    def __init__(self, name: str, precision: str) -> None:
        self.device = _device(name)
        self.precision = "no" if precision == "fp16" and self.device.type == "cpu" else precision

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which networks run."""
        if self.precision == "no":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=TYPES[self.precision])


def _device(name: str) -> torch.device:
    here = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return here or torch.device("cpu")
    name = "cpu" if name == "cpu:0" else name  # the same to PyTorch
    count = torch.accelerator.device_count() if here is not None else 0
    allowed = ["auto", "cpu", *([] if here is None else [here.type, *(f"{here.type}:{n}" for n in range(count))])]
    if name not in allowed:
        raise UserError(f"device: found {name!r}; allowed here: {', '.join(allowed)}")
    return torch.device(name)
