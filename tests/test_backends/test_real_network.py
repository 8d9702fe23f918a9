"""A public CIFAR-10 network on real images: what is extracted is what was stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poscod import Activations
from poscod.backends.images import NORMALISATIONS, open_images
from poscod.backends.torch import build_network, extract
from poscod.exceptions import InvalidInputError

MEAN, STD = NORMALISATIONS["imagenet"]


@pytest.fixture(scope="module")
def network(shared):
    return build_network("resnet56_32x32", 10, shared / "data/cifar10_images/resnet56-4bfd9763.th")


def check(found, expected):
    np.testing.assert_allclose(found.features, expected.features, atol=1e-4)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-4)


def test_stored_features_and_logits(network, shared):
    images = open_images(shared / "data/cifar10_images/cifar10_test_first2000.npz", mean=MEAN, std=STD)
    found = extract(network, images.take(slice(300)).batches(100))
    check(found, Activations.load(shared / "data/cifar10_resnet56/cifar10_test.npz")[:300])
    last = np.load(shared / "data/cifar10_resnet56/final_layer.npz")
    np.testing.assert_array_equal(found.weight, last["W"])
    np.testing.assert_array_equal(found.bias, last["b"])


@pytest.mark.slow
def test_all_images_and_the_stated_accuracy(network, shared, tmp_path):
    images = open_images(shared / "data/cifar10_images/cifar10_test_first2000.npz", mean=MEAN, std=STD)
    found = extract(network, images.batches(250), to=tmp_path / "known.npz")
    everything = Activations.load(shared / "data/cifar10_resnet56/cifar10_test.npz")
    check(found, everything[:2000])
    right = everything.logits.argmax(axis=1) == everything.labels
    assert right.mean() == pytest.approx(0.9339)
    np.testing.assert_array_equal(found.logits.argmax(axis=1) == found.labels, right[:2000])


def test_images_of_another_data_set(network, shared):
    images = open_images(shared / "data/cifar10_images/cifar100_test_first2000.npz", mean=MEAN, std=STD)
    with pytest.raises(InvalidInputError, match=r"labels must be class indices 0, \.\.\., 9, or -1.*got 10 at row 10"):
        extract(network, images.take(slice(990, 1010)).batches())
    found = extract(network, replace(images, labels=None).take(slice(100)).batches())
    with np.load(shared / "data/cifar10_resnet56/cifar100_test.npz") as file:
        np.testing.assert_allclose(found.logits, file["logits"][:100], atol=1e-4)
        np.testing.assert_allclose(found.features, file["features"][:100], atol=1e-4)
