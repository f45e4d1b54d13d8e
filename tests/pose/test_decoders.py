"""Decoders against OpenPifPaf's values and the same steps in plain Python; records in pixels of the file."""

import os
import subprocess
import sys
from pathlib import Path

import decoder_by_hand as by_hand
import numpy as np
import pytest
import torch
from decoder_by_hand import fields_of
from people_by_hand import SIZE, scene_of, standing

from figura.base.errors import UserError
from figura.formats.skeletons import COCO
from figura.interfaces import Networks, State
from models.pose.annotations import Annotations
from models.pose.decode.cif_hr import Buffers, accumulate
from models.pose.decode.cifcaf import CifCafDecoder
from models.pose.decode.cifdet import CifDetDecoder, suppressions
from models.pose.decode.decoding import FindObjects, FindPeople
from models.pose.decode.grow_poses import grow_connection, index
from models.pose.decode.injectors import Overlays
from models.pose.decode.occupancy import empty_grid, is_occupied, mark, without_duplicates
from models.pose.encoders import Caf, Cif, CifDet

ROOT = Path(__file__).parents[2]
K = len(COCO.keypoints)
LEFT = [5, 7, 9, 11, 13, 15]
LEFT_HIP = 11
BY_DISTANCE = [0.9, 0.858545, 0.838536, 0.82871, 0.82384]  # OpenPifPaf's values
COMPILES = """
import numpy as np
import models.pose.decode.decoding
from models.pose.decode.occupancy import is_occupied, mark
mark(np.zeros((1, 4, 4), np.uint8), 0, 1.0, 1.0, 1.0)
is_occupied(np.zeros((1, 4, 4), np.uint8), 0, 1.0, 1.0)
"""


@pytest.mark.slow
def test_that_a_decoder_is_compiled_is_said_once_and_not_again_where_it_is_cached(tmp_path):
    said = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", COMPILES], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=True,
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        ).stderr
        for _ in range(2)
    ]  # fmt: skip
    assert said == ["numba compiles the decoder: a minute or two, once on this machine\n", ""]


def fields(*people, stride=8, size=SIZE, connections=("standard",)):
    scene, area = scene_of(people), (0.0, 0.0, size[1] - 1.0, size[0] - 1.0)
    cif = Cif(COCO, stride, suppress_hidden=None).encode(scene, size, area)
    cafs = [Caf(COCO, stride, suppress_hidden=None, connections=name).encode(scene, size, area) for name in connections]
    return by_hand.fields_of(cif, "cif"), by_hand.fields_of(np.concatenate(cafs), "caf")


def disturbed(cif, caf, seed, noise=0.03):
    """Weaker and stronger cells, some of the background too, places and scales that do not quite agree."""
    generator = np.random.default_rng(seed)
    for field in (cif, caf):
        field[:, 1] *= generator.uniform(0.4, 1.1, field[:, 1].shape)
        field[:, 1] += generator.uniform(0, 0.1, field[:, 1].shape) + 0.4 * (generator.random(field[:, 1].shape) < 0.01)
        field[:, 1].clip(0, 1, out=field[:, 1])
        field[:, 2:] += generator.normal(0, noise, field[:, 2:].shape)
        field[:, 4 if field is cif else 6 :].clip(0.05, None, out=field[:, 4 if field is cif else 6 :])
    return cif, caf


def distances(start):
    steps, frontier = {start: 0}, [start]
    for joint in frontier:
        for pair in COCO.connections:
            other = pair[1 - pair.index(joint)] if joint in pair else joint
            if other not in steps:
                steps[other] = steps[joint] + 1
                frontier.append(other)
    return np.array([steps[joint] for joint in range(K)])


