"""Closed-form values, identities between metrics, and behaviour at the edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import average_precision_score, roc_auc_score

from poscod.exceptions import InvalidInputError
from poscod.metrics import (
    augrc,
    aupr,
    aurc,
    auroc,
    ausrt,
    fpr_at_tpr,
    fpr_at_tpr_ood_positive,
    oscr,
    scod_curve,
    scod_risk,
    selective_risk_curve,
)
from strategies_for_hypothesis import samples


def test_constant_score_is_one_threshold():
    assert auroc([1, 1, 1], [1, 1]) == 0.5
    assert aurc([1, 1, 1, 1], [0, 1, 0, 1]) == 0.5
    curve = scod_curve([1, 1, 1], [0, 1, 1], [1, 1])
    assert curve.tpr.tolist() == curve.fpr.tolist() == [1.0]
    assert curve.selective_risk.tolist() == [2 / 3]


def test_all_wrong_classifier_has_aurc_one():
    """By definition; trapezoids that skip the first strip give 0.975 at m = 40."""
    assert aurc(np.arange(40), np.ones(40)) == 1.0
    assert aurc(np.arange(40), np.ones(40), area="trapezoid") == pytest.approx(0.975)


@given(errors=st.integers(0, 30), m=st.integers(1, 60))
def test_aurc_of_a_perfect_order(errors, m):
    """With all errors last, the risk at k accepted rows is max(0, k - right) / k."""
    errors = min(errors, m)
    loss = np.repeat([0.0, 1.0], [m - errors, errors])
    expected = np.mean([max(0, k - (m - errors)) / k for k in range(1, m + 1)])
    assert aurc(np.arange(m), loss) == pytest.approx(expected, abs=1e-12)


@given(sample=samples())
def test_augrc_identity(sample):
    """(1 - AUROC of right against wrong) acc (1 - acc) + (1 - acc)^2 / 2."""
    score, loss, _ = sample
    wrong = loss > 0
    assume(0 < wrong.sum() < len(wrong))
    accuracy = 1 - wrong.mean()
    expected = (1 - auroc(score[~wrong], score[wrong])) * accuracy * (1 - accuracy) + 0.5 * (1 - accuracy) ** 2
    assert augrc(score, wrong) == pytest.approx(expected, abs=1e-12)


@given(sample=samples())
def test_oscr_is_accuracy_times_auroc_of_the_right_rows(sample):
    score_id, loss, score_ood = sample
    right = loss == 0
    assume(right.any())
    expected = right.mean() * auroc(score_id[right], score_ood)
    assert oscr(score_id, loss, score_ood) == pytest.approx(expected, abs=1e-12)


@given(sample=samples(), alpha=st.sampled_from([0.0, 0.1, 0.37, 0.9, 1.0]))
def test_envelope_is_below_the_rule_at_each_tpr(sample, alpha):
    for t in (0.1, 0.35, 0.8, 1.0):
        assert scod_risk(*sample, alpha=alpha, tpr_min=t) <= scod_risk(*sample, alpha=alpha, tpr_min=t, envelope=False)


@given(sample=samples(), alpha=st.sampled_from([0.0, 0.1, 0.37, 0.9, 1.0]))
def test_ausrt_integrates_scod_risk(sample, alpha):
    """The area is the mean of the risk over required TPRs in (0, 1]: sum it between the reachable ones."""
    reachable = np.unique(scod_curve(*sample).tpr)
    reachable = np.append(0.0, reachable[reachable > 0])
    middles = (reachable[1:] + reachable[:-1]) / 2
    risks = [scod_risk(*sample, alpha=alpha, tpr_min=t) for t in middles]
    assert ausrt(*sample, alpha=alpha) == pytest.approx(float(np.diff(reachable) @ risks), abs=1e-12)


@given(sample=samples(), alpha=st.sampled_from([0.1, 0.37, 0.9]))
def test_raw_ausrt_is_a_mix_of_aurc_and_auroc(sample, alpha):
    """Up to the FPR in the strip before the first ID row, which the raw area leaves out; with ties, too."""
    score_id, loss, score_ood = sample
    first = score_id.min()
    strip = (np.mean(score_ood < first) + np.mean(score_ood == first) / 2) / len(score_id)
    expected = (1 - alpha) * aurc(score_id, loss, area="trapezoid") + alpha * (1 - auroc(score_id, score_ood) - strip)
    assert ausrt(*sample, alpha=alpha, envelope=False) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("tied", [1, 2, 3, 5])
def test_rows_tied_with_the_first_count_as_in_any_order(tied):
    """The mean over all orders of the first group, each without ties."""
    loss = np.array([1.0, 0.0, 0.0, 1.0, 3.0, 0.0, 1.0])
    score = np.r_[np.full(tied, 0.5), np.arange(1.0, 1.0 + len(loss) - tied)]
    rest = list(range(tied, len(loss)))
    orders = [loss[[*first, *rest]] for first in itertools.permutations(range(tied))]
    mean = np.mean([aurc(np.arange(len(loss)), order, area="trapezoid") for order in orders])
    assert aurc(score, loss, area="trapezoid") == pytest.approx(mean, abs=1e-12)


def test_one_row_is_left_out_and_not_its_group(rng):
    """Scores of ten trees: a third of all rows share the smallest one, and the area without them was a sixth too small."""
    votes = rng.binomial(10, 0.9, 3000)
    score, loss = 1 - votes / 10, (rng.random(3000) < 0.3 * (1 - votes / 10) + 0.03).astype(float)
    step, raw = aurc(score, loss), aurc(score, loss, area="trapezoid")
    first = score == score.min()
    assert first.mean() > 0.3
    assert raw > step - 0.5 * first.mean() * loss[first].mean()
    assert ausrt(score, loss, rng.integers(0, 11, 500) / 10, alpha=0.0, envelope=False) == pytest.approx(raw, abs=1e-12)


def test_scikit_learn_agrees_on_weighted_ties(rng):
    s_id, s_ood = rng.integers(0, 20, 300) / 7, rng.integers(5, 25, 200) / 7
    w_id, w_ood = rng.random(300), rng.random(200)
    y, s, w = np.repeat([0, 1], [300, 200]), np.concatenate([s_id, s_ood]), np.concatenate([w_id, w_ood])
    assert auroc(s_id, s_ood, weight_id=w_id, weight_ood=w_ood) == pytest.approx(
        roc_auc_score(y, s, sample_weight=w), abs=1e-12
    )
    assert aupr(s_id, s_ood, positive="ood", weight_id=w_id, weight_ood=w_ood) == pytest.approx(
        average_precision_score(y, s, sample_weight=w), abs=1e-12
    )
    assert aupr(s_id, s_ood, positive="id", weight_id=w_id, weight_ood=w_ood) == pytest.approx(
        average_precision_score(1 - y, -s, sample_weight=w), abs=1e-12
    )


def test_infinite_scores_are_ordinary_values():
    s_id, s_ood = [-np.inf, 0.0, np.inf], [np.inf, np.inf]
    assert auroc(s_id, s_ood) == pytest.approx((2 + 0.5) / 3)
    assert fpr_at_tpr(s_id, s_ood, tpr_min=0.6) == 0.0
    assert fpr_at_tpr(s_id, s_ood, tpr_min=0.7) == 1.0


@pytest.mark.parametrize("n", [100, 2000])
def test_decimal_tpr_is_met_exactly(n):
    """Half of the decimals t have n * t above a whole number in floating point; none may cost an extra row."""
    score = np.arange(n, dtype=float)
    for k in range(1, 101):
        for t in (k / 100, np.linspace(0, 1, 101)[k]):
            assert fpr_at_tpr(score, score, tpr_min=t) == k / 100
            assert fpr_at_tpr_ood_positive(score, score, tpr_min=t) == pytest.approx(k / 100, abs=1e-12)


def test_losses_are_summed_in_double_precision():
    """float16 sums stop at 2048; 10,000 errors must count."""
    loss = np.ones(10_000, dtype=np.float16)
    assert aurc(np.arange(10_000), loss) == 1.0


def test_ood_rows_are_not_needed_where_they_cost_nothing():
    assert ausrt([1, 2], [0, 1], [], alpha=0.0) == 0.25
    assert scod_risk([1, 2], [0, 1], [], alpha=0.0, tpr_min=1.0) == 0.5
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(ausrt([1, 2], [0, 1], [], alpha=0.1))


def test_curves_without_rows():
    assert np.isnan(scod_curve([1, 2], [0, 1], []).fpr).all()
    assert len(selective_risk_curve([], []).tpr) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scod_risk([1], [0], [1], alpha=1.5), r"alpha must be a number in \[0, 1\], got 1.5"),
        (lambda: scod_risk([1], [0], [1], tpr_min=0), r"tpr_min must be a number in \(0, 1\], got 0"),
        (lambda: ausrt([1], [0], [1], alpha="x"), "alpha must be a number"),
        (lambda: ausrt([1], [0], [1], alpha=True), "alpha must be a number"),
        (lambda: aurc([1], [0], area="trapez"), "did you mean 'trapezoid'"),
        (lambda: aupr([1], [0], positive="ID"), "positive must be one of 'id', 'ood'"),
        (lambda: fpr_at_tpr([1], [0], tpr_min=float("nan")), "tpr_min must be a number"),
    ],
)
def test_bad_parameters_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
