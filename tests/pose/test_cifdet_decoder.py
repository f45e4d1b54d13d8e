import decoder_by_hand as by_hand
import numpy as np
import pytest

from models.pose.annotations import Annotations
from models.pose.decode.cifdet import CifDetDecoder, suppressions
from models.pose.encoders import CifDet

SIZE = (97, 129)


def fields(*those, size=SIZE, categories=2):
    """Fields of boxes (x, y, w, h, category)."""
    scene = Annotations(
        keypoints=np.zeros((len(those), 17, 3), dtype=np.float32),
        boxes=np.float32([one[:4] for one in those]),
        crowd=np.zeros(len(those), dtype=bool),
        categories=np.array([one[4] for one in those], dtype=np.int64),
        ids=np.arange(len(those)),
    )
    target = CifDet(categories, 8).encode(scene, size, (0.0, 0.0, size[1] - 1.0, size[0] - 1.0))
    return by_hand.fields_of(target, "cifdet")


def by_the_text(cifdet, stride, soft=False):
    """Decode boxes: (score, category, box), best first."""
    seeds = []
    height, width = ((n - 1) * stride + 1 for n in cifdet.shape[2:])
    occupancy = by_hand.Occupancy(len(cifdet), height, width)
    for category, field in enumerate(cifdet.astype(np.float64)):
        sized = np.concatenate([field[:4], 0.2 * field[4:].min(axis=0, keepdims=True)])  # a scale is two deviations
        total = by_hand.high_resolution(sized, stride, 0.3)
        for j, i in np.ndindex(*field.shape[1:]):
            _, c, x, y, w, h = field[:, j, i] * (1, 1, stride, stride, stride, stride)
            v = 0.9 * by_hand.read(total, x, y, -1) + 0.1 * c
            if c >= 0.2 and v >= 0.2:
                seeds.append((v, category, x, y, w, h))
    boxes = []
    for v, category, x, y, w, h in sorted(seeds, key=lambda seed: -seed[0]):
        if not occupancy.occupied(category, x, y) and len(boxes) < 120:
            occupancy.mark(category, x, y, 0.1 * min(w, h))
            boxes.append((v, category, (x - w / 2, y - h / 2, w, h)))
    kept, found = [], []
    for v, category, box in boxes:
        overlaps = [overlap(box, other) for other_category, other in kept if other_category == category]
        most = max(overlaps, default=0)
        if most <= 0.5 or soft:
            kept.append((category, box))
        factor = 1 if most <= 0.5 else 0.3 if soft and most <= 0.7 else 0.1
        found.append((v * factor, category, box))
    return sorted((one for one in found if one[0] > 0.15), key=lambda one: -one[0])


def overlap(one, other):
    sides = [min(one[a] + one[a + 2], other[a] + other[a + 2]) - max(one[a], other[a]) for a in (0, 1)]
    shared = max(sides[0], 0) * max(sides[1], 0)
    return shared / (one[2] * one[3] + other[2] * other[3] - shared)


class TestRoundTrip:
    def test_golden(self):
        cifdet = fields((30, 25, 41, 33, 1), (33, 27, 41, 33, 1), (80, 40, 20, 50, 0))
        assert np.count_nonzero(cifdet[:, 1], axis=(1, 2)).tolist() == [12, 14]
        found = CifDetDecoder(stride=8)(cifdet)
        assert found.categories.tolist() == [0, 1]
        assert found.boxes == pytest.approx(np.array([(80, 40, 20, 50), (30, 25, 41, 33)]), abs=1e-4)
        assert found.scores == pytest.approx([0.6975, 0.67375], abs=1e-4)  # OpenPifPaf's maps are that exact
        # of the 14 cells of category 2 seven point at either centre: seen from the pixel (51, 42), with sigma 3.3
        near, far = ((1 - 0.5 * squared / 3.3**2 / 8) ** 8 for squared in (0.5, 8.5))
        assert found.scores == pytest.approx([0.1 * 0.9 + 0.9 * 0.9 / 16 * n for n in (12, 7 * (near + far))], abs=1e-6)
        assert (found.boxes.dtype, found.scores.dtype, found.categories.dtype) == (np.float32, np.float32, np.int64)

    def test_voting(self):
        generator = np.random.default_rng(4)
        cifdet = fields((30, 25, 41, 33, 1), (60, 30, 45, 50, 1), (80, 40, 20, 50, 0))
        cifdet[:, 1] *= generator.uniform(0.1, 1.0, cifdet[:, 1].shape)
        cifdet[:, 4:] *= generator.uniform(0.8, 1.25, cifdet[:, 4:].shape)
        cifdet[1, 4, 5, 7] = cifdet[1, 2, 3, 5] = np.nan  # a width, and the centre of a cell that would vote
        plain = CifDetDecoder(stride=8)(cifdet)
        found = CifDetDecoder(stride=8, voting_threshold=0.7)(cifdet)
        assert (found.scores.tolist(), found.categories.tolist()) == (plain.scores.tolist(), plain.categories.tolist())
        assert len(found) >= 3
        for box, before, category in zip(found.boxes, plain.boxes, found.categories, strict=True):
            _, confidence, x, y, width, height = cifdet[category].reshape(6, -1) * [[1], [1], [8], [8], [8], [8]]
            cells = np.column_stack([x - width / 2, y - height / 2, width, height])
            votes = [
                place for place, cell in enumerate(cells) if confidence[place] >= 0.2 and overlap(before, cell) > 0.7
            ]
            assert 2 <= len(votes) < np.count_nonzero(confidence >= 0.2)
            assert box == pytest.approx(np.average(cells[votes], axis=0, weights=confidence[votes]), abs=1e-4)

    @pytest.mark.parametrize("soft", [False, True])
    def test_agrees_with_the_text(self, soft):
        generator = np.random.default_rng(2)
        boxes = np.column_stack(
            [
                generator.uniform(0, 60, (14, 2)),
                generator.uniform(25, 70, (14, 2)),
                generator.integers(0, 2, 14),
            ]
        )
        cifdet = fields(*boxes.tolist()[:7], *np.add(boxes[7:], (0, 0, 5, 12, 0)).tolist(), categories=3)
        cifdet[:, 1] *= generator.uniform(0.7, 1.1, cifdet[:, 1].shape)
        cifdet[:, 2:] += generator.normal(0, 0.05, cifdet[:, 2:].shape)
        cifdet[:, 4:].clip(0, None, out=cifdet[:, 4:])
        expected = by_the_text(cifdet, 8, soft)
        found = CifDetDecoder(stride=8, nms="soft" if soft else "hard")(cifdet)
        assert len(expected) >= 5
        assert found.categories.tolist() == [category for _, category, _ in expected]
        assert found.scores == pytest.approx([score for score, _, _ in expected], rel=1e-4)
        assert found.boxes == pytest.approx(np.array([box for _, _, box in expected]), abs=1e-3)