def high_resolution(cif, stride=8, threshold=0.3):
    maps = np.zeros((len(cif), *((n - 1) * stride + 1 for n in cif.shape[2:])), dtype=np.float32)
    tiles = np.zeros((len(cif), *(-(-n // 16) for n in maps.shape[1:])), dtype=bool)
    accumulate(maps, tiles, cif, stride, threshold, 0.5)
    return maps, tiles


class TestConfidenceMaps:
    def test_golden_cell(self):
        cif = np.zeros((1, 5, 5, 5), dtype=np.float32)
        cif[0, 1:, 2, 2] = 0.8, 2.3, 2.1, 1.0
        (pixels,), _ = high_resolution(cif)
        assert pixels.shape == (33, 33)
        assert np.count_nonzero(pixels) == 49
        assert pixels[17, 18] == pytest.approx(0.05)
        assert pixels.sum() == pytest.approx(1.93132, abs=1e-5)

    def test_agrees_with_the_text(self):
        generator = np.random.default_rng(0)
        cif = generator.uniform(-2, 10, (3, 5, 7, 9)).astype(np.float32)  # places beside the map, caps, scales below 0
        cif[:, 1] = generator.random((3, 7, 9))
        cif[:, 4] /= 3
        cif[0, 1:, 2:6, 2:7] = np.reshape([1.0, 4.2, 3.1, 0.6], (4, 1, 1))
        cif[2, 1] *= 0.31  # leaves tiles untouched
        maps, tiles = high_resolution(cif, stride=6)
        for field, pixels in zip(cif, maps, strict=True):
            assert np.allclose(pixels, by_hand.high_resolution(field, 6, 0.3), atol=1e-5)
        covered = np.kron(tiles, np.ones((1, 16, 16), dtype=bool))[:, : maps.shape[1], : maps.shape[2]]
        assert (maps.max(), maps.min()) == (1, 0)
        assert 0 < covered.mean() < 1
        assert not maps[~covered].any()

    def test_absurd_scales_spread_over_a_quarter_of_the_map(self):
        cif = np.zeros((2, 5, 9, 11), dtype=np.float32)
        cif[:, 1:4, 4, 4] = 0.8, 4.0, 4.0
        cif[:, 4, 4, 4] = 2 * 0.25 * 81 / 8, 1e4
        maps, _ = high_resolution(cif)
        assert np.array_equal(maps[0], maps[1])
        assert np.count_nonzero(maps[0]) == pytest.approx(np.pi * 20.25**2, rel=0.02)

    def test_buffers_come_back_clear(self):
        buffers = Buffers()
        for count, size in ((2, 40), (3, 57), (1, 20)):
            with buffers.zeros(count, size, size) as (maps, tiles):
                assert maps.shape == (count, size, size)
                assert not maps.any()
                cif = np.full((count, 5, 3, 3), 1.5, dtype=np.float32)
                accumulate(maps, tiles, cif, 10, 0.3, 0.5)
                assert maps.any()


def test_golden_occupancy():
    occupied = empty_grid(2, 97, 129)
    mark(occupied, 1, 50.0, 50.0, 3.0)
    places = np.arange(0, 128, 0.25)
    inside = [x for x in places if is_occupied(occupied, 1, x, 50.0)]
    assert (min(inside), max(inside)) == (46, 53.75)
    assert not any(is_occupied(occupied, 0, x, 50.0) for x in places)


def test_a_duplicate_that_loses_all_of_its_joints_is_dropped_at_any_threshold():
    """The second pose's only joint is where the first has one: times 1e-5 it is below the threshold of joints."""
    poses = np.zeros((3, 2, 4))
    poses[0, 0] = 50.0, 50.0, 0.5, 4.0
    poses[1, 0] = 51.0, 50.0, 0.9, 4.0
    poses[2, 1] = 10.0, 90.0, 0.4, 4.0
    kept = without_duplicates(poses, empty_grid(2, 97, 129), 0.15, 0.0)
    np.testing.assert_array_equal(kept[:, :, 2], [[0.9, 0], [0, 0.4]])


def grown(candidates, x, y, scale, factor=1.0, blend=True):
    """(x, y, scale, value), from candidates (c, x1, y1, x2, y2, s1, s2)."""
    found = np.float32(candidates)[:, [0, 1, 2, 3, 4, 6]]
    order, buckets = index(found, np.array([[0, len(found)]]), 193, 193)
    x, y, value, scale = grow_connection(found, order, buckets, 0, x, y, scale, factor, blend)
    return x, y, scale, value


class TestConnections:
    GOLDEN = ((0.8, 10, 10, 20, 20, 4, 4), (0.6, 11, 10, 21, 20, 4, 4), (0.9, 30, 30, 5, 5, 4, 4))

    @pytest.mark.parametrize(
        ("source", "options", "expected"),
        [
            ((10.0, 10.0, 4.0), {}, (20.398270, 20, 4, 0.664749)),
            ((10.0, 10.0, 4.0), {"blend": False}, (20, 20, 4, 0.8)),
            ((10.0, 10.0, 0.1), {}, (20, 20, 4, 0.4)),
            ((13.0, 10.0, 4.0), {}, (21, 20, 4, 0.181959)),
            ((13.0, 10.0, 4.0), {"factor": 4.0}, (20.583538, 20, 4, 0.311820)),
            ((90.0, 10.0, 4.0), {}, (0, 0, 0, 0)),
        ],
    )
    def test_golden(self, source, options, expected):
        assert grown(self.GOLDEN, *source, **options) == pytest.approx(expected, abs=2e-6)

    def test_golden_ends_apart(self):
        apart = (self.GOLDEN[0], (0.6, 11, 10, 23, 20, 4, 4), self.GOLDEN[2])
        assert grown(apart, 10.0, 10.0, 4.0) == pytest.approx((20, 20, 4, 0.4))

    def test_agrees_with_the_text(self):
        generator = np.random.default_rng(1)
        found = 0
        for _ in range(300):
            candidates = generator.uniform(-10, 200, (400, 7)).astype(np.float32)
            candidates[:, 0] = generator.random(400)
            candidates[:, 3:5] = candidates[:, 1:3] + generator.uniform(-3, 3, (400, 2))
            candidates[:, 5:] /= 10
            x, y, scale = generator.uniform((-20, -20, 0), (220, 220, 25)).tolist()
            factor, blend = float(generator.choice([1, 4])), bool(generator.random() < 0.7)
            value, *place = by_hand.grow(candidates.astype(np.float64).tolist(), x, y, scale, factor, blend)
            scores = grown(candidates, x, y, scale, factor, blend)
            assert scores == pytest.approx((*place, value), rel=1e-5, abs=1e-6)
            found += value > 0
        assert 150 < found < 300


class TestRoundTrip:
    @pytest.mark.parametrize("complete", [False, True])
    @pytest.mark.parametrize("seed", [LEFT_HIP, 0])
    def test_golden(self, complete, seed):
        truth = standing()
        cif, caf = fields(truth)
        cif[seed, 1] *= 1 + 1e-6  # of equal seeds, this is the best
        found = CifCafDecoder(stride=8, force_complete=complete)(cif, caf)
        (pose,), (score,) = found.keypoints, found.scores
        assert np.abs(pose[:, :2] - truth[:, :2]).max() < 1e-3
        assert pose[:, 3] == pytest.approx(93.2266 * COCO.sigmas, rel=1e-5)
        steps = distances(seed)
        for distance, confidence in enumerate(BY_DISTANCE):
            assert pose[steps == distance, 2] == pytest.approx(confidence, abs=2e-5)
        if seed == LEFT_HIP:
            assert pose[:, 2].mean() == pytest.approx(0.84020, abs=1e-5)
            assert score == pytest.approx(0.84859, abs=1e-5)

    def test_golden_left_side(self):
        cif, caf = fields(standing(joints=LEFT))
        cif[5, 1] *= 1 + 1e-6
        found = CifCafDecoder(stride=8)(cif, caf)
        assert np.flatnonzero(found.keypoints[0, :, 2]).tolist() == LEFT
        assert not found.keypoints[0, [0, 16]].any()
        assert found.scores == pytest.approx([0.45031], abs=1e-5)
        assert found.keypoints[0, :, 2].mean() == pytest.approx(0.30135, abs=1e-5)
        complete = CifCafDecoder(stride=8, force_complete=True)(cif, caf)
        assert complete.keypoints[:, LEFT] == pytest.approx(found.keypoints[:, LEFT])
        rest = [joint for joint in range(K) if joint not in LEFT]
        assert complete.keypoints[0, rest, 2] == pytest.approx(1e-5)
        places = complete.keypoints[0, :, :2]
        assert all(np.abs(places[LEFT] - places[joint]).sum(axis=1).min() == 0 for joint in rest)


OPTIONS = [
    {},
    {"force_complete": True},
    {"greedy": True},
    {"connection_method": "max"},
    {"reverse_match": False},
    {"cif_rescore": False},
    {"caf_rescore": False},
    {"seed_nms": True},
    {"force_complete": True, "connection_method": "max", "greedy": True},
]


def crowd(seed):
    generator = np.random.default_rng(seed)
    people = []
    for _ in range(4):
        joints = np.flatnonzero(generator.random(K) < 0.85)
        people.append(standing(generator.uniform(5, 12), generator.uniform(20, 140), generator.uniform(0, 40), joints))
    return people


def assert_agrees(found, expected):
    assert len(found) == len(expected)
    assert found.scores == pytest.approx([score for score, _ in expected], rel=1e-3, abs=1e-5)
    for keypoints, (_, pose) in zip(found.keypoints, expected, strict=True):
        assert np.flatnonzero(keypoints[:, 2]).tolist() == sorted(pose)
        for joint, (v, x, y, scale) in pose.items():
            assert keypoints[joint] == pytest.approx((x, y, v, scale), rel=1e-3, abs=1e-3)


@pytest.fixture(scope="module")
def scene():
    cif, caf = disturbed(*fields(*crowd(3), size=(129, 161), connections=("standard", "dense")), seed=3)
    return cif, caf, [by_hand.high_resolution(field, 8, 0.3) for field in cif]


class TestAgainstTheText:
    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    def test_crowd(self, scene, options):
        cif, caf, maps = scene
        caf = caf[: len(COCO.connections)]
        expected = by_hand.Decoder(8, COCO.connections, COCO.score_weights, **options, maps=maps)(cif, caf)
        assert len(expected) >= 3
        assert_agrees(CifCafDecoder(stride=8, **options)(cif, caf), expected)

    @pytest.mark.parametrize("weight", [1.0, 0.5])
    def test_dense(self, scene, weight):
        cif, caf, maps = scene
        pairs = COCO.connections + COCO.dense_connections
        weights = (1.0,) * len(COCO.connections) + (weight,) * len(COCO.dense_connections)
        expected = by_hand.Decoder(8, pairs, COCO.score_weights, weights=weights, maps=maps)(cif, caf)
        decode = CifCafDecoder(stride=8, dense_weight=weight)
        assert decode.connections == pairs
        assert_agrees(decode(cif, caf), expected)


class TestOptions:
    def test_dense_connections_join_what_is_apart(self):
        truth = standing(joints=[joint for joint in range(K) if joint not in (13, 14)])  # ankles hang on knees
        cif, caf = fields(truth, connections=("standard", "dense"))
        joined = {}
        for weight in (0.0, 1.0):
            found = CifCafDecoder(stride=8, dense_weight=weight)(cif, caf)
            joined[weight] = bool((found.keypoints[0, [15, 16], 2] > 0).all())
        assert joined == {0.0: False, 1.0: True}

    @pytest.mark.parametrize(("independent", "value"), [(False, 0.27), (True, 1e-5)])
    def test_independent_keypoints_keeps_the_threshold(self, independent, value):
        cif, caf = fields(standing())
        cif[15, 1] = 0  # no ankle: the connection that leads there counts a tenth, the ankle sqrt(0.09 * 0.82)
        thresholds = {"seed_threshold": 0.5, "keypoint_threshold": 0.5}
        decode = CifCafDecoder(stride=8, force_complete=True, independent_keypoints=independent, **thresholds)
        assert decode(cif, caf).keypoints[0, 15, 2] == pytest.approx(value, rel=0.02)


def as_bytes(found):
    return b"".join(values.tobytes() for values in vars(found).values())


def scenes_of_boxes(seed):
    generator = np.random.default_rng(seed)
    return (fields_of_boxes(*[(*generator.uniform(0, 60, 2), 40, 30, c % 2) for c in range(4)]),)


def scenes_of_people(seed):
    return disturbed(*fields(*crowd(seed), size=(129, 161)), seed=seed)


DECODERS = [
    (CifCafDecoder, {}, scenes_of_people),
    (CifCafDecoder, {"force_complete": True}, scenes_of_people),
    (CifDetDecoder, {}, scenes_of_boxes),
]


@pytest.mark.parametrize(("kind", "options", "scenes"), DECODERS)
def test_same_again_and_in_batches(kind, options, scenes):
    images, decode = [scenes(seed) for seed in range(4)], kind(stride=8, **options)
    fresh = [as_bytes(kind(stride=8, **options)(*image)) for image in images]
    assert [as_bytes(decode(*image)) for image in images] == fresh
    for workers in (1, 2):
        stacked = (np.stack(those) for those in zip(*images, strict=True))
        assert [as_bytes(one) for one in decode.batch(*stacked, workers)] == fresh


def test_views_and_read_only_fields():
    cif, caf = fields(standing())
    expected = as_bytes(CifCafDecoder(stride=8)(cif, caf))
    wide = np.stack([cif, cif], axis=-1).astype(np.float64)[..., 0]
    caf.setflags(write=False)
    assert as_bytes(CifCafDecoder(stride=8)(wide, caf)) == expected


@pytest.mark.parametrize(("kind", "options", "scenes"), DECODERS)
def test_random_numbers(kind, options, scenes):
    generator, decode = np.random.default_rng(7), kind(stride=8, **options)
    shapes = [(17, 5), (19, 8)] if kind is CifCafDecoder else [(20, 6)]
    for magnitude in (1.0, 20.0, 1e4, 1e20):
        given = [generator.normal(0, magnitude, (*shape, 13, 17)).astype(np.float32) for shape in shapes]
        for field in given:
            field[:, 1] = generator.random(field[:, 1].shape)
            strange = generator.random(field.shape)
            field[strange < 0.03] = np.nan
            field[strange > 0.97] = generator.choice([np.inf, -np.inf, 1e9, -1e9])
        found = decode(*given)
        assert all(np.isfinite(values).all() for values in vars(found).values())
        if kind is CifDetDecoder:
            assert len(found) <= 120
            assert (found.boxes[:, 2:] >= 0).all()
            assert ((found.scores > 0.15) & (found.scores <= 1)).all()
        else:
            least = 1e-12 if options else 0
            assert ((found.keypoints[:, :, 2] >= least) & (found.keypoints[:, :, 2] <= 1)).all()


BAD = [(1, np.nan), (1, np.inf), (1, -np.inf)]
BAD += [(component, bad) for component in range(2, 8) for bad in (np.nan, np.inf, -np.inf, 1e9, -1e30, 3e38)]


class TestStrangeFields:
    @pytest.mark.parametrize("complete", [False, True])
    def test_nothing(self, complete):
        for cells in ((1, 1), (25, 25)):
            cif, caf = np.zeros((17, 5, *cells), np.float32), np.zeros((19, 8, *cells), np.float32)
            found = CifCafDecoder(stride=16, force_complete=complete)(cif, caf)
            assert (found.keypoints.shape, found.scores.shape) == ((0, 17, 4), (0,))
            assert (found.keypoints.dtype, found.scores.dtype) == (np.float32, np.float32)
        found = CifDetDecoder(stride=8)(np.zeros((91, 6, 9, 9), dtype=np.float32))
        assert (found.boxes.shape, found.scores.shape, found.categories.shape) == ((0, 4), (0,), (0,))

    def test_bad_cells_of_joints_are_ignored(self):
        decode, (cif, caf) = CifCafDecoder(stride=8, instance_threshold=0.0), fields(standing())
        expected = as_bytes(decode(cif, caf))
        corner = np.s_[:, 1:, 22:, :2]
        cif[corner] = np.reshape([1.0, 0.5, 23.0, 0.5], (4, 1, 1))
        assert as_bytes(decode(cif, caf)) != expected
        for component, bad in BAD:
            if component < 5:
                changed = cif.copy()
                changed[:, component, 22:, :2] = bad
                assert as_bytes(decode(changed, caf)) == expected, (component, bad)

    def test_bad_cells_of_connections_are_ignored(self):
        decode, (cif, caf) = CifCafDecoder(stride=8), fields(standing())
        expected = as_bytes(decode(cif, caf))
        for connection in caf:  # a better cell in the corner, that leads beside the joint
            row, column = np.argwhere(connection[1] > 0)[0]
            connection[:, 23, 1] = connection[:, row, column]
            connection[1, 23, 1] = 1
            connection[2:6, 23, 1] += 0.1
        assert as_bytes(decode(cif, caf)) != expected
        for component, bad in BAD:
            changed = caf.copy()
            changed[:, component, 23, 1] = bad
            assert as_bytes(decode(cif, changed)) == expected, (component, bad)


SMALL = (97, 129)


def fields_of_boxes(*those, size=SMALL, categories=2):
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


class TestBoxes:
    def test_golden(self):
        cifdet = fields_of_boxes((30, 25, 41, 33, 1), (33, 27, 41, 33, 1), (80, 40, 20, 50, 0))
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
        cifdet = fields_of_boxes((30, 25, 41, 33, 1), (60, 30, 45, 50, 1), (80, 40, 20, 50, 0))
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
            [generator.uniform(0, 60, (14, 2)), generator.uniform(25, 70, (14, 2)), generator.integers(0, 2, 14)]
        )
        cifdet = fields_of_boxes(*boxes.tolist()[:7], *np.add(boxes[7:], (0, 0, 5, 12, 0)).tolist(), categories=3)
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
        flat = self.BOXES * (1, 1, 0, 0)
        assert suppressions(flat, np.zeros(4, dtype=np.int64), steps, soft).tolist() == [1] * 4

    def test_scores_and_thresholds(self):
        # two centres 9 pixels apart: too far for the occupancy, an IoU of 0.64 for the suppression
        cifdet = fields_of_boxes((20, 20, 41, 41, 0), (29, 20, 41, 41, 1))
        apart = CifDetDecoder(stride=8)(cifdet)
        assert len(apart) == 2
        for nms, factor in (("hard", 0.1), ("soft", 0.3)):
            together = CifDetDecoder(stride=8, per_category=False, instance_threshold=0.0, nms=nms)(cifdet)
            assert together.scores == pytest.approx(apart.scores * (1, factor), rel=1e-5)
        assert len(CifDetDecoder(stride=8, per_category=False)(cifdet)) == 1
        assert len(CifDetDecoder(stride=8, maximum=1)(cifdet)) == 1


STRIDE, IMAGE = 8, 77
POSE = standing()[:, :2].astype(float)
# The file is twice as large, and the picture begins 10 and 20 pixels in.
TO_ORIGINAL = np.float32([[2, 0, -20], [0, 2, -40]])
NOWHERE = Networks({}, {})


def annotated(people=1):
    keypoints = np.full((people, 17, 3), 2, np.float32)
    keypoints[..., :2] = POSE
    if people == 2:
        keypoints[1, :, :2] = (POSE - 96) / 2 + (150, 120)
    return scene_of(keypoints, range(people))


def state_of(annotations, **more):
    area = np.float32([0, 0, 192, 192])
    encoders = {"cif": Cif(COCO, STRIDE), "caf": Caf(COCO, STRIDE), "cifdet": CifDet(2, STRIDE)}
    targets = {kind: encoder.encode(annotations, SIZE, area) for kind, encoder in encoders.items()}
    return State({kind: torch.from_numpy(fields_of(target, kind))[None] for kind, target in targets.items()} | {
        "image_id": torch.tensor([IMAGE]), "to_original": torch.from_numpy(TO_ORIGINAL)[None],
        "image": torch.zeros(1, 3, *SIZE),
    } | more)  # fmt: skip


def test_people_in_pixels_of_the_file():
    state = state_of(annotated(2))
    FindPeople("cif", "caf", "people", STRIDE, decoder={"force_complete": True})(state, NOWHERE, 0)
    first, second = state["people"][0]
    assert first.keys() == {"image_id", "category_id", "keypoints", "bbox", "score"}
    assert (first["image_id"], first["category_id"]) == (IMAGE, 1)
    assert first["score"] >= second["score"] > 0.8  # golden value of one seed: 0.84859
    found = {
        round(joints[0, 0]): joints for joints in (np.reshape(one["keypoints"], (17, 3)) for one in (first, second))
    }
    for place, keypoints in enumerate(annotated(2).keypoints):
        expected = keypoints[:, :2] * 2 - (20, 40)
        joints = found[round(float(expected[0, 0]))]
        np.testing.assert_allclose(joints[:, :2], expected, atol=0.02)
        assert joints[:, 2].min() > 0.7, place
    assert state["people_count"].tolist() == [2.0]
    assert state["people_score"].tolist() == pytest.approx([first["score"]], abs=1e-6)
    for options, count in (({"maximum": 1}, 1), ({"least_score": 0.99}, 0)):
        state = state_of(annotated(2))
        FindPeople("cif", "caf", "people", STRIDE, **options)(state, NOWHERE, 0)
        assert len(state["people"][0]) == count
    assert state["people_score"].tolist() == [0.0]


def test_the_box_holds_joints_and_their_scales_and_missing_joints_are_zeros():
    state = state_of(annotated())
    FindPeople("cif", "caf", "people", STRIDE)(state, NOWHERE, 0)
    (person,) = state["people"][0]
    scales = 93.2266 * COCO.sigmas * 2  # OpenPifPaf's value, in pixels of the file
    places = POSE * 2 - (20, 40)
    low, high = (places - scales[:, None]).min(axis=0), (places + scales[:, None]).max(axis=0)
    np.testing.assert_allclose(person["bbox"], [*low, *(high - low)], atol=0.05)
    annotations = annotated()
    annotations.keypoints[0, [7, 9], 2] = 0  # left elbow and wrist
    state = state_of(annotations)
    FindPeople("cif", "caf", "people", STRIDE)(state, NOWHERE, 0)
    joints = np.reshape(state["people"][0][0]["keypoints"], (17, 3))
    assert (joints[[7, 9]] == 0).all()
    assert (joints[8] != 0).all()


def test_objects_in_pixels_of_the_file():
    state = state_of(annotated(2))
    FindObjects("cifdet", "objects", STRIDE)(state, NOWHERE, 0)
    found = {one["category_id"]: one for one in state["objects"][0]}
    assert set(found) == {1, 2}
    for category, box in zip((1, 2), annotated(2).boxes, strict=True):
        np.testing.assert_allclose(found[category]["bbox"], [*(box[:2] * 2 - (20, 40)), *(box[2:] * 2)], atol=0.02)
        assert found[category]["image_id"] == IMAGE
        assert 0.5 < found[category]["score"] < 0.9
    assert state["objects_count"].tolist() == [2.0]
    things = [{"id": 18, "name": "dog"}, {"id": 90, "name": "toothbrush"}]
    state = state_of(annotated(2))
    FindObjects("cifdet", "objects", STRIDE, categories=things)(state, NOWHERE, 0)
    FindPeople("cif", "caf", "people", STRIDE, category=18)(state, NOWHERE, 0)
    assert {one["category_id"] for one in state["objects"][0]} == {18, 90}
    assert {one["category_id"] for one in state["people"][0]} == {18}
    FindObjects("cifdet", "sure", STRIDE, least_score=0.95)(state, NOWHERE, 0)
    assert state["sure"] == [[]]
    with pytest.raises(UserError, match="cifdet has 2 fields, but there are 1 categories"):
        FindObjects("cifdet", "more", STRIDE, categories=things[:1])(state, NOWHERE, 0)
    for kind, names in ((FindPeople, ("cif", "caf")), (FindObjects, ("cifdet",))):
        with pytest.raises(ValueError, match="stride: missing"):
            kind(*names, "people")


def test_overlays_lie_where_the_people_are():
    state = state_of(annotated())
    FindPeople("cif", "caf", "people", STRIDE)(state, NOWHERE, 0)
    FindObjects("cifdet", "objects", STRIDE)(state, NOWHERE, 0)
    for options, output in (({"people": "people"}, "people_drawn"), ({"objects": "objects"}, "objects_drawn")):
        Overlays("image", output, **options)(state, NOWHERE, 0)
    zoom = state["people_drawn"].shape[2] // SIZE[0]
    grey = state["people_drawn"][0, :, 0, 0]
    drawn = (state["people_drawn"][0] - grey[:, None, None]).abs().sum(dim=0).numpy() > 0.1
    shin = (POSE[13] + POSE[15]) / 2  # between left knee and ankle, in the picture's pixels
    assert drawn[int(shin[1] * zoom), int(shin[0] * zoom)]
    assert not drawn[:, : int(40 * zoom)].any()
    boxes = (state["objects_drawn"][0] - grey[:, None, None]).abs().sum(dim=0).numpy() > 0.1
    x, y, width, height = annotated().boxes[0]
    assert boxes[int((y + height / 2) * zoom), round(x * zoom)]
    assert not boxes[int((y + height / 2) * zoom), int((x + width / 2) * zoom)]
