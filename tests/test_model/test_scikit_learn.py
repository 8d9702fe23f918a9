"""scikit-learn's own checks, with a written reason for each that cannot apply."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from poscod import POSCOD
from poscod.model import NoUnlabeledDataWarning
from poscod.problem import CostProblem

# Accepting costs at most 1 and rejecting costs 1: it answers everywhere, as the checks expect of a classifier.
ALWAYS = CostProblem(reject_id=1.0, accept_ood=1.0)
_SPLIT = "labeled rows are split at random into uses, so a weight of zero is not the same as leaving a row out"
_MARKS = "it uses -1 as a label, and -1 marks unlabeled rows here (contract)"
_BY_NAME = "columns of a data frame are found by name, in any order"
_ABSTAINS = "predict says -1 where it abstains, which is not the class of the largest probability"


def expected(estimator: POSCOD) -> dict[str, str]:
    weights = ("dense", "sparse")
    always = {f"check_sample_weight_equivalence_on_{kind}_data": _SPLIT for kind in weights}
    always["check_classifiers_classes"] = _MARKS
    always["check_dataframe_column_names_consistency"] = _BY_NAME
    return always if estimator.problem is not None else {**always, "check_classifiers_train": _ABSTAINS}


@pytest.mark.filterwarnings(
    "ignore"
)  # the checks give no unlabeled rows, on purpose ill-posed data, and one row classes
@parametrize_with_checks(
    [
        POSCOD(random_state=0),
        POSCOD(problem=ALWAYS, random_state=0),
        POSCOD(LogisticRegression(), calibration=2, random_state=0),
    ],
    expected_failed_checks=expected,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_the_checks_run_without_traffic():
    """They exercise the rule on conditional risk alone; say so where it happens."""
    with pytest.warns(NoUnlabeledDataWarning):
        POSCOD().fit([[0.0], [1.0]] * 10, [0, 1] * 10)
