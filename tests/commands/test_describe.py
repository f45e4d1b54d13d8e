"""`figura describe`: what is printed of real recipes, against sizes by hand; pictures are written and repeatable."""

import gc
import re
from itertools import accumulate
from pathlib import Path

import cv2
import numpy as np
import people_of_noise
import pytest
import torch
import toy
import toy_pairs
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from bench.trainings import Case, start
from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.pictures import write_png
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.describe.activation_memory import record_saved
from figura.commands.describe.cards import CARDS, least_seconds
from figura.commands.describe.command import main
from figura.commands.describe.flops import flop_counter
from figura.commands.describe.footprint import largest_batch
from figura.commands.describe.meta_tensors import fused_attention

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pix2pix(tmp_path, monkeypatch):
    """A recipe with three pairs of noise as its data."""
    content = toy.shipped("recipes/pix2pix.yaml")
    for split in ("train", "validation"):
        content["data"][split]["pairs"]["root"] = "pairs"
    toy_pairs.write_noise(tmp_path / "pairs", 3, side=64)
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(to_yaml(content))
    return Path("recipe.yaml")


def test_parameters_and_operations_of_pix2pix(pix2pix, capsys):
    main([str(pix2pix)])
    said = capsys.readouterr().out
    # discriminator: 4 x 4 kernels 6 -> 32 -> 64 -> 128 -> 1, bias in the first and the last
    discriminator = 16 * (6 * 32 + 32 * 64 + 64 * 128 + 128) + 32 + 1
    assert re.search(rf"discriminator +pix2pix.PatchDiscriminator +{discriminator:,} +{discriminator:,} +D", said)
    # generator: down from 3 to 256 channels, a bottleneck, up with skips; bias where no norm follows
    kernels = 3 * 32 + 32 * 64 + 64 * 128 + 128 * 256 + 256 * 256
    kernels += 256 * 256 + 512 * 128 + 256 * 64 + 128 * 32 + 64 * 3
    generator = 16 * kernels + 32 + 256 + 3
    assert re.search(rf"generator +pix2pix.UNetGenerator +{generator:,} +{generator:,} +G", said)
    # the discriminator's FLOPs on 8 pictures: 32², 16² and 15² outputs of the strided and the last layers, by formula
    sides = {(6, 32): 32, (32, 64): 16, (64, 128): 15, (128, 1): 14}
    flops = 8 * sum(2 * 16 * a * b * side**2 for (a, b), side in sides.items())
    assert re.search(rf"judge +discriminator +x, y ← fake +judged_logits 8×1×14×14 +{flops / 1e9:.3f}", said)
    assert re.search(rf"judge +discriminator +x, y, fake +real_logits 8×1×14×14 +{2 * flops / 1e9:.3f}", said)
    assert "fake 8×3×64×64" in said
    assert re.search(r"G_L1 +images.L1 +image ← fake, target ← y +100\n", said)
    assert "of weight 0, not computed: G_L2, G_SOBEL, G_LAP, G_VGG" in said


def test_the_largest_batch_that_fits(pix2pix, capsys):
    assert largest_batch(8 * 2**30, 2**30, 2**30) == 4  # (8 - 1) / 1.4 - 1
    assert largest_batch(2**30, 10**6, 10**6) == 0
    main([str(pix2pix)])
    said = capsys.readouterr().out
    numbers = re.search(r"weights ([\d.]+) MiB, gradients ([\d.]+).* activations ([\d.]+) MiB; together ([\d.]+)", said)
    activations, total = float(numbers[3]), float(numbers[4])
    fitting = (7 * 1024 / 1.4 - (total - activations)) / (activations / 8)
    told = int(re.search(r"fit a GPU, estimated: 8 GB ([\d,]+), 16 GB", said)[1].replace(",", ""))
    assert told == pytest.approx(fitting, rel=0.01)


def test_the_least_time_on_a_gpu(pix2pix, capsys):
    computing, moving = (least_seconds(flops, 1e9, 2e9, CARDS["a100"]) for flops in (1e12, 1e9))
    assert computing == pytest.approx((1 / 156, 1 / 312))
    assert moving == pytest.approx((6 / 2039, 4 / 2039))
    with pytest.raises(UserError, match="leave --mode out"):
        main([str(pix2pix), "--gpu", "t4", "--mode", "translation"])
    main([str(pix2pix), "--gpu", "t4"])
    said = capsys.readouterr().out
    least = float(re.search(r"in all ([\d.]+) GFLOP", said)[1]) / 8.1  # ms, at 8.1 TFLOP/s
    found = re.search(r"on t4, .* takes at least ([\d.]+) ms or [\d.]+ ms .*, ([\d,]+) of them ([\d.]+) or", said)
    assert float(found[1]) == pytest.approx(least, rel=0.05)
    assert float(found[3]) == pytest.approx(least / 1e3 * int(found[2].replace(",", "")) / 3600, rel=0.05)
    content = read_yaml(pix2pix)
    content["train"]["accumulation"] = 2  # as much is kept and read, one half after the other
    pix2pix.write_text(to_yaml(content))
    main([str(pix2pix), "--gpu", "t4"])
    assert found[0] in capsys.readouterr().out


def test_the_picture_is_written_and_repeatable(pix2pix):
    for name in ("one.png", "two.png", "one.svg", "two.svg"):
        main([str(pix2pix), "--output", name])
    for suffix in ("png", "svg"):
        assert Path(f"one.{suffix}").read_bytes() == Path(f"two.{suffix}").read_bytes()
    picture = cv2.imread("one.png")[..., ::-1]
    for colour in ((0x2F, 0x6F, 0xB0), (0xD9, 0x79, 0x1F), (0xB0, 0x30, 0x3F)):  # generator, discriminator, losses
        assert (picture == colour).all(axis=2).sum() > 500


