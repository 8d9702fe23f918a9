"""Evaluation on a cluster: names, values and intervals of one memory, whatever the chunks."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import poscod.backends.dask._order as order
import poscod.backends.dask._pieces as pieces
from poscod import POSCOD, Activations, metrics
from poscod._comparison import measure, read_sample, rules_of
from poscod.backends import dask as backend
from poscod.backends.dask._evaluate import areas, check_ratio_chunks, measure_rule, read_chunks
from poscod.estimator import NoUnlabeledDataWarning
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid

NAMES = ["a", "b", "c", "d"]
COSTS = np.array([[0.0, 1.0, 2.5], [0.7, 0.0, 1.0], [4.0, 0.3, 0.0]])


@pytest.fixture(scope="module")
def rows(world):
    X, y = world(401, seed=11)
    ood, _ = world(230, pi=1.0, seed=12)
    traffic, _ = world(350, pi=0.3, seed=13)
    return X, y, ood, traffic


@pytest.fixture(scope="module", params=["zero_one", "costs"])
def model(request, world):
    X, y = world(900, seed=1)
    U, _ = world(700, pi=0.3, seed=2)
    T, t = world(600, seed=3)
    loss = COSTS if request.param == "costs" else "zero_one"
    chosen = POSCOD(FrozenEstimator(LogisticRegression().fit(T, t)), CorrectedSigmoid("paper", l2=1e-3), alpha=0.3, tpr_min=0.85, loss=loss, random_state=7)  # fmt: skip
    return chosen.fit(X, y, X_unlabeled=U)


def cut(n):
    """Ways to cut n rows into chunks, empty ones among them."""
    return st.lists(st.integers(0, n), max_size=5).map(lambda cuts: tuple(np.diff([0, *sorted(cuts), n]).tolist()))


def flat(found):
    """All numbers of an evaluation in one list."""
    return [x for part in found for x in (part if isinstance(part, tuple) else (part,)) if not isinstance(x, str)]


@settings(max_examples=4)
@given(cuts=st.tuples(cut(401), cut(230), cut(350), cut(401)))
def test_evaluation_is_that_of_one_memory_for_any_chunks(model, rows, cuts):
    X, y, ood, traffic = rows
    lazy = [da.from_array(part, chunks=(sizes, 4)) for part, sizes in zip((X, ood, traffic), cuts, strict=False)]
    labels = da.from_array(y, chunks=(cuts[3],))
    found = backend.evaluate(model, lazy[0], labels, lazy[1], level=0.9)
    assert found == model.evaluate(X, y, ood, level=0.9)
    free = backend.evaluate_unlabeled(model, lazy[0], y, lazy[2], pi=0.3)
    assert flat(free) == flat(model.evaluate_unlabeled(X, y, traffic, pi=0.3))


def test_the_share_of_ood_inputs_is_that_of_one_memory(model, rows):
    X, y, _, traffic = rows
    lazy = [da.from_array(part, chunks=(77, 4)) for part in (X, traffic)]
    found = backend.evaluate_unlabeled(model, lazy[0], y, lazy[1])
    expected = model.evaluate_unlabeled(X, y, traffic)
    assert flat(found) == pytest.approx(flat(expected), rel=1e-9, nan_ok=True)
    assert 0.1 < found.ood_prior.estimate < 0.6
    assert found.fpr.reason == expected.fpr.reason


def test_without_a_ratio_any_share_is_possible(world, rows):
    X, y, _, traffic = rows
    with pytest.warns(NoUnlabeledDataWarning):
        model = POSCOD(FrozenEstimator(LogisticRegression().fit(X, y)), random_state=7).fit(*world(300, seed=4))
    found = backend.evaluate_unlabeled(
        model, da.from_array(X, chunks=100), y, da.from_array(traffic, chunks=100)
    )
    assert found.ood_prior == metrics.Interval(0.0, 0.0, 1.0, 0.95)
    assert flat(found) == pytest.approx(flat(model.evaluate_unlabeled(X, y, traffic)), nan_ok=True)


def test_frames_and_networks(world, rows):
    X, y, ood, _ = rows
    T, t = world(600, seed=3)
    label = np.array(["x", "y", "z"])
    frames = [pd.DataFrame(part, columns=NAMES) for part in (T, X, ood)]
    model = POSCOD(FrozenEstimator(LogisticRegression().fit(frames[0], label[t])), CorrectedSigmoid("paper", ood_prior=0.3), random_state=7)  # fmt: skip
    model = model.fit(frames[0], label[t], X_unlabeled=frames[2])
    lazy = [dd.from_pandas(frame.assign(key=1.0), npartitions=3) for frame in frames[1:]]
    series = dd.from_pandas(pd.Series(label[y]), npartitions=2)
    assert backend.evaluate(model, lazy[0], series, lazy[1]) == model.evaluate(
        frames[1], label[y], frames[2]
    )
    network = POSCOD(ratio=CorrectedSigmoid("paper", ood_prior=0.3), alpha=0.2, random_state=7)
    network = network.fit(Activations(T, 2.0 * T[:, :3]), t, X_unlabeled=Activations(ood, 2.0 * ood[:, :3]))
    parts = [
        backend.DaskActivations(da.from_array(2.0 * part[:, :3], chunks=(90, 3)), da.from_array(part, chunks=(90, 4)))
        for part in (X, ood)
    ]
    expected = network.evaluate(Activations(X, 2.0 * X[:, :3]), y, Activations(ood, 2.0 * ood[:, :3]))
    assert backend.evaluate(network, parts[0], y, parts[1]) == expected


def test_rules_areas_and_findings_are_those_of_one_memory(model, rows, monkeypatch):
    X, y, ood, traffic = rows
    monkeypatch.setattr(pieces, "PIECE_ROWS", 150)
    lazy = {
        "id": da.from_array(X, chunks=(77, 4)),
        "ood": da.from_array(ood, chunks=(150, 4)),
        "unlabelled": da.from_array(traffic, chunks=(100, 4)),
    }
    here = read_sample(model, X, y, ood, traffic)
    there = read_chunks(model, lazy, y, inline)
    assert there.sizes == here.sizes == {"id": 401, "ood": 230, "unlabelled": 350}
    assert there.zero_one == here.zero_one
    wanted = {"aurc": {}, "ausrt": {"alpha": 0.3}, "auroc": {}, "oscr": {}, "fpr_at_tpr": {"tpr_min": 0.85}}
    for rule in rules_of(model, here):
        mine, theirs = measure_rule(rule, there), measure(rule, here)
        assert flat(mine[:2]) + flat(mine.with_ood) == flat(theirs[:2]) + flat(theirs.with_ood)
        assert flat(mine.without) == pytest.approx(flat(theirs.without), rel=1e-9, nan_ok=True)
        arrays = {"score_id": rule.score(here.known), "loss_id": here.loss, "score_ood": rule.score(here.ood)}
        expected = {
            name: metrics.METRICS[name].function(*(arrays[key] for key in metrics.METRICS[name].inputs), **params)
            for name, params in wanted.items()
        }
        assert areas(rule, there, wanted) == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr("poscod._comparison._DIAGNOSED", 100)
    found = check_ratio_chunks(model, lazy["id"], y, lazy["unlabelled"], inline)
    from poscod._comparison import check_ratio

    assert found["findings"] == check_ratio(model, X, y, traffic)["findings"]


SCORES = st.lists(
    st.one_of(st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf, 5e-324]), st.floats(-2.0, 2.0)), min_size=1, max_size=50
).map(np.array)
PARAMS = {
    "augrc": [{}],
    "aurc": [{}, {"area": "trapezoid"}],
    "auroc": [{}],
    "ausrt": [{"alpha": 0.3}, {"alpha": 1.0}, {"alpha": 0.7, "envelope": False}],
    "fpr_at_tpr": [{"tpr_min": 0.7}],
    "fpr_at_tpr_ood_positive": [{"tpr_min": 0.6}],
    "oscr": [{}],
    "scod_risk": [{"alpha": 0.3, "tpr_min": 0.6}, {"alpha": 0.2, "tpr_min": 0.35, "envelope": False}],
}


def test_every_metric_that_is_put_together_is_tried():
    assert set(PARAMS) == set(pieces._FOLDS) == set(metrics.METRICS) - {"aupr"}


def check_pieces(name, known, other, data):
    params = data.draw(st.sampled_from(PARAMS[name]))
    losses = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.3]), min_size=len(known), max_size=len(known)))
    arrays = {"score_id": known, "loss_id": np.array(losses), "score_ood": other}
    sizes = {"score_ood": data.draw(cut(len(other)))}
    sizes["score_id"] = sizes["loss_id"] = data.draw(cut(len(known)))
    inputs = metrics.METRICS[name].inputs
    expected = metrics.METRICS[name].function(*(arrays[key] for key in inputs), **params)
    lazy = [da.from_array(arrays[key], chunks=(sizes[key],)) for key in inputs]
    with pytest.MonkeyPatch.context() as patch:
        assert backend.metric(name, *lazy, **params) == expected
        patch.setattr(pieces, "PIECE_ROWS", data.draw(st.integers(1, 20)))
        patch.setattr(order, "FETCH", 3)
        patch.setattr(order, "COUNTERS", 64)
        assert backend.metric(name, *lazy, **params) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", sorted(PARAMS))
@settings(max_examples=4)
@given(known=SCORES, other=SCORES, data=st.data())
def test_metrics_are_those_of_one_memory_for_any_pieces(name, known, other, data):
    check_pieces(name, known, other, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PARAMS))
@settings(max_examples=100)
@given(known=SCORES, other=SCORES, data=st.data())
def test_metrics_for_many_pieces(name, known, other, data):
    check_pieces(name, known, other, data)


def test_a_piece_brings_few_rows_even_where_most_are_tied(rng, monkeypatch):
    known = np.r_[np.zeros(3000), rng.normal(size=700)]
    other = np.r_[np.zeros(500), rng.normal(1.0, 1.0, size=600)]
    loss = (rng.random(3700) < 0.1).astype(float)
    monkeypatch.setattr(pieces, "PIECE_ROWS", 100)
    sizes = []
    collect = inline.collect

    def watched(parts, what):
        found = collect(parts, what)
        if what == "scores":
            sizes.append(sum(len(part[0]) if isinstance(part, tuple) else len(part) for part in found))
        return found

    monkeypatch.setattr("collect", watched)
    lazy = [da.from_array(part, chunks=400) for part in (known, loss, other)]
    found = backend.metric("ausrt", *lazy, alpha=0.4)
    assert found == pytest.approx(metrics.ausrt(known, loss, other, alpha=0.4), rel=1e-12)
    assert len(sizes) > 10
    assert max(sizes) <= 100


def test_bad_input_is_refused_in_a_sentence(model, rows):
    X, y, ood, _ = rows
    lazy, other = da.from_array(X, chunks=(200, 4)), da.from_array(ood, chunks=(200, 4))
    with pytest.raises(InvalidInputError, match=r"y must have as many rows as X \(401\), got 400"):
        backend.evaluate(model, lazy, y[:-1], other)
    with pytest.raises(InvalidInputError, match="y must hold labels seen at fit, got 9"):
        backend.evaluate(model, lazy, np.r_[y[:-1], 9], other)
    with pytest.raises(InvalidInputError, match="X_ood must have at least one row"):
        backend.evaluate(model, lazy, y, other[:0])
    with pytest.raises(InvalidInputError, match="X_ood must be a two-dimensional Dask array"):
        backend.evaluate(model, lazy, y, ood)
    with pytest.raises(InvalidInputError, match="level"):
        backend.evaluate(model, lazy, y, other, level=1.5)
    score = da.zeros(10, chunks=5)
    with pytest.raises(InvalidInputError, match="metric must be one of"):
        backend.metric("aupr", score, score)
    with pytest.raises(InvalidInputError, match="beta is no parameter of ausrt: use alpha, envelope"):
        backend.metric("ausrt", score, score, score, beta=1)
    with pytest.raises(InvalidInputError, match="aurc takes the arrays score_id, loss_id, got 1"):
        backend.metric("aurc", score)
    with pytest.raises(InvalidInputError, match="same chunks of rows"):
        backend.metric("aurc", score, score.rechunk(10))
    with pytest.raises(InvalidInputError, match="at least one row"):
        backend.metric("auroc", score, score[:0])
    with pytest.raises(InvalidInputError, match="loss_id"):
        backend.metric("aurc", score, score - 1.0)
