"""Which inputs to look at, and what verdicts on them say: chances that are true, intervals that hold whether or not the model is right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poscod import OOD, POSCOD
from poscod.exceptions import InvalidInputError
from poscod.review import Queue, assess, queue
from poscod.review._queue import _wish
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0, 0.0], [2.5, 0.0, 1.0]], [[1.2, 4.0, 0.0]], weight_id=[0.7, 0.3])
NAMES = np.array(["cat", "dog"])
QUANTITIES = ("ood_prior", "tpr", "fpr", "error", "selective_risk", "risk")


@pytest.fixture(scope="module")
def model():
    X, y = WORLD.sample_id(500, random_state=0)
    traffic, _ = WORLD.sample_mixture(500, pi=0.15, random_state=1)
    return POSCOD(alpha=0.3, tpr_min=0.9, random_state=0).fit(X, NAMES[y], X_unlabeled=traffic)


def log_of(pi, shift, n=3000, seed=5):
    """A log and what its inputs are; known inputs may have moved since the fit."""
    n_ood = round(pi * n)
    X, y = WORLD.sample_id(n - n_ood, random_state=seed)
    X[:, 2] += shift
    truth = np.concatenate([NAMES[y].astype(object), np.full(n_ood, OOD)])
    rows = np.concatenate([X, WORLD.sample_ood(n_ood, random_state=seed + 1)])
    mixed = np.random.default_rng(seed).permutation(n)
    return rows[mixed], truth[mixed]


def truth_of(model, X, truth):
    """The same quantities with everybody's verdict, by the definitions."""
    decisions = model.decide(X)
    ood = np.array([value is OOD for value in truth])
    wrong = ~ood & (decisions.label != truth)
    accept, alpha = decisions.accept, model.rule_.problem.alpha
    fpr, selective = accept[ood].mean(), wrong[accept & ~ood].mean()
    return {
        "ood_prior": ood.mean(),
        "tpr": accept[~ood].mean(),
        "fpr": fpr,
        "error": (wrong | ood)[accept].mean(),
        "selective_risk": selective,
        "risk": (1 - alpha) * selective + alpha * fpr,
    }


def test_chances_are_true(model):
    """Each input is drawn as often as its chance says: 400 queues of 60 of 400 inputs, and the sum over strata is the log."""
    X, _ = log_of(0.1, 0.0, n=400)
    drawn, chance = np.zeros(400), np.full(400, np.nan)
    for seed in range(400):
        chosen = queue(model, X, 60, random_state=seed)
        assert len(chosen) == 60
        assert chosen.n_rows == 400
        drawn[chosen.index] += 1
        chance[chosen.index] = chosen.probability
    assert not np.isnan(chance).any()
    z = (drawn - 400 * chance) / np.sqrt(400 * chance * (1 - chance) + 1e-9)
    assert np.abs(z).max() < 4.8
    assert np.sqrt(np.mean(z**2)) < 1.15


def test_a_queue_says_why_and_survives_a_table(model):
    X, truth = log_of(0.1, 0.0)
    chosen = queue(model, X, 120)
    assert {why.partition(":")[0].split(" of ")[0] for why in chosen.why.tolist()} >= {
        "random audit",
        "near the threshold",
        "one",
    }
    again = Queue.of(chosen.frame())
    one, two = (assess(model, X, found, truth[found.index]) for found in (chosen, again))
    assert one == two


def test_every_verdict_leaves_nothing_unknown(model):
    X, truth = log_of(0.2, 0.0, n=300)
    chosen = queue(model, X, 300)
    found = assess(model, X, chosen, truth[chosen.index])
    for name, value in truth_of(model, X, truth).items():
        interval = getattr(found, name)
        assert (interval.low, interval.estimate, interval.high) == pytest.approx((value, value, value))


def test_missing_verdicts_may_be_anything(model):
    X, truth = log_of(0.2, 0.0, n=1000)
    chosen = queue(model, X, 80)
    said = truth[chosen.index].copy()
    whole = assess(model, X, chosen, said)
    said[:20] = None
    part = assess(model, X, chosen, said)
    assert (part.reviewed, part.missing) == (60, 20)
    assert part.ood_prior.low < whole.ood_prior.low
    assert part.ood_prior.high > whole.ood_prior.high
    assert assess(model, X, chosen, said, missing="random").ood_prior.high < part.ood_prior.high


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X, q, v: (X[:-1], q, v), "must be drawn from X and whole"),
        (lambda X, q, v: (X, q, v[:-1]), "as many rows as queue"),
        (lambda X, q, v: (X, q, [None] * len(v)), "at least one verdict"),
        (lambda X, q, v: (X, q.to_dict(), v), "must be a Queue"),
        (lambda X, q, v: (X, q, ["bird", *v[1:]]), "must hold a class"),
    ],
)
def test_what_cannot_be_assessed_is_refused(model, change, sentence):
    X, truth = log_of(0.2, 0.0, n=300)
    chosen = queue(model, X, 40)
    with pytest.raises(InvalidInputError, match=sentence):
        assess(model, *change(X, chosen, truth[chosen.index]))


