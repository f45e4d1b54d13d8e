"""Statistics of a people dataset: counts, heights of persons, visibility of joints."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from figura.preparation.outcome import Repairs, rejected_line

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
VISIBILITY = ("unlabelled", "hidden", "visible")
_NAMED = 8  # categories listed in the line of a split


class Statistics:
    """Counts over one split, record by record.

    A person is an annotation of the category of people, except crowd regions. A person has keypoints if any is
    labelled. Persons with the same `person_id` are one identity; a person without it has none. `people` is the id of
    the category, or None; `annotated` is whether the split's source has annotations.
    """

    def __init__(self, people: int | None, joints: Sequence[str], annotated: bool) -> None:
        self.people, self.joints, self.annotated = people, tuple(joints), annotated
        self.persons_of: dict[int, int] = {}
        self.widths, self.image_heights, self.heights = array("d"), array("d"), array("d")
        self.visibility = [[0] * len(VISIBILITY) for _ in self.joints]
        self.crowds = self.others = self.with_keypoints = 0
        self.posed: set[int] = set()
        self.identities: Counter[int] = Counter()
        self.categories: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.repairs = Repairs()

    @property
    def images(self) -> int:
        """The number of usable images."""
        return len(self.persons_of)

    def add_image(self, record: Mapping[str, Any]) -> None:
        """Count a usable image."""
        self.persons_of[record["id"]] = 0
        self.widths.append(record["width"])
        self.image_heights.append(record["height"])

    def add_annotation(self, record: Mapping[str, Any], category: str) -> None:
        """Count a usable annotation of an added image; `category` is the name in the source."""
        if not record.get("iscrowd", 0):
            self.categories[category] += 1
        if record["category_id"] != self.people:
            self.others += 1
        elif record.get("iscrowd", 0):
            self.crowds += 1
        else:
            self._add_person(record)

    def _add_person(self, record: Mapping[str, Any]) -> None:
        self.persons_of[record["image_id"]] += 1
        self.heights.append(record["bbox"][3])
        if "person_id" in record:
            self.identities[record["person_id"]] += 1
        flags = record.get("keypoints", ())[2::3]
        if any(flags):
            self.with_keypoints += 1
            self.posed.add(record["image_id"])
            for counts, flag in zip(self.visibility, flags, strict=True):
                counts[int(flag)] += 1

    @property
    def seen_twice(self) -> list[int]:
        """The numbers of persons of the identities with at least two persons."""
        return [count for count in self.identities.values() if count > 1]

    def facts(self) -> dict[str, Any]:
        """Return the counts in `facts.json` (see `figura.formats.prepared`)."""
        return {
            "annotated": self.annotated,
            "images": self.images,
            "persons": len(self.heights),
            "with_joints": self.with_keypoints,
            "boxes": self.categories.total(),
            "identities": len(self.identities),
            "identities_seen_twice": len(self.seen_twice),
        }

    def summary(self) -> dict[str, Any]:
        """Return all counts; sizes of images and boxes in pixels; visibility of joints over persons with keypoints."""
        return {
            "annotated": self.annotated,
            "images": self.images,
            "persons": len(self.heights),
            "persons_with_keypoints": self.with_keypoints,
            "identities": len(self.identities),
            "identities_seen_twice": len(self.seen_twice),
            "persons_seen_twice": sum(self.seen_twice),
            "crowds": self.crowds,
            "other_objects": self.others,
            "categories": dict(sorted(self.categories.items())),
            "rejected": dict(sorted(self.rejected.items())),
            "repaired": self.repairs.as_statistics(),
            "persons_per_image": {
                str(persons): images for persons, images in sorted(Counter(self.persons_of.values()).items())
            },
            "image_width_quantiles": _quantiles(self.widths),
            "image_height_quantiles": _quantiles(self.image_heights),
            "person_height_quantiles": _quantiles(self.heights),
            "keypoint_visibility": {
                joint: dict(zip(VISIBILITY, row, strict=True))
                for joint, row in zip(self.joints, self.visibility, strict=True)
            },
        }

    def line(self) -> str:
        """Return a summary in one line."""
        images = f"{self.images} images"
        rejected = rejected_line(self.rejected, "records ")
        if not self.annotated:
            return f"{images} without annotations, {rejected}"
        partial = 0 < len(self.posed) < self.images
        posed = f", in {len(self.posed)} images, on which pose recipes train" if partial else ""
        persons = f"{len(self.heights)} persons ({self.with_keypoints} with joints{posed})"
        named = ", ".join(f"{name} {count}" for name, count in self.categories.most_common(_NAMED))
        more = f" and {len(self.categories) - _NAMED} more" if len(self.categories) > _NAMED else ""
        return (
            f"{images}, {persons}, {self.crowds} crowd regions, {self.others} other objects, {rejected}; "
            f"{self._identities()}categories: {named or 'none'}{more}"
        )

    def _identities(self) -> str:
        if not self.heights:
            return ""
        if not self.seen_twice:
            return f"0 of {len(self.heights)} people are seen twice: transfer cannot be judged; "
        return f"{len(self.identities)} identities, {len(self.seen_twice)} of them seen twice or more; "


def _quantiles(lengths: "array[float]") -> dict[str, float]:
    """Return level -> quantile, two decimals; empty without lengths."""
    values = np.quantile(lengths, QUANTILES) if lengths else np.zeros(0)
    return {f"{level:.2f}": round(float(value), 2) for level, value in zip(QUANTILES, values, strict=False)}
