"""The protocol of super-resolution papers: by hand, and the published figures of bicubic interpolation."""

import math

import numpy as np
import pytest
import torch
from dumps_by_hand import dump_of
from PIL import Image
from real_people import REAL as REAL_PEOPLE
from skimage.metrics import structural_similarity

from figura.base.errors import UserError
from figura.report.interfaces import Bootstrap
from models.super_resolution.patches import Patches
from models.super_resolution.resampling import resample
from models.super_resolution.scores import Benchmark

REAL = REAL_PEOPLE.with_name("super_resolution_real")
LUMA = np.array([65.481, 128.553, 24.966]) / 255
PUBLISHED = {  # bicubic interpolation at x2, x3, x4, dB (Kim et al., VDSR, CVPR 2016, table 4)
    "set5": (33.66, 30.39, 28.42),
    "set14": (30.24, 27.55, 26.00),
    "b100": (29.56, 27.21, 25.96),
}


def levels_of(images):
    """Of pictures in [-1, 1]: 0 to 255, (N, H, W, 3), float64."""
    return ((images.double() + 1) * 127.5).permute(0, 2, 3, 1).numpy()


def psnr(image, target):
    return 10 * math.log10(255**2 / np.square(image - target).mean())


def test_luma_without_a_border_dataset_by_dataset(tmp_path):
    torch.manual_seed(0)
    target = torch.rand(3, 3, 24, 20) * 2 - 1
    image = (target + 0.1 * torch.randn(target.shape)).clamp(-1, 1)
    columns = {"dataset": ["a", "a", "b"], "grey": [0, 0, 1]}
    dump = dump_of(tmp_path, target=target, sr=image, columns=columns)
    found = Benchmark(mode="m", target="target", image="sr", scale=3)(dump, Bootstrap(10, 0.95, 0))
    inside = np.s_[:, 3:-3, 3:-3]
    ours, true = (levels_of(x)[inside] for x in (image, target))
    lumas = [(x @ LUMA + 16, y @ LUMA + 16) for x, y in zip(ours, true, strict=True)]
    assert found["a_psnr_y"]["value"] == pytest.approx(np.mean([psnr(*pair) for pair in lumas[:2]]), abs=1e-4)
    assert found["b_psnr_y"]["value"] == pytest.approx(psnr(ours[2, ..., 0], true[2, ..., 0]), abs=1e-4)
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 255}
    ssims = [structural_similarity(*pair, **options) for pair in lumas[:2]]
    assert found["a_ssim_y"]["value"] == pytest.approx(np.mean(ssims), abs=1e-4)
    assert (found["a_images"], found["b_images"]) == (2, 1)
    as_luma = Benchmark(mode="m", target="target", image="sr", scale=3, grey_as_luma=True)(dump, Bootstrap(10, 0.95, 0))
    assert as_luma["b_psnr_y"]["value"] == pytest.approx(psnr(*lumas[2]), abs=1e-4)
    with pytest.raises(UserError, match="20 px without a border of 5 on both sides are fewer than the 11"):
        Benchmark(mode="m", target="target", image="sr", scale=5)(dump, Bootstrap(10, 0.95, 0))


def test_draws_of_an_example_are_resampled_together(tmp_path):
    target = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    image = target * torch.linspace(0.2, 0.9, 5)[:, None, None, None]
    once, thrice = (
        Benchmark("m", "target", "sr", 2)(
            dump_of(
                tmp_path / str(n), repeat=n, sr=image.repeat_interleave(n, 0), target=target, columns={"dataset": "a"}
            ),
            Bootstrap(99, 0.9, 0),
        )
        for n in (1, 3)
    )
    assert thrice["a_psnr_y"] == pytest.approx(once["a_psnr_y"])
    assert once["a_psnr_y"]["low"] < once["a_psnr_y"]["high"]


def test_patches_say_which_files_are_grey(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    for name, mode in {"a": "L", "b": "RGB", "c": "LA"}.items():
        Image.new(mode, (8, 8), 7 if mode == "L" else (7,) * len(mode)).save(folder / f"{name}.png")
    for mode in ("I;16", "I;16B"):  # in either order of bytes
        Image.frombytes(mode, (8, 8), bytes(128)).save(folder / f"{mode}.tif")
    patches = Patches(root=str(tmp_path), split="train", scale=2, size=None)
    assert [patches[index]["grey"] for index in range(5)] == [1, 1, 1, 0, 1]


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("dataset", PUBLISHED)
def test_bicubic_interpolation_has_the_published_figures(dataset, scale):
    """As SRCNN's authors made them: the luma in 8 bits, made small in floating point, and enlarged to 8 bits."""
    paths = sorted((REAL / dataset).glob("*"))
    if not paths:
        pytest.skip(f"{REAL / dataset} is missing")
    figures = []
    for path in paths:
        with Image.open(path) as picture:
            grey, pixels = picture.mode == "L", np.asarray(picture.convert("RGB"), dtype=np.float64)
        height, width = (side - side % scale for side in pixels.shape[:2])
        pixels = pixels[:height, :width]
        luma = np.rint(pixels[..., 0] if grey else pixels @ LUMA + 16).astype(np.float32)
        small = resample(luma[..., None], (height // scale, width // scale), "bicubic")
        large = np.rint(resample(small, (height, width), "bicubic").clip(0, 255))[..., 0]
        inside = np.s_[scale:-scale, scale:-scale]
        figures.append(psnr(large[inside].astype(np.float64), luma[inside].astype(np.float64)))
    assert np.mean(figures) == pytest.approx(PUBLISHED[dataset][(2, 3, 4).index(scale)], abs=0.01)
