"""AUROC on the real CIFAR-10 network of ../shared/data, against the numbers printed in its README."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from poscod import Activations
from poscod.scores import SCORES

DATA = Path(__file__).parents[3] / "shared" / "data" / "cifar10_resnet56"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real activations in ../shared/data are not here")

# MSP, energy and kNN-50 as the README prints them.
PRINTED = {
    "cifar100_test": (0.864, 0.875, 0.879),
    "svhn_test": (0.888, 0.926, 0.942),
    "mnist_test": (0.907, 0.968, 0.964),
    "dtd10_textures": (0.860, 0.855, 0.930),
}


def load(name, *, labels=False):
    with np.load(DATA / "final_layer.npz") as head, np.load(DATA / f"{name}.npz") as file:
        own = file["labels"] if labels else None
        return Activations(file["features"], file["logits"], own, head["W"], head["b"])


@pytest.fixture(scope="module")
def bank():
    return load("cifar10_train_20k", labels=True)


@pytest.fixture(scope="module")
def test_id():
    return load("cifar10_test", labels=True)


def auroc(score_id, score_ood):
    return roc_auc_score(np.r_[np.zeros(len(score_id)), np.ones(len(score_ood))], np.r_[score_id, score_ood])


@pytest.mark.slow
@pytest.mark.parametrize("ood", sorted(PRINTED))
def test_printed_areas(ood, bank, test_id):
    other = load(ood)
    for name, printed in zip(("msp", "ebo", "knn"), PRINTED[ood], strict=True):
        score = SCORES[name]().fit(bank)
        area = auroc(score(test_id), score(other))
        # The README's kNN numbers are lower by up to 0.002 than those of the published definition, which the
        # test below pins down independently.
        assert area == pytest.approx(printed, abs=0.0025 if name == "knn" else 0.0005)


@pytest.mark.slow
@pytest.mark.parametrize(("ood", "area"), [("cifar100_test", 0.8810), ("dtd10_textures", 0.9319)])
def test_knn_is_the_published_definition(ood, area, bank, test_id):
    def scaled(act):
        return act.features / np.linalg.norm(act.features, axis=1, keepdims=True)

    search = NearestNeighbors(n_neighbors=50, algorithm="brute").fit(scaled(bank))
    score = SCORES["knn"]().fit(bank)
    other = load(ood)
    parts = [test_id[:1200], other[:1200]]
    slow = [search.kneighbors(scaled(part))[0][:, -1] for part in parts]
    for part, expected in zip(parts, slow, strict=True):
        np.testing.assert_allclose(score(part), expected, atol=2e-4)
    assert auroc(score(test_id), score(other)) == pytest.approx(area, abs=5e-5)


def test_every_score_beats_chance_on_far_ood(bank, test_id):
    digits = load("mnist_test")[:2000]
    for name, score in SCORES.items():
        fitted = score().fit(bank[:4000])
        assert auroc(fitted(test_id[:2000]), fitted(digits)) > 0.6, name
