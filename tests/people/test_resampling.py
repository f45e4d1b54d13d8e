"""Drawn pictures: interpolation, and the same bytes whatever the processor can do."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from figura.synthetic.resampling import cubic, enlarge, linear, sample

ROOT = Path(__file__).parents[2]
NO_AVX = "glibc.cpu.hwcaps=-AVX2,-AVX,-FMA,-FMA4,-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD,-ERMS"
OLDER_PROCESSOR = {
    "OPENCV_CPU_DISABLE": "AVX512-SKX,AVX2,FMA3,FP16,AVX,SSE4.2,SSE4.1",
    "OPENCV_IPP": "sse42",
    "NPY_DISABLE_CPU_FEATURES": "AVX512_SPR,AVX512_ICL,X86_V4,X86_V3",
    "OPENBLAS_CORETYPE": "Nehalem",
    "GLIBC_TUNABLES": NO_AVX,
    "JSIMD_FORCENONE": "1",  # libjpeg
}
# Scenes and pairs of which OpenCV's own interpolation made other pictures under one of these variables.
SCENES, PAIRS = (16, 20, 24, 36, 41, 81), (163, 194)
LOOK = {
    "views": {"front": 0.6, "back": 0.2, "side": 0.2},
    "poses": {"standing": 0.25, "walking": 0.25, "waving": 0.2, "sitting": 0.1, "crouching": 0.1, "arms_up": 0.1},
    "limb_thickness": 1.2,
    "head_size": 1.2,
}
PEOPLE_SETTINGS = LOOK | {
    "image_size": 192,
    "jpeg_quality": 92,
    "scenes": {"train": 1, "validation": 1},
    "identities": {"train": 600, "validation": 60},
    "people_per_scene": {"2": 0.5, "3": 0.5},
    "objects_per_scene": {"1": 1.0},
    "height_range": [0.5, 0.9],
    "max_overlap": 0.3,
    "cut_share": 0.06,
    "crowd_share": 0.02,
    "clutter": 12,
}
PAIR_SETTINGS = LOOK | {
    "image_size": 80,
    "pairs": {"train": 1, "validation": 1},
    "tops": 8,
    "bottoms": 6,
    "skins": 6,
    "hairs": 6,
    "shoes": 3,
    "height_range": [0.8, 0.95],
}
HASHES = f"""
import hashlib, json, sys
import cv2, numpy as np
from figura.synthetic import SyntheticSettings
from figura.synthetic.writer import annotations
from figura.synthetic.catalogue import CatalogueSettings, draw_pair
from figura.synthetic.scene import draw_scene

cv2.setNumThreads(1)
people = SyntheticSettings.model_validate_json(sys.argv[1])
pairs = CatalogueSettings.model_validate_json(sys.argv[2])
made = {{}}
for index in {SCENES}:
    scene = draw_scene(people, seed=7, split="train", index=index)
    file = cv2.imencode(".jpg", scene.picture, [cv2.IMWRITE_JPEG_QUALITY, people.jpeg_quality])[1].tobytes()
    made |= {{f"scene {{index}}": scene.picture.tobytes(), f"file {{index}}": file}}
    made[f"annotations {{index}}"] = json.dumps(annotations(scene, index + 1)).encode()
for index in {PAIRS}:
    made[f"pair {{index}}"] = np.hstack(draw_pair(pairs, seed=7, split="train", index=index)).tobytes()
print(json.dumps({{name: hashlib.sha256(content).hexdigest() for name, content in made.items()}}))
"""


def hashes(variables: dict[str, str]) -> dict[str, str]:
    command = [sys.executable, "-c", HASHES, json.dumps(PEOPLE_SETTINGS), json.dumps(PAIR_SETTINGS)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variables name features of x86-64")
def test_people_and_pairs_are_the_same_bytes_whatever_the_processor_can_do():
    assert hashes(OLDER_PROCESSOR) == hashes({})


def test_linear_interpolation_between_two_pixels_by_hand():
    row = np.array([[[0.0], [8.0]]])
    assert enlarge(row, 1, 4, linear).ravel().tolist() == [0.0, 2.0, 6.0, 8.0]
    assert enlarge(row.transpose(1, 0, 2), 4, 1, linear).ravel().tolist() == [0.0, 2.0, 6.0, 8.0]


def test_cubic_weights_sum_to_one_and_hit_the_pixels():
    fractions = np.linspace(0.0, 1.0, 9)
    weights = cubic(fractions)
    np.testing.assert_allclose(sum(weights.values()), 1.0, atol=1e-12)
    assert [weights[offset][0] for offset in (-1, 0, 1, 2)] == [0.0, 1.0, 0.0, 0.0]
    # halfway, by hand from Keys' kernel with a = -0.75: 9/16 + 1/32 for the inner pixels, a / 8 for the outer ones
    assert [weights[offset][4] for offset in (-1, 0, 1, 2)] == [-0.09375, 0.59375, 0.59375, -0.09375]


@pytest.mark.parametrize(("kernel", "method"), [(linear, cv2.INTER_LINEAR), (cubic, cv2.INTER_CUBIC)])
def test_enlarging_is_what_opencv_does_but_for_rounding(kernel, method):
    grid = np.random.default_rng(0).uniform(0.0, 255.0, (7, 5, 3))
    expected = cv2.resize(grid.astype(np.float32), (83, 41), interpolation=method)
    np.testing.assert_allclose(enlarge(grid, 41, 83, kernel), expected, atol=1e-3)


@pytest.mark.parametrize("height", [1, 9])
def test_sampling_is_what_opencv_does_but_for_rounding(height):
    random = np.random.default_rng(height)
    texture = random.integers(0, 256, (height, 12, 3), dtype=np.uint8)
    mask = random.random((40, 30)) < 0.5
    matrix = np.array([[0.3, -0.4, 5.0], [0.25, 0.3, -2.5]])  # leaves the texture on all sides
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    expected = cv2.warpAffine(texture, matrix, (30, 40), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    difference = sample(texture, matrix, mask).astype(int) - expected[mask]
    assert np.abs(difference).max() <= 1
    assert (difference != 0).mean() < 0.01
