"""Pictures of fields as names of the state, so that a mode of `evaluate` can save them."""

from typing import Any

import numpy as np
import torch

from models.engine.injectors import Injector, Networks
from models.engine.state import State
from models.pose.pictures import (
    Kind,
    confidence_picture,
    picture_of,
    predicted_field,
    target_field,
    vectors_picture,
)
from models.pose.scenes import IMAGENET_MEAN, IMAGENET_STD


class FieldPictures(Injector):
    """Adds a picture of one field an instance: confidence of target and prediction, vectors and scales of both.

    Args:
        image: name of the normalised images (N, 3, H, W).
        fields: name of the decoded predictions of a head.
        target: name of its targets.
        kind: cif, caf or cifdet.
        index: which field.
        stride: of the fields, pixels.
        output: name of the pictures, float32 (N, 3, zoom H, 4 zoom W) in [-1, 1].
        zoom: enlargement.
        threshold: least confidence whose vector is drawn.
        every: instances whose `index` this divides are drawn, the others stay grey: pictures for people are few.
        mean: of the images' normalisation, in [0, 1].
        std: of the same.
    """

    def __init__(
        self,
        image: str,
        fields: str,
        target: str,
        kind: Kind,
        index: int,
        stride: int,
        output: str,
        zoom: int = 2,
        threshold: float = 0.3,
        every: int = 1,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
    ) -> None:
        self.image, self.fields, self.target, self.output = image, fields, target, output
        self.kind, self.index, self.stride, self.zoom, self.threshold = kind, index, stride, zoom, threshold
        self.mean, self.std, self.every = mean, std, every
        self.reads, self.adds = (image, fields, target, "index"), (output,)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        arrays = [state[name].detach().float().cpu().numpy() for name in (self.image, self.fields, self.target)]
        height, width = arrays[0].shape[2:]
        pictures = np.full((len(arrays[0]), self.zoom * height, 4 * self.zoom * width, 3), 128, np.uint8)
        for place, index in enumerate(state["index"].tolist()):
            if index % self.every == 0:
                pictures[place] = self._picture(*(array[place] for array in arrays))
        state.add(self.output, torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1)

    def _picture(self, image: Any, fields: Any, target: Any) -> Any:
        picture = picture_of(image, self.mean, self.std)
        both = target_field(self.kind, target[self.index]), predicted_field(self.kind, fields[self.index])
        shown = [confidence_picture(picture, field, self.stride, self.zoom) for field in both]
        shown += [vectors_picture(picture, field, self.stride, self.zoom, self.threshold) for field in both]
        return np.concatenate(shown, axis=1)
