from __future__ import annotations

import numpy as np
import pytest

from poscod import ScodProblem
from poscod.exceptions import InvalidInputError
from poscod.problem import LOSSES, NOTATION


def test_beta_is_the_slope_of_theorem_2():
    assert ScodProblem(alpha=0.2, tpr_min=0.9).beta == pytest.approx(0.2 * 0.9 / 0.8)
    assert ScodProblem(alpha=0.0).beta == 0.0
    assert ScodProblem(alpha=1.0).beta == float("inf")


def test_order_of_positional_arguments():
    assert ScodProblem(0.2, 0.9, "absolute") == ScodProblem(alpha=0.2, tpr_min=0.9, loss="absolute")


def test_alpha_multiplies_fpr():
    """The authors' code calls it beta and puts it on both sides; only asymmetric values show the difference."""
    problem = ScodProblem(alpha=0.2)
    assert problem.risk(1.0, 0.0) == 0.8
    assert problem.risk(0.0, 1.0) == 0.2


def test_a_term_without_weight_may_be_undefined():
    assert ScodProblem(alpha=0.0).risk(0.3, float("nan")) == 0.3
    assert ScodProblem(alpha=1.0).risk(float("nan"), 0.3) == 0.3


def test_named_losses():
    assert set(LOSSES) == {"zero_one", "absolute"}
    assert ScodProblem().loss_matrix(3).tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert ScodProblem(loss="absolute").loss_matrix(3).tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]


def test_rows_are_truth_and_columns_answers():
    problem = ScodProblem(loss=[[0, 1, 2], [3, 0, 4], [5, 6, 0]])
    assert problem.losses([1, 2, 0], [0, 1, 2], n_classes=3).tolist() == [3, 6, 2]


def test_problems_are_values():
    matrix = np.array([[0.0, 1.0], [5.0, 0.0]])
    problem = ScodProblem(loss=matrix)
    assert problem == ScodProblem(loss=[[0, 1], [5, 0]])
    assert hash(problem) == hash(ScodProblem(loss=[[0, 1], [5, 0]]))
    matrix[0, 1] = 99.0
    problem.loss_matrix(2)[0, 1] = 99.0
    assert problem.loss_matrix(2)[0, 1] == 1.0
    with pytest.raises(AttributeError):
        problem.alpha = 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -0.1}, r"alpha must be a number in \[0, 1\], got -0.1"),
        ({"alpha": None}, "alpha must be a number"),
        ({"alpha": float("nan")}, "alpha must be a number"),
        ({"tpr_min": 0.0}, r"tpr_min must be a number in \(0, 1\]"),
        ({"tpr_min": 95}, "got 95"),
        ({"loss": "zero-one"}, "did you mean 'zero_one'"),
        ({"loss": None}, "loss must be"),
        ({"loss": [[0, 1]]}, "square"),
        ({"loss": [0, 1]}, "two-dimensional"),
        ({"loss": [[0, -1], [1, 0]]}, "non-negative"),
        ({"loss": [[0, 0], [1, 0]]}, r"l\[0, 1\] = 0"),
        ({"loss": [[1, 1], [1, 0]]}, r"l\[0, 0\] = 1"),
        ({"loss": [[0, np.nan], [1, 0]]}, "finite"),
        ({"loss": [[0, np.inf], [1, 0]]}, "finite"),
        ({"loss": [["a", "b"], ["c", "d"]]}, "real numbers"),
        ({"loss": np.zeros((0, 0))}, "square"),
    ],
)
def test_anything_else_is_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        ScodProblem(**arguments)


def test_matrix_must_fit_the_number_of_classes():
    with pytest.raises(InvalidInputError, match=r"3 x 3.*got 2 x 2"):
        ScodProblem(loss=[[0, 1], [1, 0]]).loss_matrix(3)
    with pytest.raises(InvalidInputError, match="n_classes must be a whole number"):
        ScodProblem().loss_matrix(0)


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [0.5, 1]])
def test_labels_must_be_class_indices(labels):
    with pytest.raises(InvalidInputError, match=r"class indices 0, \.\.\., 2"):
        ScodProblem().losses(labels, [0, 0], n_classes=3)


def test_notation_has_every_symbol_once():
    assert {"alpha", "beta", "lambda", "tau", "pi", "tpr_min", "r(x)", "g(x)", "s(x)"} <= set(NOTATION)
