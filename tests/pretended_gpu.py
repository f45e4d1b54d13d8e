"""A GPU that is not there: its tensors say that they are on `cuda:0`, and a CPU computes their values.

As on a GPU, an operation on tensors of both devices fails (but for numbers), and code may wait for the device: wherever
it needs a value on the CPU, or copies from memory that is not pinned. `PretendedGPU.waits` has these places.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

GPU, ALIAS = torch.device("cuda:0"), torch.device("meta")
ROOT = Path(__file__).parents[1]
OWN = tuple(f"{ROOT / folder}/" for folder in ("figura", "models"))
aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
BOTH_DEVICES = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)  # indices may be on the CPU
UNKNOWN_SIZE = {  # the size of the result depends on values
    aten.nonzero.default, aten.masked_select.default, aten._unique2.default, aten.unique_dim.default,
    aten.unique_consecutive.default, aten.repeat_interleave.Tensor, aten.bincount.default,
}  # fmt: skip
VALUES = {aten._local_scalar_dense.default, aten.equal.default} | UNKNOWN_SIZE
LOWER = {  # the functions that autocast runs in bfloat16 or float16; on the meta device it does nothing
    F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose2d, torch.conv2d, torch.conv_transpose2d, torch.matmul,
    torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.einsum, Tensor.matmul, Tensor.__matmul__,
}  # fmt: skip


class OnGPU(Tensor):
    """A tensor that says that it is on the GPU; `values` is on the CPU."""

    values: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values: Tensor) -> Self:
        shape = torch.empty_strided(values.size(), values.stride(), dtype=values.dtype, device="meta")
        own: Self = Tensor._make_subclass(cls, shape, False, device_for_backend_keys=GPU)  # type: ignore[attr-defined]
        own.values = values
        return own

    device = GPU
    is_cuda, is_cpu, is_meta = True, False, False

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func}: outside of the pretended GPU")

    def tolist(self) -> Any:
        """As a tensor's own, which refuses subclasses."""
        return self.cpu().tolist()

    def __repr__(self) -> str:
        return f"OnGPU{tuple(self.shape)}"


class PretendedGPU(TorchDispatchMode):
    """Runs operations; `waits` counts those that wait for the GPU, by our functions that run, the innermost first."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[tuple[str, ...]] = Counter()
        self.meta_asked = False  # for the meta device itself

    def wait(self, *_: object) -> None:
        """Note that the code that runs waits for the GPU."""
        frame, names = sys._getframe(1), list[str]()
        while frame is not None:
            if frame.f_code.co_filename.startswith(OWN):
                names.append(frame.f_code.co_qualname.partition(".<locals>")[0])
            frame = frame.f_back
        self.waits[tuple(dict.fromkeys(names))] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run an operation on values, as the GPU would."""
        options = dict(kwargs or {})
        tensors = [one for one in tree_leaves((args, options)) if isinstance(one, Tensor)]
        on_gpu = [isinstance(one, OnGPU) for one in tensors]
        asked = options.get("device")
        gives = any(on_gpu)
        if asked is not None:
            really_meta = self.meta_asked or any(one.is_meta for one in tensors)
            gives = asked.type == "cuda" or (asked == ALIAS and not really_meta)
        self._judge(func, args, options, tensors, on_gpu, gives)
        if gives and asked is not None:
            options["device"] = torch.device("cpu")
        result = func(*_values(args), **_values(options))
        if func._schema.is_mutable and func._schema.name.endswith("_"):
            return args[0] if func._schema.returns else None
        return _wrapped(result) if gives else result

    def _judge(
        self, func: Any, args: Sequence[Any], options: Mapping[str, Any], tensors: list[Tensor], on_gpu: list[bool],
        gives: bool,
    ) -> None:  # fmt: skip
        """Note waits, and refuse operations on both devices."""
        if func in COPIES:
            source, target = (on_gpu[1], on_gpu[0]) if func is aten.copy_.default else (on_gpu[0], gives)
            pinned = options.get("non_blocking") or (len(args) > 2 and args[2])
            if source != target and not (pinned and target):
                self.wait()
            return
        if not any(on_gpu):
            return
        other = [one for one, own in zip(tensors, on_gpu, strict=True) if not own]
        numbers = all(one.ndim == 0 and not one.is_meta for one in other) and not (
            func._schema.is_mutable and not on_gpu[0]
        )
        if not numbers and func not in BOTH_DEVICES:
            raise RuntimeError(f"{func}: expected all tensors to be on the same device, found cuda:0 and cpu")
        if func in VALUES:
            self.wait()
        if func in BOTH_DEVICES and _waits_for_indices(func, args):
            self.wait()