class TestSuppression:
    # IoU: first and second 0.8, second and third 0.625, first and third 0.5; the fourth is the first again
    BOXES = np.array([(0, 0, 10, 10), (0, 0, 10, 8), (0, 3, 10, 5), (0, 0, 10, 10)], dtype=np.float64)

    @pytest.mark.parametrize(
        ("soft", "groups", "expected"),
        [
            (False, [0, 0, 0, 0], [1, 0.1, 1, 0.1]),  # who is suppressed does not suppress
            (True, [0, 0, 0, 0], [1, 0.1, 0.3, 0.1]),
            (True, [0, 1, 1, 0], [1, 1, 0.3, 0.1]),
            (False, [0, 1, 1, 2], [1, 1, 0.1, 1]),
        ],
    )
    def test_by_hand(self, soft, groups, expected):
        steps = np.array([(0.5, 0.3), (0.7, 0.1)] if soft else [(0.5, 0.1)])
        assert suppressions(self.BOXES, np.array(groups), steps, soft).tolist() == expected

    def test_boxes_without_area(self):
        boxes = np.array([(3.0, 3, 0, 0), (3, 3, 0, 0), (0, 0, 9, 9)])
        assert suppressions(boxes, np.zeros(3, dtype=np.int64), np.array([(0.5, 0.1)]), False).tolist() == [1, 1, 1]

    def test_scores_and_thresholds(self):
        # two centres 9 pixels apart: too far for the occupancy, an IoU of 0.64 for the suppression
        cifdet = fields((20, 20, 41, 41, 0), (29, 20, 41, 41, 1))
        apart = CifDetDecoder(stride=8)(cifdet)
        assert len(apart) == 2
        for nms, factor in (("hard", 0.1), ("soft", 0.3)):
            together = CifDetDecoder(stride=8, per_category=False, instance_threshold=0.0, nms=nms)(cifdet)
            assert together.scores == pytest.approx(apart.scores * (1, factor), rel=1e-5)
        assert len(CifDetDecoder(stride=8, per_category=False)(cifdet)) == 1
        assert len(CifDetDecoder(stride=8, maximum=1)(cifdet)) == 1


def as_bytes(boxes):
    return boxes.boxes.tobytes() + boxes.scores.tobytes() + boxes.categories.tobytes()


class TestAnyFields:
    def test_nothing(self):
        found = CifDetDecoder(stride=8)(np.zeros((91, 6, 9, 9), dtype=np.float32))
        assert (found.boxes.shape, found.scores.shape, found.categories.shape) == ((0, 4), (0,), (0,))

    def test_same_again_and_in_batches(self):
        generator = np.random.default_rng(5)
        those = [fields(*[(*generator.uniform(0, 60, 2), 40, 30, c % 2) for c in range(4)]) for _ in range(5)]
        fresh = [as_bytes(CifDetDecoder(stride=8)(one)) for one in those]
        decode = CifDetDecoder(stride=8)
        for workers in (1, 2):
            assert [as_bytes(one) for one in decode.batch(np.stack(those), workers)] == fresh

    def test_random_numbers(self):
        generator = np.random.default_rng(7)
        for magnitude in (1.0, 20.0, 1e4, 1e20):
            cifdet = generator.normal(0, magnitude, (20, 6, 13, 17)).astype(np.float32)
            cifdet[:, 1] = generator.random(cifdet[:, 1].shape)
            strange = generator.random(cifdet.shape)
            cifdet[strange < 0.03] = np.nan
            cifdet[strange > 0.97] = generator.choice([np.inf, -np.inf, 1e9, -1e9])
            found = CifDetDecoder(stride=8)(cifdet)
            assert len(found) <= 120
            assert np.isfinite(found.boxes).all()
            assert (found.boxes[:, 2:] >= 0).all()
            assert ((found.scores > 0.15) & (found.scores <= 1)).all()
