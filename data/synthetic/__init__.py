"""SyntheticPeople: drawn scenes of people with exact keypoints, masks and identities."""

from data.synthetic.settings import SyntheticSettings
from data.synthetic.writer import write_synthetic

__all__ = ["SyntheticSettings", "write_synthetic"]
