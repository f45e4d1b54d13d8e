"""Backbones of the package `timm`, which the extra `timm` brings."""

from importlib import import_module
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from models.engine.errors import UserError


class TimmBackbone(nn.Module):
    """A `timm` model's deepest map of at most a stride: images (N, 3, H, W) -> (N, channels, ceil(H / s), ceil(W / s)).

    Images are padded with zeros at the right and the bottom to a multiple of the stride, so that networks that cut an
    image into patches have a cell for the last pixels too, and those that convolve have the cells they had anyway.

    Args:
        model: its name, such as `convnext_tiny.fb_in1k`.
        max_stride: the deepest map of at most this stride is taken.
        pretrained: whether timm fetches weights for it.
        options: further arguments of `timm.create_model`.

    Raises:
        UserError: where timm is not installed.
        ValueError: for names and options that timm does not know, and models without such a map.
    """

    def __init__(
        self, *, model: str, max_stride: int = 16, pretrained: bool = False, options: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        try:
            timm = import_module("timm")
        except ModuleNotFoundError as error:
            raise UserError(
                f"backbone {model!r} of timm: the package timm is not installed; install figura's extra: "
                "pip install 'figura[timm]'"
            ) from error

        def create(pretrained: bool, **chosen: Any) -> Any:
            try:
                return timm.create_model(model, pretrained=pretrained, features_only=True, **chosen, **(options or {}))
            except (RuntimeError, TypeError, AttributeError, AssertionError) as error:
                raise ValueError(f"backbone {model!r}: timm refuses ({error})") from error

        strides = create(False).feature_info.reduction()
        fitting = [place for place, stride in enumerate(strides) if stride <= max_stride]
        if not fitting:
            raise ValueError(f"max_stride {max_stride}: {model} has maps of stride {', '.join(map(str, strides))}")
        self.model = create(pretrained, out_indices=(fitting[-1],))
        self.pad_to = strides[fitting[-1]]
        self.channels = self.model.feature_info.channels()[-1]
        self.last_axis = str(getattr(self.model, "output_fmt", "NCHW")).upper().endswith("NHWC")

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        x = self.model(F.pad(x, (0, -width % self.pad_to, 0, -height % self.pad_to)))[-1]
        return x.permute(0, 3, 1, 2) if self.last_axis else x
