"""The settings of drawn datasets; their values are in `data/params.yaml`."""

from typing import Annotated, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from figura.synthetic.randomness import SPLITS, Split

PoseName = Literal["standing", "walking", "waving", "sitting", "crouching", "arms_up"]
ViewName = Literal["front", "back", "side"]
Key = TypeVar("Key")
Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _summing_to_one(shares: dict[Key, float]) -> dict[Key, float]:
    if abs(sum(shares.values()) - 1.0) > 1e-6:
        raise ValueError(f"the shares sum to {sum(shares.values()):g}, not to 1; change one of them")
    return shares


Shares = Annotated[dict[Key, Share], AfterValidator(_summing_to_one)]


class Counts(BaseModel):
    """One number per split."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: int = Field(ge=1)
    validation: int = Field(ge=1)
    test: int = Field(ge=1)


class DrawnSettings(BaseModel):
    """Base of the settings of drawn datasets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    test_seed: int | None = Field(default=None, ge=0, description="of the split `test`; null: `seed`, as of the others")

    def seed_of(self, split: Split, seed: int) -> int:
        """Return the seed of a split's scenes and people, given that of the dataset."""
        return seed if split != "test" or self.test_seed is None else self.test_seed


class SyntheticSettings(DrawnSettings):
    """The entry `synthetic` of a dataset. Lengths are fractions of the image side; each map of shares sums to 1."""

    image_size: int = Field(ge=64, le=1024, description="side of the square images, pixels")
    jpeg_quality: int = Field(ge=1, le=100)
    scenes: Counts
    identities: Counts = Field(description="different people to draw from; no identity is in two splits")
    people_per_scene: Shares[Annotated[int, Field(ge=0, le=6)]]
    objects_per_scene: Shares[Annotated[int, Field(ge=0, le=8)]]
    height_range: tuple[float, float] = Field(description="a standing person's height, of the side")
    views: Shares[ViewName]
    poses: Shares[PoseName]
    max_overlap: Share = Field(description="of two people's boxes: intersection over the smaller box")
    cut_share: Share = Field(description="share of people that the image border cuts")
    crowd_share: Share = Field(description="share of scenes with an unlabelled crowd")
    limb_thickness: float = Field(ge=0.5, le=2.0, description="times life")
    head_size: float = Field(ge=0.5, le=2.0, description="times life")
    clutter: int = Field(ge=0, le=60, description="most things strewn over a background")

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.height_range
        if not 0.1 <= low <= high <= 1.5:
            raise ValueError(f"height_range: found [{low:g}, {high:g}], allowed is 0.1 <= lowest <= highest <= 1.5")
        for split in SPLITS:
            people, most = getattr(self.identities, split), max(self.people_per_scene)
            if people < most:
                raise ValueError(f"identities.{split}: {people} are too few for scenes of {most} different people")
        return self


class Items(NamedTuple):
    """A number for each kind of item: how many there are, or the index of the one that a person wears."""

    tops: int
    bottoms: int
    skins: int
    hairs: int
    shoes: int


class CatalogueSettings(DrawnSettings):
    """The settings of the catalogue pairs; their values are in `data/params.yaml`. `test_seed` keeps the wardrobe."""

    image_size: int = Field(ge=32, le=1024, description="side of label map and photo, pixels")
    pairs: Counts
    tops: int = Field(ge=1, le=24)
    bottoms: int = Field(ge=1, le=24)
    skins: int = Field(ge=1, le=12)
    hairs: int = Field(ge=1, le=12)
    shoes: int = Field(ge=1, le=12)
    height_range: tuple[float, float] = Field(description="a standing person's height, of the side")
    views: Shares[ViewName]
    poses: Shares[PoseName]
    limb_thickness: float = Field(ge=0.5, le=2.0, description="times life")
    head_size: float = Field(ge=0.5, le=2.0, description="times life")

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.height_range
        if not 0.2 <= low <= high <= 1.0:
            raise ValueError(f"height_range: found [{low:g}, {high:g}], allowed is 0.2 <= lowest <= highest <= 1")
        return self

    @property
    def items(self) -> Items:
        """Number of items of each kind."""
        return Items(self.tops, self.bottoms, self.skins, self.hairs, self.shoes)
