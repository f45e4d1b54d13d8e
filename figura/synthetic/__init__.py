"""SyntheticPeople: drawn scenes of people with exact keypoints, masks and identities."""

from figura.synthetic.settings import SyntheticSettings
from figura.synthetic.writer import write_synthetic

__all__ = ["SyntheticSettings", "write_synthetic"]
