"""One sort gives what the separate functions give, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning

from poscod.exceptions import InvalidInputError
from poscod.metrics import METRICS, scod_curve, summary
from strategies_for_hypothesis import samples

PARAMETERS = {
    "ausrt": {"alpha"},
    "scod_risk": {"alpha", "tpr_min"},
    "fpr_at_tpr": {"tpr_min"},
    "fpr_at_tpr_ood_positive": {"tpr_min"},
}
alphas, tprs = st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.sampled_from([0.35, 0.7, 0.95, 1.0])


def separate(sample, **params):
    """Every field by the function that defines it."""
    named = dict(zip(("score_id", "loss_id", "score_ood", "weight_id", "weight_ood"), sample, strict=False))
    weights = {key: named[key] for key in ("weight_id", "weight_ood") if key in named}
    values = {}
    for name, metric in METRICS.items():
        of_rows = {key: w for key, w in weights.items() if key.replace("weight", "score") in metric.inputs}
        chosen = {key: params[key] for key in PARAMETERS.get(name, ())}
        values[name] = metric.function(*(named[key] for key in metric.inputs), **of_rows, **chosen)
    curve = scod_curve(*sample[:3], **weights)
    first = int(np.argmax(curve.tpr >= params["tpr_min"] * (1 - 1e-9)))
    for name in ("threshold", "tpr", "selective_risk"):
        values[name] = float(getattr(curve, name)[first])
    return values


def together(sample, **params):
    weights = dict(zip(("weight_id", "weight_ood"), sample[3:], strict=False))
    return summary(*sample[:3], **weights, **params)._asdict()


@given(sample=samples() | samples(weighted=True), alpha=alphas, tpr_min=tprs)
def test_equals_the_separate_functions(sample, alpha, tpr_min):
    values = together(sample, alpha=alpha, tpr_min=tpr_min)
    assert values == separate(sample, alpha=alpha, tpr_min=tpr_min)
    assert all(type(value) is float for value in values.values())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [1, 3, 17])
@pytest.mark.parametrize("losses", ["zero_one", "any"])
def test_equals_the_separate_functions_on_many_rows(weighted, decimals, losses, rng):
    """Sums that round: the same numbers must be added in the same order."""
    m, n = 5003, 4001
    loss = (rng.random(m) < 0.1) * (1.0 if losses == "zero_one" else rng.random(m))
    sample = rng.normal(size=m).round(decimals), loss, rng.normal(1, 1, n).round(decimals)
    if weighted:
        sample = (*sample, rng.random(m) * (rng.random(m) < 0.9), rng.random(n))
    assert together(sample, alpha=0.3, tpr_min=0.9) == separate(sample, alpha=0.3, tpr_min=0.9)


def test_defaults_are_those_of_the_functions(rng):
    sample = rng.normal(size=300), rng.random(300), rng.normal(1, 1, 200)
    assert together(sample) == separate(sample, alpha=0.5, tpr_min=0.95)
    named = dict(zip(("score_id", "loss_id", "score_ood"), sample, strict=True))
    for name, metric in METRICS.items():
        assert together(sample)[name] == metric.function(*(named[key] for key in metric.inputs))


@pytest.mark.parametrize(("score_ood", "auroc"), [(-1.0, 0.0), (2.0, 0.5), (np.inf, 1.0)])
def test_one_row_each(score_ood, auroc):
    values = summary([2.0], [0.3], [score_ood])
    assert values._asdict() == separate(([2.0], [0.3], [score_ood]), alpha=0.5, tpr_min=0.95)
    assert (values.auroc, values.threshold, values.tpr, values.selective_risk) == (auroc, 2.0, 1.0, 0.3)


def test_no_ood_rows_leave_what_needs_none():
    with pytest.warns(
        UndefinedMetricWarning, match="each of aupr, auroc, ausrt, .* is undefined without OOD rows"
    ) as caught:
        values = summary([0.1, 0.2, 0.3], [0, 1, 0], [], tpr_min=0.5)._asdict()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    defined = {name for name, value in values.items() if not np.isnan(value)}
    assert defined == {"augrc", "aurc", "threshold", "tpr", "selective_risk"}
    assert values["aurc"] == METRICS["aurc"].function([0.1, 0.2, 0.3], [0, 1, 0])
    assert (values["threshold"], values["tpr"], values["selective_risk"]) == (0.2, 2 / 3, 0.5)


def test_ood_rows_that_cost_nothing_are_not_needed():
    with pytest.warns(UndefinedMetricWarning, match="without OOD rows") as caught:
        values = summary([1, 2], [0, 1], [], alpha=0.0, tpr_min=1.0)
    assert (values.ausrt, values.scod_risk) == (0.25, 0.5)
    assert "ausrt" not in str(caught[0].message)
    assert "scod_risk" not in str(caught[0].message)


@pytest.mark.parametrize("score_ood", [[], [0.3]])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_no_id_rows_leave_nothing(score_ood, alpha):
    with pytest.warns(
        UndefinedMetricWarning, match="each of aupr, augrc, .* scod_risk is undefined without ID rows"
    ) as caught:
        values = summary([], [], score_ood, alpha=alpha)
    assert len(caught) == 1
    assert np.isnan(values).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"score_id": None}, "score_id must be an array of real numbers, got NoneType"),
        ({"loss_id": None}, "loss_id must be an array of real numbers, got NoneType"),
        ({"score_ood": None}, "score_ood must be an array of real numbers, got NoneType"),
        ({"score_id": [0.1, np.nan]}, "score_id must not contain NaN"),
        ({"loss_id": [0, -1]}, "loss_id must be at least 0"),
        ({"loss_id": [0]}, "loss_id must have as many rows as score_id"),
        ({"weight_id": [0, 0]}, "weight_id must contain a positive number"),
        ({"weight_ood": [1, 1]}, "weight_ood must have as many rows as score_ood"),
        ({"alpha": 1.5}, r"alpha must be a number in \[0, 1\], got 1.5"),
        ({"tpr_min": 0}, r"tpr_min must be a number in \(0, 1\], got 0"),
    ],
)
def test_bad_input_is_refused(changed, message):
    with pytest.raises(InvalidInputError, match=message):
        summary(**({"score_id": [0.1, 0.2], "loss_id": [0, 1], "score_ood": [0.3]} | changed))


def test_arguments_are_not_changed(rng):
    sample = [rng.normal(size=2000), rng.random(2000), rng.normal(size=1500), rng.random(2000), rng.random(1500)]
    before = [array.copy() for array in sample]
    together(sample)
    for array, copy in zip(sample, before, strict=True):
        np.testing.assert_array_equal(array, copy)
