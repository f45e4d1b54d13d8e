"""Backbones from the package `timm` (figura's extra `timm`)."""

from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from figura.base.errors import UserError, install

from ..images.weight_files import UNCOUNTED, WeightFile

MOST = 16  # pixels from cell to cell


class TimmBackbone(nn.Module):
    """The deepest feature map of a `timm` model whose stride s is at most 16.

    Maps images (N, 3, H, W) to (N, channels, ceil(H / s), ceil(W / s)). Pads images with zeros at the right and the
    bottom to a multiple of the stride: patch-based networks then also have a cell for the last pixels; the size of
    convolutional maps does not change.

    Args:
        model: timm's name of the model, such as `convnext_tiny.fb_in1k`.
        pretrained: weights for `load_pretrained`: a safetensors file with timm's names of the tensors, or true to let
            timm download its own. Tensors of layers that the network lacks, such as the classifier, are ignored.
        options: further arguments of `timm.create_model`.

    Raises:
        UserError: timm is not installed.
        ValueError: names or options unknown to timm, or a model without such a map.
    """

    passes_arguments_to: ClassVar[str] = "timm"

    def __init__(self, *, model: str, pretrained: bool | str = False, options: dict[str, Any] | None = None) -> None:
        super().__init__()
        strides = _create(model, options, pretrained=False).feature_info.reduction()
        fitting = [index for index, stride in enumerate(strides) if stride <= MOST]
        if not fitting:
            raise ValueError(f"{model} has maps of stride {', '.join(map(str, strides))}; at most {MOST} is needed")
        self.name, self.options, self.place, self.pretrained = model, options, fitting[-1], pretrained
        self.model = _create(model, options, pretrained=False, out_indices=(self.place,))
        self.pad_to = strides[fitting[-1]]
        self.channels = self.model.feature_info.channels()[-1]
        self.last_axis = str(getattr(self.model, "output_fmt", "NCHW")).upper().endswith("NHWC")

    def load_pretrained(self) -> None:
        """Load the weights selected by `pretrained`, if any.

        Raises:
            UserError: they cannot be downloaded, the file is missing, or a tensor is missing or has a wrong shape.
        """
        if isinstance(self.pretrained, str):
            shapes = {n: tuple(t.shape) for n, t in self.model.state_dict().items() if not n.endswith(UNCOUNTED)}
            remedy = f"give `pretrained` a file with the weights of timm's {self.name}, or leave it out"
            weights = WeightFile("timm weights", remedy).read(Path(self.pretrained), shapes)
            self.model.load_state_dict(weights, strict=False)
        elif self.pretrained:
            try:
                published = _create(self.name, self.options, pretrained=True, out_indices=(self.place,))
            except UserError:
                raise
            except Exception as error:  # an interrupted download raises an error of the hub's HTTP client
                raise UserError(f"{error}; leave `pretrained` out to train from scratch") from error
            self.model.load_state_dict(published.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        x = self.model(F.pad(x, (0, -width % self.pad_to, 0, -height % self.pad_to)))[-1]
        return x.permute(0, 3, 1, 2) if self.last_axis else x


def _create(model: str, options: dict[str, Any] | None, **chosen: Any) -> Any:
    try:
        timm = import_module("timm")
    except ModuleNotFoundError as error:
        raise UserError(f"backbone {model!r} of timm: the package timm is not installed; {install('timm')}") from error
    try:
        return timm.create_model(model, features_only=True, **chosen, **(options or {}))
    except (RuntimeError, TypeError, AttributeError, AssertionError) as error:
        raise ValueError(f"backbone {model!r}: timm refuses ({error})") from error
