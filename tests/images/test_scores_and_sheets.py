"""Scores against scikit-image and formulas in NumPy float64; sheets of a dump."""

import re
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from dumps_by_hand import dump_of, sealed
from skimage.color import rgb2ycbcr
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from torch import Tensor

from figura.base.errors import UserError
from figura.dump import Dump, write_value
from figura.report.interfaces import Bootstrap, NotApplicableError
from models.images.scores import (
    Diversity,
    Fidelity,
    MeanLosses,
    decibels,
    l1,
    luma,
    masked,
    ms_ssim,
    psnr,
    scales_of,
    ssim,
)
from models.images.sheets import Draws, Extremes, Sheet, error_map, row_label


def pair(size: int = 64) -> tuple[Tensor, Tensor]:
    """Two smooth images, (3, 3, size, size) in [-1, 1], and noisy copies of them."""
    random = torch.Generator().manual_seed(5)
    coarse = torch.rand(3, 3, 8, 8, generator=random, dtype=torch.float64) * 2 - 1
    target = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic").clamp(-1, 1)
    return (target + 0.2 * torch.randn(target.shape, generator=random, dtype=torch.float64)).clamp(-1, 1), target


def test_l1_and_psnr_by_hand_and_over_a_mask() -> None:
    image, target = pair()
    differences = np.abs(image.numpy() - target.numpy())
    squares = (differences**2).mean((1, 2, 3))
    np.testing.assert_allclose(l1(image, target), differences.mean((1, 2, 3)), atol=1e-12)
    np.testing.assert_allclose(psnr(image, target), 20 * np.log10(2 / np.sqrt(squares)), atol=1e-9)
    mask = torch.zeros(3, 1, 64, 64, dtype=torch.float64)
    mask[:, :, 10:20, 5:50] = 1
    mask[:, :, 20] = 0.5
    weights = mask.numpy()[:, 0]
    for power, found in ((1, masked((image - target).abs(), mask)), (2, masked((image - target).square(), mask))):
        expected = ((differences**power).mean(1) * weights).sum((1, 2)) / weights.sum((1, 2))
        np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(decibels(torch.tensor([4.0, 0.04])), [0, 20], atol=1e-5)  # of a peak to peak of 2


def test_ssim_is_that_of_scikit_image() -> None:
    image, target = pair()
    expected = [
        structural_similarity(
            a, b, channel_axis=0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=2.0
        )
        for a, b in zip(image.numpy(), target.numpy(), strict=True)
    ]
    np.testing.assert_allclose(ssim(image, target), expected, atol=1e-6)


@pytest.mark.parametrize("size", [(33, 47), (46, 177)])
def test_ms_ssim_is_that_of_its_paper(size: tuple[int, int]) -> None:
    """Wang et al. 2003, equation 7, from scikit-image's maps: windows inside at every scale."""
    assert [scales_of(side) for side in (16, 21, 22, 175, 176)] == [1, 1, 2, 4, 5]
    images = [whole[..., : size[0], : size[1]] for whole in pair(max(size))]
    exponents = np.array([0.0448, 0.2856, 0.3001, 0.2363, 0.1333])[: scales_of(min(size))]
    exponents /= exponents.sum()
    for a, b, value in zip(*(image.numpy() for image in images), ms_ssim(*images), strict=True):
        expected = 1.0
        for scale, exponent in enumerate(exponents):
            # with a luminance constant that swamps the means, the map is contrast times structure
            last = scale == len(exponents) - 1
            _, similarity = structural_similarity(
                a, b, channel_axis=0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=2.0,
                full=True, **({} if last else {"K1": 1e6}),
            )  # fmt: skip
            expected *= max(similarity[:, 5:-5, 5:-5].mean(), 0.0) ** exponent
            a, b = (quarter(image) for image in (a, b))
        assert float(value) == pytest.approx(expected, abs=1e-6)


