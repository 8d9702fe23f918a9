"""Agreement with PyPI's pytorch-ood on real logits and features, where it can be imported."""

from pathlib import Path

import numpy as np
import pytest

from poscod import Activations
from poscod.scores import SCORES

torch = pytest.importorskip("torch", reason="torch is not installed")
peer = pytest.importorskip("pytorch_ood.detector", reason="pytorch-ood cannot be imported", exc_type=ImportError)

DATA = Path(__file__).parents[3] / "shared" / "data" / "cifar10_resnet56"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real activations in ../shared/data are not here")


@pytest.fixture(scope="module")
def real():
    with np.load(DATA / "final_layer.npz") as head:
        weight, bias = head["W"], head["b"]

    def load(name, n, labels):
        with np.load(DATA / f"{name}.npz") as file:
            own = file["labels"][:n] if labels else None
            return Activations(file["features"][:n], file["logits"][:n], own, weight, bias)

    return load("cifar10_train_20k", 3000, True), load("svhn_test", 500, False)


def double(array):
    return torch.from_numpy(np.array(array)).double()


@pytest.fixture(scope="module")
def theirs(real):
    """Every score of pytorch-ood that has a counterpart here, with the constant that separates the two."""
    train, test = real
    x, z, x_train, z_train, weight, bias = map(
        double, (test.features, test.logits, train.features, train.logits, train.weight, train.bias)
    )
    y = torch.from_numpy(np.array(train.labels))
    head = torch.nn.Linear(64, 10).double()
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
        single = torch.nn.Linear(64, 10)
        single.load_state_dict(head.state_dict())

        def shaped(detector):
            return detector.predict_feature_maps(x[:, :, None, None].clone())

        def flat(maps):
            return head(maps.flatten(1))

        def ash(variant, share):
            return shaped(peer.ASH(None, flat, variant=variant, percentile=share))

        react = peer.ReAct(None, flat, percentile=0.9).fit_feature_maps(x_train[:, :, None, None], y)
        return {
            "msp": 1 + peer.MaxSoftmax.score(z),  # theirs is minus the probability
            "mls": peer.MaxLogit.score(z),
            "ebo": peer.EnergyBased.score(z),
            "entropy": peer.Entropy.score(z),
            "gen": 10 * peer.GEN.score(z, gamma=0.1),  # theirs is a mean over the 10 classes
            "kl_matching": peer.KLMatching(None).fit_logits(z_train).predict_logits(z),
            "knn": peer.KNN(None).fit_features(x_train, y).predict_features(x),
            "vim": peer.ViM(None, 32, weight, bias).fit_features(x_train, y).predict_features(x),
            "dice": peer.DICE(None, weight, bias, 0.9).fit_features(x_train, y).predict_features(x),
            "nnguide": peer.NNGuide(None, single).fit_features(x_train, y).predict_features(x.float()),
            "ash_p": ash("ash-p", 0.65),
            "ash_b": ash("ash-b", 0.65),
            "ash_s": ash("ash-s", 0.90),
            "react": shaped(react),
            "scale": shaped(peer.SCALE(None, flat, percentile=0.85)),
            "she": peer.SHE(None, head).fit_features(x_train, y).predict_features(x),
            # Theirs halve the distance and do not divide the covariance by the number of rows.
            "mahalanobis": 2
            * len(train)
            * peer.Mahalanobis(None).fit_features(x_train.float(), y).predict_features(x.float()),
            "relative_mahalanobis": len(train)
            * peer.RMD(None).fit_features(x_train.float(), y).predict_features(x.float()),
            "fdbd": peer.fDBD(torch.nn.Identity(), single).fit_features(x_train.float(), y).predict_features(x.float()),
        }


# Absolute tolerance where theirs is in float32 or clips probabilities at 1e-7; float64 rounding otherwise.
LOOSE = {
    "entropy": 2e-5,
    "knn": 1e-6,
    "vim": 5e-3,
    "nnguide": 1e-3,
    "mahalanobis": 0.1,
    "relative_mahalanobis": 0.1,
    "fdbd": 1e-5,
}


SAME = """msp mls ebo entropy kl_matching knn vim dice nnguide ash_p ash_b ash_s react scale she mahalanobis
relative_mahalanobis fdbd"""


@pytest.mark.parametrize("name", SAME.split())
def test_same_numbers(name, real, theirs):
    train, test = real
    ours = SCORES[name]().fit(train)(test)
    np.testing.assert_allclose(ours, theirs[name].numpy().astype(float), rtol=1e-9, atol=LOOSE.get(name, 1e-10))


def test_gen_where_they_do_not_clip(real, theirs):
    _, test = real
    p = double(test.logits).softmax(dim=1).numpy()
    inside = (p.min(axis=1) > 1e-7) & (p.max(axis=1) < 1 - 1e-7)
    assert inside.sum() > 20
    np.testing.assert_allclose(SCORES["gen"]()(test)[inside], theirs["gen"].numpy()[inside], rtol=1e-9)


def test_gradnorm_is_the_gradient(real):
    """Theirs adds the gradient of the bias; the published score is that of the weight alone."""
    _, test = real
    weight, bias = double(test.weight).requires_grad_(), double(test.bias)
    ours = SCORES["gradnorm"]()(test[:20])
    for row, expected in zip(double(test.features[:20]), ours, strict=True):
        weight.grad = None
        loss = -torch.log_softmax(weight @ row + bias, dim=0).mean()
        loss.backward()
        assert -weight.grad.abs().sum().item() == pytest.approx(expected, rel=1e-5)
