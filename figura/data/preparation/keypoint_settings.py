"""Settings of the joints in data/params.yaml: `datasets.<name>.coco.keypoints`."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from figura.base.errors import nearest
from figura.data.formats.keypoint_sets import SETS

Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
Point = Annotated[list[float], Field(min_length=2, max_length=2)]
Positive = Annotated[float, Field(gt=0)]


class KeypointSettings(BaseModel):
    """The joints of a dataset, if missing or wrong in its files. Joints are referred to by name.

    A single string is the name of a published set: `keypoints: wholebody` is `keypoints: {set: wholebody}`. Missing
    settings come from `set`, or else from the category in the files, from the published set with the same names, or
    from rules (`figura.data.preparation.skeletons`).

    Attributes:
        set: a published set of joints (`figura.data.formats.keypoint_sets`): coco, crowdpose, mpii, wholebody, ...
        keypoints: the names of the joints, in the order of the annotations.
        sigmas: each joint's standard deviation as a fraction of the instance's scale (OKS), or one number for all.
        flip: joints that are swapped when the image is mirrored, in one direction: `{left_eye: right_eye}`.
        connections: pairs of joints.
        dense_connections: further pairs, for the dense association field.
        kinematic_tree: pairs that reach each joint once, from the root outwards.
        score_weights: weights of the joints' confidences in descending order.
        standing_pose: `[x, y]` of each joint, y upwards, of an upright instance about 10 high.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    set: str | None = None
    keypoints: Annotated[list[str], Field(min_length=2)] | None = None
    sigmas: Positive | list[Positive] | None = None
    flip: dict[str, str] | None = None
    connections: list[Pair] | None = None
    dense_connections: list[Pair] | None = None
    kinematic_tree: list[Pair] | None = None
    score_weights: list[Positive] | None = None
    standing_pose: list[Point] | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_of_a_set(cls, value: Any) -> Any:
        return {"set": value} if isinstance(value, str) else value

    @field_validator("set")
    @classmethod
    def _is_published(cls, name: str | None) -> str | None:
        if name is not None and name not in SETS:
            raise ValueError(f"no set of joints {name!r}{nearest(name, SETS)}; there are {', '.join(SETS)}")
        return name

    @model_validator(mode="after")
    def _names_once(self) -> "KeypointSettings":
        if self.set is not None and self.keypoints is not None:
            raise ValueError("set names the joints already; leave out set or keypoints")
        return self
