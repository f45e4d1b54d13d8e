"""Losses on logits against their definitions in float64 NumPy."""

import numpy as np
import pytest
import torch

from models.images.classification_losses import BinaryCrossEntropy, CrossEntropy, Distillation

RANDOM = np.random.default_rng(5)
LOGITS = RANDOM.normal(0, 2, (3, 4, 2, 5))
LABELS = RANDOM.integers(0, 4, (3, 2, 5))
MASK = RANDOM.uniform(0, 1, (3, 2, 5))


def t(array):
    return torch.from_numpy(np.asarray(array))


def softmax(z):
    e = np.exp(z)
    return e / e.sum(axis=1, keepdims=True)


def one_hot(labels):
    return np.moveaxis(np.eye(4)[labels], -1, 1)


NLL = -(one_hot(LABELS) * np.log(softmax(LOGITS))).sum(axis=1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_cross_entropy_of_labels(dtype):
    found = CrossEntropy()(logits=t(LOGITS), labels=t(LABELS).to(dtype))
    np.testing.assert_allclose(found, NLL.mean(axis=(1, 2)), rtol=1e-12)


def test_cross_entropy_of_probabilities():
    p = softmax(RANDOM.normal(size=LOGITS.shape))
    expected = -(p * np.log(softmax(LOGITS))).sum(axis=1)
    np.testing.assert_allclose(CrossEntropy()(logits=t(LOGITS), labels=t(p)), expected.mean(axis=(1, 2)), rtol=1e-12)
    masked = CrossEntropy()(logits=t(LOGITS), labels=t(p), mask=t(MASK))
    np.testing.assert_allclose(masked, (MASK * expected).sum(axis=(1, 2)) / MASK.sum(axis=(1, 2)), rtol=1e-12)
    hard = CrossEntropy(smoothing=0.1)(logits=t(LOGITS), labels=t(one_hot(LABELS)))
    torch.testing.assert_close(hard, CrossEntropy(smoothing=0.1)(logits=t(LOGITS), labels=t(LABELS)))


def test_smoothing():
    target = 0.9 * one_hot(LABELS) + 0.1 / 4
    expected = -(target * np.log(softmax(LOGITS))).sum(axis=1).mean(axis=(1, 2))
    np.testing.assert_allclose(CrossEntropy(smoothing=0.1)(logits=t(LOGITS), labels=t(LABELS)), expected, rtol=1e-12)


def test_ignored_labels_and_masks_leave_positions_out():
    labels = LABELS.copy()
    labels[0, 0] = 255
    labels[2] = 255
    logits = t(LOGITS).requires_grad_()
    found = CrossEntropy(ignored=255)(logits=logits, labels=t(labels))
    np.testing.assert_allclose(found.detach(), [NLL[0, 1].mean(), NLL[1].mean(), 0], rtol=1e-12)
    found.sum().backward()
    assert (logits.grad[0, :, 0] == 0).all()
    assert (logits.grad[2] == 0).all()
    both = CrossEntropy(ignored=255)(logits=t(LOGITS), labels=t(labels), mask=t(MASK))
    weights = MASK * (labels != 255)
    total = weights.sum(axis=(1, 2))
    np.testing.assert_allclose(both, (weights * NLL).sum(axis=(1, 2)) / np.where(total == 0, 1, total), rtol=1e-12)


@pytest.mark.parametrize("label", [4, -100, -1])
def test_labels_that_no_class_has_are_no_labels(label):
    labels = LABELS.copy()
    labels[1, 1, 1] = label
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        CrossEntropy()(logits=t(LOGITS), labels=t(labels))


def test_binary_cross_entropy():
    target = RANDOM.uniform(0, 1, LOGITS.shape)
    s = 1 / (1 + np.exp(-LOGITS))
    expected = -target * np.log(s) - (1 - target) * np.log(1 - s)
    np.testing.assert_allclose(
        BinaryCrossEntropy()(logits=t(LOGITS), target=t(target)), expected.mean(axis=(1, 2, 3)), rtol=1e-12
    )
    mask = MASK[:, None] > 0.5
    mask[2] = False
    found = BinaryCrossEntropy()(logits=t(LOGITS), target=t(target), mask=t(mask))
    shown = [expected[i][np.broadcast_to(mask[i], expected[i].shape)].mean() if mask[i].any() else 0 for i in range(3)]
    np.testing.assert_allclose(found, shown, rtol=1e-12)
    flags = t(LABELS) > 1
    found = BinaryCrossEntropy()(logits=t(LOGITS[:, 0]), target=flags)
    expected = -np.where(LABELS > 1, np.log(s[:, 0]), np.log(1 - s[:, 0]))
    np.testing.assert_allclose(found, expected.mean(axis=(1, 2)), rtol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_distillation(temperature):
    teacher = RANDOM.normal(0, 2, LOGITS.shape)
    p, q = softmax(teacher / temperature), softmax(LOGITS / temperature)
    expected = (p * np.log(p / q)).sum(axis=1).mean(axis=(1, 2))
    found = Distillation(temperature=temperature)(student=t(LOGITS), teacher=t(teacher))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    squared = Distillation(temperature=temperature, times_square=True)(student=t(LOGITS), teacher=t(teacher))
    np.testing.assert_allclose(squared, temperature**2 * expected, rtol=1e-10)
    student = t(LOGITS[:, :, :1, :2].copy()).requires_grad_()
    same = t(teacher[:, :, :1, :2].copy())
    loss = Distillation(temperature=temperature)
    assert torch.autograd.gradcheck(lambda x: loss(student=x, teacher=same), (student,))


def test_the_teacher_learns_nothing_and_equals_are_no_apart():
    logits = t(LOGITS).requires_grad_()
    found = Distillation(temperature=2.0)(student=t(LOGITS).requires_grad_(), teacher=logits)
    np.testing.assert_allclose(found.detach(), 0, atol=1e-15)
    found.sum().backward()
    assert logits.grad is None


@pytest.mark.parametrize("loss", [CrossEntropy(), BinaryCrossEntropy(), Distillation(temperature=1.0)])
def test_half_precision_and_large_logits(loss):
    logits = torch.tensor([[300.0, -300.0], [-300.0, 300.0]], dtype=torch.bfloat16)
    other = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.bfloat16)
    roles = {
        CrossEntropy: ("logits", "labels"),
        BinaryCrossEntropy: ("logits", "target"),
        Distillation: ("student", "teacher"),
    }
    found = loss(**dict(zip(roles[type(loss)], (logits, other), strict=True)))
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert found[1] > 100


def test_what_does_not_fit():
    logits = t(LOGITS)
    with pytest.raises(ValueError, match="labels of shape"):
        CrossEntropy()(logits=logits, labels=t(LABELS[:, :1]))
    with pytest.raises(ValueError, match="are probabilities"):
        CrossEntropy()(logits=logits, labels=t(MASK))
    with pytest.raises(ValueError, match="use a mask"):
        CrossEntropy(ignored=3)(logits=logits, labels=logits)
    with pytest.raises(ValueError, match="mask of shape"):
        CrossEntropy()(logits=logits, labels=t(LABELS), mask=t(MASK[:, None]))
    with pytest.raises(ValueError, match="against target"):
        BinaryCrossEntropy()(logits=logits, target=t(MASK))
    with pytest.raises(ValueError, match="against teacher"):
        Distillation(temperature=1.0)(student=logits, teacher=logits[:, :3])
    with pytest.raises(ValueError, match="temperature 0"):
        Distillation(temperature=0.0)
    with pytest.raises(ValueError, match="smoothing 1"):
        CrossEntropy(smoothing=1.0)