class _Functions(TorchFunctionMode):
    """Calls PyTorch's functions with the meta device for the GPU, as they would look for a driver; and autocast."""

    def __init__(self, gpu: PretendedGPU) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func in (torch.device, torch.get_device_module, torch._C._nn._parse_to):
            return func(*args, **options)
        if func is Tensor.new_tensor and isinstance(args[0], OnGPU):
            func, args, options = torch.tensor, args[1:], {"dtype": args[0].dtype, "device": GPU} | options
        if func in (torch.tensor, torch.as_tensor) and _is(options.get("device"), "cuda"):
            return func(*args, **options | {"device": "cpu"}).to(ALIAS)  # without a mode, PyTorch itself would copy it
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], OnGPU):
            args = [args[0], _without_lists(args[1]), *args[2:]]
        if torch.is_autocast_enabled("cuda") and func in LOWER:
            return func(*_lowered(args), **_lowered(options))
        ours = sys._getframe(1).f_code.co_filename.startswith(OWN)  # PyTorch's code has it from our tensors
        self.gpu.meta_asked = ours and any(_is(one, "meta") for one in (*args, *options.values()))
        try:
            return func(*map(_aliased, args), **{name: _aliased(one) for name, one in options.items()})
        finally:
            self.gpu.meta_asked = False


def _is(value: Any, kind: str) -> bool:
    """Whether an argument is a device of this kind, or its name."""
    return value.type == kind if isinstance(value, torch.device) else isinstance(value, str) and value[:4] == kind


def _without_lists(index: Any) -> Any:
    """Return an index in which lists are tensors on the CPU: PyTorch itself would make them on the meta device."""
    if isinstance(index, tuple):
        return tuple(map(_without_lists, index))
    return torch.tensor(index) if isinstance(index, list) else index


def _lowered(tree: Any) -> Any:
    lower = torch.get_autocast_dtype("cuda")
    return tree_map_only(Tensor, lambda one: one.to(lower) if one.dtype == torch.float32 else one, tree)


def _aliased(value: Any) -> Any:
    if isinstance(value, str) and value in ("cuda", "cuda:0"):
        return ALIAS
    return ALIAS if isinstance(value, torch.device) and value.type == "cuda" else value


def _waits_for_indices(func: Any, args: Sequence[Any]) -> bool:
    """Whether indices are copied to the GPU, or are masks; a mask that gets a number is filled without waiting."""
    indices = [one for one in args[1] if one is not None]
    filled = func is not aten.index.Tensor and args[2].numel() == 1
    masks = any(one.dtype in (torch.bool, torch.uint8) for one in indices)
    return not all(isinstance(one, OnGPU) for one in indices) or (masks and not filled)


def _values(tree: Any) -> Any:
    return tree_map_only(OnGPU, lambda one: one.values, tree)


def _wrapped(tree: Any) -> Any:
    return tree_map_only(Tensor, OnGPU, tree)


@contextmanager
def pretended_gpu() -> Iterator[PretendedGPU]:
    """Inside, PyTorch finds a GPU; it computes without cuDNN, whose operations have no values on a CPU."""
    mode = PretendedGPU()
    patches: dict[str, Any] = {
        "torch.cuda._lazy_init": lambda: None,
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.device_count": lambda: 1,
        "torch.cuda.current_device": lambda: 0,
        "torch.cuda.get_device_name": lambda device=None: "a pretended GPU",
        "torch.cuda.set_device": lambda device: None,
        "torch.cuda.is_bf16_supported": lambda including_emulation=True: True,
        "torch.cuda.synchronize": mode.wait,
        "torch.cuda.manual_seed_all": lambda seed: None,
        "torch.accelerator.is_available": lambda: True,
        "torch.accelerator.current_accelerator": lambda check_available=False: torch.device("cuda"),
        "torch.Tensor.pin_memory": lambda self, device=None: self,
    }
    checks = [name for name in dir(torch.optim.Optimizer) if name.endswith("_graph_capture_health_check")]  # by version
    patches |= {f"torch.optim.Optimizer.{name}": lambda self: None for name in checks}
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    with ExitStack() as stack:
        for name, value in patches.items():
            stack.enter_context(patch(name, value))
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            stack.enter_context(mode)
            stack.enter_context(_Functions(mode))
            yield mode
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
            torch._C._set_only_lift_cpu_tensors(False)