def quarter(image: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 pixels of (C, H, W), odd sides extended by their last row or column."""
    padded = np.pad(image, [(0, 0), (0, image.shape[1] % 2), (0, image.shape[2] % 2)], mode="edge")
    return (padded[:, ::2, ::2] + padded[:, 1::2, ::2] + padded[:, ::2, 1::2] + padded[:, 1::2, 1::2]) / 4


def test_luma_is_that_of_scikit_image() -> None:
    image, _ = pair()
    expected = [rgb2ycbcr((a + 1) / 2, channel_axis=0)[0] for a in image.numpy()]  # 16 to 235
    np.testing.assert_allclose(luma(image)[:, 0] * 127.5, expected, atol=1e-10)
    ends = luma(torch.tensor([-1.0, 1.0]).view(2, 1, 1, 1).expand(2, 3, 1, 1)).flatten()
    np.testing.assert_allclose(ends, [16 / 127.5, 235 / 127.5], atol=1e-6)


def test_fidelity_as_super_resolution_papers_have_it(tmp_path: Path) -> None:
    """Without the border, on Y with a peak of 255; a baseline saved among the inputs is judged like an image."""
    image, target = (x.float() for x in pair())
    image[..., :4, :] = image[..., -4:] = 1.0  # in the border alone
    mask = torch.ones(3, 1, 64, 64)
    mask[..., :30] = 0
    dump = dump_of(tmp_path, image=image, target=target, mask=mask)
    dump.table["file.bicubic"] = dump.table["file.image"]
    settings = {"mode": "m", "image": "bicubic", "target": "target", "mask": "mask", "crop_border": 4}
    found = Fidelity(**settings, channel="y")(dump, Bootstrap(20, 0.9, 0))  # type: ignore[arg-type]
    names = {"l1_y", "psnr_y", "ssim_y", "ms_ssim_y", "ms_ssim_scales_y", "l1_person_y", "psnr_person_y", "images"}
    assert found.keys() == names
    levels = [
        [rgb2ycbcr((a.double().numpy() + 1) / 2, channel_axis=0)[0][4:-4, 4:-4] for a in x] for x in (image, target)
    ]
    pairs = list(zip(*levels, strict=True))
    expected = np.mean([peak_signal_noise_ratio(b, a, data_range=255) for a, b in pairs])
    assert found["psnr_y"]["value"] == pytest.approx(expected, rel=1e-5)  # type: ignore[index]
    window = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 255}
    expected = np.mean([structural_similarity(a, b, **window) for a, b in pairs])
    assert found["ssim_y"]["value"] == pytest.approx(expected, abs=1e-5)  # type: ignore[index]
    expected = np.mean([np.abs(a - b)[:, 26:].mean() / 127.5 for a, b in pairs])
    assert found["l1_person_y"]["value"] == pytest.approx(expected, rel=1e-5)  # type: ignore[index]
    cropped = Fidelity(**settings)(dump, Bootstrap(20, 0.9, 0))  # type: ignore[arg-type]
    difference = (image - target)[..., 4:-4, 4:-4].double().numpy()
    assert cropped["l1"]["value"] == pytest.approx(np.abs(difference).mean(), rel=1e-5)  # type: ignore[index]
    expected = np.mean(10 * np.log10(4 / (difference**2).mean((1, 2, 3))))
    assert cropped["psnr"]["value"] == pytest.approx(expected, rel=1e-5)  # type: ignore[index]
    baseline = Fidelity(mode="m", average="mean", target="target")(dump, Bootstrap(20, 0.9, 0))
    expected = np.abs(target.numpy() - target.numpy().mean(0)).mean()
    assert baseline["l1"]["value"] == pytest.approx(expected, abs=1e-6)  # type: ignore[index]


def test_fidelity_of_images_of_several_sizes_and_of_none(tmp_path: Path) -> None:
    pairs = [[x[:1].float() for x in pair(size)] for size in (24, 24, 32, 24)]
    dump = dump_of(tmp_path / "s", image=[image[0] for image, _ in pairs], target=[target[0] for _, target in pairs])
    found = Fidelity(mode="m", image="image", target="target")(dump, Bootstrap(20, 0.9, 0))
    assert found["images"] == 4
    assert found["psnr"]["value"] == pytest.approx(np.mean([psnr(a, b).item() for a, b in pairs]), rel=1e-6)  # type: ignore[index]
    with pytest.raises(ValueError, match="either image or average"):
        Fidelity(mode="m", target="target")
    image, target = (x.float() for x in pair(24))
    dump = dump_of(tmp_path, image=image[:, :1], target=target[:, :1])
    with pytest.raises(UserError, match="channel y is made of three"):
        Fidelity(mode="m", image="image", target="target", channel="y")(dump, Bootstrap(20, 0.9, 0))
    with pytest.raises(UserError, match="24 px without a border of 7 on both sides are fewer than the 11 of SSIM"):
        Fidelity(mode="m", image="image", target="target", crop_border=7)(dump, Bootstrap(20, 0.9, 0))


@pytest.mark.parametrize("shape", [(1, 24, 24), (24, 24), (3, 24, 23)])
def test_other_shapes_are_not_broadcast(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """All but the last fit to (3, 24, 24) by NumPy's rules, and would give a plausible number."""
    image, target = (x.float() for x in pair(24))
    folder = dump_of(tmp_path, image=image, target=target, mask=torch.ones(3, 1, 24, 24)).folder
    for path in ("averages/mean.npy", "image/0.npy", "mask/0.npy"):
        write_value(folder / path, torch.zeros(shape))
    dump, said = Dump(sealed(folder)), re.escape(str(shape))
    with pytest.raises(UserError, match=rf"the average 'mean' has the shape {said}, targets \(3, 24, 24\)"):
        Fidelity(mode="m", average="mean", target="target")(dump, Bootstrap(20, 0.9, 0))
    with pytest.raises(UserError, match=rf"images have the shape {said}, targets \(3, 24, 24\)"):
        Fidelity(mode="m", image="image", target="target")(dump, Bootstrap(20, 0.9, 0))
    if shape != (1, 24, 24):  # that of a mask
        with pytest.raises(UserError, match=rf"mask 'mask' has the shape {said}"):
            Fidelity(mode="m", image="target", target="target", mask="mask")(dump, Bootstrap(20, 0.9, 0))


def test_draws_of_an_example_are_resampled_together(tmp_path: Path) -> None:
    """Three equal draws tell no more than one of them: their intervals are those of one."""
    image, target = (one.float().repeat(2, 1, 1, 1)[:5] for one in pair(16))
    image *= torch.linspace(0.2, 1, 5)[:, None, None, None]
    once, thrice = (
        Fidelity("m", "target", "image")(
            dump_of(tmp_path / str(n), repeat=n, image=image.repeat_interleave(n, 0), target=target),
            Bootstrap(99, 0.9, 0),
        )
        for n in (1, 3)
    )
    assert once.pop("images") * 3 == thrice.pop("images") == 15
    assert once["psnr"]["low"] < once["psnr"]["value"] < once["psnr"]["high"]
    for name, estimate in once.items():
        assert thrice[name] == pytest.approx(estimate)


def test_mean_losses_of_a_mode(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "mode": ["m", "m", "m", "other"],
            "loss.caf": [1.0, 2.0, np.nan, 9.0],
            "loss.caf.vector": [0.5, 0.5, np.nan, 9.0],
            "loss.absent": [np.nan, np.nan, np.nan, 1.0],
        }
    )
    table.to_csv(tmp_path / "examples.csv", index=False)
    found = MeanLosses("m")(Dump(sealed(tmp_path)), Bootstrap(50, 0.9, 0))
    assert found.keys() == {"caf", "caf.vector", "instances"}
    assert found["caf"]["value"] == 1.5  # type: ignore[index]
    assert found["caf.vector"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert found["instances"] == 3
    table[["mode"]].to_csv(tmp_path / "examples.csv", index=False)
    with pytest.raises(UserError, match="no loss"):
        MeanLosses("m")(Dump(sealed(tmp_path)), Bootstrap(50, 0.9, 0))


def test_diversity_of_draws_by_hand(tmp_path):
    """Draws of 0, 0.3 and 0.9 differ by 0.3, 0.9 and 0.6, on average 0.6; from 0.5 by 0.5, 0.2 and 0.4."""
    image = torch.tensor([0.0, 0.3, 0.9, 0.1, 0.1, 0.1]).reshape(6, 1, 1, 1).repeat(1, 3, 2, 2)
    target = torch.full((2, 3, 2, 2), 0.5)
    image[..., 1] += 5 * torch.arange(6)[:, None, None]  # where the mask is 0
    mask = torch.tensor([1.0, 0.0]).expand(2, 1, 2, 2)
    dump = dump_of(tmp_path / "draws", repeat=3, image=image, target=target, mask=mask, columns={"who": [1] * 6})
    score = Diversity(mode="m", image="image", target="target", mask="mask", groups="who")
    found = score(dump, Bootstrap(20, 0.9, seed=0))
    assert found["examples"] == 2
    assert found["draws"]["value"] == pytest.approx((0.6 + 0) / 2)
    assert found["to_target"]["value"] == pytest.approx((1.1 / 3 + 0.4) / 2)
    whole = Diversity(mode="m", image="image", target="target")(dump, Bootstrap(20, 0.9, seed=0))
    assert whole["draws"]["value"] > 3
    single = dump_of(tmp_path / "single", image=target, target=target)
    with pytest.raises(NotApplicableError, match="draws every example once"):
        Diversity(mode="m", image="image", target="target")(single, Bootstrap(20, 0.9, seed=0))


def test_diversity_leaves_out_examples_whose_mask_is_empty(tmp_path):
    """Draws of 0 and 0.4 of the first differ by 0.4; from 0.5 by 0.5 and 0.1. Nothing of the second counts."""
    image = torch.tensor([0.0, 0.4, 0.0, 1.0]).reshape(4, 1, 1, 1).repeat(1, 3, 2, 2)
    target, mask = torch.full((2, 3, 2, 2), 0.5), torch.tensor([1.0, 0.0]).reshape(2, 1, 1, 1).repeat(1, 1, 2, 2)
    score = Diversity(mode="m", image="image", target="target", mask="mask")
    dump = dump_of(tmp_path / "some", repeat=2, image=image, target=target, mask=mask)
    found = score(dump, Bootstrap(20, 0.9, seed=0))
    assert found["examples"] == 1
    assert found["draws"]["value"] == pytest.approx(0.4)
    assert found["to_target"]["value"] == pytest.approx(0.3)
    none = dump_of(tmp_path / "none", repeat=2, image=image, target=target, mask=torch.zeros(2, 1, 2, 2))
    with pytest.raises(NotApplicableError, match="the mask 'mask' is empty in all examples"):
        score(none, Bootstrap(20, 0.9, seed=0))


@pytest.mark.parametrize(("target", "mask"), [((1, 4, 4), (1, 4, 4)), ((3, 4, 1), (1, 4, 1)), ((3, 4, 4), (1, 4, 1))])
def test_diversity_of_other_shapes_says_which(tmp_path, target, mask):
    dump = dump_of(tmp_path, repeat=2, image=torch.rand(4, 3, 4, 4), target=torch.rand(2, *target),
                   mask=torch.ones(2, *mask))  # fmt: skip
    said = re.escape(f"draws have the shape (3, 4, 4), targets {target}, mask 'mask' {mask}; all of one height")
    with pytest.raises(UserError, match=said):
        Diversity("m", "image", "target", "mask")(dump, Bootstrap(20, 0.9, 0))


# --- sheets: which examples they show, and what their rows say ---

SIDE = 400  # labels need one line
LEVELS = [0.5, -1.0, 1.0, 0.0]
LOSSES = [0.25, 4.0, 0.125, 1.0]


@pytest.fixture
def four(tmp_path):
    """Four examples of a mode: pictures of one level each."""
    rows = []
    for index, (level, loss) in enumerate(zip(LEVELS, LOSSES, strict=True)):
        write_value(tmp_path / f"{index}.image.png", torch.full((3, SIDE, SIDE), level))
        rows.append({
            "mode": "m", "index": 10 * index, "dataset": "people", "name": f"street/{index}", "person_id": 7 + index,
            "seen": index % 2, "loss.l1": loss, "file.image": f"{index}.image.png",
        })  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "examples.csv", index=False)
    return Dump(sealed(tmp_path))


