"""SyntheticPeople: drawn scenes with exact keypoints, masks and identities."""

from models.people.synthetic.settings import SyntheticSettings
from models.people.synthetic.writer import write_synthetic

__all__ = ["SyntheticSettings", "write_synthetic"]