def covered(model, pi, shift, n, draws):
    """How often each interval holds the truth."""
    X, truth = log_of(pi, shift)
    values = truth_of(model, X, truth)
    hits = dict.fromkeys(QUANTITIES, 0)
    for seed in range(draws):
        chosen = queue(model, X, n, random_state=seed)
        found = assess(model, X, chosen, truth[chosen.index], level=0.9)
        for name in QUANTITIES:
            interval = getattr(found, name)
            hits[name] += interval.low - 1e-12 <= values[name] <= interval.high + 1e-12
    return {name: hit / draws for name, hit in hits.items()}


def test_looks_go_where_intervals_gain(model):
    """OOD share and TPR are known better than by plain random review of the same size; no input has less than half of its chance."""
    X, truth = log_of(0.1, 0.0)
    decisions, n, widths = model.decide(X), 120, {"queue": [], "plain": []}
    for seed in range(4):
        chosen = queue(model, X, n, random_state=seed)
        assert chosen.probability.min() > 0.5 * n / len(X) * 0.9
        index, one = np.random.default_rng(seed).choice(len(X), n, replace=False), np.full(n, "all")
        some = decisions[index]
        plain = Queue(index, one, np.full(n, n / len(X)), one, some.label, some.accept, some.reason)
        for how, drawn in (("queue", chosen), ("plain", plain)):
            found = assess(model, X, drawn, truth[drawn.index])
            widths[how].append([getattr(found, name).high - getattr(found, name).low for name in ("ood_prior", "tpr")])
    share, tpr = np.mean(widths["queue"], axis=0) / np.mean(widths["plain"], axis=0)
    assert share < 0.85
    assert tpr < 0.75


def test_looks_for_a_refit_find_ood_inputs_and_keep_their_chances(model):
    X, truth = log_of(0.05, 0.0)
    is_ood = np.array([value is OOD for value in truth])
    found = {aim: [] for aim in ("numbers", "refit")}
    share = []
    for aim, seed in itertools.product(found, range(6)):
        chosen = queue(model, X, 100, aim=aim, audit=0.2, random_state=seed)
        assert len(chosen) == 100
        assert chosen.n_rows == len(X)
        assert chosen.probability.min() > 0.2 * 100 / len(X) * 0.8
        found[aim].append(is_ood[chosen.index].sum())
        share.append((is_ood[chosen.index] / chosen.probability).sum() / len(X))
    assert np.mean(found["refit"]) > 2.0 * np.mean(found["numbers"])
    assert np.mean(share) == pytest.approx(is_ood.mean(), abs=0.01)
    with pytest.raises(InvalidInputError, match="aim must be one of"):
        queue(model, X, 10, aim="all")


def test_doubt_and_audit_share_out_the_looks():
    sizes, accept = np.array([1600, 200, 200]), np.array([1.0, 1.0, 0.0])
    ood, wrong = np.array([0.0, 0.02, 0.5]), np.array([0.001, 0.3, 0.0])
    for audit in (1.0, 0.5, 0.1):
        wish = _wish(sizes, ood, wrong, accept, 150, audit)
        assert wish.sum() == pytest.approx(150.0)
        assert (wish >= 150.0 * audit * sizes / 2000.0 - 1e-9).all()
        rate = wish / sizes
        assert audit == 1.0 or (rate[1] > 1.2 * rate[0] and rate[2] > 1.2 * rate[0])
    # Nobody was answered, or nothing is known: still a plan.
    assert _wish(sizes, ood, wrong, np.zeros(3), 150, 0.5).sum() == pytest.approx(150.0)


@pytest.mark.slow
@pytest.mark.parametrize(("pi", "shift", "n"), [(0.1, 0.0, 60), (0.01, 0.0, 100), (0.1, 1.5, 100), (0.5, 3.0, 60)])
def test_intervals_hold(model, pi, shift, n):
    """90 % intervals over 150 queues of one log, with rare OOD inputs and with inputs that moved so far that the rule is wrong of them."""
    found = covered(model, pi, shift, n, 150)
    assert min(found.values()) >= 0.9 - 3.0 * np.sqrt(0.09 / 150), found
