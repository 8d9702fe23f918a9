"""A public CIFAR-10 network on real images: what is extracted is what was stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poscod import POSCOD, Activations
from poscod.backends.images import NORMALISATIONS, open_images
from poscod.backends.onnx import export_rule
from poscod.backends.torch import build_network, extract, fit_ratio
from poscod.backends.torch._head import held_out_losses
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid

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


@pytest.fixture(scope="module")
def rows(shared):
    """Stored activations: labeled rows, a mixture of one third near OOD, and 10,000 new rows."""
    known = Activations.load(shared / "data/cifar10_resnet56/cifar10_test.npz")
    with np.load(shared / "data/cifar10_resnet56/cifar100_test.npz") as file:
        other = Activations(file["features"], file["logits"])
    rng = np.random.default_rng(0)
    first, second = rng.permutation(10000), rng.permutation(10000)

    def join(a, b):
        return Activations(np.concatenate([a.features, b.features]), np.concatenate([a.logits, b.logits]))

    mixture = join(known[first[3000:5000]], other[second[:1000]])
    return known[first[:3000]], mixture, join(known[first[5000:]], other[second[5000:]])


@pytest.mark.slow
def test_head_reaches_the_likelihood_of_the_closed_form(rows):
    known, mixture, _ = (Activations(part.features) for part in rows)
    order = np.random.default_rng(1).permutation(3000)
    learn, choose, judge = order[:1500], order[1500:2000], order[2000:]
    sides = known[learn], mixture[learn]
    ratio = fit_ratio(None, *sides, validation=(known[choose], mixture[choose]), epochs=60)
    core = CorrectedSigmoid(recipe="paper").fit(*sides)
    ours, theirs = (held_out_losses(est, (known[judge], mixture[judge]), 0.5).sum() for est in (ratio, core))
    assert ours < 1.01 * theirs


@pytest.mark.slow
def test_the_default_rule_in_onnx_on_ten_thousand_rows(rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    known, mixture, new = rows
    model = POSCOD(alpha=0.4, random_state=0).fit(known, known.labels, X_unlabeled=mixture)
    proto = export_rule(model)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = ["label", "accept", "log_ratio", "score"]
    label, accept, log_ratio, score = session.run(names, {"features": new.features, "logits": new.logits})
    decisions = model.decide(new)
    assert len(decisions) == 10_000
    np.testing.assert_array_equal(accept, decisions.accept)
    np.testing.assert_array_equal(label, decisions.label)
    np.testing.assert_allclose(log_ratio, decisions.log_ratio, atol=1e-5)
    np.testing.assert_allclose(score, decisions.score, rtol=1e-5, atol=1e-5)
