"""Properties every metric has, over the mapping METRICS."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning

import poscod.metrics
from oracles import metrics as oracles
from poscod.exceptions import InvalidInputError
from poscod.metrics import METRICS
from strategies_for_hypothesis import samples

ALL = sorted(METRICS)
# Parameters away from symmetric values, so that an exchanged role shows.
PARAMETERS = {
    "ausrt": [{"alpha": 0.2}, {"alpha": 0.2, "envelope": False}, {"alpha": 0.0}, {"alpha": 1.0}],
    "scod_risk": [{"alpha": 0.8, "tpr_min": 0.6}, {"alpha": 0.3, "tpr_min": 0.35, "envelope": False}],
    "aurc": [{"area": "step"}, {"area": "trapezoid"}],
    "aupr": [{"positive": "id"}, {"positive": "ood"}],
    "fpr_at_tpr": [{"tpr_min": 0.7}, {"tpr_min": 1.0}],
    "fpr_at_tpr_ood_positive": [{"tpr_min": 0.7}, {"tpr_min": 1.0}],
}
CASES = [(name, params) for name in ALL for params in PARAMETERS.get(name, [{}])]


def call(name, sample, **params):
    named = dict(zip(("score_id", "loss_id", "score_ood", "weight_id", "weight_ood"), sample, strict=False))
    metric = METRICS[name]
    arrays = [named[key] for key in metric.inputs]
    weights = {
        k: v for k, v in named.items() if k.startswith("weight") and k.replace("weight", "score") in metric.inputs
    }
    return metric.function(*arrays, **weights, **params)


def test_mapping_is_complete():
    assert len(ALL) >= 9
    areas_and_points = {
        name
        for name, value in vars(poscod.metrics).items()
        if inspect.isfunction(value) and value.__annotations__.get("return") == "float" and not name.endswith("_of")
    }
    assert areas_and_points == set(ALL)


@pytest.mark.parametrize(("name", "params"), CASES)
@given(sample=samples(weighted=True))
def test_equals_slow_definition(name, params, sample):
    fast = call(name, sample, **params)
    oracle = getattr(oracles, name)
    named = dict(zip(("score_id", "loss_id", "score_ood", "weight_id", "weight_ood"), sample, strict=True))
    arguments = {k: v for k, v in named.items() if k in inspect.signature(oracle).parameters}
    assert fast == pytest.approx(oracle(**arguments, **params), abs=1e-12)


@pytest.mark.parametrize(("name", "params"), CASES)
@given(sample=samples(), seed=st.integers(0, 9))
def test_row_order_does_not_matter(name, params, sample, seed):
    score_id, loss_id, score_ood = sample
    rng = np.random.default_rng(seed)
    a, b = rng.permutation(len(score_id)), rng.permutation(len(score_ood))
    assert call(name, (score_id[a], loss_id[a], score_ood[b]), **params) == pytest.approx(
        call(name, sample, **params), abs=1e-12
    )


@pytest.mark.parametrize(("name", "params"), CASES)
@given(sample=samples())
def test_only_the_order_of_scores_matters(name, params, sample):
    score_id, loss_id, score_ood = sample
    pooled = np.unique(np.concatenate([score_id, score_ood]))
    ranks = np.searchsorted(pooled, score_id).astype(float), np.searchsorted(pooled, score_ood).astype(float)
    increasing = lambda x: np.exp(x) - 3.0  # noqa: E731
    assert call(name, (increasing(ranks[0]), loss_id, increasing(ranks[1])), **params) == call(name, sample, **params)


@pytest.mark.parametrize(("name", "params"), CASES)
@given(sample=samples(weighted=True))
def test_weights_are_repetitions(name, params, sample):
    score_id, loss_id, score_ood, w_id, w_ood = sample
    repeated = (
        np.repeat(score_id, w_id.astype(int)),
        np.repeat(loss_id, w_id.astype(int)),
        np.repeat(score_ood, w_ood.astype(int)),
    )
    area = call(name, repeated, **params)
    if params.get("area") == "trapezoid" or (params.get("envelope") is False and name == "ausrt"):
        # The strip before the first row is left out, and a row of weight 3 is one row where three copies are three.
        area -= left_out(*sample, **params) - left_out(*repeated, **params)
    assert call(name, sample, **params) == pytest.approx(area, abs=1e-12)


def left_out(score_id, loss_id, score_ood, w_id=None, w_ood=None, *, area=None, alpha=0.0, envelope=False):
    """Area of the strip before the first ID row, by definition."""
    w_id, w_ood = (np.ones(len(s)) if w is None else w for s, w in ((score_id, w_id), (score_ood, w_ood)))
    first = score_id[w_id > 0].min()
    own = (score_id == first) & (w_id > 0)
    rate = w_ood[score_ood < first].sum() / w_ood.sum() + w_ood[score_ood == first].sum() / w_ood.sum() / 2
    risk = (1 - alpha) * np.average(loss_id[own], weights=w_id[own]) + alpha * rate
    return w_id[own].mean() / w_id.sum() * risk


@pytest.mark.parametrize(("name", "params"), CASES)
@given(sample=samples(weighted=True), factor=st.sampled_from([0.1, 0.37, 1e6]))
def test_weights_have_no_unit(name, params, sample, factor):
    score_id, loss_id, score_ood, w_id, w_ood = sample
    scaled = (score_id, loss_id, score_ood, w_id * factor, w_ood * factor)
    assert call(name, scaled, **params) == pytest.approx(call(name, sample, **params), abs=1e-12)


@pytest.mark.parametrize(("name", "params"), CASES)
def test_arguments_are_not_changed(name, params, rng):
    sample = [rng.normal(size=30), rng.random(30), rng.normal(size=20), rng.random(30), rng.random(20)]
    before = [array.copy() for array in sample]
    call(name, sample, **params)
    for array, copy in zip(sample, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("name", ALL)
def test_lists_integers_and_float32_are_taken(name):
    lists = ([0, 1, 2], [0, 1, 0], [1, 3])
    arrays = tuple(np.array(x, dtype=np.float32) for x in lists)
    value = call(name, lists)
    assert type(value) is float
    assert call(name, arrays) == value


@pytest.mark.parametrize(
    ("name", "empty"), [(n, e) for n in ALL for e in ("score_id", "score_ood") if e in METRICS[n].inputs]
)
def test_no_rows_warn_and_give_nan(name, empty):
    sample = {"score_id": [0.1, 0.2], "loss_id": [0, 1], "score_ood": [0.3]}
    sample[empty] = []
    sample["loss_id"] = sample["loss_id"] if sample["score_id"] else []
    with pytest.warns(UndefinedMetricWarning, match=f"{name} is undefined without {empty[6:].upper()} rows"):
        assert np.isnan(call(name, tuple(sample.values())))


@pytest.mark.parametrize("name", ALL)
def test_warnings_point_at_the_caller(name):
    with pytest.warns(UndefinedMetricWarning) as caught:
        METRICS[name].function(*([] for _ in METRICS[name].inputs))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("name", "array"), [(n, k) for n in ALL for k in METRICS[n].inputs])
def test_none_is_refused(name, array):
    """A forgotten loss must not be scored as a perfect classifier."""
    sample = {"score_id": [0.1, 0.2], "loss_id": [0, 1], "score_ood": [0.3], array: None}
    with pytest.raises(InvalidInputError, match=f"{array} must be an array of real numbers, got NoneType"):
        call(name, tuple(sample.values()))


@pytest.mark.parametrize(("name", "params"), CASES)
@pytest.mark.parametrize("unit", [1e-200, 0.1, 1e200])
def test_weights_of_any_size_and_many_rows(name, params, unit):
    """Running sums of 20,000 weights round; no row may be lost or won by it, and nothing may over- or underflow."""
    rng = np.random.default_rng(0)
    sample = rng.normal(size=20_000), rng.random(20_000) < 0.1, rng.normal(1, 1, 10_000)
    weighted = (*sample, np.full(20_000, unit), np.full(10_000, unit))
    assert call(name, weighted, **params) == pytest.approx(call(name, sample, **params), rel=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_nan_is_refused(name):
    with pytest.raises(InvalidInputError, match=r"score_id must not contain NaN, got 1 \(first at row 1\)"):
        call(name, ([0.1, np.nan], [0, 1], [0.3]))


@pytest.mark.parametrize("name", [n for n in ALL if "loss_id" in METRICS[n].inputs])
@pytest.mark.parametrize(
    ("loss", "message"),
    [([0, -1], "at least 0"), ([0, np.inf], "finite"), ([0], "as many rows as score_id"), (["a", "b"], "real numbers")],
)
def test_bad_losses_are_refused(name, loss, message):
    with pytest.raises(InvalidInputError, match=message):
        call(name, ([0.1, 0.2], loss, [0.3]))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("weight", "message"),
    [([1.0], "as many rows"), ([-1, 1], "at least 0"), ([0, 0], "positive"), ([np.nan, 1], "NaN")],
)
def test_bad_weights_are_refused(name, weight, message):
    with pytest.raises(InvalidInputError, match=message):
        call(name, ([0.1, 0.2], [0, 1], [0.3], weight, [1.0]))


@pytest.mark.parametrize("name", ALL)
def test_two_dimensional_scores_are_refused(name):
    with pytest.raises(InvalidInputError, match="score_id must be one-dimensional"):
        call(name, ([[0.1, 0.2]], [0, 1], [0.3]))


@pytest.mark.parametrize("name", ALL)
def test_direction_is_recorded(name):
    """A score that separates perfectly beats its reverse, in the recorded direction."""
    good = (np.arange(8.0), np.repeat([0.0, 1.0], 4), np.arange(8.0, 14.0))
    bad = (-good[0], good[1], -good[2])
    better, worse = call(name, good), call(name, bad)
    assert better > worse if METRICS[name].higher_is_better else better < worse