def levels(path):
    """The levels of the pictures in the first column of a sheet, from above."""
    sheet = cv2.imread(str(path))
    assert (len(sheet) - 18) % (18 + SIDE + 2) == 0
    tops = range(18 + 18, len(sheet), 18 + SIDE + 2)
    return [float(sheet[y + SIDE // 2, SIDE // 2, 0]) / 127.5 - 1 for y in tops]


def test_a_row_says_which_example_it_shows(four):
    rows = four.mode("m")
    assert row_label(rows, 2) == "l1 0.125  index 20  name street/2  person_id 9"
    assert row_label(rows, 1, "loss.l1") == "l1 4  index 10  name street/1  person_id 8"
    rows.table["dataset"] = ["people", "people", "others", "people"]
    assert row_label(rows, 2) == "l1 0.125  index 20  dataset others  name street/2  person_id 9"


@pytest.mark.parametrize(("largest", "places"), [(True, [1, 3, 0]), (False, [2, 0, 3])])
def test_extremes(four, tmp_path, largest, places):
    Extremes("m", "loss.l1", ["image"], 3, largest)(four, tmp_path / "sheet.png")
    assert levels(tmp_path / "sheet.png") == pytest.approx([LEVELS[place] for place in places], abs=0.01)
    with pytest.raises(NotApplicableError, match=r"no 'loss\.l2' but loss\.l1: losses of weight 0 are not"):
        Extremes("m", "loss.l2", ["image"], 3, largest)(four, tmp_path / "other.png")
    four.table["who"] = [*"abcd"]
    with pytest.raises(UserError, match="'who' has texts; numbers are needed"):
        Extremes("m", "who", ["image"], 3, largest)(four, tmp_path / "other.png")


def test_extremes_are_of_examples_that_have_a_value(four, tmp_path):
    four.table.loc[1, "loss.l1"] = np.nan
    Extremes("m", "loss.l1", ["image"], 4, True)(four, tmp_path / "sheet.png")
    assert levels(tmp_path / "sheet.png") == pytest.approx([LEVELS[place] for place in (3, 0, 2)], abs=0.01)
    four.table["loss.l1"] = np.nan
    with pytest.raises(NotApplicableError, match=r"no example of mode 'm' has a 'loss\.l1'"):
        Extremes("m", "loss.l1", ["image"], 4, True)(four, tmp_path / "other.png")


def test_the_colours_of_errors():
    zeros = np.zeros((3, 1, 3), np.float32)
    errors = np.stack([np.array([[0.0, 0.25, -2.0]], np.float32)] * 3)
    black, red, yellow = error_map(errors, zeros)[0].tolist()
    assert max(black) < 5
    assert red == pytest.approx([188, 55, 84], abs=4)
    assert yellow == pytest.approx([252, 255, 164], abs=4)
    assert error_map(np.array([[[0.75]], [[0.0]], [[0.0]]], np.float32), zeros[:, :, :1])[0, 0].tolist() == red
    with pytest.raises(UserError, match=r"shapes \(3, 1, 3\) and \(3, 1, 2\) cannot be drawn"):
        error_map(errors, zeros[:, :, :2])


def test_a_sheet_of_some_examples(four, tmp_path):
    Sheet("m", ["image"], 8, where="seen")(four, tmp_path / "sheet.png")
    assert levels(tmp_path / "sheet.png") == pytest.approx([LEVELS[1], LEVELS[3]], abs=0.01)
    four.table["seen"] = 0
    with pytest.raises(NotApplicableError, match="seen holds for none of the 4 examples of mode 'm'"):
        Sheet("m", ["image"], 8, where="seen")(four, tmp_path / "other.png")
    assert not (tmp_path / "other.png").exists()


def test_draws_name_their_example(four, tmp_path):
    table = pd.concat([four.table.assign(draw=draw) for draw in range(2)])
    Draws("m", "image", "image", 2)(Dump(four.folder, table), tmp_path / "sheet.png")
    assert levels(tmp_path / "sheet.png") == pytest.approx([LEVELS[0], LEVELS[2]], abs=0.01)
    assert np.shape(cv2.imread(str(tmp_path / "sheet.png")))[1] == 3 * (SIDE + 2)
