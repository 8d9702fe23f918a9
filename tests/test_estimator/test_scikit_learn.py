"""scikit-learn's own checks, with a written reason for each that cannot apply."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from poscod import POSCOD
from poscod.estimator import NoUnlabeledDataWarning

_MARGIN = "decision_function is the margin of accepting, one number per row, not a score per class (contract)"
_SPLIT = "labelled rows are split at random into uses, so a weight of zero is not the same as leaving a row out"
EXPECTED = {
    "check_classifiers_classes": _MARGIN,
    "check_classifiers_train": _MARGIN,
    "check_decision_proba_consistency": _MARGIN,
    "check_sample_weight_equivalence_on_dense_data": _SPLIT,
    "check_sample_weight_equivalence_on_sparse_data": _SPLIT,
}


@pytest.mark.filterwarnings(
    "ignore"
)  # the checks give no unlabelled rows, on purpose ill-posed data, and one row classes
@parametrize_with_checks(
    [POSCOD(random_state=0), POSCOD(LogisticRegression(), calibration=2, random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_the_checks_run_without_traffic():
    """They exercise the rule on conditional risk alone; say so where it happens."""
    with pytest.warns(NoUnlabeledDataWarning):
        POSCOD().fit([[0.0], [1.0]] * 10, [0, 1] * 10)
