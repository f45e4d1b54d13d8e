"""Random changes of what a discriminator sees: by hand, alike for all names, with gradients."""

import numpy as np
import pytest
import torch

from models.images.differentiable_augmentation import DifferentiableAugmentation, cut_out, recolored, translated

NAMES = {"x": "x_seen", "y": "y_seen"}


def test_colors_by_hand():
    picture = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4, 5))
    drawn = np.array([[0.1, 0.7, 0.9], [0.8, 0.2, 0.0]])
    for one, (brightness, saturation, contrast), result in zip(
        picture, drawn, recolored(torch.from_numpy(picture), torch.from_numpy(drawn)).numpy(), strict=True
    ):
        bright = one + brightness - 0.5
        vivid = bright.mean(0) + 2 * saturation * (bright - bright.mean(0))
        np.testing.assert_allclose(result, vivid.mean() + (0.5 + contrast) * (vivid - vivid.mean()), atol=1e-12)


@pytest.mark.parametrize(("drawn", "moved"), [(0.0, -2), (0.5, 0), (0.79, 1), (1.0, 2)])
def test_a_picture_moves_by_whole_pixels_and_zeros_move_in(drawn, moved):
    picture = torch.arange(1.0, 129).view(1, 1, 16, 8)  # an eighth of 16 is 2, of 8 is 1
    numbers = torch.tensor([[drawn, 0.5]])
    expected = np.roll(picture.numpy(), moved, axis=2)
    if moved:
        expected[:, :, slice(0, moved) if moved > 0 else slice(moved, None)] = 0
    np.testing.assert_array_equal(translated(picture, numbers, 0.125).numpy(), expected)


def test_each_shift_is_as_frequent():
    side = torch.rand(50_000, 2, generator=torch.Generator().manual_seed(1))
    column = torch.zeros(50_000, 1, 9, 1)
    column[:, :, 4] = 1
    place = translated(column, side, 0.25).argmax(dim=2).flatten()
    counts = torch.bincount(place, minlength=9)[2:7]
    assert counts.sum() == 50_000
    assert (counts.double() / 10_000 - 1).abs().max() < 0.05


def test_a_rectangle_is_cut_out():
    picture = torch.ones(2, 3, 8, 6)
    cut = cut_out(picture, torch.tensor([[0.5, 0.5], [0.0, 0.99]]), 0.5)
    expected = np.ones((2, 3, 8, 6))
    expected[0, :, 2:6, 2:5] = 0  # 4 x 3, around (4, 3)
    expected[1, :, 0:2, 4:6] = 0  # around (0, 5), of which the picture has a part
    np.testing.assert_array_equal(cut.numpy(), expected)


def test_names_are_changed_alike_and_labels_keep_their_colors():
    augment = DifferentiableAugmentation(NAMES, keep_color=["x"])
    pictures = torch.rand(64, 3, 16, 16) + 1
    torch.manual_seed(3)
    x, y = augment.compute([pictures, pictures], 0)
    torch.testing.assert_close(x == 0, y == 0)
    assert not torch.equal(x, y)
    torch.manual_seed(3)
    same = DifferentiableAugmentation({"a": "b", "c": "d"}).compute([pictures, pictures], 0)
    assert torch.equal(same[0], same[1])
    assert torch.equal(same[1], y)
    assert len({tuple((one == 0).flatten().tolist()) for one in y}) > 50  # each example its own


def test_without_a_policy_nothing_is_drawn():
    pictures = [torch.rand(1, 3, 4, 4)]
    before = torch.random.get_rng_state()
    assert DifferentiableAugmentation({"a": "b"}, policy=[]).compute(pictures, 0) is pictures
    assert torch.equal(before, torch.random.get_rng_state())


def test_gradients_by_finite_differences():
    augment = DifferentiableAugmentation({"a": "b"}, shift=0.25)

    def call(pictures):
        torch.manual_seed(5)
        return augment.compute([pictures], 0)[0]

    pictures = torch.rand(2, 3, 6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(call, (pictures,))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"keep_color": ["z"]}, "keep_color z: it is none of names"), ({"shift": 2.0}, "shift 2.0, cut 0.5: shares")],
)
def test_what_is_wrong_is_said(arguments, said):
    with pytest.raises(ValueError, match=said):
        DifferentiableAugmentation(NAMES, **arguments)
    with pytest.raises(ValueError, match="of one height and width are needed"):
        DifferentiableAugmentation(NAMES).compute([torch.rand(1, 3, 4, 4), torch.rand(1, 3, 5, 4)], 0)
