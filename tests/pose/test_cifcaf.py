import decoder_by_hand as by_hand
import numpy as np
import pytest
from standing_people import SIZE, scene_of, standing

from figura.data.formats.skeletons import COCO, skeleton_from
from models.pose.decode.cif_hr import Buffers, accumulate
from models.pose.decode.cifcaf import CifCafDecoder
from models.pose.decode.grow_poses import grow_connection, index
from models.pose.decode.occupancy import empty_grid, is_occupied, mark
from models.pose.encoders import Caf, Cif

K = len(COCO.keypoints)
LEFT = [5, 7, 9, 11, 13, 15]
LEFT_HIP = 11
BY_DISTANCE = [0.9, 0.858545, 0.838536, 0.82871, 0.82384]  # OpenPifPaf's values


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
        (pose,), (score,) = (
            (poses := CifCafDecoder(stride=8, force_complete=complete)(cif, caf)).keypoints,
            poses.scores,
        )
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

    def test_other_crowd(self):
        cif, caf = disturbed(*fields(*crowd(5), stride=16, size=(97, 145)), seed=5)
        expected = by_hand.Decoder(16, COCO.connections, COCO.score_weights)(cif, caf)
        assert_agrees(CifCafDecoder(stride=16)(cif, caf), expected)


class TestOptions:
    def test_dense_connections_join_what_is_apart(self):
        truth = standing(joints=[joint for joint in range(K) if joint not in (13, 14)])  # ankles hang on knees
        cif, caf = fields(truth, connections=("standard", "dense"))
        joined = {}
        for weight in (0.0, 1.0):
            found = CifCafDecoder(stride=8, dense_weight=weight)(cif, caf)
            joined[weight] = bool((found.keypoints[0, [15, 16], 2] > 0).all())
        assert joined == {0.0: False, 1.0: True}

    def test_other_skeleton(self):
        skeleton = skeleton_from(
            {
                "keypoints": ["a", "b", "c"],
                "sigmas": [0.1] * 3,
                "connections": [["a", "b"], ["b", "c"]],
                "standing_pose": [[0, 0], [1, 1], [2, 0]],
            }
        )
        cif, caf = np.zeros((3, 5, 9, 9), dtype=np.float32), np.zeros((2, 8, 9, 9), dtype=np.float32)
        for joint, (x, y) in enumerate([(2, 2), (5, 2), (5, 6)]):
            cif[joint, 1:, y - 1 : y + 3, x - 1 : x + 3] = np.reshape([0.9, x, y, 0.8], (4, 1, 1))
        caf[0, 1:, 2, 3:5] = np.reshape([0.9, 2, 2, 5, 2, 0.8, 0.8], (7, 1))
        caf[1, 1:, 3:5, 5] = np.reshape([0.9, 5, 2, 5, 6, 0.8, 0.8], (7, 1))
        found = CifCafDecoder(stride=8, skeleton=skeleton)(cif, caf)
        assert found.keypoints[0, :, :2].tolist() == [[16, 16], [40, 16], [40, 48]]

    def test_nms_before_completion_frees_joints(self):
        # a second, weaker seed beside the person's nose, out of its reach: a pose of one joint
        cif, caf = fields(standing())
        cif[0, 1:, 20:24, 20:24] = np.reshape([0.5, 21, 21, 0.4], (4, 1, 1))
        counts = {}
        for early in (False, True):
            decode = CifCafDecoder(stride=8, force_complete=True, nms_before_force_complete=early)
            counts[early] = len(decode(cif, caf))
        assert counts == {False: 2, True: 1}

    @pytest.mark.parametrize(("independent", "value"), [(False, 0.27), (True, 1e-5)])
    def test_independent_keypoints_keeps_the_threshold(self, independent, value):
        cif, caf = fields(standing())
        cif[15, 1] = 0  # no ankle: the connection that leads there counts a tenth, the ankle sqrt(0.09 * 0.82)
        thresholds = {"seed_threshold": 0.5, "keypoint_threshold": 0.5}
        decode = CifCafDecoder(stride=8, force_complete=True, independent_keypoints=independent, **thresholds)
        assert decode(cif, caf).keypoints[0, 15, 2] == pytest.approx(value, rel=0.02)

    def test_wrong_fields(self):
        decode = CifCafDecoder(stride=8)
        cif, caf = np.zeros((17, 5, 4, 4), np.float32), np.zeros((19, 8, 4, 4), np.float32)
        for wrong in ((cif[:16], caf), (cif, caf[:, :7]), (cif[..., :3], caf), (cif[0], caf), (cif[..., :0], caf)):
            with pytest.raises(ValueError, match="needed"):
                decode(*wrong)


def as_bytes(poses):
    return poses.keypoints.tobytes() + poses.scores.tobytes()


class TestSame:
    def test_again_and_in_batches(self):
        images = [disturbed(*fields(*crowd(seed), size=(129, 161)), seed=seed) for seed in range(4)]
        cif, caf = (np.stack(those) for those in zip(*images, strict=True))
        for complete in (False, True):
            decode = CifCafDecoder(stride=8, force_complete=complete)
            fresh = [as_bytes(CifCafDecoder(stride=8, force_complete=complete)(*image)) for image in images]
            assert [as_bytes(decode(*image)) for image in images] == fresh
            for workers in (1, 2):
                assert [as_bytes(poses) for poses in decode.batch(cif, caf, workers)] == fresh

    def test_views_and_read_only_fields(self):
        cif, caf = fields(standing())
        expected = as_bytes(CifCafDecoder(stride=8)(cif, caf))
        wide = np.stack([cif, cif], axis=-1).astype(np.float64)[..., 0]
        caf.setflags(write=False)
        assert as_bytes(CifCafDecoder(stride=8)(wide, caf)) == expected


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

    @pytest.mark.parametrize("complete", [False, True])
    def test_random_numbers(self, complete):
        generator = np.random.default_rng(7)
        decode = CifCafDecoder(stride=8, force_complete=complete)
        for magnitude in (1.0, 30.0, 1e4, 1e20):
            cif, caf = (
                (generator.normal(0, magnitude, (n, c, 13, 17))).astype(np.float32) for n, c in ((17, 5), (19, 8))
            )
            for field in (cif, caf):
                field[:, 1] = generator.random(field[:, 1].shape)
                strange = generator.random(field.shape)
                field[strange < 0.03] = np.nan
                field[strange > 0.97] = generator.choice([np.inf, -np.inf, 1e9, -1e9])
            found = decode(cif, caf)
            assert np.isfinite(found.keypoints).all()
            assert np.isfinite(found.scores).all()
            assert ((found.keypoints[:, :, 2] >= 0) & (found.keypoints[:, :, 2] <= 1)).all()
            if complete:
                assert (found.keypoints[:, :, 2] > 0).all()