def test_a_mode_without_data_and_bad_options(pix2pix, capsys):
    main([str(pix2pix), "--mode", "translation", "--batch-size", "5", "--output", "mode.png"])
    said = capsys.readouterr().out
    assert "mode translation, 5 examples at a time" in said
    assert "fake 5×3×64×64" in said
    assert "backward" not in said
    assert Path("mode.png").stat().st_size > 1000
    Path("pairs").rename("elsewhere")
    main([str(pix2pix), "--output", "picture.svg"])
    said = capsys.readouterr().out
    assert "no shapes and no costs, as no example could be read: pairs/train: no such folder" in said
    assert "×64" not in said
    assert run(main, [str(pix2pix), "--output", "picture.jpeg"]) == 1
    assert "picture.jpeg: expected a file that ends in .svg or .png" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("channels", "groups", "forward"),
    [
        # outputs x channels x kernel x input channels of a group x 2
        ((8, 16), 1, 2 * (3 * 16 * 5 * 5) * 8 * 9),
        ((8, 16), 4, 2 * (3 * 16 * 5 * 5) * 2 * 9),
        ((64, 64), 64, 2 * (3 * 64 * 5 * 5) * 1 * 9),
    ],
)
def test_each_gradient_of_a_convolution_costs_its_forward(channels, groups, forward):
    image = torch.randn(3, channels[0], 10, 10, requires_grad=True)
    weight = torch.randn(channels[1], channels[0] // groups, 3, 3, requires_grad=True)
    with flop_counter() as counter:
        out = F.conv2d(image, weight, stride=2, padding=1, groups=groups)
        assert counter.get_total_flops() == forward
        out.sum().backward()
    assert counter.get_total_flops() == 3 * forward
    with flop_counter() as counter:  # nobody needs the gradient of the image
        F.conv2d(image.detach(), weight, stride=2, padding=1, groups=groups).sum().backward()
    assert counter.get_total_flops() == 2 * forward
    turned = torch.randn(3, channels[1], 5, 5, requires_grad=True)
    with flop_counter() as counter:  # every input reaches as many places of the output channels
        F.conv_transpose2d(turned, weight, stride=2, padding=1, groups=groups).sum().backward()
    assert counter.get_total_flops() == 3 * forward


@pytest.mark.parametrize("mask", [None, torch.zeros(64, 128, device="meta")], ids=["plain", "mask"])
def test_attention_saves_a_matrix_only_with_a_mask(mask):
    query, key, value = (torch.randn(2, 3, n, 8, device="meta", requires_grad=True) for n in (64, 128, 128))
    saved: dict[int, int] = {}
    with record_saved(saved), fused_attention(), flop_counter() as counter:
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert found.shape == query.shape
    assert counter.get_total_flops() == 2 * 2 * (2 * 3 * 64 * 128) * 8
    matrix, kept = 4 * 2 * 3 * 64 * 128, 4 * 2 * 3 * 8 * (64 + 128 + 128 + 64)
    few = 4 * 2 * 3 * 64 + 32  # a number a query, and the states of a random generator
    least, most = (kept, kept + few) if mask is None else (matrix, 2 * matrix)
    assert least <= sum(saved.values()) <= most
    found.sum().backward()
    assert query.grad.shape == query.shape


@pytest.mark.parametrize(
    ("file", "root"),
    [
        ("recipes/pix2pix.yaml", "pairs"),
        ("recipes/flow.yaml", "people"),  # attention
        ("recipes/super_resolution.yaml", "pairs"),  # holds the whole VGG19 and compares two layers
        pytest.param("params.yaml", "people", marks=pytest.mark.slow),
        pytest.param("recipes/pose.yaml", "people", marks=pytest.mark.slow),
        pytest.param("recipes/unpaired/cyclegan.yaml", "sets", marks=pytest.mark.slow),
    ],
    ids=lambda one: Path(one).stem,
)
def test_memory_is_that_of_a_real_step(file, root, tmp_path, monkeypatch, capsys):
    """The peak of all that PyTorch allocates from the construction to the second iteration."""
    people_of_noise.prepared(tmp_path / "people", [1, 1, 1, 2, 2, 2, 3, 3] * 2)
    toy_pairs.write_noise(tmp_path / "pairs", 8, side=64)
    for side in ("a", "b", "truth"):
        for split in ("train", "validation"):
            write_png(tmp_path / "sets" / split / side / "1.png", np.zeros((72, 72, 3), np.uint8))
    monkeypatch.chdir(tmp_path)
    case = Case(Path("recipe.yaml"), ("train.record_every=1000",))
    case.file.write_text(to_yaml(toy.changed({"data.common.root": root}, toy.shipped(file))))
    main([str(case.file)])
    estimated = float(re.search(r"; together ([\d.,]+) MiB", capsys.readouterr().out)[1])
    gc.collect()  # what earlier tests left would be freed in between
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        training = start(case.recipe(checkout=tmp_path), tmp_path / "run")
        training.step()  # makes the optimizers' states
        training.step()
    events = [one for one in profiled.profiler.kineto_results.events() if one.name() == "[memory]"]
    changes = [one.nbytes() for one in sorted(events, key=lambda one: one.start_ns())]
    assert 0.85 <= max(accumulate(changes)) / 2**20 / estimated <= 1.2
